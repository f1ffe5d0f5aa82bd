/* test_arguments.c: no argument, including NULL and invalid values, crashes an exported function, and every error has a
 * message.
 *
 * tests/calls.awk reads the headers of include/ and writes calls.h, which has a function for each exported function
 * that calls it with chosen samples. give_KIND(pick) makes a sample: 0 is valid, 1 is the first invalid one (for
 * pointers NULL), and so on; saw_KIND checks the result. Each function is called with all samples invalid, with only
 * the first valid, with all valid, with all but one valid, and with random picks. Each call has its own context. */
#define LZ_NO_SUGAR
#include <limits.h>
#include <unistd.h>

#include "check.h"

/* Kinds of samples, and how many bad ones each has. */
#define KINDS(X)                                                                                                       \
    X(context, 1)                                                                                                      \
    X(array, 8)                                                                                                        \
    X(planes, 8)                                                                                                       \
    X(row, 8)                                                                                                          \
    X(indices, 8)                                                                                                      \
    X(latents, 8)                                                                                                      \
    X(arrays, 4)                                                                                                       \
    X(array_places, 1)                                                                                                 \
    X(scope, 1)                                                                                                        \
    X(stream, 1)                                                                                                       \
    X(compiled, 1)                                                                                                     \
    X(weights, 1)                                                                                                      \
    X(model, 1)                                                                                                        \
    X(tokenizer, 1)                                                                                                    \
    X(job, 1)                                                                                                          \
    X(ended_job, 1)                                                                                                    \
    X(jobs, 2)                                                                                                         \
    X(error, 1)                                                                                                        \
    X(data, 2)                                                                                                         \
    X(place, 1)                                                                                                        \
    X(owned_text, 1)                                                                                                   \
    X(ids, 1)                                                                                                          \
    X(text, 4)                                                                                                         \
    X(path, 4)                                                                                                         \
    X(folder, 4)                                                                                                       \
    X(pairs, 4)                                                                                                        \
    X(int, 5)                                                                                                          \
    X(parts, 4)                                                                                                        \
    X(int64, 4)                                                                                                        \
    X(bytes, 4)                                                                                                        \
    X(length, 4)                                                                                                       \
    X(size, 2)                                                                                                         \
    X(uint64, 2)                                                                                                       \
    X(double, 6)                                                                                                       \
    X(bool, 1)                                                                                                         \
    X(count_place, 1)                                                                                                  \
    X(ids_place, 1)                                                                                                    \
    X(status, 3)                                                                                                       \
    X(dtype, 4)                                                                                                        \
    X(format, 3)                                                                                                       \
    X(dims, 7)                                                                                                         \
    X(axes, 7)                                                                                                         \
    X(addmm, 2)                                                                                                        \
    X(sdpa, 4)                                                                                                         \
    X(rope, 1)                                                                                                         \
    X(conv2d, 4)                                                                                                       \
    X(unpack, 7)                                                                                                       \
    X(context_options, 17)                                                                                             \
    X(plan_info, 1)                                                                                                    \
    X(function, 1)                                                                                                     \
    X(release, 1)                                                                                                      \
    X(named_arrays, 4)                                                                                                 \
    X(image, 8)                                                                                                        \
    X(image_place, 1)                                                                                                  \
    X(convert_options, 4)                                                                                              \
    X(picture_options, 29)                                                                                             \
    X(own_options, 29)                                                                                                 \
    X(picture, 1)                                                                                                      \
    X(pictures, 1)                                                                                                     \
    X(errors, 1)                                                                                                       \
    X(picture_plan, 1)                                                                                                 \
    X(remarks, 1)                                                                                                      \
    X(devices, 1)                                                                                                      \
    X(loras, 6)                                                                                                        \
    X(lora_facts, 1)                                                                                                   \
    X(model_options, 9)                                                                                                \
    X(file_facts, 1)

typedef enum kind {
#define X(name, bad) KIND_##name,
    KINDS(X)
#undef X
} kind;

static const struct {
    const char *name;
    int bad;
} kinds[] = {
#define X(name, bad) {#name, bad},
    KINDS(X)
#undef X
};

enum { MOST_PARAMETERS = 8, PLACES = 8 };

