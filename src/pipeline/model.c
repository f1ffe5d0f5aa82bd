/* model.c: opens a model: parts.c finds its files and its family, and the family opens them. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "pipeline/job.h"

static const lz_family *const families[] = {&lz_family_flux2_klein, &lz_family_flux3, &lz_family_qwen_image,
                                            &lz_family_qwen_image21, &lz_family_z_image};

const char *lz_pipeline_name(int i) {
    for (size_t f = 0; i >= 0 && f < sizeof families / sizeof families[0]; f++)
        for (int k = 0; families[f]->pipelines[k]; k++)
            if (i-- == 0) return families[f]->pipelines[k];
    return NULL;
}

const lz_family *lz_family_named(lz_config *index, lz_error *err) {
    const char *name = lz_config_text(index, "_class_name");
    for (size_t i = 0; name && i < sizeof families / sizeof families[0]; i++)
        for (int k = 0; families[i]->pipelines[k]; k++)
            if (!strcmp(families[i]->pipelines[k], name)) return families[i];
    lz_fail(err, LZ_BAD_FILE,
            "%s: models of the kind '%s' are not supported; FLUX.2 [klein] (Flux2KleinPipeline, Flux2KleinKVPipeline), "
            "FLUX.3 [klein] (Flux3ModularPipeline, ...), Qwen-Image (QwenImagePipeline, ...), Qwen-Image 2.1 "
            "(QwenImage21Pipeline) and "
            "Z-Image (ZImagePipeline) are",
            LZ_SHOW_TEXT(index->path), name ? LZ_SHOW_TEXT(name) : "(none named)");
    return NULL;
}

const lz_family *lz_family_of(const lz_component *transformer) {
    for (size_t i = 0; transformer && i < sizeof families / sizeof families[0]; i++)
        if (families[i]->parts[LZ_PART_TRANSFORMER] == transformer) return families[i];
    return NULL;
}

/* Reads the default size and steps. In diffusers these are arguments of the call, and ignored in the index; published
 * folders do not have them. */
static lz_status read_defaults(lz_model *m, lz_config *index, lz_error *err) {
    const lz_family *f = m->family;
    int64_t unit = f->token_pixels(m->state);
    m->width = lz_config_int(index, "width", LZ_DEFAULT_SIZE, unit, LZ_MAX_SIZE) / unit * unit;
    m->height = lz_config_int(index, "height", LZ_DEFAULT_SIZE, unit, LZ_MAX_SIZE) / unit * unit;
    lz_schedule_read_given(&m->schedule, index);
    m->own_schedule = m->schedule;
    m->steps = (int)lz_config_int(index, "num_inference_steps", f->default_steps(m->state), 1, LZ_MAX_STEPS);
    if (m->schedule.n_given) m->steps = m->schedule.n_given;
    if (index->err.status) *err = index->err;
    return index->err.status;
}

/* The text encoder must fit the rest of the model. An error says so here, rather than a failed product in the middle of a
 * picture. The encoder stays open for the first prompt. */
static lz_status open_text(lz_model *m, const lz_parts *parts, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    int least = 0, most = 0;
    if (m->family->look && m->family->count_images && !lz_layers(m)) m->family->count_images(m->state, &least, &most);
    lz_text_encoder *e = lz_encoder_open(m, most > 0, &local);
    if (e) m->family->check_text(m->state, e->text, parts, &local);
    lz_encoder_close(m, e, false);
    if (local.status && err) *err = local;
    return local.status;
}

static lz_status open_parts(lz_model *m, lz_parts *parts, lz_error *err) {
    lz_context *ctx = m->ctx;
    m->family = parts->family;
    m->folder = lz_host_copy(ctx, parts->model);
    if (!m->folder) return lz_out_of_memory(err, LZ_SHOWN);
    lz_status status = parts->folder
                           ? lz_schedule_read(&m->schedule, ctx, parts->model, err)
                           : lz_schedule_of(&m->schedule, ctx, parts->model, m->family->scheduler(parts), err);
    if (status) return status;
    m->state = m->family->open(ctx, parts, &parts->index, &m->schedule, err);
    if (!m->state) return err->status;
    if (m->family->line) m->schedule.line = m->family->line(m->state);
    lz_kept_init(m);
    lz_fair_init(&m->running);
    status = read_defaults(m, &parts->index, err);
    const lz_image square = {.width = 1, .height = 1};
    if (!status && lz_layers(m)) status = m->family->layer_size(m->state, &square, 0, &m->width, &m->height, err);
    if (!status) status = open_text(m, parts, err);
    if (!status && parts->folder)
        status = lz_trained_open(&m->trained, ctx, parts->model, m->family->token_pixels(m->state), err);
    if (!status) return LZ_OK;
    lz_kept_free(m);
    lz_fair_destroy(&m->running);
    m->family->close(m->state);
    return status;
}

lz_model *lz_model_open(lz_context *ctx, const char *folder, lz_error *err) {
    return lz_model_open_with(ctx, &LZ_MODEL_OPTIONS(.model = folder), err);
}

lz_model *lz_model_open_with(lz_context *ctx, const lz_model_options *options, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_model_options o;
    lz_parts parts;
    if (!ctx || !options || lz_read_options(&o, sizeof o, options, "LZ_MODEL_OPTIONS", &local) || !o.model) {
        if (!local.status)
            lz_fail(&local, LZ_BAD_ARGUMENT, "model_open: the %s is NULL",
                    !ctx      ? "context"
                    : options ? "model"
                              : "options");
        if (err) *err = local;
        return NULL;
    }
    lz_model *m = lz_host_alloc(ctx, sizeof *m);
    if (!m)
        lz_out_of_memory(&local, sizeof *m);
    else if (!lz_parts_open(&parts, ctx, &o, &local)) {
        m->ctx = ctx;
        lz_parts_explain(&parts, open_parts(m, &parts, &local), &local);
        lz_parts_close(&parts);
    }
    if (m && !local.status) return m;
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
    lz_model_facts facts = {
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
        .keeps_image = m->family->reference_size && !m->family->picture_size,
        .references_once = lz_caches_references(m),
        .transparent = lz_colours(m) == 4,
        .references = most && !m->trained.no_references,
        .start_images = !m->trained.no_start && !lz_layers(m),
        .masks = m->family->mask_strength > 0 && !m->schedule.inverted && !lz_layers(m),
        .layers = lz_layers(m),
        .n_sizes = m->trained.n_sizes,
        .sizes = (const int64_t(*)[2])m->trained.sizes,
    };
    memcpy(facts.version, m->trained.version, sizeof facts.version);
    return facts;
}
