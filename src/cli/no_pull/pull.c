/* pull.c: for builds without libcurl. */
#include "cli.h"

int pull_command(const arguments *args) {
    return fail(args, FAILED,
                "this lazuli was built without download support; if another program, such as 'hf download', puts '%s' "
                "into the Hugging Face cache, lazuli finds it there",
                args->words[0]);
}
