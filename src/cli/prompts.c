/* prompts.c: the prompt of the arguments, and prompts that are templates (template.h), with the folder of wildcards that
 * the arguments or the settings file name. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "template.h"

/* ---- the prompt that was given ----------------------------------------------------------------------------------- */

bool is_blank(const char *text) { return !text[strspn(text, " \t\r\n\v\f")]; }

enum { MOST_PROMPT = 1 << 20 };

static int read_stdin(const arguments *args, char **text) {
    size_t n = 0;
    int code = read_file(args, "-", MOST_PROMPT, text, &n);
    if (code != DONE) return code;
    if (n < 1) return fail(args, FAILED, "the prompt is read from stdin, but stdin was empty");
    if (memchr(*text, 0, n)) return fail(args, FAILED, "the prompt from stdin contains a zero byte, so it is not text");
    while (n > 0 && ((*text)[n - 1] == '\n' || (*text)[n - 1] == '\r')) (*text)[--n] = 0;
    return is_blank(*text) ? fail(args, FAILED, "the prompt from stdin is blank") : DONE;
}

static char *join(char **words, int n) {
    size_t size = 1;
    for (int i = 0; i < n; i++) size += strlen(words[i]) + 1;
    char *text = calloc(1, size), *end = text;
    for (int i = 0; i < n && text; i++) end = stpcpy(stpcpy(end, i ? " " : ""), words[i]);
    return text;
}

bool reads_prompt(const arguments *a) {
    const char *given = a->prompt ? a->prompt : a->n_words == 1 ? a->words[0] : "";
    return strcmp(given, "-") == 0 && !(a->prompt && a->n_words) && !is_elsewhere(a, "prompt");
}

int prompt_of(const arguments *a, char **owned, const char **text) {
    *owned = NULL;
    *text = a->prompt;
    if (a->prompt && a->n_words)
        return fail(a, NOT_UNDERSTOOD,
                    "the prompt was given twice, by --prompt and as '%s'; put the whole prompt in quotes", a->words[0]);
    if (!a->prompt && !a->n_words) return DONE;
    const char *given = a->prompt ? a->prompt : a->words[0];
    if (reads_prompt(a)) {
        int code = read_stdin(a, owned);
        if (code != DONE) return code;
    } else if (!a->prompt && !(*owned = join(a->words, a->n_words)))
        return fail(a, FAILED, "out of memory");
    *text = *owned ? *owned : given;
    return check_text(a, "prompt", *text);
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

/* *folder: NULL if none is named. Returns an exit code. */
static int wildcard_folder(const arguments *args, const char **folder) {
    *folder = args->wildcards;
    return *folder ? DONE : find_wildcard_folder(args, folder);
}

/* Is the prompt a template whose choices are to be made? Returns an exit code. */
static int check_template(const arguments *args, const char *prompt, const char **folder, bool *is) {
    *is = false;
    *folder = NULL;
    if (args->no_templates || args->template || !is_template(prompt, true)) return DONE;
    int code = wildcard_folder(args, folder);
    *is = code == DONE && is_template(prompt, *folder);
    if (code == DONE && !*folder && !is_template(prompt, false))
        note_once(args, "__NAME__ in the prompt is read as words; --wildcards DIR names the folder of the files");
    return code;
}

int resolve_prompt(const arguments *args, const char *prompt, int64_t seed, char **to) {
    char error[TEMPLATE_ERROR];
    const char *folder;
    bool is;
    *to = NULL;
    int code = check_template(args, prompt, &folder, &is);
    if (code != DONE || !is) return code;
    *to = template_expand(prompt, folder, (uint64_t)seed, error);
    return *to ? check_text(args, "prompt", *to) : fail(args, NOT_UNDERSTOOD, "%s", error);
}

int resolve_combinations(const arguments *args, const char *prompt, char *to[MAX_PICTURES], int *n) {
    char error[TEMPLATE_ERROR];
    const char *folder;
    combinations all = {.n = 0};
    bool is;
    *n = 0;
    int code = check_template(args, prompt, &folder, &is);
    while (code == DONE && is) {
        char *next = template_next(&all, prompt, folder, error);
        if (!next && *error) code = fail(args, NOT_UNDERSTOOD, "%s", error);
        if (!next) break;
        if (*n < MAX_PICTURES) {
            to[(*n)++] = next;
            code = check_text(args, "prompt", next);
            continue;
        }
        free(next);
        code = fail(args, NOT_UNDERSTOOD, "the prompt has more than %d combinations", MAX_PICTURES);
    }
    combinations_free(&all);
    return code;
}

const char *template_of(const arguments *args, const char *prompt) {
    if (args->template) return args->template;
    return prompt && is_template(prompt, true) ? prompt : NULL;
}
