#include <llmspeed/llmspeed.h>
#include <stdio.h>

int main(void) {
    float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, y[2][4];
    lls_device cpu = {LLS_CPU, 0};
    lls_tensor tx = lls_tensor_make(x, LLS_F32, cpu, 2, (int64_t[]){2, 4});
    lls_tensor ty = lls_tensor_make(y, LLS_F32, cpu, 2, (int64_t[]){2, 4});
    lls_ctx *ctx;
    lls_rmsnorm_args args = LLS_RMSNORM_ARGS_INIT;
    args.x = &tx, args.out = &ty, args.eps = 1e-6f;
    if (lls_ctx_create(NULL, &ctx) || lls_rmsnorm(ctx, &args, NULL)) return puts(lls_last_error()), 1;
    printf("%f\n", y[0][0]);
    lls_ctx_destroy(ctx);
}
