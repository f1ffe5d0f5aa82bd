/* known.c: see cache.h: published models with a short name. A model is a folder on the hub, or a set of single files of
 * several repositories, as other programs use them. Sizes are those of the hub in November 2026; `pull` asks the hub. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cache.h"

#define APACHE "Apache-2.0"
#define FLUX_TERMS "FLUX Non-Commercial"
#define KOMMUNITY "FLUX Kommunity, which limits commercial use"
#define QWEN_TERMS "Qwen Research, non-commercial"

/* ---- parts that several sets share ------------------------------------------------------------------------------- */

#define KLEIN_COMFY "Comfy-Org/flux2-klein-4B"
#define QWEN_COMFY "Comfy-Org/Qwen-Image_ComfyUI"
#define EDIT_COMFY "Comfy-Org/Qwen-Image-Edit_ComfyUI"
#define Z_COMFY "Comfy-Org/z_image_turbo"
#define QWEN25_GGUF "unsloth/Qwen2.5-VL-7B-Instruct-GGUF"

#define KLEIN_VAE                                                                                                      \
    { SET_VAE, KLEIN_COMFY, "split_files/vae/flux2-vae.safetensors" }
#define KLEIN_TOKENIZER                                                                                                \
    { SET_TOKENIZER, "black-forest-labs/FLUX.2-klein-4B", "tokenizer/tokenizer.json" }
#define QWEN3_4B                                                                                                       \
    { SET_TEXT_ENCODER, KLEIN_COMFY, "split_files/text_encoders/qwen_3_4b.safetensors" }
#define QWEN3_GGUF(size, type)                                                                                         \
    { SET_TEXT_ENCODER, "unsloth/Qwen3-" size "-GGUF", "Qwen3-" size "-" type ".gguf" }
#define QWEN_VAE                                                                                                       \
    { SET_VAE, QWEN_COMFY, "split_files/vae/qwen_image_vae.safetensors" }
#define Z_VAE                                                                                                          \
    { SET_VAE, Z_COMFY, "split_files/vae/ae.safetensors" }
#define QWEN25_FP8                                                                                                     \
    { SET_TEXT_ENCODER, QWEN_COMFY, "split_files/text_encoders/qwen_2.5_vl_7b_fp8_scaled.safetensors" }
#define QWEN25_TOKENIZER                                                                                               \
    { SET_TOKENIZER, "Qwen/Qwen2.5-VL-7B-Instruct", "tokenizer.json" }
#define QWEN25_Q4                                                                                                      \
    { SET_TEXT_ENCODER, QWEN25_GGUF, "Qwen2.5-VL-7B-Instruct-Q4_K_M.gguf" }
#define QWEN25_VISION                                                                                                  \
    { SET_VISION, QWEN25_GGUF, "mmproj-F16.gguf" }
#define PARTS(...)                                                                                                     \
    (const known_part[]) {                                                                                             \
        __VA_ARGS__, { 0, NULL, NULL }                                                                                 \
    }

/* ---- the table --------------------------------------------------------------------------------------------------- */

