/* cuda_on_cpu.h: CUDA C++ as C++17, for the simulator. libnvrtc puts this before the source of a kernel and compiles
 * both into a shared library; libcuda calls its launch function.
 *
 * One block, or one cluster of blocks, runs at a time and its threads are fibers, switched where they wait only; a
 * kernel that never waits runs as a plain loop. Odd blocks run their threads backwards, and every launch swaps the two,
 * so that results which depend on the order of threads differ. Shared memory starts as all ones, which is NaN. What is
 * undefined on a GPU and can be seen here (a barrier that some threads never reach, lanes that disagree, writes behind
 * shared memory, a stack that is too small, an illegal address, a division by zero) is said on stderr, and the program
 * stops.
 *
 * Inline assembly is not here: what kernels hide behind #ifndef LZ_SIM they spell out in C++ otherwise. For the copy
 * engine and the barriers of Hopper that is a few lines, because lz_sim has them: copies of every second pair of blocks
 * are done at once, those of the others as late as the kernel's waiting allows, so that both a missing wait and a
 * buffer that is given back too soon show. Nor are half types, textures, cooperative groups, launches from kernels. No
 * header is included: kernels get none from NVRTC either, and it keeps compiling at some tens of milliseconds. */
#ifndef __x86_64__
#error "the simulator switches between threads in x86-64 assembly"
#endif
#include "module.h"

#define LZ_SIM 1
typedef __SIZE_TYPE__ size_t;

/* ---- what qualifies things -------------------------------------------------------------------------------------- */

/* libnvrtc looks for these three attributes to find the kernels, and for the section to rewrite extern __shared__. */
#define __global__ __attribute__((lz_sim_kernel))
#define __launch_bounds__(...) __attribute__((lz_sim_bounds(__VA_ARGS__)))
#define __cluster_dims__(...) __attribute__((lz_sim_cluster(__VA_ARGS__)))
#define __shared__ static __attribute__((section("lz_sim_shared")))
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

/* ---- vectors ---------------------------------------------------------------------------------------------------- */

#define LZ_SIM_VECTORS(type, name, align2, align4)                                                                     \
    struct name##1 {                                                                                                   \
        type x;                                                                                                        \
    };                                                                                                                 \
    struct __align__(align2) name##2 {                                                                                 \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct name##3 {                                                                                                   \
        type x, y, z;                                                                                                  \
    };                                                                                                                 \
    struct __align__(align4) name##4 {                                                                                 \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    inline name##1 make_##name##1(type x) { return {x}; }                                                              \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                   \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                        \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

LZ_SIM_VECTORS(signed char, char, 2, 4)
LZ_SIM_VECTORS(unsigned char, uchar, 2, 4)
LZ_SIM_VECTORS(short, short, 4, 8)
LZ_SIM_VECTORS(unsigned short, ushort, 4, 8)
LZ_SIM_VECTORS(int, int, 8, 16)
LZ_SIM_VECTORS(unsigned, uint, 8, 16)
LZ_SIM_VECTORS(long long, longlong, 16, 16)
LZ_SIM_VECTORS(unsigned long long, ulonglong, 16, 16)
LZ_SIM_VECTORS(float, float, 8, 16)
LZ_SIM_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

/* ---- threads as fibers ------------------------------------------------------------------------------------------ */

extern "C" {
int dprintf(int file, const char *format, ...);
int printf(const char *format, ...);
void abort(void) __attribute__((noreturn));
void *memset(void *to, int value, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);

/* Seen by the assembly below as far as the compiler knows, so it reloads them after every switch. */
__attribute__((visibility("hidden"))) uint3 threadIdx, blockIdx;
__attribute__((visibility("hidden"))) dim3 blockDim, gridDim;
/* The linker's names for the ends of the static shared memory, if there is any. */
extern __attribute__((visibility("hidden"), weak)) char __start_lz_sim_shared[], __stop_lz_sim_shared[];

/* Puts the registers that a call keeps on the stack, the stack pointer into *save, and goes on at the other stack. */
void lz_sim_switch(void **save, void *other) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .hidden lz_sim_switch
    .type lz_sim_switch, @function
    .globl lz_sim_switch
lz_sim_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
    .size lz_sim_switch, . - lz_sim_switch
)");
}

static const int warpSize = 32;

