/* test_tokenizer.c: token ids against those of Hugging Face tokenizers, and invalid files. The small tokenizer in
 * tests/data/tokenizer and its golden ids come from tools/oracle/tokenizer.py. tests/data/qwen3-tokenizer has the part
 * of Qwen3's tokenizer that more golden ids need. The complete one is tested too if it exists: in $LZ_SHARED, or in the
 * folder 'shared' of the sources. */
#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"
#include "folder.h"
#include "text/json_lists.h"
#include "text/tokenizer.h"

/* ---- golden files ------------------------------------------------------------------------------------------------ */

static bool same_ids(const int64_t *ids, int64_t n, json_t *want) {
    bool same = n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < n; i++) same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    return same;
}

/* As FLUX.2 wants them: cut at the length of the golden ids, then filled up with the pad token. */
static int64_t pad_to(const lz_tokenizer *t, int64_t *padded, const int64_t *ids, int64_t n, int64_t length) {
    for (int64_t i = 0; i < length; i++) padded[i] = i < n ? ids[i] : lz_tokenizer_pad(t);
    return length;
}

static void check_case(lz_context *ctx, const lz_tokenizer *t, json_t *line, int number) {
    json_t *text = json_object_get(line, "text"), *want = json_object_get(line, "ids");
    json_t *before = json_object_get(line, "n_untruncated"); /* only in padded cases */
    lz_error err;
    int64_t *ids, n, padded[512];
    if (!CHECK_OK(lz_tokenize(t, json_string_value(text), json_string_length(text), &ids, &n, &err), &err)) return;
    if (before) {
        CHECK_I64(n, json_integer_value(before));
        CHECK_I64(json_array_size(want), 512);
        CHECK(same_ids(padded, pad_to(t, padded, ids, n, 512), want), "line %d", number);
    } else
        CHECK(same_ids(ids, n, want), "line %d: %.300s", number, json_string_value(text));
    lz_host_free(ctx, ids);
}

/* Returns the number of cases. */
static int check_golden(lz_context *ctx, const lz_tokenizer *t, const char *path) {
    FILE *file = fopen(path, "r");
    if (!CHECK(file, "%s", path)) return 0;
    int number = 0;
    json_t *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        check_case(ctx, t, line, ++number);
        json_decref(line);
    }
    fclose(file);
    return number;
}

static void small_golden(void) {
    lz_context *ctx = lz_open(.threads = 1);
    const char *const forms[] = {"tokenizer", "tokenizer/separate"};
    for (int form = 0; form < 2; form++) {
        lz_error err = {.status = LZ_OK};
        lz_tokenizer *t = lz_tokenizer_open(ctx, test_data(forms[form]), &err);
        if (!CHECK(t, "%s", err.text)) continue;
        CHECK(check_golden(ctx, t, test_data("tokenizer/golden.jsonl")) > 150);
        CHECK_I64(lz_tokenizer_id(t, "!"), 0);
        CHECK(lz_tokenizer_id(t, "\u0120the") > 255);
        CHECK_I64(lz_tokenizer_id(t, "<|im_end|>"), lz_tokenizer_id(t, "<|endoftext|>") + 2);
        CHECK_I64(lz_tokenizer_id(t, "no such token"), -1);
        CHECK_I64(lz_tokenizer_id(t, ""), -1);
        CHECK_I64(lz_tokenizer_pad(t), lz_tokenizer_id(t, form == 0 ? "<|endoftext|>" : "<|im_end|>"));
        lz_tokenizer_free(t);
    }
    lz_close(ctx);
}

/* ---- the real one ------------------------------------------------------------------------------------------------ */

static char qwen_folder[900];

static const char *in_qwen(const char *name) {
    static char ring[4][1024];
    static int next;
    char *path = ring[next++ & 3];
    snprintf(path, sizeof ring[0], "%s/%s", qwen_folder, name);
    return path;
}

enum { READ_LIMIT = 4 << 20 };

static char *read_whole(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) abort();
    char *data = malloc(READ_LIMIT);
    *n = fread(data, 1, READ_LIMIT - 1, f);
    data[*n] = 0;
    fclose(f);
    return data;
}

