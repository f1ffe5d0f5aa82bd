/* s3.h: pictures and uploads of a fleet in a bucket of S3, or of a store that speaks the same, by libcurl. */
#ifndef LZ_CLI_S3_H
#define LZ_CLI_S3_H

#include "serve/serve.h"

#include "../cli.h"

typedef struct s3 s3;
/* where: s3://BUCKET or s3://BUCKET/PREFIX. The keys come from $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY. Returns
 * an exit code, after reporting the error. */
int s3_open(const arguments *args, const char *where, const char *endpoint, s3 **to);
void s3_close(s3 *s);
far_files s3_files(s3 *s);

#endif
