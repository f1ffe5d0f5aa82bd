/* gguf_tokenizer.c: the tokenizer that llama.cpp keeps in the file of a text encoder: lists of tokens, of their kinds, and of
 * merges. The chat template there is not used: the prompts of picture models are fixed. */
#include <string.h>

#include "io/weights.h"
#include "pipeline/parts.h"

typedef struct gguf_lists {
    const lz_value *tokens, *kinds, *merges; /* kinds: or NULL */
    lz_value_place token, kind, merge;
} gguf_lists;

static bool next_text(const lz_value *list, lz_value_place *at, const char **text, size_t *bytes) {
    lz_value_item item;
    if (!list || list->type != LZ_VALUE_TEXT || !lz_value_next(list, at, &item)) return false;
    *text = item.text;
    *bytes = (size_t)item.length;
    return true;
}

static bool next_token(void *user, const char **text, size_t *bytes, int *kind) {
    gguf_lists *l = user;
    lz_value_item item;
    *kind = l->kinds && lz_value_next(l->kinds, &l->kind, &item) ? (int)item.integer : 1;
    return next_text(l->tokens, &l->token, text, bytes);
}

static bool next_merge(void *user, const char **text, size_t *bytes) {
    gguf_lists *l = user;
    return next_text(l->merges, &l->merge, text, bytes);
}

static bool is_text(const lz_value *value, const char *text) {
    lz_value_item item;
    return value && value->type == LZ_VALUE_TEXT && lz_value_first(value, &item) &&
           (size_t)item.length == strlen(text) && !memcmp(item.text, text, strlen(text));
}

lz_tokenizer *lz_gguf_tokenizer(lz_context *ctx, const lz_weights *w, const char *path, lz_error *err) {
    const lz_value *model = lz_weights_value(w, "tokenizer.ggml.model"),
                   *pre = lz_weights_value(w, "tokenizer.ggml.pre"),
                   *pad = lz_weights_value(w, "tokenizer.ggml.padding_token_id");
    lz_value_item item = {.integer = -1};
    if ((model && !is_text(model, "gpt2")) || (pre && !is_text(pre, "qwen2"))) {
        lz_fail(err, LZ_BAD_FILE, "%s: its tokenizer is of another kind than Qwen's: give one with --tokenizer",
                LZ_SHOW_TEXT(path));
        return NULL;
    }
    if (!lz_weights_value(w, "tokenizer.ggml.tokens")) {
        lz_fail(err, LZ_BAD_FILE, "%s: holds no tokenizer: a folder, a tokenizer.json or a GGUF file is meant",
                LZ_SHOW_TEXT(path));
        return NULL;
    }
    gguf_lists lists = {.tokens = lz_weights_value(w, "tokenizer.ggml.tokens"),
                        .kinds = lz_weights_value(w, "tokenizer.ggml.token_type"),
                        .merges = lz_weights_value(w, "tokenizer.ggml.merges")};
    if (pad && pad->type != LZ_VALUE_TEXT) lz_value_first(pad, &item);
    return lz_tokenizer_from_lists(
        ctx,
        &(lz_tokenizer_lists){
            .path = path, .pad = item.integer, .user = &lists, .token = next_token, .merge = next_merge},
        err);
}
