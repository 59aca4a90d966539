#include "speed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

cli_speed cli_speed_of(const lls_engine *engine, const cli_engine_flags *flags, double load_seconds) {
    cli_speed s = {
        .stats = lls_engine_get_stats(engine),
        .device = flags->device,
        .threads = cli_threads(flags->threads),
        .load_seconds = load_seconds,
        .peak_memory = cli_peak_memory(),
    };
    if (s.device.type == LLS_CUDA) s.gpu_memory = s.stats.weight_bytes + s.stats.kv_bytes;
    double bytes = (double)s.stats.bytes_per_decode_token * (double)s.stats.decode_tokens;
    s.decode_bandwidth = ratio(bytes, s.stats.decode_seconds);
    lls_ceilings ceilings = {0};
    if (s.decode_bandwidth > 0) cli_ceilings(s.device, s.threads, &ceilings);
    s.bandwidth = ceilings.read_bytes_per_s;
    return s;
}

void cli_speed_print(const cli_speed *s) {
    const lls_engine_stats *t = &s->stats;
    fprintf(stderr, "prompt     %7" PRId64 " tokens  %8.3f s  %9.1f tokens/s\n", t->prefill_tokens, t->prefill_seconds,
            ratio((double)t->prefill_tokens, t->prefill_seconds));
    if (t->decode_tokens > 0) {
        fprintf(stderr, "generated  %7" PRId64 " tokens  %8.3f s  %9.1f tokens/s  %.2f ms/token\n", t->decode_tokens,
                t->decode_seconds, ratio((double)t->decode_tokens, t->decode_seconds),
                1e3 * ratio(t->decode_seconds, (double)t->decode_tokens));
    }
    if (s->decode_bandwidth > 0) {
        fprintf(stderr, "weights    %s/token, %.1f GB/s", cli_size_of((double)t->bytes_per_decode_token).text,
                1e-9 * s->decode_bandwidth);
        if (s->bandwidth > 0) {
            fprintf(stderr, ": %.0f %% of the %.1f GB/s that this %s", 100 * s->decode_bandwidth / s->bandwidth,
                    1e-9 * s->bandwidth, s->device.type == LLS_CUDA ? "GPU copies at" : "machine reads at");
            if (s->device.type == LLS_CPU) fprintf(stderr, ", %d thread%s", s->threads, s->threads == 1 ? "" : "s");
            if (s->decode_bandwidth > s->bandwidth) fputs(" (a cache serves part of them)", stderr);
        }
        fputc('\n', stderr);
    }
    fprintf(stderr, "memory     %s at most", cli_size_of((double)s->peak_memory).text);
    if (s->gpu_memory) fprintf(stderr, ", %s on the GPU", cli_size_of((double)s->gpu_memory).text);
    fprintf(stderr, " (key-value cache %s)\n", cli_size_of((double)t->kv_bytes).text);
}

json_t *cli_variants_json(lls_device device) {
    json_t *chosen = json_object();
    lls_variant_info v;
    for (int32_t i = 0; lls_variant_at(i, &v); i++) {
        if (v.device != device.type || v.unavailable || json_object_get(chosen, v.op)) continue;
        json_object_set_new(chosen, v.op, json_string(v.variant));
    }
    return chosen;
}

json_t *cli_speed_json(const cli_speed *s) {
    const lls_engine_stats *t = &s->stats;
    return json_pack(
        "{s:{s:f, s:I, s:f, s:f, s:I, s:f, s:f, s:f}, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:f, s:f, s:f}, s:s, s:i, s:o}",
        "timings", "load_seconds", s->load_seconds,
        "prefill_tokens", (json_int_t)t->prefill_tokens, "prefill_seconds", t->prefill_seconds,
        "prefill_tokens_per_s", ratio((double)t->prefill_tokens, t->prefill_seconds),
        "decode_tokens", (json_int_t)t->decode_tokens, "decode_seconds", t->decode_seconds,
        "decode_tokens_per_s", ratio((double)t->decode_tokens, t->decode_seconds),
        "ms_per_token", 1e3 * ratio(t->decode_seconds, (double)t->decode_tokens),
        "memory", "peak_bytes", (json_int_t)s->peak_memory, "gpu_bytes", (json_int_t)s->gpu_memory,
        "weight_bytes", (json_int_t)t->weight_bytes, "kv_bytes", (json_int_t)t->kv_bytes,
        "bandwidth", "bytes_per_token", (json_int_t)t->bytes_per_decode_token,
        "decode_gbps", 1e-9 * s->decode_bandwidth, "machine_gbps", 1e-9 * s->bandwidth,
        "share", ratio(s->decode_bandwidth, s->bandwidth),
        "device", s->device.type == LLS_CUDA ? "cuda" : "cpu", "threads", (int)s->threads,
        "variants", cli_variants_json(s->device));
}
