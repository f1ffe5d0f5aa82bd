/* kept.c: see kept.h. */
#include <string.h>

#include "pipeline/job.h"

/* ---- items: used by one job at a time ---------------------------------------------------------------------------- */

static void free_reader(lz_model *m, void *item) {
    lz_reader *r = item;
    lz_compiled_free(r->program);
    lz_encoder_close(m, r->encoder, r->ran);
}

static void free_loop(lz_model *m, void *item) {
    (void)m;
    lz_loop *l = item;
    lz_traced *programs[] = {&l->begin, &l->step, &l->velocity[0], &l->velocity[1], &l->advance};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) lz_traced_free(programs[i]);
    lz_compiled_free(l->preview);
    lz_slots_release(lz_size_slots, &l->slots);
}

static void free_schedule(lz_model *m, void *item) {
    lz_schedule_arrays *s = item;
    lz_evaluation_free(s->planned);
    lz_slots_release(lz_schedule_slots, &s->slots);
    lz_passes_free(m->ctx, &s->passes);
}

static void free_decoder(lz_model *m, void *item) {
    (void)m;
    lz_compiled_free(((lz_decoder *)item)->program);
}

static const struct {
    size_t bytes;
    void (*free)(lz_model *m, void *item); /* frees what the item owns */
    int most;                              /* items of this kind that are kept */
} kinds[LZ_KEPT_ITEMS] = {
    [LZ_KEPT_READER] = {sizeof(lz_reader), free_reader, 1},
    [LZ_KEPT_LOOP] = {sizeof(lz_loop), free_loop, LZ_KEPT_MOST},
    [LZ_KEPT_SCHEDULE] = {sizeof(lz_schedule_arrays), free_schedule, LZ_KEPT_MOST},
    [LZ_KEPT_DECODER] = {sizeof(lz_decoder), free_decoder, LZ_KEPT_MOST},
};

static void free_item(lz_model *m, int kind, void *item) {
    if (!item) return;
    kinds[kind].free(m, item);
    lz_host_free(m->ctx, item);
}

/* Takes out the kept item that suits what is wanted, the last used of several; the caller owns it. NULL: there is none. */
static void *take_item(lz_model *m, int kind, bool (*suits)(const void *item, const void *wanted), const void *wanted) {
    lz_kept_item *best = NULL;
    pthread_mutex_lock(&m->kept.lock);
    for (int i = 0; i < kinds[kind].most; i++) {
        lz_kept_item *k = &m->kept.items[kind][i];
        if (k->item && (!suits || suits(k->item, wanted)) && (!best || k->used > best->used)) best = k;
    }
    void *item = best ? best->item : NULL;
    if (best) best->item = NULL;
    pthread_mutex_unlock(&m->kept.lock);
    return item;
}

void lz_kept_clear(lz_model *m, int kind) {
    for (void *item; (item = take_item(m, kind, NULL, NULL));) free_item(m, kind, item);
}

void lz_kept_put(lz_model *m, int kind, void *item, bool used) {
    if (!item) return;
    pthread_mutex_lock(&m->kept.lock);
    lz_kept_item *to = &m->kept.items[kind][0];
    for (int i = 1; i < kinds[kind].most; i++) {
        lz_kept_item *k = &m->kept.items[kind][i];
        if (to->item && (!k->item || k->used < to->used)) to = k;
    }
    void *old = item;
    if (m->kept.programs && (used || !to->item)) {
        old = to->item;
        *to = (lz_kept_item){.item = item, .used = ++m->kept.clock};
    }
    pthread_mutex_unlock(&m->kept.lock);
    free_item(m, kind, old);
}

/* A new item of this kind, zeroed. */
static void *new_item(lz_model *m, int kind, lz_error *err) {
    void *item = lz_host_alloc(m->ctx, kinds[kind].bytes);
    if (!item) lz_out_of_memory(err, (int64_t)kinds[kind].bytes);
    return item;
}

static void describe_text(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_reader *r = user;
    lz_prompt prompt = {.n = r->inputs};
    memcpy(prompt.in, in, (size_t)prompt.n * sizeof *in);
    out[0] = r->model->family->features(r->encoder->text, prompt);
}

static bool reader_suits(const void *item, const void *wanted) {
    const lz_reader *r = item, *w = wanted;
    return r->encoder == w->encoder && r->inputs == w->inputs;
}

lz_reader *lz_reader_take(lz_model *m, lz_text_encoder *encoder, int inputs, lz_error *err) {
    const lz_reader wanted = {.model = m, .encoder = encoder, .inputs = inputs};
    lz_reader *r = take_item(m, LZ_KEPT_READER, reader_suits, &wanted);
    if (r || !(r = new_item(m, LZ_KEPT_READER, err))) return r;
    pthread_mutex_lock(&m->kept.lock);
    encoder->users++;
    pthread_mutex_unlock(&m->kept.lock);
    *r = wanted;
    if ((r->program = lz_compile(m->ctx, describe_text, r, inputs, 1, 2, err))) return r;
    free_item(m, LZ_KEPT_READER, r);
    return NULL;
}

