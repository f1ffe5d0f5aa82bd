/* folder.c: writes a model folder. Settings and tokenizer are text templates with names of sizes; weights are drawn and
 * written in chunks, on all threads. A random number depends only on the seed, the tensor's name and its index. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io/weights.h"
#include "synth/synth.h"

enum { MOST_FILES = 256 };

/* A file of weights while it is written. */
typedef struct shard {
    char path[PATH_MAX];
    lz_writer writer;
    const synth_tensor *tensors;
    int n;
    _Atomic int next, left; /* tensors: the first that no thread has begun; the number not yet written */
} shard;

typedef struct job {
    lz_context *ctx;
    const synth_model *model;
    const char *folder;
    const synth_options *options;
    int64_t total; /* bytes of weights */
    /* Files and folders that were created in it, and "" for the folder itself; removed after an error. */
    char made[MOST_FILES][128];
    int n_made;
    synth_tensor *tensors[SYNTH_PARTS];
    shard *shards;
    int n_shards;
    pthread_mutex_t lock; /* guards done, calls of watch, and the first error */
    int64_t done;         /* bytes written, of total */
    _Atomic lz_status failed;
    lz_error *err;
} job;

static lz_status remember(job *j, const char *name) {
    if (j->n_made == MOST_FILES) return lz_fail(j->err, LZ_BAD_ARGUMENT, "this model would have too many files");
    snprintf(j->made[j->n_made++], sizeof j->made[0], "%s", name);
    return LZ_OK;
}

static lz_status join(job *j, char path[PATH_MAX], const char *name) {
    if (snprintf(path, PATH_MAX, "%s/%s", j->folder, name) < PATH_MAX) return LZ_OK;
    return lz_fail(j->err, LZ_BAD_ARGUMENT, "%s: this path is too long", LZ_SHOW_TEXT(j->folder));
}

/* ---- text files -------------------------------------------------------------------------------------------------- */

static lz_status write_bytes(job *j, const char *name, const char *text, int64_t bytes) {
    char path[PATH_MAX];
    lz_writer w;
    lz_status status = join(j, path, name);
    if (!status) status = lz_writer_open(&w, j->ctx, path, j->err);
    if (status) return status;
    status = lz_writer_add(&w, text, bytes, j->err);
    if (!status) status = lz_writer_commit(&w, j->err);
    lz_writer_discard(&w);
    return status ? status : remember(j, name);
}

static const synth_settings byte_tokenizer[] = {
    {"tokenizer.json",
     "{\n  `version`: `1.0`,\n  `truncation`: null,\n  `padding`: null,\n  `added_tokens`: [@added],\n  `normalizer`: "
     "{`type`: `NFC`},\n"
     "  `pre_tokenizer`: {`type`: `Sequence`, `pretokenizers`: [{`type`: `Split`, `pattern`: {`Regex`: "
     "`(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
     "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
     "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+`},\n"
     "    `behavior`: `Isolated`, `invert`: false}, {`type`: `ByteLevel`, @plain}]},\n"
     "  `post_processor`: {`type`: `ByteLevel`, @plain},\n  `decoder`: {`type`: `ByteLevel`, @plain},\n"
     "  `model`: {`type`: `BPE`, `dropout`: null, `unk_token`: null, `continuing_subword_prefix`: ``, "
     "`end_of_word_suffix`: ``,\n"
     "    `fuse_unk`: false, `byte_fallback`: false, `vocab`: {@vocab},\n    `merges`: []}\n}\n"},
    {"tokenizer_config.json",
     "{\n  `add_bos_token`: false,\n  `add_prefix_space`: false,\n  `bos_token`: null,\n"
     "  `chat_template`: `{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\\\n' + message.content "
     "+ "
     "'<|im_end|>\\\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\\\n' }}{%- if "
     "enable_thinking is "
     "defined and enable_thinking is false %}{{- '<think>\\\\n\\\\n</think>\\\\n\\\\n' }}{%- endif %}{%- endif %}`,\n"
     "  `eos_token`: `<|im_end|>`,\n  `errors`: `replace`,\n  `model_max_length`: 131072,\n  `pad_token`: "
     "`<|endoftext|>`,\n"
     "  `split_special_tokens`: false,\n  `tokenizer_class`: `Qwen2Tokenizer`,\n  `unk_token`: null\n}\n"},
};
/* Qwen's added tokens; the first 14 are "special". */
static const char *const added_tokens[] = {
    "<|endoftext|>",  "<|im_start|>",   "<|im_end|>",      "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>",  "<|box_end|>",    "<|quad_start|>",  "<|quad_end|>",         "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",   "<|video_pad|>",        "<tool_call>",
    "</tool_call>",   "<|fim_prefix|>", "<|fim_middle|>",  "<|fim_suffix|>",       "<|fim_pad|>",
    "<|repo_name|>",  "<|file_sep|>",   "<tool_response>", "</tool_response>",     "<think>",
    "</think>"};
