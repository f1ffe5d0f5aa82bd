/* parts.c: see parts.h. */
#include "pipeline/parts.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/image.h"
#include "pipeline/family.h"

static const char *const folder_names[LZ_PART_PATHS] = {"transformer", "text_encoder", "text_encoder",
                                                        "vae",         "tokenizer",    "processor"};
static const char *const words[LZ_PART_PATHS] = {"transformer", "text encoder", "vision encoder",
                                                 "autoencoder", "tokenizer",    "processor"};
static const char *const options_of[LZ_PART_PATHS] = {"-m", "--text-encoder", "--vision", "--vae", "--tokenizer", NULL};

/* ---- paths ------------------------------------------------------------------------------------------------------- */

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool has_file(lz_context *ctx, const char *folder, const char *name) {
    char *path = lz_path_join(ctx, folder, name);
    bool there = path && access(path, F_OK) == 0;
    lz_host_free(ctx, path);
    return there;
}

/* The folder of a file, or the folder itself; owned. */
static char *folder_of(lz_context *ctx, const char *path) {
    if (is_folder(path)) return lz_host_copy(ctx, path);
    const char *slash = strrchr(path, '/');
    char *folder = lz_host_copy(ctx, slash ? path : ".");
    if (folder && slash) folder[slash == path ? 1 : slash - path] = 0;
    return folder;
}

/* ---- files in the same folder ------------------------------------------------------------------------------------ */

static bool has_tokenizer(lz_context *ctx, const char *folder) {
    return has_file(ctx, folder, "tokenizer.json") ||
           (has_file(ctx, folder, "vocab.json") && has_file(ctx, folder, "merges.txt"));
}

/* Does the file contain a tokenizer? GGUF files of text encoders do. */
static bool holds_tokenizer(const lz_weights *w) { return lz_weights_metadata(w, "tokenizer.ggml.tokens"); }

/* Finds the tokenizer of a part: in its folder, in its subfolder tokenizer/, or in a GGUF file. Owned; NULL: none. */
static char *find_tokenizer(lz_context *ctx, const char *part) {
    lz_weights *w = is_folder(part) ? NULL : lz_weights_open(ctx, part, NULL);
    bool own = w && holds_tokenizer(w);
    lz_weights_close(w);
    if (own) return lz_host_copy(ctx, part);
    char *folder = folder_of(ctx, part), *inner = folder ? lz_path_join(ctx, folder, "tokenizer") : NULL, *found = NULL;
    if (inner && has_tokenizer(ctx, folder)) found = lz_host_copy(ctx, folder);
    if (inner && !found && has_tokenizer(ctx, inner)) found = lz_host_copy(ctx, inner);
    lz_host_free(ctx, folder);
    lz_host_free(ctx, inner);
    return found;
}

/* A GGUF file has no vision encoder: that is another file in the same folder, with "mmproj" in its name. */
static char *find_vision(lz_context *ctx, const char *encoder) {
    lz_signature s = {.parts = {NULL}};
    lz_weights *w = lz_weights_open(ctx, encoder, NULL);
    if (w) lz_signature_read(&s, w);
    lz_weights_close(w);
    bool own = s.parts[LZ_PART_VISION];
    if (own || is_folder(encoder)) return own ? lz_host_copy(ctx, encoder) : NULL;
    char *folder = folder_of(ctx, encoder), *found = NULL;
    char best[256] = "";
    DIR *dir = folder ? opendir(folder) : NULL;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (lz_file_name_has(e->d_name, "mmproj") && strlen(e->d_name) < sizeof best &&
            (!*best || strcmp(e->d_name, best) < 0))
            snprintf(best, sizeof best, "%s", e->d_name);
    if (dir) closedir(dir);
    if (*best) found = lz_path_join(ctx, folder, best);
    lz_host_free(ctx, folder);
    return found;
}

/* ---- a model that is no folder of diffusers ---------------------------------------------------------------------- */

enum { NAME_SIZE = 256 }; /* of a file or folder, which the file system limits to 255 bytes */