static void write_bytes(const char *name, const void *data, size_t bytes) {
    FILE *f = fopen(in_folder(name), "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) abort();
}

/* Copies a file of Qwen3 into the folder; as Qwen-Image has it when asked, that is without the tokens after 151664. */
static void copy_qwen(const char *name, bool for_images) {
    json_t *json = json_load_file(in_qwen(name), 0, NULL), *token;
    json_t *list = json_object_get(json, "added_tokens"), *decoder = json_object_get(json, "added_tokens_decoder");
    for (size_t i = json_array_size(list); for_images && i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(list, i), "id")) > 151664) json_array_remove(list, i);
    const char *id;
    void *next;
    json_object_foreach_safe(decoder, next, id, token) if (for_images && atoi(id) > 151664)
        json_object_del(decoder, id);
    CHECK(json && json_dump_file(json, in_folder(name), JSON_COMPACT) == 0);
    json_decref(json);
}

static lz_tokenizer *open_timed(lz_context *ctx, const char *what) {
    lz_error err = {.status = LZ_OK};
    double start = test_seconds();
    lz_tokenizer *t = lz_tokenizer_open(ctx, folder, &err);
    printf("    %s: loaded in %.2f s\n", what, test_seconds() - start);
    CHECK(t, "%s", err.text);
    return t;
}

static void check_qwen(lz_context *ctx, const char *what) {
    copy_qwen("tokenizer_config.json", false);
    lz_tokenizer *t = open_timed(ctx, what);
    CHECK_I64(check_golden(ctx, t, in_qwen("golden.jsonl")), 564);
    CHECK_I64(check_golden(ctx, t, in_qwen("template.jsonl")), 20);
    CHECK_I64(lz_tokenizer_pad(t), 151643);
    CHECK_I64(lz_tokenizer_id(t, "</think>"), 151668);
    CHECK_I64(lz_tokenizer_id(t, "assistant"), 77091);
    lz_tokenizer_free(t);
}

static void check_qwen_image(lz_context *ctx, const char *what) {
    copy_qwen("tokenizer_config.json", true);
    lz_tokenizer *t = open_timed(ctx, what);
    CHECK_I64(check_golden(ctx, t, in_qwen("template_qwen_image.jsonl")), 19);
    CHECK_I64(lz_tokenizer_id(t, "</think>"), -1);
    lz_tokenizer_free(t);
}

static void check_forms(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    copy_qwen("tokenizer.json", false);
    check_qwen(ctx, "tokenizer.json");
    copy_qwen("tokenizer.json", true);
    check_qwen_image(ctx, "tokenizer.json, Qwen-Image");
    empty_folder();
    copy_qwen("vocab.json", false);
    size_t n;
    char *merges = read_whole(in_qwen("merges.txt"), &n);
    write_bytes("merges.txt", merges, n);
    free(merges);
    check_qwen(ctx, "vocab.json and merges.txt");
    check_qwen_image(ctx, "vocab.json and merges.txt, Qwen-Image");
    leave_folder();
    lz_close(ctx);
}

static void qwen_golden(void) {
    snprintf(qwen_folder, sizeof qwen_folder, "%s", LZ_SOURCE_DIR "/tests/data/qwen3-tokenizer");
    check_forms();
}

