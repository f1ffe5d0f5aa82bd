/* s3.c: see s3.h. Requests are signed by libcurl (AWS Signature Version 4), with the SHA-256 of the body. */
#include "s3.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../environment.h"
#include "serve/text.h"

enum { TRIES = 3, SECONDS = 20, PATIENCE = 10, CONNECT_SECONDS = 3, MOST_BYTES = 256 << 20, ADDRESS = 1024 };

struct s3 {
    CURL *easy;
    char base[ADDRESS]; /* ENDPOINT/BUCKET/PREFIX */
    char signature[96], region[48];
    const char *key, *secret, *token; /* token: or NULL */
    double refused;                   /* steady: when the store did not answer; 0: it did */
    void (*tick)(void *with);         /* while a request waits; or NULL */
    void *with;
};

static bool is_name(const char *text, size_t n, const char *also) {
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", text[i]) &&
            !strchr(also, text[i]))
            return false;
    return n > 0 && n <= 200;
}

int s3_open(const arguments *args, const char *where, const char *endpoint, s3 **to) {
    const char *bucket = where + strlen("s3://"), *region = environment_value("AWS_REGION");
    size_t n = strcspn(bucket, "/");
    const char *prefix = bucket[n] ? bucket + n + 1 : "";
    size_t m = strlen(prefix);
    while (m && prefix[m - 1] == '/') m--;
    if (!region) region = environment_value("AWS_DEFAULT_REGION");
    if (!region) region = "us-east-1";
    if (!is_name(bucket, n, ".") || (m && !is_name(prefix, m, "._/")) || strstr(bucket, ".."))
        return fail(args, NOT_UNDERSTOOD, "--pictures takes a folder, or s3://BUCKET/PREFIX, not '%s'", where);
    if (endpoint && (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0))
        return fail(args, NOT_UNDERSTOOD, "--s3-endpoint takes an address such as https://s3.example, not '%s'",
                    endpoint);
    const char *key = environment_value("AWS_ACCESS_KEY_ID"), *secret = environment_value("AWS_SECRET_ACCESS_KEY");
    if (!key || !secret) return fail(args, FAILED, "%s needs $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY", where);
    s3 *s = calloc(1, sizeof *s);
    if (!s || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(s->easy = curl_easy_init())) {
        free(s);
        return fail(args, FAILED, "out of memory");
    }
    s->key = key;
    s->secret = secret;
    s->token = environment_value("AWS_SESSION_TOKEN");
    snprintf(s->region, sizeof s->region, "%s", region);
    snprintf(s->signature, sizeof s->signature, "aws:amz:%s:s3", s->region);
    int end = endpoint ? (int)strlen(endpoint) : 0;
    while (end && endpoint[end - 1] == '/') end--;
    if (endpoint)
        snprintf(s->base, sizeof s->base, "%.*s/%.*s", end > 400 ? 400 : end, endpoint, (int)n, bucket);
    else
        snprintf(s->base, sizeof s->base, "https://s3.%s.amazonaws.com/%.*s", s->region, (int)n, bucket);
    if (m) snprintf(s->base + strlen(s->base), sizeof s->base - strlen(s->base), "/%.*s", (int)m, prefix);
    *to = s;
    return DONE;
}