static bool loop_suits(const void *item, const void *wanted) {
    const lz_loop *l = item, *w = wanted;
    return !memcmp(&l->layout, &w->layout, sizeof l->layout) && l->sampler == w->sampler;
}

lz_loop *lz_loop_take(lz_model *m, const lz_layout *layout, const lz_sampler *sampler, lz_error *err) {
    const lz_loop wanted = {.layout = *layout, .sampler = sampler};
    lz_loop *l = take_item(m, LZ_KEPT_LOOP, loop_suits, &wanted);
    if (l || !(l = new_item(m, LZ_KEPT_LOOP, err))) return l;
    *l = wanted;
    l->begin = lz_trace_begin(m, layout, sampler);
    l->step = lz_trace_step(m, layout, sampler);
    for (int i = 0; i < 2; i++) l->velocity[i] = lz_trace_velocity(m, layout);
    l->advance = lz_trace_advance(m, layout, sampler);
    m->family->tables(m->state, layout, &l->slots);
    lz_slots_retain(lz_size_slots, &l->slots);
    return l;
}

lz_status lz_loop_ready(lz_loop *l, lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    return lz_eval_all(all, lz_slots_pack(lz_size_slots, &l->slots, all, &filled), err);
}

static size_t sigma_bytes(const lz_passes *p) { return (size_t)(p->n + 1) * sizeof *p->sigmas; }
static size_t weight_bytes(const lz_passes *p) { return (size_t)p->n * (size_t)p->n_weights * sizeof *p->weights; }
static size_t skip_bytes(const lz_passes *p) { return (size_t)p->n * LZ_SKIP_COLUMNS * sizeof *p->skips; }

/* Both may be NULL. */
static bool same_floats(const float *a, const float *b, size_t bytes) {
    return a == b || (a && b && !memcmp(a, b, bytes));
}

bool lz_passes_equal(const lz_passes *p, const lz_passes *w) {
    return p->n == w->n && p->n_weights == w->n_weights && same_floats(p->sigmas, w->sigmas, sigma_bytes(p)) &&
           same_floats(p->weights, w->weights, weight_bytes(p)) && same_floats(p->skips, w->skips, skip_bytes(p));
}

static bool schedule_suits(const void *item, const void *wanted) {
    return lz_passes_equal(&((const lz_schedule_arrays *)item)->passes, wanted);
}

/* Copies an array of passes, which may be NULL. False: out of memory. */
static bool copy_floats(lz_context *ctx, const float *from, size_t bytes, float **to) {
    if (!from) return true;
    if ((*to = lz_host_alloc(ctx, bytes))) memcpy(*to, from, bytes);
    return *to;
}

lz_schedule_arrays *lz_schedule_take(lz_model *m, const lz_passes *passes, lz_error *err) {
    lz_schedule_arrays *s = take_item(m, LZ_KEPT_SCHEDULE, schedule_suits, passes);
    if (s || !(s = new_item(m, LZ_KEPT_SCHEDULE, err))) return s;
    s->passes = (lz_passes){.n = passes->n, .n_weights = passes->n_weights};
    if (copy_floats(m->ctx, passes->sigmas, sigma_bytes(passes), &s->passes.sigmas) &&
        copy_floats(m->ctx, passes->weights, weight_bytes(passes), &s->passes.weights) &&
        copy_floats(m->ctx, passes->skips, skip_bytes(passes), &s->passes.skips)) {
        lz_describe_schedule(m, &s->passes, &s->slots);
        lz_slots_retain(lz_schedule_slots, &s->slots);
        return s;
    }
    lz_out_of_memory(err, (int64_t)(sigma_bytes(passes) + weight_bytes(passes) + skip_bytes(passes)));
    free_item(m, LZ_KEPT_SCHEDULE, s);
    return NULL;
}

