/* layers.c: the files of a picture, and of its layers. `-o fox.png` writes fox-1.png, the lowest layer, fox-2.png and so on, and
 * fox.png, which has all layers on top of each other. */
#include <stdlib.h>
#include <string.h>

#include "generate.h"

/* Writes the layers. *written: how many. */
static lz_status save_layers(lz_context *ctx, const char *path, const lz_picture *p, const char *const *text,
                             bool reserved, int *written, lz_error *err) {
    const char *pairs[MAX_FACTS + 2] = {NULL};
    char which[48];
    int n = 0;
    for (; text && text[n] && n < MAX_FACTS - 1; n++) pairs[n] = text[n];
    for (int i = *written = 0; i < p->n_layers; i++) {
        char *name = numbered_path(path, i + 1);
        snprintf(which, sizeof which, "%d of %d", i + 1, p->n_layers);
        if (n) { /* none with --no-metadata */
            pairs[n] = "layer";
            pairs[n + 1] = which;
        }
        lz_status status = name ? (reserved ? save_reserved : save_image)(ctx, name, &p->layers[i], pairs, err)
                                : LZ_OUT_OF_MEMORY;
        if (!name) *err = (lz_error){.status = LZ_OUT_OF_MEMORY, .text = "out of memory"};
        free(name);
        if (status != LZ_OK) return status;
        ++*written;
    }
    return LZ_OK;
}

lz_status save_picture(lz_context *ctx, const char *path, const lz_picture *p, const char *const *text, bool reserved,
                       lz_error *err) {
    int written;
    lz_status status = save_layers(ctx, path, p, text, reserved, &written, err);
    if (!status) status = (reserved ? save_reserved : put_picture)(ctx, path, &p->image, text, err);
    if (status) remove_layers(path, written);
    return status;
}

lz_status write_picture(const job *j, const lz_picture *p, int64_t seed, const char *path, lz_error *err) {
    facts f;
    if (!describe_picture(&f, j, p, seed))
        *err = (lz_error){.status = LZ_OUT_OF_MEMORY, .text = "out of memory"};
    else
        save_picture(j->ctx, path, p, f.pairs, false, err);
    forget_facts(&f);
    return err->status;
}

int check_layers(making *m) {
    const arguments *a = m->job.args;
    int n = m->job.picture.layers, code = DONE;
    for (int i = 0; i < m->n && n && code == DONE; i++) {
        if (!m->paths[i]) continue; /* named when it is written */
        if (is_stdout(m->paths[i]))
            return fail(a, NOT_UNDERSTOOD, "-o - writes one picture, and this model makes %d layers; name a file", n);
        if (is_jpeg(m->paths[i]) && m->job.picture.background != LZ_BACKGROUND_OPAQUE)
            return fail(a, NOT_UNDERSTOOD, "%s: a JPEG has no transparency, so layers need .png or .webp", m->paths[i]);
        for (int k = 1; k <= n && code == DONE; k++) {
            char *name = numbered_path(m->paths[i], k);
            if (!name) return fail(a, FAILED, "out of memory");
            code = check_output(a, name);
            if (code == DONE) code = check_unread(a, m->naming ? m->naming->list : NULL, name);
            if (code == DONE && m->inputs && !is_claimed(m->claimed, name)) code = check_inputs(a, m->inputs, name);
            if (code == DONE) code = claim_output(a, m->claimed, name);
            free(name);
        }
    }
    return code;
}

json_t *layers_json(const char *path, const lz_picture *p) {
    json_t *list = json_array();
    for (int i = 0; i < p->n_layers; i++) {
        char *name = numbered_path(path, i + 1);
        json_array_append_new(list, json_text(name));
        free(name);
    }
    return list;
}

void tell_layers(FILE *to, const char *path, const lz_picture *p) {
    for (int i = 0; i < p->n_layers; i++) {
        char *name = numbered_path(path, i + 1);
        say(to, "%s  %lld x %lld, layer %d of %d\n", name ? name : path, (long long)p->layers[i].width,
            (long long)p->layers[i].height, i + 1, p->n_layers);
        free(name);
    }
}
