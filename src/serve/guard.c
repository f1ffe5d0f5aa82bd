/* guard.c: see guard.h.
 *
 * A page of another site can make a browser send requests to a server on this machine, and can make its own name mean
 * this machine (DNS rebinding). So Host must be a name of ours, and requests that a browser marks as coming from
 * another site are refused, unless the operator has allowed that site. */
#include "guard.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { KEYS = 256, SESSIONS = 256, HOSTS = 40, SESSION_SECONDS = 12 * 3600, FAILURES = 256, MOST_FAILURES = 10 };

typedef struct key {
    char name[64], secret[65]; /* secret: SHA-256 of the key */
    bool admin;
} key;

typedef struct session {
    char secret[65]; /* SHA-256 */
    key key;         /* that it was opened with */
    double until;
} session;

typedef struct failures { /* wrong keys of an address */
    char address[64];
    int count;
    double since, last;
} failures;

struct guard {
    const serve_options *options;
    key keys[KEYS];
    int n_keys;
    session sessions[SESSIONS];
    char hosts[HOSTS][160];
    int n_hosts;
    failures failures[FAILURES]; /* by a hash of the address */
};

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static bool read_line(guard *g, char *line) {
    char *rest = NULL, *name = strtok_r(line, " \t\r\n", &rest),
         *secret = name ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
    char *role = secret ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
    if (!name || *name == '#') return true;
    if (!secret || strlen(secret) < 8 || strlen(name) > 60 || (role && strcmp(role, "admin") != 0) || g->n_keys == KEYS)
        return false;
    key *k = &g->keys[g->n_keys++];
    *k = (key){.admin = role};
    snprintf(k->name, sizeof k->name, "%s", name);
    hash_hex(secret, strlen(secret), k->secret);
    return true;
}

/* Ends the sessions whose key is no longer in the file, or has another role. */
static void end_old_sessions(guard *g) {
    for (int i = 0; i < SESSIONS; i++) {
        const key *k = &g->sessions[i].key;
        bool found = false;
        for (int n = 0; n < g->n_keys; n++)
            found = found || (strcmp(k->name, g->keys[n].name) == 0 && strcmp(k->secret, g->keys[n].secret) == 0 &&
                              k->admin == g->keys[n].admin);
        if (!found) g->sessions[i] = (session){.until = 0};
    }
}

/* Reads the keys of a text, a line each. name: of the text, in errors. */
static bool read_lines(guard *g, const char *text, const char *name, char *why, size_t size) {
    char line[1024];
    int number = 0, before = g->n_keys;
    while (*text) {
        size_t n = strcspn(text, "\n");
        number++;
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (n >= sizeof line || !read_line(g, line)) {
            snprintf(why, size, "%s: line %d: is not 'NAME KEY' or 'NAME KEY admin' with a KEY of 8 or more characters",
                     name, number);
            return false;
        }
        text += n + (text[n] == '\n');
    }
    if (g->n_keys > before) return true;
    snprintf(why, size, "%s: contains no key", name);
    return false;
}

bool guard_read_keys(guard *g, char *why, size_t size) {
    const serve_options *o = g->options;
    char *text = o->key_file ? file_text(o->key_file, why, size) : NULL;
    guard *fresh = calloc(1, sizeof *fresh);
    struct stat s;
    bool good = fresh && (text || !o->key_file);
    good = good && (!text || read_lines(fresh, text, o->key_file, why, size)) &&
           (!o->keys || read_lines(fresh, o->keys, "LAZULI_KEYS", why, size));
    if (good && text && stat(o->key_file, &s) == 0 && s.st_mode & 077)
        fprintf(stderr, "lazuli: %s can be read by others; chmod 600 keeps the keys secret\n", o->key_file);
    if (good) memcpy(g->keys, fresh->keys, sizeof g->keys);
    if (good) g->n_keys = fresh->n_keys;
    if (good) end_old_sessions(g);
    free(text);
    free(fresh);
    return good;
}

bool guard_has_keys(const guard *g) { return g->n_keys > 0; }

