/* device.c: the GPU of a context: its memory, its two queues, recordings of launches, time stamps and marks. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/sdpa90.h"

bool lz_cuda_ok(const lz_device *d, lz_cu_result result, const char *what, lz_error *err) {
    if (result == LZ_CUDA_SUCCESS) return true;
    const char *text = NULL;
    if (d->api.cu.GetErrorString(result, &text) != LZ_CUDA_SUCCESS || !text) text = "unknown error";
    lz_fail(err, result == LZ_CUDA_ERROR_OUT_OF_MEMORY ? LZ_OUT_OF_MEMORY : LZ_DEVICE_FAILED, "%s: %s: %s (%d)",
            d->name, what, text, (int)result);
    return false;
}

static void enter(lz_device *d) { d->api.cu.CtxSetCurrent(d->context); }

/* ---- the two queues ---------------------------------------------------------------------------------------------- */

static lz_cu_stream stream_of(const lz_device *d, lz_queue queue) {
    return queue == LZ_QUEUE_COPIES ? d->copies : d->stream;
}

/* Makes the second queue when it is first used. */
static bool open_copies(lz_device *d, lz_error *err) {
    enter(d);
    if (!d->copies &&
        !lz_cuda_ok(d, d->api.cu.StreamCreate(&d->copies, LZ_CU_STREAM_NON_BLOCKING), "a second queue", err))
        return false;
    return d->staging[LZ_QUEUE_COPIES] || (d->staging[LZ_QUEUE_COPIES] = lz_cuda_open_staging(d, err));
}

static bool write_device(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err) {
    enter(d);
    return lz_cuda_upload(d, d->staging[LZ_QUEUE_KERNELS], d->stream, to, from, bytes, err);
}

static void gather_writes(lz_device *d) { lz_cuda_gather_uploads(d->staging[LZ_QUEUE_KERNELS]); }

static bool end_writes(lz_device *d, lz_error *err) {
    enter(d);
    return lz_cuda_send_gathered(d, d->staging[LZ_QUEUE_KERNELS], d->stream, err);
}

static bool send_ahead(lz_device *d, void *to, lz_bytes from, int64_t bytes, lz_error *err) {
    return open_copies(d, err) && lz_cuda_upload(d, d->staging[LZ_QUEUE_COPIES], d->copies, to, from, bytes, err);
}

