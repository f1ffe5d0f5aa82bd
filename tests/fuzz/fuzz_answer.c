/* fuzz_answer.c: the lines of the head of a hub's answer, which are not ended by 0. */
#include <stdlib.h>
#include <string.h>

#include "cli/pull/answer.c" /* NOLINT(bugprone-suspicious-include): it is not in the library */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    answer_head h = {.range_begin = -1};
    while (size) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) + 1 : size;
        char *line = malloc(n); /* exactly as long, so that reading on is found */
        if (!line) return 0;
        memcpy(line, data, n);
        answer_line(&h, line, n);
        free(line);
        if (h.range_begin < -1 || h.retry_after < 0 || memchr(h.next, 0, sizeof h.next) == NULL) abort();
        data += n;
        size -= n;
    }
    return 0;
}
