/* jobs.c: a job from its request to its end.
 *
 * A job is in front.jobs while it waits or runs. The worker may still paint a picture of a job that was cancelled; such
 * a job is no longer in the list, and belongs to front.child.job until the worker answers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sse.h"
#include "store.h"

const char *const state_names[] = {"queued", "in_progress", "completed", "failed", "cancelled"};
const char *const source_names[] = {"openai", "api", "sdapi", "page"};

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int64_t random_seed(void) {
    char letters[8];
    int64_t seed = 0;
    random_letters(letters, 7);
    for (int i = 0; i < 7; i++) seed = seed << 5 | (letters[i] >= 'a' ? letters[i] - 'a' : letters[i] - '2' + 26);
    return seed & 0xffffffff; /* survives JavaScript */
}

static int limit_count(json_int_t n) { return n < 1 ? 1 : n > MOST_PICTURES ? MOST_PICTURES : (int)n; }

/* "seed" is a number, or a list of one for each picture; without it the seed is drawn now, so that a repeated attempt
 * paints the same picture. The settings of a repeated job come from the store, so their counts are limited here. */
static void choose_seeds(job *j) {
    json_t *seed = json_object_get(j->settings, "seed"), *n = json_object_get(j->settings, "n");
    if (json_is_array(seed)) {
        j->n = limit_count((json_int_t)json_array_size(seed));
        for (int i = 0; i < j->n; i++) j->seeds[i] = json_integer_value(json_array_get(seed, (size_t)i));
        return;
    }
    int64_t first = json_is_integer(seed) ? json_integer_value(seed) : random_seed();
    if (!json_is_integer(seed)) json_object_set_new(j->settings, "seed", json_integer(first));
    j->n = json_is_integer(n) ? limit_count(json_integer_value(n)) : 1;
    for (int i = 0; i < j->n; i++) j->seeds[i] = first <= INT64_MAX - i ? first + i : first;
}

/* A model of layers makes a picture and its layers, all of one seed. */
static void choose_layers(const front *f, job *j) {
    const model *m = j->model >= 0 ? &f->models[j->model] : NULL;
    if (!m || !m->layers) return;
    json_int_t asked = json_integer_value(json_object_get(j->settings, "layers"));
    j->n = 1 + limit_count(asked ? asked : m->layers);
    if (j->n > MOST_PICTURES) j->n = MOST_PICTURES;
    for (int i = 1; i < j->n; i++) j->seeds[i] = j->seeds[0];
}

job *job_new(front *f, const identity *who, job_source source, json_t *settings) {
    job *j = calloc(1, sizeof *j);
    if (!j) {
        json_decref(settings);
        return NULL;
    }
    make_id(j->id, "job_");
    memcpy(j->owner, who->owner, sizeof j->owner);
    j->source = source;
    j->settings = settings;
    j->model = wanted_model(f, json_string_value(json_object_get(settings, "model")), false);
    j->priority = (int)json_integer_value(json_object_get(settings, "priority"));
    j->created = wall_seconds();
    j->queued_at = steady_seconds();
    j->attempts = 1;
    choose_seeds(j);
    choose_layers(f, j);
    return j;
}

void job_free(job *j) {
    if (!j) return;
    for (int i = 0; i < j->made; i++) json_decref(j->pictures[i].facts);
    json_decref(j->settings);
    buffer_free(&j->preview);
    free(j);
}

void job_append(front *f, job *j) {
    j->next = NULL;
    *f->jobs_end = j;
    f->jobs_end = &j->next;
}

void job_unlink(front *f, job *j) {
    job **at = &f->jobs;
    while (*at && *at != j) at = &(*at)->next;
    if (!*at) return;
    *at = j->next;
    if (f->jobs_end == &j->next) f->jobs_end = at;
    j->next = NULL;
}

bool job_is_native(const job *j) { return j->source == FROM_API || j->source == FROM_PAGE; }

