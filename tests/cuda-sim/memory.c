/* memory.c: device memory, in one range of addresses that nothing else uses. An allocation ends at a page without
 * access, so a kernel that runs over its end crashes; freed pages lose their access, so a use after free crashes too.
 * New memory is filled with ones: NaN, or -1. */
#include <sys/mman.h>

#include "sim.h"

enum {
    PAGE = 4096,
    ALIGN = 256,               /* what cuMemAlloc promises */
    MAX_ALLOCATIONS = 1 << 16, /* of each of the two kinds */
};
#define RANGE ((size_t)64 << 30)
#define FILLED ((size_t)256 << 20) /* no more than this is filled: memory nobody uses should cost none */

typedef struct allocation {
    char *start; /* as handed out */
    size_t bytes;
    char *pages;
    size_t page_bytes;
} allocation;

/* Sorted by address. */
static allocation device[MAX_ALLOCATIONS], pinned[MAX_ALLOCATIONS];
static int n_device, n_pinned;
static size_t used;
static char *range;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static void insert(allocation *list, int *n, int at, allocation a) {
    memmove(list + at + 1, list + at, sizeof *list * (size_t)(*n - at));
    list[at] = a;
    (*n)++;
}

static void erase(allocation *list, int *n, int at) {
    memmove(list + at, list + at + 1, sizeof *list * (size_t)(*n - at - 1));
    (*n)--;
}

/* The allocation that address lies in, or -1. */
static int find(const allocation *list, int n, const void *address) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle].start <= (const char *)address)
            low = middle + 1;
        else
            high = middle;
    }
    bool inside = low && (const char *)address < list[low - 1].start + list[low - 1].bytes;
    return inside ? low - 1 : -1;
}

static bool holds(const allocation *list, int n, const void *address, size_t bytes) {
    int i = find(list, n, address);
    return i >= 0 && bytes <= list[i].bytes - (size_t)((const char *)address - list[i].start);
}

bool on_device(const void *address, size_t bytes) { return holds(device, n_device, address, bytes); }
bool is_pinned(const void *address, size_t bytes) { return holds(pinned, n_pinned, address, bytes); }
bool is_device_address(const void *address) {
    return range && (const char *)address >= range && (const char *)address < range + RANGE;
}

