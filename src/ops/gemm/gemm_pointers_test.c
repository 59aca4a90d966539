/* gemm: batches whose matrices lie where arrays of pointers say. */
#include <math.h>
#include <stdio.h>

#include "core/tensor.h"
#include "ops/gemm/gemm_test.h"

enum { POINTED_A = 1, POINTED_B = 2, POINTED_C = 4, POINTED_OUT = 8, MAX_MATRICES = 8 };

typedef struct pointed {
    gemm_product p;
    int which; // of the operands are given by pointers
} pointed;

// The addresses of the matrices of t, last first, on the device; t then names neither them nor their distance.
static const void *const *take_pointers(th *h, lls_tensor *t, bool same_matrix) {
    int64_t n = t->shape[0], addresses[MAX_MATRICES];
    for (int64_t i = 0; i < n; i++) addresses[i] = (int64_t)lls__at(t, (same_matrix ? 0 : n - 1 - i) * t->stride[0]);
    lls_tensor array = th_data(h, LLS_I64, 1, &n, addresses);
    t->data = NULL, t->stride[0] = same_matrix ? 0 : 1;
    return array.data;
}

static void run_pointed(th *h, const void *param) {
    const pointed *w = param;
    const gemm_product *p = &w->p;
    lls_tensor a = gemm_matrix(h, p->in, p->batch, p->m, p->k, p->a, p->exact ? th_hash9 : NULL),
               b = gemm_matrix(h, p->in, p->batch, p->k, p->n, p->b, p->exact ? gemm_hash9_of_b : NULL),
               c = gemm_matrix(h, p->out, p->batch, p->m, p->n, p->c, p->exact ? th_hash9 : NULL),
               out = gemm_matrix(h, p->out, p->batch, p->m, p->n, p->o, p->in == LLS_I8 ? gemm_three : gemm_poison);
    th_also_output(h, "out", &out, gemm_tol(p));
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    if (p->beta != 0) args.c = &c, args.beta = p->beta;
    if (w->which & POINTED_A) args.a_pointers = take_pointers(h, &a, false);
    if (w->which & POINTED_B) args.b_pointers = take_pointers(h, &b, w->which == POINTED_B); // one weight for all
    if (w->which & POINTED_C) args.c_pointers = take_pointers(h, &c, false);
    if (w->which & POINTED_OUT) args.out_pointers = (void *const *)(uintptr_t)take_pointers(h, &out, false);
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

static void run_case(th *h, gemm_product p, int which) {
    char name[160];
    pointed w = {p, which};
    snprintf(name, sizeof name, "pointers %lldx%lldx%lld %s->%s %c%c%c%s beta %g:%s%s%s%s", (long long)p.m,
             (long long)p.n, (long long)p.k, lls_dtype_name(p.in), lls_dtype_name(p.out), p.a.transposed ? 'T' : 'N',
             p.b.transposed ? 'T' : 'N', p.o.transposed ? 'T' : 'N', p.a.shifted ? " shifted" : "", (double)p.beta,
             which & POINTED_A ? " a" : "", which & POINTED_B ? " b" : "", which & POINTED_C ? " c" : "",
             which & POINTED_OUT ? " out" : "");
    th_run_case(h, name, run_pointed, &w);
}

// c and out are one array: each matrix in place, a bias and a residual beside it.
static void in_place(th *h, const void *param) {
    (void)param;
    int64_t batch = 3, m = 17, n = 40, k = 33;
    gemm_layout tight = {0};
    lls_tensor a = gemm_matrix(h, LLS_BF16, batch, m, k, tight, th_hash9),
               b = gemm_matrix(h, LLS_BF16, batch, k, n, tight, gemm_hash9_of_b),
               out = gemm_matrix(h, LLS_F32, batch, m, n, tight, th_hash9),
               bias = th_constant(h, LLS_F32, 1, &n, NULL, 4),
               residual = gemm_matrix(h, LLS_F32, batch, m, n, tight, gemm_hash9_of_b);
    th_also_output(h, "out", &out, 0);
    lls_gemm_args args = gemm_args_of(h, &a, &b, &out);
    args.c = &out, args.beta = 2, args.bias = &bias, args.residual = &residual;
    args.c_pointers = take_pointers(h, &out, false);
    args.out_pointers = (void *const *)(uintptr_t)args.c_pointers;
    th_ok(h, lls_gemm(h->ctx, &args, h->stream));
}

void gemm_generate_pointers(th *h) {
    static const struct {
        lls_dtype in, out;
    } types[] = {
        {LLS_BF16, LLS_BF16}, {LLS_F16, LLS_F32}, {LLS_F32, LLS_F32}, {LLS_I8, LLS_I32}, {LLS_F8_E4M3, LLS_BF16}};
    for (int turn = 0; turn < 30; turn++) {
        int which = 1 + turn % 15;
        gemm_product p = {.batch = 2 + turn % 4,
                          .m = turn % 2 ? 65 : 9,
                          .n = turn % 3 ? 72 : 33,
                          .k = turn % 4 ? 64 : 41,
                          .in = types[turn % 5].in,
                          .out = types[turn % 5].out,
                          .a = {.transposed = turn % 3 == 2, .shifted = turn >= 15},
                          .b = {.transposed = turn % 2, .shifted = turn >= 15},
                          .o = {.transposed = turn % 7 == 6, .pad = turn % 2},
                          .alpha = 1,
                          .beta = which & POINTED_C ? 1 : 0,
                          .exact = turn % 2 || types[turn % 5].in == LLS_I8};
        run_case(h, p, which);
    }
    gemm_product larger = {.batch = 3, .m = 128, .n = 256, .k = 192, .in = LLS_BF16, .out = LLS_BF16, .alpha = 1};
    larger.b.transposed = true;
    run_case(h, larger, POINTED_A | POINTED_B | POINTED_OUT);
    run_case(h, larger, POINTED_B);
    th_run_case(h, "pointers in place", in_place, NULL);
}
