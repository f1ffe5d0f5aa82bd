/* recall.c: keeps the features of the last few prompts. A prompt that is used again, for example with another seed,
 * gets the same features, and the text encoder is not opened. The key is the encoder's input: token ids and masks.
 * Prompts with images are always encoded again. So are all prompts on a device: there the encoder stays open and takes
 * milliseconds, but reading the tokens for the key would be one more wait. */
#include <string.h>

#include "pipeline/job.h"

/* The number of prompts to keep. With a memory limit only those of the current picture, which has references to them
 * anyway. */
static int places(const lz_model *m) { return lz_memory_info(m->ctx).limit ? 2 : LZ_READINGS; }

/* The key, which the caller frees; NULL: the prompt is neither recalled nor remembered. */
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
        memset(end, 0, sizeof dims); /* padding too: keys are compared byte by byte */
        memcpy(end, &dims.n, sizeof dims.n);
        memcpy(end + offsetof(lz_dims, at), dims.at, (size_t)dims.n * sizeof dims.at[0]);
        memcpy(end += sizeof dims, &type, sizeof type);
        memcpy(end += sizeof type, data[i], size);
        end += size;
    }
    return key;
}

/* The caller holds kept.lock. */
static lz_reading *find_key(lz_model *m, const char *key, size_t bytes) {
    lz_reading *all = m->kept.readings;
    for (int i = 0; i < LZ_READINGS; i++)
        if (all[i].key && all[i].bytes == bytes && memcmp(all[i].key, key, bytes) == 0) {
            all[i].used = ++m->kept.clock;
            return &all[i];
        }
    return NULL;
}

lz_array *lz_recall(lz_model *m, const lz_prompt *prompt) {
    size_t bytes;
    char *key = make_key(m, prompt, &bytes);
    if (!key) return NULL;
    pthread_mutex_lock(&m->kept.lock);
    lz_reading *found = find_key(m, key, bytes);
    lz_array *features = found ? lz_retain(found->features) : NULL;
    pthread_mutex_unlock(&m->kept.lock);
    lz_host_free(m->ctx, key);
    return features;
}

static void forget(const lz_model *m, const lz_reading *r) {
    lz_release(r->features);
    lz_host_free(m->ctx, r->key);
}

/* Replaces the least recently used entry. */
void lz_remember(lz_model *m, const lz_prompt *prompt, lz_array *features) {
    lz_reading new = {.features = features}, old;
    int n = places(m);
    if (!(new.key = make_key(m, prompt, &new.bytes))) return;
    lz_retain(features);
    pthread_mutex_lock(&m->kept.lock);
    if (find_key(m, new.key, new.bytes)) /* another job has added it */
        old = new;
    else {
        lz_reading *oldest = &m->kept.readings[0];
        for (int i = 1; i < n; i++)
            if (m->kept.readings[i].used < oldest->used) oldest = &m->kept.readings[i];
        new.used = ++m->kept.clock;
        old = *oldest;
        *oldest = new;
    }
    pthread_mutex_unlock(&m->kept.lock);
    forget(m, &old);
}

void lz_kept_forget_readings(lz_model *m) {
    lz_reading old[LZ_READINGS];
    pthread_mutex_lock(&m->kept.lock);
    memcpy(old, m->kept.readings, sizeof old);
    memset(m->kept.readings, 0, sizeof old);
    pthread_mutex_unlock(&m->kept.lock);
    for (int i = 0; i < LZ_READINGS; i++) forget(m, &old[i]);
}
