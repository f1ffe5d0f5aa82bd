/* multipart.h: multipart/form-data (RFC 7578) that is whole in memory. */
#ifndef LZ_SERVE_MULTIPART_H
#define LZ_SERVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

enum { PARTS = 40, PART_NAME = 64, BOUNDARY = 70 };

typedef struct form_part {
    char name[PART_NAME];
    bool is_file; /* it has a file name */
    const char *data;
    size_t size;
} form_part;

/* The boundary in a Content-Type. false: it is not multipart/form-data, or the boundary is not allowed. */
bool multipart_boundary(const char *type, char boundary[BOUNDARY + 1]);
/* Fills parts, whose data points into body. Returns their number; -1: the body is not as it must be, and *why says
 * what is wrong. */
int multipart_read(const char *body, size_t size, const char *boundary, form_part parts[PARTS], const char **why);

#endif
