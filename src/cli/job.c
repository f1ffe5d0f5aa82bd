/* job.c: opens a model and fills in the options of a picture; common to generating and planning. */
#include <errno.h>
#include <fts.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "environment.h"
#include "progress.h"

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* The requested device; NULL: automatic. */
static const char *asked_device(const arguments *a) {
    return a->device && strcmp(a->device, "auto") != 0 ? a->device : NULL;
}

lz_model_options parts_of(const arguments *a, const model_choice *choice) {
    char *const none[SET_KEYS] = {NULL}, *const *set = choice->set ? choice->set->values : none;
    return LZ_MODEL_OPTIONS(.model = choice->folder,
                            .text_encoder = given_file(a->text_encoder ? a->text_encoder : set[SET_TEXT_ENCODER]),
                            .vision = given_file(a->vision ? a->vision : set[SET_VISION]),
                            .vae = given_file(a->vae ? a->vae : set[SET_VAE]),
                            .tokenizer = given_file(a->tokenizer ? a->tokenizer : set[SET_TOKENIZER]),
                            .variant = a->variant ? a->variant : set[SET_VARIANT]);
}

#define OR_NONE(text) ((text) ? (text) : "")
static char *name_machine(const arguments *a, const model_choice *choice) {
    char *name = NULL;
    lz_model_options p = parts_of(a, choice);
    int n = asprintf(&name, "%s\n%s\n%s\n%s\n%s\n%s\n%s\n%lld %d %d", OR_NONE(p.model), OR_NONE(p.text_encoder),
                     OR_NONE(p.vision), OR_NONE(p.vae), OR_NONE(p.tokenizer), OR_NONE(p.variant),
                     OR_NONE(asked_device(a)), (long long)a->threads, a->precision, a->offload);
    return n < 0 ? NULL : name;
}

#define LARGE_MODEL ((int64_t)256 << 20) /* with less, a CPU is done before a GPU has its kernels */

/* The size of the weights in a folder and its direct subfolders, no deeper, since the folder may be anything, such as
 * /. Follows links, which the Hugging Face cache has. */
static int64_t weight_bytes(const char *folder) {
    char *const roots[] = {(char *)folder, NULL};
    int64_t bytes = 0;
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; walk && (e = fts_read(walk));) {
        const char *end = strrchr(e->fts_name, '.');
        if (e->fts_info == FTS_D && e->fts_level > 1) fts_set(walk, e, FTS_SKIP);
        bool weights = end && (!strcmp(end, ".safetensors") || !strcmp(end, ".gguf"));
        if (e->fts_info == FTS_F && (weights || e->fts_level == FTS_ROOTLEVEL)) bytes += e->fts_statp->st_size;
    }
    if (walk) fts_close(walk);
    return bytes;
}

/* Does the device come from a picture (--from)? This machine may not have it. */
static bool device_is_told(const arguments *args) {
    return args->from && !args->settings && is_elsewhere(args, "device");
}

/* At most as many threads as cores: more would wait for each other at the end of every kernel. */
static int64_t useful_threads(const arguments *args) {
    cpu_set_t set;
    int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (args->threads <= cores) return args->threads;
    note(args, "--threads %lld is more than the number of cores, so %lld %s used", (long long)args->threads,
         (long long)cores, cores == 1 ? "is" : "are");
    return cores;
}

/* Does the command run no layers of 8 bits? It plans, describes a model, or uses its autoencoder only. */
static bool is_looking(const job *j) { return j->args->command->bit & (PLAN | INFO | CODEC); }

/* The context calls it while weights are quantised. It draws a line, and returns false after a signal. */
static bool show_quantising(void *user, double done) {
    job *j = user;
    bool shown = !j->args->quiet && isatty(STDERR_FILENO);
    if (shown && (stop_wanted() || !(done < 1)))
        clear_line();
    else if (shown && line_is_due(j->quantising_drawn)) {
        j->quantising_drawn = seconds_now();
        draw_line("quantise", done, "");
    }
    return !stop_wanted();
}

/* Opens a context with the requested device and precision. By default, a large model runs on a GPU if there is one, in
 * the type that the device or processor multiplies fastest. */