/* Compares with every key, so that the time does not tell which one is nearly right. */
static const key *find_key(const guard *g, const char *secret) {
    char hex[65];
    const key *found = NULL;
    hash_hex(secret, strlen(secret), hex);
    for (int i = 0; i < g->n_keys; i++)
        if (same_text(hex, g->keys[i].secret)) found = &g->keys[i];
    return found;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static void add_host(guard *g, const char *name, size_t length) {
    if (g->n_hosts >= HOSTS || length >= sizeof *g->hosts) return;
    snprintf(g->hosts[g->n_hosts++], sizeof *g->hosts, "%.*s", (int)length, name);
}

/* The host of http://HOST:PORT/..., without the port. */
static void add_url_host(guard *g, const char *url) {
    const char *begin = strstr(url, "://");
    begin = begin ? begin + 3 : url;
    size_t length = *begin == '[' ? strcspn(begin, "]") + 1 : strcspn(begin, ":/");
    add_host(g, begin, length);
}

guard *guard_new(const front *f, char *why, size_t size) {
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"}, *const others[] = {
                                                                                   "host.docker.internal",
                                                                                   "host.containers.internal"};
    const serve_options *o = f->options;
    guard *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->options = o;
    for (int i = 0; i < 3; i++) add_host(g, loopback[i], strlen(loopback[i]));
    for (int i = 0; i < 2 && !f->loopback; i++) add_host(g, others[i], strlen(others[i]));
    for (int i = 0; o->listen[i] && !f->loopback; i++)
        if (strncmp(o->listen[i], "unix:", 5) != 0) add_url_host(g, o->listen[i]);
    if (o->public_url) add_url_host(g, o->public_url);
    for (int i = 0; o->hosts[i]; i++) add_host(g, o->hosts[i], strlen(o->hosts[i]));
    if (guard_read_keys(g, why, size)) return g;
    guard_free(g);
    return NULL;
}

void guard_free(guard *g) { free(g); }

/* Is it the address that the client has connected to? A name that was made to mean this machine is none. */
static bool is_local_address(const request *r, const char *host) {
    size_t n = strlen(r->local);
    if (!n || strncmp(host, r->local, n) != 0) return false;
    return !host[n] || (host[n] == ':' && host[n + 1] && !host[n + 1 + strspn(host + n + 1, "0123456789")]);
}

static bool is_our_host(const request *r, const char *host) {
    const guard *g = r->front->guard;
    if (host && is_local_address(r, host)) return true;
    for (int i = 0; host && i < g->n_hosts; i++) {
        size_t n = strlen(g->hosts[i]);
        if (strncasecmp(host, g->hosts[i], n) != 0) continue;
        char port[16];
        snprintf(port, sizeof port, ":%d", r->port);
        if (!host[n] || strcmp(host + n, port) == 0) return true;
        const char *given = strrchr(g->hosts[i], ':');
        /* Requests through a proxy have the host and port of --public-url. */
        if (g->options->public_url && !given && host[n] == ':' && strstr(g->options->public_url, host)) return true;
    }
    return false;
}

/* ---- origins ----------------------------------------------------------------------------------------------------- */

bool guard_origin_is_allowed(const guard *g, const char *origin) {
    for (int i = 0; origin && g->options->origins[i]; i++)
        if (strcasecmp(origin, g->options->origins[i]) == 0) return true;
    return false;
}

/* Our own page has an Origin that is http:// or https:// and the Host of the request. */
static bool is_own_origin(const request *r, const char *origin, const char *host) {
    const guard *g = r->front->guard;
    const char *rest = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                                 : NULL;
    if (!rest) return false;
    const char *url = g->options->public_url, *name = url ? strstr(url, "://") : NULL;
    size_t public_length = name ? (size_t)(name + 3 - url) + strcspn(name + 3, "/") : 0;
    bool public = public_length && strlen(origin) == public_length && strncasecmp(origin, url, public_length) == 0;
    return public || (host && strcasecmp(rest, host) == 0 && is_our_host(r, host));
}

