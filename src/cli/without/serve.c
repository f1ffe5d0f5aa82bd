/* serve.c: for builds without libmicrohttpd or SQLite. */
#include "../cli.h"

int serve_command(const arguments *args) {
    return fail(args, FAILED, "this lazuli was built without the server, which needs libmicrohttpd and SQLite");
}

int worker_command(const arguments *args) { return serve_command(args); }
