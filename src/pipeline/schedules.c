/* schedules.c: the table of schedules (schedule.h). Those of ComfyUI are defined over a table of sigmas: the model's
 * shift of (i + 1) / M. M is 1000 for a static shift, and 10 000 for one that depends on the size. */
#include <math.h>
#include <string.h>

#include "pipeline/schedule.h"

/* ---- the beta distribution --------------------------------------------------------------------------------------- */

/* The continued fraction of the incomplete beta function, by Lentz's method; it converges fast for x below
 * (a + 1) / (a + b + 2). */
static double beta_fraction(double x, double a, double b) {
    double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), sum = d;
    for (int m = 1; m < 300; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double before = sum;
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        sum *= c * d;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        sum *= c * d;
        if (fabs(sum - before) <= 1e-16 * fabs(sum)) break;
    }
    return sum;
}

static double beta_share(double x, double a, double b) {
    if (x <= 0 || x >= 1) return x >= 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(x, a, b) / a : 1 - front * beta_fraction(1 - x, b, a) / b;
}

double lz_beta_quantile(double p, double a, double b) {
    double low = 0, high = 1;
    if (p <= 0 || p >= 1) return p >= 1;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (beta_share(middle, a, b) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

typedef struct table {
    double shift; /* sigma = shift t / (1 + (shift - 1) t) */
    int size;
    double least; /* the first sigma of the table; the last is 1 */
} table;

static double sigma_of(const table *t, double time) { return t->shift * time / (1 + (t->shift - 1) * time); }
static double entry(const table *t, int i) { return sigma_of(t, (double)(i + 1) / t->size); }

/* Each writes n sigmas, and returns how many; n is above 1. */

static int make_simple(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) to[k] = entry(t, t->size - 1 - (int)((int64_t)k * t->size / n));
    return n;
}

static int make_sgm_uniform(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) to[k] = sigma_of(t, 1 + (t->least - 1) * k / n);
    return n;
}

static int make_normal(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) to[k] = sigma_of(t, 1 + (t->least - 1) * k / (n - 1));
    return n;
}

/* Equal neighbours are one step. */
static int spread_beta(const table *t, int n, double a, double b, double *to) {
    int last = -1, kept = 0;
    for (int k = 0; k < n; k++) {
        int i = (int)rint(lz_beta_quantile(1 - (double)k / n, a, b) * (t->size - 1));
        if (i != last) to[kept++] = entry(t, i);
        last = i;
    }
    return kept;
}

static int make_beta(const table *t, int n, double *to) { return spread_beta(t, n, 0.6, 0.6, to); }
static int make_beta57(const table *t, int n, double *to) { return spread_beta(t, n, 0.5, 0.7, to); }

static int make_karras(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) to[k] = lz_schedule_spaced(LZ_KARRAS, 1, t->least, k, n);
    return n;
}

static int make_exponential(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) to[k] = lz_schedule_spaced(LZ_EXPONENTIAL, 1, t->least, k, n);
    return n;
}

static int make_kl_optimal(const table *t, int n, double *to) {
    for (int k = 0; k < n; k++) {
        double share = (double)k / (n - 1);
        to[k] = tan(share * atan(t->least) + (1 - share) * atan(1));
    }
    return n;
}

/* A line to 1 - threshold in the first half, then a parabola to 0. */
static int make_linear_quadratic(const table *t, int n, double *to) {
    (void)t;
    const double threshold = 0.025;
    int lines = n / 2, rest = n - lines;
    double d = lines - threshold * n, square = d / ((double)lines * rest * rest);
    double slope = threshold / lines - 2 * d / ((double)rest * rest), constant = square * lines * lines;
    for (int i = 0; i < n; i++) to[i] = 1 - (i < lines ? threshold * i / lines : square * i * i + slope * i + constant);
    return n;
}

/* n values of an arc tangent around a pivot, from start to end. */
static void put_tangent(int n, int pivot, double slope, double start, double end, double *to) {
    const double pi = 3.14159265358979323846;
    double first = atan(slope * pivot) / pi, last = atan(-slope * (n - 1 - pivot)) / pi;
    for (int x = 0; x < n; x++) to[x] = (atan(-slope * (x - pivot)) / pi - last) / (first - last) * (start - end) + end;
}

/* RES4LYF: two arcs, which meet at 1/2. It does not depend on the shift. */
static int make_bong_tangent(const table *t, int n, double *to) {
    (void)t;
    int points = n + 2, pivot = (int)(0.6 * points), early = (int)((0.6 * points + 0.6 * points) / 2);
    double slope = 0.2 * 40 / points;
    put_tangent(early, pivot, slope, 1, 0.5, to);
    put_tangent(points - early, pivot - early, slope, 0.5, 0, to + early - 1); /* ends with 0, the sigma after n */
    return n;
}

static const struct {
    const char *name;
    int (*make)(const table *t, int n, double *to); /* to has n + 1 places */
} schedules[] = {
    [LZ_SCHEDULE_AUTO] = {"auto", NULL},
    {"simple", make_simple},
    {"beta", make_beta},
    {"beta57", make_beta57},
    {"sgm_uniform", make_sgm_uniform},
    {"normal", make_normal},
    {"karras", make_karras},
    {"exponential", make_exponential},
    {"kl_optimal", make_kl_optimal},
    {"linear_quadratic", make_linear_quadratic},
    {"bong_tangent", make_bong_tangent},
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules, MOST_STEPS = 1000 };

const char *lz_schedule_name(int i) { return i >= 0 && i < SCHEDULES ? schedules[i].name : NULL; }

int lz_schedule_named(const char *name) {
    for (int i = 0; i < SCHEDULES; i++)
        if (!strcmp(schedules[i].name, name)) return i;
    return -1;
}

int lz_schedule_list(const lz_schedule *s, int kind, double mu, int steps, float *to) {
    double exact[MOST_STEPS + 2] = {1};
    if (kind == LZ_SCHEDULE_AUTO) return lz_schedule_sigmas(s, mu, steps, to) ? steps : 0;
    table t = {.shift = !s->dynamic ? s->shift : s->linear ? mu : exp(mu), .size = s->dynamic ? 10000 : 1000};
    if (kind < 0 || kind >= SCHEDULES || steps < 1 || steps > MOST_STEPS || !(t.shift > 0)) return 0;
    t.least = entry(&t, 0);
    int n = steps > 1 ? schedules[kind].make(&t, steps, exact) : 1;
    for (int i = 0; i < n; i++) {
        to[i] = (float)exact[i];
        if (!(to[i] > 0 && to[i] <= (i ? to[i - 1] : 1))) return 0;
    }
    to[n] = 0;
    return n;
}