enum { FIRST_ADDED = 151643, N_ADDED = sizeof added_tokens / sizeof added_tokens[0] };

static void print_added(FILE *f) {
    for (int i = 0; i < N_ADDED; i++)
        fprintf(
            f,
            "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false, \"special\": %s}",
            i ? "," : "", FIRST_ADDED + i, added_tokens[i], i < 14 ? "true" : "false");
}

/* GPT-2's alphabet of bytes: printable bytes are their own code points, the others are U+0100 and on. Ids are in this
 * order. */
static bool prints(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

static void print_vocabulary(FILE *f) {
    int id = 0;
    for (int round = 0; round < 2; round++)
        for (int byte = 0, other = 256; byte < 256; byte++) {
            int code = prints(byte) ? byte : other++;
            if (prints(byte) != (round == 0)) continue;
            fprintf(f, id ? ", \"" : "\"");
            if (code < 128) fprintf(f, code == '"' || code == '\\' ? "\\%c" : "%c", code);
            if (code >= 128) fprintf(f, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
            fprintf(f, "\": %d", id++);
        }
    /* The vocabulary lists the added tokens too: libraries would otherwise number them after the bytes. */
    for (int i = 0; i < N_ADDED; i++) fprintf(f, ", \"%s\": %d", added_tokens[i], FIRST_ADDED + i);
}

/* Writes the text that replaces @name. */
static void print_piece(FILE *f, const synth_model *m, const char *name, size_t n) {
    long long layers = m->size['L'];
#define IS(text) (strlen(text) == n && !memcmp(text, name, n))
    if (IS("tied")) fputs(m->tied ? "true" : "false", f);
    if (IS("distilled") && m->distilled) fputs("  \"is_distilled\": true,\n", f); /* base models do not have the key */
    /* If layers 9, 18 and 27 do not exist; with diffusers these are arguments of the call. Never the last layer, whose
     * output transformers normalises. */
    if (IS("out_layers") && layers < 28)
        fprintf(f, "  \"text_encoder_out_layers\": [%lld, %lld, %lld],\n", (layers - 1) / 3, 2 * (layers - 1) / 3,
                layers - 1);
    if (IS("shift")) fputs(m->distilled ? "3.0" : "6.0", f); /* of Z-Image */
    /* The same of FLUX.3, which reads the outputs of layers 4, 8, ..., 32. */
    for (long long i = 1; i <= 8 && IS("eight_layers") && layers < 32; i++)
        fprintf(f, "%s%lld%s", i > 1 ? ", " : "  \"text_encoder_out_layers\": [", i * (layers - 1) / 8,
                i < 8 ? "" : "],\n");
    if (IS("deep")) fputs(m->size['b'] == 24 ? "5, 11, 17" : "8, 16, 24", f);
    if (IS("flow_map")) fputs(m->distilled ? "true" : "false", f);
    if (IS("blocks")) fputs(m->distilled ? "Flux3DistilledAutoBlocks" : "Flux3AutoBlocks", f);
    if (IS("pipeline")) fputs(m->pipeline, f);
    if (IS("processor") && m->edits) fputs("  \"processor\": [\"transformers\", \"Qwen2VLProcessor\"],\n", f);
    if (IS("dynamic")) fputs(m->distilled ? "false" : "true", f);
    if (IS("terminal")) fputs(m->layered ? "false" : m->distilled ? "null" : "0.02", f);
    if (IS("shift_type")) fputs(m->layered ? "linear" : "exponential", f);
    if (IS("layered") && m->layered) fputs(",\n  \"use_additional_t_cond\": true,\n  \"use_layer3d_rope\": true", f);
    if (IS("input_channels") && m->layered) fputs("  \"input_channels\": 4,\n", f);
    if (IS("sigmas") && m->distilled)
        fputs("  \"sample_sigmas\": [1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568],\n", f);
    if (IS("zero_cond") && m->zero_cond) fputs(",\n  \"zero_cond_t\": true", f);
    for (long long i = 0; i < layers && IS("layer_types"); i++) fprintf(f, "%s\"full_attention\"", i ? ", " : "");
    if (IS("vocab")) print_vocabulary(f);
    if (IS("added")) print_added(f);
    if (IS("plain")) fputs("\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false", f);
#undef IS
}

static lz_status write_settings(job *j, const synth_settings *s) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return lz_out_of_memory(j->err, 0);
    for (const char *at = s->text; *at;) {
        char c = *at++;
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        if (c == '$') fprintf(f, "%lld", (long long)synth_size(j->model, &at));
        if (c == '@') print_piece(f, j->model, at, n);
        if (c == '@') at += n;
        if (c != '$' && c != '@') fputc(c == '`' ? '"' : c, f);
    }
    bool good = fclose(f) == 0;
    lz_status status = good ? write_bytes(j, s->name, text, (int64_t)bytes) : lz_out_of_memory(j->err, 0);
    free(text);
    return status;
}

/* The folder of the tokenizer. */
static const char *tokenizer_folder(const job *j) {
    return j->model->family->tokenizer ? j->model->family->tokenizer : "tokenizer";
}

static lz_status write_tokenizer(job *j) {
    lz_status status = LZ_OK;
    for (size_t i = 0; i < sizeof byte_tokenizer / sizeof byte_tokenizer[0] && !status; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", tokenizer_folder(j), byte_tokenizer[i].name);
        status = write_settings(j, &(synth_settings){name, byte_tokenizer[i].text});
    }
    return status;
}

static lz_status copy_tokenizer(job *j, const char *from) {
    static const char *const names[] = {"tokenizer.json",     "tokenizer_config.json", "vocab.json",
                                        "merges.txt",         "added_tokens.json",     "special_tokens_map.json",
                                        "chat_template.jinja"};
    bool some = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_MAX], name[64];
        lz_error err = {.status = LZ_OK};
        snprintf(path, sizeof path, "%s/%s", from, names[i]);
        snprintf(name, sizeof name, "%s/%s", tokenizer_folder(j), names[i]);
        lz_mapping *map = lz_map_file(j->ctx, path, &err);
        lz_status status = map                          ? write_bytes(j, name, map->data, map->bytes)
                           : err.status == LZ_NOT_FOUND ? LZ_OK
                                                        : err.status;
        if (!map && status && j->err) *j->err = err;
        if (map && (i == 0 || i == 2)) some = true;
        lz_mapping_release(map);
        if (status) return status;
    }
    return some ? LZ_OK
                : lz_fail(j->err, LZ_NOT_FOUND, "%s: there is no tokenizer.json or vocab.json in it",
                          LZ_SHOW_TEXT(from));
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) { /* the output function of splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t stream_of(uint64_t seed, const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return mix(hash ^ mix(seed));
}

/* A sum of four uniform 16-bit numbers is close enough to normal for weights, within 3.5 deviations, and needs one call
 * of mix. */
static void draw(void *to, bool wide, int64_t n, uint64_t stream, int64_t from, double mean, double deviation) {
    const float middle = (float)mean, scale = (float)(deviation / 37837.227); /* sqrt((2^32 - 1) / 3) */
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = mix(stream + (uint64_t)(from + i) * 0x9e3779b97f4a7c15u);
        int32_t sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48)) - 131070;
        float x = middle + scale * (float)sum;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (wide)
            ((uint32_t *)to)[i] = bits;
        else
            ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

