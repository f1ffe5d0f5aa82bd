/* plan.c: `lazuli plan`: memory and work of a picture. Everything is planned, nothing is run. */
#include <string.h>

#include "cache.h"

/* Prints a cell of the column of estimated times, if there is an estimate. */
static void print_time(FILE *to, const job *j, const char *text) {
    if (j->estimate.seconds > 0) fprintf(to, " %12s", text);
}

/* The sampler and the schedule are named if they are not the usual ones. */
plan_steps show_plan_steps(const job *j) {
    plan_steps f;
    size_t n = (size_t)snprintf(f.text, sizeof f.text, "%s", show_steps(j->plan.steps, j->picture.steps).text);
    if (strcmp(j->picture.sampler, "euler") != 0)
        n += (size_t)snprintf(f.text + n, sizeof f.text - n, " of %s", j->picture.sampler);
    if (j->plan.passes != j->plan.steps)
        n += (size_t)snprintf(f.text + n, sizeof f.text - n, " in %d passes", j->plan.passes);
    if (j->plan.forecast)
        n += (size_t)snprintf(f.text + n, sizeof f.text - n, " (%d passes computed, %d forecast)",
                              j->plan.passes - j->plan.forecast, j->plan.forecast);
    if (strcmp(j->picture.schedule, "auto") != 0)
        snprintf(f.text + n, sizeof f.text - n, ", schedule %s", j->picture.schedule);
    return f;
}

void print_plan(FILE *to, const job *j) {
    const lz_picture_plan *p = &j->plan;
    bool there = p->device_bytes; /* a device with its own memory */
    fprintf(to, "%-9s %12s %14s", "stage", "memory", "operations");
    print_time(to, j, "about");
    fprintf(to, there ? " %14s %14s\n" : "\n", "with weights", "streamed");
    for (int i = 0; i < p->n_stages; i++) {
        const lz_stage_plan *s = &p->stages[i];
        fprintf(to, "%-9s %12s %14s", s->stage, show_bytes(s->bytes).text, show_flops(s->flops).text);
        print_time(to, j, show_seconds(j->estimate.stages[i]).text);
        if (there) fprintf(to, " %14s %14s", show_bytes(s->device_bytes).text, show_bytes(s->streamed_bytes).text);
        fputc('\n', to);
    }
    fprintf(to, "%-9s %12s %14s", "at most", show_bytes(p->peak_bytes).text, show_flops(p->flops).text);
    print_time(to, j, show_seconds(j->estimate.seconds).text);
    if (there)
        fprintf(to, " %14s", show_bytes(p->device_bytes).text);
    else
        fprintf(to, "  besides %s of weights", show_bytes(p->weight_bytes).text);
    fputc('\n', to);
    if (p->streamed_bytes)
        fprintf(to, "%s of weights are sent to the device in every step%s\n", show_bytes(p->streamed_bytes).text,
                j->args->offload == LZ_OFFLOAD_STREAM ? "" : ", because not all of them fit there");
    if (p->tile)
        fprintf(to, "the picture will be decoded in tiles of %lld pixels, because memory is short\n",
                (long long)p->tile);
}

static json_t *plan_json(const job *j) {
    json_t *stages = json_array();
    for (int i = 0; i < j->plan.n_stages; i++)
        json_array_append_new(stages, json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "stage", j->plan.stages[i].stage,
                                                "bytes", (json_int_t)j->plan.stages[i].bytes, "flops",
                                                (json_int_t)j->plan.stages[i].flops, "device_bytes",
                                                (json_int_t)j->plan.stages[i].device_bytes, "streamed_bytes",
                                                (json_int_t)j->plan.stages[i].streamed_bytes, "seconds",
                                                json_estimate(j->estimate.stages[i])));
    return json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:b}", "model",
        json_text(model_told(j)), "family", j->facts.family, "width", (json_int_t)j->picture.width, "height",
        (json_int_t)j->picture.height, "steps", (json_int_t)j->plan.steps, "passes", (json_int_t)j->plan.passes,
        "forecast", (json_int_t)j->plan.forecast, "evaluations", (json_int_t)j->plan.evaluations, "sampler",
        j->picture.sampler, "schedule", j->picture.schedule, "cache", j->picture.cache, "stages", stages, "peak_bytes",
        (json_int_t)j->plan.peak_bytes, "weight_bytes", (json_int_t)j->plan.weight_bytes, "flops",
        (json_int_t)j->plan.flops, "device_bytes", (json_int_t)j->plan.device_bytes, "streamed_bytes",
        (json_int_t)j->plan.streamed_bytes, "seconds", json_estimate(j->estimate.seconds), "downloaded", !j->published);
}

int plan_command(const arguments *args) {
    job j;
    int code = job_open(&j, args);
    if (code == DONE) code = job_ask(&j);
    if (code == DONE) estimate_shapes(&j);
    published_close(&j.stand_in);
    if (code == DONE) estimate_time(&j);
    if (code == DONE && args->json) code = print_json(args, plan_json(&j));
    if (code == DONE && !args->json) {
        say(stdout, "%lld x %lld pixels, %s, %s\n", (long long)j.picture.width, (long long)j.picture.height,
            show_plan_steps(&j).text, lz_device_name(j.ctx));
        putchar('\n');
        print_plan(stdout, &j);
        if (j.published) say_published(stdout, j.published);
    }
    job_close(&j);
    return code;
}
