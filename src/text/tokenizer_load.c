/* tokenizer_load.c: a tokenizer from its files. The same content comes in two forms:
 *
 *     tokenizer.json          everything: "model" (vocabulary and merges), "added_tokens", "normalizer", "pre_tokenizer"
 *     vocab.json, merges.txt  the model alone; added_tokens.json maps further tokens to ids, all else is Qwen's
 *
 * and beside either tokenizer_config.json, which may list added tokens again ("added_tokens_decoder") and names the
 * token for padding. Traps: a merge is "a b" or ["a", "b"]; merges.txt may begin with a "#version" line, but real
 * merges begin with '#' too, so only the first line is ever skipped.
 *
 * Files come from strangers: nothing in them is believed until it is checked. What would change the ids and is not done
 * here (stripping, prefix spaces, other kinds of splitting) is refused, so that a wrong id never comes out silently. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "text/json_lists.h"
#include "text/tokenizer_parts.h"

#define DAMAGED ": the file is damaged, download it again"
#define FILE_LIMIT (256 << 20) /* bytes; the largest tokenizers known are a tenth of that */

/* One file while it is read. */
typedef struct source {
    lz_tokenizer *t;
    char *path;
    lz_mapping *map;
    json_t *json;
    lz_json_range vocabulary, merges; /* of tokenizer.json, as text, instead of in json */
    lz_error *err;                    /* never NULL */
} source;

/* One sentence about the file, and LZ_BAD_FILE. */
#define BAD(s, ...) bad_file(s, __VA_ARGS__)
__attribute__((format(printf, 2, 3))) static lz_status bad_file(const source *s, const char *format, ...) {
    char text[sizeof s->err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lz_fail(s->err, LZ_BAD_FILE, "%s: %s", LZ_SHOW_TEXT(s->path), text);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool open_source(source *s, lz_tokenizer *t, const char *folder, const char *name, lz_error *err) {
    *s = (source){.t = t, .err = err};
    s->path = lz_path_join(t->ctx, folder, name);
    if (!s->path) {
        lz_out_of_memory(err, (int64_t)strlen(folder));
        return false;
    }
    s->map = lz_map_file(t->ctx, s->path, err);
    if (!s->map) return false;
    if (s->map->bytes <= FILE_LIMIT) return true;
    BAD(s, "has %lld bytes, more than any tokenizer", (long long)s->map->bytes);
    return false;
}

static void close_source(source *s) {
    json_decref(s->json);
    lz_mapping_release(s->map);
    if (s->path) lz_host_free(s->t->ctx, s->path);
}

/* The text must hold one JSON object. */
static lz_status parse(source *s, const char *text, size_t bytes) {
    json_error_t why;
    s->json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!s->json && json_error_code(&why) == json_error_out_of_memory) return lz_out_of_memory(s->err, (int64_t)bytes);
    if (!s->json)
        return BAD(s, "is not valid JSON: line %d, column %d: %s", why.line, why.column, LZ_SHOW_TEXT(why.text));
    if (!json_is_object(s->json)) return BAD(s, "does not hold a JSON object" DAMAGED);
    return LZ_OK;
}

static lz_status open_json(source *s, lz_tokenizer *t, const char *folder, const char *name, lz_error *err) {
    return open_source(s, t, folder, name, err) ? parse(s, s->map->data, (size_t)s->map->bytes) : err->status;
}

static bool is_utf8(lz_json_range r) { return lz_utf8_error(r.begin, (size_t)(r.end - r.begin)) < 0; }

/* Opens tokenizer.json, and leaves its two long lists as text if it can. */
static lz_status open_lists(source *s, lz_tokenizer *t, const char *folder, const char *name, lz_error *err) {
    if (!open_source(s, t, folder, name, err)) return err->status;
    const lz_json_range all = {s->map->data, s->map->data + s->map->bytes}, model = lz_json_member(all, "model");
    const lz_json_range none = {NULL, NULL}, vocabulary = model.begin ? lz_json_member(model, "vocab") : none,
                        merges = model.begin ? lz_json_member(model, "merges") : none;
    if (!vocabulary.begin || !merges.begin || !is_utf8(vocabulary) || !is_utf8(merges)) return LZ_BAD_FILE;
    bool first = vocabulary.begin < merges.begin;
    const lz_json_range a = first ? vocabulary : merges, b = first ? merges : vocabulary;
    const lz_json_range parts[] = {{all.begin, a.begin}, {a.end, b.begin}, {b.end, all.end}};
    char *rest = lz_host_alloc(t->ctx, (size_t)(all.end - all.begin)), *to = rest;
    if (!rest) return lz_out_of_memory(err, all.end - all.begin);
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)(parts[i].end - parts[i].begin);
        memcpy(to, parts[i].begin, n);
        to += n;
        if (i < 2) *to++ = '0'; /* a value that nobody asks for */
    }
    lz_status status = parse(s, rest, (size_t)(to - rest));
    lz_host_free(t->ctx, rest);
    s->vocabulary = vocabulary;
    s->merges = merges;
    return status;
}

