/* pictures.c: the seeds, the prompts and the names of the pictures of one set of arguments, before anything is opened. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "generate.h"

/* ---- seeds and prompts ------------------------------------------------------------------------------------------- */

int64_t random_seed(void) {
    uint32_t bits; /* 32 bits are short enough to type */
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) bits = (uint32_t)time(NULL);
    return bits;
}

void forget_prompts(making *m) {
    for (int i = 0; i < MAX_PICTURES; i++) {
        free(m->prompts[i]);
        m->prompts[i] = NULL;
    }
    free(m->text);
    m->text = NULL;
    m->n_combinations = 0;
}

/* Takes the prompt that was given, and all prompts of --combinations. */
static int take_prompt(making *m) {
    arguments *a = &m->args;
    forget_prompts(m);
    int code = prompt_of(a, &m->text, &a->prompt);
    if (code != DONE || !a->prompt) return code;
    a->n_words = 0;
    if (m->text) a->elsewhere[find_option("prompt", 6) - options] = true; /* '-' is not read from stdin again */
    if (!a->combinations) return DONE;
    code = resolve_combinations(a, a->prompt, m->prompts, &m->n_combinations);
    if (code == DONE && !m->n_combinations) note(a, "--combinations has no effect; the prompt has no choices");
    return code;
}

/* Makes the choices of a template for each picture. */
static int choose_prompts(making *m) {
    arguments *a = &m->args;
    int code = DONE;
    for (int i = 0; i < m->n && code == DONE && a->prompt && !m->n_combinations; i++) {
        code = resolve_prompt(a, a->prompt, m->seeds[i], &m->prompts[i]);
        if (!m->prompts[i]) break;
    }
    a->template = template_of(a, a->prompt);
    if (m->prompts[0]) a->prompt = m->prompts[0];
    return code;
}

static int choose_seeds(making *m, const arguments *args) {
    int64_t count = m->n_combinations ? m->n_combinations : args->count;
    if (count && args->n_seeds > 1)
        return fail(args, NOT_UNDERSTOOD, "--%s takes one seed to start from, but %d were given",
                    m->n_combinations ? "combinations" : "count", args->n_seeds);
    if (m->n_combinations && args->count)
        return fail(args, NOT_UNDERSTOOD, "--combinations decides the number of pictures, so --count cannot be used");
    m->n = count ? (int)count : args->n_seeds ? args->n_seeds : 1;
    int64_t first = args->n_seeds ? args->seeds[0] : args->line ? args->line : args->noise ? 0 : random_seed();
    if (count && first > INT64_MAX - count)
        return fail(args, NOT_UNDERSTOOD, "there are fewer than %lld seeds from %lld on", (long long)count,
                    (long long)first);
    for (int i = 0; i < m->n; i++) m->seeds[i] = args->n_seeds > 1 ? args->seeds[i] : first + i;
    return DONE;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

const char *output_folder(const arguments *args) {
    const char *path = args->output;
    return path && !is_stdout(path) && !picture_side_limit(path) && is_folder(path) ? path : NULL;
}

static int check_names(const arguments *args, const char *path, const char *dump) {
    if (path && !picture_side_limit(path))
        return fail(args, NOT_UNDERSTOOD, "%s: the name of a picture must end in .png, .jpg or .webp", path);
    if (dump && !is_tensor_file(dump))
        return fail(args, NOT_UNDERSTOOD, "%s: --dump writes tensors, so the name must end in .safetensors", dump);
    return DONE;
}

/* Checks that an output can be written, and is neither another output nor an input. */
static int claim_names(making *m, const arguments *args, int i) {
    const char *all[] = {m->paths[i], m->dumps[i], i == 0 ? args->sheet : NULL};
    int code = check_names(args, m->naming || !is_stdout(m->paths[i]) ? m->paths[i] : NULL, m->dumps[i]);
    for (size_t k = 0; k < COUNT(all) && code == DONE; k++) {
        if (!all[k] || is_stdout(all[k])) continue;
        code = check_output(args, all[k]);
        if (code == DONE) code = check_unread(args, m->naming ? m->naming->list : NULL, all[k]);
        if (code == DONE && m->inputs && !is_claimed(m->claimed, all[k])) code = check_inputs(args, m->inputs, all[k]);
        if (code == DONE) code = claim_output(args, m->claimed, all[k]);
    }
    return code;
}

/* Makes the names of the outputs, one for each seed. */
static int name_pictures(making *m, const arguments *args) {
    const naming *names = m->naming;
    const char *folder = output_folder(args);
    char *own = names && (folder || !args->output) ? file_in(folder, "{file}-{line}-{seed}.png") : NULL;
    char *unnamed = names ? NULL : file_in(folder, "lazuli.png");
    const char *output = own ? own : folder ? NULL : args->output;
    int code = DONE;
    if (names ? !output : !unnamed)
        code = fail(args, FAILED, "out of memory");
    else if (!output)
        code = check_output(args, unnamed);
    else if (!names && is_stdout(output))
        code = check_stdout(args, m->n);
    free(unnamed);
    for (int i = 0; i < m->n && code == DONE; i++) {
        char **to[] = {&m->paths[i], &m->dumps[i]};
        const char *from[] = {output, args->dump};
        for (size_t k = 0; k < COUNT(to) && code == DONE; k++) {
            free(*to[k]);
            *to[k] = NULL;
            if (!from[k]) continue;
            if (names)
                code = expand_name(args, names, from[k], m->seeds[i], m->n > 1 ? i + 1 : 0, to[k]);
            else if (!(*to[k] = m->n > 1 ? numbered_path(from[k], i + 1) : strdup(from[k])))
                code = fail(args, FAILED, "out of memory");
        }
        if (code == DONE) code = claim_names(m, args, i);
    }
    free(own);
    return code;
}

int check_pictures(making *m, const arguments *given) {
    const arguments *args = &m->args;
    if (!m->claimed) m->claimed = json_object();
    m->args = *given;
    int code = take_prompt(m);
    if (code == DONE) code = choose_seeds(m, args);
    if (code == DONE) code = choose_prompts(m);
    if (code == DONE) code = name_pictures(m, args);
    if (code == DONE) code = see_check(args);
    for (int i = 0; i < m->n && code == DONE && args->steps_dir; i++) code = claim_steps(args, m->claimed, m->seeds[i]);
    if (code == DONE && m->inputs) claim_inputs(args, m->inputs);
    return code;
}