int job_steps(const front *f, const job *j) {
    int asked = (int)json_integer_value(json_object_get(j->settings, "steps"));
    return j->steps ? j->steps : asked ? asked : j->model >= 0 ? f->models[j->model].steps : 0;
}

void job_tell_state(front *f, const job *j) { native_event(f, j, "state", job_json(f, j)); }

static bool check_load(front *f, const job *j, problem *p) {
    const serve_options *o = f->options;
    if (f->draining) return set_problem(p, 503, "draining", "", "the server is ending and takes no more jobs");
    if (j->model < 0 || model_is_unusable(f, j->model))
        return set_problem(p, 503, "not_ready", "model", "the model cannot be opened; the server's log says why");
    if (queue_waiting(f, NULL) >= o->queue)
        return set_problem(p, 429, "queue_full", "", "%lld jobs are waiting, and the queue holds no more",
                           (long long)o->queue);
    if (queue_waiting(f, j->owner) >= o->queue_per_key)
        return set_problem(p, 429, "key_queue_full", "", "%lld of your jobs are waiting, and no more may",
                           (long long)o->queue_per_key);
    if (disk_is_full(f))
        return set_problem(p, 507, "insufficient_storage", "", "there is too little space on the disk of the server");
    return true;
}

/* A client that would give up before its picture is made is told so at once. */
static bool check_wait(front *f, const job *j, const request *r, problem *p) {
    const char *patience = r ? header_of(r, "x-stainless-read-timeout") : NULL;
    double most = f->options->queue_timeout, expected = queue_seconds(f, j);
    if (patience && strtod(patience, NULL) > 0) most = fmin(most, strtod(patience, NULL));
    if (!j->attended) return true;
    if (expected > most)
        return set_problem(p, 429, "would_wait_too_long", "",
                           "the picture would take about %.0f s, and the request waits for %.0f s", expected, most);
    if (f->paused) return set_problem(p, 503, "paused", "", "an administrator has stopped the queue; try again later");
    return true;
}

bool job_admit(front *f, job *j, const request *r, problem *p) {
    if (!check_load(f, j, p)) return false;
    job_append(f, j);
    if (!check_wait(f, j, r, p)) {
        job_unlink(f, j);
        return false;
    }
    queue_kind(f, j, j->kind);
    added done = store_add_job(f->store, j);
    j->repeat = NULL;
    if (done != ADDED) {
        job_unlink(f, j);
        if (done == ADDED_BEFORE)
            return set_problem(p, 503, "not_ready", "", "the same request has just been accepted; ask again for it");
        return set_problem(p, 507, "insufficient_storage", "", "the job cannot be stored");
    }
    log_prompt(f, j);
    job_tell_state(f, j);
    return true;
}

