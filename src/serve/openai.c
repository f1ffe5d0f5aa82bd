/* openai.c: the Images API of OpenAI. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handlers.h"
#include "repeat.h"
#include "sse.h"
#include "store.h"

enum { ADDRESS_SECONDS = 3600 };
/* Characters of a Host header that may be copied into the address of a picture. Requests with a key may have any Host. */
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

void handle_variations(request *r) {
    reply_error(r, 404, "not_found", "", "variations are not offered; /v1/images/edits makes a picture from another");
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Adds a file in base64. */
static bool add_file(buffer *to, const char *path) {
    buffer data = {.data = NULL};
    char piece[65536];
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = -1;
    while (file >= 0 && (n = read(file, piece, sizeof piece)) > 0) buffer_add(&data, piece, (size_t)n);
    if (file >= 0) close(file);
    bool good = n == 0 && !data.failed && base64_add(to, data.data, data.size);
    buffer_free(&data);
    return good;
}

bool picture_base64(front *f, buffer *to, const picture *p) {
    char *path = picture_path(f, p);
    bool good = add_file(to, path);
    free(path);
    return good;
}

/* The address of a picture, for an hour. */
static bool add_address(request *r, buffer *to, const picture *p) {
    char name[33];
    const char *host = header_of(r, "host"), *base = r->front->options->public_url;
    random_letters(name, 32);
    if (!store_add_address(r->front->store, name, p->id, wall_seconds() + ADDRESS_SECONDS)) return false;
    size_t n = base ? strlen(base) : 0;
    while (n && base[n - 1] == '/') n--;
    if (!host || !*host || host[strspn(host, HOST_LETTERS)]) host = "localhost";
    if (base) return buffer_print(to, "%.*s/files/%s%s", (int)n, base, name, format_ending(p->format));
    return buffer_print(to, "http%s://%s/files/%s%s", r->secure ? "s" : "", host, name, format_ending(p->format));
}

/* "usage" of pictures; n of them. */
static bool add_usage(buffer *to, const picture *pictures, int n) {
    long long text = 0, images = 0, out = 0;
    for (int i = 0; i < n; i++) {
        const json_t *facts = pictures[i].facts;
        if (i == 0) text = json_integer_value(json_object_get(facts, "text_tokens"));
        if (i == 0) images = json_integer_value(json_object_get(facts, "image_tokens"));
        out += json_integer_value(json_object_get(facts, "output_tokens"));
    }
    return buffer_print(
        to,
        "\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"text_tokens\":%lld,"
        "\"image_tokens\":%lld},\"output_tokens\":%lld,\"output_tokens_details\":{\"image_tokens\":%lld,"
        "\"text_tokens\":0},\"total_tokens\":%lld}",
        text + images, text, images, out, out, text + images + out);
}

static const char *told_quality(const json_t *answer, bool in_event) {
    const char *quality = text_of(answer, "quality");
    return strcmp(quality, "auto") == 0 && !in_event ? "high" : quality;
}

static const char *told_background(const picture *p) {
    return p && json_is_true(json_object_get(p->facts, "transparent")) ? "transparent" : "opaque";
}

/* The user's name that came with the request, or nothing. */
static void add_user(buffer *to, const job *j) {
    const json_t *user = json_object_get(j->settings, "user");
    char *text = user ? json_dumps(user, JSON_ENCODE_ANY) : NULL;
    if (text) buffer_print(to, ",\"safety_identifier\":%s", text);
    free(text);
}

static void answer_file(request *r, const picture *p) {
    char *path = picture_path(r->front, p);
    reply_file(r, path, format_type(p->format), NULL);
    free(path);
}

static void answer_pictures(request *r, const job *j) {
    const json_t *answer = json_object_get(j->settings, "openai");
    bool url = strcmp(text_of(answer, "response_format"), "url") == 0, good = true;
    buffer b = {.data = NULL};
    for (int i = 0; i < j->made; i++)
        if (json_is_true(json_object_get(j->pictures[i].facts, "prompt_cut")))
            snprintf(r->note, sizeof r->note, "prompt_cut");
    if (strcmp(text_of(answer, "response_format"), "file") == 0) {
        answer_file(r, &j->pictures[0]);
        return;
    }
    if (!url && !pictures_have_room(r, j)) return;
    const picture *first = &j->pictures[0];
    buffer_print(&b,
                 "{\"created\":%lld,\"background\":\"%s\",\"output_format\":\"%s\",\"quality\":\"%s\",\"size\":\"%"
                 "lldx%lld\",\"data\":[",
                 (long long)j->completed, told_background(first), first->format, told_quality(answer, false),
                 (long long)first->width, (long long)first->height);
    for (int i = 0; i < j->made; i++) {
        buffer_print(&b, "%s{\"%s\":\"", i ? "," : "", url ? "url" : "b64_json");
        good = good && (url ? add_address(r, &b, &j->pictures[i]) : picture_base64(r->front, &b, &j->pictures[i]));
        buffer_print(&b, "\",\"seed\":%lld", (long long)j->pictures[i].seed);
        const json_t *layer = json_object_get(j->pictures[i].facts, "layer");
        if (layer) buffer_print(&b, ",\"layer\":%lld", (long long)json_integer_value(layer));
        buffer_print(&b, "}");
    }
    buffer_print(&b, "],");
    add_usage(&b, j->pictures, j->made);
    add_user(&b, j);
    buffer_print(&b, "}");
    if (good && !b.failed) {
        reply_bytes(r, 200, "application/json", &b);
        add_header(r, "cache-control", "no-store");
    } else {
        char *path = picture_path(r->front, first);
        reply_missing(r, path);
        free(path);
    }
    buffer_free(&b);
}

static void answer_job(request *r, job *j) {
    if (j->state == COMPLETED) {
        answer_pictures(r, j);
        return;
    }
    problem p = job_problem(j);
    reply_problem(r, &p);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static const char *event_name(const job *j, bool completed) {
    bool edit = json_is_true(json_object_get(json_object_get(j->settings, "openai"), "edit"));
    return completed ? edit ? "image_edit.completed" : "image_generation.completed"
           : edit    ? "image_edit.partial_image"
                     : "image_generation.partial_image";
}

static json_t *event_json(const job *j, const char *type, const char *base64, int64_t width, int64_t height,
                          const char *format, const char *background) {
    const json_t *answer = json_object_get(j->settings, "openai");
    char size[48];
    snprintf(size, sizeof size, "%lldx%lld", (long long)width, (long long)height);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s}", "type", type, "b64_json", base64, "created_at",
                     (json_int_t)wall_seconds(), "size", size, "quality", told_quality(answer, true), "background",
                     background, "output_format", format);
}

