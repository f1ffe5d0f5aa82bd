/* sdapi.c: the part of AUTOMATIC1111's API that clients use, below /sdapi/v1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "handlers.h"
#include "repeat.h"
#include "store.h"

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* When the job was made, such as 20261115183000. */
static void print_timestamp(const job *j, char to[32]) {
    time_t seconds = (time_t)j->created;
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(to, 32, "%Y%m%d%H%M%S", &utc);
}

/* "info" of an answer: JSON as a text. */
static char *info_of(front *f, const job *j) {
    const json_t *s = j->settings;
    json_t *prompts = json_array(), *negatives = json_array(), *seeds = json_array(), *texts = json_array();
    for (int i = 0; i < j->made; i++) {
        json_array_append_new(prompts, json_string(text_of(s, "prompt")));
        json_array_append_new(negatives, json_string(text_of(s, "negative")));
        json_array_append_new(seeds, json_integer(j->pictures[i].seed));
        json_array_append_new(texts, json_string(text_of(j->pictures[i].facts, "parameters")));
    }
    const picture *first = &j->pictures[0];
    const json_t *facts = j->made ? first->facts : NULL;
    char when[32];
    print_timestamp(j, when);
    int batch = (int)json_integer_value(json_object_get(json_object_get(s, "sdapi"), "batch_size"));
    const char *model_id = j->model >= 0 ? f->models[j->model].id : "";
    json_t *info = json_pack(
        "{s:s, s:o, s:s, s:o, s:I, s:o, s:I, s:I, s:I, s:f, s:s, s:i, s:f, s:s, s:n, s:o, s:s, s:s, s:{}}", "prompt",
        text_of(s, "prompt"), "all_prompts", prompts, "negative_prompt", text_of(s, "negative"), "all_negative_prompts",
        negatives, "seed", (json_int_t)j->seeds[0], "all_seeds", seeds, "width",
        (json_int_t)(j->made ? first->width : 0), "height", (json_int_t)(j->made ? first->height : 0), "steps",
        json_integer_value(json_object_get(facts, "steps")), "cfg_scale",
        json_number_value(json_object_get(facts, "guidance")), "sampler_name", "Euler", "batch_size", batch ? batch : 1,
        "denoising_strength", json_number_value(json_object_get(s, "strength")), "sd_model_name", model_id,
        "sd_model_hash", "infotexts", texts, "job_timestamp", when, "version", lz_version(), "extra_generation_params");
    char *text = info ? json_dumps(info, JSON_COMPACT) : NULL;
    json_decref(info);
    return text;
}

/* The pictures that were made; also those of a job that was interrupted. */
static void answer_pictures(request *r, job *j) {
    front *f = r->front;
    const json_t *asked = json_object_get(j->settings, "sdapi");
    if (j->state != COMPLETED && j->state != CANCELLED) {
        problem p = job_problem(j);
        reply_problem(r, &p);
        return;
    }
    bool with_images = !json_is_false(json_object_get(asked, "send_images"));
    if (with_images && !pictures_have_room(r, j)) return;
    json_t *images = json_array();
    for (int i = 0; i < j->made && with_images; i++) {
        buffer text = {.data = NULL};
        if (picture_base64(f, &text, &j->pictures[i]))
            json_array_append_new(images, json_stringn_nocheck(text.data, text.size));
        buffer_free(&text);
    }
    char *info = info_of(f, j);
    reply_json(r, 200, json_pack("{s:o, s:O, s:s}", "images", images, "parameters", asked, "info", info ? info : "{}"));
    free(info);
}

static void attend(request *r, job *j) { job_wait(r, j, answer_pictures); }

static void queue_new(request *r, json_t *settings) {
    repeat_or_queue(r, settings, FROM_SDAPI, attend, answer_pictures);
}

static void make(request *r, bool from_image) {
    problem p = {.status = 0};
    json_t *fields = body_json(r), *settings = fields ? wanted_sdapi(r, fields, from_image, &p) : NULL;
    repeat_hash(r);
    if (settings)
        admit(r, settings, queue_new);
    else if (fields)
        reply_problem(r, &p);
}

