/* trained.c: reads lazuli.json, which says what a model was trained for, and makes remarks about pictures beyond that.
 * The file is optional and specific to Lazuli: diffusers ignores it. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "pipeline/job.h"
#include "text/split.h"

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void read_sizes(lz_trained *t, lz_config *c) {
    const json_t *sizes = json_object_get(c->root, "sizes");
    size_t n = json_array_size(sizes);
    bool fine = !sizes || (json_is_array(sizes) && n <= LZ_MAX_SIZES);
    for (size_t i = 0; fine && i < n; i++) {
        const json_t *size = json_array_get(sizes, i);
        for (size_t k = 0; k < 2; k++) t->sizes[i][k] = json_integer_value(json_array_get(size, k));
        fine = json_array_size(size) == 2 && t->sizes[i][0] > 0 && t->sizes[i][1] > 0;
    }
    t->n_sizes = (int)n;
    if (!fine) lz_config_refuse(c, "'sizes' must be a list of at most %d pairs such as [256, 256]", LZ_MAX_SIZES);
}

/* The version is shown to users and written into pictures, so it is short and printable. */
static void read_version(lz_trained *t, lz_config *c) {
    if (!json_object_get(c->root, "version")) return;
    const char *version = lz_config_text(c, "version");
    bool fine = version && *version && strlen(version) < sizeof t->version;
    for (const char *p = version; fine && *p; p++) fine = *p > ' ' && *p <= '~';
    if (fine)
        snprintf(t->version, sizeof t->version, "%s", version);
    else
        lz_config_refuse(c, "'version' must be up to %zu letters, digits and signs of ASCII, such as \"2\"",
                         sizeof t->version - 1);
}

/* False, true, or how many. */
static void read_references(lz_trained *t, lz_config *c) {
    if (json_is_integer(json_object_get(c->root, "references")))
        t->most_references = (int)lz_config_int(c, "references", 1, 1, LZ_MAX_IMAGES);
    else
        t->no_references = !lz_config_bool(c, "references", true);
}

static void read_words(lz_trained *t, lz_config *c, const char *folder) {
    if (!json_object_get(c->root, "words")) return;
    const char *name = lz_config_text(c, "words");
    if (!name || !*name || strchr(name, '/')) {
        lz_config_refuse(c, "'words' must be the name of a file in the same folder");
        return;
    }
    char *path = lz_path_join(c->ctx, folder, name);
    if (path)
        t->words = lz_vocabulary_open(c->ctx, path, &c->err);
    else
        lz_out_of_memory(&c->err, LZ_SHOWN);
    lz_host_free(c->ctx, path);
}

lz_status lz_trained_open(lz_trained *t, lz_context *ctx, const char *folder, lz_error *err) {
    lz_config c;
    lz_error local = {.status = LZ_OK};
    lz_status status = lz_config_open(&c, ctx, folder, "lazuli.json", &local);
    if (status == LZ_NOT_FOUND) return LZ_OK;
    if (!status) {
        read_sizes(t, &c);
        read_version(t, &c);
        read_references(t, &c);
        t->no_start = !lz_config_bool(&c, "start_images", true);
        if (!c.err.status) read_words(t, &c, folder);
        lz_config_refuse_rest(&c, (const char *const[]){"sizes", NULL}); /* read as a list of lists */
        status = lz_config_end(&c, &local);
    }
    if (status) lz_trained_close(t);
    if (status && err) *err = local;
    return status;
}

void lz_trained_close(lz_trained *t) {
    lz_vocabulary_close(t->words);
    *t = (lz_trained){.n_sizes = 0};
}

/* ---- what a user is told about it -------------------------------------------------------------------------------- */

lz_status lz_read_as(const lz_model *m, const char *prompt, char **to, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    *to = m->trained.words ? lz_vocabulary_read(m->trained.words, prompt, &local) : NULL;
    if (local.status && err) *err = local;
    return local.status;
}

/* How many times larger is the larger of two lengths? */
static double times(int64_t a, int64_t b) { return a > b ? (double)a / (double)b : (double)b / (double)a; }

/* Sizes between those of the training are as good, so a remark is made only of a side, or of a ratio of the sides, that
 * is beyond all of them. */
static bool is_beyond(const lz_trained *t, int64_t width, int64_t height) {
    bool wide = true, narrow = true, high = true, low = true, flat = true, upright = true;
    for (int i = 0; i < t->n_sizes; i++) {
        const int64_t w = t->sizes[i][0], h = t->sizes[i][1];
        const double more = (double)width * (double)h - (double)w * (double)height; /* above 0: a larger ratio */
        wide &= width > w, narrow &= width<w, high &= height> h, low &= height < h;
        flat &= more > 0, upright &= more < 0;
    }
    return t->n_sizes && (wide || narrow || high || low || flat || upright);
}

