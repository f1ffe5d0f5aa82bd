/* sse.c: streams of server-sent events. A stream is read by libmicrohttpd when its client can take more, and is
 * suspended while there is nothing to send. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sse.h"

enum { PAUSE = 10 }; /* seconds between comments */
/* Bytes that the reader of a native stream may leave unread, and the readers of all of them together. A stream with more
 * ends after what it has; its client asks for the rest by Last-Event-ID. A stream of OpenAI's API has the pictures of one
 * request, for which answers_have_room has room. */
enum { MOST_UNREAD = 512 << 10, MOST_UNREAD_BY_ALL = 128 << 20 };
enum { AT_ONCE = 64 };    /* streams that are sent to before other requests get their turn */
#define PAUSE_EACH 0.0002 /* a native stream waits this many seconds for each stream that there is between two sends */

stream *stream_new(request *r, job *j, bool native) {
    stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (stream){.request = r, .job = j, .native = native, .spoke = steady_seconds()};
    s->due = native ? 0 : SIZE_MAX;
    s->next = r->front->streams;
    r->front->streams = s;
    r->front->n_streams++;
    return s;
}

void stream_free(front *f, stream *s) {
    if (!s) return;
    stream **at = &f->streams;
    while (*at && *at != s) at = &(*at)->next;
    if (*at) f->n_streams--;
    if (*at) *at = s->next;
    if (s->native) f->unread -= s->out.size;
    buffer_free(&s->out);
    buffer_free(&s->preview);
    free(s);
}

/* Lets the client read. An event goes to every native stream of its owner, so those wait a little for further events:
 * each send costs about the same, however much it carries. */
static void send_soon(stream *s) {
    front *f = s->request->front;
    if (!s->native || s->ended) {
        s->due = SIZE_MAX;
        wake(s->request);
        return;
    }
    s->pending = true;
    f->streams_due = fmin(f->streams_due, s->sent_at + f->n_streams * PAUSE_EACH);
}

/* Adds bytes to those that the client will read. false: there is no memory. */
static bool add_bytes(stream *s, const char *text, size_t size) {
    if (!buffer_add(&s->out, text, size)) return false;
    if (s->native) s->request->front->unread += size;
    return true;
}

static void add_text(stream *s, const char *text, size_t size) {
    if (s->ended) return;
    const front *f = s->request->front;
    bool fits = !s->native || !s->out.size ||
                (s->out.size + size <= MOST_UNREAD && f->unread + size <= MOST_UNREAD_BY_ALL);
    if (!fits || !add_bytes(s, text, size)) s->ended = true;
    s->spoke = steady_seconds();
    send_soon(s);
}

static void print_event(buffer *to, long long id, const char *type, json_t *data) {
    char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    if (id) buffer_print(to, "id: %lld\n", id);
    if (text) {
        buffer_print(to, "event: %s\ndata: ", type);
        buffer_add(to, text, strlen(text));
        buffer_add(to, "\n\n", 2);
    }
    free(text);
}

void stream_event(stream *s, const char *type, json_t *data, bool preview) {
    buffer event = {.data = NULL};
    print_event(&event, 0, type, data);
    json_decref(data);
    if (preview) {
        buffer_free(&s->preview);
        s->preview = event;
        send_soon(s);
        return;
    }
    buffer_free(&s->preview); /* what it showed is over */
    if (event.data) add_text(s, event.data, event.size);
    buffer_free(&event);
}

void stream_end(stream *s) {
    s->ended = true;
    s->due = SIZE_MAX;
    wake(s->request);
}

/* An unread preview is sent after the events. */
static void take_preview(stream *s) {
    if (s->out.size || !s->preview.size) return;
    add_bytes(s, s->preview.data, s->preview.size);
    s->preview.size = 0;
    s->spoke = steady_seconds();
}

size_t stream_read(stream *s, char *to, size_t most) {
    if (s->due == SIZE_MAX) take_preview(s);
    size_t end = s->due < s->out.size ? s->due : s->out.size, left = end - s->sent, n = left < most ? left : most;
    if (!n) return 0;
    memcpy(to, s->out.data + s->sent, n);
    s->sent += n;
    if (s->sent == s->out.size) {
        if (s->native) s->request->front->unread -= s->out.size;
        s->sent = s->out.size = s->due = 0;
    }
    if (!s->native || s->ended) s->due = SIZE_MAX;
    return n;
}

