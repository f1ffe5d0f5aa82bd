/* text.c: see text.h. */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static bool make_room(buffer *b, size_t more) {
    if (b->failed || more > SIZE_MAX / 4 || b->size > SIZE_MAX / 4) b->failed = true;
    if (b->failed) return false;
    size_t need = b->size + more + 1, room = b->room ? b->room : 256;
    if (need <= b->room) return true;
    while (room < need) room += room / 2;
    char *data = realloc(b->data, room);
    b->failed = !data;
    if (!data) return false;
    b->data = data;
    b->room = room;
    data[b->size] = 0; /* a buffer to which nothing is added, such as that of empty base64, is a text too */
    return true;
}

bool buffer_add(buffer *b, const void *data, size_t size) {
    if (!make_room(b, size)) return false;
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = 0;
    return true;
}

bool buffer_print(buffer *b, const char *format, ...) {
    va_list list;
    char *text = NULL;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    bool good = n >= 0 && buffer_add(b, text, (size_t)n);
    if (n < 0) b->failed = true;
    if (n >= 0) free(text);
    return good;
}

void buffer_drop(buffer *b, size_t size) {
    if (size > b->size) size = b->size;
    if (!size) return;
    memmove(b->data, b->data + size, b->size - size + 1);
    b->size -= size;
}

void buffer_free(buffer *b) {
    free(b->data);
    *b = (buffer){.data = NULL};
}

/* ---- base64 ------------------------------------------------------------------------------------------------------ */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool base64_add(buffer *to, const void *data, size_t size) {
    const unsigned char *in = data;
    if (size > SIZE_MAX / 8 || !make_room(to, (size + 2) / 3 * 4)) return false;
    char *out = to->data + to->size;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)in[i] << 16 | (n > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (n > 2 ? in[i + 2] : 0);
        for (size_t k = 0; k < 4; k++) *out++ = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out = 0;
    to->size = (size_t)(out - to->data);
    return true;
}

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_read(const char *text, size_t size, buffer *to) {
    if (size % 4 || !make_room(to, size / 4 * 3)) return false;
    for (size_t i = 0; i < size; i += 4) {
        int pad = i + 4 < size ? 0 : (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            int value = k >= 4 - pad ? 0 : value_of(text[i + (size_t)k]);
            if (value < 0) return false;
            bits = bits << 6 | (uint32_t)value;
        }
        if ((pad == 1 && bits & 0xff) || (pad == 2 && bits & 0xffff)) return false;
        const unsigned char three[3] = {(unsigned char)(bits >> 16), (unsigned char)(bits >> 8), (unsigned char)bits};
        if (!buffer_add(to, three, (size_t)(3 - pad))) return false;
    }
    return true;
}

bool data_url_read(const char *text, size_t size, buffer *to) {
    static const char begin[] = "data:", end[] = ";base64";
    const char *comma = memchr(text, ',', size < 128 ? size : 128);
    size_t head = comma ? (size_t)(comma - text) : 0;
    if (head < sizeof begin - 1 + sizeof end - 1 || strncasecmp(text, begin, sizeof begin - 1) != 0) return false;
    if (strncasecmp(comma - (sizeof end - 1), end, sizeof end - 1) != 0) return false;
    return base64_read(comma + 1, size - head - 1, to);
}

/* ---- ids and hashes ---------------------------------------------------------------------------------------------- */

static void random_bytes(unsigned char *to, size_t n) {
    for (size_t got = 0; got < n;) {
        ssize_t more = getrandom(to + got, n - got, 0);
        if (more > 0) got += (size_t)more;
    }
}

void random_letters(char *to, int n) {
    unsigned char bytes[64];
    if (n > (int)sizeof bytes) n = sizeof bytes;
    random_bytes(bytes, (size_t)n);
    for (int i = 0; i < n; i++) to[i] = "abcdefghijklmnopqrstuvwxyz234567"[bytes[i] & 31];
    to[n] = 0;
}

void make_id(char to[ID_BYTES], const char *prefix) {
    char random[27];
    random_letters(random, 26);
    snprintf(to, ID_BYTES, "%.12s%s", prefix, random);
}

bool is_id(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n >= 1 && n <= 64 && !text[n];
}

static void hash(const void *data, size_t size, unsigned char to[32]) {
    unsigned int n = 32;
    memset(to, 0, 32);
    EVP_Digest(data, size, to, &n, EVP_sha256(), NULL);
}

void hash_hex(const void *data, size_t size, char to[65]) {
    unsigned char bytes[32];
    hash(data, size, bytes);
    for (int i = 0; i < 32; i++) snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

bool same_text(const char *a, const char *b) {
    unsigned char one[32], other[32];
    if (!a || !b) return false;
    hash(a, strlen(a), one);
    hash(b, strlen(b), other);
    return CRYPTO_memcmp(one, other, sizeof one) == 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from == '+' ? ' ' : *from;
            continue;
        }
        int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
        if (low < 0 || (!high && !low)) return false;
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = 0;
    return true;
}

bool is_utf8(const char *text, size_t size) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < size;) {
        int more = s[i] < 0x80                   ? 0
                   : s[i] >= 0xc2 && s[i] < 0xe0 ? 1
                   : (s[i] & 0xf0) == 0xe0       ? 2
                   : s[i] >= 0xf0 && s[i] < 0xf5 ? 3
                                                 : -1;
        if (more < 0 || (size_t)more >= size - i) return false;
        for (int k = 1; k <= more; k++)
            if ((s[i + (size_t)k] & 0xc0) != 0x80) return false;
        bool overlong = (s[i] == 0xe0 && s[i + 1] < 0xa0) || (s[i] == 0xf0 && s[i + 1] < 0x90);
        bool outside = (s[i] == 0xed && s[i + 1] > 0x9f) || (s[i] == 0xf4 && s[i + 1] > 0x8f);
        if (overlong || outside) return false;
        i += 1 + (size_t)more;
    }
    return true;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool write_whole(const char *path, const void *data, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = file >= 0;
    for (size_t done = 0; good && done < size;) {
        ssize_t n = write(file, (const char *)data + done, size - done);
        good = n > 0 || (n < 0 && errno == EINTR);
        done += n > 0 ? (size_t)n : 0;
    }
    good = good && fsync(file) == 0;
    if (file >= 0) close(file);
    return good;
}

double wall_seconds(void) { return seconds(CLOCK_REALTIME); }
double steady_seconds(void) { return seconds(CLOCK_MONOTONIC); }
