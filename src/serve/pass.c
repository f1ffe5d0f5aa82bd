/* pass.c: the pictures that the worker makes together, and the thread that writes them. See worker.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

pass *pass_new(painter *p, json_t *message) {
    const json_t *pictures = json_object_get(message, "pictures");
    size_t n = json_array_size(pictures);
    pass *c = n && n <= LZ_MAX_TOGETHER ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        json_decref(message);
        return NULL;
    }
    c->message = message;
    c->model = (int)integer_of(message, "model");
    c->n = (int)n;
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        s->painter = p;
        s->pass = c;
        s->message = json_array_get(pictures, (size_t)i);
        s->settings = json_object_get(s->message, "settings");
        s->job = text_of(s->message, "job");
        s->index = (int)integer_of(s->message, "index");
        s->step = -1;
    }
    return c;
}

static void pass_free(pass *c) {
    for (int i = 0; i < c->n; i++) sitting_end(&c->all[i]);
    json_decref(c->message);
    free(c);
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* The front then sends the next pass, so that it is here when this one is done. */
static void say_free(pass *c) {
    if (c->said_free) return;
    c->said_free = true;
    tell(c->all[0].painter, json_pack("{s:s}", "type", "free"), NULL, 0);
}

/* Answers for pictures that are not wanted any more. Those that are made with others stay in the loop until it ends. */
static void drop_cancelled(pass *c) {
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        if (s->answered || !atomic_load(&s->cancelled)) continue;
        if (s->work) lz_job_cancel(s->work); /* a layer has none */
        sitting_failed(s, "cancelled", LZ_CANCELLED, "cancelled");
        sitting_answer(s);
    }
}

void pass_cancel(pass *c, const char *job, bool waits) {
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->all[i].job, job) == 0) atomic_store(&c->all[i].cancelled, true);
    if (waits) drop_cancelled(c);
}

void pass_watch(pass *c, const lz_progress *now) {
    int wanted = 0;
    drop_cancelled(c);
    for (int i = 0; i < c->n; i++) wanted += !c->all[i].answered;
    /* A device tells of a stage when it is over. */
    bool decoding = strcmp(now->stage, "decode") == 0, over = !(now->done < 1);
    if (decoding && over) c->decoded++;
    bool loop_ends = strcmp(now->stage, "denoise") == 0 && over && now->step + 1 >= now->steps;
    bool on_device = c->all[0].painter->on_device;
    if (wanted > 1 && !on_device ? c->decoded >= wanted - 1 : decoding || loop_ends) say_free(c);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void begin_one(sitting *s, const char *why) {
    if (!why)
        sitting_begin(s);
    else
        sitting_failed(s, s->painter->open < 0 ? "generation_failed" : "unsupported_value", LZ_BAD_ARGUMENT, why);
}

/* Tells the front about a picture: "begun", or "later" if it is not made now. together, most: see wire.h. */
static void tell_about(const sitting *s, const char *type, int together, int most) {
    tell(s->painter,
         json_pack("{s:s, s:s, s:i, s:i, s:i}", "type", type, "job", s->job, "index", s->index, "together", together,
                   "most", most),
         NULL, 0);
}

/* Answers for a picture that cannot be made, unless the process will end. */
static void refuse(sitting *s) {
    if (strcmp(s->code, "device_failed") != 0) sitting_answer(s);
}

/* How many pictures like this one are made together; 0: it cannot be made. A picture is planned only if its size is new:
 * a plan takes milliseconds, and on a device the program of one picture that it makes is not the one that several need. */
static int count_most(sitting *s) {
    painter *p = s->painter;
    lz_picture_plan plan;
    enum { KNOWN = sizeof p->known / sizeof *p->known };
    const lz_picture_options *o = lz_job_settled(s->work);
    struct known k = {.width = o->width,
                      .height = o->height,
                      .n_images = o->n_images,
                      .layers = o->layers,
                      .preview = (int)o->preview,
                      .guided = o->guidance > 1};
    for (int i = 0; i < p->n_known && i < KNOWN; i++) {
        const struct known *b = &p->known[i];
        if (b->width == k.width && b->height == k.height && b->n_images == k.n_images && b->layers == k.layers &&
            b->preview == k.preview && b->guided == k.guided)
            return b->most;
    }
    if (!sitting_plan(s, &plan)) return 0;
    k.most = p->engine->together(p->engine->user, &plan);
    p->known[p->n_known++ % KNOWN] = k;
    return k.most;
}

static void put_off(sitting *s) {
    s->answered = true;
    tell_about(s, "later", 0, 0);
}

/* Chooses the pictures that are made together: the first one that can be made, and those that are alike. Answers for
 * the others. Returns their number, which on a device is a power of two or the most, since each number of pictures has
 * programs of its own. */
static int choose(pass *c, const char *why, sitting **chosen) {
    int n = 0, most = 1, few = 1;
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        if (atomic_load(&s->cancelled)) continue;
        if (n < most) begin_one(s, why);
        bool good = !s->code && n < most;
        if (good && !n) {
            most = count_most(s);
            good = most > 0;
            most += !good;
        }
        if (good && (!n || lz_jobs_alike(chosen[0]->work, s->work)))
            chosen[n++] = s;
        else if (s->code)
            refuse(s);
        else
            put_off(s);
    }
    c->most = most;
    while (2 * few <= n) few *= 2;
    while (c->all[0].painter->on_device && n < most && n > few) put_off(chosen[--n]);
    return n;
}

