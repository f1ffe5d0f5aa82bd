/* json_lists.h: reads the long lists of a tokenizer's JSON, of 150,000 entries each, without a value in memory for every
 * entry, which takes most of the time of opening. These functions take what files usually have, and nothing that is not
 * JSON; for all else they return false, and the caller reads the file with a full parser, which also tells the errors. */
#ifndef LZ_JSON_LISTS_H
#define LZ_JSON_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lz_json_range {
    const char *begin, *end; /* begin NULL: none */
} lz_json_range;

/* The value of the first member of an object with this name. Only brackets and quotation marks are looked at. */
lz_json_range lz_json_member(lz_json_range object, const char *name);

typedef struct lz_json_reader {
    const char *at, *end;
    const char *text; /* the last string, n bytes, not ended by a zero byte */
    size_t n;
    char copy[256]; /* of a string with escapes */
} lz_json_reader;

bool lz_json_sign(lz_json_reader *r, char sign); /* skips blanks and then this sign; false: it is not there */
bool lz_json_string(lz_json_reader *r);          /* the caller checks that the text is UTF-8 */
bool lz_json_ends(const lz_json_reader *r);      /* are only blanks left? */
bool lz_json_id(lz_json_reader *r, int32_t *id); /* a whole number from 0 to 999,999,999 */

#endif
