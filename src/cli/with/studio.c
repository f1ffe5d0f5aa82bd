/* studio.c: see studio.h. Up to --models-loaded models are open, as far as memory suffices; then the least recently used one
 * is closed. */
#include "studio.h"

#include <stdlib.h>
#include <string.h>

#include "../album.h"
#include "serve/serve.h"

typedef struct slot { /* an open model */
    bool open;
    int index;
    uint64_t used;         /* studio.clock, when it was used last */
    int64_t weights, peak; /* bytes: of all its weights, and besides them for a picture of its own size; 0: unknown */
    arguments one;         /* with this model */
    job job;
    lz_tokenizer *tokenizer; /* opened when it is needed; NULL: not yet, or it cannot be opened */
    bool no_tokenizer;
    char *name; /* of the model, as pictures record it */
} slot;

typedef struct studio {
    const arguments *args;
    int most; /* models that may be open */
    slot slots[SERVE_MODELS];
    slot *now; /* that pictures are made with; NULL: none */
    uint64_t clock;
} studio;

arguments with_model(const arguments *args, int index) {
    arguments one = *args;
    if (args->serve.models.n) one.model = args->serve.models.all[index];
    return one;
}

static slot *find_slot(studio *s, int index) {
    for (int i = 0; i < SERVE_MODELS; i++)
        if (s->slots[i].open && s->slots[i].index == index) return &s->slots[i];
    return NULL;
}

static void close_slot(studio *s, slot *m) {
    lz_tokenizer_free(m->tokenizer);
    job_close(&m->job);
    free(m->name);
    *m = (slot){.open = false};
    if (s->now == m) s->now = NULL;
}

/* The open model, other than `stays`, that was used longest ago; NULL: there is none. */
static slot *oldest_slot(studio *s, const slot *stays) {
    slot *oldest = NULL;
    for (int i = 0; i < SERVE_MODELS; i++) {
        slot *m = &s->slots[i];
        if (m->open && m != stays && (!oldest || m->used < oldest->used)) oldest = m;
    }
    return oldest;
}

static int count_open(const studio *s) {
    int n = 0;
    for (int i = 0; i < SERVE_MODELS; i++) n += s->slots[i].open;
    return n;
}

/* Plans a picture of the model's own size. */
static void plan_slot(slot *m) {
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a picture");
    lz_picture_plan plan;
    lz_image blank = {.width = m->job.facts.width, .height = m->job.facts.height, .channels = 3};
    if (m->job.facts.least_images) {
        blank.pixels = calloc((size_t)blank.width, 3 * (size_t)blank.height);
        o.images = &blank;
        o.n_images = 1;
    }
    if (lz_fill_options(m->job.model, &o, NULL) == LZ_OK && lz_plan_picture(m->job.model, &o, &plan, NULL) == LZ_OK) {
        m->peak = plan.peak_bytes;
        for (int i = 0; i < plan.n_stages; i++) m->weights += plan.stages[i].weight_bytes;
    }
    free(blank.pixels);
}

/* Closes other models until the weights of all that are open, and the largest picture, fit into memory. */
static void make_room(studio *s, slot *fresh) {
    int64_t have = device_memory(&fresh->job);
    for (slot *other; have && (other = oldest_slot(s, fresh)); close_slot(s, other)) {
        int64_t weights = 0, peak = 0;
        for (int i = 0; i < SERVE_MODELS; i++) {
            const slot *m = &s->slots[i];
            weights += m->open ? m->weights : 0;
            if (m->open && m->peak > peak) peak = m->peak;
        }
        if (weights + peak <= have - have / 16) return;
    }
}

static slot *open_slot(studio *s, int index) {
    slot *m = s->slots;
    while (count_open(s) >= s->most) close_slot(s, oldest_slot(s, NULL));
    while (m->open) m++; /* one is free: most is at most SERVE_MODELS */
    m->one = with_model(s->args, index);
    if (job_open(&m->job, &m->one) != DONE) {
        job_close(&m->job);
        return NULL;
    }
    m->open = true;
    m->index = index;
    json_t *settings = settings_of(&m->job, 0, false);
    const char *name = json_string_value(json_object_get(settings, "model"));
    m->name = name ? strdup(name) : NULL;
    json_decref(settings);
    if (s->most > 1) plan_slot(m);
    make_room(s, m);
    return m;
}

static bool open_model(void *user, int index, lz_context **ctx, lz_model **model) {
    studio *s = user;
    slot *m = find_slot(s, index);
    if (!m) m = open_slot(s, index);
    if (!m) return false;
    m->used = ++s->clock;
    s->now = m;
    *ctx = m->job.ctx;
    *model = m->job.model;
    return true;
}

static bool find_model(void *user, int index, lz_context **ctx, lz_model **model) {
    slot *m = find_slot(user, index);
    if (m) *ctx = m->job.ctx, *model = m->job.model;
    return m;
}

static int64_t count_tokens(void *user, const char *text) {
    slot *s = ((studio *)user)->now;
    int64_t *ids = NULL, n = 0;
    if (!s->tokenizer && !s->no_tokenizer) s->tokenizer = lz_tokenizer_open_with(s->job.ctx, &s->job.parts, NULL);
    s->no_tokenizer = !s->tokenizer;
    if (!s->tokenizer || lz_tokenize(s->tokenizer, text, strlen(text), &ids, &n, NULL) != LZ_OK) return 0;
    lz_free_ids(s->job.ctx, ids);
    return n;
}

static const char *model_name(void *user) {
    const slot *s = ((studio *)user)->now;
    return s->name ? s->name : "";
}

static const char *device(void *user) { return ((studio *)user)->now->job.device; }
static int64_t memory(void *user) { return device_memory(&((studio *)user)->now->job); }

static double seconds(void *user, const lz_picture_plan *plan, int64_t width, int64_t height) {
    job *j = &((studio *)user)->now->job;
    if (!j->estimate.product[0]) estimate_shapes(j);
    j->plan = *plan;
    j->picture.width = width;
    j->picture.height = height;
    j->estimate.seconds = 0;
    estimate_time(j);
    return j->estimate.seconds;
}

static int together(void *user, const lz_picture_plan *plan) {
    return pictures_together(&((studio *)user)->now->job, plan, true);
}

int studio_run(const arguments *args, int socket) {
    studio *s = calloc(1, sizeof *s);
    if (!s) return FAILED;
    int64_t most = args->serve.models_loaded;
    s->args = args;
    s->most = most < 1 ? 1 : most > SERVE_MODELS ? SERVE_MODELS : (int)most;
    worker_engine engine = {.user = s,
                            .n_models = args->serve.models.n ? args->serve.models.n : 1,
                            .open = open_model,
                            .find = find_model,
                            .count_tokens = count_tokens,
                            .model_name = model_name,
                            .device = device,
                            .sampler_title = sampler_title,
                            .memory = memory,
                            .together = together,
                            .seconds = seconds};
    int code = worker_run(socket, &engine);
    free(s);
    return code;
}