typedef struct call {
    const char *name;
    void (*make)(const int *pick);
    int n;
    kind kinds[MOST_PARAMETERS];
} call;

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* Of the call that is being made. Handles are made when they are first asked for. */
static struct {
    const call *call;
    const int *pick;
    bool all_null;
    lz_context *ctx, *other;
    lz_scope *scope;
    lz_stream *stream;
    lz_compiled *compiled;
    lz_weights *weights;
    lz_model *model;
    lz_job *job, *jobs[LZ_MAX_TOGETHER];
    lz_tokenizer *tokenizer;
    char *text;
    int64_t *ids, *got_ids, got_n;
    lz_error error;
    lz_array *arrays[PLACES];
    lz_named_array named[2];
    lz_image image, images[2];
    lz_picture picture, pictures[LZ_MAX_TOGETHER];
    lz_error errors[LZ_MAX_TOGETHER];
    lz_picture_options options;
    lz_context_options context_options;
    lz_plan_info info;
    lz_picture_plan plan;
    lz_remarks remarks;
    lz_device_info devices[64];
    lz_lora loras[64];
    lz_lora_facts lora_facts[64];
    lz_model_options model_options;
    lz_file_facts file_facts;
    bool has_error; /* the function was given a place for its error */
} now;

static const char model_folder[] = LZ_SOURCE_DIR "/tests/data/flux2/A";
static char folder[600], path[700];
static _Alignas(64) char bytes[1 << 16];

static lz_context *need_context(void) {
    if (!now.ctx) now.ctx = lz_open(.threads = 1);
    return now.ctx;
}

static lz_array *small_array(lz_context *ctx, lz_dims dims, lz_dtype dtype) { return lz_from(ctx, dims, dtype, bytes); }

static lz_array *sample_array(lz_dims good, int pick) {
    lz_context *ctx = need_context();
    lz_array *a = NULL;
    if (pick == 3 && !now.other) now.other = lz_open(.threads = 1);
    switch (pick) {
    case 0: a = small_array(ctx, good, LZ_F32); break;
    case 1: return NULL;
    case 2: a = lz_cast(small_array(ctx, good, LZ_F32), (lz_dtype)99); break; /* poisoned */
    case 3: a = small_array(now.other, good, LZ_F32); break;
    case 4: a = small_array(ctx, good, LZ_I64); break;
    case 5: a = small_array(ctx, LZ_NONE, LZ_F32); break;
    case 6: a = small_array(ctx, LZ_DIMS(0, 3), LZ_F32); break;
    case 7: a = small_array(ctx, good, LZ_F8); break;
    default: a = small_array(ctx, good, LZ_BOOL); break;
    }
    if (!strcmp(now.call->name, "lz_release")) lz_retain(a);
    return a;
}

static lz_context *give_context(int pick) { return pick ? NULL : need_context(); }
static lz_array *give_array(int pick) { return sample_array(LZ_DIMS(2, 2), pick); }
static lz_array *give_planes(int pick) { return sample_array(LZ_DIMS(1, 2, 2, 2), pick); }
static lz_array *give_row(int pick) { return sample_array(LZ_DIMS(2), pick); }
static lz_array *give_latents(int pick) { return sample_array(LZ_DIMS(1, 128, 2, 2), pick); }
static lz_array *give_indices(int pick) { /* the good ones are integers, which are bad elsewhere */
    return sample_array(LZ_DIMS(2, 2), pick == 0 ? 4 : pick == 4 ? 0 : pick);
}

static lz_array *const *give_arrays(int pick) { /* ended by NULL, so that a length that is too large is noticed */
    if (pick == 1) return NULL;
    now.arrays[0] = give_array(pick);
    return now.arrays;
}
static lz_array **give_array_places(int pick) { return pick ? NULL : now.arrays; }

static lz_scope *give_scope(int pick) {
    if (!pick && !now.scope) now.scope = lz_scope_begin(need_context(), "sample");
    return pick ? NULL : now.scope;
}
static lz_stream *give_stream(int pick) {
    if (!pick && !now.stream) now.stream = lz_stream_new(need_context(), NULL);
    return pick ? NULL : now.stream;
}