/* The last part of the model's path. */
static void model_name(const lz_parts *p, char name[NAME_SIZE]) {
    size_t end = strlen(p->model), begin;
    while (end && p->model[end - 1] == '/') end--;
    for (begin = end; begin && p->model[begin - 1] != '/';) begin--;
    snprintf(name, NAME_SIZE, "%.*s", (int)(end - begin), p->model + begin);
}

bool lz_parts_are(const lz_parts *p, const char *variant, const char *word) {
    if (p->variant) return !strcmp(p->variant, variant);
    char name[NAME_SIZE];
    model_name(p, name);
    return lz_file_name_has(name, word);
}

bool lz_parts_have_word(const lz_parts *p, const char *variant, const char *word) {
    if (p->variant) return !strcmp(p->variant, variant);
    char name[NAME_SIZE], *rest = name;
    model_name(p, name);
    for (const char *part; (part = strtok_r(rest, "-_. ", &rest));)
        if (!strcasecmp(part, word)) return true;
    return false;
}

/* Adds further parts in the file of the transformer, and files in the folders of the parts. */
static void find_rest(lz_parts *p, const lz_signature *s) {
    lz_context *ctx = p->ctx;
    for (int i = LZ_PART_TEXT_ENCODER; i < LZ_PARTS; i++)
        if (!p->path[i] && s->parts[i]) p->path[i] = lz_host_copy(ctx, p->path[LZ_PART_TRANSFORMER]);
    const char *encoder = p->path[LZ_PART_TEXT_ENCODER];
    if (encoder && !p->path[LZ_PART_VISION] && p->family->parts[LZ_PART_VISION])
        p->path[LZ_PART_VISION] = find_vision(ctx, encoder);
    char **tokenizer = &p->path[LZ_PART_TOKENIZER];
    if (encoder && !*tokenizer) *tokenizer = find_tokenizer(ctx, encoder);
    if (!*tokenizer) *tokenizer = find_tokenizer(ctx, p->path[LZ_PART_TRANSFORMER]);
}

