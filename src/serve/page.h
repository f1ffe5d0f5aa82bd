/* page.h: the files of the page, from the folder web. cmake/page.cmake writes the table. */
#ifndef LZ_SERVE_PAGE_H
#define LZ_SERVE_PAGE_H

#include <stddef.h>

typedef struct page_file {
    const char *name, *type, *hash; /* hash: of the plain bytes */
    const unsigned char *plain, *gzip;
    size_t plain_bytes, gzip_bytes;
} page_file;
extern const page_file page_files[]; /* ended by a row without a name */

#endif
