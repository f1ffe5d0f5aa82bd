/* memory.c: answers that are kept in memory: short texts, and the first bytes of files. */
#include <stdlib.h>
#include <string.h>

#include "pull/web.h"

static verdict begin(get *g) { return g->have = (int64_t)((const first_bytes *)g->to)->n, GOOD; }

static verdict take(get *g, const char *data, size_t n) {
    first_bytes *h = g->to;
    if (h->n + n + 1 > h->room) {
        size_t room = 2 * (h->n + n) + 1024;
        char *larger = realloc(h->data, room);
        if (!larger) {
            snprintf(g->error, sizeof g->error, "%s: out of memory", g->what);
            return BAD;
        }
        h->data = larger;
        h->room = room;
    }
    memcpy(h->data + h->n, data, n);
    h->n += n;
    h->data[h->n] = 0;
    return GOOD;
}

static verdict restart(get *g) {
    ((first_bytes *)g->to)->n = 0;
    return GOOD;
}

static verdict finish(get *g) {
    if (g->have) return GOOD;
    snprintf(g->error, sizeof g->error, "%s: the hub sent nothing", g->what);
    return BAD;
}

static void leave(get *g) { (void)g; }

static const sink to_memory = {begin, take, restart, finish, leave};

int web_text(web *w, const char *what, const char *url, int64_t limit, char **text, char next[1024]) {
    first_bytes h = {.n = 0};
    get g = {.what = what, .url = (char *)url, .sink = &to_memory, .to = &h, .size = -1, .limit = limit};
    int code = web_run(w, &g, 1, 1, 0);
    if (code == DONE) {
        *text = h.data;
        if (next) snprintf(next, 1024, "%s", g.next);
    } else {
        free(h.data);
    }
    return code;
}

int web_head(web *w, const char *what, const char *url, int64_t wanted, first_bytes *h) {
    get g = {.what = what, .url = (char *)url, .sink = &to_memory, .to = h, .size = wanted, .head = true};
    int code = web_run(w, &g, 1, 1, 0);
    h->no_ranges = h->no_ranges || g.no_ranges;
    return code;
}
