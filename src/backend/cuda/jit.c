/* jit.c: from CUDA C++ text to a loaded function. It is looked for in this order:
 *
 *   in this device's table, by the text
 *   on disk, in cuda/ of lz_context_options.cache_folder, where an earlier process stored the compiled code
 *   otherwise NVRTC compiles it, which takes up to a second. So the first run of a program begins with a rehearsal,
 *     which lists all missing functions; they are compiled on several threads, while other programs may run
 *
 * If the folder cannot be written, the next process compiles again; that is no error (backend/common/disk.h). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/load.h"
#include "backend/cuda/own.h"

enum { BUCKETS = 512 };

typedef struct known {
    struct known *next;
    uint64_t hash;
    char *name, *text;
    lz_cu_module module;
    lz_cu_function function; /* NULL: not compiled or not loaded yet */
    bool missing;            /* requested during a rehearsal */
} known;

struct lz_cuda_jit {
    known *buckets[BUCKETS];
    int64_t n_missing;
    /* Compiler option; GPU, versions and options, which are part of the key on disk. */
    char architecture[32], release[192];
    lz_fault *fault;
};

/* ---- compiling --------------------------------------------------------------------------------------------------- */

/* Adds a text with its lines #include "NAME" replaced by those files. */
static bool add_expanded(lz_text *to, const char *text, lz_error *err) {
    static const char include[] = "#include \"";
    while (*text) {
        size_t line = strcspn(text, "\n");
        if (text[line]) line++;
        const char *name = text + sizeof include - 1;
        if (strncmp(text, include, sizeof include - 1) != 0) {
            lz_text_add(to, "%.*s", (int)line, text);
        } else {
            const lz_cuda_source *s = lz_cuda_sources;
            size_t n = strcspn(name, "\"\n");
            while (s->name && (strlen(s->name) != n || strncmp(s->name, name, n) != 0)) s++;
            if (!s->name) {
                lz_fail(err, LZ_BAD_ARGUMENT, "there is no kernel file %.*s", (int)n, name);
                return false;
            }
            if (!add_expanded(to, s->text, err)) return false;
        }
        text += line;
    }
    return true;
}

/* Puts the compiler's log into err, as far as it fits. The text is ours, so such an error is a bug in this library. */
static void tell_log(const lz_device *d, lz_nvrtc_program program, lz_nvrtc_result result, const char *name,
                     lz_error *err) {
    size_t bytes = 0;
    if (program) d->api.nvrtc.GetProgramLogSize(program, &bytes);
    char *log = bytes ? lz_host_alloc(d->ctx, bytes + 1) : NULL;
    if (log && d->api.nvrtc.GetProgramLog(program, log) != LZ_NVRTC_SUCCESS) *log = 0;
    lz_fail(err, LZ_DEVICE_FAILED, "kernel %s does not compile (%s): %.400s", name, d->api.nvrtc.GetErrorString(result),
            log ? log : "");
    lz_host_free(d->ctx, log);
}

/* The compilation of a text. */
typedef struct translation {
    known *of;
    char *key; /* release, an empty line, the text; owned */
    lz_nvrtc_program program;
    lz_nvrtc_result result;
    const char *stored; /* code that an earlier process left on disk, in memory; NULL: none */
    char *memory;       /* owned */
} translation;

/* Compiles. Several threads may run this at once: it only uses its own translation, and constants of the device. */
static void translate(const lz_device *d, translation *t) {
    const char *options[] = {d->jit->architecture, "--std=c++17", "--fmad=false", "-default-device"};
    const char *text = strstr(t->key, "\n\n") + 2;
    lz_cuda_trace(d, "compiling %s", t->of->name);
    t->result = d->api.nvrtc.CreateProgram(&t->program, text, t->of->name, 0, NULL, NULL);
    if (t->result == LZ_NVRTC_SUCCESS)
        t->result = d->api.nvrtc.CompileProgram(t->program, sizeof options / sizeof *options, options);
    else
        t->program = NULL;
}

