/* words.h: splits a prompt into words. A word is an emoji, or a run of letters, digits, apostrophes and hyphens. Marks that
 * only change how an emoji looks (U+FE0F and U+FE0E ask for its coloured or plain form, U+1F3FB to U+1F3FF for a tone of the
 * skin) are no words and change none. All functions read from `at` up to `end`. */
#ifndef LZ_WORDS_H
#define LZ_WORDS_H

#include <stdbool.h>

/* A range of text; begin == end: empty. */
typedef struct lz_span {
    const char *begin, *end;
} lz_span;

lz_span lz_next_word(const char *at, const char *end); /* begin == end: there is none */
/* Writes a word as lists of words have it: in lower case, and without marks. Returns the end of what is written, which is
 * not longer than the word. */
char *lz_normal_word(lz_span word, char *to);
char lz_ascii_lower(char c); /* other characters stay */
/* Bytes of a character that is an emoji or another sign, U+2190 to U+2BFF or U+1F000 to U+1FFFF; 0: it is none. */
int lz_sign_bytes(const char *at, const char *end);
/* Bytes of an apostrophe or a hyphen, which belong to a word only inside of it; 0: it is none. */
int lz_inner_bytes(const char *at, const char *end);
bool lz_is_blank(char c);
int lz_space_bytes(const char *at, const char *end); /* bytes of a blank or a quotation mark; 0: it is none */
int lz_divider_bytes(const char *at,
                     const char *end); /* bytes of a sign between things, , & + / | ; or a dash; 0: none */
bool lz_only_spaces(const char *at, const char *end);      /* blanks and quotation marks: japanese “here” button */
bool lz_only_apostrophes(const char *at, const char *end); /* these and apostrophes: cats' eyes */
/* Copies a prompt without what other programs read as weights: brackets, also those after a backslash, and ":1.2". Each
 * becomes a blank, unless there is one beside it; at the end, blanks and "," ":" ";" before it go, too. Returns the end of the copy, which is not longer than the prompt. */
char *lz_plain_prompt(const char *prompt, char *to);

#endif
