/* web.c: see web.h. libcurl does the transfers. Redirects are followed here, one request each, so that every address is
 * checked, and the token is sent only where it is allowed. */
#include "pull/web.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "progress.h"
#include "pull/answer.h"
#include "pull/origin.h"

enum {
    TRIES = 6,            /* in a row that bring less than LEAST_GAIN bytes in total, or stall */
    UNKNOWN_TRIES = 2,    /* if the host is not found, and nothing was received yet: there is no network */
    LEAST_GAIN = 1 << 14, /* bytes */
    LEAST_RATE = 1 << 10, /* bytes per second, over web.stall seconds; less counts as a broken connection */
    REDIRECTS = 8,        /* of one try */
    LONGEST_PAUSE = 60,   /* seconds */
    CHATTER = 1 << 20,    /* bytes of an error answer; they are ignored */
    CONNECTING = 30,      /* seconds */
    BUFFER = 1 << 18      /* bytes that libcurl reads at once */
};

typedef enum stage { NEW, WAITING, FLYING, ENDED } stage;

/* A get in progress. */
typedef struct flight {
    web *web;
    get *get;
    stage stage;
    CURL *easy;
    char *at; /* the current address, owned */
    int tries, redirects;
    int64_t furthest; /* get.have when counting of tries began */
    double watched;   /* start of the interval in which arrived is counted */
    int64_t arrived;  /* bytes */
    double due;       /* end of the pause before the next try */
    answer_head head;
    int64_t chatter; /* bytes of an error answer */
    bool unknown;    /* the host was not found */
    bool judged;     /* this answer's status and range were checked */
    verdict verdict; /* of the sink, or of judge(), while bytes arrive */
} flight;

/* The state of web_run. */
typedef struct field {
    web *web;
    CURLM *multi;
    struct curl_slist *secret; /* the header with the token */
    flight *flights;
    size_t n;
    int64_t shown; /* total bytes, for the progress line; 0: no line */
    bool drawn;
    double drawn_at, rate; /* rate: recent bytes per second */
    int64_t received;      /* web.received when the line was drawn */
} field;

/* ---- an answer arrives ------------------------------------------------------------------------------------------- */

static size_t on_header(char *line, size_t one, size_t n, void *user) {
    flight *f = user;
    answer_line(&f->head, line, n * one);
    if (*f->head.next) memcpy(f->get->next, f->head.next, sizeof f->get->next);
    return n * one;
}

__attribute__((format(printf, 2, 3))) static verdict bad(get *g, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(g->error, sizeof g->error, format, list);
    va_end(list);
    return BAD;
}

/* Checks that the answer begins where our bytes end. */
static verdict judge(flight *f, long code) {
    get *g = f->get;
    f->judged = true;
    if (code == 206) return (g->have > 0 || g->head) && f->head.range_begin == g->have ? GOOD : AGAIN;
    g->no_ranges = g->head;
    if (g->have == 0) return GOOD;
    g->have = 0;
    return g->sink->restart(g);
}

static size_t on_bytes(char *data, size_t one, size_t n, void *user) {
    flight *f = user;
    get *g = f->get;
    long code = 0;
    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &code);
    n *= one;
    f->arrived += (int64_t)n;
    if (code != 200 && code != 206) return (f->chatter += (int64_t)n) > CHATTER ? 0 : n;
    if (!f->judged) f->verdict = judge(f, code);
    if (f->verdict == AGAIN) { /* another range than requested: start again from the first byte */
        g->have = 0;
        if (g->sink->restart(g) == BAD) f->verdict = BAD;
    }
    if (f->verdict != GOOD) return 0;
    int64_t room = (g->size >= 0 ? g->size : g->limit) - g->have;
    bool enough = g->head && room >= 0 && (uint64_t)room < n;
    if (enough) n = (size_t)room;
    if (room < 0 || (uint64_t)room < n)
        f->verdict = bad(g, "%s is longer than the %s that the hub %s", g->what,
                         show_bytes(g->size >= 0 ? g->size : g->limit).text, g->size >= 0 ? "lists" : "may send");
    else
        f->verdict = g->sink->take(g, data, n);
    if (f->verdict != GOOD) return 0;
    g->have += (int64_t)n;
    f->web->received += (int64_t)n;
    return enough ? 0 : n; /* 0 ends the transfer */
}

/* ---- a request leaves -------------------------------------------------------------------------------------------- */

/* Additional certificates, from the variables of the hub's tools and curl. */
static const char *own_certificates(void) {
    static const char *const names[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return value;
    }
    return NULL;
}

/* Each request gets a new handle: libcurl does not reuse one after a failed host lookup. Connections belong to the
 * multi handle, and are reused. */
