/* The cases of attn_prefill's bias. */
#ifndef LLS_OPS_ATTN_PREFILL_ATTN_BIAS_TEST_H
#define LLS_OPS_ATTN_PREFILL_ATTN_BIAS_TEST_H

#include "harness/harness.h"

void attn_bias_in_score(th *h, const void *param);
void attn_bias_as_mask(th *h, const void *param);
void attn_bias_as_alibi(th *h, const void *param);
void attn_bias_hides_rows(th *h, const void *param);
void attn_bias_not_finite(th *h, const void *param);
void attn_bias_zero_sizes(th *h, const void *param);
void attn_bias_errors(th *h, const void *param);
/* Products of shapes, dtypes, layouts and masks; keys and values that only the bias hides and that hold NaN. */
void attn_bias_generate(th *h);

#endif
