/* config.c: see config.h. */
#include "models/config.h"

#include <stdio.h>
#include <string.h>

#include "io/file.h"

lz_status lz_config_open(lz_config *c, lz_context *ctx, const char *folder, const char *file, lz_error *err) {
    *c = (lz_config){.ctx = ctx, .path = lz_path_join(ctx, folder, file)};
    if (!c->path) return lz_out_of_memory(err, LZ_SHOWN);
    lz_mapping *map = lz_map_file(ctx, c->path, err);
    lz_status status = map ? LZ_OK : err ? err->status : LZ_IO;
    if (map) {
        json_error_t problem;
        c->root = json_loadb(map->data, (size_t)map->bytes, JSON_REJECT_DUPLICATES, &problem);
        if (!json_is_object(c->root))
            status = lz_fail(err, LZ_BAD_FILE, "%s: this is not a JSON object (line %d: %s)", LZ_SHOW_TEXT(c->path),
                             c->root ? 1 : problem.line, c->root ? "something else" : problem.text);
        lz_mapping_release(map);
    }
    if (status) lz_config_close(c);
    return status;
}

void lz_config_close(lz_config *c) {
    json_decref(c->root);
    lz_host_free(c->ctx, c->path);
    c->root = NULL;
    c->path = NULL;
}

lz_status lz_config_end(lz_config *c, lz_error *err) {
    if (c->err.status && err) *err = c->err;
    lz_config_close(c);
    return c->err.status;
}

void lz_config_refuse(lz_config *c, const char *format, ...) {
    if (c->err.status) return;
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lz_fail(&c->err, LZ_BAD_FILE, "%s: %s", LZ_SHOW_TEXT(c->path), text);
}

static const json_t *value_of(const lz_config *c, const char *key) {
    const json_t *v = json_object_get(c->root, key);
    return json_is_null(v) ? NULL : v;
}

int64_t lz_config_int(lz_config *c, const char *key, int64_t otherwise, int64_t low, int64_t high) {
    const json_t *v = value_of(c, key);
    if (!v && otherwise != LZ_REQUIRED) return otherwise;
    if (!json_is_integer(v)) {
        lz_config_refuse(c, "'%s' must be a whole number", key);
        return low;
    }
    int64_t n = json_integer_value(v);
    if (n >= low && n <= high) return n;
    lz_config_refuse(c, "'%s' is %lld, outside %lld to %lld", key, (long long)n, (long long)low, (long long)high);
    return low;
}

double lz_config_real(lz_config *c, const char *key, double otherwise) {
    const json_t *v = value_of(c, key);
    if (v && !json_is_number(v)) lz_config_refuse(c, "'%s' must be a number", key);
    return v ? json_number_value(v) : otherwise;
}

bool lz_config_bool(lz_config *c, const char *key, bool otherwise) {
    const json_t *v = value_of(c, key);
    if (v && !json_is_boolean(v)) lz_config_refuse(c, "'%s' must be true or false", key);
    return v ? json_is_true(v) : otherwise;
}

const char *lz_config_text(lz_config *c, const char *key) { return json_string_value(value_of(c, key)); }

int lz_config_ints(lz_config *c, const char *key, int64_t *to, int most, int64_t low, int64_t high) {
    const json_t *v = value_of(c, key);
    if (!v) return 0;
    size_t n = json_array_size(v);
    bool fine = json_is_array(v) && n >= 1 && n <= (size_t)most;
    for (size_t i = 0; fine && i < n; i++) {
        const json_t *x = json_array_get(v, i);
        to[i] = json_integer_value(x);
        fine = json_is_integer(x) && to[i] >= low && to[i] <= high;
    }
    if (fine) return (int)n;
    lz_config_refuse(c, "'%s' must be a list of 1 to %d whole numbers from %lld to %lld", key, most, (long long)low,
                     (long long)high);
    return 0;
}

int lz_config_reals(lz_config *c, const char *key, double *to, int most) {
    const json_t *v = value_of(c, key);
    if (!v) return 0;
    size_t n = json_array_size(v);
    bool fine = json_is_array(v) && n >= 1 && n <= (size_t)most;
    for (size_t i = 0; fine && i < n; i++) {
        to[i] = json_number_value(json_array_get(v, i));
        fine = json_is_number(json_array_get(v, i));
    }
    if (fine) return (int)n;
    lz_config_refuse(c, "'%s' must be a list of 1 to %d numbers", key, most);
    return 0;
}

lz_config lz_config_inside(const lz_config *c, const char *key) {
    json_t *root = json_object_get(c->root, key);
    return (lz_config){.ctx = c->ctx, .path = c->path, .root = json_is_object(root) ? root : NULL};
}
