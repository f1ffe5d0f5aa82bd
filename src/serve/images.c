/* images.c: see images.h. */
#include "images.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "store.h"

bool images_add(request *r, json_t *images, const char *name, const void *data, size_t size, problem *p) {
    char id[65], kept[80], shown[24] = "mask"; /* how a message names the image */
    int64_t width, height;
    if (json_array_size(images) >= LZ_MAX_IMAGES)
        return set_problem(p, 400, "invalid_value", "image", "image: there are more than %d images", LZ_MAX_IMAGES);
    if (strcmp(name, "mask") != 0) snprintf(shown, sizeof shown, "image %zu", json_array_size(images) + 1);
    if (!upload_keep(r->front, shown, data, size, id, &width, &height, p)) {
        if (*p->param) snprintf(p->param, sizeof p->param, "%s", name);
        return false;
    }
    snprintf(kept, sizeof kept, "upload:%s", id);
    return json_array_append_new(images, json_string(kept)) == 0 ||
           set_problem(p, 500, "out_of_memory", "", "out of memory");
}

/* "upload:ID" and "picture:ID". */
static bool add_named(request *r, json_t *images, const char *name, const char *reference, problem *p) {
    const char *id = strchr(reference, ':') + 1;
    int64_t width, height;
    picture found = {.facts = NULL};
    bool is_upload = *reference == 'u', there = is_id(id);
    if (is_upload)
        there = there && store_find_upload(r->front->store, id, &width, &height);
    else {
        there = there && store_find_picture(r->front->store, id, &found) && !found.removed &&
                (r->who.admin || strcmp(found.owner, r->who.owner) == 0);
        json_decref(found.facts);
    }
    if (!there)
        return set_problem(p, 400, "invalid_value", name, "%s: there is no such %s", name,
                           is_upload ? "upload" : "picture");
    if (json_array_size(images) >= LZ_MAX_IMAGES)
        return set_problem(p, 400, "invalid_value", "image", "image: there are more than %d images", LZ_MAX_IMAGES);
    return json_array_append_new(images, json_string(reference)) == 0;
}

static bool add_image(request *r, json_t *images, const char *name, const json_t *value, problem *p) {
    const char *text = json_string_value(value);
    if (json_is_object(value) && json_object_get(value, "file_id"))
        return set_problem(p, 400, "unsupported_value", name, "%s: file_id is not supported; send the image", name);
    if (json_is_object(value)) text = json_string_value(json_object_get(value, "image_url"));
    if (!text) return set_problem(p, 400, "invalid_type", name, "%s: must be a data URL with base64", name);
    if (strncmp(text, "upload:", 7) == 0 || strncmp(text, "picture:", 8) == 0)
        return add_named(r, images, name, text, p);
    if (strncasecmp(text, "data:", 5) != 0)
        return set_problem(
            p, 400, "unsupported_value", name,
            "%s: this server fetches nothing; send the image as a data URL, or name an upload: upload:ID", name);
    buffer data = {.data = NULL};
    bool good = data_url_read(text, strlen(text), &data)
                    ? images_add(r, images, name, data.data ? data.data : "", data.size, p)
                    : set_problem(p, 400, "invalid_image", name, "%s: the data URL is not base64", name);
    buffer_free(&data);
    return good;
}

/* Takes "mask", which is one image. */
static bool take_mask(request *r, const json_t *fields, json_t *settings, problem *p) {
    json_t *value = json_object_get(fields, "mask"), *list = json_array();
    if (!value || json_is_null(value)) {
        json_decref(list);
        return true;
    }
    bool good = list && add_image(r, list, "mask", value, p);
    if (good) json_object_set(settings, "mask", json_array_get(list, 0));
    json_decref(list);
    return good;
}

bool images_take(request *r, const json_t *fields, json_t *settings, problem *p) {
    static const char *const names[] = {"image", "images"};
    json_t *images = json_array();
    bool good = images;
    for (int k = 0; k < 2; k++) {
        json_t *value = json_object_get(fields, names[k]);
        if (!value || json_is_null(value)) continue;
        if (!json_is_array(value)) good = good && add_image(r, images, "image", value, p);
        for (size_t i = 0; good && i < json_array_size(value); i++)
            good = add_image(r, images, "image", json_array_get(value, i), p);
    }
    if (good && json_array_size(images)) json_object_set(settings, "images", images);
    json_decref(images);
    return good && take_mask(r, fields, settings, p);
}

/* An image as base64 without the head of a data URL, or as a data URL. */
static bool add_bare(request *r, json_t *images, const char *name, const json_t *value, problem *p) {
    const char *text = json_string_value(value);
    buffer data = {.data = NULL};
    bool good;
    if (!text || strncasecmp(text, "data:", 5) == 0)
        good = add_image(r, images, name, value, p);
    else if (base64_read(text, strlen(text), &data))
        good = images_add(r, images, name, data.data ? data.data : "", data.size, p);
    else
        good = set_problem(p, 400, "invalid_image", name, "%s: is not base64", name);
    buffer_free(&data);
    return good;
}

bool images_take_bare(request *r, const json_t *fields, const char *const names[2], json_t *settings, problem *p) {
    json_t *images = json_array(), *masks = json_array(), *mask = json_object_get(fields, "mask");
    bool good = images && masks;
    for (int k = 0; k < 2; k++) {
        json_t *list = json_object_get(fields, names[k]);
        for (size_t i = 0; good && i < json_array_size(list); i++)
            good = add_bare(r, images, names[k], json_array_get(list, i), p);
    }
    if (good && mask && !json_is_null(mask)) good = add_bare(r, masks, "mask", mask, p);
    if (good && json_array_size(images)) json_object_set(settings, "images", images);
    if (good && json_array_size(masks)) json_object_set(settings, "mask", json_array_get(masks, 0));
    json_decref(images);
    json_decref(masks);
    return good;
}
