/* text.h: growing buffers, base64, ids, hashes, clocks. */
#ifndef LZ_SERVE_TEXT_H
#define LZ_SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
    char *data; /* ended by a zero that is not counted; NULL if nothing was added */
    size_t size, room;
    bool failed; /* memory ran out; later additions do nothing */
} buffer;
bool buffer_add(buffer *b, const void *data, size_t size);
__attribute__((format(printf, 2, 3))) bool buffer_print(buffer *b, const char *format, ...);
void buffer_drop(buffer *b, size_t size); /* removes the first bytes */
void buffer_free(buffer *b);

bool base64_add(buffer *to, const void *data, size_t size);
/* Strict: only the alphabet of RFC 4648, complete groups, padding at the end only, zero bits after the last byte. */
bool base64_read(const char *text, size_t size, buffer *to);
/* "data:image/png;base64,...": decodes what follows the comma. false: it is not such a URL. */
bool data_url_read(const char *text, size_t size, buffer *to);

enum { ID_BYTES = 40 };
void make_id(char to[ID_BYTES], const char *prefix);       /* prefix and 26 random characters of a-z, 2-7 */
void random_letters(char *to, int n);                      /* the same without prefix, and a zero */
bool is_id(const char *text);                              /* 1 to 64 of a-z, 0-9, _ */
void hash_hex(const void *data, size_t size, char to[65]); /* SHA-256 */
bool same_text(const char *a, const char *b);              /* compares hashes, so the time tells nothing; NULL: false */

/* Decodes %41 and + in place. false: a % without two digits, or a zero byte. */
bool unescape(char *text);
bool is_utf8(const char *text, size_t size);

bool write_whole(const char *path, const void *data, size_t size); /* a file, flushed to the disk */

double wall_seconds(void);   /* since 1970 */
double steady_seconds(void); /* never goes back */

#endif
