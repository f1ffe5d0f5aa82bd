/* devices.c: `lazuli devices`: lists the devices of this machine. */
#include "cli.h"
#include "environment.h"

enum { MOST_DEVICES = 64 };

static const struct {
    const char *device, *isa;
} all[] = {
#ifdef __x86_64__
    {"cpu", "amx"},      {"cpu", "avx512bf16"}, {"cpu", "avx512"}, {"cpu", "avx2"},
#elif defined(__aarch64__)
    {"cpu", "armbf16"},
#endif
    {"cpu", "baseline"}, {"ref", NULL}};

/* One line, or one object in list. */
static void show_device(const arguments *args, json_t *list, const char *device, const char *isa) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device, .isa = isa), &err);
    const char *name = ctx ? lz_device_name(ctx) : err.text;
    if (args->json)
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "device", device, "isa", json_text(isa),
                                              ctx ? "name" : "error", json_text(name)));
    else
        say(stdout, "%-7s %-10s %s\n", device, isa ? isa : "", name);
    lz_close(ctx);
}

int devices_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    lz_context *here = lz_open_with(&LZ_CONTEXT_OPTIONS(), &err);
    if (!here) return fail_with(args, &err);
    lz_context *gpu = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), &err);
    const char *small = lz_device_name(here), *large = gpu ? lz_device_name(gpu) : small;
    json_t *list = json_array(), *object = json_pack("{s:o, s:o, s:o}", "default", json_text(large),
                                                     "default_for_small_models", json_text(small), "devices", list);
    if (!args->json) say(stdout, "default %-10s %s\n", "", large);
    if (!args->json && gpu) say(stdout, "default %-10s %s\n", "small", small);
    lz_close(gpu);
    lz_close(here);
    for (size_t i = 0; i < COUNT(all); i++) show_device(args, list, all[i].device, all[i].isa);
    char cache[ENVIRONMENT_PATH];
    lz_context_options asked = environment_options(LZ_CONTEXT_OPTIONS(), cache);
    lz_device_info found[MOST_DEVICES];
    int n = lz_find_devices(&asked, found, MOST_DEVICES, NULL);
    for (int i = 1; i < n && i < MOST_DEVICES; i++) show_device(args, list, found[i].device, NULL);
    if (n < 2) show_device(args, list, "cuda:0", NULL); /* prints the reason why there is none */
    if (args->json) return print_json(args, object);
    json_decref(object);
    return DONE;
}