static bool check_origin(request *r, problem *p) {
    const guard *g = r->front->guard;
    const char *origin = header_of(r, "origin"), *site = header_of(r, "sec-fetch-site");
    bool reading = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;
    int flags = r->route ? r->route->flags : 0;
    if (reading && flags & (OPEN | FILES | PAGE) && !(flags & SAME_SITE)) return true;
    bool listed = guard_origin_is_allowed(g, origin);
    bool foreign = origin && !listed && !is_own_origin(r, origin, header_of(r, "host"));
    bool marked = site && !listed && (strcasecmp(site, "cross-site") == 0 || strcasecmp(site, "same-site") == 0);
    if (!foreign && !marked) return true;
    return set_problem(p, 403, "forbidden_origin", "",
                       "pages of other sites may not use this server; --allow-origin allows one");
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* The value of the cookie lazuli_session; false: there is none. */
static bool read_cookie(const request *r, char to[33]) {
    static const char name[] = "lazuli_session=";
    const char *cookies = header_of(r, "cookie");
    for (const char *at = cookies; at && *at; at += strcspn(at, ";")) {
        at += strspn(at, "; \t");
        if (strncmp(at, name, sizeof name - 1) != 0) continue;
        at += sizeof name - 1;
        size_t n = strcspn(at, "; \t");
        if (n != 32) return false;
        memcpy(to, at, 32);
        to[32] = 0;
        return is_id(to);
    }
    return false;
}

static session *find_session(guard *g, const request *r) {
    char secret[33], hex[65];
    if (!read_cookie(r, secret)) return NULL;
    hash_hex(secret, 32, hex);
    for (int i = 0; i < SESSIONS; i++)
        if (*g->sessions[i].secret && g->sessions[i].until > steady_seconds() && same_text(hex, g->sessions[i].secret))
            return &g->sessions[i];
    return NULL;
}

void guard_close_session(guard *g, const request *r) {
    session *s = find_session(g, r);
    if (s) *s = (session){.until = 0};
}

/* ---- who --------------------------------------------------------------------------------------------------------- */

/* The key of the request's headers, copied to `to`; false: there is none. */
static bool read_key(const request *r, char *to, size_t size) {
    static const char *const names[] = {"api-key", "x-api-key"};
    const char *given = header_of(r, "authorization");
    buffer basic = {.data = NULL};
    *to = 0;
    if (given && strncasecmp(given, "bearer ", 7) == 0) {
        given += 7 + strspn(given + 7, " ");
        snprintf(to, size, "%.*s", (int)strcspn(given, " \t"), given);
    } else if (given && strncasecmp(given, "basic ", 6) == 0 && base64_read(given + 6, strlen(given + 6), &basic) &&
               basic.data) {
        const char *colon = strchr(basic.data, ':');
        if (colon) snprintf(to, size, "%s", colon + 1);
    }
    buffer_free(&basic);
    for (int i = 0; i < 2 && !*to; i++) {
        given = header_of(r, names[i]);
        if (given) snprintf(to, size, "%s", given);
    }
    return *to;
}

/* A wrong key has come. After 10 of them in a minute, one a second is counted, and for the others this returns true. Many
 * clients may share the address of a proxy, so a right key is taken whatever the others have sent. */
static bool must_wait(guard *g, const char *address) {
    unsigned slot = 0;
    double now = steady_seconds();
    for (const char *c = address; *c; c++) slot = (slot * 31 + (unsigned char)*c) % FAILURES;
    failures *f = &g->failures[slot];
    if (strcmp(f->address, address) != 0 || now - f->since > 60) {
        *f = (failures){.since = now};
        snprintf(f->address, sizeof f->address, "%s", address);
    }
    if (f->count >= MOST_FAILURES && now - f->last < 1) return true;
    f->count++;
    f->last = now;
    return false;
}

/* field: that the key was in; "" for a header. */
static bool set_wrong(guard *g, const char *address, const char *field, problem *p) {
    if (!must_wait(g, address)) return set_problem(p, 401, "invalid_api_key", field, "the key is wrong");
    return set_problem(p, 429, "too_many_failures", field,
                       "the key is wrong, and many wrong keys came from your address; try again in a second");
}

bool guard_open_session(const request *r, const char *given, char secret[33], problem *p) {
    guard *g = r->front->guard;
    const key *k = find_key(g, given);
    if (!k) return set_wrong(g, r->address, "key", p);
    session *oldest = &g->sessions[0];
    for (int i = 1; i < SESSIONS; i++)
        if (g->sessions[i].until < oldest->until) oldest = &g->sessions[i];
    *oldest = (session){.key = *k, .until = steady_seconds() + SESSION_SECONDS};
    random_letters(secret, 32);
    hash_hex(secret, 32, oldest->secret);
    return true;
}

/* Fills r->who. false: a key is needed, and none or a wrong one was given. */
static bool identify(request *r, bool *by_header, problem *p) {
    guard *g = r->front->guard;
    char secret[256];
    bool given = read_key(r, secret, sizeof secret);
    const key *k = given && g->n_keys ? find_key(g, secret) : NULL;
    const session *s = !given && g->n_keys ? find_session(g, r) : NULL;
    *by_header = k;
    r->who = (identity){.by_key = k || s, .admin = k ? k->admin : s ? s->key.admin : !g->n_keys};
    if (r->who.by_key)
        snprintf(r->who.owner, sizeof r->who.owner, "key:%s", k ? k->name : s->key.name);
    else
        snprintf(r->who.owner, sizeof r->who.owner, "address:%s", r->address);
    if (!g->n_keys || r->who.by_key) return true;
    if (given) return set_wrong(g, r->address, "", p);
    return set_problem(p, 401, "invalid_api_key", "", "this server needs a key, as in Authorization: Bearer KEY");
}

bool guard_check(request *r, problem *p) {
    bool by_header = false;
    problem key_problem = {.status = 0};
    bool known = identify(r, &by_header, &key_problem);
    if (!by_header && !r->metrics && !is_our_host(r, header_of(r, "host")))
        return set_problem(p, 403, "forbidden_host", "",
                           "the server is not known by this name in Host; --allow-host adds names");
    if (!check_origin(r, p)) return false;
    /* A browser sends no key with OPTIONS. At --metrics-listen there is nothing that needs one. */
    bool open = r->metrics || strcmp(r->method, "OPTIONS") == 0 ||
                (r->route && r->route->flags & (OPEN | FILES | PAGE));
    if (!known && !open) *p = key_problem;
    return known || open;
}
