/* fuzz_template.c: any text is a prompt or an error, with and without wildcards, in all combinations too. */
#include <stdlib.h>
#include <string.h>

#include "cli/template.c"  /* NOLINT(bugprone-suspicious-include): it is not in the library */
#include "cli/wildcards.c" /* NOLINT(bugprone-suspicious-include) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(char *prompt, const char *error) {
    if ((prompt == NULL) == (*error == 0)) abort();
    if (strlen(error) >= TEMPLATE_ERROR || (prompt && strlen(prompt) > TEMPLATE_BYTES)) abort();
    free(prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char folder[] = "tests/data/seeing"; /* the fuzzer runs from the root of the sources */
    char error[TEMPLATE_ERROR], *text = strndup((const char *)data, size);
    if (!text) return 0;
    bool template = is_template(text, true);
    for (uint64_t seed = 0; seed < 3; seed++) {
        char *prompt = template_expand(text, folder, seed, error);
        if (!template && strchr(text, '{') == NULL && (!prompt || strcmp(prompt, text) != 0)) abort();
        check(prompt, error);
    }
    combinations all = {.n = 0};
    char *next = NULL;
    for (int i = 0; i < 50 && (next = template_next(&all, text, folder, error)); i++) free(next);
    if (!next && *error && strlen(error) < 10) abort();
    combinations_free(&all);
    free(text);
    return 0;
}
