/* worker.c: the worker process. It holds one model and paints one picture at a time.
 *
 * Threads: the main thread paints. The reader takes messages from the socket, the planner answers questions about
 * memory, and the beat tells the front that this process lives. The process ends when the front closes the socket, and
 * when a device fails, because a failed device stays failed for its process. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "describe.h"
#include "wire.h"

enum { BEAT_SECONDS = 2, THUMB_SIDE = 320 };

typedef struct painter {
    const worker_engine *engine;
    int socket;
    pthread_mutex_t sending; /* held while a message is written to the socket */
    pthread_mutex_t lock;    /* protects work, plans, current and closed */
    pthread_cond_t arrived;  /* work or plans changed */
    json_t *work;            /* the next message to paint or to load, owned; or NULL */
    json_t *plans;           /* plan messages, an array */
    char current[ID_BYTES];  /* the job that is being painted, or "" */
    atomic_bool cancelled;   /* the current picture is not wanted any more */
    pthread_mutex_t opening; /* held while a model is opened or planned with */
    lz_context *ctx;
    lz_model *model;
    int open; /* index of the model; -1: none */
    double told;
    char stage[16];
    int step;
} painter;

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

static void tell(painter *p, json_t *object, const void *bytes, size_t size) {
    buffer b = {.data = NULL};
    if (wire_add(&b, object, bytes, size)) {
        pthread_mutex_lock(&p->sending);
        send_all(p->socket, b.data, b.size);
        pthread_mutex_unlock(&p->sending);
    }
    buffer_free(&b);
}

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static int64_t integer_of(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* ---- the model --------------------------------------------------------------------------------------------------- */

static json_t *facts_json(painter *p) {
    lz_model_facts f = lz_model_about(p->model);
    return json_pack("{s:s, s:b, s:b, s:I, s:I, s:i, s:f, s:I, s:i, s:i, s:b, s:b, s:b, s:s, s:b, s:i}", "family",
                     f.family, "distilled", f.distilled, "guidance_built_in", f.guidance_built_in, "width",
                     (json_int_t)f.width, "height", (json_int_t)f.height, "steps", f.steps, "guidance", f.guidance,
                     "token_pixels", (json_int_t)f.token_pixels, "least_images", f.least_images, "most_images",
                     f.most_images, "references", f.references, "start_images", f.start_images, "masks", f.masks,
                     "device", lz_device_name(p->ctx), "transparent", f.transparent, "layers", f.layers);
}

/* Holds `opening` while the model changes. */
static bool open_model(painter *p, int index) {
    if (index == p->open) return true;
    pthread_mutex_lock(&p->opening);
    p->open = -1;
    bool good = index >= 0 && index < p->engine->n_models &&
                p->engine->open(p->engine->user, index, &p->ctx, &p->model);
    if (good) p->open = index;
    pthread_mutex_unlock(&p->opening);
    if (good) tell(p, json_pack("{s:s, s:i, s:o}", "type", "model", "index", index, "facts", facts_json(p)), NULL, 0);
    return good;
}

/* ---- a picture --------------------------------------------------------------------------------------------------- */

typedef struct sitting { /* everything of one picture */
    const json_t *message, *settings;
    lz_image images[LZ_MAX_IMAGES], mask;
    int n_images;
    lz_picture_options options;
    lz_job *job;
    lz_picture picture;
    const char *code; /* of the error in err */
    lz_error err;
    char *parameters; /* the text of the picture, owned */
} sitting;

static bool failed(sitting *s, const char *code, lz_status status, const char *text) {
    s->code = code;
    if (status) s->err.status = status;
    if (text) snprintf(s->err.text, sizeof s->err.text, "%s", text);
    return false;
}

static const char *code_of(lz_status status) {
    switch (status) {
    case LZ_BAD_ARGUMENT:
    case LZ_BAD_SHAPE: return "invalid_value";
    case LZ_OUT_OF_MEMORY: return "out_of_memory";
    case LZ_DEVICE_FAILED: return "device_failed";
    case LZ_CANCELLED: return "cancelled";
    default: return "generation_failed";
    }
}

static bool failed_with(sitting *s) { return failed(s, code_of(s->err.status), LZ_OK, NULL); }

static bool read_images(painter *p, sitting *s) {
    const json_t *files = json_object_get(s->message, "files");
    size_t n = json_array_size(files);
    if (n > LZ_MAX_IMAGES) return failed(s, "invalid_value", LZ_BAD_ARGUMENT, "there are too many images");
    for (size_t i = 0; i < n; i++) {
        const char *path = json_string_value(json_array_get(files, i));
        if (lz_image_read_alpha(p->ctx, path, &s->images[i], &s->err) != LZ_OK) {
            bool memory = s->err.status == LZ_OUT_OF_MEMORY;
            char text[100];
            snprintf(text, sizeof text, "image %zu cannot be decoded", i + 1);
            return failed(s, memory ? "out_of_memory" : "invalid_image", LZ_OK, text);
        }
        s->n_images++;
    }
    const char *mask = json_string_value(json_object_get(s->message, "mask"));
    if (!mask || lz_image_read_mask(p->ctx, mask, &s->mask, &s->err) == LZ_OK) return true;
    return failed(s, "invalid_image", LZ_OK, "the mask cannot be decoded");
}

static bool watch(void *user, const lz_progress *now);

static void fill_options(painter *p, sitting *s) {
    const json_t *a = s->settings;
    const char *preview = text_of(a, "preview"), *background = text_of(a, "background");
    s->options = LZ_PICTURE_OPTIONS(.prompt = text_of(a, "prompt"), .width = integer_of(a, "width"),
                                    .height = integer_of(a, "height"), .steps = (int)integer_of(a, "steps"),
                                    .guidance = json_number_value(json_object_get(a, "guidance")),
                                    .seed = (uint64_t)integer_of(s->message, "seed"), .images = s->images,
                                    .n_images = s->n_images,
                                    .strength = json_number_value(json_object_get(a, "strength")),
                                    .shift = json_number_value(json_object_get(a, "shift")), .watch = watch, .user = p);
    if (s->mask.pixels) s->options.mask = &s->mask;
    s->options.negative = json_string_value(json_object_get(a, "negative"));
    s->options.sampler = json_string_value(json_object_get(a, "sampler"));
    s->options.schedule = json_string_value(json_object_get(a, "schedule"));
    s->options.preview = strcmp(preview, "small") == 0  ? LZ_PREVIEW_SMALL
                         : strcmp(preview, "full") == 0 ? LZ_PREVIEW_FULL
                                                        : LZ_PREVIEW_NONE;
    s->options.background = strcmp(background, "opaque") == 0        ? LZ_BACKGROUND_OPAQUE
                            : strcmp(background, "transparent") == 0 ? LZ_BACKGROUND_TRANSPARENT
                                                                     : LZ_BACKGROUND_AUTO;
    s->options.preview_pause = json_number_value(json_object_get(s->message, "preview_pause"));
}

/* The front is told of every stage and step, and ten times a second in between. */
static bool watch(void *user, const lz_progress *now) {
    painter *p = user;
    double seconds = steady_seconds();
    if (atomic_load(&p->cancelled)) return false;
    bool news = now->step != p->step || strcmp(p->stage, now->stage) != 0;
    if (news || seconds - p->told > 0.1) {
        p->told = seconds;
        p->step = now->step;
        snprintf(p->stage, sizeof p->stage, "%s", now->stage);
        tell(p,
             json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "type", "progress", "job", p->current, "stage", now->stage,
                       "step", now->step, "steps", now->steps, "done", now->done),
             NULL, 0);
    }
    int64_t bytes = 0;
    char *data = now->preview ? lz_image_encode(p->ctx, ".jpg", now->preview, NULL, 0, &bytes, NULL) : NULL;
    if (data)
        tell(p,
             json_pack("{s:s, s:s, s:i, s:i, s:I, s:I}", "type", "preview", "job", p->current, "step", now->step + 1,
                       "steps", now->steps, "width", (json_int_t)now->preview->width, "height",
                       (json_int_t)now->preview->height),
             data, (size_t)bytes);
    lz_free_text(p->ctx, data);
    return true;
}

