/* recall.c: the last few prompts and what the text encoder made of them. A prompt that comes again, such as with another
 * seed, gets the same features, bit for bit, and the encoder is not even opened. The key is what the encoder would see:
 * token ids and masks. Prompts with images in them are read anew; so are all on a device with memory of its own, where the
 * encoder stays open and reading takes milliseconds, but looking at tokens that were sent there is one wait more. */
#include <string.h>

#include "pipeline/generate.h"

/* Where memory is counted, only the prompts of this picture: it holds them to its end in any case. */
static int places(const lz_model *m) { return lz_memory_info(m->ctx).limit ? 2 : LZ_READINGS; }

/* Owned; or NULL: then nothing is recalled, nor remembered. */
static char *make_key(const lz_model *m, const lz_prompt *p, size_t *bytes) {
    const void *data[LZ_PROMPT_INPUTS];
    *bytes = 0;
    if (m->ctx->device) return NULL;
    for (int i = 0; i < p->n; i++) {
        if (!(data[i] = lz_data(p->in[i], NULL))) return NULL;
        *bytes += sizeof(lz_dims) + sizeof(lz_dtype) + (size_t)(lz_size(p->in[i]) * lz_dtype_size(lz_type(p->in[i])));
    }
    char *key = lz_host_alloc(m->ctx, *bytes), *end = key;
    for (int i = 0; i < p->n && key; i++) {
        lz_dims dims = lz_shape(p->in[i]);
        lz_dtype type = lz_type(p->in[i]);
        size_t size = (size_t)(lz_size(p->in[i]) * lz_dtype_size(type));
        memset(end, 0, sizeof dims); /* padding too: keys are compared byte for byte */
        memcpy(end, &dims.n, sizeof dims.n);
        memcpy(end + offsetof(lz_dims, at), dims.at, (size_t)dims.n * sizeof dims.at[0]);
        memcpy(end += sizeof dims, &type, sizeof type);
        memcpy(end += sizeof type, data[i], size);
        end += size;
    }
    return key;
}

lz_array *lz_recall(lz_model *m, const lz_prompt *prompt) {
    size_t bytes;
    char *key = make_key(m, prompt, &bytes);
    lz_reading *found = NULL;
    for (int i = 0; i < LZ_READINGS && key; i++)
        if (m->readings[i].bytes == bytes && memcmp(m->readings[i].key, key, bytes) == 0) found = &m->readings[i];
    lz_host_free(m->ctx, key);
    if (!found) return NULL;
    found->used = ++m->clock;
    return found->features;
}

static void forget(const lz_model *m, lz_reading *r) {
    lz_release(r->features);
    lz_host_free(m->ctx, r->key);
    *r = (lz_reading){.key = NULL};
}

/* In place of the one that was not used for longest. */
void lz_remember(lz_model *m, const lz_prompt *prompt, lz_array *features) {
    lz_reading *oldest = &m->readings[0], new = {.used = ++m->clock};
    if (lz_recall(m, prompt) || !(new.key = make_key(m, prompt, &new.bytes))) return;
    for (int i = 1; i < places(m); i++)
        if (m->readings[i].used < oldest->used) oldest = &m->readings[i];
    new.features = lz_retain(features);
    forget(m, oldest);
    *oldest = new;
}

void lz_model_forget_readings(lz_model *m) {
    for (int i = 0; i < LZ_READINGS; i++) forget(m, &m->readings[i]);
}
