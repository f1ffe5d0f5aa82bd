/* devices.c: `lazuli devices`: what this machine can compute on. */
#include "cli.h"

static const struct {
    const char *device, *isa;
} all[] = {{"cpu", "amx"},  {"cpu", "avx512bf16"}, {"cpu", "avx512"},
           {"cpu", "avx2"}, {"cpu", "baseline"},   {"ref", NULL}};

/* One line, or one object in list; nothing of a device that is not there and not to be told of. false: it is not. */
static bool show_device(const arguments *args, json_t *list, const char *device, const char *isa, bool tell) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.device = device, .isa = isa), &err);
    if (!ctx && !tell) return false;
    const char *name = ctx ? lz_device_name(ctx) : err.text;
    if (args->json)
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "device", device, "isa", json_text(isa),
                                              ctx ? "name" : "error", json_text(name)));
    else
        say(stdout, "%-7s %-10s %s\n", device, isa ? isa : "", name);
    lz_close(ctx);
    return !err.status;
}

int devices_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    lz_context *here = lz_open_with(&LZ_CONTEXT_OPTIONS(), &err);
    if (!here) return fail_with(args, &err);
    lz_context *gpu = lz_open_with(&LZ_CONTEXT_OPTIONS(.device = "cuda"), &err);
    const char *small = lz_device_name(here), *large = gpu ? lz_device_name(gpu) : small;
    json_t *list = json_array(), *object = json_pack("{s:o, s:o, s:o}", "default", json_text(large),
                                                     "default_for_small_models", json_text(small), "devices", list);
    if (!args->json) say(stdout, "default %-10s %s\n", "", large);
    if (!args->json && gpu) say(stdout, "default %-10s %s\n", "small", small);
    lz_close(gpu);
    lz_close(here);
    for (size_t i = 0; i < COUNT(all); i++) show_device(args, list, all[i].device, all[i].isa, true);
    char device[32] = "cuda:0";
    for (int i = 0; i < 64 && show_device(args, list, device, NULL, i == 0); i++)
        snprintf(device, sizeof device, "cuda:%d", i + 1);
    if (args->json) return print_json(args, object);
    json_decref(object);
    return DONE;
}