static void negate(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_neg(in[0]);
}
static lz_function give_function(int pick) { return pick ? NULL : negate; }
static lz_compiled *give_compiled(int pick) {
    if (!pick && !now.compiled) now.compiled = lz_compile(need_context(), negate, NULL, 1, 1, 0, NULL);
    return pick ? NULL : now.compiled;
}
static lz_weights *give_weights(int pick) {
    if (!pick && !now.weights) now.weights = lz_weights_open(need_context(), test_data("python.safetensors"), NULL);
    return pick ? NULL : now.weights;
}
static lz_model *give_model(int pick) {
    if (!pick && !now.model) now.model = lz_model_open(need_context(), model_folder, NULL);
    return pick ? NULL : now.model;
}
static lz_job *give_job(int pick) {
    const lz_picture_options small = LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 32, .height = 32, .steps = 1);
    if (!pick && !now.job) now.job = lz_job_new(give_model(0), &small, NULL);
    return pick ? NULL : now.job;
}
static lz_job *give_ended_job(int pick) { /* whose view does not change any more */
    lz_picture none;
    lz_job *job = give_job(pick);
    lz_job_cancel(job);
    CHECK(lz_job_run(job, &none, NULL) != LZ_OK);
    return job;
}
static lz_job *const *give_jobs(int pick) { /* the others are NULL */
    if (pick == 1) return NULL;
    now.jobs[0] = give_job(pick);
    return now.jobs;
}
static lz_tokenizer *give_tokenizer(int pick) {
    if (!pick && !now.tokenizer) now.tokenizer = lz_tokenizer_open(need_context(), model_folder, NULL);
    return pick ? NULL : now.tokenizer;
}

static lz_error *give_error(int pick) {
    now.has_error = !pick;
    return pick ? NULL : &now.error;
}
static const void *give_data(int pick) { return pick == 0 ? bytes : pick == 1 ? NULL : bytes + 1; }
static void *give_place(int pick) { return pick ? NULL : bytes; }
static void ignore(void *user) { (void)user; }
typedef void (*release_function)(void *);
static release_function give_release(int pick) { return pick ? NULL : ignore; }

static char *give_owned_text(int pick) {
    lz_array *a = small_array(need_context(), LZ_DIMS(2, 2), LZ_F32);
    if (!pick && !now.text) now.text = lz_graph_text(&a, 1, LZ_GRAPH_TEXT, NULL);
    return pick ? NULL : now.text;
}
static int64_t *give_ids(int pick) {
    int64_t n;
    if (!pick && !now.ids) lz_tokenize(give_tokenizer(0), "a fox", 5, &now.ids, &n, NULL);
    return pick ? NULL : now.ids;
}
static int64_t *give_count_place(int pick) { return pick ? NULL : &now.got_n; }
static int64_t **give_ids_place(int pick) { return pick ? NULL : &now.got_ids; }

static const char long_text[] =
    "a very long text that is repeated, a very long text that is repeated, a very long text that is repeated, "
    "a very long text that is repeated, a very long text that is repeated, a very long text that is repeated";
static const char *give_text(int pick) {
    return (const char *[]){"text", NULL, "", "\xff\xfe not UTF-8 \x01%s%n", long_text}[pick];
}
static const char *give_path(int pick) { return (const char *[]){path, NULL, "", "/nowhere/\xff%s%n.png", "/"}[pick]; }
static const char *give_folder(int pick) {
    return (const char *[]){model_folder, NULL, "", "/nowhere/\xff%s%n", path}[pick];
}
static const char *const *give_pairs(int pick) {
    static const char *const good[] = {"key", "value", NULL}, *const odd[] = {"key", NULL, NULL},
                             *const bad[] = {"k\xff", "\xff\xfe", NULL}, *const empty[] = {"", "", NULL};
    return (const char *const *[]){good, NULL, odd, bad, empty}[pick];
}

