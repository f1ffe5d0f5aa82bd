/* rope.c: see rope.h. There are many tokens but few coordinates along an axis, so cosines and sines are computed once
 * for each coordinate. */
#include "models/rope.h"

#include <math.h>
#include <string.h>

#include "array/internal.h"

/* Cosines and sines of one axis: a row for each coordinate from first to last, a column for each pair. */
typedef struct waves {
    int64_t first, last, pairs;
    float *cos, *sin;
} waves;

static int64_t size_of(const waves *w) { return (w->last - w->first + 1) * w->pairs; }

static void fill_waves(waves *w, double theta, double unit) {
    for (int64_t k = 0; k < w->pairs; k++) {
        double frequency = pow(theta, -2.0 * (double)k / (double)(2 * w->pairs));
        for (int64_t i = 0; i <= w->last - w->first; i++) {
            double angle = (double)(w->first + i) * unit * frequency;
            w->cos[i * w->pairs + k] = (float)cos(angle);
            w->sin[i * w->pairs + k] = (float)sin(angle);
        }
    }
}

/* Finds the range of coordinates along each axis. Returns the size of all waves. */
static int64_t measure(const int64_t channels[LZ_ROPE_AXES], const lz_place *places, int64_t n, waves *axes) {
    int64_t size = 0;
    for (int a = 0; a < LZ_ROPE_AXES && channels[a]; a++) {
        waves *w = &axes[a];
        w->pairs = channels[a] / 2;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = places[i].at[a];
            if (i == 0 || at < w->first) w->first = at;
            if (i == 0 || at > w->last) w->last = at;
        }
        size += size_of(w);
    }
    return size;
}

/* Concatenates the rows of all axes for each token. */
static void join_waves(const waves *axes, const lz_place *places, int64_t n, float *c, float *s) {
    for (int64_t i = 0; i < n; i++)
        for (int a = 0; a < LZ_ROPE_AXES; a++) {
            const waves *w = &axes[a];
            int64_t row = (places[i].at[a] - w->first) * w->pairs;
            if (!w->pairs) break;
            memcpy(c, w->cos + row, (size_t)w->pairs * sizeof *c);
            memcpy(s, w->sin + row, (size_t)w->pairs * sizeof *s);
            c += w->pairs;
            s += w->pairs;
        }
}

double lz_rope_read(lz_config *c, double theta, int64_t sections[3], bool *interleaved) {
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    static const char *const types[] = {"default", NULL}, *const with_axes[] = {"default", "mrope", NULL};
    theta = lz_config_real(c, "rope_theta", theta);
    for (int i = 0; i < 2; i++) {
        lz_config rope = lz_config_inside(c, places[i]);
        lz_config_choice(&rope, "rope_type", sections ? with_axes : types);
        lz_config_choice(&rope, "type", sections ? with_axes : types);
        theta = lz_config_real(&rope, "rope_theta", theta);
        if (lz_config_real(&rope, "partial_rotary_factor", 1) != 1)
            lz_config_refuse(&rope, "'partial_rotary_factor' must be 1");
        int n = sections ? lz_config_ints(&rope, "mrope_section", sections, 3, 0, 256) : 0;
        if (n && n != 3) lz_config_refuse(&rope, "'mrope_section' must be three numbers");
        bool turns = sections && lz_config_bool(&rope, "mrope_interleaved", false);
        if (turns && !interleaved) lz_config_refuse(&rope, "'mrope_interleaved' is true, which is not supported");
        if (turns && interleaved) *interleaved = true;
        lz_config_refuse_rest(&rope, NULL);
        if (!c->err.status) c->err = rope.err;
    }
    if (!(theta > 0)) lz_config_refuse(c, "'rope_theta' must be above 0");
    return theta;
}

void lz_rope_tables_in(lz_context *ctx, const int64_t channels[LZ_ROPE_AXES], double theta, double unit,
                       const lz_place *places, int64_t n, lz_array **cos_table, lz_array **sin_table) {
    waves axes[LZ_ROPE_AXES] = {{0}};
    int64_t size = measure(channels, places, n, axes), half = 0;
    for (int a = 0; a < LZ_ROPE_AXES; a++) half += axes[a].pairs;
    float *few = lz_host_alloc(ctx, (size_t)(2 * size) * sizeof *few + 1), *next = few;
    float *table = lz_host_alloc(ctx, (size_t)(2 * n * half) * sizeof *table + 1);
    *cos_table = *sin_table = NULL;
    if (few && table) {
        for (int a = 0; a < LZ_ROPE_AXES && axes[a].pairs; a++) {
            axes[a].cos = next;
            axes[a].sin = next + size;
            next += size_of(&axes[a]);
            fill_waves(&axes[a], theta, unit);
        }
        join_waves(axes, places, n, table, table + n * half);
        *cos_table = lz_from(ctx, LZ_DIMS(n, half), LZ_F32, table);
        *sin_table = lz_from(ctx, LZ_DIMS(n, half), LZ_F32, table + n * half);
    } else
        *cos_table = *sin_table = lz_poison(ctx, LZ_OUT_OF_MEMORY, "rope");
    lz_host_free(ctx, table);
    lz_host_free(ctx, few);
}

void lz_rope_tables(lz_context *ctx, const int64_t channels[LZ_ROPE_AXES], double theta, const lz_place *places,
                    int64_t n, lz_array **cos_table, lz_array **sin_table) {
    lz_rope_tables_in(ctx, channels, theta, 1, places, n, cos_table, sin_table);
}
