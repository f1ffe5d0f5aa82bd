/* context.c: opening and closing contexts. A context owns its threads, memory and locks, and shares nothing with other
 * contexts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "graph/graph.h"

enum { DEFAULT_CACHE = 64 << 20 };

static void init_locks(lz_context *ctx) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&ctx->base.lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&ctx->run_lock, NULL);
    pthread_mutex_init(&ctx->base.log_lock, NULL);
    pthread_cond_init(&ctx->event_done, NULL);
    pthread_cond_init(&ctx->arrived, NULL);
}

/* The poisoned array that every op returns if memory runs out. It is allocated when the context is opened. */
static lz_array *make_no_memory(lz_context *ctx) {
    lz_array *a = lz_host_alloc(ctx, sizeof *a);
    lz_error *error = lz_host_alloc(ctx, sizeof *error);
    if (!a || !error) {
        lz_host_free(ctx, a);
        lz_host_free(ctx, error);
        return NULL;
    }
    lz_fail(error, LZ_OUT_OF_MEMORY,
            "out of memory while describing an array; free some arrays, or describe fewer at once");
    *a = (lz_array){.ctx = ctx, .refs = 1, .dtype = LZ_F32, .error = error, .in = a->inline_in};
    return a;
}

static const lz_backend *find_ref(const lz_context_options *options, lz_error *err) {
    (void)options, (void)err;
    return lz_ref_backend();
}

static const lz_backend *find_cpu(const lz_context_options *options, lz_error *err) {
    return lz_cpu_backend(options->isa, err);
}

static const lz_backend *find_cuda(const lz_context_options *options, lz_error *err) {
    (void)options, (void)err;
    return lz_cuda_backend();
}

