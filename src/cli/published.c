/* published.c: planning with a model that is not on this machine. Its settings and the names, types and sizes of its
 * tensors are known (src/synth). They are written to a folder in $TMPDIR with sparse weight files, so that 15 GB take
 * less than a megabyte, and that folder is opened like any other. Nothing must be computed with it.
 *
 * While the folder exists, signals that would end the program are blocked. */
#include <errno.h>
#include <fts.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "synth/synth.h"

static sigset_t ending(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

static lz_status lay_out(const known_model *model, const char *folder, lz_error *err) {
    synth_model what;
    lz_status status = synth_model_of(model->kind, 0, 0, &what, err);
    if (status) return status;
    what.text_shard = what.transformer_shard = INT64_MAX; /* one file for each part */
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), err);
    if (!ctx) return err->status;
    status = synth_write(ctx, &what, folder, &(synth_options){.hollow = true}, err);
    lz_close(ctx);
    return status;
}

int published_open(const arguments *args, const known_model *model, char **folder) {
    const char *place = getenv("TMPDIR");
    sigset_t set = ending();
    if (asprintf(folder, "%s/lazuli-plan-XXXXXX", place && *place ? place : "/tmp") < 0) {
        *folder = NULL;
        return fail(args, FAILED, "out of memory");
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    lz_error err = {.status = LZ_OK};
    int code = DONE;
    if (!mkdtemp(*folder))
        code = fail(args, FAILED, "%s: cannot be created: %s; set TMPDIR to use another folder", *folder,
                    strerror(errno));
    else if (lay_out(model, *folder, &err) != LZ_OK)
        code = fail_with(args, &err);
    if (code != DONE) published_close(folder);
    return code;
}

void remove_folder(const char *folder) {
    FTS *walk = fts_open((char *const[]){(char *)folder, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; walk && (e = fts_read(walk));)
        if (e->fts_info != FTS_D) remove(e->fts_accpath);
    if (walk) fts_close(walk);
}

void published_close(char **folder) {
    if (!*folder) return;
    remove_folder(*folder);
    free(*folder);
    *folder = NULL;
    sigset_t set = ending();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void say_published(FILE *to, const known_model *model) {
    fprintf(to, "The sizes are those of the published model; nothing was downloaded. 'lazuli pull %s' downloads %s.\n",
            model->name, show_bytes(model->bytes).text);
}
