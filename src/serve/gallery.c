/* gallery.c: /api/v1, pictures and uploads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handlers.h"
#include "sse.h"
#include "store.h"

json_t *picture_json(const picture *p) {
    json_t *milliseconds = json_object_get(p->facts, "milliseconds");
    json_t *layer = json_object_get(p->facts, "layer");
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:i, s:O?}", "id", p->id, "job", p->job,
                               "seed", (json_int_t)p->seed, "width", (json_int_t)p->width, "height",
                               (json_int_t)p->height, "bytes", (json_int_t)p->bytes, "format", p->format, "created",
                               (json_int_t)p->created, "pinned", p->pinned, "rating", p->rating, "milliseconds",
                               milliseconds);
    if (layer) json_object_set(object, "layer", layer);
    return object;
}

void handle_upload(request *r) {
    problem p = {.status = 0};
    char id[65];
    int64_t width, height;
    if (!r->body.size) {
        reply_error(r, 400, "invalid_image", "", "the body is empty; send the bytes of an image");
        return;
    }
    if (upload_keep(r->front, "image", r->body.data, r->body.size, id, &width, &height, &p))
        reply_json(r, 201,
                   json_pack("{s:s, s:I, s:I}", "id", id, "width", (json_int_t)width, "height", (json_int_t)height));
    else
        reply_problem(r, &p);
}

/* The picture of the path; false: the answer is set. The caller releases its facts. */
bool asked_picture(request *r, picture *p) {
    bool found = is_id(r->item) && store_find_picture(r->front->store, r->item, p);
    bool seen = found && (r->who.admin || strcmp(r->who.owner, p->owner) == 0);
    if (seen && !p->removed) return true;
    if (found) json_decref(p->facts);
    if (seen)
        reply_error(r, 410, "gone", "", "the picture has been removed");
    else
        reply_error(r, 404, "not_found", "", "there is no such picture");
    return false;
}

static json_t *with_settings(front *f, const picture *p) {
    json_t *object = picture_json(p);
    char *text = store_picture_settings(f->store, p);
    json_t *settings = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    json_object_del(settings, "openai");
    json_object_del(settings, "sdapi");
    json_object_del(settings, "n");
    if (settings) json_object_set_new(settings, "seed", json_integer(p->seed));
    json_object_set_new(object, "settings", settings ? settings : json_null());
    return object;
}

void handle_pictures(request *r) {
    int limit;
    if (!asked_limit(r, &limit)) return;
    char *before = query_of(r, "before"), *search = query_of(r, "q"), *pinned = query_of(r, "pinned"),
         *rating = query_of(r, "rating");
    picture_query query = {.owner = r->who.admin ? NULL : r->who.owner,
                           .before = before,
                           .search = search,
                           .pinned = pinned && strcmp(pinned, "true") == 0,
                           .rating = rating && strlen(rating) == 1 ? *rating - '0'
                                     : rating                      ? -1
                                                                   : 0,
                           .limit = limit + 1};
    bool good = query.rating >= 0 && query.rating <= BEST_RATING;
    char next[65] = "";
    picture *found = calloc(MOST_LISTED + 1, sizeof *found); /* one more than asked for tells whether there are more */
    int n = found && good ? store_list_pictures(r->front->store, &query, found, next) : 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if (i < limit) json_array_append_new(list, with_settings(r->front, &found[i]));
        json_decref(found[i].facts);
    }
    free(found);
    free(before);
    free(search);
    free(pinned);
    free(rating);
    if (!good) {
        json_decref(list);
        reply_error(r, 400, "invalid_value", "rating", "rating: must be 0 to %d", BEST_RATING);
        return;
    }
    json_t *answer = json_pack("{s:o, s:b}", "pictures", list, "more", n > limit || *next);
    if (*next) json_object_set_new(answer, "next", json_string(next));
    reply_json(r, 200, answer);
}

void handle_picture(request *r) {
    picture p;
    if (!asked_picture(r, &p)) return;
    reply_json(r, 200, with_settings(r->front, &p));
    json_decref(p.facts);
}

static void reply_image(request *r, bool asked) {
    bool thumb = asked;
    picture p;
    char tag[ID_BYTES + 8];
    if (!asked_picture(r, &p)) return;
    char *path = thumb ? thumb_path(r->front, &p) : NULL;
    if (!path || access(path, R_OK) != 0) { /* a small picture may not be written yet */
        free(path);
        path = picture_path(r->front, &p);
        thumb = false;
    }
    snprintf(tag, sizeof tag, "\"%s%s\"", p.id, thumb ? "-t" : "");
    reply_file(r, path, thumb ? "image/webp" : format_type(p.format), thumb == asked ? tag : NULL);
    free(path);
    json_decref(p.facts);
}

void handle_picture_file(request *r) { reply_image(r, false); }
void handle_picture_thumb(request *r) { reply_image(r, true); }

void handle_picture_change(request *r) {
    picture p;
    json_t *fields = body_json(r), *pinned = json_object_get(fields, "pinned"),
           *rating = json_object_get(fields, "rating");
    if (!fields) return;
    json_int_t stars = json_integer_value(rating);
    size_t known = pinned != NULL;
    known += rating != NULL;
    if ((pinned && !json_is_boolean(pinned)) || json_object_size(fields) != known || !known)
        reply_error(r, 400, "invalid_value", "pinned", "the body must be such as {\"pinned\": true, \"rating\": 4}");
    else if (rating && (!json_is_integer(rating) || stars < 0 || stars > BEST_RATING))
        reply_error(r, 400, "invalid_value", "rating", "rating: must be 1 to %d, or 0 for none", BEST_RATING);
    else if (asked_picture(r, &p)) {
        if (pinned) p.pinned = json_is_true(pinned);
        if (rating) p.rating = (int)stars;
        if (store_change_picture(r->front->store, &p))
            reply_json(r, 200, with_settings(r->front, &p));
        else
            reply_error(r, 507, "insufficient_storage", "", "the change cannot be stored");
        json_decref(p.facts);
    }
    json_decref(fields);
}

void handle_picture_delete(request *r) {
    picture p;
    if (!asked_picture(r, &p)) return;
    p.removed = true;
    if (store_change_picture(r->front->store, &p)) {
        job gone = {.n = 0};
        files_remove(r->front, &p);
        memcpy(gone.owner, p.owner, sizeof gone.owner);
        memcpy(gone.id, p.job, sizeof gone.id);
        native_event(r->front, &gone, "removed", json_pack("{s:s}", "picture", p.id));
        reply_json(r, 200, json_pack("{s:s, s:b}", "id", p.id, "removed", true));
    } else
        reply_error(r, 507, "insufficient_storage", "", "the change cannot be stored");
    json_decref(p.facts);
}
