/* worker.c: the worker process. It holds models, uses one of them, and makes one pass of pictures at a time.
 *
 * Threads: the main thread and a second one make the pictures, and the saver writes them (pass.c). The reader takes
 * messages from the socket, the planner answers questions about memory, and the beat tells the front that this process
 * lives. The process ends when the front closes the socket, and when a device fails, because a failed device stays
 * failed for its process. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker.h"

enum { BEAT_SECONDS = 2, MOST_PIXELS = 1 << 28, MOST_PLANS = 64 };

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void send_all(int socket, const char *data, size_t size) {
    while (size) {
        ssize_t n = send(socket, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0); /* the front is gone */
        data += n;
        size -= (size_t)n;
    }
}

void tell(painter *p, json_t *object, const void *bytes, size_t size) {
    buffer b = {.data = NULL};
    if (!wire_add(&b, object, bytes, size)) { /* the front would wait for this message; it starts another process */
        fputs("lazuli worker: out of memory for a message\n", stderr);
        _exit(1);
    }
    pthread_mutex_lock(&p->sending);
    send_all(p->socket, b.data, b.size);
    pthread_mutex_unlock(&p->sending);
    buffer_free(&b);
}

const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

int64_t integer_of(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* ---- the model --------------------------------------------------------------------------------------------------- */

static json_t *facts_json(painter *p) {
    lz_model_facts f = lz_model_about(p->model);
    json_t *sizes = json_array();
    for (int i = 0; i < f.n_sizes; i++)
        json_array_append_new(sizes, json_pack("[I, I]", (json_int_t)f.sizes[i][0], (json_int_t)f.sizes[i][1]));
    return json_pack("{s:s, s:b, s:b, s:I, s:I, s:i, s:f, s:I, s:i, s:i, s:b, s:b, s:b, s:s, s:b, s:i, s:i, s:o}",
                     "family", f.family, "distilled", f.distilled, "guidance_built_in", f.guidance_built_in, "width",
                     (json_int_t)f.width, "height", (json_int_t)f.height, "steps", f.steps, "guidance", f.guidance,
                     "token_pixels", (json_int_t)f.token_pixels, "least_images", f.least_images, "most_images",
                     f.most_images, "references", f.references, "start_images", f.start_images, "masks", f.masks,
                     "device", lz_device_name(p->ctx), "transparent", f.transparent, "layers", f.layers, "together",
                     p->engine->together(p->engine->user, NULL), "sizes", sizes);
}

/* The models that are open. */
static json_t *open_json(painter *p) {
    json_t *list = json_array();
    lz_context *ctx;
    lz_model *model;
    for (int i = 0; i < p->engine->n_models; i++)
        if (p->engine->find(p->engine->user, i, &ctx, &model)) json_array_append_new(list, json_integer(i));
    return list;
}

void tell_memory(painter *p) {
    lz_memory m = lz_memory_info(p->ctx);
    tell(p,
         json_pack("{s:s, s:I, s:I, s:I, s:I}", "type", "memory", "total",
                   (json_int_t)p->engine->memory(p->engine->user), "active", (json_int_t)m.active, "cached",
                   (json_int_t)m.cached, "peak", (json_int_t)m.peak),
         NULL, 0);
}

static void tell_model(painter *p) {
    tell(p,
         json_pack("{s:s, s:i, s:o, s:o}", "type", "model", "index", p->open, "facts", facts_json(p), "open",
                   open_json(p)),
         NULL, 0);
    tell_memory(p);
}

/* Tells the front which model it is, or that it cannot be opened. Holds `opening` while the model changes. No picture of the model before is being made or written. */
bool open_model(painter *p, int index) {
    if (index == p->open) return true;
    p->n_known = 0;
    pthread_mutex_lock(&p->opening);
    p->open = -1;
    bool good = index >= 0 && index < p->engine->n_models &&
                p->engine->open(p->engine->user, index, &p->ctx, &p->model);
    if (good) p->open = index;
    pthread_mutex_unlock(&p->opening);
    pthread_mutex_lock(&p->lock);
    p->on_device = good && strncmp(lz_device_name(p->ctx), "cuda", 4) == 0;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    if (good)
        tell_model(p);
    else
        tell(p, json_pack("{s:s, s:i, s:o}", "type", "unusable", "index", index, "open", open_json(p)), NULL, 0);
    return good;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Why the picture may be poor, as in lz_remarks; texts that are not empty. */
static json_t *remarks_json(painter *p, const lz_picture_options *options) {
    lz_remarks r;
    json_t *all = json_object();
    if (lz_remark(p->model, options, &r, NULL) != LZ_OK) return all;
    const char *pairs[][2] = {
        {"size", r.size}, {"images", r.images}, {"prompt", r.prompt}, {"words", r.words}, {"read_as", r.read_as}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (*pairs[i][1]) json_object_set_new(all, pairs[i][0], json_string(pairs[i][1]));
    return all;
}

static json_t *plan_json(painter *p, const json_t *settings) {
    lz_error err = {.status = LZ_OK};
    json_t *remarks = NULL;
    lz_picture_plan plan;
    lz_image blank[LZ_MAX_IMAGES] = {{.width = 0}};
    const json_t *sizes = json_object_get(settings, "image_sizes");
    const int n = (int)json_array_size(sizes);
    sitting s = {.painter = p, .settings = settings, .message = settings, .n_images = n};
    bool memory = n <= LZ_MAX_IMAGES;
    for (int i = 0; i < n && memory; i++) { /* memory and work depend on the size of an image only */
        const json_t *size = json_array_get(sizes, (size_t)i);
        int64_t width = json_integer_value(json_array_get(size, 0)),
                height = json_integer_value(json_array_get(size, 1));
        bool fits = width > 0 && height > 0 && width <= MOST_PIXELS / height; /* in a fleet it comes from Redis */
        blank[i] = (lz_image){.width = width, .height = height};
        blank[i].pixels = fits ? calloc((size_t)width, 3 * (size_t)height) : NULL;
        memory = blank[i].pixels;
    }
    sitting_options(&s);
    s.options.images = blank;
    s.options.watch = NULL;
    bool good = memory && lz_fill_options(p->model, &s.options, &err) == LZ_OK &&
                lz_plan_picture(p->model, &s.options, &plan, &err) == LZ_OK;
    if (good) remarks = json_is_true(json_object_get(settings, "brief")) ? json_object() : remarks_json(p, &s.options);
    double seconds = good && json_is_true(json_object_get(settings, "estimate"))
                         ? p->engine->seconds(p->engine->user, &plan, s.options.width, s.options.height)
                         : 0;
    for (int i = 0; i < LZ_MAX_IMAGES; i++) free(blank[i].pixels);
    if (!memory) return json_pack("{s:s, s:s}", "code", "out_of_memory", "message", "out of memory");
    if (!good) return json_pack("{s:s, s:s}", "code", code_of(err.status), "message", err.text);
    memory_need need = need_of(p, &plan);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:i, s:i, s:I, s:I, s:b, s:o, s:f}", "needed",
                     (json_int_t)need.bytes, "available", (json_int_t)need.have, "bytes", (json_int_t)plan.peak_bytes,
                     "weight_bytes", (json_int_t)plan.weight_bytes, "device_bytes", (json_int_t)plan.device_bytes,
                     "streamed_bytes", (json_int_t)plan.streamed_bytes, "operations", plan.flops, "steps", plan.steps,
                     "passes", plan.passes, "width", (json_int_t)s.options.width, "height",
                     (json_int_t)s.options.height, "fits", !need.have || need.bytes <= need.have, "remarks", remarks,
                     "seconds", seconds);
}

/* ---- other formats ----------------------------------------------------------------------------------------------- */

/* Converts the file of a picture, with its texts. */
static void answer_recode(painter *p, const json_t *question) {
    static const char *const keys[] = {"parameters", "lazuli", "prompt"};
    enum { KEYS = sizeof keys / sizeof *keys };
    const char *path = text_of(question, "path"), *texts[2 * KEYS + 1] = {NULL};
    char *owned[KEYS] = {NULL}, *data = NULL;
    int64_t bytes = 0;
    int n = 0;
    lz_error err = {.status = LZ_OK};
    lz_image image = {.width = 0};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err);
    for (int i = 0; ctx && i < KEYS; i++)
        if ((owned[i] = lz_image_read_text(ctx, path, keys[i], NULL))) texts[n++] = keys[i], texts[n++] = owned[i];
    if (ctx && lz_image_read_alpha(ctx, path, &image, &err) == LZ_OK)
        data = lz_image_encode(ctx, text_of(question, "ending"), &image, texts, 0, &bytes, &err);
    bool good = data && bytes <= WIRE_BYTES;
    json_t *answer = json_pack("{s:s, s:s}", "type", "recoded", "ask", text_of(question, "ask"));
    if (!good) json_object_set_new(answer, "code", json_string(data ? "picture_too_large" : code_of(err.status)));
    tell(p, answer, good ? data : NULL, good ? (size_t)bytes : 0);
    for (int i = 0; i < KEYS; i++) lz_free_text(ctx, owned[i]);
    lz_free_text(ctx, data);
    lz_image_free(ctx, &image);
    lz_close(ctx);
}