/* The machine code, which the caller frees; NULL: err has the reason. Ends the translation. */
static char *take_code(const lz_device *d, translation *t, size_t *bytes, lz_error *err) {
    char *code = NULL;
    if (t->result == LZ_NVRTC_SUCCESS) t->result = d->api.nvrtc.GetCUBINSize(t->program, bytes);
    if (t->result == LZ_NVRTC_SUCCESS && !(code = lz_host_alloc(d->ctx, *bytes + 1))) {
        lz_out_of_memory(err, (int64_t)*bytes);
    } else {
        if (code) t->result = d->api.nvrtc.GetCUBIN(t->program, code);
        if (t->result != LZ_NVRTC_SUCCESS) {
            tell_log(d, t->program, t->result, t->of->name, err);
            lz_host_free(d->ctx, code);
            code = NULL;
        }
    }
    if (t->program) d->api.nvrtc.DestroyProgram(&t->program);
    return code;
}

static bool load(const lz_device *d, known *k, const char *code, lz_error *err) {
    if (!lz_cuda_ok(d, d->api.cu.ModuleLoadData(&k->module, code), "loading a kernel", err)) return false;
    if (lz_cuda_ok(d, d->api.cu.ModuleGetFunction(&k->function, k->module, k->name), k->name, err)) return true;
    d->api.cu.ModuleUnload(k->module);
    k->module = NULL;
    return false;
}

/* The key on disk: versions and options that the code depends on, an empty line, and the whole text of the kernel. */
static char *key_of(const lz_device *d, const char *text, lz_error *err) {
    lz_text key = {.ctx = d->ctx};
    lz_text_add(&key, "%s\n\n", d->jit->release);
    if (!add_expanded(&key, "#include \"params.h\"\n#include \"prelude.cu\"\n", err) ||
        !add_expanded(&key, text, err)) {
        lz_host_free(d->ctx, key.data);
        return NULL;
    }
    return lz_text_take(&key, err);
}

/* As translate, any thread may do it. */
static void find_stored(const lz_device *d, translation *t) {
    size_t bytes = 0;
    t->stored = lz_disk_find(&d->disk, t->key, &bytes, &t->memory);
}

static bool load_translated(const lz_device *d, translation *t, lz_error *err) {
    size_t bytes = 0;
    char *code = take_code(d, t, &bytes, err);
    bool fine = code && load(d, t->of, code, err);
    if (fine) lz_disk_keep(&d->disk, t->key, code, bytes);
    lz_host_free(d->ctx, code);
    return fine;
}

