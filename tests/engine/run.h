/* Runs requests on an engine for the engine tests: the same on the CPU and on CUDA. */
#ifndef TESTS_ENGINE_RUN_H
#define TESTS_ENGINE_RUN_H

#include "llmspeed/llmspeed.h"

/* What the programs are told: --golden DIR, --model FILE (or NULL), --device cpu|cuda. */
extern const char *test_golden, *test_model_path;
extern lls_device test_device;
/* Reads the arguments or exits with the usage; `doc` says what the program checks. */
void test_arguments(int argc, char **argv, const char *doc);
/* golden/name, in a static buffer. */
const char *test_golden_path(const char *name);

/* Loads or exits with the message. */
lls_model *test_model(const char *path);
/* Creates or exits. The KV pool is filled with NaN bytes. */
lls_engine *test_engine(const lls_model *model, lls_engine_options options);

typedef struct test_run {
    lls_finish finish;
    int32_t num_ids;
    int32_t ids[1024];
} test_run;

/* One request, alone, to its end. logits: [vocab] of the last sampled row, or NULL. */
lls_status test_request(lls_engine *engine, const lls_request *request, test_run *run, float *logits, int32_t vocab);

/* sum (a - b)^2 / sum b^2; NaN anywhere gives NaN. */
double test_nmse(const float *got, const float *want, int64_t n);

#endif
