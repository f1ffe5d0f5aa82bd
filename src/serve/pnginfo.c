/* pnginfo.c: POST /sdapi/v1/png-info: the settings that a picture carries. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "handlers.h"

/* The bytes of "image": base64, or a data URL. */
static bool take_bytes(const json_t *fields, buffer *to, problem *p) {
    const char *text = json_string_value(json_object_get(fields, "image"));
    if (!text) return set_problem(p, 400, "missing_required_parameter", "image", "image: is missing");
    bool url = strncasecmp(text, "data:", 5) == 0;
    if (url ? data_url_read(text, strlen(text), to) : base64_read(text, strlen(text), to)) return true;
    return set_problem(p, 400, "invalid_image", "image", "image: is not base64");
}

/* Adds "NAME: VALUE, NAME: VALUE, ..." to an object. Size becomes Size-1 and Size-2, as AUTOMATIC1111 has it. */
static void add_pairs(json_t *to, const char *line) {
    while (*line) {
        size_t name = strcspn(line, ":"), value = strcspn(line + name, ",");
        if (!line[name]) return;
        const char *begin = line + name + 1 + strspn(line + name + 1, " ");
        size_t length = begin < line + name + value ? (size_t)(line + name + value - begin) : 0;
        char key[64] = "";
        memcpy(key, line, name < sizeof key ? name : sizeof key - 1);
        size_t width = strcspn(begin, "x");
        if (strcmp(key, "Size") == 0 && width < length) {
            json_object_set_new(to, "Size-1", json_stringn(begin, width));
            json_object_set_new(to, "Size-2", json_stringn(begin + width + 1, length - width - 1));
        } else
            json_object_set_new(to, key, json_stringn(begin, length));
        line += name + value;
        line += strspn(line, ", ");
    }
}

/* The text has the prompt, perhaps the negative prompt, and in its last line the settings. */
static json_t *parse(const char *text) {
    static const char mark[] = "Negative prompt: ";
    json_t *all = json_object();
    const char *last = strrchr(text, '\n');
    const char *settings = last ? last + 1 : text, *end = last ? last : text;
    if (strncmp(settings, "Steps: ", 7) != 0) end = settings = text + strlen(text);
    const char *negative = strncmp(text, mark, sizeof mark - 1) == 0 ? text : NULL;
    for (const char *at = text; !negative && at < end && (at = strchr(at, '\n')); at++)
        if (strncmp(at + 1, mark, sizeof mark - 1) == 0 && at < end) negative = at + 1;
    const char *prompt_end = negative ? negative : end;
    while (prompt_end > text && prompt_end[-1] == '\n') prompt_end--;
    json_object_set_new(all, "Prompt", json_stringn(text, (size_t)(prompt_end - text)));
    const char *begin = negative ? negative + sizeof mark - 1 : end;
    json_object_set_new(all, "Negative prompt", json_stringn(begin, (size_t)(end > begin ? end - begin : 0)));
    add_pairs(all, settings);
    return all;
}

void handle_sd_png_info(request *r) {
    static const char *const keys[] = {"parameters", "lazuli", "prompt", "workflow", "Comment", "Software", "software"};
    problem p = {.status = 0};
    buffer data = {.data = NULL};
    json_t *fields = body_json(r);
    if (!fields) return;
    bool good = take_bytes(fields, &data, &p);
    json_decref(fields);
    lz_context *ctx = good ? lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), NULL) : NULL;
    if (good && !ctx) good = set_problem(&p, 500, "out_of_memory", "", "out of memory");
    json_t *items = json_object();
    lz_error err = {.status = LZ_OK};
    char *info = NULL;
    for (size_t i = 0; good && i < sizeof keys / sizeof *keys; i++) {
        char *text = lz_image_decode_text(ctx, data.data, (int64_t)data.size, keys[i], &err);
        if (!text && err.status != LZ_NOT_FOUND)
            good = set_problem(&p, 400, "invalid_image", "image",
                               "image: its texts cannot be read; it must be a PNG, JPEG or WebP picture");
        if (text && !is_utf8(text, strlen(text))) lz_printable(text); /* JSON takes nothing else */
        if (text) json_object_set_new(items, keys[i], json_string(text));
        if (text && i == 0) info = strdup(text);
        lz_free_text(ctx, text);
    }
    if (ctx) lz_close(ctx);
    if (good)
        reply_json(r, 200,
                   json_pack("{s:s, s:O, s:o}", "info", info ? info : "", "items", items, "parameters",
                             info ? parse(info) : json_object()));
    else
        reply_problem(r, &p);
    free(info);
    json_decref(items);
    buffer_free(&data);
}