/* Previews are sent after the steps ceil(i * steps / (wanted + 1)), i = 1, 2, ... */
void openai_preview(stream *s, const job *j, const json_t *facts, const buffer *image) {
    int64_t step = json_integer_value(json_object_get(facts, "step")),
            steps = json_integer_value(json_object_get(facts, "steps"));
    int due = 0;
    while (due < s->partials && ((due + 1) * steps + s->partials) / (s->partials + 1) <= step) due++;
    if (due <= s->passed || step >= steps) return; /* the last step is the picture itself */
    s->passed = due;
    buffer text = {.data = NULL};
    if (!base64_add(&text, image->data, image->size)) return;
    json_t *event = event_json(j, event_name(j, false), text.data, json_integer_value(json_object_get(facts, "width")),
                               json_integer_value(json_object_get(facts, "height")), "jpeg", "opaque");
    json_object_set_new(event, "partial_image_index", json_integer(s->partial++));
    if (j->n > 1) json_object_set_new(event, "image_index", json_integer(j->made));
    stream_event(s, event_name(j, false), event, true);
    buffer_free(&text);
}

void openai_picture(stream *s, const job *j, const picture *p) {
    buffer text = {.data = NULL}, usage = {.data = NULL};
    s->passed = s->partial = 0;
    if (!answers_have_room(s->request->front, p->bytes / 3 * 4)) {
        problem full;
        set_problem(&full, 429, "queue_full", "", "too many large answers are being sent");
        stream_event(s, "error", problem_json(&full), false);
        stream_end(s);
        return;
    }
    if (picture_base64(s->request->front, &text, p) && buffer_print(&usage, "{") && add_usage(&usage, p, 1) &&
        buffer_print(&usage, "}")) {
        json_t *event = event_json(j, event_name(j, true), text.data, p->width, p->height, p->format,
                                   told_background(p));
        json_t *tokens = json_loads(usage.data, 0, NULL);
        json_object_update(event, tokens);
        json_decref(tokens);
        if (j->n > 1) json_object_set_new(event, "image_index", json_integer(p->index));
        stream_event(s, event_name(j, true), event, false);
    }
    buffer_free(&text);
    buffer_free(&usage);
}