static int give_int(int pick) { return (int[]){1, -1, 0, INT_MAX, INT_MIN, 100}[pick]; }
static int give_parts(int pick) { return (int[]){1, -1, 0, INT_MIN, PLACES - 1}[pick]; } /* each part has a place */
static int64_t give_int64(int pick) { return (int64_t[]){1, -1, 0, INT64_MAX, INT64_MIN}[pick]; }
static int64_t give_bytes(int pick) { return (int64_t[]){16, -1, 0, INT64_MAX, INT64_MIN}[pick]; }
static int64_t give_length(int pick) { return (int64_t[]){16, -1, 0, INT64_MIN, sizeof bytes - 1}[pick]; }
static size_t give_size(int pick) { return (size_t[]){1, 0, SIZE_MAX}[pick]; }
static uint64_t give_uint64(int pick) { return (uint64_t[]){1, 0, UINT64_MAX}[pick]; }
static double give_double(int pick) { return (double[]){1, NAN, 0, -1, INFINITY, -INFINITY, 1e308}[pick]; }
static bool give_bool(int pick) { return pick; }
static lz_status give_status(int pick) { return (lz_status)(int[]){LZ_IO, -1, LZ_STATUS_COUNT, INT_MAX}[pick]; }
static lz_dtype give_dtype(int pick) { return (lz_dtype)(int[]){LZ_F32, -1, LZ_DTYPE_COUNT, 99, LZ_BOOL}[pick]; }
static lz_graph_format give_format(int pick) { return (lz_graph_format)(int[]){LZ_GRAPH_DOT, -1, 3, INT_MAX}[pick]; }

static lz_dims give_dims(int pick) {
    return (lz_dims[]){LZ_DIMS(2, 2),
                       {.n = -1},
                       {.n = 100},
                       {.n = INT_MAX},
                       {.n = INT_MIN},
                       LZ_DIMS(-1, -5),
                       LZ_DIMS(INT64_MAX, INT64_MAX),
                       LZ_NONE}[pick];
}

static lz_dims give_axes(int pick) { return pick ? give_dims(pick) : LZ_DIMS(1, 0); }

static lz_addmm_options give_addmm(int pick) {
    return (lz_addmm_options[]){{0}, {.alpha = NAN, .beta = INFINITY}, {.alpha = -1, .beta = 1e308}}[pick];
}
static lz_sdpa_options give_sdpa(int pick) {
    lz_sdpa_options o = {.causal = pick == 4, .scale = pick == 1 ? NAN : 0};
    if (pick > 1) o.mask = give_planes(pick);
    return o;
}
static lz_rope_options give_rope(int pick) { return (lz_rope_options){.half_split = pick}; }
static lz_unpack_options give_unpack(int pick) {
    return (lz_unpack_options[]){{.packing = "u8", .columns = 1},
                                 {0},
                                 {.packing = "u9"},
                                 {.packing = "u8", .columns = INT64_MAX, .group = INT64_MAX},
                                 {.packing = "u8", .columns = -1, .group = -1, .row_group = INT64_MIN},
                                 {.packing = "q4_k", .rotate = INT_MAX},
                                 {.packing = "u8", .dtype = LZ_I64, .factor = NAN},
                                 {.packing = "e2m1", .row_group = INT64_MAX, .factor = INFINITY, .rotate = -4}}[pick];
}
static lz_conv2d_options give_conv2d(int pick) {
    return (lz_conv2d_options[]){{0},
                                 {.stride = -1},
                                 {.stride = INT_MAX},
                                 {.top = -1, .left = INT_MIN},
                                 {.top = INT_MAX, .bottom = INT_MAX, .left = INT_MAX, .right = INT_MAX}}[pick];
}

