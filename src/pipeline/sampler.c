/* sampler.c: the table of samplers. Names in the formulas: x at sigma; the estimate of the clean latents is
 * d = x - sigma v; h is the length of a step in -log sigma, or for UniPC in log((1 - sigma) / sigma). */
#include "pipeline/sampler.h"

#include <math.h>
#include <string.h>

enum { X, V, STATE };        /* columns; noise is after the states */
enum { MOST_SIGMAS = 1001 }; /* of a schedule */

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* FlowMatchEulerDiscreteScheduler.step of diffusers. */
static lz_array *step_euler(const lz_sampler_step *s, lz_array **states) {
    (void)states;
    lz_array *drop = lz_take(s->sigma_drops, s->step_index, 0);
    return lz_add(s->x, lz_mul(s->velocity(s, s->x, s->step_index), drop));
}

/* The column of a letter of lz_sampler.uses. */
static int column_of(const lz_sampler *s, char letter) {
    return letter == 'x' ? X : letter == 'v' ? V : letter == 'n' ? STATE + s->n_states : STATE + letter - '0';
}

/* The noise of this pass: row step_index, counted from the end of the schedule. */
static lz_array *noise_now(const lz_sampler_step *s) {
    int64_t skipped = lz_shape(s->sigma_drops).at[0] - lz_shape(s->noise).at[0];
    lz_array *row = lz_take(s->noise, lz_sub(s->step_index, (double)skipped), 0);
    return lz_reshape(row, lz_shape(s->x));
}