static lz_context *open_context(job *j, const char *folder, lz_error *err) {
    const arguments *args = j->args;
    lz_context_options where = LZ_CONTEXT_OPTIONS(.device = asked_device(args), .threads = (int)useful_threads(args),
                                                  .compute = args->precision, .offload = args->offload,
                                                  .log = args->quiet ? NULL : say_remark, .quantising = show_quantising,
                                                  .quantising_user = j);
    bool fp8 = where.compute == LZ_F8;
    if (is_looking(j) && (fp8 || where.compute == LZ_I8)) { /* nothing is quantised for a look at a model */
        where.compute = LZ_FASTEST;
        if (!(args->command->bit & CODEC))
            note(args, "planned in the type that is multiplied fastest; with --precision %s weights take half of it",
                 fp8 ? "fp8" : "int8");
    } else if (fp8 && !where.device)
        where.device = "cuda"; /* no other device has it */
    int64_t bytes = weight_bytes(folder);
    if (j->parts.text_encoder) bytes += weight_bytes(j->parts.text_encoder);
    bool large = bytes >= LARGE_MODEL;
    if (large && !where.compute) where.compute = LZ_FASTEST;
    large = large && !where.device && args->command->bit != INFO;
    if (large) where.device = "cuda";
    lz_context *ctx = open_as_asked(where, err);
    if (!ctx && (large || device_is_told(args))) {
        if (!large)
            note(args, "%s; the picture was made there, so on the CPU it will differ slightly", err->text);
        else if (err->status != LZ_NOT_FOUND)
            note(args, "the GPU is not used: %s", err->text);
        where.device = "cpu";
        if (where.compute == LZ_F8) where.compute = LZ_FASTEST; /* of a picture that was made on a GPU */
        *err = (lz_error){.status = LZ_OK};
        ctx = open_as_asked(where, err);
    }
    snprintf(j->device, sizeof j->device, "%s", where.device ? where.device : "");
    return ctx;
}

static int open_chosen(job *j, const model_choice *choice) {
    const arguments *args = j->args;
    j->published = choice->published;
    int code = j->published ? published_open(args, j->published, &j->stand_in) : DONE;
    if (code != DONE) return code;
    j->folder = strdup(j->stand_in ? j->stand_in : choice->folder);
    j->name = strdup(choice->name);
    j->machine = name_machine(args, choice);
    j->parts = parts_of(args, choice);
    j->parts.model = j->folder;
    j->is_set = choice->set;
    if (!j->folder || !j->name || !j->machine) return fail(args, FAILED, "out of memory");
    lz_error err = {.status = LZ_OK};
    j->ctx = open_context(j, j->folder, &err);
    if (!j->ctx && args->precision == LZ_F8)
        return fail(args, FAILED, "%s; --precision auto computes on any machine", err.text);
    if (!j->ctx && asked_device(args))
        return fail(args, FAILED, "%s; --device auto chooses a device of this machine", err.text);
    if (!j->ctx) return fail_with(args, &err);
    if (args->offload != LZ_OFFLOAD_AUTO && is_host(j->ctx))
        note(args, "--offload has no effect; it is for GPUs, and this runs on %s", lz_device_name(j->ctx));
    j->model = lz_model_open_with(j->ctx, &j->parts, &err);
    if (!j->model && err.status == LZ_CANCELLED) return fail(args, stop_code(), "stopped");
    bool narrow = args->precision == LZ_I8 || args->precision == LZ_F8;
    if (!j->model && narrow && err.status == LZ_IO)
        return fail(args, FAILED, "%s; --precision auto needs no file there, and LAZULI_CACHE names another folder",
                    err.text);
    if (!j->model) return fail_model(args, choice, &err);
    j->facts = lz_model_about(j->model);
    say_model(args, choice);
    return DONE;
}

int job_open(job *j, const arguments *args) {
    *j = (job){.args = args, .picture = LZ_PICTURE_OPTIONS()};
    model_choice choice;
    int code = choose_model(args, &choice);
    if (code == DONE) code = open_chosen(j, &choice);
    free(choice.owned);
    return code;
}

void job_drop(job *j) {
    lz_job_free(j->work);
    j->work = NULL;
}