static lz_status recognise(lz_parts *p, lz_error *err) {
    const char *path = p->path[LZ_PART_TRANSFORMER];
    lz_error local = {.status = LZ_OK};
    lz_signature s;
    char what[200];
    lz_weights *w = lz_weights_open(p->ctx, path, &local);
    if (!w && lz_is_image_file(p->ctx, path))
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: this is a picture, not a model: -i shows it to the model, and --from repeats its settings",
                       LZ_SHOW_TEXT(path));
    if (!w) {
        if (err) *err = local;
        return local.status;
    }
    lz_signature_read(&s, w);
    lz_signature_describe(&s, what, sizeof what);
    p->family = lz_family_of(s.parts[LZ_PART_TRANSFORMER]);
    lz_weights_close(w);
    if (s.refused) return lz_fail(err, LZ_BAD_FILE, "%s: %s", LZ_SHOW_TEXT(path), s.refused);
    for (int i = LZ_PART_TEXT_ENCODER; i < LZ_PARTS && !p->family; i++)
        if (s.parts[i])
            return lz_fail(err, LZ_BAD_FILE,
                           "%s: this is %s, a part of a model: name the transformer with -m, and this file with %s",
                           LZ_SHOW_TEXT(path), what, options_of[i]);
    if (!p->family) return lz_fail(err, LZ_BAD_FILE, "%s: this is %s", LZ_SHOW_TEXT(path), what);
    find_rest(p, &s);
    return lz_config_of(&p->index, p->ctx, p->model, p->family->index(p, &s), err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Some models have their tokenizer in processor/, and no folder tokenizer/. */
static void use_processor(lz_parts *p) {
    char *other = is_folder(p->path[LZ_PART_TOKENIZER])
                      ? NULL
                      : lz_path_join(p->ctx, p->model, folder_names[LZ_PART_PROCESSOR]);
    bool use = other && has_tokenizer(p->ctx, other);
    if (use) lz_host_free(p->ctx, p->path[LZ_PART_TOKENIZER]);
    if (use) p->path[LZ_PART_TOKENIZER] = other;
    if (!use) lz_host_free(p->ctx, other);
}

/* Adds the existing subfolders; of a diffusers folder all, so that errors name missing ones. */
static lz_status take_folders(lz_parts *p, lz_error *err) {
    if (p->path[LZ_PART_TEXT_ENCODER] && !p->path[LZ_PART_VISION])
        p->path[LZ_PART_VISION] = find_vision(p->ctx, p->path[LZ_PART_TEXT_ENCODER]);
    for (int i = 0; i < LZ_PART_PATHS; i++) {
        if (p->path[i]) continue;
        p->path[i] = lz_path_join(p->ctx, p->model, folder_names[i]);
        if (p->path[i] && i == LZ_PART_TOKENIZER) use_processor(p);
        if (!p->path[i]) return lz_out_of_memory(err, LZ_SHOWN);
        if (p->folder || is_folder(p->path[i])) continue;
        lz_host_free(p->ctx, p->path[i]);
        p->path[i] = NULL;
    }
    return LZ_OK;
}

/* The index of a model folder; modular pipelines of diffusers have another name for it. */
static lz_status open_index(lz_parts *p, lz_error *err) {
    bool modular = !has_file(p->ctx, p->model, "model_index.json") &&
                   has_file(p->ctx, p->model, "modular_model_index.json");
    return lz_config_open(&p->index, p->ctx, p->model, modular ? "modular_model_index.json" : "model_index.json", err);
}

static lz_status not_a_model(const lz_parts *p, lz_status status, lz_error *err) {
    if (access(p->model, F_OK))
        return lz_fail(err, LZ_NOT_FOUND, "%s is not a model folder: there is no such file or folder",
                       LZ_SHOW_TEXT(p->model));
    return lz_fail(err, status,
                   "%s is not a model folder: it has no readable model_index.json (the folder that holds "
                   "transformer/, text_encoder/, vae/ and tokenizer/ is meant)",
                   LZ_SHOW_TEXT(p->model));
}

static lz_status open_folder(lz_parts *p, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_status status = open_index(p, &local);
    if (!status) {
        p->folder = true;
        p->family = lz_family_named(&p->index, err);
        return p->family ? take_folders(p, err) : LZ_BAD_FILE;
    }
    if (local.status != LZ_NOT_FOUND && local.status != LZ_IO) {
        if (err) *err = local;
        return status;
    }
    if (lz_file_name_has(p->model, "model_index.json") && access(p->model, F_OK) == 0)
        return lz_fail(err, LZ_BAD_FILE, "%s: this is the index of a model: name the folder that holds it",
                       LZ_SHOW_TEXT(p->model));
    bool parts = is_folder(p->model) && has_file(p->ctx, p->model, "transformer");
    /* If only a subfolder of a model folder is given, that is a mistake. */
    bool inside = has_file(p->ctx, p->model, "../model_index.json") ||
                  has_file(p->ctx, p->model, "../modular_model_index.json");
    bool slip = inside && !p->path[LZ_PART_TEXT_ENCODER];
    bool look = !parts && !slip && is_folder(p->model);
    lz_weights *w = look ? lz_weights_open(p->ctx, p->model, NULL) : NULL;
    bool own = w || (!is_folder(p->model) && access(p->model, F_OK) == 0);
    lz_weights_close(w);
    if (!parts && !own) return not_a_model(p, local.status, err);
    if (own && !(p->path[LZ_PART_TRANSFORMER] = lz_host_copy(p->ctx, p->model))) return lz_out_of_memory(err, LZ_SHOWN);
    status = parts ? take_folders(p, err) : LZ_OK;
    if (status) return status;
    const char *part = parts ? p->path[LZ_PART_TRANSFORMER] : NULL;
    p->lost_index = part && has_file(p->ctx, part, "config.json"); /* mflux writes none */
    return lz_parts_explain(p, recognise(p, err), err);
}

lz_status lz_parts_explain(const lz_parts *p, lz_status status, lz_error *err) {
    if (!err || !p->lost_index || (status != LZ_BAD_FILE && status != LZ_NOT_FOUND)) return status;
    const lz_error cause = *err;
    return lz_fail(err, status, "%s: model_index.json is missing; without it: %s", LZ_SHOW_TEXT(p->model), cause.text);
}

lz_status lz_parts_open(lz_parts *p, lz_context *ctx, const lz_model_options *o, lz_error *err) {
    static const char *const known[] = {"base", "distilled", "kv", "text", "edit", "edit-plus"};
    *p = (lz_parts){.ctx = ctx, .model = o->model, .variant = o->variant};
    const char *given[LZ_PARTS + 1] = {NULL, o->text_encoder, o->vision, o->vae, o->tokenizer};
    bool fine = !o->variant;
    for (size_t i = 0; i < sizeof known / sizeof *known && !fine; i++) fine = !strcmp(known[i], o->variant);
    if (!fine)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "a variant of a model is base, distilled, kv, text, edit or edit-plus, not '%s'",
                       LZ_SHOW_TEXT(o->variant));
    lz_status status = LZ_OK;
    for (int i = 0; i <= LZ_PARTS && !status; i++)
        if (given[i] && !(p->path[i] = lz_host_copy(ctx, given[i]))) status = lz_out_of_memory(err, LZ_SHOWN);
    if (!status) status = open_folder(p, err);
    for (int i = LZ_PART_TEXT_ENCODER; i < LZ_PARTS && !status; i++)
        if (given[i] && p->family->parts[i]) status = lz_component_check(ctx, given[i], p->family->parts[i], err);
    if (status) lz_parts_close(p);
    return status;
}