const known_model known_models[] = {
    {"flux2-klein-4b", "black-forest-labs/FLUX.2-klein-4B", 15964309209, "klein-4b", APACHE, NULL},
    {"flux2-klein-9b", "black-forest-labs/FLUX.2-klein-9B", 34722772650, "klein-9b", FLUX_TERMS, NULL},
    {"flux2-klein-9b-kv", "black-forest-labs/FLUX.2-klein-9b-kv", 34722772000, "klein-9b-kv", FLUX_TERMS, NULL},
    {"flux2-klein-base-4b", "black-forest-labs/FLUX.2-klein-base-4B", 15964309000, "klein-base-4b", APACHE, NULL},
    {"flux2-klein-base-9b", "black-forest-labs/FLUX.2-klein-base-9B", 34722772000, "klein-base-9b", FLUX_TERMS, NULL},
    {"flux3-klein", "black-forest-labs/flux-3-image-klein", 20309000000, "flux3-klein", KOMMUNITY, NULL},
    {"flux3-klein-base", "black-forest-labs/flux-3-image-klein-base", 20289000000, "flux3-klein-base", KOMMUNITY, NULL},
    {"qwen-image", "Qwen/Qwen-Image", 57704000000, "qwen-image", APACHE, NULL},
    {"qwen-image-2512", "Qwen/Qwen-Image-2512", 57704000000, "qwen-image", APACHE, NULL},
    {"qwen-image-edit", "Qwen/Qwen-Image-Edit", 57704000000, "qwen-image-edit", APACHE, NULL},
    {"qwen-image-edit-2509", "Qwen/Qwen-Image-Edit-2509", 57704000000, "qwen-image-edit-2509", APACHE, NULL},
    {"qwen-image-edit-2511", "Qwen/Qwen-Image-Edit-2511", 57704000000, "qwen-image-edit-2511", APACHE, NULL},
    {"qwen-image-layered", "Qwen/Qwen-Image-Layered", 57704000000, "qwen-image-layered", APACHE, NULL},
    {"qwen-image-2.1", "Qwen/Qwen-Image-2.1", 33131000000, "qwen-image-2.1", QWEN_TERMS, NULL},
    {"qwen-image-2.1-turbo", "Qwen/Qwen-Image-2.1-Turbo", 33131000000, "qwen-image-2.1-turbo", QWEN_TERMS, NULL},
    {"z-image-turbo", "Tongyi-MAI/Z-Image-Turbo", 32848000000, "z-image-turbo", APACHE, NULL},
    {"z-image", "Tongyi-MAI/Z-Image", 20538000000, "z-image", APACHE, NULL},

    {"flux2-klein-4b-comfy", NULL, 16143700000, NULL, APACHE,
     PARTS({SET_MODEL, KLEIN_COMFY, "split_files/diffusion_models/flux-2-klein-4b.safetensors"}, QWEN3_4B, KLEIN_VAE,
           KLEIN_TOKENIZER)},
    {"flux2-klein-4b-fp8", NULL, 12463200000, NULL, APACHE,
     PARTS({SET_MODEL, "black-forest-labs/FLUX.2-klein-4b-fp8", "flux-2-klein-4b-fp8.safetensors"}, QWEN3_4B, KLEIN_VAE,
           KLEIN_TOKENIZER)},
    {"flux2-klein-4b-q8", NULL, 8916000000, NULL, APACHE,
     PARTS({SET_MODEL, "unsloth/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q8_0.gguf"}, QWEN3_GGUF("4B", "Q8_0"),
           KLEIN_VAE)},
    {"flux2-klein-4b-q4", NULL, 5437800000, NULL, APACHE,
     PARTS({SET_MODEL, "unsloth/FLUX.2-klein-4B-GGUF", "flux-2-klein-4b-Q4_K_M.gguf"}, QWEN3_GGUF("4B", "Q4_K_M"),
           KLEIN_VAE)},
    {"flux2-klein-9b-q4", NULL, 11275000000, NULL, FLUX_TERMS,
     PARTS({SET_MODEL, "unsloth/FLUX.2-klein-9B-GGUF", "flux-2-klein-9b-Q4_K_M.gguf"}, QWEN3_GGUF("8B", "Q4_K_M"),
           KLEIN_VAE)},
    {"z-image-turbo-comfy", NULL, 20702000000, NULL, APACHE,
     PARTS({SET_MODEL, Z_COMFY, "split_files/diffusion_models/z_image_turbo_bf16.safetensors"},
           {SET_TEXT_ENCODER, Z_COMFY, "split_files/text_encoders/qwen_3_4b.safetensors"}, Z_VAE,
           {SET_TOKENIZER, "Tongyi-MAI/Z-Image-Turbo", "tokenizer/tokenizer.json"})},
    {"z-image-turbo-q4", NULL, 7815000000, NULL, APACHE,
     PARTS({SET_MODEL, "unsloth/Z-Image-Turbo-GGUF", "z-image-turbo-Q4_K_M.gguf"}, QWEN3_GGUF("4B", "Q4_K_M"), Z_VAE)},
    {"qwen-image-fp8", NULL, 30076100000, NULL, APACHE,
     PARTS({SET_MODEL, QWEN_COMFY, "split_files/diffusion_models/qwen_image_fp8_e4m3fn.safetensors"}, QWEN25_FP8,
           QWEN_VAE, QWEN25_TOKENIZER)},
    {"qwen-image-q4", NULL, 18002000000, NULL, APACHE,
     PARTS({SET_MODEL, "city96/Qwen-Image-gguf", "qwen-image-Q4_K_M.gguf"}, QWEN25_Q4, QWEN_VAE)},
    {"qwen-image-2512-q4", NULL, 18137000000, NULL, APACHE,
     PARTS({SET_MODEL, "unsloth/Qwen-Image-2512-GGUF", "qwen-image-2512-Q4_K_M.gguf"}, QWEN25_Q4, QWEN_VAE)},
    {"qwen-image-edit-2509-fp8", NULL, 30076100000, NULL, APACHE,
     PARTS({SET_MODEL, EDIT_COMFY, "split_files/diffusion_models/qwen_image_edit_2509_fp8_e4m3fn.safetensors"},
           QWEN25_FP8, QWEN_VAE, QWEN25_TOKENIZER)},
    {"qwen-image-edit-2509-q4", NULL, 19391000000, NULL, APACHE,
     PARTS({SET_MODEL, "QuantStack/Qwen-Image-Edit-2509-GGUF", "Qwen-Image-Edit-2509-Q4_K_M.gguf"}, QWEN25_Q4,
           QWEN25_VISION, QWEN_VAE)},
    {"qwen-image-edit-2511-fp8", NULL, 30120000000, NULL, APACHE,
     PARTS({SET_MODEL, EDIT_COMFY, "split_files/diffusion_models/qwen_image_edit_2511_fp8mixed.safetensors"},
           QWEN25_FP8, QWEN_VAE, QWEN25_TOKENIZER)},
    {"qwen-image-edit-2511-q4", NULL, 19491000000, NULL, APACHE,
     PARTS({SET_MODEL, "unsloth/Qwen-Image-Edit-2511-GGUF", "qwen-image-edit-2511-Q4_K_M.gguf"}, QWEN25_Q4,
           QWEN25_VISION, QWEN_VAE)},
};
const size_t n_known_models = COUNT(known_models);

