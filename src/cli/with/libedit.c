/* libedit.c: lines with editing and history, see terminal.h. Ctrl-C is a key here that empties the line; outside of
 * editor_read the terminal is as it was, and sends the signal. */
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
};

static char *show_prompt(EditLine *line) {
    editor *e = NULL;
    el_get(line, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt; /* libedit only reads it */
}

editor *editor_open(const char *prompt, const char *history_path) {
    setlocale(LC_CTYPE, ""); /* letters of several bytes are one */
    editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->prompt = prompt;
    e->path = history_path;
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
    el_set(e->line, EL_SIGNAL, 1); /* the terminal is put right again when a signal ends us */
    el_set(e->line, EL_SETTY, "-d", "-isig", NULL);
    el_set(e->line, EL_BIND, "^C", "em-kill-line", NULL);
    el_set(e->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(e->line, NULL); /* ~/.editrc has the last word */
    return e;
}

char *editor_read(editor *e) {
    int n = 0;
    const char *line = el_gets(e->line, &n);
    if (!line || n < 1) return NULL;
    if (line[strspn(line, " \t\n")]) history(e->history, &e->event, H_ENTER, line);
    return strndup(line, strcspn(line, "\n"));
}

void editor_close(editor *e) {
    if (!e) return;
    if (e->path && e->history) history(e->history, &e->event, H_SAVE, e->path);
    if (e->history) history_end(e->history);
    if (e->line) el_end(e->line);
    free(e);
}