/* Sends to the native streams that have news and have waited long enough. Returns the seconds until the next is due. */
static double send_pending(front *f, double now) {
    double pause = f->n_streams * PAUSE_EACH, next = PAUSE;
    int sent = 0;
    for (stream *s = f->streams; s; s = s->next) {
        if (!s->pending) continue;
        double left = s->sent_at + pause - now;
        if (left > 0 && !s->ended) {
            next = left < next ? left : next;
            continue;
        }
        if (sent++ == AT_ONCE) return 0;
        s->pending = false;
        s->sent_at = now;
        take_preview(s);
        s->due = s->out.size;
        wake(s->request);
    }
    return next;
}

void stream_comment(stream *s) {
    front *f = s->request->front;
    buffer line = {.data = NULL};
    double left = s->job ? queue_told(f, s->job) : -1;
    int position = s->job ? queue_position(f, s->job) : 0;
    if (position && left >= 0)
        buffer_print(&line, ": %d before you, about %.0f s\n\n", position - 1, left);
    else if (position)
        buffer_print(&line, ": %d before you\n\n", position - 1);
    else
        buffer_print(&line, ": waiting\n\n");
    if (line.data) add_text(s, line.data, line.size);
    buffer_free(&line);
}

/* Everybody is told that an administrator has stopped the queue, or that it goes on. In a fleet, that was at any front. */
static void tell_pause(front *f) {
    buffer event = {.data = NULL};
    json_t *data = json_pack("{s:b}", "paused", f->paused);
    print_event(&event, 0, "queue", data);
    json_decref(data);
    for (stream *s = f->streams; s && event.data; s = s->next)
        if (s->native && !s->ended) add_text(s, event.data, event.size);
    buffer_free(&event);
    f->told_paused = f->paused;
}

void streams_tick(front *f) {
    double now = steady_seconds();
    if (f->paused != f->told_paused) tell_pause(f);
    f->streams_due = now + send_pending(f, now);
    for (stream *s = f->streams; s; s = s->next)
        if (now - s->spoke >= PAUSE && !s->ended) stream_comment(s);
}

/* ---- native events ----------------------------------------------------------------------------------------------- */

static bool may_see(const stream *s, const char *owner, const char *job_id) {
    const identity *who = &s->request->who;
    if (s->job) return strcmp(s->job->id, job_id) == 0;
    return who->admin || strcmp(who->owner, owner) == 0;
}

void native_event(front *f, const job *j, const char *type, json_t *data) {
    bool is_preview = strcmp(type, "preview") == 0, is_progress = strcmp(type, "progress") == 0;
    buffer event = {.data = NULL};
    long long id = is_preview || is_progress ? 0 : ++f->last_event;
    print_event(&event, id, type, data);
    json_decref(data);
    for (stream *s = f->streams; s && event.data; s = s->next) {
        if (!s->native || s->ended || !may_see(s, j->owner, j->id)) continue;
        if (is_preview) {
            s->preview.size = 0;
            buffer_add(&s->preview, event.data, event.size);
            send_soon(s);
        } else
            add_text(s, event.data, event.size);
    }
    if (!id) {
        buffer_free(&event);
        return;
    }
    kept_event *kept = &f->events[id % KEPT_EVENTS];
    free(kept->text);
    *kept = (kept_event){.id = id, .text = event.data};
    memcpy(kept->owner, j->owner, sizeof kept->owner);
    memcpy(kept->job, j->id, sizeof kept->job);
}

void native_replay(front *f, stream *s, long long after) {
    for (long long id = after + 1 > f->last_event - KEPT_EVENTS ? after + 1 : f->last_event - KEPT_EVENTS + 1;
         id <= f->last_event; id++) {
        const kept_event *kept = id > 0 ? &f->events[id % KEPT_EVENTS] : NULL;
        if (kept && kept->id == id && kept->text && may_see(s, kept->owner, kept->job))
            add_text(s, kept->text, strlen(kept->text));
    }
}
