/* test_random.c: the random numbers of a seed.
 *
 * tests/data/randn.json (made by tools/oracle/randn.py) has the numbers of torch.randn for several seeds and sizes;
 * ours must be within 2 ulp. In addition, our bits must never change, so that a picture of a seed is the same on every
 * machine: some of them are listed here. */
#include <inttypes.h>
#include <jansson.h>

#include "check.h"

static int parse_bits(const char *text, uint32_t *out, int most) { /* "3fc53f5c be963c50 ..." */
    int n = 0;
    for (char *end; n < most && *text; text = end) {
        out[n] = (uint32_t)strtoul(text, &end, 16);
        if (end == text) break;
        n++;
    }
    return n;
}

static void compare(const char *part, const char *seed, int64_t size, const float *got, const uint32_t *want, int n) {
    if (n == 0) return;
    int64_t worst = 0;
    int at = 0;
    for (int i = 0; i < n; i++) {
        int64_t d = ulp_distance(got[i], lz_bits_to_float(want[i]));
        if (d > worst) worst = d, at = i;
    }
    CHECK(worst <= 2, "seed %s, size %" PRId64 ", %s number %d: %.9g, not %.9g: %" PRId64 " ulp", seed, size, part, at,
          (double)got[at], (double)lz_bits_to_float(want[at]), worst);
}

static void as_torch(void) {
    json_error_t where;
    json_t *file = json_load_file(test_data("randn.json"), 0, &where);
    if (!CHECK(file != NULL, "%s: %s", test_data("randn.json"), where.text)) return;
    json_t *cases = json_object_get(file, "cases"), *c;
    CHECK(json_array_size(cases) > 20);
    static const char *const devices[] = {"cpu", "ref"};
    for (int k = 0; k < 2; k++) {
        lz_context *ctx = lz_open(.device = devices[k], .threads = 2);
        size_t i;
        json_array_foreach(cases, i, c) {
            const char *seed = json_string_value(json_object_get(c, "seed"));
            int64_t size = json_integer_value(json_object_get(c, "size"));
            lz_scope *scope = lz_scope_begin(ctx, seed);
            lz_error err = {0};
            lz_array *x = lz_randn(ctx, LZ_DIMS(size), strtoull(seed, NULL, 10));
            const float *p = lz_data(x, &err);
            if (CHECK(p != NULL, "%s", err.text)) {
                uint32_t bits[64];
                int n = parse_bits(json_string_value(json_object_get(c, "first")), bits, 64);
                CHECK(n > 0);
                compare("first", seed, size, p, bits, n);
                n = parse_bits(json_string_value(json_object_get(c, "last")), bits, 64);
                compare("last", seed, size, p + size - n, bits, n);
                double sum = 0, want = json_number_value(json_object_get(c, "sum"));
                for (int64_t j = 0; j < size; j++) sum += (double)p[j];
                CHECK(fabs(sum - want) <= 1e-6 * sqrt((double)size) + 1e-6,
                      "seed %s, size %" PRId64 ": sum %.12g, not %.12g", seed, size, sum, want);
            }
            lz_scope_end(scope);
        }
        lz_close(ctx);
    }
    json_decref(file);
}

/* FNV-1a over the bits of the first n numbers. */
static uint64_t hash_of(lz_context *ctx, lz_dims dims, uint64_t seed) {
    lz_scope *scope = lz_scope_begin(ctx, "hash");
    lz_array *x = lz_randn(ctx, dims, seed);
    const unsigned char *p = lz_data(x, NULL);
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; p && i < lz_size(x) * 4; i++) h = (h ^ p[i]) * 0x100000001b3u;
    lz_scope_end(scope);
    return h;
}

