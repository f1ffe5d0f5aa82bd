/* template.h: prompts with choices.
 *
 *     {red|blue} car              one of them; options may contain further choices
 *     {3::red|1::blue} car        red three times as often as blue
 *     {2$$red|blue|green} car     two different ones, joined by ", "; {1-2$$ and $$red|blue} says from, to and joiner
 *     a __colour__ car            a line of colour.txt in the folder of wildcards; lines are templates themselves
 *     \{ \} \| \__                these characters themselves
 *
 * Braces without a bar inside stay as they are, and so does a brace without its other half. Only an opening brace that
 * is followed by a bar and never closed is an error. A prompt that is a JSON object is not a template. */
#ifndef LZ_CLI_TEMPLATE_H
#define LZ_CLI_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TEMPLATE_ERROR = 400,      /* bytes of an error's text */
    TEMPLATE_DEPTH = 32,       /* choices in choices, and files in files */
    TEMPLATE_CHOICES = 1000,   /* that are made for a prompt */
    TEMPLATE_OPTIONS = 100000, /* of a choice; lines of a file */
    TEMPLATE_BYTES = 1 << 20,  /* of the prompt that results */
    WILDCARD_BYTES = 4 << 20,  /* of a file */
    WILDCARD_LINE = 64 << 10,  /* bytes of a line */
};

/* Does expanding the text change it, or can it? wildcards: __name__ counts too. */
bool is_template(const char *text, bool wildcards);

/* Expands a template. The seed decides all choices. folder: of the wildcards; NULL: __name__ stays as it is. The caller
 * frees the prompt. NULL: error has one sentence. */
char *template_expand(const char *text, const char *folder, uint64_t seed, char error[TEMPLATE_ERROR]);

/* All combinations of choices, one after another. */
typedef struct combinations {
    int *chosen, *of; /* owned: for each choice of a prompt, in their order: the option, and the number of options */
    int n, room;
    bool begun;
} combinations;
/* Expands the next combination: weights count only if they are 0, which leaves an option out. NULL with an empty error:
 * there are no more. */
char *template_next(combinations *c, const char *text, const char *folder, char error[TEMPLATE_ERROR]);
void combinations_free(combinations *c);

#endif