enum { CHUNK = 1 << 16 }; /* elements at a time */

static void fail_job(job *j, const lz_error *err) {
    pthread_mutex_lock(&j->lock);
    if (!j->failed && j->err) *j->err = *err;
    if (!j->failed) j->failed = err->status;
    pthread_mutex_unlock(&j->lock);
}

static lz_status count_done(job *j, const shard *s, int64_t bytes, lz_error *err) {
    pthread_mutex_lock(&j->lock);
    j->done += bytes;
    bool go_on = !j->options->watch || j->options->watch(j->options->user, s->path, j->done, j->total);
    pthread_mutex_unlock(&j->lock);
    return go_on ? LZ_OK : lz_fail(err, LZ_CANCELLED, "stopped; what was written is removed");
}

static lz_status write_tensor(job *j, shard *s, const synth_tensor *t, lz_error *err) {
    uint32_t chunk[CHUNK];
    int64_t size = t->wide ? 4 : 2, n = synth_bytes(t) / size, place = s->writer.end;
    uint64_t stream = stream_of(j->options->seed, t->name);
    lz_status status = LZ_OK;
    for (const synth_tensor *before = s->tensors; before < t; before++) place += synth_bytes(before);
    for (int64_t at = 0; at < n && !status && !j->failed; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        draw(chunk, t->wide, m, stream, at, t->mean, t->deviation);
        status = lz_writer_put(&s->writer, place + size * at, chunk, size * m, err);
        if (!status) status = count_done(j, s, size * m, err);
    }
    return status;
}

