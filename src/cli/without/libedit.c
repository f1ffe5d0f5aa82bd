/* libedit.c: no lines to edit. */
#include "../terminal.h"

const bool can_edit = false;

editor *editor_open(const char *prompt, const char *history) {
    (void)prompt, (void)history;
    return NULL;
}

char *editor_read(editor *e) {
    (void)e;
    return NULL;
}

void editor_close(editor *e) { (void)e; }
