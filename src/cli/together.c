/* together.c: how many pictures are made in the same passes, by `generate`, `batch`, `serve` and `worker` (--batch). */
#include <string.h>

#include "cli.h"
#include "environment.h"

/* Operations with which a pass through the model fills a GPU: more pictures in it gain nothing then. Measured on an H200
 * with klein-4B (docs/performance.md): 4 pictures of 256 x 256 together are 8 % faster than alone, 2 of 512 x 512 are 2 %
 * faster, and at 1024 x 1024 there is no gain. A server computes prompts and decodes pictures beside the passes, and
 * makes more pictures of 256 x 256 one by one than 4 together. On a CPU several pictures are not enough faster to let the
 * first one wait for the others. */
#define FULL_PASS 24e12
#define FULL_PASS_OF_SERVER 8e12

bool is_host(const lz_context *ctx) {
    return strncmp(lz_device_name(ctx), "cpu", 3) == 0 || strncmp(lz_device_name(ctx), "ref", 3) == 0;
}

int64_t device_memory(job *j) {
    lz_device_info all[16];
    char cache[ENVIRONMENT_PATH];
    if (j->memory) return j->memory;
    if (is_host(j->ctx)) return j->memory = memory_here();
    lz_context_options asked = environment_options(LZ_CONTEXT_OPTIONS(), cache);
    int n = lz_find_devices(&asked, all, COUNT(all), NULL);
    for (int i = 0; i < n && i < (int)COUNT(all); i++) { /* "cuda" is the first of them */
        size_t length = strlen(j->device);
        bool ours = strncmp(all[i].device, j->device, length) == 0 && strchr(":", all[i].device[length]);
        if (ours && !j->memory) j->memory = all[i].memory;
    }
    return j->memory;
}

static const lz_stage_plan *find_loop(const lz_picture_plan *plan) {
    for (int i = 0; plan && i < plan->n_stages; i++)
        if (strcmp(plan->stages[i].stage, "denoise") == 0) return &plan->stages[i];
    return NULL;
}

/* Powers of two, because each number of pictures has programs of its own. */
static int64_t wanted(const job *j, const lz_picture_plan *plan, double full) {
    const lz_stage_plan *loop = find_loop(plan);
    int64_t n = LZ_MAX_TOGETHER;
    if (j->args->batch) return j->args->batch;
    if (is_host(j->ctx)) return 1;
    double pass = loop && plan->passes ? loop->flops / plan->passes : 0;
    while (n > 1 && (double)n * pass > full) n /= 2;
    return n;
}

/* The most memory that a stage takes if its intermediates are those of so many pictures. */
static int64_t need(const lz_picture_plan *plan, bool host, int64_t pictures) {
    int64_t most = 0;
    for (int i = 0; i < plan->n_stages; i++) {
        const lz_stage_plan *s = &plan->stages[i];
        bool all = strcmp(s->stage, "denoise") == 0;
        int64_t bytes = s->bytes * (all ? pictures : 1) + (host ? 0 : s->weight_bytes);
        if (bytes > most) most = bytes;
    }
    return most;
}

int pictures_together(job *j, const lz_picture_plan *plan, bool serves) {
    int64_t n = wanted(j, plan, serves ? FULL_PASS_OF_SERVER : FULL_PASS), have = n > 1 && plan ? device_memory(j) : 0;
    bool host = is_host(j->ctx);
    if (plan && plan->tile) return 1; /* memory is short for one */
    while (n > 1 && have && need(plan, host, n) > have - have / 8) n--;
    return (int)n;
}