job *job_find(front *f, const char *id) {
    job *j = f->jobs;
    while (j && strcmp(j->id, id) != 0) j = j->next;
    return j ? j : f->store->kind->find_live(f, id);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

void job_wait(request *r, job *j, void (*answer)(request *, job *)) {
    r->job = j;
    r->answer = answer;
    r->next_waiting = j->waiting;
    j->waiting = r;
}

void job_leave(request *r) {
    job *j = r->job;
    if (!j) return;
    request **at = &j->waiting;
    while (*at && *at != r) at = &(*at)->next_waiting;
    if (*at) *at = r->next_waiting;
    r->job = NULL;
    if (r->stream) r->stream->job = NULL;
    if (j->attended && !j->waiting) job_cancel(r->front, j, BY_CLIENT, "cancelled", "the client went away");
}

/* Answers everybody who waits for the job. */
static void answer_all(front *f, job *j) {
    for (request *r = j->waiting, *next; r; r = next) {
        next = r->next_waiting;
        r->job = NULL;
        r->outcome = state_names[j->state];
        r->waited = (j->started > 0 ? j->started : j->completed) - j->created;
        r->ran = j->started > 0 ? j->completed - j->started : 0;
        if (r->stream) {
            openai_ended(r->stream, j);
            r->stream->job = NULL;
        } else
            r->answer(r, j);
        wake(r);
    }
    j->waiting = NULL;
    for (stream *s = f->streams; s; s = s->next)
        if (s->job == j) {
            stream_end(s);
            s->job = NULL;
        }
}

static void remove_picture(front *f, picture *p) {
    p->removed = true;
    if (store_change_picture(f->store, p)) files_remove(f, p);
}

/* With --keep-pictures 0 a picture is removed when its client has got it: at once if it is in the answer, and after
 * an hour if the client fetches it by another request. */
static void remove_delivered(front *f, job *j) {
    const char *how = json_string_value(json_object_get(json_object_get(j->settings, "openai"), "response_format"));
    if (f->options->keep_days || f->options->store || !j->attended || (how && strcmp(how, "url") == 0)) return;
    for (int i = 0; i < j->made; i++) remove_picture(f, &j->pictures[i]);
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

void job_ended(front *f, job *j, job_state state, const char *code, const char *message) {
    j->state = state;
    j->code = code;
    if (!(j->completed > 0)) j->completed = wall_seconds();
    if (message != j->message) snprintf(j->message, sizeof j->message, "%s", message);
    f->metrics.jobs[j->source][state]++;
    job_tell_state(f, j);
    answer_all(f, j);
    remove_delivered(f, j);
    job_unlink(f, j);
    if (j->seats) { /* the worker still has it */
        j->over = true;
        seats_cancel(f, j);
    } else
        job_free(j);
}

/* The end of a job could not be stored, for example because the disk is full. It is stored when that is possible. */
static void keep_unsaved(front *f, const job *j) {
    job *copy = malloc(sizeof *copy);
    if (!copy) return;
    *copy = *j;
    copy->settings = NULL;
    copy->made = 0;
    copy->preview = (buffer){.data = NULL};
    copy->waiting = NULL;
    copy->seats = 0;
    copy->next = f->unsaved;
    f->unsaved = copy;
}

void jobs_save(front *f) {
    for (job *j; (j = f->unsaved) && store_save_job(f->store, j);) {
        f->unsaved = j->next;
        job_free(j);
    }
}

void job_end(front *f, job *j, job_state state, const char *code, const char *message) {
    j->state = state;
    j->code = code;
    j->completed = wall_seconds();
    snprintf(j->message, sizeof j->message, "%s", message);
    if (!store_save_job(f->store, j)) keep_unsaved(f, j);
    job_ended(f, j, state, code, j->message);
}

void job_cancel(front *f, job *j, int why, const char *code, const char *message) {
    bool failed = strcmp(code, "cancelled") != 0;
    f->metrics.cancelled[why]++;
    job_end(f, j, failed ? FAILED_JOB : CANCELLED, code, message);
}

/* The field of the request with the image that cannot be used. The messages of sitting.c begin with "image N" or "mask". */
static const char *field_of(const job *j) {
    if (!j->code || strcmp(j->code, "invalid_image") != 0) return "";
    if (strncmp(j->message, "mask", 4) == 0) return "mask";
    return j->source == FROM_SDAPI ? "init_images" : "image";
}

problem job_problem(const job *j) {
    problem p;
    const char *code = j->code ? j->code : "generation_failed";
    set_problem(&p, problem_status(code), code, field_of(j), "%s", j->message);
    return p;
}

void job_fail(front *f, job *j, const char *code, const char *message) { job_end(f, j, FAILED_JOB, code, message); }

/* ---- news of a picture ------------------------------------------------------------------------------------------- */

void job_started(front *f, job *j) {
    static const double limits[] = {0.01, 0.1, 1, 5, 15, 60, 300, 600, 1800};
    bool first = j->state == QUEUED;
    j->state = RUNNING;
    j->painting = true;
    j->painted_at = steady_seconds();
    *j->stage = 0;
    j->step = 0;
    j->done = 0;
    if (!(j->started > 0)) j->started = wall_seconds();
    if (!first) return;
    double waited = j->painted_at - j->queued_at;
    int k = 0;
    while (k < BUCKETS - 1 && waited > limits[k]) k++;
    f->metrics.queue.counts[k]++;
    f->metrics.queue.sum += waited;
    f->metrics.queue.n++;
}

void job_progress(front *f, job *j, const json_t *facts) {
    const char *stage = json_string_value(json_object_get(facts, "stage"));
    if (j->over || !stage) return;
    snprintf(j->stage, sizeof j->stage, "%s", stage);
    j->step = (int)json_integer_value(json_object_get(facts, "step"));
    j->steps = (int)json_integer_value(json_object_get(facts, "steps"));
    j->done = json_number_value(json_object_get(facts, "done"));
    double left = queue_seconds(f, j);
    native_event(f, j, "progress",
                 json_pack("{s:s, s:i, s:s, s:i, s:i, s:f, s:o}", "id", j->id, "picture", j->made, "stage", j->stage,
                           "step", j->step, "steps", j->steps, "done", j->done, "eta_seconds",
                           left < 0 ? json_null() : json_real(left)));
}

void job_preview(front *f, job *j, const json_t *facts, buffer *image) {
    if (j->over) return;
    buffer text = {.data = NULL};
    if (j->source == FROM_SDAPI) {
        j->preview.size = 0;
        buffer_add(&j->preview, image->data, image->size);
    }
    for (request *r = j->waiting; r; r = r->next_waiting)
        if (r->stream) openai_preview(r->stream, j, facts, image);
    if (job_is_native(j) && buffer_print(&text, "data:image/jpeg;base64,") &&
        base64_add(&text, image->data, image->size))
        native_event(f, j, "preview",
                     json_pack("{s:s, s:i, s:s}", "id", j->id, "picture", j->made, "image", text.data));
    buffer_free(&text);
}

static void count_stages(front *f, const json_t *milliseconds) {
    static const char *const names[] = {"text", "encode", "denoise", "decode"};
    static const double limits[] = {0.01, 0.05, 0.25, 1, 3, 10, 30, 100, 300};
    for (int i = 0; i < 4; i++) {
        double seconds = json_number_value(json_object_get(milliseconds, names[i])) / 1e3;
        histogram *h = &f->metrics.stages[i];
        int k = 0;
        while (k < BUCKETS - 1 && seconds > limits[k]) k++;
        h->counts[k]++;
        h->sum += seconds;
        h->n++;
    }
}

void pictures_counted(front *f, int together) {
    static const int limits[] = {1, 2, 3, 4, 6, 8, 10, 12, 16};
    int k = 0;
    while (k < BUCKETS - 1 && together > limits[k]) k++;
    f->metrics.together.counts[k]++;
    f->metrics.together.sum += together;
    f->metrics.together.n++;
}

void job_has_picture(front *f, job *j, double seconds) {
    picture *p = &j->pictures[j->made++];
    if (j->model >= 0) f->metrics.pictures[j->model]++;
    f->metrics.steps += (uint64_t)json_integer_value(json_object_get(p->facts, "steps"));
    count_stages(f, json_object_get(p->facts, "milliseconds"));
    queue_learn(f, j, seconds);
    native_event(f, j, "picture", json_pack("{s:s, s:o}", "id", j->id, "picture", picture_json(p)));
    for (request *r = j->waiting; r; r = r->next_waiting)
        if (r->stream) openai_picture(r->stream, j, p);
}

/* ---- after a restart --------------------------------------------------------------------------------------------- */

static void load_one(front *f, job *j) {
    job_append(f, j);
    if (j->attended) { /* its client is gone */
        job_end(f, j, CANCELLED, "cancelled", "the server was started again, and the client is gone");
        return;
    }
    if (j->made >= j->n) {
        job_end(f, j, COMPLETED, NULL, "");
        return;
    }
    if (j->state == RUNNING) j->attempts++;
    if (j->attempts > MOST_DEATHS) {
        job_fail(f, j, "worker_lost", "the server ended three times while it made this picture");
        return;
    }
    if (j->model < 0) {
        job_fail(f, j, "model_not_found", "the model of this job is not offered any more");
        return;
    }
    j->state = QUEUED;
    j->given = j->made;
    store_save_job(f->store, j);
}

bool jobs_load(front *f) { return store_each_live(f, load_one); }

/* ---- once a second ----------------------------------------------------------------------------------------------- */

static bool is_used(front *f, const char *upload) {
    for (const job *j = f->jobs; j; j = j->next) {
        const json_t *names = json_object_get(j->settings, "images");
        const char *mask = json_string_value(json_object_get(j->settings, "mask"));
        if (mask && strncmp(mask, "upload:", 7) == 0 && strcmp(mask + 7, upload) == 0) return true;
        for (size_t i = 0; i < json_array_size(names); i++) {
            const char *name = json_string_value(json_array_get(names, i));
            if (name && strncmp(name, "upload:", 7) == 0 && strcmp(name + 7, upload) == 0) return true;
        }
    }
    return false;
}

/* Removes a few uploads that are older than `age` seconds. One that a job still needs gets another day, so that it does not
 * stand before the others. Returns whether there may be more. */
static bool remove_old_uploads(front *f, double age) {
    enum { AT_ONCE = 32 };
    char old[AT_ONCE][65];
    int n = store_old_uploads(f->store, wall_seconds() - age, AT_ONCE, old), done = 0;
    for (int i = 0; i < n; i++) {
        int64_t width, height;
        if (is_used(f, old[i]))
            done += store_find_upload(f->store, old[i], &width, &height) &&
                    store_add_upload(f->store, old[i], width, height);
        else if (store_remove_upload(f->store, old[i])) {
            files_remove_upload(f, old[i]);
            done++;
        }
    }
    return n == AT_ONCE && done;
}

bool uploads_have_room(front *f, int64_t bytes) {
    enum { MINUTE = 60 };                         /* in which a client may name an upload for a job */
    if (!f->store->kind->own_worker) return true; /* a fleet has a folder or a bucket of its own */
    while (f->upload_bytes + bytes > MOST_UPLOADS && remove_old_uploads(f, MINUTE)) continue;
    return f->upload_bytes + bytes <= MOST_UPLOADS;
}

/* Removes a few pictures and uploads, so that no request waits for it. Returns whether there may be more. */
static bool remove_old(front *f) {
    enum { AT_ONCE = 8, FETCHED = 3600 };
    picture old[AT_ONCE];
    const serve_options *o = f->options;
    double now = wall_seconds(), kept = o->keep_days ? (double)o->keep_days * 86400 : FETCHED;
    bool many = o->keep_bytes && f->store->kept_bytes > o->keep_bytes;
    int n = store_old_pictures(f->store, many ? now + 1 : now - kept, AT_ONCE, old);
    for (int i = 0; i < n; i++) { /* the oldest first */
        if (old[i].created < now - kept || (many && f->store->kept_bytes > o->keep_bytes)) remove_picture(f, &old[i]);
        json_decref(old[i].facts);
    }
    bool more = remove_old_uploads(f, 86400);
    return n == AT_ONCE || more;
}

void jobs_sweep(front *f) {
    double now = steady_seconds();
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (j->state == QUEUED && j->attended && now - j->queued_at > f->options->queue_timeout)
            job_cancel(f, j, BY_TIMEOUT, "queue_timeout", "the job waited too long and was given up");
    }
    if (f->unsaved && now - f->saved > 0.5) {
        f->saved = now;
        jobs_save(f);
    }
    bool many = f->options->keep_bytes && f->store->kept_bytes > f->options->keep_bytes;
    if (now - f->swept > (many ? 0.5 : 10)) {
        f->swept = remove_old(f) ? now - 9.5 : now; /* a full batch: soon again */
        files_forget(f);
        files_check(f);
        disk_is_full(f);
    }
}