void lz_parts_close(lz_parts *p) {
    for (int i = 0; i < LZ_PART_PATHS; i++) lz_host_free(p->ctx, p->path[i]);
    if (p->index.ctx) lz_config_close(&p->index);
    *p = (lz_parts){.ctx = p->ctx};
}

const char *lz_parts_label(const lz_parts *p, int part) {
    return p->folder || !p->path[part] ? p->model : p->path[part];
}

lz_status lz_parts_need(const lz_parts *p, int part, lz_error *err) {
    if (p->path[part]) return LZ_OK;
    return lz_fail(err, LZ_NOT_FOUND, "%s: this %s model lacks its %s, which is given with %s: %s",
                   LZ_SHOW_TEXT(p->model), p->family->name, words[part], options_of[part], p->family->sources[part]);
}

lz_status lz_parts_check_latents(const lz_parts *p, int64_t transformer, int64_t vae, lz_error *err) {
    if (transformer == vae) return LZ_OK;
    return lz_fail(
        err, LZ_BAD_FILE,
        "%s: the transformer has %lld latent channels and the autoencoder %lld; they belong to different models",
        LZ_SHOW_TEXT(lz_parts_label(p, LZ_PART_VAE)), (long long)transformer, (long long)vae);
}

lz_status lz_parts_check_features(const lz_parts *p, int64_t gives, int64_t reads, const char *needed, lz_error *err) {
    if (gives == reads) return LZ_OK;
    return lz_fail(
        err, LZ_BAD_FILE,
        "%s: the text encoder gives %lld features and the transformer reads %lld; they belong to different models%s",
        LZ_SHOW_TEXT(lz_parts_label(p, LZ_PART_TEXT_ENCODER)), (long long)gives, (long long)reads, needed);
}

lz_status lz_parts_check_pad(const lz_parts *p, const lz_tokenizer *tokenizer, int64_t *pad, lz_error *err) {
    *pad = lz_tokenizer_pad(tokenizer);
    if (*pad >= 0) return LZ_OK;
    return lz_fail(err, LZ_BAD_FILE, "%s: the tokenizer has no pad_token, with which short prompts are filled up",
                   LZ_SHOW_TEXT(lz_parts_label(p, LZ_PART_TOKENIZER)));
}

/* ---- what a file is ---------------------------------------------------------------------------------------------- */

