/* devices.c: `lazuli devices`: what this machine can compute on. */
#include "cli.h"

static const struct {
    const char *device, *isa;
} all[] = {{"cpu", "avx512"}, {"cpu", "avx2"}, {"cpu", "baseline"}, {"ref", NULL}};

int devices_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    lz_context *best = lz_open_with(&(lz_context_options){.reserved = 0}, &err);
    if (!best) return fail_with(args, &err);
    json_t *list = json_array(),
           *object = json_pack("{s:o, s:o}", "default", json_text(lz_device_name(best)), "devices", list);
    if (!args->json) printf("default   %s\n", lz_device_name(best));
    lz_close(best);
    for (size_t i = 0; i < COUNT(all); i++) {
        lz_context *ctx = lz_open_with(&(lz_context_options){.device = all[i].device, .isa = all[i].isa}, &err);
        const char *name = ctx ? lz_device_name(ctx) : err.text;
        if (args->json)
            json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "device", all[i].device, "isa",
                                                  json_text(all[i].isa), ctx ? "name" : "error", json_text(name)));
        else
            printf("%-4s %-9s %s\n", all[i].device, all[i].isa ? all[i].isa : "", name);
        lz_close(ctx);
    }
    if (args->json) return print_json(args, object);
    json_decref(object);
    return DONE;
}