static void forget_picture(job *j) {
    job_drop(j);
    forget_mask(j);
    free(j->blank.pixels);
    j->blank.pixels = NULL;
    for (int i = 0; i < LZ_MAX_IMAGES; i++)
        if (j->images[i].pixels) lz_image_free(j->ctx, &j->images[i]);
    free(j->prompt);
    j->prompt = NULL;
    j->picture = LZ_PICTURE_OPTIONS();
    j->said_cut = false;
}

void job_take(job *j, const arguments *args) {
    forget_picture(j);
    j->args = args;
}

int job_stays(const job *j, const arguments *args, bool *stays) {
    model_choice choice;
    int code = choose_model(args, &choice);
    char *machine = code == DONE ? name_machine(args, &choice) : NULL;
    *stays = j->model && machine && strcmp(machine, j->machine) == 0;
    free(machine);
    free(choice.owned);
    return code;
}

int job_reopen(job *j, const arguments *args) {
    bool same;
    int code = job_stays(j, args, &same);
    if (code != DONE) return code;
    if (!same) {
        job_close(j);
        return job_open(j, args);
    }
    job_take(j, args);
    return DONE;
}

void job_close(job *j) {
    forget_picture(j);
    published_close(&j->stand_in);
    free(j->folder);
    free(j->name);
    free(j->machine);
    free(j->loras);
    lz_model_close(j->model);
    lz_close(j->ctx);
}

void job_abandon(job *j) {
#ifdef LZ_FREES_AT_EXIT
    job_close(j);
#else
    published_close(&j->stand_in);
#endif
}