lz_status lz_schedule_plan(lz_schedule_arrays *s, lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    int n = lz_slots_pack(lz_schedule_slots, &s->slots, all, &filled);
    lz_status status = s->has_info ? LZ_OK : lz_check_all(all, n, err);
    if (status || s->has_info) return status;
    lz_error local = {.status = LZ_OK};
    s->planned = lz_evaluation_new(all[0]->ctx, all, n, &local);
    if (s->planned) lz_evaluation_estimate(s->planned, &s->info, &local);
    s->has_info = !local.status;
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_schedule_ready(lz_schedule_arrays *s, lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    int n = lz_slots_pack(lz_schedule_slots, &s->slots, all, &filled);
    lz_status status = lz_schedule_plan(s, err);
    if (status) return status;
    lz_evaluation *planned = s->planned;
    s->planned = NULL;
    return planned ? lz_eval_planned(planned, all, NULL, err) : lz_eval_all(all, n, err);
}

static bool decoder_suits(const void *item, const void *wanted) {
    const lz_decoder *d = item, *w = wanted;
    return d->h == w->h && d->w == w->w;
}

lz_decoder *lz_decoder_take(lz_model *m, int64_t h, int64_t w, lz_error *err) {
    const lz_decoder wanted = {.model = m, .h = h, .w = w};
    lz_decoder *d = take_item(m, LZ_KEPT_DECODER, decoder_suits, &wanted);
    if (d || !(d = new_item(m, LZ_KEPT_DECODER, err))) return d;
    *d = wanted;
    if ((d->program = lz_compile(m->ctx, lz_describe_whole, d, 1, 2, 1, err))) return d;
    free_item(m, LZ_KEPT_DECODER, d);
    return NULL;
}

/* ---- the text encoder: shared by jobs ---------------------------------------------------------------------------- */

/* The kept encoder if it suits, with one more user; otherwise *old gets the unsuitable one, which is no longer kept. */
static lz_text_encoder *find_encoder(lz_model *m, bool images, lz_text_encoder **old) {
    pthread_mutex_lock(&m->kept.lock);
    lz_text_encoder *e = m->kept.encoder;
    bool suits = e && (e->sees_images || !images);
    if (suits) e->users++;
    *old = suits ? NULL : e;
    if (!suits) m->kept.encoder = NULL;
    pthread_mutex_unlock(&m->kept.lock);
    return suits ? e : NULL;
}

lz_text_encoder *lz_encoder_open(lz_model *m, bool images, lz_error *err) {
    lz_text_encoder *old, *e = find_encoder(m, images, &old);
    if (e) return e;
    if (old) {
        lz_kept_clear(m, LZ_KEPT_READER);
        lz_encoder_close(m, old, false);
    }
    if (!(e = lz_host_alloc(m->ctx, sizeof *e))) {
        lz_out_of_memory(err, sizeof *e);
        return NULL;
    }
    *e = (lz_text_encoder){.text = m->family->open_text(m->state, images, err), .sees_images = images, .users = 1};
    if (!e->text) {
        lz_host_free(m->ctx, e);
        return NULL;
    }
    pthread_mutex_lock(&m->kept.lock);
    if (!m->kept.encoder) { /* another job may have opened one meanwhile: then there are two until this job ends */
        m->kept.encoder = e;
        e->users++;
    }
    pthread_mutex_unlock(&m->kept.lock);
    return e;
}

void lz_encoder_close(lz_model *m, lz_text_encoder *e, bool ran) {
    if (!e) return;
    pthread_mutex_lock(&m->kept.lock);
    int users = --e->users;
    e->ran = e->ran || ran;
    if (e->ran && !m->kept.programs && m->kept.encoder == e && users == 1) { /* only the model uses it */
        m->kept.encoder = NULL;
        users = --e->users;
    }
    pthread_mutex_unlock(&m->kept.lock);
    if (users) return;
    m->family->close_text(e->text);
    lz_host_free(m->ctx, e);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

void lz_kept_init(lz_model *m) {
    pthread_mutex_init(&m->kept.lock, NULL);
    m->kept.programs = m->ctx->device;
}

bool lz_kept_programs(lz_model *m) {
    pthread_mutex_lock(&m->kept.lock);
    bool programs = m->kept.programs;
    pthread_mutex_unlock(&m->kept.lock);
    return programs;
}

bool lz_kept_give_up(lz_model *m) {
    pthread_mutex_lock(&m->kept.lock);
    bool kept = m->kept.programs;
    lz_text_encoder *encoder = m->kept.encoder;
    m->kept.programs = false;
    m->kept.encoder = NULL;
    pthread_mutex_unlock(&m->kept.lock);
    for (int i = 0; i < LZ_KEPT_ITEMS; i++) lz_kept_clear(m, i);
    lz_encoder_close(m, encoder, false);
    return kept;
}

void lz_kept_forget_transformer(lz_model *m) {
    lz_kept_clear(m, LZ_KEPT_LOOP);
    lz_kept_clear(m, LZ_KEPT_SCHEDULE);
}

void lz_kept_forget_text(lz_model *m) {
    lz_kept_clear(m, LZ_KEPT_READER);
    lz_kept_forget_readings(m);
}

void lz_kept_free(lz_model *m) {
    lz_kept_give_up(m);
    lz_kept_forget_readings(m);
    lz_release(m->kept.preview_map);
    pthread_mutex_destroy(&m->kept.lock);
}