static bool read_device(lz_device *d, void *to, const void *from, int64_t bytes, lz_error *err) {
    enter(d);
    lz_cu_result sent = d->api.cu.MemcpyDtoHAsync(to, (lz_cu_ptr)(uintptr_t)from, (size_t)bytes, d->stream);
    return lz_cuda_ok(d, sent, "a copy from the device", err) &&
           lz_cuda_ok(d, d->api.cu.StreamSynchronize(d->stream), "earlier work", err) && lz_cuda_check_faults(d, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *allocate(lz_device *d, int64_t bytes, lz_error *err) {
    enter(d);
    lz_cu_ptr memory = 0;
    lz_cu_result result = d->api.cu.MemAlloc(&memory, bytes > 0 ? (size_t)bytes : 1);
    if (result == LZ_CUDA_ERROR_OUT_OF_MEMORY) {
        size_t unused = 0, total = 0;
        d->api.cu.MemGetInfo(&unused, &total);
        lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory on %s: %lld more bytes asked for, %lld of %lld are free", d->name,
                (long long)bytes, (long long)unused, (long long)total);
        return NULL;
    }
    return lz_cuda_ok(d, result, "memory", err) ? (void *)(uintptr_t)memory : NULL; // NOLINT(performance-no-int-to-ptr)
}

/* cuMemFree waits for the work that may still use the memory. */
static void release(lz_device *d, void *memory) {
    enter(d);
    d->api.cu.MemFree((lz_cu_ptr)(uintptr_t)memory);
}

static int64_t available(lz_device *d) {
    enter(d);
    size_t unused = 0, total = 0;
    return d->api.cu.MemGetInfo(&unused, &total) == LZ_CUDA_SUCCESS ? (int64_t)unused : 0;
}

/* Waits for both queues. */
static bool finish(lz_device *d, lz_error *err) {
    enter(d);
    bool fine = !d->copies || lz_cuda_ok(d, d->api.cu.StreamSynchronize(d->copies), "earlier copies", err);
    return lz_cuda_ok(d, d->api.cu.StreamSynchronize(d->stream), "earlier work", err) && fine &&
           lz_cuda_check_faults(d, err);
}

struct lz_moment {
    lz_cu_event event;
};

static lz_moment *note_moment(lz_device *d, lz_error *err) {
    enter(d);
    lz_moment *m = lz_host_alloc(d->ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    if (lz_cuda_ok(d, d->api.cu.EventCreate(&m->event, LZ_CU_EVENT_DISABLE_TIMING), "an event", err)) {
        if (lz_cuda_ok(d, d->api.cu.EventRecord(m->event, d->stream), "an event", err)) return m;
        d->api.cu.EventDestroy(m->event);
    }
    lz_host_free(d->ctx, m);
    return NULL;
}

static bool reach(lz_device *d, lz_moment *m, lz_error *err) {
    enter(d);
    bool fine = lz_cuda_ok(d, d->api.cu.EventSynchronize(m->event), "earlier work", err);
    d->api.cu.EventDestroy(m->event);
    lz_host_free(d->ctx, m);
    return fine;
}

/* ---- recordings -------------------------------------------------------------------------------------------------- */

struct lz_recording {
    lz_cu_graph_exec exec;
};

static bool start_record(lz_device *d, lz_error *err) {
    enter(d);
    lz_cu_result result = d->api.cu.StreamBeginCapture(d->stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    d->recording = lz_cuda_ok(d, result, "recording", err);
    return d->recording;
}

static lz_recording *end_record(lz_device *d, lz_error *err) {
    lz_cu_graph graph = NULL;
    d->recording = false;
    if (!lz_cuda_ok(d, d->api.cu.StreamEndCapture(d->stream, &graph), "recording", err)) return NULL;
    lz_recording *r = lz_host_alloc(d->ctx, sizeof *r);
    if (!r) lz_out_of_memory(err, sizeof *r);
    if (r && !lz_cuda_ok(d, d->api.cu.GraphInstantiateWithFlags(&r->exec, graph, 0), "a recording", err)) {
        lz_host_free(d->ctx, r);
        r = NULL;
    }
    d->api.cu.GraphDestroy(graph);
    return r;
}

static bool replay(lz_device *d, lz_recording *r, lz_error *err) {
    enter(d);
    return lz_cuda_ok(d, d->api.cu.GraphLaunch(r->exec, d->stream), "replaying a recording", err);
}

static void forget(lz_device *d, lz_recording *r) {
    enter(d);
    d->api.cu.GraphExecDestroy(r->exec);
    lz_host_free(d->ctx, r);
}

/* ---- time stamps, marks ------------------------------------------------------------------------------------------ */

/* Event i of a list, made when it is first used. */
static lz_cu_event event_at(lz_device *d, struct lz_cuda_events *list, int i, unsigned flags, lz_error *err) {
    if (i >= list->n) {
        int n = 2 * i + 64;
        lz_cu_event *more = lz_host_alloc(d->ctx, (size_t)n * sizeof *more);
        if (!more) {
            lz_out_of_memory(err, (int64_t)n * (int64_t)sizeof *more);
            return NULL;
        }
        if (list->n) memcpy(more, list->at, (size_t)list->n * sizeof *more);
        lz_host_free(d->ctx, list->at);
        *list = (struct lz_cuda_events){more, n};
    }
    if (!list->at[i] && !lz_cuda_ok(d, d->api.cu.EventCreate(&list->at[i], flags), "an event", err)) return NULL;
    return list->at[i];
}

static void close_events(lz_device *d, struct lz_cuda_events *list) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i]) d->api.cu.EventDestroy(list->at[i]);
    lz_host_free(d->ctx, list->at);
}

static bool stamp(lz_device *d, int i, lz_error *err) {
    lz_cu_event event = event_at(d, &d->stamps, i, LZ_CU_EVENT_DEFAULT, err);
    return event && lz_cuda_ok(d, d->api.cu.EventRecord(event, d->stream), "an event", err);
}

static double seconds(lz_device *d, int a, int b) {
    float milliseconds = 0;
    d->api.cu.EventElapsedTime(&milliseconds, d->stamps.at[a], d->stamps.at[b]);
    return milliseconds * 1e-3;
}

static bool mark(lz_device *d, lz_queue queue, int i, lz_error *err) {
    lz_cu_event event = open_copies(d, err) ? event_at(d, &d->marks, i, LZ_CU_EVENT_DISABLE_TIMING, err) : NULL;
    return event && lz_cuda_ok(d, d->api.cu.EventRecord(event, stream_of(d, queue)), "an event", err);
}