char *job_part(const job *j, const char *part) {
    const char *given = strcmp(part, "text_encoder") == 0 ? j->parts.text_encoder
                        : strcmp(part, "vae") == 0        ? j->parts.vae
                                                          : NULL;
    if (given) return strdup(given);
    char *inside = path_of(j->folder, part);
    if (!inside || access(inside, F_OK) == 0) return inside;
    free(inside);
    return strdup(j->folder);
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

static int ask_prompt(job *j) {
    const arguments *a = j->args;
    const char *text;
    int code = prompt_of(a, &j->prompt, &text);
    if (code != DONE) return code;
    if (!text && is_looking(j)) return DONE; /* a plan does not depend on the prompt */
    if (!text) return fail(a, NOT_UNDERSTOOD, "a prompt is needed, as in lazuli \"a red fox\" -o fox.png");
    j->picture.prompt = text;
    j->picture.negative = a->negative;
    return check_text(a, "negative prompt", a->negative);
}

int job_change_prompt(job *j) {
    job_drop(j);
    free(j->prompt);
    j->prompt = NULL;
    int code = ask_prompt(j);
    if (code == DONE) code = use_loras(j);
    return code == DONE ? job_settle(j) : code;
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

int fail_file(const arguments *args, const char *name, const lz_error *err) {
    char instead[40];
    if (!is_elsewhere(args, name)) return fail_with(args, err);
    snprintf(instead, sizeof instead, "--%s FILE", name);
    return fail_elsewhere(args, name, instead, err);
}

/* Refuses combinations of options. */
static int check_sense(const arguments *a) {
    if (a->strength > 0 && !a->n_images)
        return fail(a, NOT_UNDERSTOOD, "--strength needs an image to start from; give one with --image");
    int code = check_repaint(a);
    if (code == DONE) code = check_background(a);
    if (code != DONE) return code;
    if (a->noise && (a->count > 1 || a->n_seeds > 1))
        return fail(a, NOT_UNDERSTOOD, "--noise makes one picture, so it cannot be used with --count or several seeds");
    return DONE;
}

static int check_input(const arguments *a, const char *name, const char *path) {
    lz_error err = {.status = LZ_NOT_FOUND};
    if (access(path, R_OK) == 0) return DONE;
    snprintf(err.text, sizeof err.text, "%s: cannot be opened: %s", path, strerror(errno));
    return fail_file(a, name, &err);
}

/* A folder of mflux has parts, and no index. */
static bool have_part(const char *folder) {
    char *inside = path_of(folder, "transformer");
    bool there = inside && access(inside, F_OK) == 0;
    free(inside);
    return there;
}

static int check_model(const arguments *a) {
    model_choice choice;
    lz_error err = {.status = LZ_NOT_FOUND};
    int code = choose_model(a, &choice);
    bool file = choice.folder && access(choice.folder, R_OK) == 0 && !is_folder(choice.folder);
    bool parts = file || choice.set || a->text_encoder || (choice.folder && have_part(choice.folder));
    if (code == DONE && choice.folder && !parts && !have_model(choice.folder)) {
        snprintf(err.text, sizeof err.text, "%s is not a model folder: %s", choice.folder,
                 access(choice.folder, F_OK) ? "there is no such file or folder"
                                             : "it has no readable model_index.json");
        code = fail_model(a, &choice, &err);
    }
    free(choice.owned);
    return code;
}

int job_check(const arguments *a, const json_t *coming) {
    int code = check_sense(a);
    if (code == DONE) code = check_text(a, "negative prompt", a->negative);
    if (code == DONE) code = check_model(a);
    if (code == DONE) code = check_loras(a);
    for (int i = 0; i < a->n_images && code == DONE; i++)
        if (!is_claimed(coming, a->images[i])) code = check_input(a, "image", a->images[i]);
    if (code == DONE && a->mask && !is_claimed(coming, a->mask)) code = check_input(a, "mask", a->mask);
    return code == DONE && a->noise ? check_input(a, "noise", a->noise) : code;
}

/* A blank image for planning: memory and work depend only on the size of an image. */
static int ask_blank(job *j) {
    j->blank = (lz_image){.width = j->facts.width, .height = j->facts.height};
    j->blank.pixels = calloc((size_t)j->blank.width, 3 * (size_t)j->blank.height);
    if (!j->blank.pixels) return fail(j->args, FAILED, "out of memory");
    j->picture.images = &j->blank;
    j->picture.n_images = 1;
    return DONE;
}

#define MOST_PIXELS ((int64_t)1 << 30) /* bytes, of all images: 22 megapixels for each of 16 */

static int ask_images(job *j) {
    const arguments *a = j->args;
    lz_error err = {.status = LZ_OK};
    int64_t bytes = 0;
    for (int i = 0; i < a->n_images; i++) {
        if (lz_image_read_alpha(j->ctx, a->images[i], &j->images[i], &err) != LZ_OK) return fail_file(a, "image", &err);
        bytes += j->images[i].channels * j->images[i].width * j->images[i].height;
        if (bytes > MOST_PIXELS)
            return fail(a, FAILED, "%s: the pixels of all images together take more than %s; use smaller images",
                        a->images[i], show_bytes(MOST_PIXELS).text);
    }
    j->picture.images = j->images;
    j->picture.n_images = a->n_images;
    j->picture.strength = a->strength;
    return is_looking(j) && !a->n_images && j->facts.least_images ? ask_blank(j) : DONE;
}

static int ask_noise(job *j) {
    const arguments *a = j->args;
    lz_error err = {.status = LZ_OK};
    if (!a->noise) return DONE;
    lz_weights *file = lz_weights_open(j->ctx, a->noise, &err);
    if (!file) return fail_file(a, "noise", &err);
    j->picture.noise = lz_weights_get(file, "noise");
    lz_status status = lz_check(j->picture.noise, &err);
    lz_weights_close(file);
    return status == LZ_OK ? DONE : fail_with(a, &err);
}

bool job_keeps_image(const job *j) {
    const arguments *a = j->args;
    return j->facts.keeps_image && a->n_images == 1 && !(a->strength > 0) && !a->noise && !a->width && !a->height;
}

/* The library rounds sides down to whole tokens; this tells the user. */
static void say_cut(job *j) {
    const arguments *a = j->args;
    const lz_image *first = a->n_images && !a->noise ? &j->images[0] : NULL;
    bool by_image = !a->width && !a->height && first, large = j->picture.width * j->picture.height > 3 << 19;
    int64_t width = by_image ? first->width : a->width, height = by_image ? first->height : a->height;
    bool shrunk = first && (first->width > j->picture.width || first->height > j->picture.height);
    if (repaints(a) && !j->said_cut) say_repainted(j);
    if (repaints(a) && !a->width && !a->height) j->said_cut = true;
    if (j->said_cut || j->facts.layers || (job_keeps_image(j) && !shrunk))
        return; /* in the last case it is cropped back to the image */
    j->said_cut = true;
    bool other = width != j->picture.width || height != j->picture.height;
    if (by_image && j->facts.n_sizes && other)
        note(j->args,
             "the picture is %lld x %lld, the size of the training that is nearest to the image; -W and -H set another",
             (long long)j->picture.width, (long long)j->picture.height);
    else if (by_image && first->width * first->height > 1024 * 1024)
        note(j->args, "the picture is %lld x %lld, %s in the shape of the image; -W and -H set another size",
             (long long)j->picture.width, (long long)j->picture.height, large ? "4 megapixels" : "a megapixel");
    else if ((width && width != j->picture.width) || (height && height != j->picture.height))
        note(j->args, "the size is cut to %lld x %lld, because sides are multiples of %lld",
             (long long)j->picture.width, (long long)j->picture.height, (long long)j->facts.token_pixels);
}

/* Tells the user once, since a session and a batch make many pictures with one model. */
static void say_useless(job *j) {
    const arguments *a = j->args;
    bool guidance = j->facts.guidance_built_in && a->guidance > 1, negative = j->picture.guidance <= 1 && a->negative;
    bool steps = a->steps && a->steps != j->picture.steps && !is_overruled(a, "steps");
    if (steps && !j->said_steps)
        note(a, "--steps has no effect; this model has noise levels of its own for %d steps", j->picture.steps);
    j->said_steps |= steps;
    if (guidance && !j->said_guidance) note(a, "--guidance has no effect; this model has guidance built in");
    if (negative && !j->said_negative) note(a, "--negative has no effect without guidance");
    bool cache = a->cache != 0 && !(j->picture.cache > 0);
    bool skips = j->picture.guidance <= 1 && (a->guidance_range[1] > 0 || a->guidance_every > 1);
    if (cache && !j->said_skips) note(a, "--cache has no effect with so few steps; all of them are computed");
    if (skips && !j->said_skips)
        note(a, "--guidance-%s has no effect without guidance", a->guidance_every > 1 ? "every" : "range");
    j->said_guidance |= guidance;
    j->said_negative |= negative;
    j->said_skips |= cache || skips;
}

int64_t memory_here(void) {
    int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    long long limit = 0;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file && fscanf(file, "%lld", &limit) == 1 && limit > 0 && limit < all) all = limit;
    if (file) fclose(file);
    struct rlimit own; /* of this process: ulimit -d */
    if (getrlimit(RLIMIT_DATA, &own) == 0 && own.rlim_cur < (rlim_t)all) all = (int64_t)own.rlim_cur;
    return all;
}

static int check_memory(const job *j, int64_t need) {
    int64_t have = memory_here();
    if (!is_host(j->ctx) || have <= 0 || need <= have || is_looking(j)) return DONE;
    return fail(j->args, FAILED,
                "a picture of %lld x %lld needs %s or more besides the weights, and this machine has %s; choose a "
                "smaller --width and --height",
                (long long)j->picture.width, (long long)j->picture.height, show_bytes(need).text,
                show_bytes(have).text);
}

/* Tells the user that weights are streamed, unless --offload stream requested it. */
static void say_streamed(const job *j) {
    if (!j->plan.streamed_bytes || j->args->offload == LZ_OFFLOAD_STREAM || is_looking(j)) return;
    note(j->args,
         "the model does not fit on the device, so %s of weights are sent there in every step, which takes time",
         show_bytes(j->plan.streamed_bytes).text);
}

/* Tells the user that settings from a file were made with another version of this model, once for each version. */
static void say_version(job *j) {
    enum { SHOWN = sizeof j->said_version - 1 };
    const char *was = j->args->model_version, *is = j->facts.version;
    if (!was || strcmp(was, is) == 0 || (j->told_version && strncmp(was, j->said_version, SHOWN) == 0)) return;
    snprintf(j->said_version, sizeof j->said_version, "%s", was);
    j->told_version = true;
    note(j->args, "the settings were made with %s%.*s of this model, and this is %s%s, so the picture will differ",
         *was ? "version " : "another version", SHOWN, was, *is ? "version " : "another one", is);
}

/* Notes what lz_job_remark says of this picture. A session makes many pictures with one model, so it notes remarks on
 * sizes, images and short prompts once, and remarks on words once for each prompt. */
static int say_remarks(job *j) {
    const arguments *a = j->args;
    lz_remarks now, *said = &j->said;
    lz_error err = {.status = LZ_OK};
    if (a->command->bit == PLAN) return DONE;
    say_version(j);
    if (lz_job_remark(j->work, &now, &err) != LZ_OK) return fail_with(a, &err);
    if (*now.size && !*said->size) note(a, "%s", now.size);
    if (*now.images && !*said->images)
        note(a, "%s%s", now.images, j->picture.n_images ? "" : "; give it with -i FILE, or in a session as $1");
    if (*now.prompt && !*said->prompt) note(a, "%s", now.prompt);
    if (*now.read_as && strcmp(now.read_as, said->read_as) != 0) note(a, "the prompt is read as \"%s\"", now.read_as);
    if (*now.words && strcmp(now.words, said->words) != 0)
        note(a, "%s; 'lazuli info%s%s --words' lists all that it knows", now.words, a->model ? " -m " : "",
             a->model ? a->model : "");
    if (!*now.size) memcpy(now.size, said->size, sizeof now.size);
    if (!*now.images) memcpy(now.images, said->images, sizeof now.images);
    if (!*now.prompt) memcpy(now.prompt, said->prompt, sizeof now.prompt);
    *said = now;
    return DONE;
}

int job_fill(job *j) {
    int code = ask_prompt(j);
    if (code == DONE) code = use_loras(j);
    if (code == DONE) code = check_sense(j->args);
    if (code == DONE) code = ask_images(j);
    if (code == DONE) code = ask_mask(j);
    if (code == DONE) code = ask_noise(j);
    return code == DONE ? job_settle(j) : code;
}

int job_settle(job *j) {
    const arguments *a = j->args;
    lz_error err = {.status = LZ_OK};
    j->picture.width = a->width;
    j->picture.height = a->height;
    j->picture.steps = is_overruled(a, "steps") ? 0 : (int)a->steps;
    j->picture.guidance = a->guidance;
    j->picture.sampler = is_overruled(a, "sampler") ? NULL : a->sampler;
    j->picture.schedule = is_overruled(a, "schedule") ? NULL : a->schedule;
    j->picture.shift = a->shift;
    j->picture.fast = a->fast;
    j->picture.cache = a->cache;
    j->picture.guidance_from = a->guidance_range[0];
    j->picture.guidance_to = a->guidance_range[1];
    j->picture.guidance_every = (int)a->guidance_every;
    j->picture.background = a->background;
    j->picture.layers = (int)a->layers;
    j->picture.resolution = (int)a->resolution;
    job_drop(j);
    if (j->picture.n_images && !(j->picture.strength > 0) && !j->facts.most_images && !repaints(a))
        return fail(a, FAILED,
                    "this model looks at no images; with a strength (--strength 0.6, in a session /strength 0.6) it "
                    "starts from one");
    j->asked = j->picture;
    j->work = lz_job_new(j->model, &j->picture, &err);
    if (!j->work) return fail_with(a, &err);
    const lz_picture_options *settled = lz_job_settled(j->work);
    j->picture.width = settled->width;
    j->picture.height = settled->height;
    j->picture.steps = settled->steps;
    j->picture.guidance = settled->guidance;
    j->picture.sampler = settled->sampler; /* constants of the library */
    j->picture.schedule = settled->schedule;
    j->picture.fast = settled->fast;
    j->picture.layers = settled->layers;
    say_fast(j);
    j->picture.cache = settled->cache;
    say_cut(j);
    say_useless(j);
    return DONE;
}

int job_plan(job *j) {
    lz_error err = {.status = LZ_OK};
    /* The bytes of the pixels alone, as floats in two layouts. A picture that is far too large is refused before it
     * is planned, because planning it would take long. */
    int code = check_memory(j, j->picture.width * j->picture.height * 3 * 4 * 2);
    if (code != DONE) return code;
    if (lz_job_plan(j->work, &j->plan, &err) != LZ_OK) return fail_with(j->args, &err);
    say_streamed(j);
    code = check_memory(j, j->plan.peak_bytes);
    return code == DONE ? say_remarks(j) : code;
}

int job_ask(job *j) {
    int code = job_fill(j);
    return code == DONE ? job_plan(j) : code;
}

const char *model_told(const job *j) { return j->published ? j->name : j->folder; }
