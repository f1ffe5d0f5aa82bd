/* generate.c: `lazuli generate`: makes one picture for each seed. While a picture is written, the next one is
 * generated. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"

/* ---- before anything is computed --------------------------------------------------------------------------------- */

static int check_sides(const job *j) {
    const char *output = j->args->output;
    bool named = output && !output_folder(j->args) && !is_stdout(output);
    int64_t limit = named ? picture_side_limit(output) : INT64_MAX, width, height;
    result_size(j, &width, &height);
    if (width <= limit && height <= limit) return DONE;
    return fail(j->args, FAILED, "%s: this format has at most %lld pixels a side; use .png", output, (long long)limit);
}

/* ---- one picture ------------------------------------------------------------------------------------------------- */

const char *sampler_title(const char *sampler) {
    static const char *const titles[][2] = {
        {"euler", "Euler"},     {"heun", "Heun"}, {"dpm++2m", "DPM++ 2M"}, {"unipc", "UniPC"},
        {"euler_a", "Euler a"}, {"lcm", "LCM"},   {"res_2s", "Res 2S"},    {"res_multistep", "Res Multistep"}};
    for (size_t i = 0; i < COUNT(titles); i++)
        if (strcmp(titles[i][0], sampler) == 0) return titles[i][1];
    return sampler;
}

/* The "parameters" text of AUTOMATIC1111's web UI, which many programs read: prompt, negative prompt, settings. */
static char *parameters_of(const facts *f, const job *j, const char *model) {
    const arguments *a = j->args;
    char *text = NULL;
    bool other = strcmp(j->picture.schedule, "auto") != 0;
    int n = asprintf(
        &text, "%s\n%s%s%sSteps: %d, Sampler: %s%s%s, CFG scale: %s%s%s, Size: %s, Model: %s%s%s, Version: %s",
        j->picture.prompt, a->negative ? "Negative prompt: " : "", a->negative ? a->negative : "",
        a->negative ? "\n" : "", j->picture.steps, sampler_title(j->picture.sampler), other ? ", Schedule type: " : "",
        other ? j->picture.schedule : "", f->guidance, a->noise ? "" : ", Seed: ", a->noise ? "" : f->seed, f->size,
        model, a->strength > 0 ? ", Denoising strength: " : "", a->strength > 0 ? f->strength : "", f->software);
    return n < 0 ? NULL : text;
}

static char *model_name(const job *j) {
    if (strchr(j->name, '/') || j->is_set) return strdup(j->name); /* OWNER/REPO, or of the settings file */
    char *full = realpath(j->folder, NULL), *name = strdup(base_name(full ? full : j->folder));
    free(full);
    return name;
}

/* Fills in the metadata; with --no-metadata there is none. false: out of memory. The caller frees it, after an error
 * too. */
static bool describe(facts *f, const job *j, const lz_picture *p, int64_t seed) {
    *f = (facts){.pairs = {NULL}};
    if (j->args->no_metadata) return true;
    snprintf(f->seed, sizeof f->seed, "%lld", (long long)seed);
    if (p->steps == j->picture.steps)
        snprintf(f->steps, sizeof f->steps, "%d", p->steps);
    else /* both: the steps that ran, and the option */
        snprintf(f->steps, sizeof f->steps, "%d of %d", p->steps, j->picture.steps);
    snprintf(f->guidance, sizeof f->guidance, "%g", p->guidance);
    snprintf(f->strength, sizeof f->strength, "%g", j->args->strength);
    snprintf(f->shift, sizeof f->shift, "%g", j->picture.shift);
    snprintf(f->passes, sizeof f->passes, "%d computed, %d forecast", p->passes - p->forecast, p->forecast);
    snprintf(f->size, sizeof f->size, "%lldx%lld", (long long)p->image.width, (long long)p->image.height);
    snprintf(f->software, sizeof f->software, "Lazuli %s", lz_version());
    json_t *settings = settings_of(j, seed, j->args->full_paths);
    f->settings = settings_text(settings);
    f->loras = join_loras(json_object_get(settings, "lora"));
    json_decref(settings);
    char *model = model_name(j);
    f->parameters = model ? parameters_of(f, j, model) : NULL;
    f->model = model;
    const char *noise = j->args->noise ? base_name(j->args->noise) : NULL,
               *all[][2] = {
                   {"parameters", f->parameters},
                   {"prompt", j->picture.prompt},
                   {"template", j->args->template},
                   {"negative", j->args->negative},
                   {"seed", noise ? NULL : f->seed},
                   {"noise", noise},
                   {"steps", f->steps},
                   {"strength", j->args->strength > 0 ? f->strength : NULL},
                   {"mask", j->args->mask ? base_name(j->args->mask) : NULL},
                   {"extend", j->args->extend},
                   {"guidance", f->guidance},
                   {"sampler", j->picture.sampler},
                   {"schedule", j->picture.schedule},
                   {"shift", j->picture.shift > 0 ? f->shift : NULL},
                   {"passes", p->forecast ? f->passes : NULL},
                   {"lora", f->loras},
                   {"size", f->size},
                   {"model", f->model},
                   {"software", f->software},
                   {SETTINGS_KEY, f->settings},
               };
    int n = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (!all[i][1]) continue;
        f->pairs[n++] = all[i][0];
        f->pairs[n++] = all[i][1];
    }
    f->pairs[n] = NULL;
    return f->settings && f->parameters;
}

