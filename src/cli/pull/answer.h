/* answer.h: what is read of the head of an answer. Its lines are untrusted. */
#ifndef LZ_CLI_ANSWER_H
#define LZ_CLI_ANSWER_H

#include <stddef.h>
#include <stdint.h>

typedef struct answer_head {
    int64_t range_begin; /* of Content-Range; -1: none */
    double retry_after;  /* seconds; 0: not given */
    char next[1024];     /* the address of the next page of a list, or "" */
} answer_head;

void answer_line(answer_head *h, const char *line, size_t n); /* takes a line of n bytes, not ended by 0 */

#endif
