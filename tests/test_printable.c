/* test_printable.c: lz_printable removes control characters, so that untrusted text cannot control a terminal. */
#include <string.h>

#include "check.h"

static void masks(void) {
    static const struct {
        const char *given, *wanted;
    } cases[] = {
        {"a red fox", "a red fox"},
        {"", ""},
        {"gr\303\274n \347\213\220 \360\237\246\212", "gr\303\274n \347\213\220 \360\237\246\212"},
        {"\033[2J\a\r\n\t\177", "?[2J?????"},
        {"a\302\233 2J\302\200\302\237\302\240", "a? 2J??\302\240"},      /* C1 as UTF-8; U+00A0 is a space */
        {"a\233 2J\377", "a? 2J?"},                                       /* C1 as a byte */
        {"a\342\200\256b\342\201\246c\342\200\250", "a?b?c\342\200\250"}, /* right to left */
        {"\302", "?"},
        {"\347\213", "??"},
        {"\347\213x", "??x"},
        {"\300\233", "??"},                /* ESC in two bytes */
        {"\340\200\233", "???"},           /* in three */
        {"\355\240\200", "???"},           /* half of a surrogate pair */
        {"\364\220\200\200", "????"},      /* beyond Unicode */
        {"\370\210\200\200\200", "?????"}, /* five bytes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].given);
        CHECK(strcmp(lz_printable(text), cases[i].wanted) == 0, "trap 7: case %zu gives '%s'", i, text);
    }
    CHECK(lz_printable(NULL) == NULL);
}

TEST_MAIN({"masks", masks})