namespace lz_sim {

enum state { FRESH, READY, AT_BARRIER, AT_WARP, AT_CONDITION, DONE };
enum warp_op { SYNC, SHUFFLE, BALLOT, MATCH, ADD, MIN, MAX, UMIN, UMAX, AND, OR, XOR };
typedef unsigned long long u64;

struct thread {
    void *sp;
    char *stack;
    enum state state;
    uint3 index;
    int block;     /* of its cluster */
    unsigned mask; /* at a warp function: who takes part, ... */
    warp_op op;
    int from;
    u64 value, result;
    bool (*ready)(const thread &t); /* at a condition: may it go on? It looks at: */
    const void *watched;
    unsigned groups; /* of copies out of shared memory, that it has closed */
};

static const int SLACK = 256; /* watched bytes behind dynamic shared memory */
alignas(1024) static char dynamic_shared[LZ_SIM_MAX_CLUSTER][LZ_SIM_MAX_SHARED + 1024];
static thread threads[LZ_SIM_MAX_THREADS]; /* of the blocks of a cluster, one block after the other */
static int n_threads, n_blocks, block_threads, current;
static uint3 first_block;
static bool backwards, lazy;
static void *scheduler;
static const lz_sim_launch *launch;
static const u64 CANARY = 0x5ca1ab1e0ddba11ULL;

static int at(int i) { return backwards ? n_threads - 1 - i : i; }

static void tell(const char *what) {
    int waiting[DONE + 1] = {};
    for (int i = 0; i < n_threads; i++) waiting[threads[i].state]++;
    dprintf(2, "GPU simulator: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n", launch->kernel->name,
            blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
    dprintf(2, "    of %d threads %d wait at a block barrier, %d at a warp function, %d for others, %d have returned\n",
            n_threads, waiting[AT_BARRIER], waiting[AT_WARP], waiting[AT_CONDITION], waiting[DONE]);
}

__attribute__((noreturn)) static void fail(const char *what) {
    tell(what);
    abort();
}

static void become(int i) {
    current = i;
    threadIdx = threads[i].index;
    blockIdx = {first_block.x + threads[i].block, first_block.y, first_block.z};
}

__attribute__((noinline)) static void yield() {
    thread &t = threads[current];
    lz_sim_switch(&t.sp, scheduler);
}

/* A fiber runs its thread, then others that have not begun, until one of them waits. */
static void fiber() {
    for (;;) {
        launch->kernel->run(launch->params);
        thread &mine = threads[current];
        mine.state = DONE;
        int i = backwards ? current - 1 : current + 1;
        if (i < 0 || i >= n_threads || threads[i].state != FRESH) break;
        threads[i].stack = mine.stack;
        threads[i].state = READY;
        become(i);
    }
    yield();
    fail("a thread that returned was woken");
}

static void resume(int i, char *&free_stack) {
    thread &t = threads[i];
    become(i);
    if (t.state == FRESH) {
        t.stack = free_stack;
        *reinterpret_cast<u64 *>(t.stack) = CANARY;
        void **top = reinterpret_cast<void **>(t.stack + LZ_SIM_STACK - 16);
        top[-1] = nullptr; /* where fiber would return to: also keeps its stack aligned */
        top[-2] = reinterpret_cast<void *>(fiber);
        t.sp = top - 8; /* below it six registers */
    }
    t.state = READY;
    lz_sim_switch(&scheduler, t.sp);
    thread &last = threads[current]; /* maybe another than it began with */
    if (*reinterpret_cast<u64 *>(last.stack) != CANARY) fail("its stack was too small");
    if (last.stack == free_stack && last.state != DONE) free_stack += LZ_SIM_STACK;
}

__attribute__((noreturn)) static void stuck() {
    int i = 0;
    while (threads[i].state == DONE) i++;
    become(i);
    fail(threads[i].state == AT_WARP        ? "not all lanes of the mask come to this warp function"
         : threads[i].state == AT_CONDITION ? "what it waits for never happens"
                                            : "not all threads of the block come to this barrier");
}

/* Lets a block go on if all its threads are at its barrier. */
static bool pass_barrier(int block) {
    thread *t = threads + block * block_threads;
    int votes = 0;
    for (int i = 0; i < block_threads; i++) {
        if (t[i].state != AT_BARRIER) return false;
        votes += t[i].value != 0;
    }
    for (int i = 0; i < block_threads; i++) {
        t[i].result = votes;
        t[i].state = READY;
    }
    return true;
}

static bool run_copy();
static void start_copies();
static bool copies_left();

static void run_cluster() {
    char *free_stack = launch->stacks;
    start_copies();
    for (int i = 0; i < n_threads; i++) {
        threads[i].state = FRESH;
        threads[i].groups = 0;
    }
    for (;;) {
        bool moved = false;
        for (int i = 0; i < n_threads; i++) {
            thread &t = threads[at(i)];
            if (t.state > READY && (t.state != AT_CONDITION || !t.ready(t))) continue;
            resume(at(i), free_stack);
            moved = true;
        }
        for (int i = 0; !moved && i < n_blocks; i++) moved = pass_barrier(i);
        if (moved) continue;
        int done = 0;
        for (int i = 0; i < n_threads; i++) done += threads[i].state == DONE;
        if (done == n_threads) break;
        if (!run_copy()) stuck();
    }
    if (copies_left()) fail("returned while the copy engine was at work");
}

static void run_grid(const lz_sim_launch *l) {
    launch = l;
    gridDim = dim3(l->grid[0], l->grid[1], l->grid[2]);
    blockDim = dim3(l->block[0], l->block[1], l->block[2]);
    block_threads = l->block[0] * l->block[1] * l->block[2];
    n_blocks = l->kernel->cluster;
    n_threads = n_blocks * block_threads;
    int i = 0;
    for (int block = 0; block < n_blocks; block++)
        for (unsigned z = 0; z < l->block[2]; z++)
            for (unsigned y = 0; y < l->block[1]; y++)
                for (unsigned x = 0; x < l->block[0]; x++) {
                    threads[i].block = block;
                    threads[i++].index = {x, y, z};
                }
    if (n_blocks > 1 && (__start_lz_sim_shared || block_threads % 32))
        fail("clusters have dynamic shared memory only here, and whole warps");
    u64 serial = l->serial;
    for (unsigned z = 0; z < l->grid[2]; z++)
        for (unsigned y = 0; y < l->grid[1]; y++)
            for (unsigned x = 0; x < l->grid[0]; x += n_blocks) {
                first_block = blockIdx = {x, y, z};
                backwards = serial & 1;
                lazy = serial++ & 2;
                if (__start_lz_sim_shared)
                    memset(__start_lz_sim_shared, 0xff, __stop_lz_sim_shared - __start_lz_sim_shared);
                for (int block = 0; block < n_blocks; block++)
                    memset(dynamic_shared[block], 0xff, l->shared_bytes + SLACK);
                run_cluster();
                for (int byte = 0; byte < n_blocks * SLACK; byte++)
                    if (dynamic_shared[byte / SLACK][l->shared_bytes + byte % SLACK] != '\xff')
                        fail("wrote behind its dynamic shared memory");
            }
}

/* ---- warps ------------------------------------------------------------------------------------------------------ */

static int lane() { return current & 31; }

/* The lane that arrives last computes for all of them; they are read only after that, so nobody can overtake. */
static void finish(thread *warp, unsigned arrived) {
    unsigned ballot = 0;
    u64 sum = 0;
    bool first = true;
    for (int i = 0; i < 32; i++) {
        if (!(arrived >> i & 1)) continue;
        const u64 v = warp[i].value;
        ballot |= unsigned(v != 0) << i;
        switch (warp[i].op) {
        case ADD: sum = unsigned(sum + v); break;
        case MIN: sum = first || int(v) < int(sum) ? v : sum; break;
        case MAX: sum = first || int(v) > int(sum) ? v : sum; break;
        case UMIN: sum = first || v < sum ? v : sum; break;
        case UMAX: sum = first || v > sum ? v : sum; break;
        case AND: sum = first ? v : sum & v; break;
        case OR: sum |= v; break;
        case XOR: sum ^= v; break;
        default: break;
        }
        first = false;
    }
    for (int i = 0; i < 32; i++) {
        if (!(arrived >> i & 1)) continue;
        thread &t = warp[i];
        t.result = sum;
        if (t.op == SHUFFLE) t.result = arrived >> t.from & 1 ? warp[t.from].value : ~0ULL; /* undefined on a GPU */
        if (t.op == BALLOT) t.result = ballot;
        if (t.op == MATCH) {
            t.result = 0;
            for (int j = 0; j < 32; j++) t.result |= u64((arrived >> j & 1) && warp[j].value == t.value) << j;
        }
        t.state = READY;
    }
}

/* Waits for the lanes of mask that have not returned. */
__attribute__((noinline)) static u64 meet(unsigned mask, warp_op op, u64 value, int from = 0) {
    thread &me = threads[current];
    if (!(mask >> lane() & 1)) fail("a warp function whose mask leaves out its caller");
    me.mask = mask;
    me.op = op;
    me.value = value;
    me.from = from;
    me.state = AT_WARP;
    thread *warp = threads + (current & ~31);
    const int lanes = n_threads - (current & ~31) < 32 ? n_threads - (current & ~31) : 32;
    unsigned arrived = 0;
    bool complete = true;
    for (int i = 0; complete && i < lanes; i++) { /* first those who come last */
        const int other = backwards ? i : lanes - 1 - i;
        if (!(mask >> other & 1) || warp[other].state == DONE) continue;
        complete = warp[other].state == AT_WARP && warp[other].mask == mask && warp[other].op == op;
        arrived |= 1u << other;
    }
    if (complete)
        finish(warp, arrived);
    else
        yield();
    return me.result;
}

template <class T> static T shuffle(unsigned mask, T value, int from) {
    static_assert(sizeof(T) <= 8, "only what fits into two registers can be shuffled");
    u64 bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = meet(mask, SHUFFLE, bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int barrier(int vote) {
    thread &me = threads[current];
    me.value = vote != 0;
    me.state = AT_BARRIER;
    yield();
    return int(me.result);
}

/* ---- Hopper: conditions, clusters, barriers in shared memory, the copy engine ----------------------------------- */

/* Goes on when ready(t) holds, with t.watched and t.value as given. */
static void wait_until(bool (*ready)(const thread &t), const void *watched, u64 value) {
    thread &me = threads[current];
    me.ready = ready;
    me.watched = watched;
    me.value = value;
    if (ready(me)) return;
    me.state = AT_CONDITION;
    yield();
}

/* Addresses in shared memory are offsets, as in PTX. */
static char *shared_at(unsigned offset, int block) {
    if (block < 0 || block >= n_blocks) fail("there is no such block in the cluster");
    if (offset >= launch->shared_bytes) fail("an address behind the shared memory");
    return dynamic_shared[block] + offset;
}
static char *shared_at(unsigned offset) { return shared_at(offset, threads[current].block); }
static char *own_shared() { return dynamic_shared[threads[current].block]; }
static unsigned offset_of(const void *at) { return unsigned(static_cast<const char *>(at) - own_shared()); }

/* Barriers with a number: some threads of a block, or (the last one) all of a cluster. */
struct gathering {
    int arrived;
    u64 round;
};
static gathering gatherings[LZ_SIM_MAX_CLUSTER * 16 + 1];

static void pass(gathering &g, int count) {
    if (++g.arrived < count) return;
    g.arrived = 0;
    g.round++;
}
static void gather(int which, int count) {
    gathering &g = gatherings[which];
    u64 round = g.round;
    pass(g, count);
    wait_until([](const thread &t) { return static_cast<const gathering *>(t.watched)->round != t.value; }, &g, round);
}
static int gathering_of(int number, int count) {
    if (number < 1 || number > 15 || count % 32) fail("a barrier of this number or for so many threads");
    return threads[current].block * 16 + number;
}
static void sync_threads(int number, int count) { gather(gathering_of(number, count), count); }
static void arrive_threads(int number, int count) { pass(gatherings[gathering_of(number, count)], count); }
static void sync_cluster() { gather(LZ_SIM_MAX_CLUSTER * 16, n_threads); }

/* An mbarrier: a phase ends when all have arrived and all bytes have come. */
struct mbarrier {
    int bytes; /* expected and not here yet; fewer than 0 when they came first */
    unsigned char pending, count, phase, mark;
};
static mbarrier &mbarrier_at(unsigned offset, int block) {
    mbarrier &b = *reinterpret_cast<mbarrier *>(shared_at(offset, block));
    if (offset % 8 || b.mark != 0x5a) fail("no mbarrier was made here");
    return b;
}
static void settle(mbarrier &b) {
    if (b.pending || b.bytes) return;
    b.pending = b.count;
    b.phase ^= 1;
}
static void make_mbarrier(unsigned offset, unsigned count) {
    if (!count || count > 255) fail("an mbarrier for so many arrivals");
    *reinterpret_cast<mbarrier *>(shared_at(offset)) = {0, (unsigned char)count, (unsigned char)count, 0, 0x5a};
}
static void arrive(unsigned offset, int block, int expected = 0) {
    mbarrier &b = mbarrier_at(offset, block);
    if (!b.pending) fail("more arrivals at an mbarrier than it waits for");
    b.bytes += expected;
    b.pending--;
    settle(b);
}
static void bytes_came(unsigned offset, int block, int bytes) {
    mbarrier &b = mbarrier_at(offset, block);
    b.bytes -= bytes;
    settle(b);
}
static void wait_for_phase(unsigned offset, unsigned parity) {
    wait_until([](const thread &t) { return static_cast<const mbarrier *>(t.watched)->phase != t.value; },
               &mbarrier_at(offset, threads[current].block), parity & 1);
}

/* Where a tile begins: along a row, rows, and what is further out, of which a tile has one each. */
struct place_of_tile {
    int at[5];
};

/* A copy of a tile, for the blocks of a mask into shared memory, or out of it. */
struct tile_copy {
    const lz_sim_tensor_map *map;
    place_of_tile place;
    int block, thread;
    unsigned at, barrier, mask, group;
    bool in;
};
enum { MAX_COPIES = 256 };
static tile_copy copies[MAX_COPIES];
static int n_copies;

static unsigned swizzled(unsigned offset, unsigned mode) { return offset ^ (offset >> 7 & ((1u << mode) - 1)) << 4; }

/* One tile; beyond the edges of the tensor zeros are read, and nothing is written. */
static void move_tile(const tile_copy &c, int block) {
    const lz_sim_tensor_map &m = *c.map;
    if (c.at % 128 || (m.swizzle == 3 && c.at % 1024)) fail("a tile in shared memory that is not aligned");
    bool inside = true;
    char *first = reinterpret_cast<char *>(m.address);
    for (int i = 2; i < m.rank; i++) {
        if (m.box[i] != 1) fail("copies of tiles have two dimensions here");
        inside = inside && c.place.at[i] >= 0 && (u64)c.place.at[i] < m.dims[i];
        first += c.place.at[i] * (long long)m.strides[i - 1];
    }
    for (unsigned row = 0; row < m.box[1]; row++)
        for (unsigned column = 0; column < m.box[0]; column++) {
            const long long x = c.place.at[0] + (long long)column, y = c.place.at[1] + (long long)row;
            const bool there = inside && x >= 0 && y >= 0 && (u64)x < m.dims[0] && (u64)y < m.dims[1];
            char *here = shared_at(swizzled(c.at + (row * m.box[0] + column) * m.size, m.swizzle), block);
            char *far = first + (there ? y * (long long)m.strides[0] + x * m.size : 0);
            if (!c.in && there) memcpy(far, here, m.size);
            if (c.in && there) memcpy(here, far, m.size);
            if (c.in && !there) memset(here, 0, m.size);
        }
}

static void do_copy(int which) {
    const tile_copy c = copies[which];
    n_copies--;
    for (int i = which; i < n_copies; i++) copies[i] = copies[i + 1];
    for (int block = 0; block < n_blocks; block++) {
        if (!(c.mask >> block & 1)) continue;
        move_tile(c, block);
        if (c.in) bytes_came(c.barrier, block, int(c.map->box[0] * c.map->box[1] * c.map->size));
    }
}

static void start_copies() { n_copies = 0; }
static bool copies_left() { return n_copies > 0; }
static bool run_copy() { /* only what comes in happens by itself: what goes out is waited for */
    for (int i = 0; i < n_copies; i++)
        if (copies[i].in) {
            do_copy(i);
            return true;
        }
    return false;
}

static void start_copy(const tile_copy &c) {
    if (n_copies == MAX_COPIES) fail("more copies under way than this simulator keeps");
    copies[n_copies++] = c;
    if (!lazy) do_copy(n_copies - 1);
}
static void copy_in(unsigned to, const void *map, place_of_tile place, unsigned barrier, unsigned mask) {
    start_copy({static_cast<const lz_sim_tensor_map *>(map), place, threads[current].block, current, to, barrier,
                mask ? mask : 1u << threads[current].block, 0, true});
}
static void copy_out(const void *map, place_of_tile place, unsigned from) {
    start_copy({static_cast<const lz_sim_tensor_map *>(map), place, threads[current].block, current, from, 0,
                1u << threads[current].block, threads[current].groups, false});
}
static void close_group() { threads[current].groups++; }
/* All but the latest n groups of copies that this thread began have been read. */
static void wait_for_groups(unsigned n) {
    for (int i = 0; i < n_copies;)
        if (!copies[i].in && copies[i].thread == current && copies[i].group + n < threads[current].groups)
            do_copy(i);
        else
            i++;
}

/* ---- from the array of pointers that cuLaunchKernel takes to a call --------------------------------------------- */

template <unsigned... I> struct list {};
template <unsigned N, unsigned... I> struct count_to : count_to<N - 1, N - 1, I...> {};
template <unsigned... I> struct count_to<0, I...> { typedef list<I...> type; };
template <class T> struct plain { typedef T type; };
template <class T> struct plain<const T> { typedef T type; };

template <auto F> struct entry;
template <class... P, void (*F)(P...)> struct entry<F> {
    static constexpr unsigned sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    template <unsigned... I> static void call(void **params, list<I...>) {
        (void)params;
        F(*static_cast<typename plain<P>::type *>(params[I])...);
    }
    static void run(void **params) { call(params, typename count_to<sizeof...(P)>::type()); }
    static constexpr lz_sim_kernel describe(const char *name, int max_threads, int = 0) {
        return {name, run, sizes, int(sizeof...(P)), max_threads, 1};
    }
};
constexpr lz_sim_kernel clustered(lz_sim_kernel kernel, int blocks, int = 1, int = 1) {
    kernel.cluster = blocks;
    return kernel;
}

} // namespace lz_sim

/* ---- built-in functions: synchronisation ------------------------------------------------------------------------ */

#define __syncthreads() ((void)lz_sim::barrier(0))
#define __syncthreads_count(vote) (lz_sim::barrier(vote))
#define __syncthreads_or(vote) (lz_sim::barrier(vote) != 0)
#define __syncthreads_and(vote) (lz_sim::barrier(!(vote)) == 0)
inline void __syncwarp(unsigned mask = 0xffffffff) { lz_sim::meet(mask, lz_sim::SYNC, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap() { lz_sim::fail("trap"); }
inline void __nanosleep(unsigned) {}

inline unsigned __activemask() {
    unsigned active = 0;
    const int first = lz_sim::current & ~31;
    for (int i = 0; i < 32 && first + i < lz_sim::n_threads; i++)
        active |= unsigned(lz_sim::threads[first + i].state != lz_sim::DONE) << i;
    return active;
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
    return unsigned(lz_sim::meet(mask, lz_sim::BALLOT, vote != 0));
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, !vote) == 0; }
template <class T> unsigned __match_any_sync(unsigned mask, T value) {
    lz_sim::u64 bits = 0;
    memcpy(&bits, &value, sizeof value);
    return unsigned(lz_sim::meet(mask, lz_sim::MATCH, bits));
}

/* Lanes outside of a segment of width lanes keep their own value, as on the GPU. */
template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    return lz_sim::shuffle(mask, value, (lz_sim::lane() & ~(width - 1)) | (from & (width - 1)));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const int lane = lz_sim::lane(), from = lane ^ bits;
    return lz_sim::shuffle(mask, value, from < (lane & ~(width - 1)) + width ? from : lane);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned step, int width = 32) {
    const int lane = lz_sim::lane(), from = lane - int(step);
    return lz_sim::shuffle(mask, value, from >= (lane & ~(width - 1)) ? from : lane);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned step, int width = 32) {
    const int lane = lz_sim::lane(), from = lane + int(step);
    return lz_sim::shuffle(mask, value, from < (lane & ~(width - 1)) + width ? from : lane);
}

#define LZ_SIM_REDUCE(name, type, op)                                                                                  \
    inline type __reduce_##name##_sync(unsigned mask, type value) {                                                    \
        return type(lz_sim::meet(mask, lz_sim::op, unsigned(value)));                                                  \
    }
LZ_SIM_REDUCE(add, int, ADD)
LZ_SIM_REDUCE(add, unsigned, ADD)
LZ_SIM_REDUCE(min, int, MIN)
LZ_SIM_REDUCE(min, unsigned, UMIN)
LZ_SIM_REDUCE(max, int, MAX)
LZ_SIM_REDUCE(max, unsigned, UMAX)
LZ_SIM_REDUCE(and, unsigned, AND)
LZ_SIM_REDUCE(or, unsigned, OR)
LZ_SIM_REDUCE(xor, unsigned, XOR)

/* One block and one thread at a time: every update is atomic. */
#define LZ_SIM_ATOMIC(name, floats, change)                                                                            \
    template <class T> T atomic##name(T *at, typename lz_sim::plain<T>::type value) {                                  \
        static_assert(floats || T(0.5) == T(0), "atomic" #name " takes integers");                                     \
        const T old = *at;                                                                                             \
        *at = (change);                                                                                                \
        return old;                                                                                                    \
    }
LZ_SIM_ATOMIC(Add, true, old + value)
LZ_SIM_ATOMIC(Sub, false, old - value)
LZ_SIM_ATOMIC(Max, false, old > value ? old : value)
LZ_SIM_ATOMIC(Min, false, old < value ? old : value)
LZ_SIM_ATOMIC(Exch, true, value)
LZ_SIM_ATOMIC(Or, false, old | value)
LZ_SIM_ATOMIC(And, false, (old) & (value))
LZ_SIM_ATOMIC(Xor, false, old ^ value)
LZ_SIM_ATOMIC(Inc, false, old >= value ? 0 : old + 1)
template <class T> T atomicCAS(T *at, typename lz_sim::plain<T>::type expected, typename lz_sim::plain<T>::type value) {
    const T old = *at;
    if (old == expected) *at = value;
    return old;
}

/* ---- built-in functions: loads and stores ----------------------------------------------------------------------- */

/* A vector load or store must be aligned to its size: the GPU stops there, an x86 might not. */
namespace lz_sim {
template <class T> const T *aligned(const T *at) {
    if (reinterpret_cast<u64>(at) % alignof(T)) fail("misaligned address");
    return at;
}
} // namespace lz_sim
#define LZ_SIM_LOAD(name)                                                                                              \
    template <class T> T name(const T *at) { return *lz_sim::aligned(at); }
#define LZ_SIM_STORE(name)                                                                                             \
    template <class T> void name(T *at, typename lz_sim::plain<T>::type value) {                                       \
        lz_sim::aligned(at);                                                                                           \
        *at = value;                                                                                                   \
    }
LZ_SIM_LOAD(__ldg)
LZ_SIM_LOAD(__ldca)
LZ_SIM_LOAD(__ldcg)
LZ_SIM_LOAD(__ldcs)
LZ_SIM_LOAD(__ldlu)
LZ_SIM_LOAD(__ldcv)
LZ_SIM_STORE(__stwb)
LZ_SIM_STORE(__stcg)
LZ_SIM_STORE(__stcs)
LZ_SIM_STORE(__stwt)

/* ---- built-in functions: numbers -------------------------------------------------------------------------------- */

#define LZ_SIM_MATH1(name)                                                                                             \
    extern "C" double name(double);                                                                                    \
    extern "C" float name##f(float);                                                                                   \
    inline float name(float x) { return name##f(x); }
#define LZ_SIM_MATH2(name)                                                                                             \
    extern "C" double name(double, double);                                                                            \
    extern "C" float name##f(float, float);                                                                            \
    inline float name(float x, float y) { return name##f(x, y); }
LZ_SIM_MATH1(sqrt)
LZ_SIM_MATH1(cbrt)
LZ_SIM_MATH1(exp)
LZ_SIM_MATH1(exp2)
LZ_SIM_MATH1(exp10)
LZ_SIM_MATH1(expm1)
LZ_SIM_MATH1(log)
LZ_SIM_MATH1(log2)
LZ_SIM_MATH1(log10)
LZ_SIM_MATH1(log1p)
LZ_SIM_MATH1(sin)
LZ_SIM_MATH1(cos)
LZ_SIM_MATH1(tan)
LZ_SIM_MATH1(asin)
LZ_SIM_MATH1(acos)
LZ_SIM_MATH1(atan)
LZ_SIM_MATH1(sinh)
LZ_SIM_MATH1(cosh)
LZ_SIM_MATH1(tanh)
LZ_SIM_MATH1(erf)
LZ_SIM_MATH1(erfc)
LZ_SIM_MATH1(fabs)
LZ_SIM_MATH1(floor)
LZ_SIM_MATH1(ceil)
LZ_SIM_MATH1(trunc)
LZ_SIM_MATH1(round)
LZ_SIM_MATH1(rint)
LZ_SIM_MATH1(nearbyint)
LZ_SIM_MATH2(pow)
LZ_SIM_MATH2(atan2)
LZ_SIM_MATH2(fmod)
LZ_SIM_MATH2(fmin)
LZ_SIM_MATH2(fmax)
LZ_SIM_MATH2(copysign)
LZ_SIM_MATH2(hypot)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
extern "C" void sincosf(float, float *, float *);
extern "C" float ldexpf(float, int);
extern "C" double ldexp(double, int);

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
inline float fdividef(float a, float b) { return a / b; }
template <class T> bool isnan(T x) { return __builtin_isnan(x); }
template <class T> bool isinf(T x) { return __builtin_isinf_sign(x) != 0; }
template <class T> bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> bool signbit(T x) { return __builtin_signbit(x); }

/* The fast ones are less exact on a GPU; here they are exact. */
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float *s, float *c) { sincosf(x, s, c); }
inline float __frsqrt_rn(float x) { return float(1.0 / sqrt(double(x))); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

#define LZ_SIM_ORDER(type)                                                                                             \
    inline type min(type a, type b) { return b < a ? b : a; }                                                          \
    inline type max(type a, type b) { return a < b ? b : a; }
LZ_SIM_ORDER(int)
LZ_SIM_ORDER(unsigned)
LZ_SIM_ORDER(long)
LZ_SIM_ORDER(unsigned long)
LZ_SIM_ORDER(long long)
LZ_SIM_ORDER(unsigned long long)
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline long long min(int a, long long b) { return min((long long)a, b); }
inline long long min(long long a, int b) { return min(a, (long long)b); }
inline long long max(int a, long long b) { return max((long long)a, b); }
inline long long max(long long a, int b) { return max(a, (long long)b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline long long llabs(long long x) { return abs(x); }

#define LZ_SIM_BITS(name, from, to)                                                                                    \
    inline to name(from value) {                                                                                       \
        to bits;                                                                                                       \
        memcpy(&bits, &value, sizeof bits);                                                                            \
        return bits;                                                                                                   \
    }
LZ_SIM_BITS(__float_as_int, float, int)
LZ_SIM_BITS(__float_as_uint, float, unsigned)
LZ_SIM_BITS(__int_as_float, int, float)
LZ_SIM_BITS(__uint_as_float, unsigned, float)
LZ_SIM_BITS(__double_as_longlong, double, long long)
LZ_SIM_BITS(__longlong_as_double, long long, double)

/* Conversions stop at the ends of the range, and NaN gives 0. */
namespace lz_sim {
template <class To> To convert(double x, double low, double high, To least, To most) {
    return x != x ? To(0) : x <= low ? least : x >= high ? most : To(x);
}
inline int to_int(double x) { return convert<int>(x, -2147483648.0, 2147483647.0, -2147483647 - 1, 2147483647); }
inline unsigned to_unsigned(double x) { return convert<unsigned>(x, 0.0, 4294967295.0, 0, 4294967295u); }
inline long long to_longlong(double x) {
    return convert<long long>(x, -9223372036854775808.0, 9223372036854775808.0, -9223372036854775807LL - 1,
                              9223372036854775807LL);
}
} // namespace lz_sim
inline int __float2int_rn(float x) { return lz_sim::to_int(rintf(x)); }
inline int __float2int_rz(float x) { return lz_sim::to_int(truncf(x)); }
inline int __float2int_rd(float x) { return lz_sim::to_int(floorf(x)); }
inline int __float2int_ru(float x) { return lz_sim::to_int(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return lz_sim::to_unsigned(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return lz_sim::to_unsigned(truncf(x)); }
inline long long __float2ll_rn(float x) { return lz_sim::to_longlong(rintf(x)); }
inline long long __float2ll_rz(float x) { return lz_sim::to_longlong(truncf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __double2float_rn(double x) { return float(x); }
extern "C" long lrintf(float);
extern "C" long lroundf(float);
extern "C" long long llrintf(float);

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) y |= unsigned(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return unsigned((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return unsigned(((unsigned long long)high << 32 | low) >> (n & 31));
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += int((signed char)(a >> i)) * int((signed char)(b >> i));
    return c;
}
inline size_t __cvta_generic_to_shared(const void *at) { return reinterpret_cast<size_t>(at); }
inline long long clock64() { return 0; }
