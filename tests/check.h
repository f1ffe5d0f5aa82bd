/* check.h: a test harness of one page.
 *
 * Why not cmocka: its assertions stop at the first failure. Ours run thousands of data-driven checks each, and want all
 * of them counted and the first few of each test shown. A failed check is printed as "file:line: what" and the test
 * goes on; after 20 shown per test function the rest is only counted. Checks may be made from any thread.
 *
 *     static void adds(void) { CHECK_I64(1 + 1, 2); }
 *     TEST_MAIN({"adds", adds})
 *
 * The program runs all tests, or those whose name contains argv[1]. LZ_TEST_SCALE (percent, default 100) scales the
 * number of random cases. */
#ifndef LZ_CHECK_H
#define LZ_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lazuli.h"
#include "op/number.h"

#ifndef CHECK_SHOWN
#define CHECK_SHOWN 20 /* failures printed per test function */
#endif

static atomic_llong check_count, check_failed;
static atomic_int check_shown;

__attribute__((format(printf, 5, 6))) static inline bool check_report(bool ok, const char *file, int line,
                                                                      const char *condition, const char *format, ...) {
    atomic_fetch_add(&check_count, 1);
    if (ok) return true;
    atomic_fetch_add(&check_failed, 1);
    int shown = atomic_fetch_add(&check_shown, 1);
    if (shown < CHECK_SHOWN) {
        char text[1200];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        const char *slash = strrchr(file, '/');
        fprintf(stderr, "%s:%d: %s:%s\n", slash ? slash + 1 : file, line, condition, text);
    } else if (shown == CHECK_SHOWN) {
        fprintf(stderr, "    ... more failures in this test are counted only\n");
    }
    return false;
}

/* CHECK(condition) or CHECK(condition, "format", ...): true if it held. */
#define CHECK(condition, ...) check_report((condition), __FILE__, __LINE__, #condition, " " __VA_ARGS__)

#define CHECK_I64(a, b) check_i64((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a " == " #b)
static inline bool check_i64(int64_t a, int64_t b, const char *file, int line, const char *what) {
    return check_report(a == b, file, line, what, " %lld, not %lld", (long long)a, (long long)b);
}

/* The call returns LZ_OK; or exactly this status, with a text that says something. */
#define CHECK_OK(call, err) check_status((call), LZ_OK, (err), __FILE__, __LINE__, #call)
#define CHECK_STATUS(call, wanted, err) check_status((call), (wanted), (err), __FILE__, __LINE__, #call)
static inline bool check_status(lz_status got, lz_status want, const lz_error *err, const char *file, int line,
                                const char *what) {
    bool same_text = got == LZ_OK || !err || (err->status == got && err->text[0]);
    return check_report(got == want && same_text, file, line, what, " gave %s, not %s: %s", lz_status_name(got),
                        lz_status_name(want), got != LZ_OK && err ? err->text : "");
}

#define CHECK_TEXT(text, part) check_text((text), (part), __FILE__, __LINE__)
static inline bool check_text(const char *text, const char *part, const char *file, int line) {
    return check_report(text && strstr(text, part), file, line, "text contains", " \"%s\" in \"%.900s\"", part,
                        text ? text : "(NULL)");
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct test_entry {
    const char *name;
    void (*run)(void);
} test_entry;

static inline double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int test_run(const test_entry *tests, size_t n, int argc, char **argv) {
    const char *filter = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < n; i++) {
        if (!strstr(tests[i].name, filter)) continue;
        long long checks = check_count, failed = check_failed;
        double start = test_seconds();
        atomic_store(&check_shown, 0);
        tests[i].run();
        printf("%-36s %8lld checks, %lld failed, %.2f s\n", tests[i].name, (long long)check_count - checks,
               (long long)check_failed - failed, test_seconds() - start);
        fflush(stdout);
    }
    printf("checks: %lld, failed: %lld\n", (long long)check_count, (long long)check_failed);
    return check_failed ? 1 : 0;
}

#define TEST_MAIN(...)                                                                                                 \
    int main(int argc, char **argv) {                                                                                  \
        static const test_entry tests[] = {__VA_ARGS__};                                                               \
        return test_run(tests, sizeof tests / sizeof *tests, argc, argv);                                              \
    }

static inline int test_scale(int n) {
    const char *percent = getenv("LZ_TEST_SCALE");
    int64_t scaled = (int64_t)n * (percent ? atoi(percent) : 100) / 100;
    return scaled < 1 ? 1 : (int)scaled;
}

/* tests/data, wherever the test is started: from the root, from build, or as ctest says in LZ_TEST_DATA. */
static inline const char *test_data(const char *name) {
    static _Thread_local char path[1024];
    const char *given = getenv("LZ_TEST_DATA");
    const char *places[] = {given ? given : "tests/data", "tests/data", "../tests/data", "../../tests/data", "data"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], name);
        FILE *f = fopen(path, "rb");
        if (f) {
            fclose(f);
            return path;
        }
    }
    return path;
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

