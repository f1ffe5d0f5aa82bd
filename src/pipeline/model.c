/* model.c: opening a model folder: model_index.json names the pipeline, the pipeline names the family. */
#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "pipeline/family.h"

static const lz_family *const families[] = {&lz_family_flux2_klein};

static const lz_family *find_family(lz_config *index, lz_error *err) {
    const char *name = lz_config_text(index, "_class_name");
    for (size_t i = 0; name && i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i]->pipeline, name)) return families[i];
    lz_fail(err, LZ_BAD_FILE, "%s: models of the kind '%s' are not supported; FLUX.2 [klein] is (Flux2KleinPipeline)",
            LZ_SHOW_TEXT(index->path), name ? LZ_SHOW_TEXT(name) : "(none named)");
    return NULL;
}

lz_model *lz_model_open(lz_context *ctx, const char *folder, lz_error *err) {
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
        if (m->family) m->state = m->family->open(ctx, folder, &index, &local);
    }
    lz_config_close(&index);
    if (!local.status) return m;
    if (err) *err = local;
    if (m) lz_host_free(ctx, m->folder);
    lz_host_free(ctx, m);
    return NULL;
}

void lz_model_close(lz_model *m) {
    if (!m) return;
    m->family->close(m->state);
    lz_host_free(m->ctx, m->folder);
    lz_host_free(m->ctx, m);
}

lz_model_facts lz_model_about(const lz_model *m) {
    bool distilled = m->family->distilled(m->state);
    return (lz_model_facts){
        .family = m->family->name,
        .distilled = distilled,
        .steps = m->family->default_steps[distilled],
        .guidance = distilled ? 1 : m->family->default_guidance,
        .token_pixels = m->family->token_pixels(m->state),
        .channels = m->family->channels(m->state),
    };
}