void openai_ended(stream *s, const job *j) {
    if (j->state != COMPLETED) {
        problem p = job_problem(j);
        stream_event(s, "error", problem_json(&p), false);
    }
    stream_end(s);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static bool is_streamed(const job *j) {
    return json_is_true(json_object_get(json_object_get(j->settings, "openai"), "stream"));
}

/* Begins the stream that the request has asked for. j: NULL if the job has ended. NULL: the answer is set. */
static stream *begin_stream(request *r, job *j) {
    stream *s = stream_new(r, j, false);
    if (s)
        reply_stream(r, s);
    else
        reply_error(r, 500, "out_of_memory", "", "out of memory");
    return s;
}

static void attend(request *r, job *j) {
    const json_t *answer = json_object_get(j->settings, "openai");
    stream *s = is_streamed(j) ? begin_stream(r, j) : NULL;
    if (is_streamed(j) && !s) return;
    job_wait(r, j, answer_job);
    if (!s) return;
    s->partials = (int)json_integer_value(json_object_get(answer, "partial_images"));
    for (int i = 0; i < j->made; i++) openai_picture(s, j, &j->pictures[i]); /* of a job that is asked for again */
    stream_comment(s);
}

/* Answers with a job that has ended. */
static void answer_ended(request *r, job *j) {
    stream *s = is_streamed(j) ? begin_stream(r, NULL) : NULL;
    for (int i = 0; s && i < j->made; i++) openai_picture(s, j, &j->pictures[i]);
    if (s)
        openai_ended(s, j);
    else if (!is_streamed(j))
        answer_job(r, j);
}

static void queue_new(request *r, json_t *settings) { repeat_or_queue(r, settings, FROM_OPENAI, attend, answer_ended); }

static void make(request *r, json_t *fields, bool edit) {
    problem p = {.status = 0};
    json_t *settings = wanted_openai(r, fields, edit, &p);
    repeat_hash(r);
    if (settings)
        admit(r, settings, queue_new);
    else
        reply_problem(r, &p);
}

void handle_generations(request *r) {
    json_t *fields = body_json(r);
    if (fields) make(r, fields, false);
}

void handle_edits(request *r) {
    const char *type = header_of(r, "content-type");
    bool form = type && (*type == 'm' || *type == 'M');
    json_t *fields = form ? NULL : body_json(r);
    if (fields || form) make(r, fields, true);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

void handle_file(request *r) {
    char name[65], id[ID_BYTES] = "";
    snprintf(name, sizeof name, "%.*s", (int)strcspn(r->item, "."), r->item);
    int found = is_id(name) ? store_find_address(r->front->store, name, id) : 0;
    picture p = {.facts = NULL};
    if (!found || (found > 0 && !store_find_picture(r->front->store, id, &p))) {
        reply_error(r, 404, "not_found", "", "there is no such picture");
        return;
    }
    r->cross_origin = true;
    if (found < 0 || p.removed)
        reply_error(r, 410, "gone", "", "the address of this picture is not valid any more");
    else
        answer_file(r, &p);
    json_decref(p.facts);
}
