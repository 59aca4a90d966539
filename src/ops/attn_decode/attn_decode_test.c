#include "harness/harness.h"
static void smoke(th *h, const void *param) {
    (void)param;
    int64_t H = 9, K = 3, D = 64, B = 3, P = 32;
    lls_tensor q = th_normal(h, LLS_F32, 3, (int64_t[]){40, H, D}, NULL, 1);
    lls_tensor k = th_normal(h, LLS_F16, 4, (int64_t[]){64, P, K, D}, NULL, 1);
    lls_tensor v = th_normal(h, LLS_F16, 4, (int64_t[]){64, P, K, D}, NULL, 1);
    int32_t table[3 * 20], lens[3] = {35, 640, 0x101}, cu[4] = {0, 35, 36, 40};
    for (int i = 0; i < 60; i++) table[i] = 63 - i;
    lls_tensor t = th_data(h, LLS_I32, 2, (int64_t[]){B, 20}, table), l = th_data(h, LLS_I32, 1, &B, lens), c = th_data(h, LLS_I32, 1, (int64_t[]){4}, cu);
    lls_tensor o = th_output(h, "out", LLS_F32, 3, (int64_t[]){40, H, D}, NULL, 1e-5), e = th_output(h, "lse", LLS_F32, 2, (int64_t[]){H, 40}, NULL, 1e-5);
    lls_attn_decode_args a = LLS_ATTN_DECODE_ARGS_INIT;
    a.mask.causal = true, a.q = &q, a.k_cache = &k, a.v_cache = &v, a.page_table = &t, a.kv_lens = &l, a.cu_seqlens_q = &c, a.max_q_len = 35, a.out = &o, a.lse = &e;
    a.variant = h->variant;
    th_ok(h, lls_attn_decode(h->ctx, &a, h->stream));
}
static const th_case cases[] = {{"smoke", smoke, NULL, false}};
const th_suite th_suite_attn_decode = {"attn_decode", cases, sizeof cases / sizeof *cases, NULL};