static verdict send_request(field *all, flight *f) {
    get *g = f->get;
    if (f->easy) curl_easy_cleanup(f->easy);
    CURL *easy = f->easy = curl_easy_init();
    char range[40];
    const char *certificates = own_certificates();
    if (!easy) return bad(g, "%s: out of memory", g->what);
    f->watched = seconds_now();
    f->arrived = 0;
    f->head = (answer_head){.range_begin = -1};
    f->chatter = 0;
    f->judged = false;
    f->verdict = GOOD;
    bool known = same_origin(f->at, all->web->endpoint);
    snprintf(range, sizeof range, g->head ? "%lld-%lld" : "%lld-", (long long)g->have, (long long)g->size - 1);
    bool good = curl_easy_setopt(easy, CURLOPT_URL, f->at) == CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075500
    good = good && curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    good = good && curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
    good = good && curl_easy_setopt(easy, CURLOPT_USERAGENT, "lazuli/" LZ_VERSION) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, f) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, f) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, f) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECTING) == CURLE_OK &&
           (!certificates || curl_easy_setopt(easy, CURLOPT_CAINFO, certificates) == CURLE_OK) &&
           ((g->have == 0 && !g->head) || curl_easy_setopt(easy, CURLOPT_RANGE, range) == CURLE_OK) &&
           (!known || !all->secret || curl_easy_setopt(easy, CURLOPT_HTTPHEADER, all->secret) == CURLE_OK) &&
           curl_multi_add_handle(all->multi, easy) == CURLM_OK;
    if (good) f->stage = FLYING;
    return good ? GOOD : bad(g, "%s: libcurl takes no request for %s", g->what, f->at);
}

static verdict go_to(flight *f, const char *address) {
    char *copy = strdup(address);
    if (!copy) return bad(f->get, "%s: out of memory", f->get->what);
    free(f->at);
    f->at = copy;
    return GOOD;
}

/* Starts from the first address again: redirect targets may expire. */
static verdict launch(field *all, flight *f) {
    f->redirects = 0;
    return go_to(f, f->get->url) == GOOD ? send_request(all, f) : BAD;
}

static verdict end_flight(flight *f) {
    f->stage = ENDED;
    if (f->easy) curl_easy_cleanup(f->easy);
    f->easy = NULL;
    f->get->sink->leave(f->get);
    free(f->at);
    f->at = NULL;
    return GOOD;
}

static verdict finish(flight *f);

static verdict start(field *all, flight *f) {
    get *g = f->get;
    f->stage = WAITING;
    verdict v = g->sink->begin(g);
    f->furthest = g->have;
    if (v != GOOD || g->have != g->size) return v == GOOD ? launch(all, f) : v;
    return finish(f) == AGAIN ? launch(all, f) : f->stage == ENDED ? GOOD : BAD;
}

/* ---- an answer has ended ----------------------------------------------------------------------------------------- */

static void clear_drawn(field *all) {
    if (all->drawn) clear_line();
    all->drawn = false;
}

/* Tries again after a pause, unless there were too many tries. stalled: bytes arrived too slowly to count as
 * progress. */
static verdict try_again_after(field *all, flight *f, bool stalled, const char *why) {
    get *g = f->get;
    bool gained = !stalled && g->have - f->furthest >= LEAST_GAIN;
    f->tries = gained ? 1 : f->tries + 1;
    if (gained) f->furthest = g->have;
    int most = f->unknown && !all->web->received ? UNKNOWN_TRIES : TRIES;
    if (f->tries >= most)
        return bad(g, "%s: %s, %d times in a row; run the same command again to continue", g->what, why, f->tries);
    double pause = all->web->pause * (1 << (f->tries - 1));
    if (pause < f->head.retry_after) pause = f->head.retry_after;
    if (pause > LONGEST_PAUSE) pause = LONGEST_PAUSE;
    clear_drawn(all);
    note(all->web->args, "%s: %s; trying again in %s", g->what, why, show_seconds(pause).text);
    f->due = seconds_now() + pause;
    f->stage = WAITING;
    return GOOD;
}

static verdict try_again(field *all, flight *f, const char *why) { return try_again_after(all, f, false, why); }

static verdict follow(field *all, flight *f) {
    get *g = f->get;
    char *to = NULL;
    origin here, there;
    curl_easy_getinfo(f->easy, CURLINFO_REDIRECT_URL, &to);
    if (!to || !origin_of(to, &there) || !origin_of(f->at, &here))
        return bad(g, "%s: the hub redirects to an address that is not http or https", g->what);
    if (strcasecmp(here.scheme, "https") == 0 && strcasecmp(there.scheme, "https") != 0)
        return bad(g, "%s: the hub redirects from https to http, which is not secure", g->what);
    if (++f->redirects > REDIRECTS) return bad(g, "%s: the hub redirects more than %d times", g->what, REDIRECTS);
    return go_to(f, to) == GOOD ? send_request(all, f) : BAD;
}