static void whole_qwen_golden(void) {
    const char *shared = getenv("LZ_SHARED");
    snprintf(qwen_folder, sizeof qwen_folder, "%s/data/qwen3-tokenizer", shared ? shared : LZ_SOURCE_DIR "/../shared");
    if (access(in_qwen("tokenizer.json"), R_OK) == 0)
        check_forms();
    else
        printf("    the whole vocabulary is not here: its part in tests/data was tested\n");
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void bad_text(void) {
    static const struct {
        const char *text;
        int at;
    } cases[] = {{"\xff", 0},
                 {"abc\x80", 3},
                 {"a\xc3", 1},
                 {"\xc0\x80", 0},
                 {"ok\xed\xa0\x80", 2},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xc3\xa9\xe2\x82", 2},
                 {"x\xe2\x28\xa1", 1},
                 {"<think>\xfe", 7}};
    lz_context *ctx = lz_open(.threads = 1);
    lz_tokenizer *t = lz_tokenizer_open(ctx, test_data("tokenizer"), NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_error err = {.status = LZ_OK};
        int64_t *ids, n;
        char want[80];
        snprintf(want, sizeof want, "the prompt is not valid UTF-8 at byte %d", cases[i].at);
        CHECK_STATUS(lz_tokenize(t, cases[i].text, strlen(cases[i].text), &ids, &n, &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, want);
        CHECK(!ids && n == 0);
    }
    lz_error err;
    int64_t *ids, n;
    CHECK_STATUS(lz_tokenize(NULL, "", 0, &ids, &n, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_tokenize(t, NULL, 1, &ids, &n, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_tokenize(t, "", (size_t)1 << 40, &ids, &n, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_OK(lz_tokenize(t, NULL, 0, &ids, &n, &err), &err);
    CHECK(ids && n == 0);
    lz_host_free(ctx, ids);
    lz_tokenizer_free(t);
    lz_close(ctx);
}

/* Words of 100 KB and more: each of these is seconds or minutes of work for an encoder that looks through the word
 * again after every step, or orders marks by insertion. */
static void long_words(void) {
    static const char *const pieces[] = {
        "the",          "x", " ", "\n",           "!",       "\xcc\xa3\xcc\x81" /* marks, to be reordered */,
        "\xe4\xb8\x80", "<", "7", "\xea\xb0\x80", "\xcc\x81"};
    size_t bytes = 200000;
    char *text = malloc(bytes);
    lz_context *ctx = lz_open(.threads = 1);
    lz_tokenizer *t = lz_tokenizer_open(ctx, test_data("tokenizer"), NULL);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t piece = strlen(pieces[i]), length = bytes / piece * piece;
        for (size_t at = 0; at < length; at += piece) memcpy(text + at, pieces[i], piece);
        lz_error err;
        int64_t *ids, n;
        double start = test_seconds();
        if (!CHECK_OK(lz_tokenize(t, text, length, &ids, &n, &err), &err)) continue;
        CHECK(test_seconds() - start < 5.0, "%s took %.1f s", pieces[i], test_seconds() - start);
        CHECK(n > 0 && n <= (int64_t)length);
        lz_host_free(ctx, ids);
    }
    lz_tokenizer_free(t);
    lz_close(ctx);
    free(text);
}

typedef struct worker {
    lz_context *ctx;
    const lz_tokenizer *t;
    const char *golden;
    pthread_t thread;
} worker;

static void *work(void *argument) {
    worker *w = argument;
    for (int i = 0; i < 5; i++) check_golden(w->ctx, w->t, w->golden);
    return NULL;
}

static void threads(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_tokenizer *t = lz_tokenizer_open(ctx, test_data("tokenizer"), NULL);
    const char *golden = test_data("tokenizer/golden.jsonl");
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.ctx = ctx, .t = t, .golden = golden};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) abort();
    }
    for (int i = 0; i < 4; i++) pthread_join(workers[i].thread, NULL);
    lz_tokenizer_free(t);
    lz_close(ctx);
}

/* ---- files nobody should have written ---------------------------------------------------------------------------- */

/* The file, with the first occurrence of from replaced. */
static void write_changed(const char *name, const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (!CHECK(at, "'%s' is not in %s", from, name)) return;
    char *changed = malloc(strlen(text) + strlen(to) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_bytes(name, changed, strlen(changed));
    free(changed);
}

static void expect(lz_context *ctx, lz_status status, const char *file, const char *part) {
    lz_error err = {.status = LZ_OK};
    lz_tokenizer *t = lz_tokenizer_open(ctx, folder, &err);
    CHECK(!t);
    CHECK_STATUS(err.status, status, &err);
    CHECK_TEXT(err.text, file);
    CHECK_TEXT(err.text, part);
    lz_tokenizer_free(t);
}

typedef struct change {
    const char *from, *to, *says;
} change;

static const change json_changes[] = {
    {"{", "", "is not valid JSON"},
    {"\"model\"", "\"muddle\"", "has no model"},
    {"\"BPE\"", "\"WordPiece\"", "is not a BPE"},
    {"\"BPE\"", "7", "is not a BPE"},
    {"\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback"},
    {"\"dropout\":null", "\"dropout\":0.1", "dropout"},
    {"\"NFC\"", "\"NFKC\"", "normalizer"},
    {"\"normalizer\":{\"type\":\"NFC\"}", "\"normalizer\":3", "normalizer"},
    {"\"Isolated\"", "\"Removed\"", "pre_tokenizer"},
    {"\"use_regex\":false", "\"use_regex\":true", "pre_tokenizer"},
    {"\"pretokenizers\":[", "\"pretokenizers\":[{\"type\":\"Digits\"},", "pre_tokenizer"},
    {"(?i:", "(?i:(", "the pattern that splits words cannot be used"},
    {"(?i:", "\\\\C(?i:", "the pattern that splits words cannot be used"},
    {"\"post_processor\":{\"type\":\"ByteLevel\"", "\"post_processor\":{\"type\":\"TemplateProcessing\"",
     "post_processor"},
    {"\"post_processor\":{",
     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|endoftext|>\"}},"
     "{\"Sequence\":{\"id\":\"A\"}}]},\"old\":{",
     "post_processor"},
    {"\"post_processor\":{",
     "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"BertProcessing\"}]"
     "},"
     "\"old\":{",
     "post_processor"},
    {"\"!\":0", "\"!\":-1", "has the id -1"},
    {"\"!\":0", "\"!\":2147483648", "has the id 2147483648"},
    {"\"!\":0", "\"!\":99999999999999999999", "is not valid JSON"},
    {"\"!\":0", "\"!\":\"0\"", "has no number for an id"},
    {"\"!\":0", "\"!\":1", "same id, 1"},
    {"\"!\":0", "\"!\":0,\"!\":0", "duplicate"},
    {"\"!\":0,", "", "lacks the symbol of byte 0x21"},
    {"\"\u0120\":220", "\"unknown\":220", "lacks the symbol of byte 0x20"},
    {"\"vocab\":{", "\"vocab\":[],\"old\":{", "has no vocabulary"},
    {"\"merges\":[", "\"merges\":{},\"old\":[", "has no list of merges"},
    {"\"merges\":[[\"", "\"merges\":[\"a b c\",[\"", "merge 1 is not two tokens"},
    {"\"merges\":[[\"", "\"merges\":[\"a\",[\"", "merge 1 is not two tokens"},
    {"\"merges\":[[\"", "\"merges\":[\" a\",[\"", "merge 1 is not two tokens"},
    {"\"merges\":[[\"", "\"merges\":[[\"a\"],[\"", "merge 1 is neither"},
    {"\"merges\":[[\"", "\"merges\":[[\"a\",1],[\"", "merge 1 is neither"},
    {"\"merges\":[[\"", "\"merges\":[null,[\"", "merge 1 is neither"},
    {"\"merges\":[[\"", "\"merges\":[[\"zzzz\",\"a\"],[\"", "needs the token 'zzzz'"},
    {"\"merges\":[[\"", "\"merges\":[[\"a\",\"zzzz\"],[\"", "needs the token 'zzzz'"},
    {"\"merges\":[[\"", "\"merges\":[[\"q\",\"z\"],[\"", "needs the token 'qz'"},
    {"\"added_tokens\":[", "\"added_tokens\":7,\"old\":[", "added_tokens is not a list"},
    {"\"id\":838", "\"id\":\"838\"", "has no id"},
    {"\"id\":838", "\"id\":-5", "has the id -5"},
    {"\"id\":838", "\"id\":3", "same id, 3"},
    {"\"content\":\"<|endoftext|>\"", "\"content\":\"\"", "is empty"},
    {"\"content\":\"<|endoftext|>\"", "\"content\":\"the\"", "but also"},
    {"\"content\":\"<|endoftext|>\"", "\"content\":null", "has no content"},
    {"\"lstrip\":false", "\"lstrip\":true", "wants lstrip"},
};

static void hostile_json(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    size_t n;
    char *text = read_whole(test_data("tokenizer/tokenizer.json"), &n);
    for (size_t i = 0; i < sizeof json_changes / sizeof *json_changes; i++) {
        write_changed("tokenizer.json", text, json_changes[i].from, json_changes[i].to);
        expect(ctx, LZ_BAD_FILE, folder, json_changes[i].says);
    }
    for (size_t cut = 0; cut + 2 < n; cut += 97) { /* the last bytes are "}\n" */
        write_bytes("tokenizer.json", text, cut);
        expect(ctx, LZ_BAD_FILE, "tokenizer.json", "is not valid JSON");
    }
    write_bytes("tokenizer.json", "[1]", 3);
    expect(ctx, LZ_BAD_FILE, "tokenizer.json", "does not hold a JSON object");
    write_bytes("tokenizer.json", "\0\0\0", 3);
    expect(ctx, LZ_BAD_FILE, "tokenizer.json", "is not valid JSON");
    CHECK(truncate(in_folder("tokenizer.json"), (off_t)1 << 40) == 0); /* with holes: no disk is used */
    expect(ctx, LZ_BAD_FILE, "tokenizer.json", "more than any tokenizer");
    empty_folder();
    expect(ctx, LZ_NOT_FOUND, folder, "neither tokenizer.json nor vocab.json");
    free(text);
    leave_folder();
    lz_close(ctx);
}

static void hostile_separate_files(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    size_t n;
    char *vocabulary = read_whole(test_data("tokenizer/separate/vocab.json"), &n);
    char *merges = read_whole(test_data("tokenizer/separate/merges.txt"), &n);
    write_bytes("vocab.json", vocabulary, strlen(vocabulary));
    expect(ctx, LZ_NOT_FOUND, "merges.txt", "cannot be opened");
    write_bytes("merges.txt", "#version: 0.2\nzzzz a\n", 21);
    expect(ctx, LZ_BAD_FILE, "merges.txt", "merge 1 needs the token 'zzzz'");
    write_bytes("merges.txt", "i n\n#version: 0.2\n", 18);
    expect(ctx, LZ_BAD_FILE, "merges.txt", "merge 2 needs the token '#version:'");
    write_bytes("merges.txt", "i n\nin\n", 7);
    expect(ctx, LZ_BAD_FILE, "merges.txt", "merge 2 is not two tokens");
    write_bytes("merges.txt", "i n\0\n", 5);
    expect(ctx, LZ_BAD_FILE, "merges.txt", "is not text");

    write_bytes("merges.txt", merges, strlen(merges));
    static const change config_changes[] = {
        {"", "{\"pad_token\": \"nobody\"}", "pad_token is 'nobody'"},
        {"", "{\"pad_token\": 7}", "pad_token is not a string"},
        {"", "{\"pad_token\": {}}", "pad_token is not a string"},
        {"", "{\"added_tokens_decoder\": []}", "is not an object"},
        {"", "{\"added_tokens_decoder\": {\"x1\": {\"content\": \"<a>\"}}}", "'x1' for an id"},
        {"", "{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"<a>\"}}}", "has the id"},
        {"", "{\"added_tokens_decoder\": {\"900\": {\"content\": \"<a>\", \"single_word\": true}}}",
         "wants single_word"},
        {"", "{\"added_tokens_decoder\": {\"900\": 1}}", "has no content"},
        {"", "{\"add_prefix_space\": true}", "add_prefix_space"},
        {"", "{\"add_bos_token\": true}", "add_bos_token"},
        {"", "{\"truncation_side\": \"left\"}", "truncation_side"},
        {"", "{", "is not valid JSON"},
    };
    for (size_t i = 0; i < sizeof config_changes / sizeof *config_changes; i++) {
        write_bytes("tokenizer_config.json", config_changes[i].to, strlen(config_changes[i].to));
        expect(ctx, LZ_BAD_FILE, "tokenizer_config.json", config_changes[i].says);
    }
    unlink(in_folder("tokenizer_config.json"));
    write_bytes("added_tokens.json", "{\"<a>\": null}", 13);
    expect(ctx, LZ_BAD_FILE, "added_tokens.json", "has no number for an id");
    write_bytes("added_tokens.json", "{\"<a>\": 0}", 10);
    expect(ctx, LZ_BAD_FILE, folder, "have the same id, 0");
    free(vocabulary);
    free(merges);
    leave_folder();
    lz_close(ctx);
}

/* The variants that are right: no normalizer, merges as strings, merges.txt without its first line and with \r\n. */
static void other_spellings(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    size_t size;
    char *text = read_whole(test_data("tokenizer/tokenizer.json"), &size);
    write_changed("tokenizer.json", text, "\"normalizer\":{\"type\":\"NFC\"}", "\"normalizer\":null");
    lz_error err = {.status = LZ_OK};
    lz_tokenizer *t = lz_tokenizer_open(ctx, folder, &err);
    int64_t *composed, *apart, n_composed, n_apart;
    if (CHECK(t, "%s", err.text)) {
        CHECK_OK(lz_tokenize(t, "\u00e9", 2, &composed, &n_composed, &err), &err);
        CHECK_OK(lz_tokenize(t, "e\u0301", 3, &apart, &n_apart, &err), &err);
        CHECK(n_apart != n_composed || composed[0] != apart[0]);
        CHECK_I64(lz_tokenizer_pad(t), 838); /* there is no tokenizer_config.json here */
        lz_host_free(ctx, composed);
        lz_host_free(ctx, apart);
    }
    lz_tokenizer_free(t);

    /* As a tokenizer that was loaded and saved by transformers 5 has it. */
    static const char *const identities[] = {
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
        "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
        "\"special_tokens\":{}},\"old\":{",
        "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}]},\"old\":{"};
    for (size_t i = 0; i < 2; i++) {
        write_changed("tokenizer.json", text, "\"post_processor\":{", identities[i]);
        t = lz_tokenizer_open(ctx, folder, &err);
        if (CHECK(t, "trap 2: %s", err.text)) check_golden(ctx, t, test_data("tokenizer/golden.jsonl"));
        lz_tokenizer_free(t);
    }
    unlink(in_folder("tokenizer.json"));

    char *vocabulary = read_whole(test_data("tokenizer/separate/vocab.json"), &size);
    write_bytes("vocab.json", vocabulary, size);
    char *merges = read_whole(test_data("tokenizer/separate/merges.txt"), &size), *crlf = malloc(2 * size), *to = crlf;
    for (const char *c = strchr(merges, '\n') + 1; *c; c++) {
        if (*c == '\n') *to++ = '\r';
        *to++ = *c;
    }
    write_bytes("merges.txt", crlf, (size_t)(to - crlf));
    char *config = read_whole(test_data("tokenizer/separate/tokenizer_config.json"), &size);
    write_bytes("tokenizer_config.json", config, size);
    t = lz_tokenizer_open(ctx, folder, &err);
    if (CHECK(t, "%s", err.text)) check_golden(ctx, t, test_data("tokenizer/golden.jsonl"));
    lz_tokenizer_free(t);
    free(config);
    free(crlf);
    free(merges);
    free(vocabulary);
    free(text);
    leave_folder();
    lz_close(ctx);
}

/* ---- the long lists, which are read without a value in memory for each entry --------------------------------------- */

static lz_json_range range_of(const char *text) { return (lz_json_range){text, text + strlen(text)}; }

static void members(void) {
    static const struct {
        const char *json, *value; /* of "b"; NULL: none */
    } cases[] = {
        {"{\"b\": 1}", "1"},
        {" {\"a\" : [\"}\", {\"b\": 2}], \"b\":{\"c\":[1,{}]} }", "{\"c\":[1,{}]}"},
        {"{\"a\":\"\\\"\\\\\",\n\"b\" :\t\"x\\\"]\"\r}", "\"x\\\"]\""},
        {"{\"b\":[]}", "[]"},
        {"{\"b\":true,\"b\":2}", "true"}, /* the first */
        {"{\"a\":-1.5e3,\"b\":null}", "null"},
        {"{\"a\":1}", NULL},
        {"{}", NULL},
        {"", NULL},
        {"[\"b\",1]", NULL},
        {"{\"\\u0062\":1,\"b\":2}", NULL}, /* a name with escapes */
        {"{\"b\" 1}", NULL},
        {"{\"b\":", NULL},
        {"{\"b\":[1,2}", "[1,2}"}, /* the reader of the list refuses it */
        {"{\"b\":[1,2", NULL},
        {"{\"a\":1 \"b\":2}", NULL},
        {"{\"a\":\"x\\", NULL},
        {"{\"b", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *json = cases[i].json, *value = cases[i].value;
        lz_json_range found = lz_json_member(range_of(json), "b");
        size_t n = (size_t)(found.end - found.begin);
        CHECK(value ? found.begin && n == strlen(value) && !memcmp(found.begin, value, n) : !found.begin, "%s", json);
    }
}

static void strings_and_ids(void) {
    static const struct {
        const char *json, *text; /* NULL: it is left to a full parser */
    } strings[] = {
        {"\"\"", ""},
        {" \"\xc4\xa0the\",", "\xc4\xa0the"},
        {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "a\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00E9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\u0000\"", NULL},
        {"\"\\ud83d\\ude00\"", NULL},
        {"\"\\u12\"", NULL},
        {"\"\\u12g4\"", NULL},
        {"\"\\x\"", NULL},
        {"\"\\", NULL},
        {"\"a\\\"", NULL},
        {"\"a\nb\"", NULL},
        {"\"\\t\nb\"", NULL},
        {"\"a", NULL},
        {"a", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        lz_json_range at = range_of(strings[i].json);
        lz_json_reader r = {.at = at.begin, .end = at.end};
        bool read = lz_json_string(&r), same = strings[i].text && r.n == strlen(strings[i].text);
        CHECK(read == (strings[i].text != NULL), "%s", strings[i].json);
        if (read) CHECK(same && memcmp(r.text, strings[i].text, r.n) == 0, "%s", strings[i].json);
    }
    char long_one[600];
    memset(long_one, 'a', sizeof long_one);
    memcpy(long_one, "\"\\n", 3);
    for (size_t n = 250; n < 270; n++) { /* characters before the quotation mark at the end */
        long_one[n] = '"';
        lz_json_reader r = {.at = long_one, .end = long_one + n + 1};
        bool read = lz_json_string(&r);
        CHECK(!read || (r.n == n - 2 && r.text[0] == '\n' && r.at == r.end), "%zu", n);
        CHECK(read || n - 2 + 4 > sizeof r.copy, "%zu", n);
        long_one[n] = 'a';
    }
    static const char *const refused[] = {"", "-1", "01", "1.0", "1e3", "1234567890", "1]", "x", "1", "+1", "\"1\""};
    lz_json_reader r;
    int32_t id;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lz_json_range at = range_of(refused[i]);
        r = (lz_json_reader){.at = at.begin, .end = at.end};
        CHECK(!lz_json_id(&r, &id), "%s", refused[i]);
    }
    lz_json_range numbers = range_of("0, 7 ,999999999}");
    r = (lz_json_reader){.at = numbers.begin, .end = numbers.end};
    CHECK(lz_json_id(&r, &id) && id == 0 && lz_json_sign(&r, ','));
    CHECK(lz_json_id(&r, &id) && id == 7 && lz_json_sign(&r, ','));
    CHECK(lz_json_id(&r, &id) && id == 999999999 && lz_json_sign(&r, '}') && lz_json_ends(&r));
}

static long long values;
static void *count_values(size_t bytes) {
    values++;
    return malloc(bytes);
}

/* tests/data/tokenizer has 838 tokens and 582 merges. */
static void few_values(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err = {.status = LZ_OK};
    json_set_alloc_funcs(count_values, free);
    for (int separate = 0; separate < 2; separate++) {
        values = 0;
        lz_tokenizer *t = lz_tokenizer_open(ctx, test_data(separate ? "tokenizer/separate" : "tokenizer"), &err);
        CHECK(t && values < 500, "%s: %lld values", err.text, values);
        lz_tokenizer_free(t);
    }
    json_set_alloc_funcs(malloc, free);
    lz_close(ctx);
}

static void long_lists(void) {
    members();
    strings_and_ids();
    few_values();
}

/* ---- memory runs out --------------------------------------------------------------------------------------------- */

static void failing_memory(void) {
    failing f = {.fail_at = 0};
    const lz_allocator allocator = {failing_allocate, failing_release, &f};
    lz_context *ctx = lz_open(.threads = 1, .allocator = &allocator);
    long long before = f.live;
    bool done = false;
    for (int i = 1; !done && i < 1000; i++) {
        f.asked = 0;
        f.fail_at = i;
        lz_error err = {.status = LZ_OK};
        lz_tokenizer *t = lz_tokenizer_open(ctx, test_data("tokenizer"), &err);
        int64_t *ids = NULL, n;
        lz_status status = t ? lz_tokenize(t, "e\u0301 <think>the cat", 18, &ids, &n, &err) : err.status;
        done = status == LZ_OK;
        if (!done) CHECK_STATUS(status, LZ_OUT_OF_MEMORY, &err);
        lz_host_free(ctx, ids);
        lz_tokenizer_free(t);
        CHECK_I64(f.live, before);
    }
    CHECK(done);
    f.fail_at = 0;
    lz_close(ctx);
}

TEST_MAIN({"tokenizer: small, golden", small_golden}, {"tokenizer: Qwen3, golden", qwen_golden},
          {"tokenizer: Qwen3, whole, golden", whole_qwen_golden}, {"tokenizer: bad text", bad_text},
          {"tokenizer: long words", long_words}, {"tokenizer: threads", threads},
          {"tokenizer: hostile tokenizer.json", hostile_json},
          {"tokenizer: hostile separate files", hostile_separate_files}, {"tokenizer: long lists", long_lists},
          {"tokenizer: other spellings", other_spellings}, {"tokenizer: failing memory", failing_memory})
