/* load.c: loads the code of library kernels ahead of their first launch. Libraries load it lazily, inside the first launch,
 * which takes up to a tenth of a second. A rehearsal lists first launches. Threads then record each of them on a queue of
 * their own, and make the recording ready to run, but never run it: that loads the code, and no address is read or
 * written. The queue records in the relaxed mode, in which a thread may load code and allocate.
 *
 * Errors are ignored: the first real launch reports them. The threads belong to one preparation (lz_preparation) and use
 * no object of another thread beside the handles of the libraries. */
#include "backend/cuda/load.h"

void lz_cuda_list_load(lz_device *d, lz_cuda_load *load) {
    lz_cuda_load **last = &d->loads;
    while (*last) last = &(*last)->next;
    *last = load;
}

void lz_cuda_free_loads(lz_device *d, lz_cuda_load *loads) {
    for (lz_cuda_load *next; loads; loads = next) {
        next = loads->next;
        lz_host_free(d->ctx, loads);
    }
}

/* false: the queue may not record any more. */
static bool record(lz_device *d, lz_cuda_load *load, lz_cu_stream stream) {
    lz_cu_graph graph = NULL;
    lz_cu_graph_exec ready = NULL;
    if (d->api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_RELAXED)) return false;
    load->launch(d, load, stream);
    if (d->api.cu.StreamEndCapture(stream, &graph) || !graph) return false;
    if (!d->api.cu.GraphInstantiateWithFlags(&ready, graph, 0)) d->api.cu.GraphExecDestroy(ready);
    d->api.cu.GraphDestroy(graph);
    return true;
}

static lz_cuda_load *take_load(lz_cuda_loading *l) {
    lz_cuda_load *load = atomic_load(&l->next);
    while (load && !atomic_compare_exchange_weak(&l->next, &load, load->next)) {}
    return load;
}

static void *load_some(void *arg) {
    lz_cuda_loading *l = arg;
    lz_device *d = l->d;
    lz_cu_stream stream = NULL;
    if (d->api.cu.CtxSetCurrent(d->context) || d->api.cu.StreamCreate(&stream, LZ_CU_STREAM_NON_BLOCKING)) return NULL;
    for (lz_cuda_load *load; (load = take_load(l));)
        if (!record(d, load, stream)) break;
    d->api.cu.StreamDestroy(stream);
    return NULL;
}

void lz_cuda_start_loading(lz_cuda_loading *l, lz_device *d, lz_cuda_load *loads) {
    l->d = d;
    l->n = 0;
    atomic_init(&l->next, loads);
    for (; loads && l->n < LZ_CUDA_LOADERS; loads = loads->next)
        if (!pthread_create(&l->threads[l->n], NULL, load_some, l)) l->n++;
}

void lz_cuda_end_loading(lz_cuda_loading *l) {
    while (l->n) pthread_join(l->threads[--l->n], NULL);
}
