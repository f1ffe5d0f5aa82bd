/* model.c: opening a model folder: model_index.json names the pipeline, the pipeline names the family. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "pipeline/job.h"

static const lz_family *const families[] = {&lz_family_flux2_klein, &lz_family_qwen_image};

const char *lz_pipeline_name(int i) {
    for (size_t f = 0; i >= 0 && f < sizeof families / sizeof families[0]; f++)
        for (int k = 0; families[f]->pipelines[k]; k++)
            if (i-- == 0) return families[f]->pipelines[k];
    return NULL;
}

static const lz_family *find_family(lz_config *index, lz_error *err) {
    const char *name = lz_config_text(index, "_class_name");
    for (size_t i = 0; name && i < sizeof families / sizeof families[0]; i++)
        for (int k = 0; families[i]->pipelines[k]; k++)
            if (!strcmp(families[i]->pipelines[k], name)) return families[i];
    lz_fail(err, LZ_BAD_FILE,
            "%s: models of the kind '%s' are not supported; FLUX.2 [klein] (Flux2KleinPipeline) and Qwen-Image "
            "(QwenImagePipeline, ...) are",
            LZ_SHOW_TEXT(index->path), name ? LZ_SHOW_TEXT(name) : "(none named)");
    return NULL;
}

/* What is painted when nothing is asked for. The keys are arguments of the call in diffusers, which ignores them in the
 * index; published folders have none of them. */
static lz_status read_defaults(lz_model *m, lz_config *index, lz_error *err) {
    const lz_family *f = m->family;
    int64_t unit = f->token_pixels(m->state);
    m->width = lz_config_int(index, "width", LZ_DEFAULT_SIZE, unit, LZ_MAX_SIZE) / unit * unit;
    m->height = lz_config_int(index, "height", LZ_DEFAULT_SIZE, unit, LZ_MAX_SIZE) / unit * unit;
    m->steps = (int)lz_config_int(index, "num_inference_steps", f->default_steps(m->state), 1, LZ_MAX_STEPS);
    if (index->err.status) *err = index->err;
    return index->err.status;
}

lz_model *lz_model_open(lz_context *ctx, const char *folder, lz_error *err) {
    if (!ctx || !folder) {
        lz_fail(err, LZ_BAD_ARGUMENT, "model_open: the %s is NULL", ctx ? "folder" : "context");
        return NULL;
    }
    lz_error local = {.status = LZ_OK};
    lz_config index;
    if (lz_config_open(&index, ctx, folder, "model_index.json", &local)) {
        if (local.status == LZ_NOT_FOUND || local.status == LZ_IO)
            lz_fail(err, local.status,
                    "%s is not a model folder: it has no readable model_index.json (the folder that holds "
                    "transformer/, text_encoder/, vae/ and tokenizer/ is meant)",
                    LZ_SHOW_TEXT(folder));
        else if (err)
            *err = local;
        return NULL;
    }
    lz_model *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->folder = lz_host_copy(ctx, folder);
    if (!m || !m->folder)
        lz_out_of_memory(&local, sizeof *m);
    else {
        m->ctx = ctx;
        m->family = find_family(&index, &local);
        if (m->family) {
            if (!lz_schedule_read(&m->schedule, ctx, folder, &local))
                m->state = m->family->open(ctx, folder, &index, &m->schedule, &local);
            if (m->state && (read_defaults(m, &index, &local) || lz_trained_open(&m->trained, ctx, folder, &local)))
                m->family->close(m->state);
        }
    }
    lz_config_close(&index);
    if (m && !local.status) {
        m->own_schedule = m->schedule;
        lz_kept_init(m);
        lz_fair_init(&m->running);
        return m;
    }
    if (err) *err = local;
    if (m) lz_host_free(ctx, m->folder);
    lz_host_free(ctx, m);
    return NULL;
}

lz_status lz_model_enter(lz_model *m, lz_job *job, lz_error *err) {
    lz_status status = lz_check_mappings(m->ctx, err);
    if (status) return status;
    pthread_mutex_lock(&m->kept.lock);
    bool inside = false;
    for (const lz_job *j = m->jobs; j; j = j->next) inside = inside || pthread_equal(j->thread, pthread_self());
    if (!inside && job) {
        job->thread = pthread_self();
        job->next = m->jobs;
        m->jobs = job;
    }
    pthread_mutex_unlock(&m->kept.lock);
    if (!inside) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "this thread is making a picture with this model already: finish it first");
}

void lz_model_leave(lz_model *m, lz_job *job) {
    pthread_mutex_lock(&m->kept.lock);
    for (lz_job **j = &m->jobs; *j; j = &(*j)->next)
        if (*j == job) {
            *j = job->next;
            break;
        }
    pthread_mutex_unlock(&m->kept.lock);
}

void lz_model_close(lz_model *m) {
    if (!m) return;
    lz_kept_free(m);
    lz_fair_destroy(&m->running);
    m->family->close(m->state);
    lz_loras_free(m);
    lz_trained_close(&m->trained);
    lz_host_free(m->ctx, m->folder);
    lz_host_free(m->ctx, m);
}

lz_model_facts lz_model_about(const lz_model *m) {
    if (!m) return (lz_model_facts){0};
    bool distilled = m->family->distilled(m->state) || m->lora_steps;
    int least = 0, most = LZ_MAX_IMAGES;
    if (m->family->count_images) m->family->count_images(m->state, &least, &most);
    return (lz_model_facts){
        .family = m->family->name,
        .distilled = distilled,
        .guidance_built_in = distilled && m->family->ignores_guidance,
        .width = m->width,
        .height = m->height,
        .steps = m->lora_steps ? m->lora_steps : m->steps,
        .guidance = distilled ? 1 : m->family->default_guidance,
        .token_pixels = m->family->token_pixels(m->state),
        .channels = m->family->channels(m->state),
        .least_images = least,
        .most_images = most,
    };
}
