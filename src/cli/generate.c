/* generate.c: `lazuli generate`: makes one picture for each seed. While it is written, the next one is made. */
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

/* ---- painting ---------------------------------------------------------------------------------------------------- */

/* Reports the previous picture as soon as it is written; if that failed, stops the current one. */
static bool watch_picture(void *user, const lz_progress *now) {
    making *m = user;
    if (m->writer.n && atomic_load(&m->writer.done)) {
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
    int64_t bytes = (m->job.facts.transparent ? 4 : 3) * width * height * (m->job.picture.layers + 1);
    const lz_image *all = &m->see.sheet.image;
    char *unnamed = m->paths[i] ? NULL : file_in(output_folder(a), "lazuli.png");
    const char *path = m->paths[i] ? m->paths[i] : unnamed;
    int code = !path || is_stdout(path) ? DONE : check_free(a, path, bytes);
    free(unnamed);
    if (code == DONE && all->pixels) code = check_free(a, a->sheet, 3 * all->width * all->height);
    return code == DONE && m->dumps[i] ? check_free(a, m->dumps[i], 4 * bytes) : code;
}

/* The watch of every picture but the first of those that are made together. The first one has told about the progress;
 * this one only stops when the first stops. */
static bool watch_others(void *user, const lz_progress *now) {
    const making *m = user;
    (void)now;
    return m->code == DONE && !stop_wanted();
}

/* Jobs of n pictures from index i on. The first one is that which was planned; the caller frees the others. */
static lz_status prepare_jobs(making *m, int i, int n, lz_job **jobs, lz_error *err) {
    const job *j = &m->job;
    lz_picture_options asked = LZ_PICTURE_OPTIONS(.seed = (uint64_t)m->seeds[i], .watch = watch_picture, .user = m,
                                                  .preview = see_kind(&m->see), .preview_pause = see_pause(&m->see));
    jobs[0] = j->work;
    lz_status status = lz_job_renew(j->work, &asked, err);
    for (int k = 1; k < n && !status; k++) {
        asked = j->asked;
        asked.seed = (uint64_t)m->seeds[i + k];
        asked.watch = watch_others;
        asked.user = m;
        if (!(jobs[k] = lz_job_new(j->model, &asked, err))) status = err->status;
    }
    return status;
}

/* Notes about a picture that was made. */
static void note_picture(const arguments *a, const lz_picture *p) {
    if (p->prompt_cut) note(a, "the prompt is longer than the model can read, so its end was ignored");
    if (p->tile)
        note(a, "memory was short, so the picture was decoded in tiles of %lld pixels, and differs slightly",
             (long long)p->tile);
}

/* Hands n pictures from index i on to the writer, up to the first that could not be made. */
static int hand_over(making *m, int i, int n, lz_picture *p, const lz_error *errors, double seconds) {
    const arguments *a = m->job.args;
    const lz_error *err = NULL;
    bool stopped = stop_wanted();
    for (int k = 0; k < n; k++) {
        if (!err && errors[k].status) err = &errors[k];
        if (err || stopped) {
            lz_picture_free(&p[k]);
            continue;
        }
        if (!k) note_picture(a, &p[k]);
        add_writing(m, i + k, &p[k], n, seconds / n);
    }
    if (stopped || (err && err->status == LZ_CANCELLED)) return fail(a, STOPPED, "stopped");
    int code = m->writer.n ? start_writing(m, err || i + n >= m->n) : DONE;
    return code == DONE && err ? fail_with(a, err) : code;
}

/* Makes n pictures from index i on, of one prompt, together if there are several. */
static int make_some(making *m, int i, int n) {
    lz_error errors[LZ_MAX_TOGETHER] = {{.status = LZ_OK}};
    lz_picture p[LZ_MAX_TOGETHER] = {{.ctx = NULL}};
    lz_job *jobs[LZ_MAX_TOGETHER] = {NULL};
    int code = DONE;
    for (int k = 0; k < n && code == DONE; k++) code = check_disk(m, i + k);
    if (code != DONE) return code;
    double begun = seconds_now();
    progress_begin(&m->line, &m->job, i, m->n, m->overall);
    m->see.seed = m->seeds[i];
    if (stop_wanted())
        errors[0].status = LZ_CANCELLED;
    else if (!prepare_jobs(m, i, n, jobs, &errors[0]))
        lz_jobs_run(jobs, n, p, errors);
    double seconds = seconds_now() - begun;
    for (int k = 1; k < n; k++) lz_job_free(jobs[k]);
    progress_clear(&m->line);
    see_leave(&m->see);
    if (finish_writing(m) == DONE) return hand_over(m, i, n, p, errors, seconds);
    for (int k = 0; k < n; k++) lz_picture_free(&p[k]);
    return m->code;
}

/* Can picture k be made together with picture i? Of a batch, pictures that exist are looked at first. */
static bool joins(const making *m, int i, int k) {
    bool same = !m->prompts[i] || !strcmp(m->prompts[i], m->prompts[k]);
    return same && (!m->naming || access(m->paths[k], F_OK) != 0);
}

/* The number of pictures, from index i on, that are made together: as many as --batch says. Previews show one at a
 * time. */
static int count_together(making *m, int i) {
    const arguments *a = m->job.args;
    if (see_kind(&m->see) != LZ_PREVIEW_NONE || a->noise || i + 1 >= m->n) return 1;
    int n = 1, most = pictures_together(&m->job, &m->job.plan, false);
    while (n < most && i + n < m->n && joins(m, i, i + n)) n++;
    return n;
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

/* Gives the job the prompt of a picture, which a template may have chosen. */
static int change_prompt(making *m, int i, bool *planned) {
    if (!m->prompts[i] || strcmp(m->prompts[i], m->args.prompt) == 0) return DONE;
    m->args.prompt = m->prompts[i];
    *planned = false;
    return job_change_prompt(&m->job);
}

/* Makes the pictures. The plan is made once for a prompt, and only if at least one picture does not exist yet. */
static int make_missing(making *m) {
    job *j = &m->job;
    bool planned = false, told = false;
    int code = DONE;
    for (int i = 0, n = 1; i < m->n && code == DONE; i += n) {
        n = 1;
        code = change_prompt(m, i, &planned);
        if (code != DONE) break;
        if (m->naming && is_finished(m, i)) {
            m->there++;
            code = m->code;
            continue;
        }
        if (!planned) lz_job_expect(j->work);
        if (!planned) code = job_plan(j);
        if (!told && code == DONE) tell_before(j);
        planned = told = true;
        if (code != DONE) break;
        n = count_together(m, i);
        for (int k = i; k < i + n && m->naming; k++) {
            remove_parts(m->paths[k]);
            if (m->dumps[k]) remove_parts(m->dumps[k]);
        }
        code = make_some(m, i, n);
    }
    const arguments *a = j->args;
    if (m->leaves && code == DONE && !a->sheet && !a->profile && a->verbose < 2) return DONE;
    int written = finish_writing(m); /* the last pictures made, if later ones existed already */
    return code == DONE ? written : code;
}

int finish_pictures(making *m) {
    m->code = DONE;
    return finish_writing(m);
}

/* The pictures of the line before are written first, if this line may read their files, or if another model is opened:
 * the context is closed then. */
static int finish_before(making *m, const arguments *a) {
    bool reads = a->n_images || a->mask || a->noise || a->n_loras, stays = false;
    int code = m->writer.n ? job_stays(&m->job, a, &stays) : DONE;
    return code == DONE && (reads || !stays) ? finish_writing(m) : code;
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
    m->args.line = given->line; /* pictures of other lines are those of earlier ones */
    int code = finish_before(m, given);
    if (code != DONE) return code;
    double begun = seconds_now();
    /* A wrong model is reported before the user types the prompt. */
    code = reads_prompt(given) ? job_reopen(j, given) : DONE;
    double opened = seconds_now() - begun;
    if (code == DONE) code = check_pictures(m, given);
    if (code != DONE) return code;
    begun = seconds_now() - opened;
    code = job_reopen(j, args);
    if (code == DONE) code = job_fill(j);
    if (code == DONE) code = check_sides(j);
    if (code == DONE) code = check_layers(m);
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
    finish_pictures(m);
    for (int i = 0; i < MAX_PICTURES; i++) {
        free(m->paths[i]);
        free(m->dumps[i]);
    }
    see_free(&m->see);
    job_abandon(&m->job);
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
