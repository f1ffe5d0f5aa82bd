/* cache.c: see cache.h. */
#include "pipeline/cache.h"

#include <math.h>
#include <string.h>

#include "pipeline/job.h"

/* ---- which passes ------------------------------------------------------------------------------------------------ */

/* A forecast is a line through two values. At least FEWEST passes are computed, and one of LONGEST_STEP. */
enum { ORDER = 1, FEWEST = 4, LONGEST_STEP = 6 };

int lz_cache_most(int n) {
    int least = 1 + (n - 1 + LONGEST_STEP - 1) / LONGEST_STEP;
    if (least < FEWEST) least = FEWEST;
    int most = 4 * n / 5; /* 0.8, the largest share that the options allow */
    return n <= least ? 0 : n - least < most ? n - least : most;
}

int lz_cache_count(double share, int n) {
    int count = (int)lround(share * n), most = lz_cache_most(n);
    return count < most ? count : most;
}

/* Computes 8 passes, and 18 % of all: 12 of 20, 17 of 50 (docs/quality.md). */
int lz_cache_auto(int n) {
    int count = n - 8 - (int)ceil(0.18 * n), most = lz_cache_most(n);
    return count < 0 ? 0 : count < most ? count : most;
}

/* Marks n - forecast of the n passes, evenly spaced, from the first to the last. Other densities were tried
 * (docs/quality.md). */
static void place(int n, int forecast, bool *computed) {
    int m = n - forecast;
    memset(computed, 0, (size_t)n * sizeof *computed);
    for (int i = 0; i < m; i++) computed[m > 1 ? (int)lround((double)i * (n - 1) / (m - 1)) : 0] = true;
}

/* ---- their weights ----------------------------------------------------------------------------------------------- */

/* Sigmas of the passes that a history holds, newest first. */
typedef struct held {
    double sigmas[LZ_HISTORY];
    int n;
} held;

static void hold(held *h, double sigma) {
    memmove(h->sigmas + 1, h->sigmas, (LZ_HISTORY - 1) * sizeof *h->sigmas);
    h->sigmas[0] = sigma;
    if (h->n < LZ_HISTORY) h->n++;
}

/* Weights of the polynomial through the newest values at different sigmas, at sigma. Two passes of heun have the same
 * sigma; then the older one is left out. */
static void extrapolate(const held *h, double sigma, double weights[LZ_HISTORY]) {
    int used[ORDER + 1], n = 0;
    for (int i = 0; i < h->n && n <= ORDER; i++) {
        bool apart = true;
        for (int k = 0; k < n; k++) apart = apart && fabs(h->sigmas[i] - h->sigmas[used[k]]) > 1e-6;
        if (apart) used[n++] = i;
    }
    for (int i = 0; i < n; i++) {
        double at = h->sigmas[used[i]], product = 1;
        for (int k = 0; k < n; k++)
            if (k != i) product *= (sigma - h->sigmas[used[k]]) / (at - h->sigmas[used[k]]);
        weights[used[i]] = product;
    }
}

static void fill_row(const lz_skip_wish *wish, double sigma, const held *history, const held *differences, float *to) {
    double weights[LZ_HISTORY] = {0}, of_differences[LZ_HISTORY] = {0}, by = wish->noisy ? -1 / sigma : 1;
    extrapolate(history, sigma, weights);
    extrapolate(differences, sigma, of_differences);
    to[LZ_SKIP_KEEP_X] = wish->noisy;
    to[LZ_SKIP_KEEP_V] = (float)(wish->noisy ? -sigma : 1);
    to[LZ_SKIP_X] = (float)(wish->noisy ? 1 / sigma : 0);
    for (int i = 0; i < LZ_HISTORY; i++) {
        to[LZ_SKIP_HISTORY + i] = (float)(by * weights[i]);
        to[LZ_SKIP_DIFFERENCES + i] = (float)of_differences[i];
    }
}

void lz_skips_fill(const lz_skip_wish *wish, const float *sigmas, float *to) {
    bool computed[2 * LZ_MAX_STEPS];
    held history = {.n = 0}, differences = {.n = 0};
    int since = 0; /* computed passes with guidance since the last one of the negative prompt */
    memset(to, 0, (size_t)wish->n * LZ_SKIP_COLUMNS * sizeof *to);
    place(wish->n - wish->first, wish->forecast, computed);
    for (int i = wish->first; i < wish->n; i++) {
        float *row = to + (ptrdiff_t)i * LZ_SKIP_COLUMNS;
        bool guided = wish->guided && wish->guided[i], fresh = guided && !differences.n;
        bool prompt = computed[i - wish->first] || fresh,
             negative = prompt && guided && (fresh || ++since == wish->every);
        fill_row(wish, (double)sigmas[i], &history, &differences, row);
        row[LZ_SKIP_PROMPT] = prompt;
        row[LZ_SKIP_NEGATIVE] = negative;
        row[LZ_SKIP_GUIDED] = guided;
        if (prompt) hold(&history, (double)sigmas[i]);
        if (!negative) continue;
        hold(&differences, (double)sigmas[i]);
        since = 0;
    }
}