const known_model *known_by(const char *name) {
    for (size_t i = 0; i < n_known_models; i++) {
        const char *repo = known_models[i].repo;
        if (!strcasecmp(name, known_models[i].name) ||
            (repo && (!strcasecmp(name, repo) || !strcasecmp(name, base_name(repo)))))
            return &known_models[i];
    }
    return NULL;
}

const known_model *nearest_known(const char *name) {
    const known_model *nearest = NULL;
    int best = 3;
    for (size_t i = 0; i < n_known_models; i++) {
        int d = distance(name, known_models[i].name);
        if (d < best) {
            best = d;
            nearest = &known_models[i];
        }
    }
    return nearest;
}

const known_model *first_known(void) { return &known_models[0]; }

const char *known_repo(const known_model *model) {
    if (model->repo) return model->repo;
    return model->parts ? model->parts->repo : "";
}

/* ---- sets in the cache ------------------------------------------------------------------------------------------- */

/* The path of a part in the cache; kept until the program ends. NULL: it is not there. */
static const char *part_path(const known_part *part) {
    char *name = NULL;
    if (asprintf(&name, "%s/%s", part->repo, part->file) < 0) return NULL;
    const char *path = given_file(name);
    if (path == name) path = NULL;
    free(name);
    return path;
}

const known_part *missing_part(const known_model *model) {
    const known_part *part = model->parts;
    while (part->repo && part_path(part)) part++;
    return part->repo ? part : NULL;
}

const model_set *cached_set(const known_model *model) {
    static model_set sets[COUNT(known_models)];
    model_set *set = &sets[model - known_models];
    *set = (model_set){.name = (char *)model->name};
    for (const known_part *part = model->parts; part->repo; part++) {
        set->values[part->key] = (char *)part_path(part);
        if (!set->values[part->key]) return NULL;
    }
    return set;
}
