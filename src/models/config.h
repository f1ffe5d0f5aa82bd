/* config.h: reads the JSON files of a model folder. If a value is missing, of the wrong type or out of range, lz_config
 * stores the first error; callers read all values and then check once.
 *
 * An unknown field may change the picture. So a configuration remembers which keys were read, and lz_config_refuse_rest
 * refuses the others by name. */
#ifndef LZ_CONFIG_H
#define LZ_CONFIG_H

#include <jansson.h>

#include "base/base.h"

typedef struct lz_config {
    lz_context *ctx;
    char *path;
    json_t *root;
    json_t *asked; /* the keys that were read; for an inner object, a member of the outer object's `asked` */
    lz_error err;  /* the first one */
} lz_config;

#define LZ_REQUIRED INT64_MIN
#define LZ_CONFIG_MAX_BYTES (16 << 20) /* of a file; published files have a few thousand bytes */

lz_status lz_config_open(lz_config *c, lz_context *ctx, const char *folder, const char *file, lz_error *err);
/* The same for a JSON object, of which it takes ownership; NULL: out of memory. path: for errors. */
lz_status lz_config_of(lz_config *c, lz_context *ctx, const char *path, json_t *root, lz_error *err);
void lz_config_close(lz_config *c);
lz_status lz_config_end(lz_config *c, lz_error *err); /* closes it and returns the first error */

int64_t lz_config_int(lz_config *c, const char *key, int64_t otherwise, int64_t low,
                      int64_t high); /* null: otherwise */
double lz_config_real(lz_config *c, const char *key, double otherwise);
bool lz_config_bool(lz_config *c, const char *key, bool otherwise);
const char *lz_config_text(lz_config *c, const char *key); /* NULL: not there */
/* The index in names (ended by NULL) of a key's value, or of all values of a list; 0: not there. Other values are
 * refused. */
int lz_config_choice(lz_config *c, const char *key, const char *const *names);
int lz_config_ints(lz_config *c, const char *key, int64_t *to, int most, int64_t low,
                   int64_t high);                                         /* how many; 0: not there */
int lz_config_reals(lz_config *c, const char *key, double *to, int most); /* how many; 0: not there */
/* Refuses numbers of a list by which the model divides, unless each is above 0 and below 1000000. */
void lz_config_check_divisors(lz_config *c, const char *key, const float *values, int64_t n);
/* The object of a key, which is read the same way and must not be closed; its root is NULL if there is none. */
lz_config lz_config_inside(lz_config *c, const char *key);

/* Refuses, by name, fields that were not read, except null, names that begin with '_', and the harmless ones (a list
 * ended by NULL, or NULL). */
void lz_config_refuse_rest(lz_config *c, const char *const *harmless);
/* The same for a text encoder or its vision tower, in the format of transformers: has a list of harmless fields, and
 * refuses other kinds of activation, attention and layers than those implemented. */
void lz_config_refuse_rest_of_transformers(lz_config *c);

/* The same for the fields beside an inner object, such as text_config. Fields that the inner object has too are copies,
 * which some versions of transformers wrote and none reads. */
void lz_config_refuse_rest_beside(lz_config *c, const lz_config *inner);

/* Sets an error, unless there is one: "<path>: " and this text. */
void lz_config_refuse(lz_config *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
