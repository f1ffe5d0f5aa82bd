/* images.h: the images of a request. Their bytes are kept as uploads, and the settings of a job name them. */
#ifndef LZ_SERVE_IMAGES_H
#define LZ_SERVE_IMAGES_H

#include "inside.h"

/* Keeps the bytes of an image of the field `name`, and adds its reference to the list. */
bool images_add(request *r, json_t *images, const char *name, const void *data, size_t size, problem *p);
/* Takes "image", "images" and "mask": data URLs, names of uploads and pictures, or objects with an image_url. */
bool images_take(request *r, const json_t *fields, json_t *settings, problem *p);
/* Takes lists of images, and "mask", as base64 without the head of a data URL, or as data URLs. */
bool images_take_bare(request *r, const json_t *fields, const char *const names[2], json_t *settings, problem *p);

#endif