static void tell_needs(const lz_file_facts *f, char *to, size_t size) {
    const bool has[LZ_PART_PROCESSOR] = {true, f->text_encoder, true, f->vae, f->tokenizer};
    size_t used = 0;
    for (int i = 0; i < LZ_PART_PROCESSOR && used < size; i++)
        if (!has[i])
            used += (size_t)snprintf(to + used, size - used, "%sa%s %s (%s)", used ? ", " : "",
                                     i == LZ_PART_VAE ? "n" : "", words[i], options_of[i]);
}

lz_status lz_file_about(lz_context *ctx, const char *path, lz_file_facts *facts, lz_error *err) {
    if (!ctx || !path || !facts)
        return lz_fail(err, LZ_BAD_ARGUMENT, "file_about: needs a context, a path and a place for facts");
    *facts = (lz_file_facts){.what = ""};
    lz_error local = {.status = LZ_OK};
    lz_weights *w = lz_weights_open(ctx, path, &local);
    if (!w) {
        if (err) *err = local;
        return local.status;
    }
    lz_signature s;
    lz_signature_read(&s, w);
    lz_signature_describe(&s, facts->what, sizeof facts->what);
    if (s.refused)
        snprintf(facts->refused, sizeof facts->refused, "%s", s.refused);
    else
        lz_signature_unreadable(w, facts->refused, sizeof facts->refused);
    facts->transformer = s.parts[LZ_PART_TRANSFORMER];
    facts->text_encoder = s.parts[LZ_PART_TEXT_ENCODER];
    facts->vision = s.parts[LZ_PART_VISION];
    facts->vae = s.parts[LZ_PART_VAE];
    facts->tokenizer = holds_tokenizer(w);
    facts->lora = s.lora;
    if (lz_family_of(s.parts[LZ_PART_TRANSFORMER])) tell_needs(facts, facts->needs, sizeof facts->needs);
    lz_weights_close(w);
    return LZ_OK;
}

/* ---- tokenizers -------------------------------------------------------------------------------------------------- */

/* Is the file a tokenizer.json? Recognised by its first character; weight files do not begin with it. */
static bool is_json(const char *path) {
    FILE *file = fopen(path, "rbe");
    int first = file ? fgetc(file) : 0;
    while (first == ' ' || first == '\n') first = fgetc(file);
    if (file) fclose(file);
    return first == '{';
}

static lz_tokenizer *open_tokenizer(lz_context *ctx, const char *path, lz_error *err) {
    if (access(path, F_OK) != 0 || is_folder(path) || is_json(path)) return lz_tokenizer_open(ctx, path, err);
    lz_weights *w = lz_weights_open(ctx, path, err);
    lz_tokenizer *t = w ? lz_gguf_tokenizer(ctx, w, path, err) : NULL;
    lz_weights_close(w);
    return t;
}

lz_tokenizer *lz_parts_tokenizer(const lz_parts *p, lz_error *err) {
    return lz_parts_need(p, LZ_PART_TOKENIZER, err) ? NULL : open_tokenizer(p->ctx, p->path[LZ_PART_TOKENIZER], err);
}

lz_tokenizer *lz_tokenizer_open_with(lz_context *ctx, const lz_model_options *options, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_model_options o;
    lz_parts parts;
    lz_tokenizer *t = NULL;
    if (!ctx || !options || lz_read_options(&o, sizeof o, options, "LZ_MODEL_OPTIONS", &local) || !o.model) {
        if (!local.status) lz_fail(&local, LZ_BAD_ARGUMENT, "tokenizer_open: needs a context and a model");
    } else {
        lz_weights *w = is_folder(o.model) ? NULL : lz_weights_open(ctx, o.model, NULL);
        const char *own = o.tokenizer ? o.tokenizer : w && holds_tokenizer(w) ? o.model : NULL;
        if (own)
            t = open_tokenizer(ctx, own, &local);
        else if (!lz_parts_open(&parts, ctx, &o, &local)) {
            t = lz_parts_tokenizer(&parts, &local);
            lz_parts_close(&parts);
        }
        lz_weights_close(w);
    }
    if (local.status && err) *err = local;
    return t;
}