/* A picture that would not fit into the memory of this machine is refused before it is made. */
static bool plan(painter *p, sitting *s) {
    lz_picture_plan plan;
    int64_t have = p->engine->memory(), least = s->options.width * s->options.height * 24;
    bool host = strncmp(lz_device_name(p->ctx), "cuda", 4) != 0;
    if (host && have && least > have)
        return failed(s, "picture_too_large", LZ_OUT_OF_MEMORY, "the picture does not fit into memory");
    if (lz_job_plan(s->job, &plan, &s->err) != LZ_OK) return failed_with(s);
    if (!host || !have || plan.peak_bytes <= have) return true;
    char text[160];
    snprintf(text, sizeof text,
             "a picture of this size needs %lld MiB besides the weights, and this machine has %lld MiB",
             (long long)(plan.peak_bytes >> 20), (long long)(have >> 20));
    return failed(s, "picture_too_large", LZ_OUT_OF_MEMORY, text);
}

/* A colour of a pixel; one that is not opaque is blended with white. */
static int colour_of(const lz_image *image, int64_t x, int64_t y, int k) {
    bool four = image->channels == 4;
    const uint8_t *p = image->pixels + (four ? 4 : 3) * (y * image->width + x);
    return four ? (p[k] * p[3] + 255 * (255 - p[3]) + 127) / 255 : p[k];
}