static bool find_code(const lz_device *d, known *k, lz_error *err) {
    translation t = {.of = k, .key = key_of(d, k->text, err)};
    if (!t.key) return false;
    find_stored(d, &t);
    bool fine = t.stored && load(d, k, t.stored, NULL);
    if (!fine) {
        translate(d, &t);
        fine = load_translated(d, &t, err);
    }
    lz_host_free(d->ctx, t.memory);
    lz_host_free(d->ctx, t.key);
    return fine;
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

struct lz_preparation {
    const lz_device *d;
    translation *at;
    int64_t n;
    atomic_int_fast64_t next; /* that no thread has begun */
    lz_cuda_load *loads;      /* owned */
};

static int longest_first(const void *a, const void *b) {
    size_t x = strlen(((const translation *)a)->key), y = strlen(((const translation *)b)->key);
    return (x < y) - (x > y);
}

void lz_cuda_rehearse(lz_device *d) { d->rehearsing = true; }

lz_preparation *lz_cuda_end_rehearsal(lz_device *d) {
    struct lz_cuda_jit *j = d->jit;
    d->rehearsing = false;
    lz_cuda_load *loads = d->loads;
    d->loads = NULL;
    lz_preparation *list = j->n_missing || loads ? lz_host_alloc(d->ctx, sizeof *list) : NULL;
    if (list) list->at = lz_host_alloc(d->ctx, (size_t)(j->n_missing + 1) * sizeof *list->at);
    if (!list || !list->at) { /* nothing is missing; or there is no memory, and each is compiled when it is needed */
        lz_cuda_free_loads(d, loads);
        lz_host_free(d->ctx, list);
        return NULL;
    }
    list->d = d;
    list->loads = loads;
    for (int i = 0; i < BUCKETS; i++)
        for (known *k = j->buckets[i]; k; k = k->next) {
            translation t = {.of = k, .key = k->missing ? key_of(d, k->text, NULL) : NULL};
            k->missing = false;
            if (t.key) list->at[list->n++] = t;
        }
    j->n_missing = 0;
    qsort(list->at, (size_t)list->n, sizeof *list->at,
          longest_first); /* so that none begins when the others are done */
    return list;
}

static void *translate_some(void *arg) {
    lz_preparation *list = arg;
    for (int64_t i; (i = atomic_fetch_add(&list->next, 1)) < list->n;) {
        find_stored(list->d, &list->at[i]);
        if (!list->at[i].stored) translate(list->d, &list->at[i]);
    }
    return NULL;
}

/* Starts threads of its own, because the threads of the pool may only be used while ctx->run is held. */
void lz_cuda_prepare(lz_device *d, lz_preparation *list) {
    enum { MOST = 64 };
    pthread_t threads[MOST];
    lz_cuda_loading loading;
    lz_cuda_start_loading(&loading, d, list->loads);
    int n = 0, wanted = lz_pool_threads(lz_base_of(d->ctx)->pool) - 1;
    while (n < wanted && n < MOST && n + 1 < list->n && !pthread_create(&threads[n], NULL, translate_some, list)) n++;
    translate_some(list);
    while (n) pthread_join(threads[--n], NULL);
    lz_cuda_end_loading(&loading);
}

/* Loads what was translated, except functions that another thread has compiled in the meantime. */
void lz_cuda_use_prepared(lz_device *d, lz_preparation *list) {
    for (int64_t i = 0; i < list->n; i++) {
        translation *t = &list->at[i];
        bool there = t->of->function;
        if (!there && t->stored)
            load(d, t->of, t->stored, NULL);
        else if (!there)
            load_translated(d, t, NULL); /* after a failure, the first call compiles it again and reports the error */
        else if (t->program)
            d->api.nvrtc.DestroyProgram(&t->program);
        lz_host_free(d->ctx, t->memory);
        lz_host_free(d->ctx, t->key);
    }
    lz_cuda_free_loads(d, list->loads);
    lz_host_free(d->ctx, list->at);
    lz_host_free(d->ctx, list);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static void free_known(const lz_device *d, known *k) {
    if (!k) return;
    if (k->module) d->api.cu.ModuleUnload(k->module);
    lz_host_free(d->ctx, k->name);
    lz_host_free(d->ctx, k->text);
    lz_host_free(d->ctx, k);
}

static known *add_known(lz_device *d, uint64_t hash, const char *name, const char *text, lz_error *err) {
    known *k = lz_host_alloc(d->ctx, sizeof *k), **bucket = &d->jit->buckets[hash % BUCKETS];
    if (k) {
        k->hash = hash;
        k->name = lz_host_copy(d->ctx, name);
        k->text = lz_host_copy(d->ctx, text);
    }
    if (!k || !k->name || !k->text) {
        lz_out_of_memory(err, (int64_t)strlen(text));
        free_known(d, k);
        return NULL;
    }
    k->next = *bucket;
    *bucket = k;
    return k;
}

lz_cu_function lz_cuda_function(lz_device *d, const char *name, const char *text, lz_error *err) {
    uint64_t hash = lz_hash_from(lz_hash(name, strlen(name) + 1), text, strlen(text));
    known *k = d->jit->buckets[hash % BUCKETS];
    while (k && (k->hash != hash || strcmp(k->name, name) != 0 || strcmp(k->text, text) != 0)) k = k->next;
    if (!k) k = add_known(d, hash, name, text, err);
    if (k && !k->function && d->rehearsing) {
        d->jit->n_missing += !k->missing;
        k->missing = true;
        return (lz_cu_function)k; /* not NULL, and never launched */
    }
    return k && (k->function || find_code(d, k, err)) ? k->function : NULL;
}

bool lz_cuda_launch(const lz_call *call, lz_cu_function f, int64_t blocks, int threads, int shared_bytes,
                    const void *params) {
    const lz_device *d = call->device;
    const char *name = lz_op_table[call->op].name;
    if (blocks == 0 || d->rehearsing) return true;
    if (blocks < 0 || blocks > INT32_MAX) {
        lz_fail(call->err, LZ_BAD_SHAPE, "%s: %s is more than one launch can do", name, LZ_SHOW(call->out.dims));
        return false;
    }
    if (shared_bytes > 48 << 10) {
        lz_cu_result set = d->api.cu.FuncSetAttribute(f, LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                      shared_bytes);
        if (!lz_cuda_ok(d, set, name, call->err)) return false;
    }
    void *list[] = {(void *)params};
    lz_cu_result launched = d->api.cu.LaunchKernel(f, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                                   (unsigned)shared_bytes, d->stream, list, NULL);
    return lz_cuda_ok(d, launched, name, call->err);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

lz_fault *lz_cuda_fault(lz_device *d) { return d->jit->fault; }

bool lz_cuda_check_faults(lz_device *d, lz_error *err) {
    lz_fault found = *d->jit->fault;
    if (!found.found) return true;
    memset(d->jit->fault, 0, sizeof *d->jit->fault);
    lz_fail(err, LZ_BAD_INDEX, "%s: index %lld is outside an axis of %lld", lz_op_table[found.op].name, found.index,
            found.size);
    return false;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

bool lz_cuda_jit_open(lz_device *d, const char *folder, lz_error *err) {
    struct lz_cuda_jit *j = d->jit = lz_host_alloc(d->ctx, sizeof *j);
    if (!j) {
        lz_out_of_memory(err, sizeof *j);
        return false;
    }
    int major = 0, minor = 0, driver = 0;
    d->api.nvrtc.Version(&major, &minor);
    d->api.cu.DriverGetVersion(&driver);
    d->large_params = (major > 12 || (major == 12 && minor >= 1)) && driver >= 12010;
    /* sm_90a has instructions that exist on Hopper only: its matrix units (wgmma) and register reallocation. */
    snprintf(j->architecture, sizeof j->architecture, "--gpu-architecture=sm_%d%s", d->capability,
             d->capability == 90 ? "a" : "");
    snprintf(j->release, sizeof j->release, "%s, NVRTC %d.%d, %s", d->name, major, minor, j->architecture);
    d->disk = (lz_disk){.ctx = d->ctx, .folder = folder && *folder ? lz_path_join(d->ctx, folder, "cuda") : NULL};
    void *fault = NULL;
    lz_cu_result got = d->api.cu.MemHostAlloc(&fault, sizeof *j->fault, LZ_CU_MEMHOSTALLOC_DEVICEMAP);
    if (!lz_cuda_ok(d, got, "memory", err)) return false;
    j->fault = fault;
    memset(fault, 0, sizeof *j->fault);
    return true;
}

void lz_cuda_jit_close(lz_device *d) {
    struct lz_cuda_jit *j = d->jit;
    if (!j) return;
    for (int i = 0; i < BUCKETS; i++)
        for (known *k = j->buckets[i], *next; k; k = next) {
            next = k->next;
            free_known(d, k);
        }
    if (j->fault) d->api.cu.MemFreeHost(j->fault);
    lz_disk_close(&d->disk);
    lz_host_free(d->ctx, j);
    d->jit = NULL;
}