void protect_device(bool closed) {
    for (int i = 0; settings.strict && i < n_device; i++)
        mprotect(device[i].pages, device[i].page_bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

/* The first gap that takes this many pages and one more, without access, behind them. */
static int find_gap(size_t page_bytes, char **pages) {
    char *from = range;
    int i = 0;
    for (; i < n_device && (size_t)(device[i].pages - from) < page_bytes + PAGE; i++)
        from = device[i].pages + device[i].page_bytes + PAGE;
    *pages = from;
    return (size_t)(range + RANGE - from) < page_bytes + PAGE ? -1 : i;
}

lz_cu_result cuMemAlloc_v2(lz_cu_ptr *address, size_t bytes) {
    ENTER(NORMAL | NOT_CAPTURING);
    if (!bytes) return LZ_CUDA_ERROR_INVALID_VALUE;
    if (!range) {
        range = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) range = NULL;
        if (!range) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (bytes > settings.memory || used > settings.memory - bytes || n_device == MAX_ALLOCATIONS)
        return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    size_t taken = round_up(bytes, ALIGN);
    allocation a = {.bytes = bytes, .page_bytes = round_up(taken, PAGE)};
    int i = find_gap(a.page_bytes, &a.pages);
    if (i < 0 || mprotect(a.pages, a.page_bytes, PROT_READ | PROT_WRITE)) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    a.start = a.pages + a.page_bytes - taken;
    if (taken <= FILLED) memset(a.start, 0xff, taken);
    if (settings.strict) mprotect(a.pages, a.page_bytes, PROT_NONE);
    insert(device, &n_device, i, a);
    used += bytes;
    count_live(MEMORY, 1);
    *address = (lz_cu_ptr)(uintptr_t)a.start;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuMemFree_v2(lz_cu_ptr address) {
    ENTER(INITIALISED | CONTEXT | NOT_CAPTURING);
    char *start = (char *)(uintptr_t)address;
    int i = find(device, n_device, start);
    if (i < 0 || device[i].start != start) return LZ_CUDA_ERROR_INVALID_VALUE;
    flush_all(); /* the real one waits for the device, too */
    allocation a = device[i];
    protect_device(false);
    for (size_t k = a.bytes; a.bytes <= FILLED && k < round_up(a.bytes, ALIGN); k++) {
        if (start[k] == '\xff') continue;
        fprintf(stderr, "GPU simulator: byte %zu of an allocation of %zu was written\n", k, a.bytes);
        abort();
    }
    protect_device(true);
    madvise(a.pages, a.page_bytes, MADV_DONTNEED);
    mprotect(a.pages, a.page_bytes, PROT_NONE);
    erase(device, &n_device, i);
    used -= a.bytes;
    count_live(MEMORY, -1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuMemGetInfo_v2(size_t *unused, size_t *total) {
    ENTER(NORMAL);
    *unused = used < settings.memory ? settings.memory - used : 0;
    *total = settings.memory;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(NORMAL | NOT_CAPTURING);
    if (!bytes) return LZ_CUDA_ERROR_INVALID_VALUE;
    char *start = n_pinned < MAX_ALLOCATIONS ? aligned_alloc(PAGE, round_up(bytes, PAGE)) : NULL;
    if (!start) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    int i = 0;
    while (i < n_pinned && pinned[i].start < start) i++;
    insert(pinned, &n_pinned, i, (allocation){.start = start, .bytes = bytes});
    count_live(HOST_MEMORY, 1);
    *memory = start;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuMemFreeHost(void *memory) {
    ENTER(INITIALISED | CONTEXT | NOT_CAPTURING);
    int i = find(pinned, n_pinned, memory);
    if (i < 0 || pinned[i].start != memory) return LZ_CUDA_ERROR_INVALID_VALUE;
    flush_all();
    erase(pinned, &n_pinned, i);
    free(memory);
    count_live(HOST_MEMORY, -1);
    return LZ_CUDA_SUCCESS;
}

/* ---- copies and fills ------------------------------------------------------------------------------------------- */

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void run_copy(void *data) {
    const copy *c = data;
    memmove(c->to, c->from, c->bytes);
}

static lz_cu_result enqueue_copy(lz_cu_stream stream, void *to, const void *from, size_t bytes) {
    bool down = is_device_address(to), up = is_device_address(from);
    if (!bytes) return LZ_CUDA_SUCCESS;
    if ((down && !on_device(to, bytes)) || (up && !on_device(from, bytes))) return LZ_CUDA_ERROR_INVALID_VALUE;
    copy c = {to, from, bytes};
    lz_cu_result result = enqueue(stream, OP_COPY, run_copy, &c, sizeof c);
    bool waits = (!down && !is_pinned(to, bytes)) || (!up && !is_pinned(from, bytes));
    if (!result && waits && !(stream && stream->capture)) flush_all();
    return result;
}

lz_cu_result cuMemcpyHtoDAsync_v2(lz_cu_ptr to, const void *from, size_t bytes, lz_cu_stream stream) {
    ENTER(NORMAL);
    void *device_to = (void *)(uintptr_t)to;
    if (is_device_address(from) || !is_device_address(device_to)) return LZ_CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, device_to, from, bytes);
}

lz_cu_result cuMemcpyDtoHAsync_v2(void *to, lz_cu_ptr from, size_t bytes, lz_cu_stream stream) {
    ENTER(NORMAL);
    const void *device_from = (const void *)(uintptr_t)from;
    if (is_device_address(to) || !is_device_address(device_from)) return LZ_CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, to, device_from, bytes);
}

lz_cu_result cuMemcpyDtoDAsync_v2(lz_cu_ptr to, lz_cu_ptr from, size_t bytes, lz_cu_stream stream) {
    ENTER(NORMAL);
    void *device_to = (void *)(uintptr_t)to;
    const void *device_from = (const void *)(uintptr_t)from;
    if (!is_device_address(device_from) || !is_device_address(device_to)) return LZ_CUDA_ERROR_INVALID_VALUE;
    return enqueue_copy(stream, device_to, device_from, bytes);
}

typedef struct fill {
    void *to;
    int value;
    size_t bytes;
} fill;

static void run_fill(void *data) {
    const fill *f = data;
    memset(f->to, f->value, f->bytes);
}

lz_cu_result cuMemsetD8Async(lz_cu_ptr to, unsigned char value, size_t bytes, lz_cu_stream stream) {
    ENTER(NORMAL);
    fill f = {(void *)(uintptr_t)to, value, bytes};
    if (!bytes) return LZ_CUDA_SUCCESS;
    if (!on_device(f.to, bytes)) return LZ_CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, OP_SET, run_fill, &f, sizeof f);
}