/* quality: 0 to 100, as clients give it; 100 is ours, 95. */
static bool write_image(painter *p, sitting *s, const char *path, const lz_image *image, const char *const *texts,
                        int64_t quality) {
    int64_t bytes = 0;
    char *data = lz_image_encode(p->ctx, strrchr(path, '.'), image, texts,
                                 quality > 99  ? 0
                                 : quality < 1 ? 1
                                               : (int)quality,
                                 &bytes, &s->err);
    bool encoded = data, good = data && write_whole(path, data, (size_t)bytes);
    bool memory = !data && s->err.status == LZ_OUT_OF_MEMORY;
    lz_free_text(p->ctx, data);
    return good || failed(s, memory ? "out_of_memory" : "insufficient_storage", encoded ? LZ_IO : LZ_OK,
                          "the picture cannot be written");
}

/* Averages blocks of pixels, to at most THUMB_SIDE a side. */
static bool write_thumb(painter *p, sitting *s, const lz_image *in, const char *path) {
    int64_t side = in->width > in->height ? in->width : in->height, step = (side + THUMB_SIDE - 1) / THUMB_SIDE;
    lz_image out = {.width = in->width / step, .height = in->height / step, .channels = 3};
    out.width += !out.width;
    out.height += !out.height;
    out.pixels = malloc((size_t)(out.width * out.height * 3));
    if (!out.pixels) return failed(s, "out_of_memory", LZ_OUT_OF_MEMORY, "out of memory");
    uint8_t *to = out.pixels;
    for (int64_t y = 0; y < out.height; y++)
        for (int64_t x = 0; x < out.width; x++)
            for (int c = 0; c < 3; c++) {
                int64_t sum = 0, n = 0;
                for (int64_t v = y * step; v < (y + 1) * step && v < in->height; v++)
                    for (int64_t u = x * step; u < (x + 1) * step && u < in->width; u++, n++)
                        sum += colour_of(in, u, v, c);
                *to++ = (uint8_t)(n > 0 ? (sum + n / 2) / n : 0);
            }
    bool good = write_image(p, s, path, &out, NULL, 100);
    free(out.pixels);
    return good;
}

static bool save(painter *p, sitting *s) {
    description d = {.settings = NULL};
    const char *out = text_of(s->message, "out"), *thumb = text_of(s->message, "thumb");
    const char *precision = lz_dtype_name(lz_compute_type(p->ctx));
    bool with_texts = !json_is_false(json_object_get(s->settings, "metadata"));
    bool good = !with_texts ||
                description_make(&d, s->settings, lz_job_settled(s->job), &s->picture, p->engine, precision);
    if (!good) failed(s, "out_of_memory", LZ_OUT_OF_MEMORY, "out of memory");
    const json_t *quality = json_object_get(s->settings, "quality");
    good = good && write_image(p, s, out, &s->picture.image, with_texts ? d.pairs : NULL,
                               json_is_integer(quality) ? json_integer_value(quality) : 100);
    good = good && write_thumb(p, s, &s->picture.image, thumb);
    if (good && d.parameters) s->parameters = strdup(d.parameters);
    description_free(&d);
    return good;
}

