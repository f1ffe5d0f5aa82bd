/* model.c: opening a model folder: model_index.json names the pipeline, the pipeline names the family. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "pipeline/generate.h"

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

static void init_turn(lz_model *m) {
    pthread_mutexattr_t checked; /* a thread that would wait for itself is told */
    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&m->turn, &checked);
    pthread_mutexattr_destroy(&checked);
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
        m->keeps = ctx->device;
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
        init_turn(m);
        return m;
    }
    if (err) *err = local;
    if (m) lz_host_free(ctx, m->folder);
    lz_host_free(ctx, m);
    return NULL;
}

lz_status lz_model_enter(lz_model *m, lz_error *err) {
    if (pthread_mutex_lock(&m->turn) == 0) {
        lz_status status = lz_check_mappings(m->ctx, err);
        if (status) lz_model_leave(m);
        return status;
    }
    return lz_fail(err, LZ_BAD_ARGUMENT, "this thread is making a picture with this model already: finish it first");
}
void lz_model_leave(lz_model *m) { pthread_mutex_unlock(&m->turn); }

void lz_model_forget_size(lz_model *m) {
    lz_traced_free(&m->begin);
    lz_traced_free(&m->step);
    lz_compiled_free(m->preview);
    m->preview = NULL;
    lz_slots_release(lz_size_slots, &m->size_slots);
}

void lz_model_forget_schedule(lz_model *m) {
    lz_slots_release(lz_schedule_slots, &m->schedule_slots);
    lz_host_free(m->ctx, m->sigmas);
    m->sigmas = NULL;
    m->n_sigmas = 0;
}

void lz_model_forget(lz_model *m) {
    lz_model_forget_size(m);
    lz_model_forget_schedule(m);
    lz_compiled_free(m->read);
    lz_compiled_free(m->decode);
    if (m->text) m->family->close_text(m->text);
    m->read = m->decode = NULL;
    m->text = NULL;
}

void lz_model_close(lz_model *m) {
    if (!m) return;
    lz_model_forget(m);
    lz_model_forget_readings(m);
    lz_release(m->preview_map);
    m->family->close(m->state);
    lz_trained_close(&m->trained);
    pthread_mutex_destroy(&m->turn);
    lz_host_free(m->ctx, m->folder);
    lz_host_free(m->ctx, m);
}

lz_model_facts lz_model_about(const lz_model *m) {
    if (!m) return (lz_model_facts){0};
    bool distilled = m->family->distilled(m->state);
    int least = 0, most = LZ_MAX_IMAGES;
    if (m->family->count_images) m->family->count_images(m->state, &least, &most);
    return (lz_model_facts){
        .family = m->family->name,
        .distilled = distilled,
        .guidance_built_in = distilled && m->family->ignores_guidance,
        .width = m->width,
        .height = m->height,
        .steps = m->steps,
        .guidance = distilled ? 1 : m->family->default_guidance,
        .token_pixels = m->family->token_pixels(m->state),
        .channels = m->family->channels(m->state),
        .least_images = least,
        .most_images = most,
    };
}
