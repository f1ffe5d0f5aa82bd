/* dnn.c: plans of cuDNN for the graphs of dnn_graph.c, and running them. cuDNN's heuristics return engine configurations
 * for a graph of operations, best first. Configurations whose arithmetic we do not accept are skipped; up to MAX_PLANS
 * of the others that can be finalised are kept as plans.
 *
 * A refusal is not an error: our own kernels run instead, and the context's log says what was refused and why.
 * lz_context_options.no_cudnn turns cuDNN off. */
#include "backend/cuda/dnn.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/load.h"
#include "backend/cuda/own.h"

enum { MAX_CONFIGS = 32, MAX_PLANS = 4, BUCKETS = 128, MAX_KEPT = 4096 };
#define MAX_WORKSPACE ((int64_t)128 << 20)

struct lz_dnn_plan {
    lz_dnn_descriptor plans[MAX_PLANS];
    int64_t workspace; /* bytes; the largest of all plans */
    int n, chosen;
    bool measured;
    bool loaded; /* it was launched, or its load is listed (load.h) */
    const lz_dnn_key *key;
};

typedef struct entry {
    struct entry *next;
    lz_dnn_key key;
    bool possible;
    lz_dnn_plan plan;
} entry;

/* Plans are made while programs are planned, and another thread may run a plan at that time; `lock` guards the table and
 * the handle. Entries are freed only when the device is closed, so a plan that was found stays valid. After MAX_KEPT entries,
 * further shapes get no plan. */