static bool make(painter *p, sitting *s) {
    if (!open_model(p, (int)integer_of(s->message, "model")))
        return failed(s, "generation_failed", LZ_NOT_FOUND, "the model cannot be opened; the server's log says why");
    if (lz_model_about(p->model).layers)
        return failed(s, "unsupported_value", LZ_BAD_ARGUMENT,
                      "this model makes layers, which the server does not offer");
    if (!read_images(p, s)) return false;
    fill_options(p, s);
    s->job = lz_job_new(p->model, &s->options, &s->err);
    if (!s->job) return failed_with(s);
    s->options.width = lz_job_settled(s->job)->width;
    s->options.height = lz_job_settled(s->job)->height;
    if (!plan(p, s)) return false;
    if (lz_job_run(s->job, &s->picture, &s->err) != LZ_OK) return failed_with(s);
    return save(p, s);
}

/* Has the file of the picture transparency? A JPEG has none. */
static bool keeps_alpha(const sitting *s) {
    return s->picture.image.channels == 4 && strcmp(text_of(s->settings, "format"), "jpeg") != 0;
}

static json_t *result_json(painter *p, sitting *s) {
    const lz_picture *made = &s->picture;
    int64_t side = 16, image_tokens = 0, tokens = (made->image.width / side) * (made->image.height / side);
    for (int i = 0; i < s->n_images; i++) image_tokens += (s->images[i].width / side) * (s->images[i].height / side);
    return json_pack(
        "{s:s, s:s, s:s?, s:b, s:f, s:I, s:I, s:i, s:I, s:I, s:I, s:b, s:{s:f, s:f, s:f, s:f}}", "type", "done", "job",
        p->current, "parameters", s->parameters, "transparent", keeps_alpha(s), "guidance", made->guidance, "width",
        (json_int_t)made->image.width, "height", (json_int_t)made->image.height, "steps", made->steps, "text_tokens",
        (json_int_t)p->engine->count_tokens(p->engine->user, text_of(s->settings, "prompt")), "image_tokens",
        (json_int_t)image_tokens, "output_tokens", (json_int_t)tokens, "prompt_cut", made->prompt_cut, "milliseconds",
        "text", made->text_seconds * 1e3, "encode", made->encode_seconds * 1e3, "denoise", made->denoise_seconds * 1e3,
        "decode", made->decode_seconds * 1e3);
}

static void paint(painter *p, const json_t *message) {
    sitting s = {.message = message, .settings = json_object_get(message, "settings")};
    p->told = 0;
    p->step = -1;
    bool good = !atomic_load(&p->cancelled) && make(p, &s);
    json_t *answer = good ? result_json(p, &s) : NULL;
    free(s.parameters);
    lz_picture_free(&s.picture);
    lz_job_free(s.job);
    for (int i = 0; i < s.n_images; i++) lz_image_free(p->ctx, &s.images[i]);
    if (s.mask.pixels) lz_image_free(p->ctx, &s.mask);
    if (!good && s.code && strcmp(s.code, "device_failed") == 0) {
        fprintf(stderr, "lazuli worker: %s\n", lz_printable(s.err.text));
        _exit(1);
    }
    if (!good)
        answer = json_pack("{s:s, s:s, s:s, s:s}", "type", "failed", "job", p->current, "code",
                           s.code ? s.code : "cancelled", "message", s.code ? s.err.text : "cancelled");
    pthread_mutex_lock(&p->lock);
    *p->current = 0;
    pthread_mutex_unlock(&p->lock);
    tell(p, answer, NULL, 0);
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
    sitting s = {.settings = settings, .message = settings, .n_images = n};
    bool memory = n <= LZ_MAX_IMAGES;
    for (int i = 0; i < n && memory; i++) { /* memory and work depend on the size of an image only */
        const json_t *size = json_array_get(sizes, (size_t)i);
        blank[i].width = json_integer_value(json_array_get(size, 0));
        blank[i].height = json_integer_value(json_array_get(size, 1));
        blank[i].pixels = calloc((size_t)blank[i].width, 3 * (size_t)blank[i].height);
        memory = blank[i].pixels;
    }
    fill_options(p, &s);
    s.options.images = blank;
    s.options.watch = NULL;
    bool good = memory && lz_fill_options(p->model, &s.options, &err) == LZ_OK &&
                lz_plan_picture(p->model, &s.options, &plan, &err) == LZ_OK;
    if (good) remarks = remarks_json(p, &s.options);
    double seconds = good && json_is_true(json_object_get(settings, "estimate"))
                         ? p->engine->seconds(p->engine->user, &plan, s.options.width, s.options.height)
                         : 0;
    for (int i = 0; i < LZ_MAX_IMAGES; i++) free(blank[i].pixels);
    if (!memory) return json_pack("{s:s, s:s}", "code", "out_of_memory", "message", "out of memory");
    if (!good) return json_pack("{s:s, s:s}", "code", code_of(err.status), "message", err.text);
    int64_t have = p->engine->memory();
    bool host = strncmp(lz_device_name(p->ctx), "cuda", 4) != 0;
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:i, s:i, s:I, s:I, s:b, s:o, s:f}", "bytes",
                     (json_int_t)plan.peak_bytes, "weight_bytes", (json_int_t)plan.weight_bytes, "device_bytes",
                     (json_int_t)plan.device_bytes, "streamed_bytes", (json_int_t)plan.streamed_bytes, "operations",
                     plan.flops, "steps", plan.steps, "passes", plan.passes, "width", (json_int_t)s.options.width,
                     "height", (json_int_t)s.options.height, "fits", !host || !have || plan.peak_bytes <= have,
                     "remarks", remarks, "seconds", seconds);
}