/* The backends by name. A name that is numbered may be followed by ':' and the number of a device. */
static const struct {
    const char *name;
    bool numbered, listed; /* listed: reported by lz_find_devices, in this order */
    const lz_backend *(*find)(const lz_context_options *options, lz_error *err); /* NULL: err has the reason */
} backends[] = {
    {"cpu", .listed = true, .find = find_cpu},
    {"cuda", .numbered = true, .listed = true, .find = find_cuda},
    {"ref", .find = find_ref},
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

/* ":2" -> 2, "" -> 0; -1: not a number, or too large */
static int device_number(const char *digits) {
    if (!*digits) return 0;
    int number = 0, n = 0;
    bool colon = *digits == ':';
    for (digits++; *digits >= '0' && *digits <= '9' && n < 4; digits++, n++) number = 10 * number + (*digits - '0');
    return colon && n && !*digits ? number : -1;
}

static const lz_backend *find_backend(const lz_context_options *options, int *number, lz_error *err) {
    const char *device = options->device ? options->device : backends[0].name;
    for (int i = 0; i < BACKENDS; i++) {
        size_t n = strlen(backends[i].name);
        if (strncmp(device, backends[i].name, n) != 0 || (device[n] && !backends[i].numbered)) continue;
        if ((*number = device_number(device + n)) >= 0) return backends[i].find(options, err);
    }
    lz_fail(err, LZ_NOT_FOUND, "there is no device '%s'; use 'cpu', 'cuda', 'cuda:1' or 'ref'", device);
    return NULL;
}

/* Opens the device of a backend that has one. */
static bool open_device(lz_context *ctx, int number, const lz_context_options *options, lz_error *err) {
    if (!ctx->backend->device) return true;
    ctx->device = ctx->backend->device->open(ctx, number, options, err);
    return ctx->device;
}

/* The type that models compute in: the requested one; by default f32, on a device bf16. */
static lz_dtype compute_type(const lz_backend *backend, int asked) {
    if (asked == LZ_F32 || asked == LZ_BF16) return (lz_dtype)asked;
    bool narrow = asked == LZ_I8 || asked == LZ_F8;
    return backend->half && (asked == LZ_FASTEST || narrow || backend->device) ? LZ_BF16 : LZ_F32;
}

/* The ways of computing in 8 bits: the ops of which the backend must have one, and how messages call them. */
typedef struct narrow_way {
    int compute;
    lz_op ops[2];
    const char *folder, *products, *owner;
} narrow_way;

static const narrow_way *find_narrow(int compute) {
    static const narrow_way ways[] = {
        {LZ_I8, {LZ_OP_INT8_MATMUL, LZ_OP_CODES_MATMUL}, "int8", "8-bit integers", "CPUs and NVIDIA GPUs have"},
        {LZ_F8,
         {LZ_OP_CODES_MATMUL, LZ_OP_CODES_MATMUL},
         "fp8",
         "fp8",
         "NVIDIA GPUs of compute capability 8.9 (Ada) or newer have"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i].compute == compute) return &ways[i];
    return NULL;
}

/* false, with a sentence in err: the backend or its device, if that is open, has no such products. */
static bool can_narrow(const lz_backend *backend, const lz_device *device, const narrow_way *way, lz_error *err) {
    bool able = !way;
    for (int i = 0; i < 2 && !able; i++) {
        const lz_kernel *kernel = backend->kernel(way->ops[i]);
        able = kernel && kernel->run;
    }
    if (able && way && device)
        able = backend->device->multiplies && backend->device->multiplies(device, (lz_dtype)way->compute);
    if (!able)
        lz_fail(err, LZ_BAD_TYPE, "the device '%s' has no products of %s; %s",
                device ? backend->device->name(device) : backend->name, way->products, way->owner);
    return able;
}

lz_context *lz_open_with(const lz_context_options *given, lz_error *err) {
    lz_context_options own = LZ_CONTEXT_OPTIONS(), *options = &own;
    if (given && lz_read_options(&own, sizeof own, given, "LZ_CONTEXT_OPTIONS", err) != LZ_OK) return NULL;
    if (!err) err = options->error;
    const narrow_way *narrow = find_narrow(options->compute);
    if (options->compute && options->compute != LZ_F32 && options->compute != LZ_BF16 && !narrow &&
        options->compute != LZ_FASTEST) {
        lz_fail(err, LZ_BAD_TYPE, "models compute in f32, bf16, int8 or fp8, not in type %d", options->compute);
        return NULL;
    }
    if (options->offload < LZ_OFFLOAD_AUTO || options->offload > LZ_OFFLOAD_STREAM) {
        lz_fail(err, LZ_BAD_ARGUMENT, "offload is auto, none or stream, not %d", options->offload);
        return NULL;
    }
    const lz_allocator *allocator = options->allocator ? options->allocator : &lz_system_allocator;
    if (!allocator->allocate || !allocator->release) {
        lz_fail(err, LZ_BAD_ARGUMENT, "open: an allocator needs both of its functions, allocate and release");
        return NULL;
    }
    int number = 0;
    const lz_backend *backend = find_backend(options, &number, err);
    if (!backend) return NULL;
    if (!can_narrow(backend, NULL, narrow, err)) return NULL;
    lz_context *ctx = allocator->allocate(allocator->user, sizeof *ctx);
    if (!ctx) {
        lz_out_of_memory(err, sizeof *ctx);
        return NULL;
    }
    memset(ctx, 0, sizeof *ctx);
    ctx->base.allocator = *allocator;
    ctx->backend = backend;
    ctx->fusion = backend->fuses && !options->no_fusion;
    ctx->compute = compute_type(backend, options->compute);
    ctx->int8 = options->compute == LZ_I8;
    ctx->fp8 = options->compute == LZ_F8;
    ctx->offload = (lz_offload)options->offload;
    ctx->memory.limit = options->memory_limit > 0 ? options->memory_limit : 0;
    ctx->base.allocations = 1;
    ctx->cache_limit = options->cache_limit ? options->cache_limit : DEFAULT_CACHE;
    if (ctx->cache_limit < 0) ctx->cache_limit = 0;
    ctx->base.log = options->log;
    ctx->base.log_user = options->log_user;
    ctx->quantising = options->quantising;
    ctx->quantising_user = options->quantising_user;
    ctx->root.ctx = ctx;
    init_locks(ctx);
    ctx->no_memory = make_no_memory(ctx);
    ctx->base.pool = lz_pool_new(ctx, options->threads);
    bool keeps = narrow && options->cache_folder && *options->cache_folder;
    if (keeps) ctx->narrow_folder = lz_path_join(ctx, options->cache_folder, narrow->folder);
    if (!ctx->no_memory || !ctx->base.pool || !lz_profile_new(ctx) || (keeps && !ctx->narrow_folder)) {
        lz_fail(err, LZ_OUT_OF_MEMORY,
                "out of memory while opening a context: its threads or first objects could not be made");
        lz_close(ctx);
        return NULL;
    }
    if (!open_device(ctx, number, options, err) || !can_narrow(backend, ctx->device, narrow, err)) {
        lz_close(ctx);
        return NULL;
    }
    int threads = lz_pool_threads(ctx->base.pool);
    if (ctx->device)
        snprintf(ctx->device_name, sizeof ctx->device_name, "%s (%s)", backend->name,
                 backend->device->name(ctx->device));
    else
        snprintf(ctx->device_name, sizeof ctx->device_name, "%s, %d thread%s", backend->name, threads,
                 threads == 1 ? "" : "s");
    return ctx;
}

void lz_close(lz_context *ctx) {
    if (!ctx) return;
    while (ctx->scopes) lz_scope_end(ctx->scopes);
    lz_scope_clear(&ctx->root);
    lz_profile_free(ctx);
    if (ctx->no_memory) {
        lz_host_free(ctx, ctx->no_memory->error);
        lz_host_free(ctx, ctx->no_memory);
    }
    lz_preload_free(ctx);
    lz_buffer_release(ctx->ring);
    lz_clear_cache(ctx);
    if (ctx->device) ctx->backend->device->close(ctx->device);
    if (ctx->base.pool) lz_pool_free(ctx, ctx->base.pool);
    lz_host_free(ctx, ctx->narrow_folder);
    pthread_cond_destroy(&ctx->arrived);
    pthread_cond_destroy(&ctx->event_done);
    pthread_mutex_destroy(&ctx->base.log_lock);
    pthread_mutex_destroy(&ctx->run_lock);
    pthread_mutex_destroy(&ctx->base.lock);
    lz_allocator allocator = ctx->base.allocator;
    allocator.release(allocator.user, ctx, sizeof *ctx);
}

int lz_find_devices(const lz_context_options *given, lz_device_info *devices, int n, lz_error *err) {
    lz_context_options own = LZ_CONTEXT_OPTIONS();
    if (n < 0 || (n && !devices)) {
        lz_fail(err, LZ_BAD_ARGUMENT, "find_devices: devices is NULL, and n is %d", n);
        return -1;
    }
    if (given && lz_read_options(&own, sizeof own, given, "LZ_CONTEXT_OPTIONS", err) != LZ_OK) return -1;
    int found = 0;
    for (int i = 0; i < BACKENDS; i++) {
        if (!backends[i].listed) continue;
        const lz_backend *backend = backends[i].find(&own, err);
        if (!backend) return -1;
        lz_device_info *to = found < n ? devices + found : NULL;
        if (backend->device)
            found += backend->device->list(&own, to, found < n ? n - found : 0);
        else {
            if (to) {
                *to = (lz_device_info){.memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)};
                snprintf(to->device, sizeof to->device, "%s", backends[i].name);
                snprintf(to->name, sizeof to->name, "%s", backend->name);
            }
            found++;
        }
    }
    return found;
}

lz_dtype lz_compute_type(const lz_context *ctx) { return ctx ? ctx->compute : LZ_F32; }

const char *lz_precision_name(const lz_context *ctx) {
    if (ctx && (ctx->int8 || ctx->fp8)) return ctx->int8 ? "int8" : "fp8";
    return lz_dtype_name(lz_compute_type(ctx));
}
const char *lz_device_name(const lz_context *ctx) { return ctx ? ctx->device_name : "no context"; }