lz_skip_counts lz_skips_count(const lz_passes *p, int first, bool guided) {
    lz_skip_counts c = {0};
    for (int i = first; i < p->n; i++) {
        const float *row = p->skips ? p->skips + (ptrdiff_t)i * LZ_SKIP_COLUMNS : NULL;
        bool prompt = !row || row[LZ_SKIP_PROMPT] > 0, negative = row ? row[LZ_SKIP_NEGATIVE] > 0 : guided;
        c.forecast += !prompt;
        c.both += negative;
        c.prompts += prompt && !negative;
    }
    return c;
}

/* ---- of a job ---------------------------------------------------------------------------------------------------- */

bool lz_job_guided(const lz_job *job) { return job->options.guidance > 1; }

/* Steps whose share of the schedule is in the range of the options, and in which the family has guidance. */
static bool has_guidance(const lz_job *job, int pass) {
    const lz_model *m = job->model;
    const lz_picture_options *o = &job->options;
    int step = job->sampler->second_sigma ? pass / 2 : pass;
    double share = (double)step / job->steps;
    if (o->guidance_to > 0 && (share < o->guidance_from || share >= o->guidance_to)) return false;
    return !m->family->guided || m->family->guided(m->state, job->passes.sigmas[pass] * (float)m->schedule.time_scale);
}

lz_status lz_job_skips(lz_job *job, lz_error *err) {
    const lz_picture_options *o = &job->options;
    lz_passes *p = &job->passes;
    bool guided[2 * LZ_MAX_STEPS] = {false}, all = true;
    for (int i = job->first_pass; i < p->n && lz_job_guided(job); i++) {
        guided[i] = has_guidance(job, i);
        all = all && guided[i];
    }
    lz_skip_wish wish = {.n = p->n,
                         .first = job->first_pass,
                         .forecast = lz_cache_count(o->cache, lz_job_passes(job)),
                         .guided = lz_job_guided(job) ? guided : NULL,
                         .every = o->guidance_every > 1 ? o->guidance_every : 1,
                         .noisy = job->sampler->noisy};
    if (!wish.forecast && (!wish.guided || (all && wish.every == 1))) return LZ_OK;
    size_t bytes = (size_t)p->n * LZ_SKIP_COLUMNS * sizeof *p->skips;
    if (!(p->skips = lz_host_alloc(job->model->ctx, bytes))) return lz_out_of_memory(err, (int64_t)bytes);
    lz_skips_fill(&wish, p->sigmas, p->skips);
    return LZ_OK;
}

