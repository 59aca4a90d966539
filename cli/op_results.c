#include "op_results.h"

#include <stdio.h>
#include <time.h>

#include "bench_sources.h"

lls_status op_results_open(op_results *results, lls_device device, int32_t threads) {
    *results = (op_results){.device = device, .threads = threads};
    lls_status status = cli_ceilings(device, threads, &results->ceilings);
    if (status) return status;
    results->rows = json_array();
    results->peer_versions = json_object();
    results->peer_failures = json_object();
    return LLS_OK;
}

void op_results_close(op_results *results) {
    json_decref(results->rows);
    json_decref(results->peer_versions);
    json_decref(results->peer_failures);
}

op_verdict op_results_judge(const op_results *results, const bench_row *r) {
    const lls_record *c = &r->record;
    op_verdict v = {0};
    if (results->ceilings.read_bytes_per_s > 0)
        v.memory_share = c->bytes / r->median / results->ceilings.read_bytes_per_s;
    v.bound = lls_classify(&results->ceilings, c->math, c->flops, c->bytes, r->median, &v.floor_share);
    return v;
}

// The times of the peers in microseconds, and why the others have none.
static void add_peers(json_t *row, const bench_row *r) {
    json_t *times = json_object(), *sustained = json_object(), *failures = json_object();
    for (int32_t i = 0; i < r->num_peers; i++) {
        const bench_peer_time *p = &r->peers[i];
        if (p->median > 0) json_object_set_new(times, p->name, json_real(1e6 * p->median));
        if (p->sustained > 0) json_object_set_new(sustained, p->name, json_real(1e6 * p->sustained));
        if (p->why) json_object_set_new(failures, p->name, json_string(p->why));
    }
    if (json_object_size(times)) json_object_set(row, "peers", times);
    if (json_object_size(sustained)) json_object_set(row, "peers_sustained", sustained);
    if (json_object_size(failures)) json_object_set(row, "peers_failed", failures);
    json_decref(times), json_decref(sustained), json_decref(failures);
    if (r->ratio > 0) json_object_set_new(row, "ratio", json_real(r->ratio));
    if (r->ratio_sustained > 0) json_object_set_new(row, "ratio_sustained", json_real(r->ratio_sustained));
}

static json_t *row_json(const op_results *results, const bench_row *r) {
    json_t *params = json_object();
    for (int32_t i = 0; i < r->num_params; i++) {
        json_object_set_new(params, r->param_names[i], json_integer(r->param_values[i]));
    }
    json_t *row = json_pack("{s:s, s:s, s:o, s:s, s:s, s:b}", "op", r->op, "case", r->name, "params", params, "dtype",
                            r->dtype, "variant", r->variant, "chosen", r->chosen);
    if (r->idea) json_object_set_new(row, "idea", json_string(r->idea));
    if (r->why) {
        json_object_set_new(row, r->failed ? "failed" : "refused", json_string(r->why));
        return row;
    }
    const lls_record *c = &r->record;
    op_verdict v = op_results_judge(results, r);
    json_object_set_new(row, "us", json_real(1e6 * r->median));
    json_object_set_new(row, "p95_us", json_real(1e6 * r->p95));
    json_object_set_new(row, "best_us", json_real(1e6 * r->best));
    json_object_set_new(row, "samples", json_integer(r->samples));
    if (r->sustained > 0) json_object_set_new(row, "sustained_us", json_real(1e6 * r->sustained));
    add_peers(row, r);
    json_object_set_new(row, "tflops", json_real(1e-12 * c->flops / r->median));
    json_object_set_new(row, "tbps", json_real(1e-12 * c->bytes / r->median));
    json_object_set_new(row, "error", json_real(r->error));
    if (v.memory_share > 0) json_object_set_new(row, "roof_share", json_real(v.memory_share));
    json_object_set_new(row, "floor_share", json_real(v.floor_share));
    json_object_set_new(row, "bound", json_string(lls_bound_name(v.bound)));
    if (c->kernel) {
        json_object_set_new(row, "kernel", json_string(c->kernel));
        json_object_set_new(row, "registers", json_integer(c->registers));
        json_object_set_new(row, "occupancy", json_real(c->occupancy));
    }
    return row;
}

// Versions for the result; failures once, as the next rows have the same to say.
static void note_peers(op_results *results, const bench_row *r) {
    for (int32_t i = 0; i < r->num_peers; i++) {
        const bench_peer_time *p = &r->peers[i];
        json_object_set_new(results->peer_versions, p->name, p->version ? json_string(p->version) : json_null());
        if (!p->why || json_object_get(results->peer_failures, p->why)) continue;
        json_object_set_new(results->peer_failures, p->why, json_true());
        fprintf(stderr, "llmspeed: no time of %s: %s\n", p->name, p->why);
    }
}

void op_results_add(op_results *results, const bench_row *r) {
    note_peers(results, r);
    json_array_append_new(results->rows, row_json(results, r));
    results->failed += r->failed;
}

json_t *op_results_json(const op_results *results) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    lls_build_info build = lls_build();
    lls_cuda_info gpu;
    bool cuda = results->device.type == LLS_CUDA && !lls_cuda_device_info(results->device.index, &gpu);
    json_t *hashes = json_object();
    for (size_t i = 0; i < sizeof bench_sources / sizeof *bench_sources; i++) {
        json_object_set_new(hashes, bench_sources[i].op, json_string(bench_sources[i].sha256));
    }
    json_t *ceilings = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f}", cuda ? "copy_tbps" : "read_tbps", 1e-12 * results->ceilings.read_bytes_per_s,
        "f32_tflops", 1e-12 * results->ceilings.f32_flops, "tf32_tflops", 1e-12 * results->ceilings.tf32_flops,
        "f16_tflops", 1e-12 * results->ceilings.f16_flops, "f8_tflops", 1e-12 * results->ceilings.f8_flops, "i8_tops",
        1e-12 * results->ceilings.i8_ops);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:O, s:O}", cuda ? "gpu" : "cpu",
                     cuda ? gpu.name : build.cpu_name, "date", date, "commit", BENCH_COMMIT, "version", build.version,
                     "compiler", build.compiler, "threads", cli_threads(results->threads), "ceilings", ceilings,
                     "sources_sha256", hashes, "peers", results->peer_versions, "rows", results->rows);
}