void handle_txt2img(request *r) { make(r, false); }
void handle_img2img(request *r) { make(r, true); }

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* The caller's job that runs; NULL: none. */
static job *running_job(request *r) {
    job *j = r->front->jobs;
    while (j && !(j->state == RUNNING && strcmp(j->owner, r->who.owner) == 0)) j = j->next;
    return j;
}

void handle_sd_progress(request *r) {
    job *j = running_job(r);
    char *skip = query_of(r, "skip_current_image");
    bool with_image = j && j->preview.size && !(skip && strcmp(skip, "true") == 0);
    free(skip);
    double share = 0, left = j ? queue_seconds(r->front, j) : 0;
    if (j && j->steps) share = (j->step + j->done) / j->steps;
    if (j && strcmp(j->stage, "decode") == 0) share = 0.95;
    if (j) share = (j->made + (share < 0.95 ? share : 0.95)) / j->n;
    char when[32] = "0";
    if (j) print_timestamp(j, when);
    const char *kind = !j ? "" : json_object_get(j->settings, "images") ? "img2img" : "txt2img";
    buffer image = {.data = NULL};
    if (with_image) base64_add(&image, j->preview.data, j->preview.size);
    reply_json(r, 200,
               json_pack("{s:f, s:f, s:s?, s:n, s:{s:b, s:b, s:s, s:i, s:s, s:i, s:i, s:i}}", "progress", share,
                         "eta_relative", left > 0 ? left : 0.0, "current_image", image.data, "textinfo", "state",
                         "skipped", false, "interrupted", false, "job", kind, "job_count", j ? 1 : 0, "job_timestamp",
                         when, "job_no", j ? j->made : 0, "sampling_step", j ? j->step : 0, "sampling_steps",
                         j ? j->steps : 0));
    buffer_free(&image);
}

void handle_sd_interrupt(request *r) {
    job *j = running_job(r);
    if (j) job_cancel(r->front, j, BY_API, "cancelled", "the job was interrupted");
    reply_json(r, 200, json_object());
}

/* ---- options and lists ------------------------------------------------------------------------------------------- */

void handle_sd_options(request *r) {
    front *f = r->front;
    reply_json(r, 200,
               json_pack("{s:s, s:s, s:i}", "sd_model_checkpoint", f->models[queue_preferred(f, r->who.owner)].id,
                         "samples_format", "png", "CLIP_stop_at_last_layers", 1));
}

void handle_sd_models(request *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->front->n_models; i++) {
        const char *id = r->front->models[i].id;
        json_array_append_new(list, json_pack("{s:s, s:s, s:n, s:n, s:s, s:n}", "title", id, "model_name", id, "hash",
                                              "sha256", "filename", id, "config"));
    }
    reply_json(r, 200, list);
}

/* Lists that clients ask for, and that are the same for every server. */
static const struct {
    const char *name, *answer;
} lists[] = {
    {"samplers", "[{\"name\":\"Euler\",\"aliases\":[\"euler\"],\"options\":{}}]"},
    {"schedulers", "[{\"name\":\"simple\",\"label\":\"Simple\"}]"},
    {"upscalers", "[{\"name\":\"None\",\"model_name\":null,\"model_path\":null,\"model_url\":null,\"scale\":1}]"},
    {"latent-upscale-modes", "[]"},
    {"sd-vae", "[]"},
    {"sd-modules", "[]"},
    {"loras", "[]"},
    {"hypernetworks", "[]"},
    {"face-restorers", "[]"},
    {"realesrgan-models", "[]"},
    {"prompt-styles", "[]"},
    {"script-info", "[]"},
    {"embeddings", "{\"loaded\":{},\"skipped\":{}}"},
    {"scripts", "{\"txt2img\":[],\"img2img\":[]}"},
    {"cmd-flags", "{}"},
};

void handle_sd_list(request *r) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(lists[i].name, r->item) == 0) {
            reply_json(r, 200, json_loads(lists[i].answer, 0, NULL));
            return;
        }
    reply_error(r, 404, "not_found", "", "there is no such path");
}

void handle_sd_ping(request *r) { reply_json(r, 200, json_object()); }
