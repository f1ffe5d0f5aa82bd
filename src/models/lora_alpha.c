/* lora_alpha.c: see lora_alpha.h. */
#include "models/lora_alpha.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "io/weights.h"
#include "models/lora_keys.h"

enum { CONFIG_LIMIT = 4 << 20 };

static json_t *read_beside(lz_context *ctx, const char *path, lz_error *err) {
    const char *slash = strrchr(path, '/');
    char *folder = lz_host_copy(ctx, path);
    if (folder) folder[slash ? slash + 1 - path : 0] = 0;
    char *file = folder ? lz_path_join(ctx, folder, "adapter_config.json") : NULL;
    json_t *root = NULL;
    lz_error none = {.status = LZ_OK};
    if (!file)
        lz_out_of_memory(err, (int64_t)strlen(path));
    else {
        lz_mapping *map = lz_map_file(ctx, file, &none); /* usually there is none */
        if (none.status == LZ_OUT_OF_MEMORY) *err = none;
        if (map && map->bytes > CONFIG_LIMIT)
            lz_weights_bad_file(err, file, "holds %lld bytes, too many for a configuration", (long long)map->bytes);
        else if (map)
            root = lz_weights_parse(file, "the configuration", map->data, map->bytes, err);
        lz_mapping_release(map);
    }
    lz_host_free(ctx, folder);
    lz_host_free(ctx, file);
    return root;
}

lz_status lz_lora_alphas_open(lz_lora_alphas *a, lz_context *ctx, const char *path, lz_weights *weights,
                              lz_error *err) {
    lz_error local = {.status = LZ_OK};
    const char *text = lz_weights_metadata(weights, "lora_adapter_metadata");
    *a = (lz_lora_alphas){.prefix = ""};
    if (text) {
        a->root = lz_weights_parse(path, "lora_adapter_metadata", text, (int64_t)strlen(text), &local);
        json_t *inner = json_object_get(a->root, "transformer");
        if (json_is_object(inner)) { /* not as diffusers writes it: an object of its own */
            json_incref(inner);
            json_decref(a->root);
            a->root = inner;
        } else
            a->prefix = "transformer.";
    } else
        a->root = read_beside(ctx, path, &local);
    if (local.status && err) *err = local;
    return local.status;
}

void lz_lora_alphas_close(lz_lora_alphas *a) {
    json_decref(a->root);
    a->root = NULL;
}

static const json_t *value(const lz_lora_alphas *a, const char *key) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", a->prefix, key);
    return json_object_get(a->root, name);
}

/* Patterns are ends of modules' names. */
static const json_t *pattern_of(const json_t *patterns, const char *module) {
    const char *key;
    json_t *each;
    json_object_foreach((json_t *)patterns, key, each) {
        char flat[LZ_FLAT_MAX];
        lz_flatten(key[0] == '^' ? key + 1 : key, flat);
        size_t n = strlen(flat), m = strlen(module);
        if (n && n <= m && strcmp(module + m - n, flat) == 0 && (n == m || module[m - n - 1] == '_')) return each;
    }
    return NULL;
}

/* From the configuration; NAN: it says nothing. */
static double configured(const lz_lora_alphas *a, const char *module) {
    const json_t *own = pattern_of(value(a, "alpha_pattern"), module);
    if (!json_is_number(own)) own = value(a, "lora_alpha");
    return json_is_number(own) ? json_number_value(own) : NAN;
}

lz_status lz_lora_alpha(const lz_lora_alphas *a, lz_weights *weights, const char *tensor, const char *module,
                        int64_t rank, double *factor, double *alpha) {
    *factor = 1;
    if (!rank) return LZ_OK;
    double found = configured(a, module), root = json_is_true(value(a, "use_rslora")) ? 0.5 : 1;
    if (tensor) {
        lz_array *array = lz_weights_get(weights, tensor);
        lz_error err = {.status = LZ_OK};
        if (lz_check(array, &err) || lz_size(array) != 1) return LZ_BAD_FILE;
        found = lz_item(array, &err);
        root = 1;
        if (err.status || !isfinite(found)) return LZ_BAD_FILE;
    }
    if (isnan(found)) return LZ_OK;
    *alpha = found;
    *factor = found / pow((double)rank, root);
    return isfinite(*factor) ? LZ_OK : LZ_BAD_FILE;
}