/* The work of one thread: writes tensor after tensor. Each thread begins with a different file, because writes to one
 * file are serialised; when its file is finished, it goes on with the other files. */
static void write_weights(void *user, int64_t i, int thread) {
    (void)thread;
    job *j = user;
    for (int k = 0; k < j->n_shards; k++) {
        shard *s = &j->shards[(i + k) % j->n_shards];
        for (int at; !j->failed && (at = atomic_fetch_add(&s->next, 1)) < s->n;) {
            lz_error err = {.status = LZ_OK};
            lz_status status = write_tensor(j, s, &s->tensors[at], &err);
            if (!status && !j->failed && atomic_fetch_sub(&s->left, 1) == 1)
                status = lz_writer_commit(&s->writer, &err);
            if (status) fail_job(j, &err);
        }
    }
}

/* {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}, preceded by its length. */
static lz_status write_header(job *j, lz_writer *w, const synth_tensor *tensors, int n) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return lz_out_of_memory(j->err, 0);
    fprintf(f, "%8s{\"__metadata__\":{\"format\":\"pt\"}", "");
    long long at = 0;
    for (const synth_tensor *t = tensors; t < tensors + n; t++) {
        fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, synth_type(t));
        for (int d = 0; d < t->dims.n; d++) fprintf(f, d ? ",%lld" : "%lld", (long long)t->dims.at[d]);
        fprintf(f, "],\"data_offsets\":[%lld,%lld]}", at, at + (long long)synth_bytes(t));
        at += (long long)synth_bytes(t);
    }
    fputc('}', f);
    while (ftell(f) % 8) fputc(' ', f);
    bool good = fclose(f) == 0;
    if (good)
        for (int i = 0; i < 8; i++) text[i] = (char)((uint64_t)(bytes - 8) >> 8 * i);
    lz_status status = good ? lz_writer_add(w, text, (int64_t)bytes, j->err) : lz_out_of_memory(j->err, 0);
    free(text);
    return status;
}

