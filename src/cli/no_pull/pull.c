/* pull.c, where there is no libcurl to build with. */
#include "cli.h"

int pull_command(const arguments *args) {
    return fail(args, FAILED,
                "this lazuli was built without download support: pull '%s' with another one, or with 'hf download', "
                "and it will be found in the Hugging Face cache",
                args->words[0]);
}
