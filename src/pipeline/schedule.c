/* schedule.c: see schedule.h. */
#include "pipeline/schedule.h"

#include <math.h>

enum { MAX_TOKENS = 1 << 30, MAX_TIMESTEPS = 1 << 20 };
static const double max_shift = 100; /* its exponential is still finite */

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Defaults are those of diffusers. shift_terminal may be false, which means none. */
static double read_terminal(lz_config *c) {
    if (json_is_false(json_object_get(c->root, "shift_terminal"))) return lz_config_bool(c, "shift_terminal", false);
    double terminal = lz_config_real(c, "shift_terminal", 0);
    if (!(terminal >= 0 && terminal < 1)) lz_config_refuse(c, "'shift_terminal' must be from 0 to less than 1");
    return terminal;
}

static void read_fields(lz_schedule *s, lz_config *c) {
    static const char *const classes[] = {"FlowMatchEulerDiscreteScheduler", NULL}, *const shifts[] = {"exponential",
                                                                                                       "linear", NULL};
    static const char *const spaces[] = {"use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"};
    lz_config_choice(c, "_class_name", classes);
    *s = (lz_schedule){
        .shift = lz_config_real(c, "shift", 1),
        .dynamic = lz_config_bool(c, "use_dynamic_shifting", false),
        .linear = lz_config_choice(c, "time_shift_type", shifts) == 1,
        .base_shift = lz_config_real(c, "base_shift", 0.5),
        .max_shift = lz_config_real(c, "max_shift", 1.15),
        .base_tokens = (double)lz_config_int(c, "base_image_seq_len", 256, 1, MAX_TOKENS),
        .max_tokens = (double)lz_config_int(c, "max_image_seq_len", 4096, 1, MAX_TOKENS),
        .terminal = read_terminal(c),
        .time_scale = (double)lz_config_int(c, "num_train_timesteps", 1000, 1, MAX_TIMESTEPS) / 1000,
    };
    s->inverted = lz_config_bool(c, "invert_sigmas", false);
    s->stochastic = lz_config_bool(c, "stochastic_sampling", false);
    if (s->inverted && s->stochastic)
        lz_config_refuse(c, "'invert_sigmas' and 'stochastic_sampling' are both true: only one can be");
    for (int i = 0; i < 3; i++) {
        if (!lz_config_bool(c, spaces[i], false)) continue;
        if (s->space != LZ_AS_SHIFTED)
            lz_config_refuse(c, "'%s' and '%s' are both true: only one can be", spaces[s->space - LZ_KARRAS],
                             spaces[i]);
        s->space = LZ_KARRAS + i;
    }
    if (!(s->shift > 0 && s->shift <= exp(max_shift))) lz_config_refuse(c, "'shift' must be above 0");
    if (!(fabs(s->base_shift) <= max_shift && fabs(s->max_shift) <= max_shift))
        lz_config_refuse(c, "'base_shift' and 'max_shift' must be from -%g to %g", max_shift, max_shift);
    if (s->base_tokens == s->max_tokens)
        lz_config_refuse(c, "'base_image_seq_len' and 'max_image_seq_len' must differ");
    lz_config_refuse_rest(c, NULL);
}

lz_status lz_schedule_read(lz_schedule *s, lz_context *ctx, const char *folder, lz_error *err) {
    lz_config c;
    lz_status status = lz_config_open(&c, ctx, folder, "scheduler/scheduler_config.json", err);
    if (status) return status;
    read_fields(s, &c);
    return lz_config_end(&c, err);
}

lz_status lz_schedule_of(lz_schedule *s, lz_context *ctx, const char *path, json_t *fields, lz_error *err) {
    lz_config c;
    lz_status status = lz_config_of(&c, ctx, path, fields, err);
    if (status) return status;
    read_fields(s, &c);
    return lz_config_end(&c, err);
}

void lz_schedule_read_given(lz_schedule *s, lz_config *index) {
    s->n_given = lz_config_reals(index, "sample_sigmas", s->given, LZ_MAX_GIVEN);
    for (int i = 0; i < s->n_given; i++)
        if (!(s->given[i] > 0 && s->given[i] <= (i ? s->given[i - 1] : 1)))
            lz_config_refuse(index, "'sample_sigmas' must descend from at most 1, and stay above 0");
}

/* ---- sigmas ------------------------------------------------------------------------------------------------------ */

double lz_schedule_line(const lz_schedule *s, int64_t tokens) {
    double slope = (s->max_shift - s->base_shift) / (s->max_tokens - s->base_tokens);
    return (double)tokens * slope + (s->base_shift - slope * s->base_tokens);
}

/* Element i of numpy.linspace(first, last, n). */
static double on_line(double first, double last, int i, int n) {
    return i == n - 1 && n > 1 ? last : n > 1 ? i * ((last - first) / (n - 1)) + first : first;
}

/* Element i of torch.linspace(1, 1 / n, n), which is computed from both ends and, on current CPUs, by fused
 * multiplications. */
static float on_torch_line(int i, int n) {
    float last = (float)(1.0 / n), step = n > 1 ? (last - 1) / (float)(n - 1) : 0;
    return i < n / 2 ? fmaf(step, (float)i, 1) : fmaf(-step, (float)(n - 1 - i), last);
}

static float shifted(const lz_schedule *s, double mu, float u) {
    if (!s->dynamic) return (float)s->shift * u / (1 + (float)(s->shift - 1) * u);
    float by = (float)(s->linear ? mu : exp(mu));
    return by / (by + (1 / u - 1));
}

double lz_schedule_spaced(int space, double first, double last, int i, int n) {
    const double rho = 7;
    if (space == LZ_EXPONENTIAL) return exp(on_line(log(first), log(last), i, n));
    if (space == LZ_BETA) return last + lz_beta_quantile(1 - on_line(0, 1, i, n), 0.6, 0.6) * (first - last);
    double from = pow(first, 1 / rho), to = pow(last, 1 / rho);
    return pow(from + on_line(0, 1, i, n) * (to - from), rho);
}

bool lz_schedule_sigmas(const lz_schedule *s, double mu, int steps, float *to) {
    if (s->n_given && s->n_given != steps) return false;
    for (int i = 0; i < steps; i++) {
        double u = s->n_given                   ? s->given[i]
                   : s->line == LZ_LINE_TO_ZERO ? on_line(1, 0, i, steps + 1)
                                                : on_line(1, 1.0 / steps, i, steps);
        to[i] = shifted(s, mu, s->line == LZ_LINE_TORCH ? on_torch_line(i, steps) : (float)u);
    }
    /* The sigma of a single step stays 1 (diffusers would divide 0 by 0). */
    float stretch = (1 - to[steps - 1]) / (float)(1 - s->terminal);
    for (int i = 0; i < steps && s->terminal > 0 && steps > 1; i++) to[i] = 1 - (1 - to[i]) / stretch;
    double first = (double)to[0], last = (double)to[steps - 1];
    for (int i = 0; i < steps && s->space != LZ_AS_SHIFTED; i++)
        to[i] = (float)lz_schedule_spaced(s->space, first, last, i, steps);
    for (int i = 0; i < steps && s->inverted; i++) to[i] = 1 - to[i];
    to[steps] = s->inverted;
    for (int i = 0; i < steps; i++)
        if (!isfinite(to[i])) return false;
    return true;
}
