/* value.h: a metadata value of a weight file: a number, a text, or a list of either. Lists stay in the mapped file (a
 * tokenizer has 150000 texts) and are read item by item. */
#ifndef LZ_VALUE_H
#define LZ_VALUE_H

#include "base/base.h"

/* The numbers are those of GGUF. */
typedef enum lz_value_type {
    LZ_VALUE_U8,
    LZ_VALUE_I8,
    LZ_VALUE_U16,
    LZ_VALUE_I16,
    LZ_VALUE_U32,
    LZ_VALUE_I32,
    LZ_VALUE_F32,
    LZ_VALUE_BOOL,
    LZ_VALUE_TEXT,
    LZ_VALUE_LIST,
    LZ_VALUE_U64,
    LZ_VALUE_I64,
    LZ_VALUE_F64,
    LZ_VALUE_TYPES
} lz_value_type;

typedef struct lz_value {
    lz_value_type type; /* of an item. LZ_VALUE_LIST: a list of lists, which is not supported */
    bool list;
    int64_t count;    /* number of items; 1 if it is not a list */
    const char *data; /* the first item, as stored in GGUF. All items are inside the file, which was checked */
} lz_value;

typedef struct lz_value_item {
    const char *text; /* of a text; without a zero byte at the end */
    int64_t length;
    int64_t integer; /* of integers and bools; a larger u64 is INT64_MAX. Of floats the integer part, saturated */
    double real;     /* of all numbers */
} lz_value_item;

/* The first item. false: there is none, or it is a list itself. */
bool lz_value_first(const lz_value *value, lz_value_item *item);
typedef struct lz_value_place {
    int64_t index, offset; /* of the next item; both begin as 0 */
} lz_value_place;
/* Reads the item at this position and advances the position. false: no more items. */
bool lz_value_next(const lz_value *value, lz_value_place *at, lz_value_item *item);

/* The value for people: the text itself if it is short, "[3 texts]" for a list. The caller frees it with lz_host_free.
 * NULL: out of memory. */
char *lz_value_text(lz_context *ctx, const lz_value *value);

int lz_value_size(lz_value_type type); /* bytes of a number; 0: text or list */

#endif
