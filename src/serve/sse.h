/* sse.h: streams of server-sent events: of one picture, as OpenAI's API has them, or of /api/v1 (native). */
#ifndef LZ_SERVE_SSE_H
#define LZ_SERVE_SSE_H

#include "inside.h"

struct stream {
    stream *next;
    request *request;
    job *job; /* whose events it gets; NULL: all jobs of the owner, or none */
    bool native, ended;
    buffer out, preview; /* preview: an event that the next preview replaces if nobody has read it */
    size_t sent, due;    /* of out: bytes that were sent, and bytes that may be sent now */
    double spoke;
    bool pending;                  /* it has news that the client has not been told of */
    double sent_at;                /* steady: when it was told last */
    int partials, passed, partial; /* of OpenAI: previews wanted; those whose step has passed; those sent */
};
stream *stream_new(request *r, job *j, bool native);
void stream_free(front *f, stream *s);
/* An event; releases data. As a preview it replaces an unread one. */
void stream_event(stream *s, const char *type, json_t *data, bool preview);
void stream_comment(stream *s); /* how many jobs come before its own; which keeps proxies from closing the connection */
void stream_end(stream *s);
size_t stream_read(stream *s, char *to, size_t most); /* bytes that are due; 0: none */
void streams_tick(front *f);                          /* a comment every 10 seconds; news of a pause */
void native_event(front *f, const job *j, const char *type, json_t *data); /* to all native streams; releases data */
void native_replay(front *f, stream *s, long long after);                  /* the events after this id that are kept */

/* Events of OpenAI's API; openai.c. */
void openai_preview(stream *s, const job *j, const json_t *facts, const buffer *image);
void openai_picture(stream *s, const job *j, const picture *p);
void openai_ended(stream *s, const job *j);

#endif
