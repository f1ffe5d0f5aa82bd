/* slow.c: closes connections whose request does not come in time. libmicrohttpd closes a connection on which nothing
 * comes for 30 seconds. A client that sends a byte now and then could keep its connection for ever. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "inside.h"

enum { SLOWEST = 32 << 10 }; /* bytes of a body in a second, after the first SECONDS_TO_SEND */

/* A connection. It belongs to front.peers from its beginning to its end. */
struct peer {
    peer *next, *before;
    int socket;
    char address[64];
    double since;         /* steady: when it began to wait for the head of a request */
    const request *under; /* the request that is under way; NULL: none */
};

void slow_connection(void *user, struct MHD_Connection *c, void **mine, enum MHD_ConnectionNotificationCode code) {
    front *f = user;
    peer *p = *mine;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        p = *mine = calloc(1, sizeof *p);
        if (!p) return;
        *p = (peer){.next = f->peers, .socket = info ? info->connect_fd : -1, .since = steady_seconds()};
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

void slow_request(const request *r, bool begins) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    peer *p = info ? info->socket_context : NULL;
    if (!p) return;
    p->under = begins ? r : NULL;
    p->since = steady_seconds();
}

int slow_count(const front *f, const char *address) {
    int n = 0;
    for (const peer *p = f->peers; p; p = p->next) n += strcmp(p->address, address) == 0;
    return n;
}

void slow_tick(front *f) {
    double now = steady_seconds();
    for (peer *p = f->peers; p; p = p->next) {
        const request *r = p->under;
        if (r && r->called) continue;
        if (now - p->since <= SECONDS_TO_SEND + (r ? (double)r->received / SLOWEST : 0)) continue;
        shutdown(p->socket, SHUT_RDWR); /* libmicrohttpd then closes it */
        p->since = INFINITY;
    }
}
