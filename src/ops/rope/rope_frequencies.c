/* The angle that each pair turns by from one position to the next, in double, and the four ways to stretch a model's
 * context. */
#include <math.h>

#include "core/error.h"
#include "ops/rope/rope_kernels.h"

static const double two_pi = 6.28318530717958647693;

static float or_default(float value, float fallback) {
    return value != 0 ? value : fallback;
}

static double clamp01(double x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

// Pairs that turn often within the trained context keep their frequency, slow ones are divided by `factor`, and in
// between the frequency (not the wavelength) goes linearly from one to the other.
static double llama3(double freq, const lls_rope_scaling *s) {
    double low = or_default(s->low_freq_factor, 1), high = or_default(s->high_freq_factor, 4);
    double turns = s->original_context * freq / two_pi;
    double keep = clamp01((turns - low) / (high - low));
    return keep * freq + (1 - keep) * freq / s->factor;
}

// The pair, as a real number, that makes `turns` turns within the trained context.
static double yarn_pair(double turns, double theta, int32_t rotary_dim, int32_t original_context) {
    return rotary_dim * log(original_context / (turns * two_pi)) / (2 * log(theta));
}

// As llama3, but linear in the pair's index, between whole indices.
static double yarn(double freq, int32_t pair, double theta, int32_t rotary_dim, const lls_rope_scaling *s) {
    double first = floor(yarn_pair(or_default(s->beta_fast, 32), theta, rotary_dim, s->original_context));
    double last = ceil(yarn_pair(or_default(s->beta_slow, 1), theta, rotary_dim, s->original_context));
    first = fmax(first, 0), last = fmin(last, rotary_dim - 1);
    double stretch = clamp01((pair - first) / fmax(last - first, 0.001));
    return stretch * freq / s->factor + (1 - stretch) * freq;
}

static lls_status check_positive(const char *name, float value, const char *why) {
    if (value > 0 && isfinite(value)) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "rope: %s is %g, must be above 0 and finite%s", name, (double)value, why);
}

static lls_status check_scaling(const lls_rope_scaling *s, float theta) {
    if (s->type == LLS_ROPE_SCALING_NONE) return LLS_OK;
    if (s->type != LLS_ROPE_SCALING_LINEAR && s->type != LLS_ROPE_SCALING_LLAMA3 && s->type != LLS_ROPE_SCALING_YARN) {
        return lls__fail(LLS_ERR_ARGUMENT, "rope: scaling.type is %d, must be one of LLS_ROPE_SCALING_*", (int)s->type);
    }
    LLS_TRY(check_positive("scaling.factor", s->factor, ""));
    if (s->type == LLS_ROPE_SCALING_LINEAR) return LLS_OK;
    if (s->original_context <= 0) {
        return lls__fail(LLS_ERR_ARGUMENT, "rope: scaling.original_context is %d, must be above 0 for llama3 and yarn",
                         s->original_context);
    }
    bool is_llama3 = s->type == LLS_ROPE_SCALING_LLAMA3;
    float low = is_llama3 ? or_default(s->low_freq_factor, 1) : or_default(s->beta_slow, 1);
    float high = is_llama3 ? or_default(s->high_freq_factor, 4) : or_default(s->beta_fast, 32);
    const char *low_name = is_llama3 ? "scaling.low_freq_factor" : "scaling.beta_slow",
               *high_name = is_llama3 ? "scaling.high_freq_factor" : "scaling.beta_fast";
    LLS_TRY(check_positive(low_name, low, " (0: the default)"));
    LLS_TRY(check_positive(high_name, high, " (0: the default)"));
    if (!(high > low))
        return lls__fail(LLS_ERR_ARGUMENT, "rope: %s is %g, must be above %s = %g", high_name, (double)high, low_name,
                         (double)low);
    if (is_llama3) return LLS_OK;
    if (!(theta > 1)) return lls__fail(LLS_ERR_ARGUMENT, "rope: theta is %g, must be above 1 for yarn", (double)theta);
    return check_positive("scaling.attention_factor", or_default(s->attention_factor, 1), " (0: the default)");
}

lls_status lls__rope_check_rotary_dim(int32_t rotary_dim) {
    if (rotary_dim >= 2 && rotary_dim <= 2 * LLS_ROPE_MAX_PAIRS && rotary_dim % 2 == 0) return LLS_OK;
    return lls__fail(LLS_ERR_ARGUMENT, "rope: rotary_dim is %d, must be even and 2 to %d", rotary_dim,
                     2 * LLS_ROPE_MAX_PAIRS);
}

lls_status lls_rope_frequencies(const lls_rope_args *args, double *inv_freq, float *magnitude) {
    if (!args || !inv_freq || !magnitude)
        return lls__fail(LLS_ERR_ARGUMENT, "rope: args, inv_freq or magnitude is NULL");
    const lls_rope_scaling *s = &args->scaling;
    int32_t dim = args->rotary_dim;
    LLS_TRY(lls__rope_check_rotary_dim(dim));
    float theta = or_default(args->theta, 10000);
    LLS_TRY(check_positive("theta", theta, " (0: 10000)"));
    LLS_TRY(check_scaling(s, theta));
    for (int32_t i = 0; args->freq_factors && i < dim / 2; i++) {
        float factor = args->freq_factors[i];
        if (!(factor > 0))
            return lls__fail(LLS_ERR_ARGUMENT, "rope: freq_factors[%d] is %g, must be above 0", i, (double)factor);
    }

    double log_theta = log(theta);
    for (int32_t i = 0; i < dim / 2; i++) {
        double freq = exp(-2.0 * i / dim * log_theta); // theta^(-2i/dim); exp costs a fifth of pow
        if (args->freq_factors) freq /= args->freq_factors[i];
        switch (s->type) {
        case LLS_ROPE_SCALING_NONE: break;
        case LLS_ROPE_SCALING_LINEAR: freq /= s->factor; break;
        case LLS_ROPE_SCALING_LLAMA3: freq = llama3(freq, s); break;
        case LLS_ROPE_SCALING_YARN: freq = yarn(freq, i, theta, dim, s); break;
        }
        inv_freq[i] = freq;
    }
    *magnitude = 1;
    if (s->type == LLS_ROPE_SCALING_YARN)
        *magnitude = or_default(s->attention_factor, s->factor > 1 ? (float)(0.1 * log(s->factor) + 1) : 1);
    return LLS_OK;
}
