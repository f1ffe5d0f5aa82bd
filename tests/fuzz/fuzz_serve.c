/* fuzz_serve.c: bytes from the network are a request or an error. The first byte selects the parser:
 *     m  a form (boundary xyz)            b  base64              u  a data URL
 *     i  the header of an image           e  an escaped query    w  a message of the worker
 *     o  JSON to a job of OpenAI's API    n  of /api/v1          s  of /sdapi */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "serve/inside.h"
#include "serve/measure.h"
#include "serve/multipart.h"
#include "serve/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static front *start(void) {
    static char folder[] = "/tmp/lazuli-fuzz-XXXXXX";
    static serve_options options = {.max_pixels = 4194304, .n_models = 1, .models = {"demo"}};
    static front f = {.options = &options, .n_models = 1};
    char why[300];
    if (f.state) return &f;
    f.epoll = epoll_create1(EPOLL_CLOEXEC); /* the store tells it what is on the disk */
    options.state = mkdtemp(folder);
    if (!options.state || !files_open(&f, why, sizeof why)) abort();
    f.models[0] = (model){.id = "demo", .known = true, .width = 256, .height = 256, .steps = 8, .most_images = 4};
    return &f;
}

static void fuzz_job(const char *text, size_t size, char family) {
    request r = {.front = start()};
    problem p = {.status = 0};
    json_t *fields = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(fields)) {
        json_decref(fields);
        return;
    }
    json_t *settings = family == 'n'   ? wanted_native(&r, fields, &p)
                       : family == 's' ? wanted_sdapi(&r, fields, size % 2, &p)
                                       : wanted_openai(&r, fields, size % 2, &p);
    if (!settings && (!p.status || !p.code || !*p.text)) abort();
    if (settings) {
        job *j = job_new(r.front, &r.who, FROM_API, settings);
        if (!j || j->n < 1 || j->n > MOST_PICTURES || j->model < 0) abort();
        job_free(j);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    char *text = malloc(size);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    size_t n = size - 1;
    form_part parts[PARTS];
    const char *why = NULL;
    buffer out = {.data = NULL}, bytes = {.data = NULL};
    int64_t width, height;
    json_t *object = NULL;
    switch (*data) {
    case 'm':
        if (multipart_read(text, n, "xyz", parts, &why) < 0 && !why) abort();
        break;
    case 'b': base64_read(text, n, &out); break;
    case 'u': data_url_read(text, n, &out); break;
    case 'i':
        if (measure_image(text, n, &width, &height) && (width < 1 || height < 1)) abort();
        image_is_whole(text, n);
        break;
    case 'e': unescape(text); break;
    case 'w':
        buffer_add(&out, text, n);
        while (wire_take(&out, &object, &bytes) > 0) {
            json_decref(object);
            buffer_free(&bytes);
        }
        break;
    case 'o':
    case 's':
    case 'n': fuzz_job(text, n, (char)*data); break;
    default: break;
    }
    buffer_free(&out);
    free(text);
    return 0;
}