static void *no_memory(void *user, size_t n) {
    (void)user, (void)n;
    return NULL;
}
static const lz_context_options *give_context_options(int pick) {
    static const lz_allocator empty, half = {.allocate = no_memory};
    const lz_context_options samples[] = {
        {.threads = 1},
        {0},
        {.device = ""},
        {.device = "cuda:-1"},
        {.device = "cuda:99999999999"},
        {.device = long_text},
        {.threads = INT_MAX},
        {.threads = INT_MIN},
        {.memory_limit = -1, .cache_limit = INT64_MIN},
        {.memory_limit = INT64_MAX, .cache_limit = INT64_MAX},
        {.isa = "\xff%n"},
        {.allocator = &empty},
        {.allocator = &half},
        {.compute = 99},
        {.offload = -1},
        {.size = 0}, /* see below: bad sizes */
        {.size = 1},
        {.size = SIZE_MAX},
    };
    now.context_options = samples[pick];
    if (pick < 15) now.context_options.size = sizeof now.context_options;
    return pick == 1 ? NULL : &now.context_options;
}
static const lz_model_options *give_model_options(int pick) {
    const lz_model_options samples[] = {
        {.model = model_folder},
        {0},
        {.model = NULL},
        {.model = ""},
        {.model = model_folder, .variant = "\xff%n"},
        {.model = model_folder, .vae = ""},
        {.model = model_folder, .tokenizer = long_text},
        {.model = long_text, .text_encoder = "", .vision = ""},
        {.size = 1}, /* bad sizes */
        {.size = SIZE_MAX},
    };
    now.model_options = samples[pick];
    if (pick < 8) now.model_options.size = sizeof now.model_options;
    return pick == 1 ? NULL : &now.model_options;
}
static lz_file_facts *give_file_facts(int pick) { return pick ? NULL : &now.file_facts; }
static lz_plan_info *give_plan_info(int pick) { return pick ? NULL : &now.info; }

static const lz_named_array *give_named_arrays(int pick) { /* ended by a NULL name, as above */
    now.named[0] = (lz_named_array){pick == 2 ? NULL : pick == 4 ? "\xff" : "name", give_array(pick == 3 ? 2 : 0)};
    return pick == 1 ? NULL : now.named;
}

static const lz_image *give_image(int pick) {
    now.images[0] = (lz_image[]){{32, 32, (uint8_t *)bytes, 3},
                                 {0},
                                 {32, 32, NULL, 3},
                                 {-32, -32, (uint8_t *)bytes, 3},
                                 {INT64_MAX, INT64_MAX, (uint8_t *)bytes, 3},
                                 {(int64_t)1 << 33, (int64_t)1 << 33, (uint8_t *)bytes, 3},
                                 {1, INT64_MAX, (uint8_t *)bytes, 3},
                                 {32, 32, (uint8_t *)bytes, 4},
                                 {32, 32, (uint8_t *)bytes, INT_MIN}}[pick];
    return pick == 1 ? NULL : now.images;
}
static lz_image *give_image_place(int pick) { return pick ? NULL : &now.image; }

static lz_picture_options *give_own_options(int pick) {
    lz_picture_options samples[] = {
        {0},
        {0}, /* NULL */
        {.width = -5},
        {.height = INT64_MIN},
        {.width = INT64_MAX, .height = INT64_MAX},
        {.steps = -1},
        {.steps = INT_MAX},
        {.guidance = NAN},
        {.guidance = INFINITY},
        {.guidance = -1},
        {.strength = NAN},
        {.strength = 2},
        {.strength = 0.5},
        {.n_images = 5},
        {.n_images = -1, .images = now.images},
        {.n_images = INT_MAX, .images = now.images},
        {.n_images = 1, .images = give_image(2)},
        {.n_images = 1, .strength = 0.5, .images = now.images}, /* the same image, without pixels */
        {.prompt = "\xff\xfe"},
        {.negative = "\xff\xfe", .guidance = 7},
        {.noise = NULL}, /* see below: bad arrays */
        {.noise = NULL},
        {.noise = NULL},
        {.preview = 99},
        {.preview = -1},
        {.preview = LZ_PREVIEW_SMALL, .preview_pause = NAN},
        {.preview = LZ_PREVIEW_SMALL, .preview_pause = -1},
        {.n_images = 1, .images = now.images}, /* huge */
        {.size = 0},                           /* see below: bad sizes */
        {.size = SIZE_MAX},
    };
    if (pick >= 20 && pick <= 22) samples[pick].noise = give_latents(pick - 18);
    if (pick == 27) give_image(4);
    now.options = samples[pick];
    if (pick < 28) now.options.size = sizeof now.options;
    if (!now.options.prompt) now.options.prompt = "a fox";
    if (!now.options.steps) now.options.steps = 1;
    if (!now.options.width) now.options.width = 32;
    if (!now.options.height) now.options.height = 32;
    return pick == 1 ? NULL : &now.options;
}
static const lz_picture_options *give_picture_options(int pick) { return give_own_options(pick); }
static const lz_convert_options *give_convert_options(int pick) {
    static const lz_convert_options samples[] = {
        {.size = sizeof(lz_convert_options), .type = "bf16"},
        {.size = sizeof(lz_convert_options)},
        {.size = 1, .type = "bf16"},
    };
    return pick < 3 ? &samples[pick] : NULL;
}
static lz_picture *give_picture(int pick) { return pick ? NULL : &now.picture; }
static lz_picture *give_pictures(int pick) { return pick ? NULL : now.pictures; }
static lz_error *give_errors(int pick) { return pick ? NULL : now.errors; }
static lz_picture_plan *give_picture_plan(int pick) { return pick ? NULL : &now.plan; }
static lz_remarks *give_remarks(int pick) { return pick ? NULL : &now.remarks; }
static lz_device_info *give_devices(int pick) { return pick ? NULL : now.devices; }
static lz_lora_facts *give_lora_facts(int pick) { return pick ? NULL : now.lora_facts; }