static lz_status begin_shard(job *j, const char *name, const synth_tensor *tensors, int n) {
    lz_status status = remember(j, name);
    if (status) return status;
    shard *s = &j->shards[j->n_shards];
    *s = (shard){.tensors = tensors, .n = n, .left = n};
    status = join(j, s->path, name);
    if (!status) status = lz_writer_open(&s->writer, j->ctx, s->path, j->err);
    if (status) return status;
    j->n_shards++;
    return write_header(j, &s->writer, tensors, n);
}

/* The number of tensors, from the first one on, that go into one file. */
static int shard_length(const synth_tensor *tensors, int n, int64_t limit) {
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        if ((bytes += synth_bytes(&tensors[i])) > limit && i) return i;
    return n;
}

/* Begins the files of a part, with their headers, and writes their index. */
static lz_status begin_part(job *j, synth_part part) {
    static const char *const stems[] = {LZ_WEIGHTS_TRANSFORMERS, LZ_WEIGHTS_DIFFUSERS, LZ_WEIGHTS_DIFFUSERS};
    const int64_t limits[] = {j->model->text_shard, j->model->transformer_shard, INT64_MAX};
    int n, shards = 0, number = 0;
    long long total = 0;
    char *index = NULL, name[128];
    size_t bytes = 0;
    synth_tensor *tensors = j->tensors[part] = synth_tensors(j->model, part, &n);
    FILE *f = tensors ? open_memstream(&index, &bytes) : NULL;
    if (!f) return lz_out_of_memory(j->err, 0);
    for (int i = 0; i < n; i++) total += synth_bytes(&tensors[i]);
    for (int i = 0; i < n; shards++) i += shard_length(tensors + i, n - i, limits[part]);
    fprintf(f, "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {", total);
    lz_status status = LZ_OK;
    for (int i = 0, length; i < n && !status; i += length) {
        length = shard_length(tensors + i, n - i, limits[part]);
        int stem = snprintf(name, sizeof name, "%s/%s", synth_part_names[part], stems[part]);
        if (shards > 1) stem += snprintf(name + stem, sizeof name - (size_t)stem, "-%05d-of-%05d", ++number, shards);
        snprintf(name + stem, sizeof name - (size_t)stem, LZ_WEIGHTS_ENDING);
        for (int k = i; k < i + length; k++)
            fprintf(f, "%s\n    \"%s\": \"%s\"", k ? "," : "", tensors[k].name, strchr(name, '/') + 1);
        status = begin_shard(j, name, tensors + i, length);
    }
    fputs("\n  }\n}\n", f);
    if (fclose(f) != 0 && !status) status = lz_out_of_memory(j->err, 0);
    snprintf(name, sizeof name, "%s/%s" LZ_WEIGHTS_INDEX, synth_part_names[part], stems[part]);
    if (!status && shards > 1) status = write_bytes(j, name, index, (int64_t)bytes);
    free(index);
    return status;
}

/* Sets the size of a file without writing data, so that it is sparse. */
static lz_status leave_hollow(job *j, shard *s) {
    int64_t bytes = s->writer.end;
    for (int i = 0; i < s->n; i++) bytes += synth_bytes(&s->tensors[i]);
    if (ftruncate(s->writer.fd, bytes) == 0) return lz_writer_commit(&s->writer, j->err);
    return lz_fail(j->err, LZ_IO, "%s: a file of %.1f GB without content cannot be created there: %s",
                   LZ_SHOW_TEXT(s->path), 1e-9 * (double)bytes, strerror(errno));
}