/* A pass of a model of layers has one picture, whose layers are the other pictures of the pass. */
static int choose_whole(pass *c, const char *why, sitting **chosen) {
    sitting *first = NULL;
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        if (atomic_load(&s->cancelled)) continue;
        s->whole = first;
        if (!first) first = s;
    }
    c->most = 1;
    if (first) begin_one(first, why);
    if (!first || first->code || !count_most(first)) return 0;
    chosen[0] = first;
    return 1;
}

/* The layers have failed with their picture. */
static void fail_layers(pass *c) {
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        const sitting *whole = s->whole ? s->whole : s;
        if (s->answered || !whole->code) continue;
        if (s != whole) sitting_failed(s, whole->code, whole->err.status, whole->err.text);
        refuse(s);
    }
}

/* Arrays of a picture, which its file does not need, are released before the next picture is made. */
static void drop_arrays(lz_picture *p) {
    lz_array **all[] = {&p->text, &p->noise, &p->latents, &p->pixels};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lz_release(*all[i]);
        *all[i] = NULL;
    }
}

static void make(sitting **chosen, int n) {
    lz_job *jobs[LZ_MAX_TOGETHER] = {NULL};
    lz_picture pictures[LZ_MAX_TOGETHER];
    lz_error errors[LZ_MAX_TOGETHER];
    for (int i = 0; i < n; i++) jobs[i] = chosen[i]->work;
    lz_jobs_run(jobs, n, pictures, errors);
    for (int i = 0; i < n; i++) {
        sitting *s = chosen[i];
        s->picture = pictures[i];
        drop_arrays(&s->picture);
        if (!errors[i].status || s->code) continue;
        s->err = errors[i];
        s->code = code_of(errors[i].status);
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Waits until the saver has nothing to do. The caller holds the lock. */
static void wait_for_saver(painter *p) {
    while (p->saving) pthread_cond_wait(&p->arrived, &p->lock);
}

/* Another model is opened when no picture of the one before is being made or written. */
void pass_enter(painter *p, int model, pass *c) {
    pthread_mutex_lock(&p->lock);
    while ((p->painting && (!p->on_device || p->chosen != model)) || (p->saving && p->chosen != model))
        pthread_cond_wait(&p->arrived, &p->lock);
    if (p->chosen != model) p->on_device = false; /* until it is open */
    p->chosen = model;
    p->painting++;
    if (c) c->entered = true;
    pthread_mutex_unlock(&p->lock);
}

void pass_leave(painter *p) {
    pthread_mutex_lock(&p->lock);
    p->painting--;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
}

static void hand_over(painter *p, pass *c) {
    pthread_mutex_lock(&p->lock);
    while (p->saving || p->to_save != c->number) pthread_cond_wait(&p->arrived, &p->lock);
    p->saving = c;
    p->to_save++;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
}

/* A device that has failed stays failed for its process. Pictures that are made are written before it ends. */
static void check_device(painter *p, pass *c) {
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        if (!s->code || strcmp(s->code, "device_failed") != 0) continue;
        pthread_mutex_lock(&p->lock);
        wait_for_saver(p);
        fprintf(stderr, "lazuli worker: %s\n", lz_printable(s->err.text));
        _exit(1);
    }
}

void pass_run(painter *p, pass *c) {
    sitting *chosen[LZ_MAX_TOGETHER];
    pass_enter(p, c->model, c);
    double begun = steady_seconds();
    const char *why = NULL;
    if (!open_model(p, c->model)) why = "the model cannot be opened; the server's log says why";
    bool layers = !why && lz_model_about(p->model).layers;
    int n = c->together = (layers ? choose_whole : choose)(c, why, chosen);
    for (int i = 0; i < n; i++) tell_about(chosen[i], "begun", i ? 0 : n, i ? 0 : c->most);
    for (int i = 0; layers && n && i < c->n; i++)
        if (c->all[i].whole && !c->all[i].answered) tell_about(&c->all[i], "begun", 0, 0);
    if (n) make(chosen, n);
    if (layers) fail_layers(c);
    c->seconds = n ? (steady_seconds() - begun) / (layers ? c->n : n) : 0;
    drop_cancelled(c);
    check_device(p, c);
    say_free(c);
    hand_over(p, c);
    if (p->open >= 0) tell_memory(p);
    pass_leave(p);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void save(painter *p, pass *c) {
    bool saved[LZ_MAX_TOGETHER];
    for (int i = 0; i < c->n; i++) {
        sitting *s = &c->all[i];
        if (!s->code && atomic_load(&s->cancelled)) sitting_failed(s, "cancelled", LZ_CANCELLED, "cancelled");
        saved[i] = !s->answered && !s->code && sitting_save(s);
        sitting_answer(s);
    }
    for (int i = 0; i < c->n; i++)
        if (saved[i]) sitting_follow(&c->all[i]);
    pthread_mutex_lock(&p->lock);
    pass **at = &p->passes;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    pthread_mutex_unlock(&p->lock);
    pass_free(c);
}

void *save_passes(void *user) {
    painter *p = user;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (!p->saving) pthread_cond_wait(&p->arrived, &p->lock);
        pass *c = p->saving;
        pthread_mutex_unlock(&p->lock);
        save(p, c);
        pthread_mutex_lock(&p->lock);
        p->saving = NULL;
        pthread_cond_broadcast(&p->arrived);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}