static void our_bits(void) {
    static const struct {
        uint64_t seed;
        uint32_t first[8];
        uint64_t hash; /* of 1 x 16 x 32 x 4 numbers */
    } rows[] = {
        {0u,
         {0xbf901b85, 0xbf93808a, 0xbe804bd6, 0xbede255d, 0x3f594515, 0x3f312783, 0xbea1cc6d, 0xc0075fc1},
         0x19cfee7e76b8dba6},
        {1u,
         {0xbfc346ba, 0xbf400f31, 0xbf276b4b, 0xbfce0399, 0xbdcd2473, 0xbf1bf3ce, 0xbf7ad25b, 0xbfcdf6de},
         0xfba658d1d83102fd},
        {42u,
         {0x3ff6a529, 0x3fbe5f53, 0x3f669567, 0xc006c0db, 0x3f2dacd5, 0xbf9e0591, 0xbd306786, 0xbfcd65ba},
         0x31a94ff44916c548},
        {1234567890123456789u,
         {0xbf52b332, 0x3f7bb05b, 0x3ee16cc0, 0x3f698b1e, 0x3ed57704, 0xbeb5762d, 0x3ef105f0, 0xbf59e070},
         0xd833433d9c38982d},
    };
    static const char *const kinds[] = {"baseline", "avx2", "avx512", "ref"};
    for (int k = 0; k < 4; k++) {
        bool is_ref = strcmp(kinds[k], "ref") == 0;
        lz_context *ctx = is_ref ? lz_open(.device = "ref") : lz_open(.isa = kinds[k], .threads = 1 + k);
        if (!ctx) continue; /* this machine cannot */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            lz_array *x = lz_randn(ctx, LZ_DIMS(1, 16, 32, 4), rows[i].seed);
            const float *p = lz_data(x, NULL);
            for (int j = 0; p && j < 8; j++)
                CHECK(lz_float_to_bits(p[j]) == rows[i].first[j], "%s: seed %" PRIu64 ", number %d: %08x, not %08x",
                      kinds[k], rows[i].seed, j, lz_float_to_bits(p[j]), rows[i].first[j]);
            uint64_t h = hash_of(ctx, LZ_DIMS(1, 16, 32, 4), rows[i].seed);
            CHECK(h == rows[i].hash, "%s: seed %" PRIu64 ": hash %016" PRIx64 ", not %016" PRIx64, kinds[k],
                  rows[i].seed, h, rows[i].hash);
        }
        lz_close(ctx);
    }
}

/* Drawn in order by one thread, or in blocks by several with wider registers: the reference's bits. */
static void as_reference(void) {
    static const int64_t sizes[] = {1, 15, 16, 17, 31, 32, 4095, 4097, 65536, 100003};
    static const char *const kinds[] = {"baseline", "avx2", "avx512"};
    lz_context *ref = lz_open(.device = "ref");
    for (int k = 0; k < 6; k++) {
        lz_context *ctx = lz_open(.isa = kinds[k / 2], .threads = k % 2 ? 3 : 1);
        for (size_t i = 0; ctx && i < sizeof sizes / sizeof *sizes; i++)
            CHECK(hash_of(ctx, LZ_DIMS(sizes[i]), 7) == hash_of(ref, LZ_DIMS(sizes[i]), 7),
                  "%s, %d threads: %" PRId64 " numbers differ", kinds[k / 2], k % 2 ? 3 : 1, sizes[i]);
        lz_close(ctx);
    }
    lz_close(ref);
}

static void shapes(void) {
    lz_context *ctx = lz_open(.threads = 2);
    lz_error err = {0};
    CHECK(hash_of(ctx, LZ_DIMS(6, 7), 3) == hash_of(ctx, LZ_DIMS(42), 3)); /* the shape only folds the numbers */
    CHECK(hash_of(ctx, LZ_DIMS(6, 7), 3) != hash_of(ctx, LZ_DIMS(6, 7), 4));
    CHECK_OK(lz_eval(lz_randn(ctx, LZ_DIMS(0, 4), 1), &err), &err);
    CHECK(isfinite(lz_item(lz_randn(ctx, LZ_NONE, 1), &err)));
    CHECK_I64(lz_type(lz_randn(ctx, LZ_DIMS(2), 1)), LZ_F32);
    lz_array *x = lz_randn(ctx, LZ_DIMS(1 << 18), 12345); /* looks like what it should be */
    CHECK(fabs(lz_item(lz_mean(x, LZ_NONE, false), &err)) < 0.01);
    CHECK(fabs(lz_item(lz_var(x, LZ_NONE, false), &err) - 1.0) < 0.02);
    CHECK(lz_item(lz_max(lz_abs(x), LZ_NONE, false), &err) < 7.0);
    lz_close(ctx);
}

TEST_MAIN({"as_torch", as_torch}, {"our_bits", our_bits}, {"as_reference", as_reference}, {"shapes", shapes})