static void forget_facts(facts *f) {
    char *all[] = {f->model, f->parameters, f->settings, f->loras};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

static void say_no_memory(lz_error *err) {
    err->status = LZ_OUT_OF_MEMORY;
    snprintf(err->text, sizeof err->text, "out of memory");
}

lz_status write_picture(const job *j, const lz_picture *p, int64_t seed, const char *path, lz_error *err) {
    facts f;
    if (describe(&f, j, p, seed))
        save_image(j->ctx, path, &p->image, f.pairs, err);
    else
        say_no_memory(err);
    forget_facts(&f);
    return err->status;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static json_t *picture_json(const job *j, const char *path, int64_t seed, const lz_picture *p, double write_seconds) {
    json_t *steps = json_array();
    for (int i = 0; i < j->plan.passes && i < (int)COUNT(p->step_seconds); i++)
        json_array_append_new(steps, json_milliseconds(p->step_seconds[i]));
    double all = p->text_seconds + p->encode_seconds + p->denoise_seconds + p->decode_seconds + write_seconds;
    return json_pack("{s:o, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o}, s:o, s:I, s:I, s:o}", "file", json_text(path),
                     "seed", (json_int_t)seed, "milliseconds", "text", json_milliseconds(p->text_seconds), "encode",
                     json_milliseconds(p->encode_seconds), "denoise", json_milliseconds(p->denoise_seconds), "decode",
                     json_milliseconds(p->decode_seconds), "write", json_milliseconds(write_seconds), "total",
                     json_milliseconds(all), "step_milliseconds", steps, "tile", (json_int_t)p->tile, "streamed_bytes",
                     (json_int_t)p->streamed_bytes, "settings", settings_of(j, seed, true));
}

static int tell(const making *m, const char *path, int64_t seed, const lz_picture *p, double seconds) {
    const arguments *a = m->job.args;
    int code = is_stdout(path) ? flush_output(a) : DONE;
    if (code != DONE) return code;
    if (a->verbose && !a->quiet) {
        fprintf(stderr, "open %s, ", show_seconds(m->open_seconds).text);
        fprintf(stderr, "text %s, ", show_seconds(p->text_seconds).text);
        if (a->n_images) fprintf(stderr, "encode %s, ", show_seconds(p->encode_seconds).text);
        fprintf(stderr, "denoise %s, ", show_seconds(p->denoise_seconds).text);
        fprintf(stderr, "decode %s; ", show_seconds(p->decode_seconds).text);
        if (p->streamed_bytes) fprintf(stderr, "streamed %s a step; ", show_bytes(p->streamed_bytes).text);
        fprintf(stderr, "at most %s\n", show_bytes(lz_memory_info(m->job.ctx).peak).text);
    }
    if (a->quiet || a->json) return DONE;
    FILE *to = result_stream(a);
    say(to, "%s  %lld x %lld, seed %lld, %s, ", path, (long long)p->image.width, (long long)p->image.height,
        (long long)seed, show_steps(p->steps, m->job.picture.steps).text);
    fputs(show_seconds(seconds).text, to);
    if (m->prompts[0]) say(to, ", \"%s\"", m->job.picture.prompt);
    fputc('\n', to);
    return flush_output(a);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The writing thread: prints nothing, and leaves its result in the struct. */
static void *write_files(void *arg) {
    writing *w = arg;
    const lz_picture *p = &w->picture;
    double begun = seconds_now();
    facts f;
    if (!describe(&f, w->job, p, w->seed)) say_no_memory(&w->err);
    const lz_named_array arrays[] = {
        {"text", p->text}, {"noise", p->noise}, {"latents", p->latents}, {"image", p->pixels}};
    if (!w->err.status && w->dump)
        save_tensors(w->job->ctx, w->dump, arrays, COUNT(arrays), *f.pairs ? f.pairs : NULL, &w->err);
    if (!w->err.status) (w->reserved ? save_reserved : put_picture)(w->job->ctx, w->path, &p->image, f.pairs, &w->err);
    if (w->err.status && w->reserved) unlink(w->path);
    forget_facts(&f);
    w->write_seconds = seconds_now() - begun;
    atomic_store(&w->done, true);
    return NULL;
}

/* Waits for the picture that is being written, if there is one, and reports the result. */
static int finish_writing(making *m) {
    writing *w = &m->writing;
    if (!w->begun) return m->code;
    if (w->apart) pthread_join(w->thread, NULL);
    if (w->err.status)
        m->code = fail_with(m->job.args, &w->err);
    else {
        m->made++;
        json_array_append_new(m->pictures, picture_json(w->job, w->path, w->seed, &w->picture, w->write_seconds));
        m->code = tell(m, w->path, w->seed, &w->picture, w->paint_seconds + w->write_seconds);
        say_on_white(m->job.args, w->path, &w->picture.image);
        see_result(&m->see, &w->picture.image);
    }
    lz_picture_free(&w->picture);
    free(w->path);
    free(w->dump);
    *w = (writing){.begun = false};
    return m->code;
}

/* Releases arrays that --dump does not need, so that the next picture can use their device memory. */
static void drop_arrays(lz_picture *p) {
    lz_array **all[] = {&p->text, &p->noise, &p->latents, &p->pixels};
    for (size_t i = 0; i < COUNT(all); i++) {
        lz_release(*all[i]);
        *all[i] = NULL;
    }
}

/* Starts writing a picture, and takes ownership of it. The last picture is written on this thread. */
static int start_writing(making *m, int i, const lz_picture *p, double paint_seconds) {
    writing *w = &m->writing;
    *w = (writing){.job = &m->job, .picture = *p, .seed = m->seeds[i], .paint_seconds = paint_seconds, .begun = true};
    w->reserved = !m->paths[i];
    w->path = w->reserved ? reserve_path(m->claimed, output_folder(m->job.args), w->seed, &w->err) : m->paths[i];
    w->dump = m->dumps[i];
    m->paths[i] = m->dumps[i] = NULL;
    if (!w->path) return finish_writing(m);
    if (!w->dump) drop_arrays(&w->picture);
    w->apart = i + 1 < m->n && pthread_create(&w->thread, NULL, write_files, w) == 0;
    if (w->apart) return DONE;
    write_files(w);
    return finish_writing(m);
}

/* ---- painting ---------------------------------------------------------------------------------------------------- */

/* Reports the previous picture as soon as it is written; if that failed, stops the current one. */
static bool watch_picture(void *user, const lz_progress *now) {
    making *m = user;
    if (m->writing.begun && atomic_load(&m->writing.done)) {
        progress_clear(&m->line);
        see_clear(&m->see);
        finish_writing(m);
    }
    if (!see_watch(&m->see, now)) m->code = m->see.code;
    return m->code == DONE && progress_watch(&m->line, now);
}

/* Checks the free disk space: for uncompressed pixels and, with --dump, for four-byte arrays. */
static int check_disk(const making *m, int i) {
    const arguments *a = m->job.args;
    int64_t width, height;
    result_size(&m->job, &width, &height);
    int64_t bytes = (m->job.facts.transparent ? 4 : 3) * width * height;
    const lz_image *all = &m->see.sheet.image;
    char *unnamed = m->paths[i] ? NULL : file_in(output_folder(a), "lazuli.png");
    const char *path = m->paths[i] ? m->paths[i] : unnamed;
    int code = !path || is_stdout(path) ? DONE : check_free(a, path, bytes);
    free(unnamed);
    if (code == DONE && all->pixels) code = check_free(a, a->sheet, 3 * all->width * all->height);
    return code == DONE && m->dumps[i] ? check_free(a, m->dumps[i], 4 * bytes) : code;
}

static int make_one(making *m, int i) {
    job *j = &m->job;
    const arguments *a = j->args;
    int code = check_disk(m, i);
    if (code != DONE) return code;
    lz_error err = {.status = LZ_OK};
    lz_picture p;
    double begun = seconds_now();
    progress_begin(&m->line, j, i, m->n, m->overall);
    const lz_picture_options asked = LZ_PICTURE_OPTIONS(.seed = (uint64_t)m->seeds[i], .watch = watch_picture,
                                                        .user = m, .preview = see_kind(&m->see),
                                                        .preview_pause = see_pause(&m->see));
    m->see.seed = m->seeds[i];
    lz_status status = stop_wanted() ? LZ_CANCELLED : lz_job_renew(j->work, &asked, &err);
    if (status == LZ_OK) status = lz_job_run(j->work, &p, &err);
    double painted = seconds_now();
    progress_clear(&m->line);
    see_leave(&m->see);
    if (finish_writing(m) != DONE) {
        if (status == LZ_OK) lz_picture_free(&p);
        return m->code;
    }
    if (status == LZ_CANCELLED) return fail(a, STOPPED, "stopped");
    if (status != LZ_OK) return fail_with(a, &err);
    if (p.prompt_cut) note(a, "the prompt is longer than the model can read, so its end was ignored");
    if (p.tile)
        note(a, "memory was short, so the picture was decoded in tiles of %lld pixels, and differs slightly",
             (long long)p.tile);
    if (!stop_wanted()) return start_writing(m, i, &p, painted - begun);
    lz_picture_free(&p);
    return fail(a, STOPPED, "stopped");
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void tell_before(const job *j) {
    const arguments *a = j->args;
    if (!a->verbose || a->quiet) return;
    say(stderr, "device    %s\n", lz_device_name(j->ctx));
    say(stderr, "model     %s: %s%s\n", j->folder, j->facts.family, j->facts.distilled ? ", distilled" : "");
    fprintf(stderr, "picture   %lld x %lld, %s, guidance %g\n\n", (long long)j->picture.width,
            (long long)j->picture.height, show_plan_steps(j).text, j->picture.guidance);
    print_plan(stderr, j);
    fputc('\n', stderr);
}

static json_t *run_json(const making *m) {
    const job *j = &m->job;
    const arguments *a = j->args;
    json_t *seeds = json_array(), *images = json_array();
    for (int i = 0; i < m->n; i++) json_array_append_new(seeds, json_integer(m->seeds[i]));
    for (int i = 0; i < a->n_images; i++) json_array_append_new(images, json_text(a->images[i]));
    return json_pack(
        "{s:o, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s, s:o, s:f, s:o, s:o, s:o, s:o, "
        "s:o, s:I, s:O}",
        "model", json_text(j->folder), "family", j->facts.family, "device", lz_device_name(j->ctx), "prompt",
        json_text(m->prompts[0] ? a->template : j->picture.prompt), "negative", json_text(a->negative), "width",
        (json_int_t)j->picture.width, "height", (json_int_t)j->picture.height, "steps", (json_int_t)j->plan.steps,
        "schedule_steps", (json_int_t)j->picture.steps, "passes", (json_int_t)j->plan.passes, "forecast",
        (json_int_t)j->plan.forecast, "evaluations", (json_int_t)j->plan.evaluations, "guidance", j->picture.guidance,
        "sampler", j->picture.sampler, "schedule", j->picture.schedule, "shift",
        j->picture.shift > 0 ? json_real(j->picture.shift) : json_null(), "cache", j->picture.cache, "images", images,
        "strength", a->strength > 0 ? json_real(a->strength) : json_null(), "noise", json_text(a->noise), "seeds",
        seeds, "open_milliseconds", json_milliseconds(m->open_seconds), "peak_bytes",
        (json_int_t)lz_memory_info(j->ctx).peak, "pictures", m->pictures);
}

static int tell_profile(const job *j) {
    lz_error err = {.status = LZ_OK};
    lz_profile_stop(j->ctx);
    char *table = lz_profile_table(j->ctx, &err);
    if (!table) return fail_with(j->args, &err);
    fputs(table, stderr);
    lz_free_text(j->ctx, table);
    return DONE;
}

/* Does the picture already exist, complete and with the same settings, and its dump too, if there should be one? Then
 * it is added to the sheet. */
static bool is_finished(making *m, int i) {
    lz_error err;
    lz_image image;
    if (m->dumps[i] && access(m->dumps[i], F_OK) != 0) return false;
    json_t *settings = settings_of(&m->job, m->seeds[i], m->job.args->full_paths);
    char *wanted = settings_text(settings), *found = lz_image_read_text(m->job.ctx, m->paths[i], SETTINGS_KEY, &err);
    bool same = wanted && found && strcmp(wanted, found) == 0;
    lz_free_text(m->job.ctx, found);
    free(wanted);
    json_decref(settings);
    if (!same || lz_image_read(m->job.ctx, m->paths[i], &image, &err) != LZ_OK) return false;
    int64_t width, height;
    result_size(&m->job, &width, &height);
    bool whole = job_keeps_image(&m->job) || (image.width == width && image.height == height);
    if (whole && finish_writing(m) == DONE) see_add(&m->see, &image);
    lz_image_free(m->job.ctx, &image);
    return whole;
}

/* Gives the job the prompt of a picture, which a template may have chosen. The picture before it is written first,
 * because its text is that of the job. */
static int change_prompt(making *m, int i, bool *planned) {
    if (!m->prompts[i] || strcmp(m->prompts[i], m->args.prompt) == 0) return DONE;
    int code = finish_writing(m);
    m->args.prompt = m->prompts[i];
    *planned = false;
    return code == DONE ? job_change_prompt(&m->job) : code;
}

/* Makes the pictures. The plan is made once for a prompt, and only if at least one picture does not exist yet. */
static int make_missing(making *m) {
    job *j = &m->job;
    bool planned = false, told = false;
    int code = DONE;
    for (int i = 0; i < m->n && code == DONE; i++) {
        code = change_prompt(m, i, &planned);
        if (code != DONE) break;
        if (m->naming && is_finished(m, i)) {
            m->there++;
            code = m->code;
            continue;
        }
        if (m->naming) remove_parts(m->paths[i]);
        if (m->naming && m->dumps[i]) remove_parts(m->dumps[i]);
        if (!planned) code = job_plan(j);
        if (!told && code == DONE) tell_before(j);
        planned = told = true;
        if (code == DONE) code = make_one(m, i);
    }
    int written = finish_writing(m); /* the last picture made, if later ones existed already */
    return code == DONE ? written : code;
}

/* A sheet contains the settings of its pictures, with all seeds; --settings can read them. --from does not: a picture
 * of somebody else must not determine how many files are written. */
static int finish_sheet(making *m) {
    const job *j = &m->job;
    if (!j->args->sheet) return DONE;
    json_t *settings = settings_of(j, m->seeds[0], j->args->full_paths), *seeds = json_array();
    for (int i = 0; i < m->n; i++) json_array_append_new(seeds, json_integer(m->seeds[i]));
    if (json_object_get(settings, "seed")) json_object_set(settings, "seed", seeds);
    const char *prompt = m->prompts[0] ? m->args.template : j->picture.prompt;
    if (m->prompts[0]) { /* the choices are made again for each seed */
        json_object_set_new(settings, "prompt", json_text(prompt));
        json_object_del(settings, "template");
    }
    char *text = settings_text(settings), software[48];
    snprintf(software, sizeof software, "Lazuli %s", lz_version());
    const char *pairs[] = {"prompt", prompt, "software", software, SHEET_KEY, text, NULL};
    int code = text ? see_finish(&m->see, j->args->no_metadata ? NULL : pairs) : fail(j->args, FAILED, "out of memory");
    free(text);
    json_decref(seeds);
    json_decref(settings);
    return code;
}

int make_pictures(making *m, const arguments *given) {
    job *j = &m->job;
    const arguments *args = &m->args;
    bool profile = given->profile || given->verbose > 1;
    m->code = DONE;
    if (!m->pictures) m->pictures = json_array();
    double begun = seconds_now();
    /* A wrong model is reported before the user types the prompt. */
    int code = reads_prompt(given) ? job_reopen(j, given) : DONE;
    double opened = seconds_now() - begun;
    if (code == DONE) code = check_pictures(m, given);
    if (code != DONE) return code;
    begun = seconds_now() - opened;
    code = job_reopen(j, args);
    if (code == DONE) code = job_fill(j);
    if (code == DONE) code = check_sides(j);
    if (code == DONE) code = see_begin(&m->see, j, m->n);
    if (code != DONE) return code;
    m->open_seconds = seconds_now() - begun;
    lz_reset_peak(j->ctx);
    if (profile) lz_profile_start(j->ctx);
    code = make_missing(m);
    if (code == DONE) code = finish_sheet(m);
    if (profile && code == DONE) code = tell_profile(j);
    return code;
}

void making_end(making *m) {
    for (int i = 0; i < MAX_PICTURES; i++) {
        free(m->paths[i]);
        free(m->dumps[i]);
    }
    see_free(&m->see);
    job_close(&m->job);
    forget_prompts(m);
    json_decref(m->pictures);
    json_decref(m->claimed);
    json_decref(m->inputs);
}

int generate_command(const arguments *args) {
    making m = {.pictures = NULL};
    stop_on_signals();
    int code = make_pictures(&m, args);
    if (args->json && code == DONE) code = print_json(args, run_json(&m));
    making_end(&m);
    return code;
}
