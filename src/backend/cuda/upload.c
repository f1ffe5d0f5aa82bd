/* upload.c: copies from the host to the device, through page-locked memory, so that the host does not wait for the last
 * of the transfer. Small uploads share a ring of blocks. Large ones are cut into pieces, and the threads of the pool copy
 * and send them, each from two buffers of its own: one is filled while the other is sent. Between lz_cuda_gather_uploads
 * and lz_cuda_send_gathered large uploads are only listed, and then sent together, so that no thread waits at the end of
 * each. A sending (lz_device_table) has threads of its own in the place of those of the pool. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "backend/cuda/cuda.h"

enum { BLOCKS = 4, BLOCK = 1 << 20, SMALL = 256 << 10, STAGE_ALIGN = 256, LANES = 32, PIECE = 2 << 20 };

typedef struct lane { /* the buffers of a thread, made before it first takes a piece */
    char *memory;
    lz_cu_event sent[2]; /* recorded after the copy out of each buffer */
    int next;
} lane;

typedef struct upload {
    char *to;
    lz_bytes from;
    int64_t offset, bytes; /* range of from */
} upload;

struct lz_cuda_staging {
    upload *gathered;
    int n, room; /* of gathered */
    bool gathers;
    char *memory;
    lz_cu_event sent[BLOCKS]; /* recorded after the last copy out of the block */
    int block;
    int64_t used; /* bytes of the current block */
    lane lanes[LANES];
};

static void drop_buffers(lz_device *d, char *memory, lz_cu_event *sent, int n) {
    for (int i = 0; i < n; i++)
        if (sent[i]) d->api.cu.EventDestroy(sent[i]);
    memset(sent, 0, (size_t)n * sizeof *sent);
    if (memory) d->api.cu.MemFreeHost(memory);
}

static lz_cu_result make_buffers(lz_device *d, char **memory, lz_cu_event *sent, int n, int64_t bytes) {
    void *locked = NULL;
    lz_cu_result result = d->api.cu.MemHostAlloc(&locked, (size_t)(n * bytes), 0);
    *memory = locked;
    for (int i = 0; result == LZ_CUDA_SUCCESS && i < n; i++)
        result = d->api.cu.EventCreate(&sent[i], LZ_CU_EVENT_DISABLE_TIMING);
    if (result == LZ_CUDA_SUCCESS) return result;
    drop_buffers(d, *memory, sent, n);
    *memory = NULL;
    return result;
}

void lz_cuda_close_staging(lz_device *d, struct lz_cuda_staging *s) {
    if (!s) return;
    drop_buffers(d, s->memory, s->sent, BLOCKS);
    for (int i = 0; i < LANES; i++) drop_buffers(d, s->lanes[i].memory, s->lanes[i].sent, 2);
    lz_host_free(d->ctx, s->gathered);
    lz_host_free(d->ctx, s);
}

struct lz_cuda_staging *lz_cuda_open_staging(lz_device *d, lz_error *err) {
    struct lz_cuda_staging *s = lz_host_alloc(d->ctx, sizeof *s);
    if (!s) {
        lz_out_of_memory(err, sizeof *s);
        return NULL;
    }
    if (lz_cuda_ok(d, make_buffers(d, &s->memory, s->sent, BLOCKS, BLOCK), "staging memory", err)) return s;
    lz_cuda_close_staging(d, s);
    return NULL;
}

static bool take_bytes(lz_bytes from, int64_t offset, int64_t bytes, char *to, lz_error *err) {
    const char *data = from.data;
    if (from.file) return lz_mapping_read(from.file, data + offset, bytes, to, err);
    if (data)
        memcpy(to, data + offset, (size_t)bytes);
    else
        from.make(from.user, offset, bytes, to);
    return true;
}

static lz_cu_result send(lz_device *d, lz_cu_stream stream, char *to, const char *from, int64_t bytes) {
    return d->api.cu.MemcpyHtoDAsync((lz_cu_ptr)(uintptr_t)to, from, (size_t)bytes, stream);
}

/* Goes on to the next block, and waits until the copies out of it are done. */
static bool next_block(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, lz_error *err) {
    if (!lz_cuda_ok(d, d->api.cu.EventRecord(s->sent[s->block], stream), "an event", err)) return false;
    s->block = (s->block + 1) % BLOCKS;
    bool free_again = lz_cuda_ok(d, d->api.cu.EventSynchronize(s->sent[s->block]), "an earlier copy", err);
    s->used = free_again ? 0 : BLOCK;
    return free_again;
}

