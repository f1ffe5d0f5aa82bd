/* fuzz_tokenizer.c: any text has ids or is not UTF-8, and any bytes are a tokenizer or an error. The first byte selects
 * the kind of the rest:
 *     t  text for the small tokenizer of tests/data
 *     j  a tokenizer.json
 *     v  what follows the 256 bytes in the vocabulary of one: "},"merges":[...]},..." (so that there is a chance of it
 *        being right)
 * Run from the root of the sources. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/split.h"
#include "text/tokenizer.h"

#define DATA "tests/data/tokenizer"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lz_context *ctx;
static lz_tokenizer *small;
static char folder[] = "/tmp/lazuli-fuzz-XXXXXX";
static char file[sizeof folder + 20];
static char vocabulary[16384]; /* {"model":{"vocab":{ and its 256 bytes */

static void prepare(void) {
    ctx = lz_open(.threads = 1, .cache_limit = -1);
    small = lz_tokenizer_open(ctx, DATA, NULL);
    FILE *f = fopen(DATA "/separate/vocab.json", "rb");
    if (!small || !f || !mkdtemp(folder)) abort();
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    size_t start = strlen(strcpy(vocabulary, "{\"model\":{\"type\":\"BPE\",\"vocab\":"));
    vocabulary[start + fread(vocabulary + start, 1, sizeof vocabulary - start - 1, f)] = 0;
    fclose(f);
    char *end = strstr(vocabulary, ":255,"); /* the tokens are in the order of their ids, and the first 256 are bytes */
    if (!end) abort();
    end[4] = 0;
}

static void fuzz_text(const lz_tokenizer *t, const char *text, size_t size, lz_status also) {
    lz_error err = {.status = LZ_OK};
    int64_t *ids, n;
    lz_status status = lz_tokenize(t, text, size, &ids, &n, &err);
    bool valid = lz_utf8_error(text, size) < 0;
    if (status != (valid ? LZ_OK : LZ_BAD_ARGUMENT) && status != also) abort();
    if (status != LZ_OK && (ids || n || err.status != status || !err.text[0])) abort();
    if (n < 0 || n > 3 * (int64_t)size) abort(); /* normal form C at most triples a text */
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0) abort();
    lz_host_free(ctx, ids);
}

static void fuzz_file(const char *start, const uint8_t *data, size_t size) {
    FILE *f = fopen(file, "wb");
    if (!f) abort();
    fputs(start, f);
    fwrite(data, 1, size, f);
    fclose(f);
    lz_error err = {.status = LZ_OK};
    lz_tokenizer *t = lz_tokenizer_open(ctx, folder, &err);
    if (!t && (err.status != LZ_BAD_FILE || !err.text[0])) abort();
    /* The pattern of a file may be one that takes too long: that is an error as well. */
    static const char text[] = "It's a caf\u00e9  at 12\n\n <think>e\u0301!";
    if (t) fuzz_text(t, text, strlen(text), LZ_BAD_FILE);
    lz_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!ctx) prepare();
    if (size == 0) return 0;
    switch (data[0]) {
    case 'j': fuzz_file("", data + 1, size - 1); break;
    case 'v': fuzz_file(vocabulary, data + 1, size - 1); break;
    default: fuzz_text(small, (const char *)data + 1, size - 1, LZ_OK);
    }
    return 0;
}