void s3_close(s3 *s) {
    if (!s) return;
    curl_easy_cleanup(s->easy);
    free(s);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

typedef struct body {
    buffer data;
    size_t sent;
} body;

static size_t on_read(char *to, size_t size, size_t n, void *user) {
    body *b = user;
    size_t left = b->data.size - b->sent, most = size * n < left ? size * n : left;
    if (most) memcpy(to, b->data.data + b->sent, most);
    b->sent += most;
    return most;
}

static size_t on_write(char *data, size_t size, size_t n, void *user) {
    body *b = user;
    if (b->data.size + size * n > MOST_BYTES || !buffer_add(&b->data, data, size * n)) return 0;
    return size * n;
}

/* Processes that are started later do not inherit the socket. */
static int on_socket(void *user, curl_socket_t socket, curlsocktype purpose) {
    (void)user, (void)purpose;
    return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

/* libcurl calls it about once a second, and when bytes have come or gone. */
static int on_progress(void *user, curl_off_t all, curl_off_t come, curl_off_t all_sent, curl_off_t sent) {
    const s3 *s = user;
    (void)all, (void)come, (void)all_sent, (void)sent;
    if (s->tick) s->tick(s->with);
    return 0;
}

/* One request. in: the body that is sent, or NULL. Returns the status of HTTP; 0: there was no answer. */
static long ask(s3 *s, const char *method, const char *name, body *in, body *out, bool only_new) {
    char url[ADDRESS + 256], hash[65], digest[96], user[300], *token = NULL;
    struct curl_slist *headers = NULL;
    CURL *easy = s->easy;
    const char *certificates = environment_value("CURL_CA_BUNDLE");
    long status = 0;
    if (!certificates) certificates = environment_value("SSL_CERT_FILE");
    snprintf(url, sizeof url, "%s/%s", s->base, name);
    snprintf(user, sizeof user, "%s:%s", s->key, s->secret);
    hash_hex(in && in->data.data ? in->data.data : "", in ? in->data.size : 0, hash);
    snprintf(digest, sizeof digest, "x-amz-content-sha256: %s", hash);
    headers = curl_slist_append(headers, digest);
    if (only_new) headers = curl_slist_append(headers, "If-None-Match: *");
    if (s->token) {
        if (asprintf(&token, "x-amz-security-token: %s", s->token) < 0) token = NULL;
        if (token) headers = curl_slist_append(headers, token);
        free(token);
    }
    if (in) in->sent = 0;
    out->data.size = 0;
    curl_easy_reset(easy);
    bool good = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, s->signature) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_USERPWD, user) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_USERAGENT, "lazuli/" LZ_VERSION) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_XFERINFODATA, s) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_TIMEOUT, (long)SECONDS) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write) == CURLE_OK &&
                curl_easy_setopt(easy, CURLOPT_WRITEDATA, out) == CURLE_OK &&
                (!certificates || curl_easy_setopt(easy, CURLOPT_CAINFO, certificates) == CURLE_OK);
    if (good && strcmp(method, "HEAD") == 0) good = curl_easy_setopt(easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
    if (good && in)
        good = curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_READDATA, in) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)in->data.size) == CURLE_OK;
    if (good && curl_easy_perform(easy) == CURLE_OK) curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

/* The same, again if the store fails in a way that passes. While it does not answer, it is asked once a second. */
static long ask_again(s3 *s, const char *method, const char *name, body *in, body *out, bool only_new) {
    long status = 0;
    if (s->refused > 0 && steady_seconds() - s->refused < 1) return 0;
    double begun = steady_seconds();
    for (int i = 0; i < TRIES && steady_seconds() - begun < PATIENCE; i++) {
        if (i) usleep(200000u << i);
        status = ask(s, method, name, in, out, only_new);
        if (status && status != 409 && status != 429 && status < 500) break; /* 409: another writes it now */
    }
    s->refused = status ? 0 : steady_seconds();
    return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool load(const char *path, buffer *to) {
    FILE *file = fopen(path, "rb");
    char piece[65536];
    size_t n;
    bool good = file;
    while (good && (n = fread(piece, 1, sizeof piece, file)) > 0)
        good = to->size + n <= MOST_BYTES && buffer_add(to, piece, n);
    good = good && !ferror(file);
    if (file) fclose(file);
    return good;
}

static bool save(const char *path, const buffer *from) {
    char *part = NULL;
    if (asprintf(&part, "%s.part%d", path, (int)getpid()) < 0) return false;
    FILE *file = fopen(part, "wb");
    bool good = file && fwrite(from->data ? from->data : "", 1, from->size, file) == from->size;
    good = file && fclose(file) == 0 && good && rename(part, path) == 0;
    if (!good) unlink(part);
    free(part);
    return good;
}

static bool put(void *user, const char *name, const char *path) {
    body in = {.sent = 0}, out = {.sent = 0};
    long status = load(path, &in.data) ? ask_again(user, "PUT", name, &in, &out, true) : 0;
    if (status == 501 || status == 400)
        status = ask_again(user, "PUT", name, &in, &out, false); /* no conditions there */
    if (status == 409) status = ask_again(user, "HEAD", name, NULL, &out, false);
    buffer_free(&in.data);
    buffer_free(&out.data);
    return status / 100 == 2 || status == 412; /* 412: another was first */
}

static far_result get(void *user, const char *name, const char *path) {
    body out = {.sent = 0};
    long status = ask_again(user, "GET", name, NULL, &out, false);
    bool good = status == 200 && !out.data.failed && save(path, &out.data);
    buffer_free(&out.data);
    return good ? FAR_HERE : status == 404 ? FAR_NONE : FAR_AWAY;
}

static void remove_file(void *user, const char *name) {
    body out = {.sent = 0};
    ask_again(user, "DELETE", name, NULL, &out, false);
    buffer_free(&out.data);
}

static void watch(void *user, void (*tick)(void *with), void *with) {
    s3 *s = user;
    s->tick = tick;
    s->with = with;
}

far_files s3_files(s3 *s) {
    return (far_files){.user = s, .put = put, .get = get, .remove = remove_file, .watch = watch};
}