struct lz_cuda_dnn {
    pthread_mutex_t lock;
    lz_dnn_handle handle;
    lz_cu_stream stream; /* that the handle launches into; NULL: unknown, after an error */
    entry *buckets[BUCKETS];
    int count;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static lz_dnn_status use_stream(const lz_device *d, lz_cu_stream stream) {
    lz_dnn_status status = d->dnn->stream == stream ? LZ_CUDNN_STATUS_SUCCESS
                                                    : d->api.dnn.SetStream(d->dnn->handle, stream);
    d->dnn->stream = status ? NULL : stream;
    return status;
}

bool lz_cuda_dnn_open(lz_device *d, lz_error *err) {
    if (!d->api.has_dnn) return true;
    d->dnn = lz_host_alloc(d->ctx, sizeof *d->dnn);
    if (!d->dnn) {
        lz_out_of_memory(err, sizeof *d->dnn);
        return false;
    }
    pthread_mutex_init(&d->dnn->lock, NULL);
    lz_dnn_status status = d->api.dnn.Create(&d->dnn->handle);
    if (!status) status = use_stream(d, d->stream);
    if (!status) return true;
    /* cuDNN does not work with this driver: go on without it. */
    lz_tell(d->ctx, LZ_LOG_NOTE, "cuDNN is not used: it does not start (%s)", d->api.dnn.GetErrorString(status));
    lz_cuda_dnn_close(d);
    return true;
}

static void free_plans(lz_device *d, lz_dnn_plan *p) {
    for (int i = 0; i < p->n; i++) d->api.dnn.BackendDestroyDescriptor(p->plans[i]);
}

void lz_cuda_dnn_close(lz_device *d) {
    if (!d->dnn) return;
    for (int i = 0; i < BUCKETS; i++)
        for (entry *e; (e = d->dnn->buckets[i]);) {
            d->dnn->buckets[i] = e->next;
            free_plans(d, &e->plan);
            lz_host_free(d->ctx, e);
        }
    if (d->dnn->handle) d->api.dnn.Destroy(d->dnn->handle);
    pthread_mutex_destroy(&d->dnn->lock);
    lz_host_free(d->ctx, d->dnn);
    d->dnn = NULL;
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static const char *describe(char text[64], const lz_dnn_order *order, const char *step) {
    snprintf(text, 64, "%s: %s", order->what, step);
    return text;
}

/* Does the note exclude an engine? Excluded are sums that change from run to run or are not in f32, and transforms that
 * lose digits. */
static bool unwanted(lz_dnn_numerical_note note, bool exact) {
    switch (note) {
    case LZ_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case LZ_CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case LZ_CUDNN_NUMERICAL_NOTE_FFT:
    case LZ_CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case LZ_CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case LZ_CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case LZ_CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
    case LZ_CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case LZ_CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return exact;
    default: return false;
    }
}

typedef struct engine {
    int64_t index;
    bool unwanted, compiles; /* compiles: compiles its kernels at run time, which takes about a second */
} engine;

static engine look_at_engine(const lz_device *d, lz_dnn_descriptor config, bool exact) {
    engine found = {.index = -1};
    lz_dnn_numerical_note notes[16];
    lz_dnn_behavior_note ways[16];
    lz_dnn_descriptor e = NULL;
    int64_t count = 0, n_notes = 0, n_ways = 0;
    if (d->api.dnn.BackendCreateDescriptor(LZ_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &e)) return found;
    lz_dnn_status got = d->api.dnn.BackendGetAttribute(config, LZ_CUDNN_ATTR_ENGINECFG_ENGINE,
                                                       LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &e);
    if (!got)
        d->api.dnn.BackendGetAttribute(e, LZ_CUDNN_ATTR_ENGINE_GLOBAL_INDEX, LZ_CUDNN_TYPE_INT64, 1, &count,
                                       &found.index);
    if (!got)
        d->api.dnn.BackendGetAttribute(e, LZ_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, LZ_CUDNN_TYPE_NUMERICAL_NOTE, 16,
                                       &n_notes, notes);
    if (!got)
        d->api.dnn.BackendGetAttribute(e, LZ_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, LZ_CUDNN_TYPE_BEHAVIOR_NOTE, 16, &n_ways,
                                       ways);
    for (int64_t i = 0; i < n_notes && i < 16; i++) found.unwanted = found.unwanted || unwanted(notes[i], exact);
    for (int64_t i = 0; i < n_ways && i < 16; i++)
        found.compiles = found.compiles || ways[i] == LZ_CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    d->api.dnn.BackendDestroyDescriptor(e);
    return found;
}

/* A finalised plan, or NULL. Made from an engine configuration, or from the serialised form of an earlier plan. */
static lz_dnn_descriptor make_plan(lz_device *d, lz_dnn_attribute from, lz_dnn_attribute_type type, int64_t count,
                                   const void *elements, int64_t *workspace, const lz_dnn_order *order) {
    lz_dnn_descriptor plan = NULL;
    char text[64];
    int64_t got = 0;
    lz_dnn_status status = d->api.dnn.BackendCreateDescriptor(LZ_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (!status)
        status = d->api.dnn.BackendSetAttribute(plan, LZ_CUDNN_ATTR_EXECUTION_PLAN_HANDLE, LZ_CUDNN_TYPE_HANDLE, 1,
                                                &d->dnn->handle);
    if (!status) status = d->api.dnn.BackendSetAttribute(plan, from, type, count, elements);
    if (!status) status = d->api.dnn.BackendFinalize(plan);
    if (!status)
        status = d->api.dnn.BackendGetAttribute(plan, LZ_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, LZ_CUDNN_TYPE_INT64,
                                                1, &got, workspace);
    if (!status && *workspace <= MAX_WORKSPACE) return plan;
    if (status)
        lz_dnn_tell_refusal(d, status, describe(text, order, "a plan"));
    else
        lz_cuda_trace(d, "cuDNN: %s: a plan wants %lld bytes of workspace", order->what, (long long)*workspace);
    if (plan) d->api.dnn.BackendDestroyDescriptor(plan);
    return NULL;
}

/* The cache key of a serialised plan. cuDNN needs a tenth of a second for its first heuristics, and half a second to
 * compile a plan. So its serialised form of the plan, which includes compiled code, is kept on disk for later
 * processes. */
static char *plan_text(const lz_device *d, const lz_dnn_key *key) {
    return lz_choice_text(d->choices, &(lz_choice){.what = "serialised plan",
                                                   .library = d->api.dnn.GetVersion(),
                                                   .key = key,
                                                   .key_bytes = sizeof *key});
}

static void store_plan(const lz_device *d, const lz_dnn_key *key, lz_dnn_descriptor plan) {
    const lz_dnn_attribute json = LZ_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t n = 0;
    lz_dnn_status status = d->api.dnn.BackendGetAttribute(plan, json, LZ_CUDNN_TYPE_CHAR, 0, &n, NULL);
    char *text = plan_text(d, key), *written = !status && n > 0 ? lz_host_alloc(d->ctx, (size_t)n) : NULL;
    if (text && written && !d->api.dnn.BackendGetAttribute(plan, json, LZ_CUDNN_TYPE_CHAR, n, &n, written))
        lz_disk_keep(&d->disk, text, written, (size_t)n);
    lz_host_free(d->ctx, written);
    lz_host_free(d->ctx, text);
}

static void recall_plan(lz_device *d, const lz_dnn_key *key, const lz_dnn_order *order, lz_dnn_plan *to) {
    char *text = plan_text(d, key), *memory = NULL;
    size_t bytes = 0;
    const char *written = text ? lz_disk_find(&d->disk, text, &bytes, &memory) : NULL;
    if (written)
        to->plans[0] = make_plan(d, LZ_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, LZ_CUDNN_TYPE_CHAR,
                                 (int64_t)bytes, written, &to->workspace, order);
    to->n = to->plans[0] != NULL;
    if (!to->n) to->workspace = 0;
    if (to->n) lz_cuda_trace(d, "cuDNN: %s: a plan from disk", order->what);
    lz_host_free(d->ctx, memory);
    lz_host_free(d->ctx, text);
}

/* Adds plans of the accepted configurations, best first, until there are enough. */
static void take_plans(lz_dnn_graph *g, lz_dnn_descriptor *configs, int64_t n, const lz_dnn_order *order,
                       lz_dnn_plan *to) {
    lz_device *d = g->d;
    int wanted = order->thorough ? MAX_PLANS : 1;
    for (int64_t i = 0; i < n && to->n < wanted; i++) {
        int64_t workspace = 0;
        engine e = look_at_engine(d, configs[i], order->exact);
        /* An engine that compiles is only used if there is no other. */
        if (e.unwanted || (e.compiles && to->n)) continue;
        lz_dnn_descriptor plan = make_plan(d, LZ_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                           LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configs[i], &workspace, order);
        if (!plan) continue;
        lz_cuda_trace(d, "cuDNN: %s: engine %lld%s, %lld bytes of workspace", order->what, (long long)e.index,
                      e.compiles ? ", compiled" : "", (long long)workspace);
        to->plans[to->n++] = plan;
        if (workspace > to->workspace) to->workspace = workspace;
        if (e.compiles) return;
    }
}

static void ask_heuristics(lz_dnn_graph *g, lz_dnn_descriptor graph, lz_dnn_heuristic_mode mode,
                           const lz_dnn_order *order, lz_dnn_plan *to) {
    const lz_cuda_api *api = &g->d->api;
    lz_dnn_descriptor asked = lz_dnn_new(g, LZ_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    char text[64];
    lz_dnn_set_link(g, asked, LZ_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, "ENGINEHEUR_OPERATION_GRAPH");
    lz_dnn_set(g, asked, LZ_CUDNN_ATTR_ENGINEHEUR_MODE, LZ_CUDNN_TYPE_HEUR_MODE, 1, &mode, "ENGINEHEUR_MODE");
    lz_dnn_finalise(g, asked, describe(text, order, "heuristics"));
    lz_dnn_descriptor configs[MAX_CONFIGS];
    int64_t made = 0, found = 0;
    while (!g->failed && made < MAX_CONFIGS &&
           !api->dnn.BackendCreateDescriptor(LZ_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]))
        made++;
    if (!g->failed)
        lz_dnn_check(g,
                     api->dnn.BackendGetAttribute(asked, LZ_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found, configs),
                     describe(text, order, "ENGINEHEUR_RESULTS"));
    if (!g->failed) take_plans(g, configs, found < made ? found : made, order, to);
    for (int64_t i = 0; i < made; i++) api->dnn.BackendDestroyDescriptor(configs[i]);
    g->failed = false; /* the other kind of heuristics may still find a configuration */
}

static void free_graph(lz_dnn_graph *g) {
    while (g->n_all) g->d->api.dnn.BackendDestroyDescriptor(g->all[--g->n_all]);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static entry **bucket_of(const lz_device *d, const lz_dnn_key *key) {
    return &d->dnn->buckets[lz_hash(key, sizeof *key) % BUCKETS];
}

static entry *find_entry(const lz_device *d, const lz_dnn_key *key) {
    for (entry *e = *bucket_of(d, key); e; e = e->next)
        if (!memcmp(&e->key, key, sizeof *key)) return e;
    return NULL;
}

bool lz_dnn_find(lz_device *d, const lz_dnn_key *key, lz_dnn_plan **plan) {
    *plan = NULL;
    if (!d->dnn) return true;
    pthread_mutex_lock(&d->dnn->lock);
    entry *e = find_entry(d, key);
    bool known = e || d->dnn->count >= MAX_KEPT;
    if (e && e->possible) *plan = &e->plan;
    pthread_mutex_unlock(&d->dnn->lock);
    return known;
}

static void make_plans(lz_dnn_graph *g, const lz_dnn_order *order, lz_dnn_plan *to) {
    lz_dnn_descriptor graph = lz_dnn_new(g, LZ_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph");
    char text[64];
    lz_dnn_set(g, graph, LZ_CUDNN_ATTR_OPERATIONGRAPH_HANDLE, LZ_CUDNN_TYPE_HANDLE, 1, &g->d->dnn->handle,
               "OPERATIONGRAPH_HANDLE");
    lz_dnn_set(g, graph, LZ_CUDNN_ATTR_OPERATIONGRAPH_OPS, LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops,
               "OPERATIONGRAPH_OPS");
    lz_dnn_finalise(g, graph, describe(text, order, "a graph"));
    if (g->failed) return;
    ask_heuristics(g, graph, LZ_CUDNN_HEUR_MODE_A, order, to);
    if (!to->n) ask_heuristics(g, graph, LZ_CUDNN_HEUR_MODE_FALLBACK, order, to);
}

lz_dnn_plan *lz_dnn_make(lz_dnn_graph *g, const lz_dnn_key *key, const lz_dnn_order *order) {
    lz_device *d = g->d;
    pthread_mutex_lock(&d->dnn->lock);
    entry *e = find_entry(d, key); /* another thread may have added it meanwhile */
    if (!e && (e = lz_host_alloc(d->ctx, sizeof *e))) {
        e->key = *key;
        e->plan.key = &e->key;
        recall_plan(d, key, order, &e->plan);
        if (!e->plan.n) {
            make_plans(g, order, &e->plan);
            if (e->plan.n == 1) store_plan(d, key, e->plan.plans[0]); /* of several, the fastest is stored */
        }
        e->possible = e->plan.n > 0;
        if (!e->possible) lz_cuda_trace(d, "cuDNN: %s: no plan", order->what);
        entry **bucket = bucket_of(d, key);
        e->next = *bucket;
        *bucket = e;
        d->dnn->count++;
    }
    free_graph(g);
    pthread_mutex_unlock(&d->dnn->lock);
    return e && e->possible ? &e->plan : NULL;
}

int64_t lz_dnn_workspace(const lz_dnn_plan *plan) { return plan->workspace; }

/* ---- running ----------------------------------------------------------------------------------------------------- */

enum { MAX_TENSORS = 8 };

typedef struct execution {
    const lz_dnn_plan *plan;
    lz_dnn_descriptor pack;
} execution;

static bool dnn_ok(const lz_call *call, lz_dnn_status status, const char *what) {
    if (!status) return true;
    char more[256] = "";
    const lz_cuda_api *api = &call->device->api;
    api->dnn.GetLastErrorString(more, sizeof more);
    lz_fail(call->err, LZ_DEVICE_FAILED, "cuDNN: %s: %s: %s", what, api->dnn.GetErrorString(status), more);
    return false;
}

static bool make_pack(const lz_call *call, void *const *addresses, int n, void *workspace, lz_dnn_descriptor *pack) {
    const lz_cuda_api *api = &call->device->api;
    int64_t numbers[MAX_TENSORS];
    for (int i = 0; i < n; i++) numbers[i] = i + 1;
    return dnn_ok(call, api->dnn.BackendCreateDescriptor(LZ_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack), "operands") &&
           dnn_ok(call,
                  api->dnn.BackendSetAttribute(*pack, LZ_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, LZ_CUDNN_TYPE_INT64, n,
                                               numbers),
                  "VARIANT_PACK_UNIQUE_IDS") &&
           dnn_ok(call,
                  api->dnn.BackendSetAttribute(*pack, LZ_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, LZ_CUDNN_TYPE_VOID_PTR,
                                               n, (const void *)addresses),
                  "VARIANT_PACK_DATA_POINTERS") &&
           dnn_ok(call,
                  api->dnn.BackendSetAttribute(*pack, LZ_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, LZ_CUDNN_TYPE_VOID_PTR, 1,
                                               (const void *)&workspace),
                  "VARIANT_PACK_WORKSPACE") &&
           dnn_ok(call, api->dnn.BackendFinalize(*pack), "operands");
}

static bool execute_plan(const lz_call *call, void *arg, int i) {
    const execution *e = arg;
    lz_device *d = call->device;
    return dnn_ok(call, d->api.dnn.BackendExecute(d->dnn->handle, e->plan->plans[i], e->pack), "running a plan");
}

static lz_choice choice_of(const lz_device *d, const lz_dnn_plan *plan) {
    return (lz_choice){.what = "plan",
                       .library = plan->n > 1 ? d->api.dnn.GetVersion() : 0,
                       .key = plan->key,
                       .key_bytes = sizeof *plan->key};
}

static void choose_plan(const lz_call *call, execution *e, lz_dnn_plan *plan) {
    lz_choice c = choice_of(call->device, plan);
    int chosen = plan->n > 1 ? lz_cuda_choose(call, &c, plan->n, execute_plan, e) : 0;
    plan->chosen = chosen < 0 ? 0 : chosen;
    if (plan->n > 1 && chosen >= 0) store_plan(call->device, plan->key, plan->plans[chosen]);
    /* Otherwise the first plan is used, and a later run measures. */
    plan->measured = !call->device->recording || chosen >= 0;
    if (plan->n > 1) lz_cuda_trace(call->device, "cuDNN: took plan %d of %d", plan->chosen, plan->n);
}

/* The plan that the first launch will use; -1: it will be measured. */
static int known_plan(const lz_device *d, const lz_dnn_plan *plan) {
    int chosen = plan->chosen;
    if (plan->measured || plan->n == 1) return chosen;
    lz_choice c = choice_of(d, plan);
    return lz_choices_find(d->choices, &c, plan->n, &chosen) ? chosen : -1;
}

/* The first launch of a plan, with stand-ins of its addresses. */
typedef struct plan_load {
    lz_cuda_load load;
    const lz_dnn_plan *plan;
    int chosen, n;
    void *addresses[MAX_TENSORS], *workspace;
    float values[MAX_TENSORS]; /* of tensors by value, at their numbers */
} plan_load;

/* The lock is held meanwhile: the handle has one stream, and a thread that runs another plan waits for it. */
static void load_plan(lz_device *d, lz_cuda_load *load, lz_cu_stream stream) {
    plan_load *l = (plan_load *)load;
    lz_error unused = {.status = LZ_OK};
    const lz_call call = {.device = d, .err = &unused};
    execution e = {.plan = l->plan};
    pthread_mutex_lock(&d->dnn->lock);
    if (make_pack(&call, l->addresses, l->n, l->workspace, &e.pack) && !use_stream(d, stream))
        execute_plan(&call, &e, l->chosen);
    use_stream(d, d->stream);
    if (e.pack) d->api.dnn.BackendDestroyDescriptor(e.pack);
    pthread_mutex_unlock(&d->dnn->lock);
}

static void list_plan(lz_device *d, lz_dnn_plan *plan, const lz_dnn_operands *o) {
    int chosen = plan->loaded ? -1 : known_plan(d, plan);
    plan_load *load = chosen >= 0 ? lz_host_alloc(d->ctx, sizeof *load) : NULL;
    plan->loaded = true;
    if (!load) return;
    *load = (plan_load){
        .load = {.launch = load_plan}, .plan = plan, .chosen = chosen, .n = o->n, .workspace = o->workspace};
    for (int i = 0; i < o->n; i++) {
        load->addresses[i] = o->addresses[i];
        if (i < o->n - o->n_values) continue;
        load->values[i] = *(const float *)o->addresses[i];
        load->addresses[i] = &load->values[i];
    }
    lz_cuda_list_load(d, &load->load);
}

bool lz_dnn_run(const lz_call *call, lz_dnn_plan *plan, const lz_dnn_operands *o) {
    execution e = {.plan = plan};
    lz_device *d = call->device;
    bool done = true;
    pthread_mutex_lock(&d->dnn->lock);
    if (d->rehearsing) {
        list_plan(d, plan, o);
    } else {
        plan->loaded = true;
        done = dnn_ok(call, use_stream(d, d->stream), "its queue") &&
               make_pack(call, o->addresses, o->n, o->workspace, &e.pack);
        if (done && !plan->measured) choose_plan(call, &e, plan);
        done = done && execute_plan(call, &e, plan->chosen);
        if (e.pack) d->api.dnn.BackendDestroyDescriptor(e.pack);
    }
    pthread_mutex_unlock(&d->dnn->lock);
    return done;
}
