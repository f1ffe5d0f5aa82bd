/* heads.c: see heads.h. The first bytes of each file are requested as a range. They are written to a file in $TMPDIR that is
 * as long as the one on the hub, but has a hole in the place of the weights, and lz_file_about describes that file. */
#include "pull/heads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

enum {
    FIRST = 1 << 18,       /* bytes of the first request; most headers are shorter */
    HEAD_LIMIT = 100000000 /* bytes: the limit of a safetensors header */
};

const char *option_for(const lz_file_facts *f) {
    if (f->lora) return "--lora";
    if (*f->refused) return NULL;
    if (f->transformer) return "-m";
    if (f->text_encoder) return "--text-encoder";
    if (f->vision) return "--vision";
    return f->vae ? "--vae" : NULL;
}

/* Requests more and more bytes until the header is complete. *n: its length, or that of all received bytes if it is no
 * weight file, of which the library then says what it is. */
static int get_head(hub *h, const get *g, first_bytes *to, size_t *n) {
    int64_t wanted = FIRST;
    int code = DONE;
    for (;;) {
        if (wanted > g->size) wanted = g->size;
        code = web_head(&h->web, g->what, g->url, wanted, to);
        if (code != DONE) return code;
        int64_t length = lz_weights_head(to->data, (int64_t)to->n);
        *n = length < 0 || length > (int64_t)to->n ? to->n : (size_t)length;
        if (length <= (int64_t)to->n || wanted == g->size) return DONE;
        if (length > HEAD_LIMIT || wanted >= HEAD_LIMIT)
            return fail(h->web.args, FAILED, "%s/%s: its header has more than %s; nothing was downloaded", h->repo,
                        g->what, show_bytes(HEAD_LIMIT).text);
        wanted = length > 4 * wanted ? length : 4 * wanted;
        if (wanted > HEAD_LIMIT) wanted = HEAD_LIMIT;
    }
}

/* Writes a file of `size` bytes: the head, and a hole. */
static bool write_hollow(const char *path, const first_bytes *from, size_t n, int64_t size) {
    int fd = make_folders(path) ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    bool good = fd >= 0;
    for (size_t done = 0; good && done < n;) {
        ssize_t written = write(fd, from->data + done, n - done);
        good = written > 0 || (written < 0 && errno == EINTR);
        if (written > 0) done += (size_t)written;
    }
    good = good && ftruncate(fd, (off_t)size) == 0;
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return good;
}

/* Downloads the head of a file into the folder, under its path in the repository. */
static int fetch_head(hub *h, const get *g, const char *folder) {
    first_bytes from = {.n = 0};
    size_t n = 0;
    char *path = path_of(folder, g->what);
    if (!path) return fail(h->web.args, FAILED, "out of memory");
    int code = get_head(h, g, &from, &n);
    if (code == DONE && from.no_ranges)
        note(h->web.args,
             "%s/%s: the hub sends no ranges of files, so its header was read from a download that was stopped",
             h->repo, g->what);
    if (code == DONE && !write_hollow(path, &from, n, g->size))
        code = fail(h->web.args, FAILED, "%s: cannot be written: %s; set TMPDIR to use another folder", path,
                    strerror(errno));
    free(from.data);
    free(path);
    return code;
}

static int judge(hub *h, lz_context *ctx, const get *g, const char *folder) {
    lz_error err = {.status = LZ_OK};
    lz_file_facts facts;
    char *path = path_of(folder, g->what);
    if (!path) return fail(h->web.args, FAILED, "out of memory");
    bool read = lz_file_about(ctx, path, &facts, &err) == LZ_OK;
    const char *why = err.text;
    if (!read && strncmp(why, path, strlen(path)) == 0) why += strlen(path) + strspn(why + strlen(path), ": ");
    int code = DONE;
    if (!read)
        code = fail(h->web.args, FAILED, "%s/%s: %s; nothing was downloaded", h->repo, g->what, why);
    else if (!option_for(&facts))
        code = fail(h->web.args, FAILED, "%s/%s: %s%s; nothing was downloaded", h->repo, g->what,
                    *facts.refused ? "" : "this is ", *facts.refused ? facts.refused : facts.what);
    free(path);
    return code;
}

/* Configurations have no weights. A part of a split model is described together with the others, by the first. */
static bool has_head(const get *g) { return !is_small_kind(g->what); }

/* 2 of stem-00002-of-00003.gguf; 0: the file is not a part of a split model. */
static int part_number(const get *g) {
    static const char form[] = "-00002-of-00003.gguf";
    size_t n = strlen(g->what), m = sizeof form - 1;
    int number = 0, count = 0, end = 0;
    if (n <= m || sscanf(g->what + n - m, "-%5d-of-%5d.gguf%n", &number, &count, &end) != 2 || end != (int)m) return 0;
    return number;
}

static bool is_unknown(const get *g) { return has_head(g) && (g->have < g->size || part_number(g) > 0); }

static int check_in(hub *h, const get *gets, const char *folder) {
    int code = DONE;
    lz_error err = {.status = LZ_OK};
    for (size_t i = 0; i < h->n && code == DONE; i++)
        if (is_unknown(&gets[i])) code = fetch_head(h, &gets[i], folder);
    if (code != DONE) return code;
    lz_context *ctx = open_for_files(&err);
    if (!ctx) return fail_with(h->web.args, &err);
    for (size_t i = 0; i < h->n && code == DONE; i++)
        if (is_unknown(&gets[i]) && part_number(&gets[i]) < 2) code = judge(h, ctx, &gets[i], folder);
    lz_close(ctx);
    return code;
}

int heads_check(hub *h, const get *gets) {
    const char *place = getenv("TMPDIR");
    char *folder = NULL;
    if (asprintf(&folder, "%s/lazuli-pull-XXXXXX", place && *place ? place : "/tmp") < 0)
        return fail(h->web.args, FAILED, "out of memory");
    int code = DONE;
    if (mkdtemp(folder)) {
        code = check_in(h, gets, folder);
        remove_folder(folder);
    } else
        code = fail(h->web.args, FAILED, "%s: cannot be created: %s; set TMPDIR to use another folder", folder,
                    strerror(errno));
    free(folder);
    return code;
}
