/* libedit.c: line editing and history, see terminal.h. While editing, Ctrl-C is a key that clears the line; outside of
 * editor_read the terminal sends SIGINT as usual. */
#include <histedit.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "../terminal.h"

const bool can_edit = true;
enum { REMEMBERED = 1000 };

struct editor {
    EditLine *line;
    History *history;
    HistEvent event;
    const char *prompt, *path;
    completion by_tab;
};

static char *show_prompt(EditLine *line) {
    editor *e = NULL;
    el_get(line, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt; /* libedit only reads it */
}

/* ---- Tab --------------------------------------------------------------------------------------------------------- */

enum { LONGEST = 64 }; /* bytes of a completed word */

static size_t common_length(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

/* Adds the common prefix of all words that begin like this; if that adds nothing, lists them. */
static unsigned char complete_word(editor *e, const char *typed, size_t length) {
    char common[LONGEST] = "";
    int n = 0;
    const char *word;
    for (int i = 0; (word = e->by_tab.word(e->by_tab.user, i)); i++) {
        if (strncmp(word, typed, length) != 0) continue;
        if (n++)
            common[common_length(common, word)] = 0;
        else
            snprintf(common, sizeof common, "%s", word);
    }
    if (!n) return CC_ERROR;
    bool more = strlen(common) > length;
    if (more && el_insertstr(e->line, common + length) != 0) return CC_ERROR;
    if (n == 1) return el_insertstr(e->line, " ") == 0 ? CC_REFRESH : CC_ERROR;
    if (more) return CC_REFRESH;
    putchar('\n');
    for (int i = 0; (word = e->by_tab.word(e->by_tab.user, i)); i++)
        if (strncmp(word, typed, length) == 0) printf("%s  ", word);
    putchar('\n');
    fflush(stdout);
    return CC_REDISPLAY;
}

static unsigned char complete(EditLine *line, int key) {
    editor *e = NULL;
    el_get(line, EL_CLIENTDATA, &e);
    const LineInfo *info = el_line(line);
    const char *word = info->cursor;
    while (word > info->buffer && word[-1] != ' ') word--;
    size_t length = (size_t)(info->cursor - word);
    if (length && (*word == '$' || (*word == '/' && word == info->buffer))) return complete_word(e, word, length);
    char *before = strndup(info->buffer, (size_t)(word - info->buffer));
    bool file = before && e->by_tab.names_file(before);
    free(before);
    return file ? _el_fn_complete(line, key) : CC_ERROR;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

editor *editor_open(const char *prompt, const char *history_path, completion by_tab) {
    setlocale(LC_CTYPE, ""); /* for multi-byte characters */
    editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->prompt = prompt;
    e->path = history_path;
    e->by_tab = by_tab;
    e->line = el_init("lazuli", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->line || !e->history) {
        editor_close(e);
        return NULL;
    }
    history(e->history, &e->event, H_SETSIZE, REMEMBERED);
    history(e->history, &e->event, H_SETUNIQUE, 1);
    if (e->path) history(e->history, &e->event, H_LOAD, e->path);
    el_set(e->line, EL_CLIENTDATA, e);
    el_set(e->line, EL_PROMPT, show_prompt);
    el_set(e->line, EL_EDITOR, "emacs");
    el_set(e->line, EL_HIST, history, e->history);
    el_set(e->line, EL_SIGNAL, 1); /* restores the terminal if a signal ends the program */
    el_set(e->line, EL_SETTY, "-d", "-isig", NULL);
    el_set(e->line, EL_BIND, "^C", "em-kill-line", NULL);
    el_set(e->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(e->line, EL_ADDFN, "lazuli-complete", "completes commands, pictures and files", complete);
    el_set(e->line, EL_BIND, "^I", "lazuli-complete", NULL);
    el_source(e->line, NULL); /* settings of ~/.editrc have precedence */
    return e;
}

char *editor_read(editor *e) {
    int n = 0;
    const char *line = el_gets(e->line, &n);
    if (!line || n < 1) return NULL;
    if (line[strspn(line, " \t\n")]) history(e->history, &e->event, H_ENTER, line);
    /* After each line, because the terminal may be closed at any time. */
    if (e->path) history(e->history, &e->event, H_SAVE, e->path);
    return strndup(line, strcspn(line, "\n"));
}

void editor_close(editor *e) {
    if (!e) return;
    if (e->history) history_end(e->history);
    if (e->line) el_end(e->line);
    free(e);
}
