#include "dispatch/op_list.h"
#include "dispatch/variant.h"

#define DECLARE(name) extern const lls__op lls__op_##name;
#define ENTRY(name) &lls__op_##name,

LLS_OPS(DECLARE)

const lls__op *const lls__ops[] = {LLS_OPS(ENTRY)};
const int32_t lls__num_ops = LLS_COUNT(lls__ops);
