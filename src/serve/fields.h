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
    double low, high;    /* of numbers; of TEXT: high is the most bytes */
    const char *to;      /* key in the settings; NULL: as name */
    const char *choices; /* of TEXT: the values that are allowed, separated by blanks; NULL: any */
} field;

/* The fields of the three families; wanted.c. */
extern const field openai_fields[], native_fields[], sdapi_fields[];

/* Checks the fields by the table (ended by a name of NULL) and copies what is TAKEN to settings. null is the same as
 * leaving a field out. Unknown fields are noted as ignored, or refused if strict. */
bool take_fields(request *r, const field *table, const json_t *fields, json_t *settings, bool strict, problem *p);
/* Calls each with a value of choices and its length, in their order. */
void each_choice(const field *f, void (*each)(void *user, const char *word, size_t n), void *user);
/* Notes the fields of a request that give this setting as ignored. */
void note_fields(request *r, const field *table, const json_t *fields, const char *setting);
/* The fields that an answer can repeat: those of the table that have been checked, and up to 64 others that are short: no
 * lists and objects, and no texts of more than 4 KiB. */
json_t *short_fields(const field *table, const json_t *fields);
/* A form's text as the JSON that the table wants; NULL: p says why. */
json_t *form_value(const field *table, const char *name, const char *text, size_t size, problem *p);

#endif