static bool is_true(json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

static bool has_type(json_t *object, const char *type) {
    const char *found = json_string_value(json_object_get(object, "type"));
    return found && strcmp(found, type) == 0;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

static lz_status check_id(source *s, const char *token, json_int_t id) {
    if (id >= 0 && id < INT32_MAX) return LZ_OK;
    return BAD(s, "token '%s' has the id %lld, but ids are from 0 to %d" DAMAGED, LZ_SHOW_TEXT(token), (long long)id,
               INT32_MAX - 1);
}

static lz_status find_bytes(source *s) {
    int missing = lz_bpe_find_bytes(&s->t->bpe);
    if (missing >= 0) return BAD(s, "the vocabulary lacks the symbol of byte 0x%02x", (unsigned)missing);
    return LZ_OK;
}

/* "token": id, ... */
static lz_status read_vocabulary(source *s, json_t *vocabulary) {
    if (!json_is_object(vocabulary)) return BAD(s, "has no vocabulary" DAMAGED);
    const char *token;
    json_t *id;
    json_object_foreach(vocabulary, token, id) {
        if (!json_is_integer(id)) return BAD(s, "token '%s' has no number for an id" DAMAGED, LZ_SHOW_TEXT(token));
        lz_status status = check_id(s, token, json_integer_value(id));
        if (status != LZ_OK) return status;
        if (!lz_bpe_add_token(&s->t->bpe, token, strlen(token), (int32_t)json_integer_value(id)))
            return lz_out_of_memory(s->err, 0);
    }
    return find_bytes(s);
}

/* The same from the text. */
static lz_status read_vocabulary_text(source *s) {
    lz_json_reader r = {.at = s->vocabulary.begin, .end = s->vocabulary.end};
    int32_t id;
    if (!lz_json_sign(&r, '{')) return LZ_BAD_FILE;
    do {
        if (!lz_json_string(&r) || lz_bpe_find(&s->t->bpe, r.text, r.n, "", 0) >= 0) return LZ_BAD_FILE;
        size_t n = r.n;
        const char *text = r.text;
        if (!lz_json_sign(&r, ':') || !lz_json_id(&r, &id)) return LZ_BAD_FILE;
        if (!lz_bpe_add_token(&s->t->bpe, text, n, id)) return lz_out_of_memory(s->err, (int64_t)n);
    } while (lz_json_sign(&r, ','));
    return lz_json_sign(&r, '}') && lz_json_ends(&r) ? find_bytes(s) : LZ_BAD_FILE;
}

/* The token spelled first, then second, is missing. */
static lz_status lacks_token(source *s, int32_t rank, const char *first, size_t n_first, const char *second,
                             size_t n_second) {
    char text[LZ_SHOWN];
    snprintf(text, sizeof text, "%.*s%.*s", (int)n_first, first, (int)n_second, second);
    return BAD(s, "merge %d needs the token '%s', which the vocabulary lacks" DAMAGED, rank + 1, LZ_SHOW_TEXT(text));
}

static lz_status add_merge(source *s, int32_t rank, const char *left, size_t n_left, const char *right,
                           size_t n_right) {
    const lz_bpe *bpe = &s->t->bpe;
    int32_t a = lz_bpe_find(bpe, left, n_left, "", 0), b = lz_bpe_find(bpe, right, n_right, "", 0);
    int32_t joined = lz_bpe_find(bpe, left, n_left, right, n_right);
    if (a < 0) return lacks_token(s, rank, left, n_left, "", 0);
    if (b < 0) return lacks_token(s, rank, right, n_right, "", 0);
    if (joined < 0) return lacks_token(s, rank, left, n_left, right, n_right);
    return lz_bpe_add_merge(&s->t->bpe, a, b, rank, joined) ? LZ_OK : lz_out_of_memory(s->err, 0);
}

/* "a b": no token holds a space, because the alphabet of bytes has none. */
static lz_status add_merge_line(source *s, int32_t rank, const char *line, size_t n) {
    const char *space = memchr(line, ' ', n);
    size_t n_left = space ? (size_t)(space - line) : 0, n_right = space ? n - n_left - 1 : 0;
    if (n_left == 0 || n_right == 0 || memchr(space + 1, ' ', n_right))
        return BAD(s, "merge %d is not two tokens with a space between them" DAMAGED, rank + 1);
    return add_merge(s, rank, line, n_left, space + 1, n_right);
}

static lz_status read_merges(source *s, json_t *merges) {
    if (!json_is_array(merges)) return BAD(s, "has no list of merges" DAMAGED);
    for (size_t i = 0; i < json_array_size(merges); i++) {
        json_t *merge = json_array_get(merges, i), *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        lz_status status;
        if (json_is_string(merge))
            status = add_merge_line(s, (int32_t)i, json_string_value(merge), json_string_length(merge));
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            status = add_merge(s, (int32_t)i, json_string_value(left), json_string_length(left),
                               json_string_value(right), json_string_length(right));
        else
            status = BAD(s, "merge %d is neither a string nor two of them" DAMAGED, (int)i + 1);
        if (status != LZ_OK) return status;
    }
    return LZ_OK;
}

/* The same from the text. */
static lz_status read_merges_text(source *s) {
    lz_json_reader r = {.at = s->merges.begin, .end = s->merges.end}, left = r;
    if (!lz_json_sign(&r, '[')) return LZ_BAD_FILE;
    int32_t rank = 0;
    do {
        lz_status status;
        if (lz_json_sign(&r, '[')) {
            left = r;
            if (!lz_json_string(&left)) return LZ_BAD_FILE;
            r.at = left.at;
            if (!lz_json_sign(&r, ',') || !lz_json_string(&r) || !lz_json_sign(&r, ']')) return LZ_BAD_FILE;
            status = add_merge(s, rank++, left.text, left.n, r.text, r.n);
        } else {
            if (!lz_json_string(&r)) return LZ_BAD_FILE;
            status = add_merge_line(s, rank++, r.text, r.n);
        }
        if (status != LZ_OK) return status;
    } while (lz_json_sign(&r, ','));
    return lz_json_sign(&r, ']') && lz_json_ends(&r) ? LZ_OK : LZ_BAD_FILE;
}

static lz_status read_merges_txt(source *s) {
    const char *at = s->map->data, *end = at + s->map->bytes;
    if (memchr(at, 0, (size_t)(end - at))) return BAD(s, "is not text" DAMAGED);
    lz_status status = LZ_OK;
    for (int32_t line = 0, rank = 0; at < end && status == LZ_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - at);
        if (n && at[n - 1] == '\r') n--;
        bool version = line == 0 && n >= 8 && memcmp(at, "#version", 8) == 0;
        if (n && !version) status = add_merge_line(s, rank++, at, n);
        at = stop + (stop < end);
    }
    return status;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static bool grow_added(lz_tokenizer *t) {
    if (t->n_added < t->added_capacity) return true;
    size_t capacity = t->added_capacity ? 2 * t->added_capacity : 64;
    lz_added_token *added = lz_host_alloc(t->ctx, capacity * sizeof *added);
    if (!added) return false;
    if (t->n_added) memcpy(added, t->added, t->n_added * sizeof *added);
    lz_host_free(t->ctx, t->added);
    t->added = added;
    t->added_capacity = capacity;
    return true;
}

static lz_status add_token(source *s, const char *text, json_int_t id) {
    lz_tokenizer *t = s->t;
    size_t n = strlen(text);
    if (n == 0) return BAD(s, "the added token %lld is empty" DAMAGED, (long long)id);
    lz_status status = check_id(s, text, id);
    if (status != LZ_OK) return status;
    int32_t known = lz_bpe_find(&t->bpe, text, n, "", 0);
    if (known >= 0 && known != id)
        return BAD(s, "the added token '%s' has the id %lld, but also %d", LZ_SHOW_TEXT(text), (long long)id, known);
    char *copy = lz_bump_alloc(&t->bpe.text, n + 1);
    if (!copy || !grow_added(t)) return lz_out_of_memory(s->err, (int64_t)n);
    memcpy(copy, text, n + 1);
    t->added[t->n_added++] = (lz_added_token){copy, n, (int32_t)id};
    return known >= 0 || lz_bpe_add_token(&t->bpe, text, n, (int32_t)id) ? LZ_OK : lz_out_of_memory(s->err, (int64_t)n);
}

/* {"content": "<|im_start|>", "special": true, "lstrip": false, ...}. Special or not, all are matched; "normalized"
 * would match some after step 2 instead of before, which is the same for tokens that no normal form changes. */
static lz_status add_described_token(source *s, json_t *token, json_int_t id) {
    const char *text = json_string_value(json_object_get(token, "content"));
    if (!text) return BAD(s, "the added token %lld has no content" DAMAGED, (long long)id);
    static const char *const refused[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is_true(token, refused[i]))
            return BAD(s, "the added token '%s' wants %s, which is not supported", LZ_SHOW_TEXT(text), refused[i]);
    return add_token(s, text, id);
}

static lz_status read_added_tokens(source *s, json_t *tokens) {
    if (tokens && !json_is_array(tokens)) return BAD(s, "added_tokens is not a list" DAMAGED);
    lz_status status = LZ_OK;
    for (size_t i = 0; i < json_array_size(tokens) && status == LZ_OK; i++) {
        json_t *token = json_array_get(tokens, i), *id = json_object_get(token, "id");
        status = json_is_integer(id) ? add_described_token(s, token, json_integer_value(id))
                                     : BAD(s, "the added token at place %d has no id" DAMAGED, (int)i + 1);
    }
    return status;
}

/* The same in tokenizer_config.json: {"151643": {"content": ...}, ...} */
static lz_status read_added_decoder(source *s, json_t *tokens) {
    if (tokens && !json_is_object(tokens)) return BAD(s, "added_tokens_decoder is not an object" DAMAGED);
    lz_status status = LZ_OK;
    const char *key;
    json_t *token;
    json_object_foreach(tokens, key, token) {
        char *end;
        long long id = strtoll(key, &end, 10); /* what does not fit becomes LLONG_MAX, which check_id refuses */
        if (end == key || *end) status = BAD(s, "added_tokens_decoder has '%s' for an id" DAMAGED, LZ_SHOW_TEXT(key));
        if (status == LZ_OK) status = add_described_token(s, token, id);
        if (status != LZ_OK) break;
    }
    return status;
}

/* And in added_tokens.json: {"<|im_start|>": 151644, ...} */
static lz_status read_added_json(source *s) {
    lz_status status = LZ_OK;
    const char *text;
    json_t *id;
    json_object_foreach(s->json, text, id) {
        status = json_is_integer(id) ? add_token(s, text, json_integer_value(id))
                                     : BAD(s, "token '%s' has no number for an id" DAMAGED, LZ_SHOW_TEXT(text));
        if (status != LZ_OK) break;
    }
    return status;
}

/* ---- the settings of tokenizer.json ------------------------------------------------------------------------------ */

static lz_status check_model(source *s, json_t *model) {
    if (!json_is_object(model)) return BAD(s, "has no model" DAMAGED);
    json_t *type = json_object_get(model, "type");
    if (type && !has_type(model, "BPE")) return BAD(s, "the model is not a BPE, the only kind supported");
    static const char *const refused[] = {
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *value = json_object_get(model, refused[i]);
        bool unset = !value || json_is_null(value) || json_is_false(value) ||
                     (json_is_string(value) && json_string_length(value) == 0);
        if (!unset) return BAD(s, "the model sets %s, which is not supported", refused[i]);
    }
    return LZ_OK;
}

static lz_status read_normalizer(source *s, json_t *normalizer) {
    s->t->nfc = normalizer && !json_is_null(normalizer);
    if (s->t->nfc && !has_type(normalizer, "NFC")) return BAD(s, "the normalizer is not NFC, the only kind supported");
    return LZ_OK;
}

/* A Sequence of Split by a regular expression, each match a word and what is between them too, and ByteLevel, which
 * adds nothing. Where nothing is said, Qwen's pattern. */
static lz_status read_pre_tokenizer(source *s, json_t *pre, const char **pattern) {
    *pattern = LZ_QWEN_PATTERN;
    if (!pre || json_is_null(pre)) return LZ_OK;
    json_t *steps = json_object_get(pre, "pretokenizers");
    json_t *split = json_array_get(steps, 0), *bytes = json_array_get(steps, 1);
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    const char *regex = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    bool known = has_type(pre, "Sequence") && json_array_size(steps) == 2 && has_type(split, "Split") &&
                 has_type(bytes, "ByteLevel") && regex && behavior && strcmp(behavior, "Isolated") == 0 &&
                 !is_true(split, "invert") && json_is_false(json_object_get(bytes, "use_regex")) &&
                 json_is_false(json_object_get(bytes, "add_prefix_space"));
    if (!known) return BAD(s, "the pre_tokenizer is not Split by a Regex and then ByteLevel, the only kind supported");
    *pattern = regex;
    return LZ_OK;
}

/* Leaves the ids of one text as they are: ByteLevel, and a template that is the text alone, which transformers 5
 * writes. */
static bool adds_nothing(json_t *post) {
    json_t *single = json_object_get(post, "single");
    if (has_type(post, "TemplateProcessing"))
        return json_array_size(single) == 1 && json_is_object(json_object_get(json_array_get(single, 0), "Sequence"));
    return has_type(post, "ByteLevel");
}

static lz_status check_post_processor(source *s, json_t *post) {
    if (!post || json_is_null(post) || adds_nothing(post)) return LZ_OK;
    json_t *steps = json_object_get(post, "processors");
    bool fine = has_type(post, "Sequence") && json_is_array(steps);
    for (size_t i = 0; fine && i < json_array_size(steps); i++) fine = adds_nothing(json_array_get(steps, i));
    if (fine) return LZ_OK;
    return BAD(s, "the post_processor is neither ByteLevel nor a template without tokens of its own, the only kinds "
                  "supported");
}

/* ---- the two forms ----------------------------------------------------------------------------------------------- */

/* lists: leaves the long lists as text; then LZ_BAD_FILE may also mean that they need a full parser. */
static lz_status load_tokenizer_json(lz_tokenizer *t, const char *folder, const char *name, bool lists, lz_error *err) {
    source s;
    lz_status status = (lists ? open_lists : open_json)(&s, t, folder, name, err);
    json_t *model = json_object_get(s.json, "model");
    const char *pattern = NULL;
    if (status == LZ_OK) status = check_model(&s, model);
    if (status == LZ_OK) status = read_normalizer(&s, json_object_get(s.json, "normalizer"));
    if (status == LZ_OK) status = read_pre_tokenizer(&s, json_object_get(s.json, "pre_tokenizer"), &pattern);
    if (status == LZ_OK) status = check_post_processor(&s, json_object_get(s.json, "post_processor"));
    if (status == LZ_OK)
        status = lists ? read_vocabulary_text(&s) : read_vocabulary(&s, json_object_get(model, "vocab"));
    if (status == LZ_OK) status = lists ? read_merges_text(&s) : read_merges(&s, json_object_get(model, "merges"));
    if (status == LZ_OK) status = read_added_tokens(&s, json_object_get(s.json, "added_tokens"));
    if (status == LZ_OK) {
        t->splitter = lz_splitter_new(t->ctx, pattern, s.path, err);
        if (!t->splitter) status = err->status;
    }
    close_source(&s);
    return status;
}

static lz_status load_vocab_json(lz_tokenizer *t, const char *folder, bool lists, lz_error *err) {
    source s;
    lz_status status = lists ? open_source(&s, t, folder, "vocab.json", err) ? LZ_OK : err->status
                             : open_json(&s, t, folder, "vocab.json", err);
    if (status == LZ_NOT_FOUND)
        lz_fail(err, status, "%s: has neither tokenizer.json nor vocab.json", LZ_SHOW_TEXT(folder));
    if (status == LZ_OK && lists) {
        s.vocabulary = (lz_json_range){s.map->data, s.map->data + s.map->bytes};
        status = is_utf8(s.vocabulary) ? read_vocabulary_text(&s) : LZ_BAD_FILE;
    } else if (status == LZ_OK) {
        status = read_vocabulary(&s, s.json);
    }
    close_source(&s);
    return status;
}

static lz_status load_merges_txt(lz_tokenizer *t, const char *folder, lz_error *err) {
    source s;
    lz_status status = open_source(&s, t, folder, "merges.txt", err) ? read_merges_txt(&s) : err->status;
    close_source(&s);
    return status;
}

static lz_status load_added_json(lz_tokenizer *t, const char *folder, lz_error *err) {
    source s;
    lz_status status = open_json(&s, t, folder, "added_tokens.json", err);
    if (status == LZ_OK) status = read_added_json(&s);
    close_source(&s);
    return status == LZ_NOT_FOUND ? LZ_OK : status;
}

static lz_status load_separate_files(lz_tokenizer *t, const char *folder, bool lists, lz_error *err) {
    lz_status status = load_vocab_json(t, folder, lists, err);
    if (status == LZ_OK) status = load_merges_txt(t, folder, err);
    if (status == LZ_OK) status = load_added_json(t, folder, err);
    if (status != LZ_OK) return status;
    t->nfc = true;
    t->splitter = lz_splitter_new(t->ctx, LZ_QWEN_PATTERN, folder, err);
    return t->splitter ? LZ_OK : err->status;
}

/* ---- what both have beside them ---------------------------------------------------------------------------------- */

/* "pad_token" is a string, or an object with "content", or null. */
static lz_status read_pad_token(source *s) {
    json_t *pad = json_object_get(s->json, "pad_token");
    const char *text = json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad);
    if (!text && pad && !json_is_null(pad)) return BAD(s, "pad_token is not a string" DAMAGED);
    if (!text) return LZ_OK;
    s->t->pad = lz_tokenizer_id(s->t, text);
    return s->t->pad >= 0 ? LZ_OK : BAD(s, "pad_token is '%s', which is no token", LZ_SHOW_TEXT(text));
}

/* What would change the ids and is not done here. Other settings say how ids become text, or name tokens. */
static lz_status check_settings(source *s) {
    static const char *const refused[] = {"add_prefix_space", "add_bos_token", "add_eos_token", "split_special_tokens"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (is_true(s->json, refused[i])) return BAD(s, "%s is true, which is not supported", refused[i]);
    const char *padding = json_string_value(json_object_get(s->json, "padding_side")),
               *cut = json_string_value(json_object_get(s->json, "truncation_side"));
    if (cut && strcmp(cut, "right") != 0) return BAD(s, "truncation_side is not 'right', which is not supported");
    s->t->pads_left = padding && strcmp(padding, "right") != 0;
    return LZ_OK;
}

static lz_status load_config(lz_tokenizer *t, const char *folder, lz_error *err) {
    source s;
    lz_status status = open_json(&s, t, folder, "tokenizer_config.json", err);
    if (status == LZ_OK) status = read_added_decoder(&s, json_object_get(s.json, "added_tokens_decoder"));
    if (status == LZ_OK) status = read_pad_token(&s);
    if (status == LZ_OK) status = check_settings(&s);
    close_source(&s);
    return status == LZ_NOT_FOUND ? LZ_OK : status;
}

/* ---- for other forms (tokenizer_lists.c) ------------------------------------------------------------------------- */

lz_status lz_tokenizer_add(lz_tokenizer *t, const char *path, const char *text, int64_t id, lz_error *err) {
    return add_token(&(source){.t = t, .path = (char *)path, .err = err}, text, id);
}

lz_status lz_tokenizer_add_merge(lz_tokenizer *t, const char *path, int32_t rank, const char *line, size_t n,
                                 lz_error *err) {
    return add_merge_line(&(source){.t = t, .path = (char *)path, .err = err}, rank, line, n);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* name: of a tokenizer.json. lists: as in load_tokenizer_json. */
static lz_status load_folder(lz_tokenizer *t, const char *folder, const char *name, bool lists, lz_error *err) {
    lz_status status = load_tokenizer_json(t, folder, name, lists, err);
    if (status == LZ_NOT_FOUND) status = load_separate_files(t, folder, lists, err);
    return status == LZ_OK ? load_config(t, folder, err) : status;
}

static lz_tokenizer *open_folder(lz_context *ctx, const char *folder, const char *name, lz_error *err) {
    for (int lists = 1;; lists--) {
        lz_tokenizer *t = lz_tokenizer_begin(ctx, err);
        if (!t) return NULL;
        lz_error why = {.status = LZ_OK}; /* a file that need not be there leaves its words in it */
        lz_status status = load_folder(t, folder, name, lists, &why);
        if (status == LZ_OK) why.status = LZ_OK;
        if (status != LZ_BAD_FILE || !lists) return lz_tokenizer_end(t, folder, &why, err);
        lz_tokenizer_free(t); /* a full parser tells what is wrong, if anything is */
    }
}

static bool is_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

lz_tokenizer *lz_tokenizer_open(lz_context *ctx, const char *folder, lz_error *err) {
    if (!ctx || !folder) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_tokenizer_open: an argument is NULL");
        return NULL;
    }
    char *inside = is_file(folder) ? lz_host_copy(ctx, folder) : lz_path_join(ctx, folder, "tokenizer");
    if (!inside) {
        lz_out_of_memory(err, LZ_SHOWN);
        return NULL;
    }
    lz_tokenizer *t;
    char *slash = strrchr(inside, '/');
    if (is_file(folder)) { /* a tokenizer.json */
        if (slash) *slash = 0;
        t = open_folder(ctx, slash ? *inside ? inside : "/" : ".", slash ? slash + 1 : inside, err);
    } else /* a model folder keeps it one level down */
        t = open_folder(ctx, access(inside, F_OK) == 0 ? inside : folder, "tokenizer.json", err);
    lz_host_free(ctx, inside);
    return t;
}