static void *answer_plans(void *user) {
    painter *p = user;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (!json_array_size(p->plans)) pthread_cond_wait(&p->arrived, &p->lock);
        json_t *question = json_incref(json_array_get(p->plans, 0));
        json_array_remove(p->plans, 0);
        pthread_mutex_unlock(&p->lock);
        if (strcmp(text_of(question, "type"), "recode") == 0) {
            answer_recode(p, question);
            json_decref(question);
            continue;
        }
        pthread_mutex_lock(&p->opening);
        int index = (int)integer_of(question, "model");
        json_t *settings = json_object_get(question, "settings");
        painter view = {.engine = p->engine}; /* of this model */
        bool is_open = p->open >= 0 && p->engine->find(p->engine->user, index, &view.ctx, &view.model);
        if (index != p->open) json_object_del(settings, "estimate"); /* which is for the model that is used */
        json_t *plan = is_open ? plan_json(&view, settings)
                               : json_pack("{s:s, s:s}", "code", "not_ready", "message",
                                           "the model of this plan is not loaded; a picture with it loads it");
        pthread_mutex_unlock(&p->opening);
        tell(p, json_pack("{s:s, s:s, s:o}", "type", "planned", "ask", text_of(question, "ask"), "plan", plan), NULL,
             0);
        json_decref(question);
    }
    return NULL;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *beat(void *user) {
    for (;;) {
        sleep(BEAT_SECONDS);
        tell(user, json_pack("{s:s}", "type", "beat"), NULL, 0);
    }
    return NULL;
}

