/* studio.h: the models of a worker process. */
#ifndef LZ_CLI_STUDIO_H
#define LZ_CLI_STUDIO_H

#include "../cli.h"

/* The arguments with one of the models of -m. */
arguments with_model(const arguments *args, int index);
/* Makes pictures for a server, until that closes the socket. Returns an exit code. */
int studio_run(const arguments *args, int socket);

#endif
