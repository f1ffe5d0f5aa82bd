/* config.c: see config.h. */
#include "models/config.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

lz_status lz_config_open(lz_config *c, lz_context *ctx, const char *folder, const char *file, lz_error *err) {
    *c = (lz_config){.ctx = ctx, .path = lz_path_join(ctx, folder, file)};
    if (!c->path) return lz_out_of_memory(err, LZ_SHOWN);
    lz_mapping *map = lz_map_file(ctx, c->path, err);
    lz_status status = map ? LZ_OK : err ? err->status : LZ_IO;
    if (map && map->bytes > LZ_CONFIG_MAX_BYTES) {
        status = lz_fail(err, LZ_BAD_FILE, "%s: holds %lld bytes, more than the %d allowed for a configuration",
                         LZ_SHOW_TEXT(c->path), (long long)map->bytes, LZ_CONFIG_MAX_BYTES);
        lz_mapping_release(map);
    } else if (map) {
        json_error_t problem;
        c->root = json_loadb(map->data, (size_t)map->bytes, JSON_REJECT_DUPLICATES, &problem);
        if (!json_is_object(c->root))
            status = lz_fail(err, LZ_BAD_FILE, "%s: this is not a JSON object (line %d: %s): download it again",
                             LZ_SHOW_TEXT(c->path), c->root ? 1 : problem.line,
                             c->root ? "a value of another kind" : problem.text);
        lz_mapping_release(map);
    }
    if (!status && !(c->asked = json_object())) status = lz_out_of_memory(err, LZ_SHOWN);
    if (status) lz_config_close(c);
    return status;
}

lz_status lz_config_of(lz_config *c, lz_context *ctx, const char *path, json_t *root, lz_error *err) {
    *c = (lz_config){.ctx = ctx, .path = lz_host_copy(ctx, path), .root = root, .asked = json_object()};
    if (c->path && c->root && c->asked) return LZ_OK;
    lz_config_close(c);
    return lz_out_of_memory(err, LZ_SHOWN);
}

void lz_config_close(lz_config *c) {
    json_decref(c->asked);
    json_decref(c->root);
    lz_host_free(c->ctx, c->path);
    c->asked = NULL;
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

static const json_t *value_of(lz_config *c, const char *key) {
    const json_t *v = json_object_get(c->root, key);
    if (v && !json_object_get(c->asked, key) && json_object_set_new(c->asked, key, json_true()) && !c->err.status)
        lz_out_of_memory(&c->err, LZ_SHOWN);
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

int lz_config_choice(lz_config *c, const char *key, const char *const *names) {
    const json_t *v = value_of(c, key);
    int found = 0;
    for (size_t i = 0; v && i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const char *text = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        for (found = 0; text && names[found] && strcmp(names[found], text) != 0;) found++;
        if (text && names[found]) continue;
        lz_config_refuse(c, "'%s' is '%s', which is not supported; '%s' is", key, text ? LZ_SHOW_TEXT(text) : "no text",
                         names[0]);
        return 0;
    }
    return found;
}

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

void lz_config_check_divisors(lz_config *c, const char *key, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(values[i] > 0 && values[i] < 1e6F))
            lz_config_refuse(c, "the numbers of '%s' must be above 0 and below 1000000", key);
}

lz_config lz_config_inside(lz_config *c, const char *key) {
    json_t *root = json_object_get(c->root, key), *asked = NULL;
    if (value_of(c, key) && !json_is_object(root)) lz_config_refuse(c, "'%s' must be an object", key);
    if (json_is_object(root)) {
        if (!json_is_object(json_object_get(c->asked, key)) && json_object_set_new(c->asked, key, json_object()) &&
            !c->err.status)
            lz_out_of_memory(&c->err, LZ_SHOWN);
        asked = json_object_get(c->asked, key);
    }
    return (lz_config){.ctx = c->ctx, .path = c->path, .root = json_is_object(root) ? root : NULL, .asked = asked};
}

/* ---- what no one asked for --------------------------------------------------------------------------------------- */

static bool is_among(const char *key, const char *const *names) {
    for (; names && *names; names++)
        if (strcmp(*names, key) == 0) return true;
    return false;
}

void lz_config_refuse_rest(lz_config *c, const char *const *harmless) {
    const char *key;
    json_t *value;
    json_object_foreach(c->root, key, value) {
        bool fine = json_is_null(value) || *key == '_' || json_object_get(c->asked, key) || is_among(key, harmless);
        if (!fine)
            lz_config_refuse(
                c,
                "the field '%s' is unknown here, and may change the picture; if it does not, remove it from "
                "this file",
                LZ_SHOW_TEXT(key));
    }
}

/* Fields of configurations of transformers 4 and 5 that have no effect here: names, training, generation of text,
 * return values, token ids (which come from the tokenizer), and additions of re-uploads. sliding_window is used only
 * with use_sliding_window. */
static const char *const of_transformers[] = {
    /* names and versions */
    "architectures", "model_type", "transformers_version", "name_or_path", "auto_map", "dtype", "torch_dtype",
    "tokenizer_class", "finetuning_task", "unsloth_fixed", "unsloth_version",
    /* training and return values */
    "use_bfloat16", "torchscript", "tf_legacy_loss", "return_dict", "output_hidden_states", "output_attentions",
    "use_cache", "attention_dropout", "initializer_range", "chunk_size_feed_forward", "pruned_heads", "id2label",
    "label2id", "problem_type", "task_specific_params",
    /* other kinds of models, and heads that are not read */
    "tie_word_embeddings", "tie_encoder_decoder", "is_encoder_decoder", "is_decoder", "add_cross_attention",
    /* generation of text */
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "remove_invalid_values", "prefix",
    /* ids of tokens */
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "image_token_id", "video_token_id", "vision_token_id", "vision_start_token_id",
    "vision_end_token_id",
    /* limits that no prompt here reaches, and the other section of the same file */
    "max_position_embeddings", "max_window_layers", "sliding_window", "vision_config", NULL};

void lz_config_refuse_rest_of_transformers(lz_config *c) {
    static const char *const acts[] = {"silu", NULL}, *const layers[] = {"full_attention", NULL};
    static const char *const refused[] = {"use_sliding_window", "attention_bias", "use_mrope"};
    lz_config_choice(c, "hidden_act", acts);
    lz_config_choice(c, "layer_types", layers);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (lz_config_bool(c, refused[i], false))
            lz_config_refuse(c, "'%s' is true, which is not supported", refused[i]);
    lz_config_refuse_rest(c, of_transformers);
}

void lz_config_refuse_rest_beside(lz_config *c, const lz_config *inner) {
    const char *key;
    json_t *value;
    json_object_foreach(inner->root, key, value) { value_of(c, key); }
    lz_config_refuse_rest_of_transformers(c);
}