static const lz_lora *give_loras(int pick) {
    static const char file[] = LZ_SOURCE_DIR "/tests/data/lora/klein-few.safetensors";
    const lz_lora samples[] = {
        LZ_LORA(.path = file, .weight = 1),   LZ_LORA(.path = file), /* NULL */
        LZ_LORA(.path = NULL, .weight = 1),   LZ_LORA(.path = "/nonexistent", .weight = 1),
        LZ_LORA(.path = file, .weight = NAN), {.path = file},
        {.size = SIZE_MAX, .path = file},
    };
    for (size_t i = 0; i < sizeof now.loras / sizeof *now.loras; i++) now.loras[i] = samples[pick];
    return pick == 1 ? NULL : now.loras;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* "lz_sum(array 1, dims 0, bool 0)" */
static const char *shown_call(void) {
    static char text[400];
    int at = snprintf(text, sizeof text, "%s(", now.call->name);
    for (int i = 0; i < now.call->n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s %d", i ? ", " : "", kinds[now.call->kinds[i]].name,
                       now.pick[i]);
    snprintf(text + at, sizeof text - (size_t)at, ")");
    return text;
}

static void saw_failure(lz_status status) {
    if (now.has_error)
        CHECK(now.error.status == status && now.error.text[0], "%s: gave %s, and says '%s'", shown_call(),
              lz_status_name(status), now.error.text);
}

static void saw_nothing(void) {
    CHECK(!now.error.status || now.error.text[0], "%s: an error without a text", shown_call());
}
static void saw_status(lz_status status) {
    saw_nothing();
    CHECK(!now.all_null || status != LZ_OK, "%s: NULLs are an error", shown_call());
    if (status != LZ_OK) saw_failure(status);
}

/* A handle, a text or data: there, or an error says why not. */
static void saw_pointer(const void *pointer, bool says_why) {
    saw_nothing();
    if (!pointer && says_why) saw_failure(now.error.status ? now.error.status : LZ_OK + 1);
}
static void saw_number(double number) {
    (void)number;
    saw_nothing();
}
static void saw_text(const char *text) { saw_number(text ? (double)strlen(text) : 0); }
static void saw_data(const void *data) { saw_pointer(data, true); }
static void saw_dims(lz_dims dims) { CHECK(dims.n >= 0 && dims.n <= LZ_MAX_DIMS, "%s", shown_call()); }
static void saw_memory(lz_memory memory) { CHECK(!now.all_null || memory.allocations == 0, "%s", shown_call()); }
static void saw_stats(lz_compile_stats stats) { CHECK(!now.all_null || stats.calls == 0, "%s", shown_call()); }
static void saw_facts(lz_model_facts facts) { CHECK(!now.all_null || facts.width == 0, "%s", shown_call()); }
static void saw_scope(lz_scope *scope) {
    saw_pointer(scope, false);
    lz_scope_end(scope);
}
static void saw_context(lz_context *ctx) {
    bool opened = !strcmp(now.call->name, "lz_open_with");
    saw_pointer(ctx, opened);
    if (opened) lz_close(ctx);
}
static void saw_stream(lz_stream *stream) {
    saw_pointer(stream, true);
    lz_stream_free(stream);
}
static void saw_compiled(lz_compiled *compiled) {
    saw_pointer(compiled, true);
    lz_compiled_free(compiled);
}
static void saw_weights(lz_weights *weights) {
    saw_pointer(weights, true);
    lz_weights_close(weights);
}
static void saw_model(lz_model *model) {
    saw_pointer(model, true);
    lz_model_close(model);
}
static void saw_job(lz_job *job) {
    saw_pointer(job, true);
    lz_job_free(job);
}
static void saw_view(lz_job_view view) { CHECK(!now.all_null || view.status != LZ_OK, "%s", shown_call()); }
static void saw_settled(const lz_picture_options *options) { CHECK(!now.all_null || !options, "%s", shown_call()); }
static void saw_tokenizer(lz_tokenizer *tokenizer) {
    saw_pointer(tokenizer, true);
    lz_tokenizer_free(tokenizer);
}
static void saw_owned_text(char *text) {
    bool own = !now.call->n || now.call->kinds[0] != KIND_owned_text; /* lz_printable returns its argument */
    saw_pointer(text, own);
    if (own) lz_free_text(now.ctx, text);
}

/* Poisoned with a sentence, or an array that can be evaluated, or says why not. */
static void saw_array(lz_array *a) {
    lz_error err = {.status = LZ_OK};
    lz_status status = lz_check(a, &err);
    CHECK(!now.all_null || status != LZ_OK, "%s: NULLs give a poisoned array", shown_call());
    if (!status && lz_size(a) < 1000000) status = lz_eval(a, &err);
    CHECK(!status || (err.status == status && err.text[0]), "%s: an error without a text", shown_call());
    if (!strcmp(now.call->name, "lz_retain")) lz_release(a);
}

#include "calls.h"

/* ---- calling ----------------------------------------------------------------------------------------------------- */

/* Functions that end the life of a sample. */
static const struct {
    const char *name;
    void **sample;
} endings[] = {
    {"lz_close", (void **)&now.ctx},
    {"lz_scope_end", (void **)&now.scope},
    {"lz_scope_return", (void **)&now.scope},
    {"lz_stream_free", (void **)&now.stream},
    {"lz_compiled_free", (void **)&now.compiled},
    {"lz_weights_close", (void **)&now.weights},
    {"lz_model_close", (void **)&now.model},
    {"lz_job_free", (void **)&now.job},
    {"lz_tokenizer_free", (void **)&now.tokenizer},
    {"lz_free_text", (void **)&now.text},
    {"lz_free_ids", (void **)&now.ids},
};

static void clean_up(void) {
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strcmp(endings[i].name, now.call->name) && !now.pick[0]) *endings[i].sample = NULL;
    lz_picture_free(&now.picture);
    for (int i = 0; i < LZ_MAX_TOGETHER; i++) lz_picture_free(&now.pictures[i]);
    if (now.ctx) {
        lz_image_free(now.ctx, &now.image);
        lz_free_text(now.ctx, now.text);
        lz_free_ids(now.ctx, now.ids);
        lz_free_ids(now.ctx, now.got_ids);
    }
    lz_tokenizer_free(now.tokenizer);
    lz_job_free(now.job);
    lz_model_close(now.model);
    lz_weights_close(now.weights);
    lz_compiled_free(now.compiled);
    lz_stream_free(now.stream);
    lz_scope_end(now.scope);
    lz_close(now.ctx);
    lz_close(now.other);
}

