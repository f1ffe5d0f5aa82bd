/* writing.c: writes pictures while the next ones are made, and tells about them when they are written. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* The time of writing is added by add_write_time. */
static json_t *picture_json(const job *j, const char *path, int64_t seed, const lz_picture *p, int together) {
    json_t *steps = json_array();
    for (int i = 0; i < j->plan.passes && i < (int)COUNT(p->step_seconds); i++)
        json_array_append_new(steps, json_milliseconds(p->step_seconds[i]));
    json_t *picture = json_pack(
        "{s:o, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o}, s:o, s:i, s:I, s:I, s:o}", "file", json_text(path), "seed",
        (json_int_t)seed, "milliseconds", "text", json_milliseconds(p->text_seconds), "encode",
        json_milliseconds(p->encode_seconds), "denoise", json_milliseconds(p->denoise_seconds), "decode",
        json_milliseconds(p->decode_seconds), "write", json_null(), "total", json_null(), "step_milliseconds", steps,
        "together", together, "tile", (json_int_t)p->tile, "streamed_bytes", (json_int_t)p->streamed_bytes, "settings",
        settings_of(j, seed, true));
    if (p->n_layers) json_object_set_new(picture, "layers", layers_json(path, p));
    return picture;
}

static void add_write_time(json_t *picture, const lz_picture *p, double seconds) {
    json_t *times = json_object_get(picture, "milliseconds");
    double all = p->text_seconds + p->encode_seconds + p->denoise_seconds + p->decode_seconds + seconds;
    json_object_set_new(times, "write", json_milliseconds(seconds));
    json_object_set_new(times, "total", json_milliseconds(all));
}