static bool await_mark(lz_device *d, lz_queue queue, int i, lz_error *err) {
    return lz_cuda_ok(d, d->api.cu.StreamWaitEvent(stream_of(d, queue), d->marks.at[i], 0), "waiting for an event",
                      err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const char *device_name(const lz_device *d) { return d->name; }

bool lz_cuda_multiplies(const lz_device *d, lz_dtype codes) {
    enum {
        ADA = 89
    }; /* the first one whose matrix units multiply f8; those of all that find_device accepts multiply i8 */
    return codes == LZ_I8 || (codes == LZ_F8 && d->capability >= ADA);
}

static bool attends_f8(const lz_device *d, lz_dims q, lz_dims k) {
    return d->sdpa != LZ_SDPA_LIBRARY && lz_sdpa90_takes_f8(d, q, k);
}

static void close_device(lz_device *d) {
    if (!d) return;
    if (d->context) {
        enter(d);
        if (d->copies) d->api.cu.StreamSynchronize(d->copies);
        if (d->stream) d->api.cu.StreamSynchronize(d->stream);
        lz_cuda_dnn_close(d);
        lz_cuda_blas_close(d);
        lz_choices_close(d->choices);
        lz_cuda_jit_close(d);
        close_events(d, &d->stamps);
        close_events(d, &d->marks);
        lz_cuda_close_staging(d, d->staging[LZ_QUEUE_KERNELS]);
        lz_cuda_close_staging(d, d->staging[LZ_QUEUE_COPIES]);
        lz_cuda_close_sendings(d);
        if (d->sends_stream) d->api.cu.StreamDestroy(d->sends_stream);
        if (d->copies) d->api.cu.StreamDestroy(d->copies);
        if (d->stream) d->api.cu.StreamDestroy(d->stream);
        d->api.cu.DevicePrimaryCtxRelease(d->number);
    }
    lz_cuda_api_close(&d->api);
    lz_host_free(d->ctx, d);
}

static int attribute(const lz_device *d, lz_cu_device_attribute which) {
    int value = 0;
    d->api.cu.DeviceGetAttribute(&value, which, d->number);
    return value;
}

static bool find_device(lz_device *d, int number, lz_error *err) {
    int count = 0;
    lz_cu_result found = d->api.cu.Init(0);
    if (found == LZ_CUDA_SUCCESS) found = d->api.cu.DeviceGetCount(&count);
    if (found == LZ_CUDA_ERROR_NO_DEVICE || (found == LZ_CUDA_SUCCESS && !count)) {
        lz_fail(err, LZ_NOT_FOUND, "there is an NVIDIA driver, but it finds no GPU");
        return false;
    }
    if (!lz_cuda_ok(d, found, "starting the driver", err)) return false;
    if (number >= count) {
        lz_fail(err, LZ_NOT_FOUND, "there is no GPU %d: the driver finds %d, counted from 0", number, count);
        return false;
    }
    if (!lz_cuda_ok(d, d->api.cu.DeviceGet(&d->number, number), "looking at the GPU", err)) return false;
    d->api.cu.DeviceGetName(d->name, sizeof d->name, d->number);
    d->capability = 10 * attribute(d, LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                    attribute(d, LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    d->sms = attribute(d, LZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    d->max_shared = attribute(d, LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    d->cache_bytes = attribute(d, LZ_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    d->most_sums = 1 << 24;
    if (d->capability >= 80) return true;
    lz_fail(err, LZ_DEVICE_FAILED,
            "%s is too old: Lazuli needs compute capability 8.0 (Ampere) or newer, this is %d.%d", d->name,
            d->capability / 10, d->capability % 10);
    return false;
}

/* Reads options->cuda_gemm and options->cuda_sdpa. */
static bool read_choices(lz_device *d, const lz_context_options *options, lz_error *err) {
    static const char *const gemm[] = {"", "library", "own", "any", "single"}, *const sdpa[] = {"", "library", "own"};
    const char *product = options->cuda_gemm ? options->cuda_gemm : "",
               *attention = options->cuda_sdpa ? options->cuda_sdpa : "";
    int i = 0, k = 0;
    while (i <= LZ_GEMM_SINGLE && strcmp(gemm[i], product) != 0) i++;
    while (k <= LZ_SDPA_OWN && strcmp(sdpa[k], attention) != 0) k++;
    if (i > LZ_GEMM_SINGLE || k > LZ_SDPA_OWN) {
        lz_fail(err, LZ_BAD_ARGUMENT,
                "products are 'library', 'own', 'any' or 'single', and attention is 'library' or 'own'; '%.40s' is "
                "neither",
                i > LZ_GEMM_SINGLE ? product : attention);
        return false;
    }
    d->gemm = (lz_gemm_choice)i;
    d->sdpa = (lz_sdpa_choice)k;
    return true;
}

static lz_device *open_device(lz_context *ctx, int number, const lz_context_options *options, lz_error *err) {
    lz_device *d = lz_host_alloc(ctx, sizeof *d);
    if (!d) {
        lz_out_of_memory(err, sizeof *d);
        return NULL;
    }
    d->ctx = ctx;
    snprintf(d->name, sizeof d->name, "GPU %d", number);
    bool fine = read_choices(d, options, err) && lz_cuda_api_open(&d->api, options->cuda_path, err) &&
                find_device(d, number, err) &&
                lz_cuda_ok(d, d->api.cu.DevicePrimaryCtxRetain(&d->context, d->number), "opening", err);
    if (fine) enter(d);
    fine = fine && lz_cuda_ok(d, d->api.cu.StreamCreate(&d->stream, LZ_CU_STREAM_NON_BLOCKING), "a queue", err) &&
           (d->staging[LZ_QUEUE_KERNELS] = lz_cuda_open_staging(d, err)) &&
           lz_cuda_jit_open(d, options->cache_folder, err) && lz_cuda_blas_open(d, err) &&
           (d->choices = lz_choices_open(&d->disk, d->name, err)) && (options->no_cudnn || lz_cuda_dnn_open(d, err));
    if (fine) return d;
    close_device(d);
    return NULL;
}

/* Describes GPU i. d: the opened device; if opening it failed, err has the reason. */
static lz_device_info describe_device(const lz_device *d, int i, const lz_error *err) {
    lz_device_info info = {.memory = 0};
    size_t bytes = 0;
    snprintf(info.device, sizeof info.device, "cuda:%d", i);
    snprintf(info.name, sizeof info.name, "%s", d->name);
    if (err->status)
        snprintf(info.problem, sizeof info.problem, "%.*s", (int)sizeof info.problem - 1, err->text);
    else if (d->api.cu.DeviceTotalMem(&bytes, d->number) == LZ_CUDA_SUCCESS)
        info.memory = (int64_t)bytes;
    return info;
}

/* If there is a GPU but a library of NVIDIA's is missing, only the first GPU is listed, with that error. */
static int list_devices(const lz_context_options *options, lz_device_info *to, int n) {
    lz_device d = {.name = "GPU 0"};
    lz_error err = {.status = LZ_OK};
    int count = 0;
    if (!lz_cuda_api_open(&d.api, options->cuda_path, &err)) {
        if (err.status != LZ_NOT_FOUND && n) to[0] = describe_device(&d, 0, &err);
        return err.status != LZ_NOT_FOUND;
    }
    if (d.api.cu.Init(0) != LZ_CUDA_SUCCESS || d.api.cu.DeviceGetCount(&count) != LZ_CUDA_SUCCESS) count = 0;
    for (int i = 0; i < count && i < n; i++) {
        err = (lz_error){.status = LZ_OK};
        snprintf(d.name, sizeof d.name, "GPU %d", i);
        find_device(&d, i, &err);
        to[i] = describe_device(&d, i, &err);
    }
    lz_cuda_api_close(&d.api);
    return count;
}

const lz_device_table lz_cuda_device_table = {
    .open = open_device,
    .list = list_devices,
    .close = close_device,
    .name = device_name,
    .multiplies = lz_cuda_multiplies,
    .attends_f8 = attends_f8,
    .enter = enter,
    .allocate = allocate,
    .release = release,
    .available = available,
    .write = write_device,
    .gather_writes = gather_writes,
    .end_writes = end_writes,
    .start_sending = lz_cuda_start_sending,
    .add_sending = lz_cuda_add_sending,
    .end_sending = lz_cuda_end_sending,
    .close_sendings = lz_cuda_close_sendings,
    .read = read_device,
    .finish = finish,
    .moment = note_moment,
    .reach = reach,
    .check = lz_cuda_check_faults,
    .rehearse = lz_cuda_rehearse,
    .end_rehearsal = lz_cuda_end_rehearsal,
    .prepare = lz_cuda_prepare,
    .use_prepared = lz_cuda_use_prepared,
    .record = start_record,
    .end_record = end_record,
    .replay = replay,
    .forget = forget,
    .stamp = stamp,
    .seconds = seconds,
    .send = send_ahead,
    .mark = mark,
    .await = await_mark,
};