static lz_status write_parts(job *j) {
    lz_status status = LZ_OK;
    lz_pool *pool = lz_base_of(j->ctx)->pool;
    j->shards = calloc(MOST_FILES, sizeof *j->shards);
    if (!j->shards) return lz_out_of_memory(j->err, MOST_FILES * sizeof *j->shards);
    pthread_mutex_init(&j->lock, NULL);
    for (int part = 0; part < SYNTH_PARTS && !status; part++) status = begin_part(j, (synth_part)part);
    for (int i = 0; i < j->n_shards && !status && j->options->hollow; i++) status = leave_hollow(j, &j->shards[i]);
    if (!status && !j->options->hollow) lz_parallel(pool, lz_pool_threads(pool), write_weights, j);
    for (int i = 0; i < j->n_shards; i++) lz_writer_discard(&j->shards[i].writer);
    for (int part = 0; part < SYNTH_PARTS; part++) free(j->tensors[part]);
    pthread_mutex_destroy(&j->lock);
    free(j->shards);
    return status ? status : j->failed;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static lz_status make_folder(job *j, const char *name) {
    char path[PATH_MAX];
    lz_status status = join(j, path, name);
    if (status) return status;
    if (mkdir(path, 0777) == 0) return remember(j, name);
    return lz_fail(j->err, LZ_IO, "%s: cannot be created: %s", LZ_SHOW_TEXT(path), strerror(errno));
}

/* Creates the folder, or accepts an empty one. A folder with contents is not touched. */
static lz_status take_folder(job *j) {
    DIR *d = opendir(j->folder);
    if (!d && errno == ENOENT) return make_folder(j, "");
    if (!d) return lz_fail(j->err, LZ_IO, "%s: cannot be opened: %s", LZ_SHOW_TEXT(j->folder), strerror(errno));
    int entries = 0;
    while (readdir(d)) entries++;
    closedir(d);
    return entries <= 2
               ? LZ_OK
               : lz_fail(j->err, LZ_BAD_ARGUMENT, "%s: is not empty; name a new folder", LZ_SHOW_TEXT(j->folder));
}

static lz_status check_space(job *j) {
    for (int part = 0; part < SYNTH_PARTS; part++) {
        int n;
        synth_tensor *tensors = synth_tensors(j->model, (synth_part)part, &n);
        if (!tensors) return lz_out_of_memory(j->err, 0);
        for (int i = 0; i < n; i++) j->total += synth_bytes(&tensors[i]);
        free(tensors);
    }
    struct statvfs s;
    if (statvfs(j->folder, &s) != 0) return lz_fail(j->err, LZ_IO, "%s: %s", LZ_SHOW_TEXT(j->folder), strerror(errno));
    double available = (double)s.f_bavail * (double)s.f_frsize, needed = (double)j->total + (64 << 20);
    if (available >= needed) return LZ_OK;
    return lz_fail(j->err, LZ_IO, "%s: this needs %.1f GB, and the disk has %.1f GB free", LZ_SHOW_TEXT(j->folder),
                   1e-9 * needed, 1e-9 * available);
}

static lz_status write_all(job *j) {
    static const char *const folders[] = {"scheduler", "text_encoder", "transformer", "vae"};
    const synth_settings *s = j->model->family->settings;
    lz_status status = take_folder(j);
    if (!status && !j->options->hollow) status = check_space(j);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !status; i++) status = make_folder(j, folders[i]);
    if (!status && j->model->edits) status = make_folder(j, "processor");
    if (!status && !j->model->family->tokenizer) status = make_folder(j, "tokenizer");
    for (; s[1].name && !status; s++)
        if (j->model->edits || strncmp(s->name, "processor/", 10) != 0) status = write_settings(j, s);
    if (!status && j->options->tokenizer) status = copy_tokenizer(j, j->options->tokenizer);
    if (!status && !j->options->tokenizer) status = write_tokenizer(j);
    if (!status) status = write_parts(j);
    return status ? status : write_settings(j, s);
}

lz_status synth_write(lz_context *ctx, const synth_model *model, const char *folder, const synth_options *options,
                      lz_error *err) {
    job j = {.ctx = ctx, .model = model, .folder = folder, .options = options, .err = err};
    lz_status status = write_all(&j);
    char path[PATH_MAX];
    while (status && j.n_made)
        if (!join(&j, path, j.made[--j.n_made])) remove(path);
    return status;
}
