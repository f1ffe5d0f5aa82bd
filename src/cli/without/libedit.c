/* libedit.c: no line editing. */
#include "../terminal.h"

const bool can_edit = false;

editor *editor_open(const char *prompt, const char *history, completion by_tab) {
    (void)prompt, (void)history, (void)by_tab;
    return NULL;
}

char *editor_read(editor *e) {
    (void)e;
    return NULL;
}

void editor_close(editor *e) { (void)e; }
