/* slow.c: closes connections whose request does not come in time. libmicrohttpd closes a connection on which nothing
 * comes for a while. A client that sends a byte now and then could keep its connection for ever. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "inside.h"

/* Bytes of a body that are worth a second. A connection begins with SECONDS_TO_SEND of them and never has more, so a client
 * that has sent much must go on sending: what has come is in memory, and front.bodies is for all. */
enum { SLOWEST = 32 << 10 };

/* A connection. It belongs to front.peers from its beginning to its end. */
struct peer {
    peer *next, *before;
    int socket;
    char address[64];
    bool metrics;    /* it came by --metrics-listen */
    double until;    /* steady: when the head of a request, or more of its body, must have come */
    request *under;  /* the request that is under way; NULL: none */
    int64_t counted; /* bytes of its body that are in `until` */
};

void slow_connection(void *user, struct MHD_Connection *c, void **mine, enum MHD_ConnectionNotificationCode code) {
    front *f = user;
    peer *p = *mine;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        p = *mine = calloc(1, sizeof *p);
        if (!p) return;
        *p = (peer){
            .next = f->peers, .socket = info ? info->connect_fd : -1, .until = steady_seconds() + SECONDS_TO_SEND};
        p->metrics = f->accepted->metrics;
        if (p->next) p->next->before = p;
        f->peers = p;
        f->n_connections++;
        info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        if (info && info->client_addr) address_text((const void *)info->client_addr, false, p->address);
    } else if (p) {
        if (p->next) p->next->before = p->before;
        *(p->before ? &p->before->next : &f->peers) = p->next;
        *mine = NULL;
        f->n_connections--;
        free(p);
    }
}

void slow_request(request *r, bool begins) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    peer *p = info ? info->socket_context : NULL;
    if (!p) return;
    p->under = begins ? r : NULL;
    r->metrics = p->metrics;
    p->until = steady_seconds() + SECONDS_TO_SEND;
    p->counted = 0;
}

int slow_count(const front *f, const char *address) {
    int n = 0;
    for (const peer *p = f->peers; p; p = p->next) n += strcmp(p->address, address) == 0;
    return n;
}

/* Tells a client whose body does not come. The library can answer when a body has come, so this is written past it, which
 * is possible without TLS. */
static void say_timeout(request *r, int socket) {
    problem p;
    buffer answer = {.data = NULL};
    set_problem(&p, 408, "request_timeout", "", "the request did not come whole within %d seconds", SECONDS_TO_SEND);
    json_t *body = problem_json(&p);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    r->status = 408;
    if (text && !r->secure &&
        buffer_print(&answer,
                     "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n"
                     "cache-control: no-store\r\nx-request-id: %s\r\nconnection: close\r\n\r\n%s",
                     strlen(text), r->id, text))
        send(socket, answer.data, answer.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    buffer_free(&answer);
    free(text);
}

void slow_tick(front *f) {
    double now = steady_seconds();
    for (peer *p = f->peers; p; p = p->next) {
        request *r = p->under;
        if ((r && r->called) || isinf(p->until)) continue;
        if (r) p->until = fmin(p->until + (double)(r->received - p->counted) / SLOWEST, now + SECONDS_TO_SEND);
        if (r) p->counted = r->received;
        if (now <= p->until) continue;
        if (r) say_timeout(r, p->socket);
        shutdown(p->socket, SHUT_RDWR); /* libmicrohttpd then closes it */
        p->until = INFINITY;            /* once is enough */
    }
}
