/* tables.c: the kinds of models with their sizes, and making lists of tensors from tables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "synth/list.h"

#define GB INT64_C(1000000000)

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static const char size_letters[] = "HdNShfQKeLcgVvwxb";
static const struct kind {
    const char *name, *help;
    const synth_family *family;
    const char *pipeline;
    int64_t sizes[sizeof size_letters - 1];
    bool distilled, tied, edits, zero_cond, layered, wide;
    int64_t text_shard, transformer_shard; /* the defaults of transformers and diffusers are 5 and 10 GB */
} kinds[] = {
/* H  d  N  S  h  f  Q  K  e  L  c  g  V  v  w  x  b */
#define KLEIN_4B                                                                                                       \
    { 24, 128, 5, 20, 2560, 9728, 32, 8, 128, 36, 128, 32, 151936 }
#define KLEIN_9B                                                                                                       \
    { 32, 128, 8, 24, 4096, 12288, 32, 8, 128, 36, 128, 32, 151936 }
#define FLUX3                                                                                                          \
    { 24, 128, 5, 28, 2560, 9728, 32, 8, 128, 36, 128, 32, 151936, 1024, 4096, 16, 24 }
#define QWEN                                                                                                           \
    { 24, 128, 60, 0, 3584, 18944, 28, 4, 128, 28, 96, 0, 152064, 1280, 3420, 16, 32 }
#define QWEN_21                                                                                                        \
    { 32, 128, 32, 0, 4096, 12288, 32, 8, 128, 36, 96, 144, 151936, 1152, 4304, 16, 27 }
#define ZIMAGE                                                                                                         \
    { 30, 128, 30, 2, 2560, 9728, 32, 8, 128, 36, 128, 32, 151936 }
    {"klein-4b", "16.0 GB, 4 steps", &synth_klein, "Flux2KleinPipeline", KLEIN_4B, .distilled = true, .tied = true,
     .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"klein-9b", "34.7 GB, 4 steps", &synth_klein, "Flux2KleinPipeline", KLEIN_9B, .distilled = true,
     .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"klein-9b-kv", "34.7 GB, 4 steps, references are computed once", &synth_klein, "Flux2KleinKVPipeline", KLEIN_9B,
     .distilled = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"klein-base-4b", "16.0 GB, 50 steps with guidance", &synth_klein, "Flux2KleinPipeline", KLEIN_4B, .tied = true,
     .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"klein-base-9b", "34.7 GB, 50 steps with guidance", &synth_klein, "Flux2KleinPipeline", KLEIN_9B,
     .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"tiny",
     "12 MB, the same architecture for tests",
     &synth_klein,
     "Flux2KleinPipeline",
     {2, 32, 1, 2, 32, 64, 4, 2, 16, 28, 8, 4, 151936},
     .distilled = true,
     .tied = true,
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
    {"flux3-klein", "20.1 GB, 16 steps", &synth_flux3, "Flux3DistilledModularPipeline", FLUX3, .distilled = true,
     .tied = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"flux3-klein-base", "20.1 GB, 50 steps with guidance", &synth_flux3, "Flux3ModularPipeline", FLUX3, .tied = true,
     .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"flux3-tiny",
     "12 MB, the same architecture for tests",
     &synth_flux3,
     "Flux3DistilledModularPipeline",
     {2, 32, 1, 2, 32, 64, 2, 1, 32, 33, 8, 4, 151936, 16, 24, 2, 24},
     .distilled = true,
     .tied = true,
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
    {"qwen-image", "57.7 GB, 50 steps with guidance", &synth_qwen, "QwenImagePipeline", QWEN, .text_shard = 5 * GB,
     .transformer_shard = 5 * GB},
    {"qwen-image-edit", "57.7 GB, the same for changing an image", &synth_qwen, "QwenImageEditPipeline", QWEN,
     .edits = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-image-edit-2509", "57.7 GB, for changing several", &synth_qwen, "QwenImageEditPlusPipeline", QWEN,
     .edits = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-image-edit-2511", "57.7 GB, the same once more", &synth_qwen, "QwenImageEditPlusPipeline", QWEN,
     .edits = true, .zero_cond = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-image-layered", "57.7 GB, for taking an image apart into layers", &synth_qwen, "QwenImageLayeredPipeline",
     QWEN, .edits = true, .layered = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-image-2.1", "33.1 GB, 40 steps; the licence forbids commercial use", &synth_qwen21, "QwenImage21Pipeline",
     QWEN_21, .edits = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-image-2.1-turbo", "33.1 GB, 8 steps; the same", &synth_qwen21, "QwenImage21Pipeline", QWEN_21,
     .distilled = true, .edits = true, .text_shard = 5 * GB, .transformer_shard = 10 * GB},
    {"qwen-tiny",
     "23 MB, the same architecture for tests",
     &synth_qwen,
     "QwenImagePipeline",
     {2, 32, 3, 0, 32, 64, 2, 1, 16, 4, 8, 0, 152064, 32, 48, 2, 2},
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
    {"qwen-layered-tiny",
     "23 MB, the same architecture for tests",
     &synth_qwen,
     "QwenImageLayeredPipeline",
     {2, 32, 3, 0, 32, 64, 2, 1, 16, 4, 8, 0, 152064, 32, 48, 2, 2},
     .edits = true,
     .layered = true,
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
    {"qwen-2.1-tiny",
     "23 MB, the same architecture for tests",
     &synth_qwen21,
     "QwenImage21Pipeline",
     {2, 32, 3, 0, 32, 64, 2, 1, 32, 4, 4, 6, 151936, 72, 24, 1, 27},
     .distilled = true,
     .edits = true,
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
    {"z-image-turbo", "32.8 GB, 8 steps", &synth_zimage, "ZImagePipeline", ZIMAGE, .distilled = true, .tied = true,
     .wide = true, .text_shard = 4 * GB, .transformer_shard = 10 * GB},
    {"z-image", "20.5 GB, 50 steps with guidance", &synth_zimage, "ZImagePipeline", ZIMAGE, .tied = true,
     .text_shard = 4 * GB, .transformer_shard = 10 * GB},
    {"z-image-tiny",
     "11 MB, the same architecture for tests",
     &synth_zimage,
     "ZImagePipeline",
     {2, 32, 2, 1, 32, 64, 2, 1, 16, 3, 8, 4, 151936},
     .distilled = true,
     .tied = true,
     .wide = true,
     .text_shard = GB / 100,
     .transformer_shard = GB / 2500},
};

const char *synth_kind(int i, const char **help) {
    if (i >= (int)(sizeof kinds / sizeof kinds[0])) return NULL;
    if (help) *help = kinds[i].help;
    return kinds[i].name;
}

static void set_sizes(const struct kind *k, int64_t blocks, int64_t layers, synth_model *m) {
    *m = (synth_model){.family = k->family,
                       .distilled = k->distilled,
                       .tied = k->tied,
                       .edits = k->edits,
                       .zero_cond = k->zero_cond,
                       .layered = k->layered,
                       .wide = k->wide,
                       .pipeline = k->pipeline,
                       .text_shard = k->text_shard,
                       .transformer_shard = k->transformer_shard};
    int64_t *s = m->size, all;
    for (int i = 0; size_letters[i]; i++) s[(int)size_letters[i]] = k->sizes[i];
    all = s['N'] + s['S'];
    if (blocks && k->family == &synth_zimage)
        s['N'] = blocks; /* the refiners stay */
    else if (blocks) {
        s['N'] = (blocks * s['N'] + all - 1) / all; /* the same share of fewer blocks, rounded up */
        s['S'] = blocks - s['N'];
    }
    if (layers) s['L'] = layers;
    s['D'] = s['H'] * s['d'];
    bool flux = k->family == &synth_klein || k->family == &synth_flux3;
    s['a'] = flux ? s['d'] / 4 : s['d'] / 16;
    s['F'] = (int64_t)((double)s['D'] / 3 * 8);
    s['A'] = s['D'] < 256 ? s['D'] : 256;
    s['m'] = s['e'] / (k->family == &synth_qwen21 || k->family == &synth_flux3 ? 32 : 16);
    s['C'] = (k->family == &synth_klein ? 3 : k->family == &synth_flux3 ? 8 : 1) * s['h'];
    s['q'] = s['Q'] * s['e'];
    s['k'] = s['K'] * s['e'];
}

lz_status synth_model_of(const char *kind, int64_t blocks, int64_t layers, synth_model *m, lz_error *err) {
    char known[700] = "";
    if (blocks == 1 || blocks > 1024) return lz_fail(err, LZ_BAD_ARGUMENT, "a transformer has 2 to 1024 blocks");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!strcmp(kinds[i].name, kind)) {
            /* FLUX.2 [klein] reads the outputs of three layers and FLUX.3 [klein] of eight, which must not be the last. */
            int least = kinds[i].family == &synth_klein ? 4 : kinds[i].family == &synth_flux3 ? 2 : 1;
            if ((layers && layers < least) || layers > 1024)
                return lz_fail(err, LZ_BAD_ARGUMENT, "its text encoder has %d to 1024 layers", least);
            set_sizes(&kinds[i], blocks, layers, m);
            return LZ_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", kinds[i].name);
    }
    return lz_fail(err, LZ_NOT_FOUND, "there is no kind '%.60s'; there are %s", kind, known);
}

int64_t synth_size(const synth_model *m, const char **text) {
    int64_t n = 0, letter;
    for (; **text >= '0' && **text <= '9'; ++*text) n = 10 * n + **text - '0';
    letter = m->size[**text & 127];
    if (letter) ++*text;
    return (n ? n : 1) * (letter ? letter : 1);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void choose_numbers(synth_tensor *t, enum synth_fill fill) {
    static const double moments[][2] = {
        [EMBEDDING] = {0, 1}, [MEAN] = {0, 0.03}, [VARIANCE] = {2, 0.25}, [COUNTER] = {0, 0}};
    double summed = 1;
    for (int i = 1; i < t->dims.n; i++) summed *= (double)t->dims.at[i];
    bool bias = strstr(t->name, ".bias") != NULL, product = t->dims.n > 1 && !strstr(t->name, ".gamma");
    /* A single picture uses only the last of the three time slices. */
    if (t->dims.n == 5 && t->dims.at[4] == 3) summed /= 3;
    t->mean = fill ? moments[fill][0] : product || bias ? 0 : 1;
    t->deviation = fill ? moments[fill][1] : product ? 1 / sqrt(summed) : bias ? 0.05 : 0.1;
    t->counter = fill == COUNTER;
}

void synth_add(synth_list *l, const char *prefix, const synth_row *rows, int n) {
    if (l->n + n > l->capacity) {
        l->capacity = 2 * l->capacity + 64;
        synth_tensor *more = realloc(l->at, (size_t)l->capacity * sizeof *more);
        if (!more) {
            free(l->at);
            l->n = 0;
            l->capacity = INT32_MAX; /* out of memory: no further attempt */
        }
        l->at = more;
    }
    for (const synth_row *r = rows; l->at && r < rows + n; r++) {
        synth_tensor *t = &l->at[l->n++];
        *t = (synth_tensor){.wide = l->wide};
        snprintf(t->name, sizeof t->name, "%s%s", prefix, r->name);
        for (const char *at = r->shape; *at; at += *at == ' ') t->dims.at[t->dims.n++] = synth_size(&l->model, &at);
        choose_numbers(t, r->fill);
    }
}

void synth_add_numbered(synth_list *l, const char *prefix, int64_t count, const synth_row *rows, int n) {
    for (int64_t i = 0; i < count; i++) {
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%s.%lld.", prefix, (long long)i);
        synth_add(l, numbered, rows, n);
    }
}

void synth_layer(synth_list *l, const char *prefix, const char *name, int64_t in, int64_t out, const synth_row *rows,
                 int n) {
    char full[96];
    snprintf(full, sizeof full, "%s%s.", prefix, name);
    l->model.size['i'] = in;
    l->model.size['o'] = out;
    synth_add(l, full, rows, n);
}

const char *const synth_part_names[SYNTH_PARTS] = {"text_encoder", "transformer", "vae"};

synth_tensor *synth_tensors(const synth_model *m, synth_part part, int *n) {
    synth_list l = {.model = *m};
    m->family->parts[part](&l);
    *n = l.n;
    return l.at;
}

int64_t synth_bytes(const synth_tensor *t) {
    int64_t bytes = t->counter ? 8 : t->wide ? 4 : 2;
    for (int i = 0; i < t->dims.n; i++) bytes *= t->dims.at[i];
    return bytes;
}

const char *synth_type(const synth_tensor *t) { return t->counter ? "I64" : t->wide ? "F32" : "BF16"; }
