/* wire.h: messages between the front and a worker, on a socket pair. A message is a JSON object and, for some types,
 * bytes: 4 bytes length of the JSON, 4 bytes length of the bytes (both little-endian), the JSON, the bytes.
 *
 * To the worker:   paint (model, pictures: job, index, settings of each, out, thumb, files, mask; picture, if the
 *                  small picture may follow), cancel (job), plan (ask, model, settings), forget (ask), load (model),
 *                  recode (ask, path, ending)
 * To the front:    model (index, facts), unusable (index, open), ready, free (send the next pictures), beat, begun (job, index;
 *                  with the first picture of a pass, together: their number, most: as many of this kind could be
 *                  made together), later (job, index: not made now), progress (job, index, stage, step, steps,
 *                  done), preview (job, index, step, steps; bytes), done (job,
 *                  index, together, seconds, facts of the picture), thumb (picture: the small one is written, or cannot be), failed
 *                  (job, index, code, message), planned (ask, the plan or an error), recoded (ask; bytes, or a code) */
#ifndef LZ_SERVE_WIRE_H
#define LZ_SERVE_WIRE_H

#include <jansson.h>

#include "text.h"

enum { WIRE_JSON = 16 << 20, WIRE_BYTES = 64 << 20 }; /* most bytes of either part */

/* Adds a message to a buffer; releases the object. */
bool wire_add(buffer *to, json_t *object, const void *bytes, size_t size);
/* Takes the first message out of a buffer. 1: *object and *bytes are filled, and the caller releases and frees them;
 * 0: the message is not complete; -1: it is not a message. */
int wire_take(buffer *from, json_t **object, buffer *bytes);

#endif