/* Nobody waits for this plan any more. The lock is held. */
static void forget_plan(painter *p, const char *ask) {
    for (size_t i = json_array_size(p->plans); i-- > 0;)
        if (strcmp(text_of(json_array_get(p->plans, i), "ask"), ask) == 0) json_array_remove(p->plans, i);
}

/* Takes ownership of the message, and hands it to the thread that uses it. */
static void receive(painter *p, json_t *message) {
    const char *type = text_of(message, "type");
    bool paints = strcmp(type, "paint") == 0;
    pass *work = paints ? pass_new(p, message) : NULL;
    if (paints && !work) _exit(1);
    pthread_mutex_lock(&p->lock);
    if (work) {
        work->number = p->n_passes++;
        work->next = p->passes;
        p->passes = p->work = work;
    } else if (strcmp(type, "load") == 0)
        json_array_append(p->loads, json_object_get(message, "model"));
    else if (strcmp(type, "cancel") == 0)
        for (pass *c = p->passes; c; c = c->next) pass_cancel(c, text_of(message, "job"), !c->entered);
    else if (strcmp(type, "forget") == 0)
        forget_plan(p, text_of(message, "ask"));
    else if ((strcmp(type, "plan") == 0 || strcmp(type, "recode") == 0) &&
             json_array_size(p->plans) < MOST_PLANS) /* fronts of a fleet wait 20 seconds */
        json_array_append(p->plans, message);
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    if (!paints) json_decref(message);
}

static void *read_messages(void *user) {
    painter *p = user;
    buffer in = {.data = NULL}, bytes;
    char piece[65536];
    for (;;) {
        ssize_t n = recv(p->socket, piece, sizeof piece, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || !buffer_add(&in, piece, (size_t)n)) _exit(0); /* the front is gone */
        json_t *message;
        int got;
        while ((got = wire_take(&in, &message, &bytes)) > 0) {
            buffer_free(&bytes);
            receive(p, message);
        }
        if (got < 0) _exit(1);
    }
    return NULL;
}

static void *paint_all(void *user) {
    painter *p = user;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (!p->work && !json_array_size(p->loads)) pthread_cond_wait(&p->arrived, &p->lock);
        pass *work = p->work;
        int load = work ? -1 : (int)json_integer_value(json_array_get(p->loads, 0));
        p->work = NULL;
        if (!work) json_array_remove(p->loads, 0);
        pthread_mutex_unlock(&p->lock);
        if (work) {
            pass_run(p, work);
            continue;
        }
        pass_enter(p, load, NULL);
        if (p->open == load) /* the front waits for an answer */
            tell_model(p);
        else
            open_model(p, load);
        pass_leave(p);
    }
    return NULL;
}

int worker_run(int socket, const worker_engine *engine) {
    painter p = {.engine = engine, .socket = socket, .open = -1, .loads = json_array(), .plans = json_array()};
    pthread_t threads[5];
    signal(SIGINT, SIG_IGN); /* the front decides when a worker ends */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1); /* short-lived threads encode pictures; each arena that they use would keep memory */
#endif
    if (pthread_mutex_init(&p.lock, NULL) || pthread_mutex_init(&p.sending, NULL) ||
        pthread_mutex_init(&p.opening, NULL) || pthread_cond_init(&p.arrived, NULL))
        return 1;
    if (pthread_create(&threads[0], NULL, read_messages, &p) || pthread_create(&threads[1], NULL, beat, &p) ||
        pthread_create(&threads[2], NULL, answer_plans, &p) || pthread_create(&threads[3], NULL, save_passes, &p))
        return 1;
    for (int i = engine->n_models - 1; i >= 0; i--) /* the first stays open */
        open_model(&p, i);
    for (int i = 1; p.open < 0 && i < engine->n_models; i++) open_model(&p, i); /* the first cannot be opened */
    if (p.open < 0) _exit(1);
    p.chosen = p.open;
    tell(&p, json_pack("{s:s}", "type", "ready"), NULL, 0);
    if (pthread_create(&threads[4], NULL, paint_all, &p)) return 1;
    paint_all(&p);
    return 0;
}