/* Sums of x, the velocity, the states and noise, times the weights of the pass. */
static lz_array *step_linear(const lz_sampler_step *s, lz_array **states) {
    const lz_sampler *sampler = s->sampler;
    int columns = STATE + sampler->n_states + sampler->noisy;
    lz_array *terms[LZ_WEIGHT_COLUMNS] = {s->x, s->velocity(s, s->x, s->step_index)}, *next = NULL;
    lz_array *weights = lz_take(s->weights, s->step_index, 0);
    for (int i = 0; i < sampler->n_states; i++) terms[STATE + i] = s->states[i];
    if (sampler->noisy) terms[columns - 1] = noise_now(s);
    for (int row = 0; row <= sampler->n_states; row++) {
        lz_array *sum = NULL;
        for (const char *use = sampler->uses[row]; *use; use++) {
            int column = column_of(sampler, *use), at = row * columns + column;
            lz_array *term = lz_mul(terms[column], lz_slice(weights, 1, at, at + 1, 1));
            sum = sum ? lz_add(sum, term) : term;
        }
        if (row)
            states[row - 1] = lz_contiguous(sum);
        else
            next = sum;
    }
    return next;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* to += weight d */
static void add_clean(double *to, double weight, double sigma) {
    to[X] += weight;
    to[V] -= weight * sigma;
}

static double same_sigma(double sigma, double next) {
    (void)sigma;
    return next;
}

static double middle_sigma(double sigma, double next) { return sqrt(sigma * next); }

/* The state is x plus half of Euler's step. */
static void weigh_heun(const lz_schedule_step *at, lz_weights_of_pass *to) {
    double step = at->sigmas[at->step + 1] - at->sigmas[at->step];
    if (at->pass) {
        to->at[0][STATE] = 1;
        to->at[0][V] = step / 2;
        return;
    }
    to->at[0][X] = to->at[1][X] = 1;
    to->at[0][V] = step;
    to->at[1][V] = step / 2;
}

/* One step of a method with the estimate d and that of the step before, old, which is its state:
 * x' = (sigma' / sigma) x + by d + by_old old. Euler: by = 1 - sigma' / sigma, by_old = 0. */
static void set_multistep(const lz_schedule_step *at, double by, double by_old, lz_weights_of_pass *to) {
    double sigma = at->sigmas[at->step], next = at->sigmas[at->step + 1];
    to->at[0][X] = next / sigma;
    add_clean(to->at[0], by, sigma);
    to->at[0][STATE] = by_old;
    add_clean(to->at[1], 1, sigma);
}

static bool is_euler_step(const lz_schedule_step *at) { return at->step == at->first || at->step == at->steps - 1; }

/* sample_dpmpp_2m of k-diffusion, in log sigma. */
static void weigh_dpmpp_2m(const lz_schedule_step *at, lz_weights_of_pass *to) {
    const double *s = at->sigmas + at->step;
    double by = 1 - s[1] / s[0], old = is_euler_step(at) ? 0 : log(s[0] / s[1]) / (2 * log(s[-1] / s[0]));
    set_multistep(at, by * (1 + old), -by * old, to);
}

static double phi_1(double h) { return -expm1(-h) / h; }
static double phi_2(double h) { return (1 - phi_1(h)) / h; }

static void weigh_res_multistep(const lz_schedule_step *at, lz_weights_of_pass *to) {
    const double *s = at->sigmas + at->step;
    if (is_euler_step(at)) {
        set_multistep(at, 1 - s[1] / s[0], 0, to);
        return;
    }
    double h = log(s[0] / s[1]), old = h * phi_2(h) / (log(s[0] / s[-1]) / h);
    set_multistep(at, h * phi_1(h) - old, old, to);
}

/* The exponential Runge-Kutta method of two stages; the second is at the middle of the step. The state is the next x
 * without the estimate of the second stage. */
static void weigh_res_2s(const lz_schedule_step *at, lz_weights_of_pass *to) {
    const double *s = at->sigmas + at->step;
    if (at->step == at->steps - 1) {
        add_clean(to->at[0], 1, s[0]);
        return;
    }
    double h = log(s[0] / s[1]), middle = middle_sigma(s[0], s[1]), late = 2 * h * phi_2(h);
    if (at->pass) {
        to->at[0][STATE] = 1;
        add_clean(to->at[0], late, middle);
        return;
    }
    to->at[0][X] = middle / s[0];
    add_clean(to->at[0], 1 - middle / s[0], s[0]);
    to->at[1][X] = s[1] / s[0];
    add_clean(to->at[1], h * phi_1(h) - late, s[0]);
}

/* ---- UniPC ------------------------------------------------------------------------------------------------------- */

/* UniPCMultistepScheduler of diffusers: order 2, bh2, estimates of the clean latents. Its corrector of a step needs the
 * estimate of the next step. The states are the corrected x of this step, carried to the next sigma, without that
 * estimate; and the estimate of this step. */

/* log((1 - sigma) / sigma); 1 counts as diffusers counts it, as the sigma that is 1e-6 less. */
static double log_ratio(double sigma) {
    if (fabs(sigma - 1) < 1e-6) sigma -= 1e-6;
    return log((1 - sigma) / sigma);
}

/* Order of a step: 1 for the first and the last. */
static int unipc_order(const lz_schedule_step *at, int step) {
    return step == at->first || step == at->steps - 1 ? 1 : 2;
}

typedef struct unipc_step {
    double gain;               /* (1 - sigma') (exp(-h) - 1) */
    double ratio;              /* sigma' / sigma */
    double r;                  /* length of the step before, as a share of this one; negative. Only of order 2 */
    double by_before, by_next; /* of the corrector: weights of old - d and d' - d */
} unipc_step;

static unipc_step measure(const lz_schedule_step *at, int step) {
    const double *s = at->sigmas + step;
    double h = log_ratio(s[1]) - log_ratio(s[0]), e = expm1(-h);
    unipc_step u = {.gain = (1 - s[1]) * e, .ratio = s[1] / s[0], .by_next = 0.5};
    if (unipc_order(at, step) == 1) return u;
    double g1 = e / -h - 1, g2 = g1 / -h - 0.5, q1 = g1 / e, q2 = 2 * g2 / e;
    u.r = (log_ratio(s[-1]) - log_ratio(s[0])) / h;
    double early = (q1 - q2) / (1 - u.r);
    u.by_before = early / u.r;
    u.by_next = q1 - early;
    return u;
}

static void weigh_unipc(const lz_schedule_step *at, lz_weights_of_pass *to) {
    enum { CARRIED = STATE, OLD };
    double sigma = at->sigmas[at->step], x[LZ_WEIGHT_COLUMNS] = {0}; /* corrected x, as a sum */
    if (at->step > at->first) {
        unipc_step before = measure(at, at->step - 1);
        x[CARRIED] = 1;
        add_clean(x, -before.gain * before.by_next, sigma);
    } else
        x[X] = 1;
    add_clean(to->at[2], 1, sigma);
    if (at->step == at->steps - 1) {
        add_clean(to->at[0], 1, sigma);
        return;
    }
    unipc_step now = measure(at, at->step);
    double old = unipc_order(at, at->step) == 2 ? 0.5 / now.r : 0;
    for (int i = 0; i < LZ_WEIGHT_COLUMNS; i++) to->at[0][i] = to->at[1][i] = now.ratio * x[i];
    add_clean(to->at[0], -now.gain * (1 - old), sigma);
    to->at[0][OLD] -= now.gain * old;
    add_clean(to->at[1], -now.gain * (1 - now.by_before - now.by_next), sigma);
    to->at[1][OLD] -= now.gain * now.by_before;
}

/* ---- samplers with noise ----------------------------------------------------------------------------------------- */

/* Euler's step goes further than sigma', and noise brings x back: sample_euler_ancestral of ComfyUI for flow models,
 * with eta and s_noise 1. */
static void weigh_euler_a(const lz_schedule_step *at, lz_weights_of_pass *to) {
    double sigma = at->sigmas[at->step], next = at->sigmas[at->step + 1], down = next * next / sigma;
    double scale = (1 - next) / (1 - down), left = next * next - down * down * scale * scale;
    to->at[0][X] = scale * down / sigma;
    add_clean(to->at[0], scale * (1 - down / sigma), sigma);
    to->at[0][STATE] = sqrt(left > 0 ? left : 0);
}

/* stochastic_sampling of FlowMatchEulerDiscreteScheduler. */
static void weigh_lcm(const lz_schedule_step *at, lz_weights_of_pass *to) {
    double next = at->sigmas[at->step + 1];
    add_clean(to->at[0], 1 - next, at->sigmas[at->step]);
    to->at[0][STATE] = next;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const lz_sampler lz_samplers[LZ_SAMPLERS] = {
    [LZ_SAMPLER_EULER] = {.name = "euler", .step = step_euler},
    [LZ_SAMPLER_HEUN] = {.name = "heun",
                         .n_states = 1,
                         .second_sigma = same_sigma,
                         .weigh = weigh_heun,
                         .uses = {"xv0", "xv"},
                         .step = step_linear},
    [LZ_SAMPLER_DPMPP_2M] =
        {.name = "dpm++2m", .n_states = 1, .weigh = weigh_dpmpp_2m, .uses = {"xv0", "xv"}, .step = step_linear},
    [LZ_SAMPLER_UNIPC] =
        {.name = "unipc", .n_states = 2, .weigh = weigh_unipc, .uses = {"xv01", "xv01", "xv"}, .step = step_linear},
    [LZ_SAMPLER_RES_MULTISTEP] = {.name = "res_multistep",
                                  .n_states = 1,
                                  .weigh = weigh_res_multistep,
                                  .uses = {"xv0", "xv"},
                                  .step = step_linear},
    [LZ_SAMPLER_RES_2S] = {.name = "res_2s",
                           .n_states = 1,
                           .second_sigma = middle_sigma,
                           .weigh = weigh_res_2s,
                           .uses = {"xv0", "xv"},
                           .step = step_linear},
    [LZ_SAMPLER_EULER_A] =
        {.name = "euler_a", .noisy = true, .weigh = weigh_euler_a, .uses = {"xvn"}, .step = step_linear},
    [LZ_SAMPLER_LCM] = {.name = "lcm", .noisy = true, .weigh = weigh_lcm, .uses = {"xvn"}, .step = step_linear},
};

const char *lz_sampler_name(int i) { return i >= 0 && i < LZ_SAMPLERS ? lz_samplers[i].name : NULL; }

const lz_sampler *lz_sampler_named(const char *name) {
    for (int i = 0; i < LZ_SAMPLERS; i++)
        if (!strcmp(lz_samplers[i].name, name)) return &lz_samplers[i];
    return NULL;
}

int lz_sampler_passes(const lz_sampler *s, int steps, int n) {
    return s->second_sigma ? 2 * steps - (steps == n) : steps;
}

int lz_sampler_weights(const lz_sampler *s) {
    return s->weigh ? (1 + s->n_states) * (STATE + s->n_states + s->noisy) : 0;
}

bool lz_sampler_begins(const lz_sampler *s, int pass) { return !s->second_sigma || pass % 2 == 0; }

/* Writes the weights of a pass one after another. False: one is not a number. */
static bool put_weights(const lz_sampler *s, const lz_weights_of_pass *from, float *to) {
    bool finite = true;
    for (int row = 0; row <= s->n_states; row++)
        for (int column = 0; column < STATE + s->n_states + s->noisy; column++) {
            *to = (float)from->at[row][column];
            finite = finite && isfinite(*to++);
        }
    return finite;
}

bool lz_sampler_fill(const lz_sampler *s, const float *schedule, int n, int first, float *sigmas, float *weights) {
    double exact[MOST_SIGMAS];
    int passes = 0, n_weights = lz_sampler_weights(s);
    if (n < 1 || n >= MOST_SIGMAS) return false;
    for (int i = 0; i <= n; i++) exact[i] = (double)schedule[i];
    for (int step = 0; step < n; step++)
        for (int pass = 0; pass < (s->second_sigma && step < n - 1 ? 2 : 1); pass++, passes++) {
            sigmas[passes] = pass ? (float)s->second_sigma(exact[step], exact[step + 1]) : schedule[step];
            if (!s->weigh || step < first) continue;
            lz_weights_of_pass w = {.at = {{0}}};
            bool falls = exact[step] > exact[step + 1] && exact[step + 1] >= 0;
            s->weigh(&(lz_schedule_step){exact, n, step, first, pass}, &w);
            if (!falls || !put_weights(s, &w, weights + (size_t)passes * (size_t)n_weights)) return false;
        }
    sigmas[passes] = schedule[n];
    return true;
}