static verdict finish(flight *f) {
    get *g = f->get;
    verdict v = g->sink->finish(g);
    if (v == GOOD) return end_flight(f);
    if (v == AGAIN) g->have = 0;
    return v;
}

static const struct {
    long code;
    const char *without, *with; /* messages without and with a token */
} refusals[] = {
    {401, "there is no such model, or it is not public; accept its terms on the hub, then set HF_TOKEN",
     "the token is not accepted; is it still valid?"},
    {403, "the model is not public; accept its terms on the hub, then set HF_TOKEN",
     "the token may not read the model; accept its terms on the hub"},
    {404, "there is no such model, revision or file", "there is no such model, revision or file"},
};

static verdict refuse(flight *f, long code) {
    for (size_t i = 0; i < COUNT(refusals); i++)
        if (refusals[i].code == code)
            return bad(f->get, "%s: the hub answered %ld: %s (%s)", f->get->what, code,
                       f->web->token ? refusals[i].with : refusals[i].without, f->web->page);
    return bad(f->get, "%s: the hub answered %ld", f->get->what, code);
}

/* Errors for which trying again is useless, such as a wrong certificate or address. */
static bool is_hopeless(CURLcode result) {
    return result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE ||
           result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_OUT_OF_MEMORY;
}

static verdict landed(field *all, flight *f, CURLcode result) {
    get *g = f->get;
    long code = 0;
    char why[200];
    curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &code);
    curl_multi_remove_handle(all->multi, f->easy);
    f->stage = WAITING;
    f->unknown = result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_RESOLVE_PROXY;
    if (f->verdict == BAD) return BAD;
    if (f->verdict == AGAIN) return try_again(all, f, "the hub sent other bytes than requested");
    if (result == CURLE_WRITE_ERROR && f->chatter > CHATTER) result = CURLE_OK; /* only the status code matters */
    if (result == CURLE_WRITE_ERROR && g->head && g->have == g->size) result = CURLE_OK; /* on_bytes had enough */
    if (is_hopeless(result)) return bad(g, "%s: %s", g->what, curl_easy_strerror(result));
    if (result == CURLE_OK && code >= 300 && code < 400 && code != 304) return follow(all, f);
    if (result != CURLE_OK) {
        origin o = {.host = "of the hub"};
        origin_of(f->at, &o);
        if (result == CURLE_COULDNT_RESOLVE_PROXY) snprintf(o.host, sizeof o.host, "of the proxy");
        if (f->unknown)
            snprintf(why, sizeof why, "the host %.80s was not found (is there a network?)", o.host);
        else
            snprintf(why, sizeof why, "%s (%s)",
                     result == CURLE_COULDNT_CONNECT ? "the hub cannot be reached" : "the connection broke",
                     curl_easy_strerror(result));
        return try_again(all, f, why);
    }
    if (code == 200 || code == 206) {
        if (!f->judged && g->have && code == 200) return try_again(all, f, "the hub sent nothing");
        if (g->size >= 0 && g->have < g->size) return try_again(all, f, "the answer ended early");
        verdict v = finish(f);
        return v == AGAIN ? try_again(all, f, "the downloaded file is damaged") : v;
    }
    if (code == 416) { /* range not satisfiable: the file there is shorter than ours */
        g->have = 0;
        return g->sink->restart(g) == BAD ? BAD : try_again(all, f, "the hub has no such range");
    }
    if (code == 408 || code == 429 || code >= 500) {
        snprintf(why, sizeof why, "the hub answered %ld", code);
        return try_again(all, f, why);
    }
    return refuse(f, code);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void show(field *all) {
    double now = seconds_now(), passed = now - all->drawn_at;
    if (!all->shown || passed < 0.2 || !line_is_due(all->drawn_at)) return;
    int64_t bytes = 0;
    for (size_t i = 0; i < all->n; i++) bytes += all->flights[i].get->have;
    if (all->drawn_at > 0) {
        double rate = (double)(all->web->received - all->received) / passed;
        all->rate = all->rate > 0 ? 0.9 * all->rate + 0.1 * rate : rate;
    }
    all->drawn_at = now;
    all->received = all->web->received;
    char after[160], left[48] = "";
    if (all->rate > 1)
        snprintf(left, sizeof left, ", %s left", show_seconds((double)(all->shown - bytes) / all->rate).text);
    snprintf(after, sizeof after, " %s of %s, %s/s%s", show_bytes(bytes).text, show_bytes(all->shown).text,
             show_bytes((int64_t)all->rate).text, left);
    draw_line("pull", (double)bytes / (double)all->shown, after);
    all->drawn = true;
}

static void forgive_silence(field *all) {
    for (size_t i = 0; i < all->n; i++) all->flights[i].watched = seconds_now();
}