static void make_call(const call *c, const int *pick, bool all_null) {
    memset(&now, 0, sizeof now);
    now.call = c;
    now.pick = pick;
    now.all_null = all_null && c->n;
    if (getenv("LZ_TEST_SHOW")) fprintf(stderr, "%s\n", shown_call()); /* the last one is the one that crashed */
    c->make(pick);
    clean_up();
}

static int bad_pick(const call *c, int i, int variant) { return 1 + variant % kinds[c->kinds[i]].bad; }

static int most_bad(const call *c) {
    int most = 1;
    for (int i = 0; i < c->n; i++)
        if (kinds[c->kinds[i]].bad > most) most = kinds[c->kinds[i]].bad;
    return most;
}

static void all_bad(void) {
    for (size_t f = 0; f < sizeof calls / sizeof *calls; f++)
        for (int v = 0; v < most_bad(&calls[f]); v++) {
            int pick[MOST_PARAMETERS] = {0};
            for (int i = 0; i < calls[f].n; i++)
                pick[i] = calls[f].kinds[i] == KIND_error ? v % 2 : bad_pick(&calls[f], i, v);
            make_call(&calls[f], pick, v == 0);
        }
}

static void first_good(void) {
    for (size_t f = 0; f < sizeof calls / sizeof *calls; f++)
        for (int v = 0; v < most_bad(&calls[f]); v++) {
            int pick[MOST_PARAMETERS] = {0};
            for (int i = 1; i < calls[f].n; i++)
                pick[i] = calls[f].kinds[i] == KIND_error ? v % 2 : bad_pick(&calls[f], i, v);
            make_call(&calls[f], pick, false);
        }
}

