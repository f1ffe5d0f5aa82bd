/* wire.c: see wire.h. */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 8 };

static void put(unsigned char *to, size_t value) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> (8 * i));
}

static size_t get(const char *from) {
    size_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | (unsigned char)from[i];
    return value;
}

bool wire_add(buffer *to, json_t *object, const void *bytes, size_t size) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    size_t n = text ? strlen(text) : 0;
    unsigned char head[HEAD];
    put(head, n);
    put(head + 4, size);
    bool good = text && n <= WIRE_JSON && size <= WIRE_BYTES && buffer_add(to, head, HEAD) && buffer_add(to, text, n) &&
                buffer_add(to, bytes, size);
    free(text);
    json_decref(object);
    return good;
}

int wire_take(buffer *from, json_t **object, buffer *bytes) {
    *object = NULL;
    *bytes = (buffer){.data = NULL};
    if (from->size < HEAD) return 0;
    size_t n = get(from->data), size = get(from->data + 4);
    if (n > WIRE_JSON || size > WIRE_BYTES) return -1;
    if (from->size < HEAD + n + size) return 0;
    *object = json_loadb(from->data + HEAD, n, 0, NULL);
    bool good = json_is_object(*object) && (!size || buffer_add(bytes, from->data + HEAD + n, size));
    buffer_drop(from, HEAD + n + size);
    if (good) return 1;
    json_decref(*object);
    *object = NULL;
    buffer_free(bytes);
    return -1;
}