/* Treats stalled transfers as broken. */
static void break_stalled(field *all, verdict *v, get **culprit) {
    double now = seconds_now(), least = all->web->stall;
    for (size_t i = 0; i < all->n && *v == GOOD; i++) {
        flight *f = &all->flights[i];
        if (f->stage != FLYING || now - f->watched < least) continue;
        bool stalled = (double)f->arrived < LEAST_RATE * (now - f->watched);
        f->watched = now;
        f->arrived = 0;
        if (!stalled) continue;
        char why[100];
        snprintf(why, sizeof why, "less than %s a second arrived for %s", show_bytes(LEAST_RATE).text,
                 show_seconds(least).text);
        curl_multi_remove_handle(all->multi, f->easy);
        *culprit = f->get;
        *v = try_again_after(all, f, true, why);
    }
}

/* Starts the gets that are due. Returns the number of unfinished gets. *v is BAD if one has failed. */
static size_t launch_due(field *all, int at_once, verdict *v, get **culprit) {
    size_t open = 0;
    int busy = 0;
    double now = seconds_now();
    for (size_t i = 0; i < all->n; i++) busy += all->flights[i].stage == WAITING || all->flights[i].stage == FLYING;
    for (size_t i = 0; i < all->n && *v == GOOD; i++) {
        flight *f = &all->flights[i];
        *culprit = f->get;
        if (f->stage == NEW && busy < at_once && !stop_wanted()) {
            *v = start(all, f);
            busy += f->stage != ENDED;
            /* It may have hashed a large file, during which the other transfers were not served. */
            forgive_silence(all);
            show(all);
        } else if (f->stage == WAITING && now >= f->due)
            *v = launch(all, f);
        open += f->stage != ENDED;
    }
    return open;
}

/* Handles finished requests. Returns their number. */
static int read_answers(field *all, verdict *v, get **culprit) {
    int left, ended = 0;
    for (CURLMsg *m; *v == GOOD && (m = curl_multi_info_read(all->multi, &left));) {
        flight *f = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode result = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&f);
        *culprit = f->get;
        *v = landed(all, f, result);
        ended++;
    }
    return ended;
}

/* Waits until data arrives or a pause ends, but only briefly, because of Ctrl-C and the progress line. */
static bool wait_a_little(field *all) {
    double most = 0.1, now = seconds_now();
    for (size_t i = 0; i < all->n; i++) {
        const flight *f = &all->flights[i];
        if (f->stage == WAITING && f->due - now < most) most = f->due > now ? f->due - now : 0;
    }
    return curl_multi_poll(all->multi, NULL, 0, (int)(most * 1e3 + 0.999), NULL) == CURLM_OK;
}

static int stopped(const field *all) {
    return fail(all->web->args, STOPPED, "stopped; run the same command again to continue");
}

static int loop(field *all, int at_once) {
    verdict v = GOOD;
    get *culprit = NULL;
    int running;
    bool works = true;
    while (works && launch_due(all, at_once, &v, &culprit) && v == GOOD && !stop_wanted()) {
        works = curl_multi_perform(all->multi, &running) == CURLM_OK;
        if (works && !read_answers(all, &v, &culprit)) works = wait_a_little(all);
        if (works && v == GOOD) break_stalled(all, &v, &culprit);
        show(all);
    }
    clear_drawn(all);
    if (!works) return fail(all->web->args, FAILED, "libcurl failed");
    if (stop_wanted()) return stopped(all);
    return v == GOOD ? DONE : fail(all->web->args, FAILED, "%s", culprit->error);
}

static struct curl_slist *secret_header(const web *w) {
    char *line = NULL;
    if (!w->token || asprintf(&line, "Authorization: Bearer %s", w->token) < 0) return NULL;
    struct curl_slist *list = curl_slist_append(NULL, line);
    free(line);
    return list;
}

int web_run(web *w, get *gets, size_t n, int at_once, int64_t shown) {
    field all = {.web = w, .n = n, .shown = shown, .multi = curl_multi_init(), .secret = secret_header(w)};
    all.flights = calloc(n ? n : 1, sizeof *all.flights);
    int code;
    if (all.multi && all.flights && (all.secret || !w->token)) {
        curl_multi_setopt(all.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING); /* one connection per transfer */
        for (size_t i = 0; i < n; i++) all.flights[i] = (flight){.web = w, .get = &gets[i]};
        code = loop(&all, at_once);
    } else {
        code = fail(w->args, FAILED, "out of memory");
    }
    for (size_t i = 0; i < n && all.flights; i++) {
        flight *f = &all.flights[i];
        if (f->stage == FLYING) curl_multi_remove_handle(all.multi, f->easy);
        if (f->stage == WAITING || f->stage == FLYING) end_flight(f);
    }
    free(all.flights);
    curl_slist_free_all(all.secret);
    curl_multi_cleanup(all.multi);
    return code;
}