static int tell(const arguments *a, const writing *w) {
    const lz_picture *p = &w->picture;
    int code = is_stdout(w->path) ? flush_output(a) : DONE;
    if (code != DONE) return code;
    if (a->verbose && !a->quiet) {
        fprintf(stderr, "open %s, ", show_seconds(w->open_seconds).text);
        fprintf(stderr, "text %s, ", show_seconds(p->text_seconds).text);
        if (w->n_images) fprintf(stderr, "encode %s, ", show_seconds(p->encode_seconds).text);
        fprintf(stderr, "denoise %s, ", show_seconds(p->denoise_seconds).text);
        fprintf(stderr, "decode %s; ", show_seconds(p->decode_seconds).text);
        if (p->streamed_bytes) fprintf(stderr, "streamed %s a step; ", show_bytes(p->streamed_bytes).text);
        fprintf(stderr, "at most %s\n", show_bytes(lz_memory_info(w->ctx).peak).text);
    }
    if (a->quiet || a->json) return DONE;
    FILE *to = is_stdout(w->path) ? stderr : stdout;
    say(to, "%s  %lld x %lld, seed %lld, %s, ", w->path, (long long)p->image.width, (long long)p->image.height,
        (long long)w->seed, show_steps(p->steps, w->schedule_steps).text);
    fputs(show_seconds(w->paint_seconds + w->write_seconds).text, to);
    if (w->prompt) say(to, ", \"%s\"", w->prompt);
    fputc('\n', to);
    tell_layers(to, w->path, p);
    return flush_output(a);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_one(writing *w) {
    const lz_picture *p = &w->picture;
    double begun = seconds_now();
    const lz_named_array arrays[] = {
        {"text", p->text}, {"noise", p->noise}, {"latents", p->latents}, {"image", p->pixels}};
    if (!w->err.status && w->dump)
        save_tensors(w->ctx, w->dump, arrays, COUNT(arrays), *w->facts.pairs ? w->facts.pairs : NULL, &w->err);
    if (!w->err.status) save_picture(w->ctx, w->path, p, w->facts.pairs, w->reserved, &w->err);
    w->write_seconds = seconds_now() - begun;
}

/* The writing thread: prints nothing, and leaves its results in the structs. */
static void *write_files(void *arg) {
    writer *w = arg;
    bool failed = false;
    for (int i = 0; i < w->n; i++) {
        writing *one = &w->all[i];
        if (!failed) write_one(one);
        failed = failed || one->err.status;
        if (!failed || !one->reserved || !one->path) continue;
        unlink(one->path);
        remove_layers(one->path, one->picture.n_layers);
    }
    atomic_store(&w->done, true);
    return NULL;
}

/* If the picture of an earlier line of a batch was not written, the current line goes on. The texts of m->args may be
 * those of an earlier line, which are freed: only arguments that no line changes are used. */
static int report_written(making *m, writing *w) {
    const arguments *a = &m->args;
    arguments of_line = {.command = a->command, .json = a->json, .quiet = a->quiet, .verbose = a->verbose};
    of_line.said = a->said;
    of_line.line = w->line;
    bool late = w->line != a->line;
    if (w->err.status) {
        int code = fail_with(&of_line, &w->err);
        m->late += late;
        return late ? DONE : code;
    }
    m->made++;
    add_write_time(w->json, &w->picture, w->write_seconds);
    if (m->naming) json_object_set_new(w->json, "line", json_integer(w->line));
    json_array_append(m->pictures, w->json);
    int code = tell(&of_line, w);
    say_on_white(&of_line, w->path, &w->picture.image);
    if (!late) see_result(&m->see, &w->picture.image); /* the sheet is that of the current line */
    return code;
}

int finish_writing(making *m) {
    writer *w = &m->writer;
    bool failed = false;
    if (w->n && w->apart) pthread_join(w->thread, NULL);
    for (int i = 0; i < w->n; i++) {
        writing *one = &w->all[i];
        int code = failed ? DONE : report_written(m, one);
        if (m->code == DONE) m->code = code;
        failed = failed || one->err.status || ferror(stdout);
        json_decref(one->json);
        forget_facts(&one->facts);
        lz_picture_free(&one->picture);
        free(one->path);
        free(one->dump);
        free(one->prompt);
    }
    w->n = 0;
    return m->code;
}

static void say_no_memory(lz_error *err) {
    err->status = LZ_OUT_OF_MEMORY;
    snprintf(err->text, sizeof err->text, "out of memory");
}

/* Releases arrays that --dump does not need, so that the next picture can use their device memory. */
static void drop_arrays(lz_picture *p) {
    lz_array **all[] = {&p->text, &p->noise, &p->latents, &p->pixels};
    for (size_t i = 0; i < COUNT(all); i++) {
        lz_release(*all[i]);
        *all[i] = NULL;
    }
}

void add_writing(making *m, int i, const lz_picture *p, int together, double paint_seconds) {
    const job *j = &m->job;
    writing *w = &m->writer.all[m->writer.n++];
    *w = (writing){.ctx = j->ctx,
                   .picture = *p,
                   .seed = m->seeds[i],
                   .line = m->args.line,
                   .schedule_steps = j->picture.steps,
                   .n_images = j->args->n_images,
                   .open_seconds = m->open_seconds,
                   .paint_seconds = paint_seconds};
    w->reserved = !m->paths[i];
    w->path = w->reserved ? reserve_path(m->claimed, output_folder(j->args), w->seed, p->n_layers, &w->err)
                          : m->paths[i];
    w->dump = m->dumps[i];
    m->paths[i] = m->dumps[i] = NULL;
    m->painted++;
    if (w->path) w->json = picture_json(j, w->path, w->seed, p, together);
    bool good = describe_picture(&w->facts, j, p, w->seed);
    if (m->prompts[0]) good = (w->prompt = strdup(j->picture.prompt)) && good;
    if (!good && !w->err.status) say_no_memory(&w->err);
    if (!w->dump) drop_arrays(&w->picture);
}

int start_writing(making *m, bool last) {
    writer *w = &m->writer;
    atomic_store(&w->done, false);
    w->apart = (!last || m->leaves) && pthread_create(&w->thread, NULL, write_files, w) == 0;
    if (w->apart) return DONE;
    write_files(w);
    return finish_writing(m);
}