static void remark_size(const lz_trained *t, int64_t width, int64_t height, lz_remarks *to) {
    int nearest = 0, small = 0, large = 0;
    double least = 0;
    if (!is_beyond(t, width, height)) return;
    for (int i = 0; i < t->n_sizes; i++) {
        const int64_t *size = t->sizes[i];
        const double far = times(width, size[0]) * times(height, size[1]), area = (double)size[0] * (double)size[1];
        if (area < (double)t->sizes[small][0] * (double)t->sizes[small][1]) small = i;
        if (area > (double)t->sizes[large][0] * (double)t->sizes[large][1]) large = i;
        if (i && far >= least) continue;
        nearest = i;
        least = far;
    }
    const long long w = t->sizes[nearest][0], h = t->sizes[nearest][1];
    if (t->n_sizes == 1)
        snprintf(to->size, sizeof to->size,
                 "this model was trained for pictures of %lld x %lld, so one of %lld x %lld is likely to be broken", w,
                 h, (long long)width, (long long)height);
    else
        snprintf(
            to->size, sizeof to->size,
            "this model was trained for pictures of %lld x %lld to %lld x %lld, so one of %lld x %lld is likely to "
            "be poor; the nearest size is %lld x %lld",
            (long long)t->sizes[small][0], (long long)t->sizes[small][1], (long long)t->sizes[large][0],
            (long long)t->sizes[large][1], (long long)width, (long long)height, w, h);
}

static void remark_images(const lz_trained *t, const lz_job *job, lz_remarks *to) {
    int n;
    lz_job_references(job, &n);
    if (n && t->no_references)
        snprintf(to->images, sizeof to->images,
                 "this model was not trained to look at images, so the picture is likely to be broken");
    else if (t->most_references && n > t->most_references)
        snprintf(to->images, sizeof to->images,
                 "this model was trained to look at %d image%s, so a picture from %d is likely to be broken",
                 t->most_references, t->most_references > 1 ? "s" : "", n);
    else if (job->options.strength > 0 && t->no_start)
        snprintf(to->images, sizeof to->images,
                 "this model was not trained to start from an image, so the picture is likely to be broken");
    lz_repaint_remark(job, to->images, sizeof to->images);
}

static void remark_prompt(const lz_model *m, const char *prompt, lz_remarks *to) {
    if (*prompt && (int64_t)strlen(prompt) < m->family->caption_bytes)
        snprintf(to->prompt, sizeof to->prompt,
                 "this model was trained on long captions, and a short prompt gives a poorer picture: describe "
                 "subject, setting, light and style in a paragraph, or let a language model write it");
}

static lz_status remark_words(const lz_model *m, const char *prompt, lz_remarks *to, lz_error *err) {
    char *read_as = NULL;
    lz_status status = lz_read_as(m, prompt, &read_as, err);
    if (read_as) snprintf(to->read_as, sizeof to->read_as, "%s", read_as);
    lz_host_free(m->ctx, read_as);
    int64_t good = lz_utf8_error(to->read_as, strlen(to->read_as)); /* start of a character that was cut off */
    if (good >= 0) to->read_as[good] = 0;
    if (!status) lz_vocabulary_unknown(m->trained.words, prompt, to->words, sizeof to->words);
    return status;
}

lz_status lz_job_remark(const lz_job *job, lz_remarks *remarks, lz_error *err) {
    if (remarks) memset(remarks, 0, sizeof *remarks);
    if (!job || !remarks) return lz_fail(err, LZ_BAD_ARGUMENT, "job_remark: needs a job and a place for remarks");
    const lz_trained *t = &job->model->trained;
    remark_size(t, job->options.width, job->options.height, remarks);
    remark_images(t, job, remarks);
    const char *prompt = job->options.prompt ? job->options.prompt : "";
    remark_prompt(job->model, prompt, remarks);
    return t->words ? remark_words(job->model, prompt, remarks, err) : LZ_OK;
}

lz_status lz_remark(lz_model *model, const lz_picture_options *options, lz_remarks *remarks, lz_error *err) {
    if (!model || !options || !remarks)
        return lz_fail(err, LZ_BAD_ARGUMENT, "remark: needs a model, options and a place for remarks");
    memset(remarks, 0, sizeof *remarks);
    lz_error local = {.status = LZ_OK};
    lz_job *job = lz_job_make(model, options, NULL, &local);
    if (job) lz_job_remark(job, remarks, &local);
    lz_job_free(job);
    if (local.status && err) *err = local;
    return local.status;
}

const char *lz_model_words(const lz_model *model) {
    return model && model->trained.words ? lz_vocabulary_text(model->trained.words) : NULL;
}