static void one_bad(void) {
    for (size_t f = 0; f < sizeof calls / sizeof *calls; f++) {
        int pick[MOST_PARAMETERS] = {0};
        make_call(&calls[f], pick, false);
        for (int i = 0; i < calls[f].n; i++) {
            for (int v = 0; v < kinds[calls[f].kinds[i]].bad; v++) {
                pick[i] = bad_pick(&calls[f], i, v);
                make_call(&calls[f], pick, false);
            }
            pick[i] = 0;
        }
    }
}

static void random_picks(void) {
    test_random random = {9};
    for (size_t f = 0; f < sizeof calls / sizeof *calls; f++)
        for (int k = 0; k < test_scale(20); k++) {
            int pick[MOST_PARAMETERS] = {0};
            for (int i = 0; i < calls[f].n; i++)
                if (random_chance(&random, 50)) pick[i] = (int)random_int(&random, 1, kinds[calls[f].kinds[i]].bad);
            make_call(&calls[f], pick, false);
        }
}

/* Each name of the list that the linker exports is in the table, and no other. */
static void every_function(void) {
    FILE *list = fopen(LZ_EXPORTS, "r");
    if (!CHECK(list != NULL, "%s is not there", LZ_EXPORTS)) return;
    char line[200];
    size_t exported = 0;
    while (fgets(line, sizeof line, list)) {
        char *name = strstr(line, "lz_"), *end = name ? strchr(name, ';') : NULL;
        if (!end) continue;
        *end = 0;
        exported++;
        bool found = false;
        for (size_t f = 0; f < sizeof calls / sizeof *calls; f++) found = found || !strcmp(calls[f].name, name);
        CHECK(found, "%s is exported, but not called here", name);
    }
    fclose(list);
    CHECK(exported == sizeof calls / sizeof *calls, "%zu are exported, %zu called", exported,
          sizeof calls / sizeof *calls);
}

/* Handles and options are what they should be, or the calls would try nothing: a whole picture is made. */
static void good_samples(void) {
    static const int good[MOST_PARAMETERS];
    memset(&now, 0, sizeof now);
    now.call = calls;
    now.pick = good;
    CHECK(give_context(0) && give_scope(0) && give_stream(0) && give_compiled(0) && give_weights(0));
    CHECK(give_tokenizer(0) && give_ids(0) && give_owned_text(0));
    lz_error *err = give_error(0);
    if (CHECK(give_model(0) != NULL))
        CHECK_OK(lz_generate_with(now.model, give_picture_options(0), give_picture(0), err), err);
    lz_decode_latents(now.model, give_latents(0), give_image_place(0), err); /* zeros may give a flat picture */
    CHECK(!err->status || err->status == LZ_BAD_FILE, "%s", err->text);
    CHECK_OK(lz_check(lz_rms_norm(give_array(0), give_row(0), 1), err), err);
    CHECK_OK(lz_check(lz_take(give_array(0), give_indices(0), 0), err), err);
    clean_up();
}

/* Files are written to a folder of their own. */
static void make_files(void) {
    snprintf(folder, sizeof folder, "%s/lazuli-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/picture.png", folder);
}
static void remove_files(void) {
    unlink(path);
    CHECK(rmdir(folder) == 0, "something was left in %s", folder);
}

TEST_MAIN({"every_function", every_function}, {"good_samples", good_samples}, {"make_files", make_files},
          {"all_bad", all_bad}, {"first_good", first_good}, {"one_bad", one_bad}, {"random_picks", random_picks},
          {"remove_files", remove_files})