void lz_job_count(const lz_job *job, int *passes, int *forecast, int *evaluations) {
    lz_skip_counts c = lz_skips_count(&job->passes, job->first_pass, lz_job_guided(job));
    *passes = lz_job_passes(job);
    *forecast = c.forecast;
    *evaluations = c.prompts + 2 * c.both;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static const lz_slot velocity_in[] = {LZ_SLOT(x),          LZ_SLOT(step_index), LZ_SLOT(tables), LZ_SLOT(context),
                                      LZ_SLOT(references), LZ_SLOT(clean_row),  LZ_SLOT(rows)};
static const lz_slot velocity_out[] = {LZ_SLOT(velocities)};

/* Evaluates the model for each context that is there. */
static void describe_velocity(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    lz_array *rows[LZ_MAX_ROWS];
    lz_take_rows(in, in->step_index, rows);
    for (int i = 0; i < 2; i++)
        if (in->context[i])
            out->velocities[i] = lz_contiguous(
                lz_cast(t->model->family->velocity(t->model->state, &t->layout, in, i, in->x, rows), LZ_F32));
}

lz_traced lz_trace_velocity(const lz_model *m, const lz_layout *layout) {
    static const lz_traced_kind kind = {
        .name = "velocity",
        .in = LZ_SLOT_LIST(velocity_in),
        .out = LZ_SLOT_LIST(velocity_out),
        .describe = describe_velocity,
        .cached = 4, /* one for each number of steps */
    };
    return (lz_traced){.kind = &kind, .model = m, .layout = *layout};
}

static const lz_slot advance_in[] = {LZ_UPDATE_SLOTS,     LZ_SLOT(guidance), LZ_SLOT(skips),
                                     LZ_SLOT(velocities), LZ_SLOT(history),  LZ_SLOT(differences)};
static const lz_slot advance_out[] = {LZ_SLOT(x), LZ_SLOT(step_index), LZ_SLOT(states), LZ_SLOT(history),
                                      LZ_SLOT(differences)};

static lz_array *column(lz_array *row, int i) { return lz_slice(row, 1, i, i + 1, 1); }
static lz_array *is_set(lz_array *row, int i) { return lz_greater(column(row, i), 0.0); }

static lz_array *sum_history(lz_array *const *history, lz_array *row, int first) {
    lz_array *sum = lz_mul(history[0], column(row, first));
    for (int i = 1; i < LZ_HISTORY; i++) sum = lz_add(sum, lz_mul(history[i], column(row, first + i)));
    return sum;
}

/* The history with a new value, if the column says that there is one. */
static void push(lz_array *const *history, lz_array *value, lz_array *row, int column_of_new, lz_array **to) {
    for (int i = 0; i < LZ_HISTORY; i++)
        to[i] = lz_contiguous(lz_where(is_set(row, column_of_new), i ? history[i - 1] : value, history[i]));
}

typedef struct given {
    lz_array *velocity;
} given;

static lz_array *given_velocity(const lz_sampler_step *s, lz_array *x, lz_array *step_index) {
    const given *g = s->user;
    if (x == s->x && step_index == s->step_index) return g->velocity;
    return lz_poison(lz_context_of(x), LZ_BAD_ARGUMENT,
                     "the sampler %s evaluates the model inside a step, so no "
                     "evaluation can be skipped",
                     s->sampler->name);
}

static void describe_advance(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    const lz_model *m = t->model;
    lz_array *row = lz_take(in->skips, in->step_index, 0), *fresh = in->velocities[0];
    lz_array *forecast = lz_add(lz_mul(in->x, column(row, LZ_SKIP_X)), sum_history(in->history, row, LZ_SKIP_HISTORY));
    lz_array *v = lz_where(is_set(row, LZ_SKIP_PROMPT), fresh, forecast);
    lz_array *kept = lz_add(lz_mul(in->x, column(row, LZ_SKIP_KEEP_X)), lz_mul(fresh, column(row, LZ_SKIP_KEEP_V)));
    push(in->history, kept, row, LZ_SKIP_PROMPT, out->history);
    if (in->velocities[1]) {
        lz_array *away = lz_where(is_set(row, LZ_SKIP_NEGATIVE), in->velocities[1],
                                  lz_sub(v, sum_history(in->differences, row, LZ_SKIP_DIFFERENCES)));
        push(in->differences, lz_sub(fresh, in->velocities[1]), row, LZ_SKIP_NEGATIVE, out->differences);
        v = lz_where(is_set(row, LZ_SKIP_GUIDED), lz_guide(m, v, away, in->guidance), v);
    }
    lz_describe_update(t, in, given_velocity, &(given){v}, out);
}

lz_traced lz_trace_advance(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler) {
    static const lz_traced_kind kind = {
        .name = "advance",
        .in = LZ_SLOT_LIST(advance_in),
        .out = LZ_SLOT_LIST(advance_out),
        .describe = describe_advance,
        .cached = 4,
    };
    return (lz_traced){.kind = &kind, .model = m, .sampler = sampler, .layout = *layout};
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* Evaluates the model and replaces the velocities. The old ones are released first, so that the new ones get their
 * places: then a recorded program is replayed. */
static lz_status evaluate(lz_job *job, bool negative, lz_error *err) {
    lz_slots in = job->slots, made = {.velocities = {in.x, negative ? in.x : NULL}};
    if (!negative) in.context[1] = NULL;
    int n = negative ? 2 : 1; /* velocities */
    for (int i = 0; i < n; i++) {
        lz_release(job->slots.velocities[i]);
        job->slots.velocities[i] = NULL;
    }
    lz_status status = lz_traced_run(&job->loop->velocity[negative], &in, &made, &job->watch, err);
    for (int i = 0; i < n; i++) job->slots.velocities[i] = lz_retain(made.velocities[i]);
    return status;
}

lz_status lz_job_skipping_pass(lz_job *job, int pass, lz_slots *next, lz_error *err) {
    const float *row = job->passes.skips + (ptrdiff_t)pass * LZ_SKIP_COLUMNS;
    bool prompt = row[LZ_SKIP_PROMPT] > 0;
    lz_watch quiet = job->watch; /* of a computed pass the user's function hears once, after the model */
    quiet.go_on = NULL;
    lz_status status = prompt ? evaluate(job, row[LZ_SKIP_NEGATIVE] > 0, err) : LZ_OK;
    if (status) return status;
    return lz_traced_run(&job->loop->advance, &job->slots, next, prompt ? &quiet : &job->watch, err);
}
