/* trained.c: reads lazuli.json, which says what a model was trained for, and makes remarks about pictures beyond that.
 * The file is optional and specific to Lazuli: diffusers ignores it. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "pipeline/job.h"
#include "text/split.h"

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool is_given(const lz_config *c, const char *key) {
    const json_t *value = json_object_get(c->root, key);
    return value && !json_is_null(value);
}

/* unit: sides are multiples of it */
static void read_sizes(lz_trained *t, lz_config *c, int64_t unit) {
    const json_t *sizes = json_object_get(c->root, "sizes");
    size_t n = json_array_size(sizes);
    bool fine = !is_given(c, "sizes") || (json_is_array(sizes) && n <= LZ_MAX_SIZES);
    for (size_t i = 0; fine && i < n; i++) {
        const json_t *size = json_array_get(sizes, i);
        for (size_t k = 0; k < 2; k++) {
            int64_t side = t->sizes[i][k] = json_integer_value(json_array_get(size, k));
            fine = fine && side > 0 && side <= LZ_MAX_SIZE && side % unit == 0;
        }
        fine = fine && json_array_size(size) == 2;
    }
    t->n_sizes = (int)n;
    if (!fine)
        lz_config_refuse(c,
                         "'sizes' must be a list of at most %d pairs such as [256, 256], of multiples of %lld up to %d",
                         LZ_MAX_SIZES, (long long)unit, LZ_MAX_SIZE);
}

/* The version is shown to users and written into pictures, so it is short and printable. */
static void read_version(lz_trained *t, lz_config *c) {
    if (!is_given(c, "version")) return;
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
    if (!is_given(c, "words")) return;
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

lz_status lz_trained_open(lz_trained *t, lz_context *ctx, const char *folder, int64_t unit, lz_error *err) {
    lz_config c;
    lz_error local = {.status = LZ_OK};
    lz_status status = lz_config_open(&c, ctx, folder, "lazuli.json", &local);
    if (status == LZ_NOT_FOUND) return LZ_OK;
    if (!status) {
        read_sizes(t, &c, unit);
        read_version(t, &c);
        read_references(t, &c);
        t->no_start = !lz_config_bool(&c, "start_images", true);
        t->most_things = (int)lz_config_int(&c, "things", 0, 0, 1000);
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

/* How many times larger is the larger of two numbers? */
static double times(double a, double b) { return a > b ? a / b : b / a; }

const int64_t *lz_trained_size(const lz_trained *t, int64_t width, int64_t height) {
    const int64_t *nearest = NULL;
    double least = 0;
    for (int i = 0; i < t->n_sizes; i++) {
        const double w = (double)t->sizes[i][0], h = (double)t->sizes[i][1];
        const double shape = times((double)width * h, (double)height * w),
                     area = times((double)width * (double)height, w * h);
        const double far = shape * shape * area; /* another shape is worse than another area */
        if (nearest && far >= least) continue;
        nearest = t->sizes[i];
        least = far;
    }
    return nearest;
}

static void remark_size(const lz_trained *t, int64_t width, int64_t height, lz_remarks *to) {
    const int64_t *nearest = lz_trained_size(t, width, height);
    if (!nearest || (nearest[0] == width && nearest[1] == height)) return;
    snprintf(
        to->size, sizeof to->size,
        "this model was not trained for pictures of %lld x %lld, so this one may be poor; the nearest size is %lld x "
        "%lld",
        (long long)width, (long long)height, (long long)nearest[0], (long long)nearest[1]);
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

/* A picture of no thing that the model knows, or of more than it was trained for; an edit, which may name none, without a
 * picture. */
static lz_status remark_things(const lz_job *job, const char *prompt, lz_remarks *to, lz_error *err) {
    const lz_trained *t = &job->model->trained;
    lz_error local = {.status = LZ_OK};
    lz_shown shown;
    int n;
    lz_vocabulary_look(t->words, prompt, &shown, &local);
    size_t used = strlen(to->words);
    lz_job_references(job, &n);
    bool from_nothing = !n && !job->options.n_images && *prompt;
    const char *none = used            ? "the prompt names no thing that it knows"
                       : shown.negates ? "the prompt names no thing but what it leaves out"
                                       : "the prompt names no thing that this model knows";
    if (from_nothing && shown.edits)
        snprintf(to->images, sizeof to->images, "the prompt changes a picture, and there is none");
    else if (from_nothing && shown.things == 0)
        snprintf(to->words + used, sizeof to->words - used, "%s%s", used ? ", and " : "", none);
    if (shown.things > t->most_things && t->most_things)
        snprintf(to->prompt, sizeof to->prompt,
                 "the prompt names %d things, and this model was trained for pictures of at most %d", shown.things,
                 t->most_things);
    if (local.status && err) *err = local;
    return local.status;
}

static lz_status remark_words(const lz_job *job, const char *prompt, lz_remarks *to, lz_error *err) {
    const lz_model *m = job->model;
    char *read_as = NULL;
    lz_status status = lz_read_as(m, prompt, &read_as, err);
    if (read_as && strcasecmp(read_as, prompt) != 0) snprintf(to->read_as, sizeof to->read_as, "%s", read_as);
    lz_host_free(m->ctx, read_as);
    int64_t good = lz_utf8_error(to->read_as, strlen(to->read_as)); /* start of a character that was cut off */
    if (good >= 0) to->read_as[good] = 0;
    if (!status) lz_vocabulary_unknown(m->trained.words, prompt, to->words, sizeof to->words);
    return status ? status : remark_things(job, prompt, to, err);
}

lz_status lz_job_remark(const lz_job *job, lz_remarks *remarks, lz_error *err) {
    if (remarks) memset(remarks, 0, sizeof *remarks);
    if (!job || !remarks) return lz_fail(err, LZ_BAD_ARGUMENT, "job_remark: needs a job and a place for remarks");
    const lz_trained *t = &job->model->trained;
    remark_size(t, job->options.width, job->options.height, remarks);
    remark_images(t, job, remarks);
    const char *prompt = job->options.prompt ? job->options.prompt : "";
    remark_prompt(job->model, prompt, remarks);
    return t->words ? remark_words(job, prompt, remarks, err) : LZ_OK;
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