typedef struct test_random {
    uint64_t state;
} test_random;

static inline uint64_t random_bits(test_random *r) { /* splitmix64 */
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline int64_t random_int(test_random *r, int64_t low, int64_t high) { /* low .. high, both possible */
    return low + (int64_t)(random_bits(r) % (uint64_t)(high - low + 1));
}
static inline bool random_chance(test_random *r, int percent) { return random_int(r, 1, 100) <= percent; }
static inline double random_unit(test_random *r) { return (double)(random_bits(r) >> 11) * 0x1p-53; }
static inline double random_normal(test_random *r) { /* near enough, and cheap: the sum of four uniforms */
    uint64_t u = random_bits(r);
    return (double)((u & 0xffff) + (u >> 16 & 0xffff) + (u >> 32 & 0xffff) + (u >> 48)) * (0x1p-16 * 1.7320508) -
           3.4641;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static inline bool same_bits(const void *a, const void *b, int64_t bytes) {
    return bytes == 0 || memcmp(a, b, (size_t)bytes) == 0;
}

/* How many f32 numbers lie between two; 0 for equal bits, and for any two NaNs. */
static inline int64_t ulp_distance(float a, float b) {
    if (a != a || b != b) return a != a && b != b ? 0 : INT64_MAX;
    int32_t i = (int32_t)lz_float_to_bits(a), j = (int32_t)lz_float_to_bits(b);
    int64_t x = i < 0 ? (int64_t)INT32_MIN - i : i, y = j < 0 ? (int64_t)INT32_MIN - j : j;
    return x > y ? x - y : y - x;
}

/* The distance from |x| to the next number of this type (1 for integers). */
static inline double type_spacing(lz_dtype dtype, double x) {
    static const struct {
        int digits, lowest;
    } of[LZ_DTYPE_COUNT] = {
        [LZ_F8] = {4, -6}, [LZ_F16] = {11, -14}, [LZ_BF16] = {8, -126}, [LZ_F32] = {24, -126}, [LZ_F64] = {53, -1022}};
    if (!of[dtype].digits) return 1.0;
    int exponent;
    frexp(x, &exponent);
    exponent -= 1;
    if (x == 0.0 || exponent < of[dtype].lowest) exponent = of[dtype].lowest;
    return ldexp(1.0, exponent - of[dtype].digits + 1);
}

static inline double element_as_double(const void *data, lz_dtype dtype, int64_t i) {
    switch (dtype) {
    case LZ_BOOL: return ((const uint8_t *)data)[i] ? 1.0 : 0.0;
    case LZ_U8: return ((const uint8_t *)data)[i];
    case LZ_I8: return ((const int8_t *)data)[i];
    case LZ_I32: return ((const int32_t *)data)[i];
    case LZ_I64: return (double)((const int64_t *)data)[i];
    case LZ_F8: return (double)lz_from_f8(((const uint8_t *)data)[i]);
    case LZ_F16: return (double)lz_from_f16(((const uint16_t *)data)[i]);
    case LZ_BF16: return (double)lz_from_bf16(((const uint16_t *)data)[i]);
    case LZ_F32: return (double)((const float *)data)[i];
    case LZ_F64: return ((const double *)data)[i];
    default: return NAN;
    }
}

/* The error of got against want beyond which nothing is allowed: |got - want| - room, where equal infinities and two
 * NaNs are no error at all, and an infinity or a NaN on one side only is an infinite one. */
static inline double value_error(double got, double want) {
    if (got != got || want != want) return got != got && want != want ? 0.0 : INFINITY;
    if (isinf(got) || isinf(want)) return got == want ? 0.0 : INFINITY;
    return fabs(got - want);
}

static inline double max_relative_error(const float *a, const float *b, int64_t n) {
    double worst = 0.0, scale = 1e-30;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, value_error((double)a[i], (double)b[i]) / scale);
    return worst;
}

static inline bool same_dims(lz_dims a, lz_dims b) {
    return a.n == b.n && memcmp(a.at, b.at, sizeof *a.at * (size_t)a.n) == 0;
}

static inline const char *dims_text(lz_dims d) { /* "[2, 3]"; four at a time may be alive */
    static _Thread_local char ring[4][160];
    static _Thread_local int next;
    char *text = ring[next++ & 3];
    int at = snprintf(text, 160, "[");
    for (int i = 0; i < d.n && i < LZ_MAX_DIMS; i++)
        at += snprintf(text + at, (size_t)(160 - at), i ? ", %lld" : "%lld", (long long)d.at[i]);
    snprintf(text + at, (size_t)(160 - at), "]");
    return text;
}

#endif
