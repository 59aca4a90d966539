/* llmspeed bench model: prefill of a prompt and decode after it, in tokens per second and as a share of the floor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "speed.h"
#include "verbs.h"

enum { KEY_DEPTH = 0x200 };

typedef struct flags {
    cli_engine_flags engine;
    int32_t prompt_tokens, new_tokens, rounds, depth;
    bool json;
} flags;

static const struct argp_option options[] = {
    {"prompt-tokens", 'p', "P", 0, "tokens of the prompt (default 512); 0: no prefill test", 2},
    {"new-tokens", 'n', "N", 0, "tokens to decode (default 128); 0: no decode test", 2},
    {"rounds", 'r', "R", 0, "rounds of each test (default 5)", 2},
    {"depth", KEY_DEPTH, "D", 0, "tokens in the cache before the decode test (default 0)", 2},
    {"json", 'j', NULL, 0, "one JSON object instead of text", 2},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state) {
    flags *f = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &f->engine; break;
    case 'p': f->prompt_tokens = (int32_t)cli_int(state, "-p", arg, 0, 1 << 24); break;
    case 'n': f->new_tokens = (int32_t)cli_int(state, "-n", arg, 0, 1 << 24); break;
    case 'r': f->rounds = (int32_t)cli_int(state, "-r", arg, 1, 10000); break;
    case 'j': f->json = true; break;
    case KEY_DEPTH: f->depth = (int32_t)cli_int(state, "--depth", arg, 0, 1 << 24); break;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument \"%s\"", arg); break;
    case ARGP_KEY_END:
        if (f->prompt_tokens == 0 && f->new_tokens == 0) argp_error(state, "-p and -n are both 0: nothing to measure");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

typedef struct samples {
    double *seconds;
    int32_t count;
} samples;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const samples *s, double percent) {
    return s->count ? s->seconds[(int32_t)(percent / 100 * (s->count - 1) + 0.5)] : 0;
}

// Runs one request to its end. The time up to the first token (or to the end without one) is `prefill`; that of each
// later step goes to `steps`. Either may be NULL.
static lls_status run_request(lls_engine *engine, const int32_t *prompt, int32_t prompt_tokens, int32_t new_tokens,
                              double *prefill, samples *steps) {
    lls_request request = LLS_REQUEST_INIT;
    request.prompt = prompt, request.prompt_tokens = (size_t)prompt_tokens;
    request.max_new_tokens = new_tokens, request.ignore_stop_tokens = true;
    int64_t id;
    lls_status status = lls_engine_add(engine, &request, &id);
    double start = cli_seconds(), last = start;
    bool in_prompt = true;
    for (size_t active = 1; !status && active > 0;) {
        lls_event events[2];
        size_t count;
        status = lls_engine_step(engine, events, 2, &count, &active);
        double now = cli_seconds();
        if (count == 0 && active > 0) continue; // a part of the prompt
        if (in_prompt && prefill) *prefill = now - start;
        if (!in_prompt && steps && !status) steps->seconds[steps->count++] = now - last;
        in_prompt = false;
        last = now;
    }
    return status;
}

typedef struct outcome {
    samples prefill, decode; // a prompt; a token
} outcome;

static lls_status measure(lls_engine *engine, const flags *f, int32_t vocab, outcome *o) {
    int32_t longest = f->prompt_tokens > f->depth ? f->prompt_tokens : f->depth;
    int32_t *prompt = malloc(sizeof *prompt * (size_t)(longest + 1));
    if (!prompt) return LLS_ERR_MEMORY;
    uint32_t state = 1; // any ids do: every token costs the same
    for (int32_t i = 0; i <= longest; i++) {
        state = state * 1664525u + 1013904223u;
        prompt[i] = (int32_t)((state >> 8) % (uint32_t)vocab);
    }
    int32_t depth = f->depth > 0 ? f->depth : 1;
    lls_status status = LLS_OK;
    for (int32_t round = -1; round < f->rounds && !status; round++) { // round -1 warms up
        bool counts = round >= 0;
        if (f->prompt_tokens > 0) {
            double seconds = 0;
            status = run_request(engine, prompt, f->prompt_tokens, 0, &seconds, NULL);
            if (counts) o->prefill.seconds[o->prefill.count++] = seconds;
        }
        if (!status && f->new_tokens > 0) {
            status = run_request(engine, prompt, depth, f->new_tokens + 1, NULL, counts ? &o->decode : NULL);
        }
    }
    free(prompt);
    qsort(o->prefill.seconds, (size_t)o->prefill.count, sizeof(double), ascending);
    qsort(o->decode.seconds, (size_t)o->decode.count, sizeof(double), ascending);
    return status;
}

static int report(const flags *f, const lls_model *model, const lls_engine *engine, const outcome *o) {
    lls_model_info info = lls_model_describe(model);
    lls_engine_stats stats = lls_engine_get_stats(engine);
    int64_t peak = cli_peak_memory();
    int32_t threads = cli_threads(f->engine.threads);
    lls_ceilings ceilings;
    cli_ceilings(f->engine.device, threads, &ceilings);
    double bandwidth = ceilings.read_bytes_per_s;
    double prefill = percentile(&o->prefill, 50), decode = percentile(&o->decode, 50);
    double gbps = decode > 0 ? 1e-9 * (double)stats.bytes_per_decode_token / decode : 0;
    double share = bandwidth > 0 ? 1e9 * gbps / bandwidth : 0;
    if (f->json) {
        json_t *object = json_pack(
            "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:o}", "model", info.name, "architecture",
            info.architecture, "device", f->engine.device.type == LLS_CUDA ? "cuda" : "cpu", "threads", threads,
            "prompt_tokens", f->prompt_tokens, "new_tokens", f->new_tokens, "rounds", f->rounds, "depth", f->depth,
            "file_bytes", (json_int_t)info.file_bytes, "bytes_per_token", (json_int_t)stats.bytes_per_decode_token,
            "peak_memory_bytes", (json_int_t)peak, "machine_gbps", 1e-9 * bandwidth, "variants",
            cli_variants_json(f->engine.device));
        if (prefill > 0) {
            json_t *figures = json_pack("{s:f, s:f, s:f, s:f}", "tokens_per_s", f->prompt_tokens / prefill, "median_s",
                                        prefill, "p95_s", percentile(&o->prefill, 95), "best_s",
                                        percentile(&o->prefill, 0));
            json_object_set_new(object, "prefill", figures);
        }
        if (decode > 0) {
            json_t *figures = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "tokens_per_s", 1 / decode, "median_ms",
                                        1e3 * decode, "p95_ms", 1e3 * percentile(&o->decode, 95), "best_ms",
                                        1e3 * percentile(&o->decode, 0), "gbps", gbps, "floor_share", share);
            json_object_set_new(object, "decode", figures);
        }
        return cli_print_json(object, NULL);
    }
    printf("%s (%s, %s), %s", info.name, info.architecture, cli_size_of((double)info.file_bytes).text,
           f->engine.device.type == LLS_CUDA ? "cuda" : "cpu");
    if (f->engine.device.type == LLS_CPU) printf(", %d threads", threads);
    printf("\n%-16s %12s %12s %12s %9s %7s\n", "test", "tokens/s", "median ms", "p95 ms", "GB/s", "floor");
    char test[32];
    if (prefill > 0) {
        snprintf(test, sizeof test, "prefill %d", f->prompt_tokens);
        printf("%-16s %12.1f %12.3f %12.3f\n", test, f->prompt_tokens / prefill, 1e3 * prefill,
               1e3 * percentile(&o->prefill, 95));
    }
    if (decode > 0) {
        snprintf(test, sizeof test, "decode %d", f->new_tokens);
        if (f->depth) snprintf(test + strlen(test), sizeof test - strlen(test), " @%d", f->depth);
        printf("%-16s %12.1f %12.3f %12.3f %9.1f %5.0f %%\n", test, 1 / decode, 1e3 * decode,
               1e3 * percentile(&o->decode, 95), gbps, 100 * share);
    }
    printf("floor: the time to read %s of weights at the %.1f GB/s that this %s\n",
           cli_size_of((double)stats.bytes_per_decode_token).text, 1e-9 * bandwidth,
           f->engine.device.type == LLS_CUDA ? "GPU copies at" : "machine reads at");
    return cli_finish_output();
}

int verb_bench_model(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_engine_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options, parse, NULL,
        "Times the prefill of a prompt, and the decode of single tokens: medians of a few rounds after one to warm "
        "up.\vExamples:\n  llmspeed bench model -m model.gguf\n"
        "  llmspeed bench model -m model.gguf -p 0 -n 64 --depth 2048 -t 1 --json\n",
        children, NULL, NULL};
    flags f = {.prompt_tokens = 512, .new_tokens = 128, .rounds = 5};
    cli_parse(&argp, argc, argv, &f);
    int32_t needed = (f.depth > 0 ? f.depth : 1) + f.new_tokens + 1;
    if (f.prompt_tokens > needed) needed = f.prompt_tokens;
    if (f.engine.context == 0) f.engine.context = needed;
    lls_model *model;
    lls_engine *engine;
    int code = cli_engine_open(&f.engine, &model, &engine);
    if (code) return code;
    outcome o = {
        .prefill.seconds = malloc(sizeof(double) * (size_t)f.rounds),
        .decode.seconds = malloc(sizeof(double) * (size_t)f.rounds * (size_t)(f.new_tokens + 1)),
    };
    if (!o.prefill.seconds || !o.decode.seconds) {
        code = cli_error(CLI_RESOURCE, "no memory for the samples");
    } else {
        lls_status status = measure(engine, &f, lls_model_describe(model).vocab_size, &o);
        code = status ? cli_fail(status) : report(&f, model, engine, &o);
    }
    free(o.prefill.seconds);
    free(o.decode.seconds);
    lls_engine_destroy(engine);
    lls_model_free(model);
    return code;
}