static void *answer_plans(void *user) {
    painter *p = user;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (!json_array_size(p->plans)) pthread_cond_wait(&p->arrived, &p->lock);
        json_t *question = json_incref(json_array_get(p->plans, 0));
        json_array_remove(p->plans, 0);
        pthread_mutex_unlock(&p->lock);
        pthread_mutex_lock(&p->opening);
        json_t *plan = p->open == (int)integer_of(question, "model")
                           ? plan_json(p, json_object_get(question, "settings"))
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

/* Takes ownership of the message, and hands it to the thread that uses it. */
static void receive(painter *p, json_t *message) {
    const char *type = text_of(message, "type"), *job = text_of(message, "job");
    pthread_mutex_lock(&p->lock);
    if (strcmp(type, "paint") == 0 || strcmp(type, "load") == 0) {
        json_decref(p->work);
        p->work = message;
        message = NULL;
        atomic_store(&p->cancelled, false);
    } else if (strcmp(type, "cancel") == 0) {
        if (strcmp(job, p->current) == 0 || (p->work && strcmp(job, text_of(p->work, "job")) == 0))
            atomic_store(&p->cancelled, true);
    } else if (strcmp(type, "plan") == 0) {
        json_array_append_new(p->plans, message);
        message = NULL;
    }
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    json_decref(message);
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

static void paint_all(painter *p) {
    for (;;) {
        pthread_mutex_lock(&p->lock);
        while (!p->work) pthread_cond_wait(&p->arrived, &p->lock);
        json_t *message = p->work;
        p->work = NULL;
        snprintf(p->current, sizeof p->current, "%s", text_of(message, "job"));
        pthread_mutex_unlock(&p->lock);
        int index = (int)integer_of(message, "model");
        if (strcmp(text_of(message, "type"), "paint") == 0)
            paint(p, message);
        else if (!open_model(p, index))
            tell(p, json_pack("{s:s, s:i}", "type", "unusable", "index", index), NULL, 0);
        json_decref(message);
    }
}

int worker_run(int socket, const worker_engine *engine) {
    painter p = {.engine = engine, .socket = socket, .open = -1, .plans = json_array()};
    pthread_t threads[3];
    signal(SIGINT, SIG_IGN); /* the front decides when a worker ends */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (pthread_mutex_init(&p.lock, NULL) || pthread_mutex_init(&p.sending, NULL) ||
        pthread_mutex_init(&p.opening, NULL) || pthread_cond_init(&p.arrived, NULL))
        return 1;
    if (pthread_create(&threads[0], NULL, read_messages, &p) || pthread_create(&threads[1], NULL, beat, &p) ||
        pthread_create(&threads[2], NULL, answer_plans, &p))
        return 1;
    for (int i = engine->n_models - 1; i >= 0; i--) /* the first stays open */
        if (!open_model(&p, i)) tell(&p, json_pack("{s:s, s:i}", "type", "unusable", "index", i), NULL, 0);
    if (p.open < 0) _exit(1);
    tell(&p, json_pack("{s:s}", "type", "ready"), NULL, 0);
    paint_all(&p);
    return 0;
}
