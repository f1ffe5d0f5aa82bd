/* fields.h: the fields of a request, as a table. */
#ifndef LZ_SERVE_FIELDS_H
#define LZ_SERVE_FIELDS_H

#include "inside.h"

enum { MOST_PROMPT = 32000 }; /* characters */
typedef enum field_kind { TEXT, INTEGER, NUMBER, FLAG, ANYTHING } field_kind;
typedef enum field_use {
    TAKEN,       /* checked, and stored in the settings under `to` */
    LOOKED_AT,   /* checked; the family's code does the rest */
    NO_EFFECT,   /* accepted, and told in x-lazuli-ignored */
    UNSUPPORTED, /* refused by name */
} field_use;

typedef struct field {
    const char *name;
    field_kind kind;
    field_use use;
    double low, high; /* of numbers; of TEXT: high is the most bytes */
    const char *to;   /* key in the settings; NULL: as name */
} field;

/* The fields of the three families; wanted.c. */
extern const field openai_fields[], native_fields[], sdapi_fields[];

/* Checks the fields by the table (ended by a name of NULL) and copies what is TAKEN to settings. null is the same as
 * leaving a field out. Unknown fields are noted as ignored, or refused if strict. */
bool take_fields(request *r, const field *table, const json_t *fields, json_t *settings, bool strict, problem *p);
/* A form's text as the JSON that the table wants; NULL: p says why. */
json_t *form_value(const field *table, const char *name, const char *text, size_t size, problem *p);

#endif
