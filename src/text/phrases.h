/* phrases.h: what is inside of a list of words (vocabulary.h): its phrases. For vocabulary.c, which reads the list, and
 * prompt.c, which reads prompts by it. */
#ifndef LZ_PHRASES_H
#define LZ_PHRASES_H

#include "text/vocabulary.h"

enum { LZ_PHRASE_WORDS = 8, LZ_PHRASE_BYTES = 128 }; /* the most, with a zero byte */

/* In this order the phrases with the same text stand in the list. */
typedef enum lz_meaning { LZ_KNOWN, LZ_READ_AS, LZ_NEAR } lz_meaning;
enum { LZ_ONE = 1, LZ_MANY = 2 }; /* of a KNOWN that has a plural, and of that plural */

typedef struct lz_phrase {
    const char *text;   /* in lower case, words separated by one space */
    const char *target; /* the first KNOWN of its line, or "" */
    const char *plural; /* the second one; if there is none, the first */
    lz_meaning meaning;
    int number;        /* LZ_ONE, LZ_MANY or both */
    bool needs_after;  /* it refers to a phrase after it: "big ..." */
    bool needs_before; /* it refers to a phrase before it: "... style"; both: it joins two, "... in ..." */
    bool counts;       /* it says how many: "two ..." */
    bool drops;        /* it is removed with the phrase after it: "without ..." */
    bool edits;        /* it changes a picture: "make it ..." */
    bool extends;      /* after something that was removed so, the same is done here: "... or ..." */
} lz_phrase;

struct lz_vocabulary {
    lz_context *ctx;
    char *text;         /* contents of the file */
    char *normal;       /* the phrases, each ended by a zero byte */
    lz_phrase *phrases; /* sorted by text and meaning */
    size_t n;
    bool omits;               /* unknown words are removed from prompts */
    bool has_things;          /* some KNOWN have plurals */
    const char *usual_number; /* is written before a plural without a number; NULL: nothing is */
};

/* A copy of the prompt, without brackets and weights if the list removes unknown words. The caller frees it; NULL: an
 * error. */
char *lz_vocabulary_plain(const lz_vocabulary *w, const char *prompt, lz_error *err);

/* The first phrase with this text that is KNOWN or READ_AS; NULL: none. */
const lz_phrase *lz_phrase_find(const lz_vocabulary *w, const char *text);

/* A part of a prompt: the longest phrase that begins at a word, or one unknown word (phrase is NULL). begin == end: the end
 * of the prompt. */
typedef struct lz_said {
    const char *begin, *end;
    const lz_phrase *phrase;
} lz_said;
lz_said lz_next_said(const lz_vocabulary *w, const char *at, const char *end);

#endif