/* Uploads that the lanes send together. */
typedef struct convoy {
    lz_device *d;
    struct lz_cuda_staging *staging;
    lz_cu_stream stream;
    bool waits;           /* a lane ends when the device has its pieces */
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t added; /* an upload, or none will be: open is false */
    bool open;            /* more uploads may be added */
    const upload *uploads;
    int n;
    int next;
    int64_t offset;
    lz_error failed;         /* the first error of a lane that can send */
    lz_cu_result no_buffers; /* the last error of a lane that got no buffers */
} convoy;

/* Takes the next piece. false: there is none, or a lane has failed. */
static bool take_piece(convoy *c, upload *piece) {
    pthread_mutex_lock(&c->lock);
    while (c->open && !c->failed.status && c->next == c->n) pthread_cond_wait(&c->added, &c->lock);
    bool found = !c->failed.status && c->next < c->n;
    if (found) {
        const upload *u = &c->uploads[c->next];
        int64_t left = u->bytes - c->offset;
        *piece = (upload){u->to + c->offset, u->from, c->offset, left < PIECE ? left : PIECE};
        c->offset += piece->bytes;
        if (c->offset == u->bytes) c->next++, c->offset = 0;
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

static bool send_piece(const convoy *c, lane *l, const upload *piece, lz_error *err) {
    lz_device *d = c->d;
    int i = l->next;
    char *buffer = l->memory + (int64_t)i * PIECE;
    l->next = !i;
    static const char what[] = "a copy to the device";
    return lz_cuda_ok(d, d->api.cu.EventSynchronize(l->sent[i]), what, err) &&
           take_bytes(piece->from, piece->offset, piece->bytes, buffer, err) &&
           lz_cuda_ok(d, send(d, c->stream, piece->to, buffer, piece->bytes), what, err) &&
           lz_cuda_ok(d, d->api.cu.EventRecord(l->sent[i], c->stream), what, err);
}

/* Makes the buffers of a lane, unless it has them or no piece is left. false: the lane has none. */
static bool prepare_lane(convoy *c, lane *l) {
    if (l->memory) return true;
    pthread_mutex_lock(&c->lock);
    bool pieces_left = !c->failed.status && (c->open || c->next < c->n);
    pthread_mutex_unlock(&c->lock);
    if (!pieces_left) return false;
    lz_cu_result result = make_buffers(c->d, &l->memory, l->sent, 2, PIECE);
    if (result == LZ_CUDA_SUCCESS) return true;
    pthread_mutex_lock(&c->lock);
    c->no_buffers = result;
    pthread_mutex_unlock(&c->lock);
    return false;
}

/* Sends pieces until none is left. A lane without buffers takes none, so that the other lanes send all of them. */
static void run_lane(void *arg, int64_t i, int thread) {
    (void)thread;
    convoy *c = arg;
    lane *l = &c->staging->lanes[i];
    upload piece;
    lz_error err = {.status = LZ_OK};
    bool fine = lz_cuda_ok(c->d, c->d->api.cu.CtxSetCurrent(c->d->context), "a copy to the device", &err);
    if (fine && !prepare_lane(c, l)) return;
    while (fine && take_piece(c, &piece)) fine = send_piece(c, l, &piece, &err);
    for (int k = 0; k < 2 && c->waits; k++)
        lz_cuda_ok(c->d, c->d->api.cu.EventSynchronize(l->sent[k]), "a copy to the device", &err);
    pthread_mutex_lock(&c->lock);
    if (!c->failed.status) c->failed = err;
    if (c->failed.status) pthread_cond_broadcast(&c->added);
    pthread_mutex_unlock(&c->lock);
}

static void begin_convoy(convoy *c) {
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->added, NULL);
}

/* After all lanes have ended. */
static bool end_convoy(convoy *c, lz_error *err) {
    pthread_cond_destroy(&c->added);
    pthread_mutex_destroy(&c->lock);
    if (!c->failed.status && c->next < c->n) /* no lane has buffers */
        return lz_cuda_ok(c->d, c->no_buffers, "page-locked memory", err);
    if (c->failed.status && err) *err = c->failed;
    return !c->failed.status;
}

static bool send_all(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, const upload *uploads, int n,
                     lz_error *err) {
    lz_pool *pool = lz_base_of(d->ctx)->pool;
    int64_t pieces = 0, lanes = lz_pool_threads(pool) < LANES ? lz_pool_threads(pool) : LANES;
    for (int i = 0; i < n; i++) pieces += (uploads[i].bytes + PIECE - 1) / PIECE;
    convoy c = {.d = d, .staging = s, .stream = stream, .uploads = uploads, .n = n};
    begin_convoy(&c);
    lz_parallel(pool, lanes < pieces ? lanes : pieces, run_lane, &c);
    return end_convoy(&c, err);
}

/* Adds an upload to a list of n, with memory for `room`. false: there is no memory for a longer list. */
static bool add_upload(lz_device *d, upload **list, int *n, int *room, const upload *u) {
    if (*n == *room) {
        int longer = 2 * *room + 64;
        upload *more = lz_host_alloc(d->ctx, (size_t)longer * sizeof *more);
        if (!more) return false;
        if (*n) memcpy(more, *list, (size_t)*n * sizeof *more);
        lz_host_free(d->ctx, *list);
        *list = more;
        *room = longer;
    }
    (*list)[(*n)++] = *u;
    return true;
}

void lz_cuda_gather_uploads(struct lz_cuda_staging *s) { s->gathers = true; }

bool lz_cuda_send_gathered(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, lz_error *err) {
    int n = s->n;
    s->n = 0;
    s->gathers = false;
    return !n || send_all(d, s, stream, s->gathered, n, err);
}

bool lz_cuda_upload(lz_device *d, struct lz_cuda_staging *s, lz_cu_stream stream, void *to, lz_bytes from,
                    int64_t bytes, lz_error *err) {
    const upload u = {.to = to, .from = from, .bytes = bytes};
    if (bytes > SMALL)
        return (s->gathers && add_upload(d, &s->gathered, &s->n, &s->room, &u)) || send_all(d, s, stream, &u, 1, err);
    if (bytes < 1) return true;
    if (s->used + bytes > BLOCK && !next_block(d, s, stream, err)) return false;
    char *stage = s->memory + (int64_t)s->block * BLOCK + s->used;
    if (!take_bytes(from, 0, bytes, stage, err)) return false;
    s->used += (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    return lz_cuda_ok(d, send(d, stream, to, stage, bytes), "a copy to the device", err);
}

/* ---- sendings ---------------------------------------------------------------------------------------------------- */

struct lz_sending {
    convoy convoy;
    upload *list; /* the uploads of the convoy */
    int room;
    struct sender {
        lz_sending *of;
        int lane;
        pthread_t thread;
    } senders[LANES];
    int n_senders;
};

static void *run_sender(void *arg) {
    const struct sender *s = arg;
    run_lane(&s->of->convoy, s->lane, 0);
    return NULL;
}

lz_sending *lz_cuda_start_sending(lz_device *d, lz_error *err) {
    lz_sending *s = lz_host_alloc(d->ctx, sizeof *s);
    if (!d->sends) d->sends = lz_host_alloc(d->ctx, sizeof *d->sends);
    if (!s || !d->sends) lz_out_of_memory(err, sizeof *s);
    bool fine = s && d->sends && lz_cuda_ok(d, d->api.cu.CtxSetCurrent(d->context), "a queue for weights", err);
    if (fine && !d->sends_stream)
        fine = lz_cuda_ok(d, d->api.cu.StreamCreate(&d->sends_stream, LZ_CU_STREAM_NON_BLOCKING), "a queue for weights",
                          err);
    if (!fine) {
        lz_host_free(d->ctx, s);
        return NULL;
    }
    s->convoy = (convoy){.d = d, .staging = d->sends, .stream = d->sends_stream, .waits = true, .open = true};
    begin_convoy(&s->convoy);
    int wanted = lz_pool_threads(lz_base_of(d->ctx)->pool);
    for (int i = 0; i < wanted && i < LANES; i++) {
        struct sender *one = &s->senders[i];
        *one = (struct sender){.of = s, .lane = i};
        if (pthread_create(&one->thread, NULL, run_sender, one)) break;
        s->n_senders++;
    }
    return s;
}

bool lz_cuda_add_sending(lz_sending *s, void *to, lz_bytes from, int64_t bytes) {
    convoy *c = &s->convoy;
    const upload u = {.to = to, .from = from, .bytes = bytes};
    pthread_mutex_lock(&c->lock);
    bool added = !c->failed.status && bytes > 0 && add_upload(c->d, &s->list, &c->n, &s->room, &u);
    c->uploads = s->list;
    if (added) pthread_cond_broadcast(&c->added);
    pthread_mutex_unlock(&c->lock);
    return added;
}

bool lz_cuda_end_sending(lz_sending *s, lz_error *err) {
    convoy *c = &s->convoy;
    lz_context *ctx = c->d->ctx;
    pthread_mutex_lock(&c->lock);
    c->open = false;
    pthread_cond_broadcast(&c->added);
    pthread_mutex_unlock(&c->lock);
    if (!s->n_senders) run_lane(c, 0, 0);
    while (s->n_senders) pthread_join(s->senders[--s->n_senders].thread, NULL);
    bool fine = end_convoy(c, err);
    lz_host_free(ctx, s->list);
    lz_host_free(ctx, s);
    return fine;
}

void lz_cuda_close_sendings(lz_device *d) {
    lz_cuda_close_staging(d, d->sends);
    d->sends = NULL;
}
