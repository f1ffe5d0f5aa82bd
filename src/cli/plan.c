/* plan.c: `lazuli plan`: memory and work of a picture. Everything is planned, nothing is run. */
#include "cache.h"

static json_t *plan_json(const job *j) {
    json_t *stages = json_array();
    for (int i = 0; i < j->plan.n_stages; i++)
        json_array_append_new(stages, json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "stage", j->plan.stages[i].stage,
                                                "bytes", (json_int_t)j->plan.stages[i].bytes, "flops",
                                                (json_int_t)j->plan.stages[i].flops, "device_bytes",
                                                (json_int_t)j->plan.stages[i].device_bytes, "streamed_bytes",
                                                (json_int_t)j->plan.stages[i].streamed_bytes, "seconds",
                                                json_estimate(j->estimate.stages[i])));
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:b}", "model",
                     json_text(model_told(j)), "family", j->facts.family, "width", (json_int_t)j->picture.width,
                     "height", (json_int_t)j->picture.height, "steps", (json_int_t)j->plan.steps, "passes",
                     (json_int_t)j->plan.passes, "sampler", j->picture.sampler, "schedule", j->picture.schedule,
                     "stages", stages, "peak_bytes", (json_int_t)j->plan.peak_bytes, "weight_bytes",
                     (json_int_t)j->plan.weight_bytes, "flops", (json_int_t)j->plan.flops, "device_bytes",
                     (json_int_t)j->plan.device_bytes, "streamed_bytes", (json_int_t)j->plan.streamed_bytes, "seconds",
                     json_estimate(j->estimate.seconds), "downloaded", !j->published);
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
