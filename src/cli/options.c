/* options.c: the table of options, and parsing. Help, parsing and suggestions for mistyped options use the same table.
 *
 * Parsing is strict: numbers must be complete and in range, a value that is itself an option counts as missing, and an
 * option that the command does not take is an error. */
#include <assert.h>
#include <string.h>

#include "take.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define TO(field) offsetof(arguments, field)
/* The names of lz_sampler_name and lz_schedule_name. */
#define SAMPLERS "euler heun dpm++2m unipc res_multistep res_2s euler_a lcm"
#define SCHEDULES                                                                                                      \
    "auto simple beta beta57 sgm_uniform normal karras exponential kl_optimal linear_quadratic bong_tangent"

static const char what[] = "picture", leads[] = "steps, guidance and images", files[] = "files", machine[] = "device",
                  words[] = "messages", http[] = "server";
enum { HTTP = SERVE | WORKER };

const option options[] = {
    {"model", 'm', "DIR", what, "folder, file or name (default $LAZULI_MODEL, else demo)",
     PICTURE | INFO | TOKENIZE | CODEC | HTTP, take_model, TO(model), 0, 0},
    {"prompt", 'p', "TEXT", what, "the prompt, like bare words; '-' reads it from stdin", PICTURE, take_text,
     TO(prompt), 0, 0},
    {"width", 'W', "PIXELS", what, "width (default: of the noise, the image or the model)", PICTURE, take_integer,
     TO(width), 16, 8192},
    {"height", 'H', "PIXELS", what, "height; both sides are cut down to a multiple of 16", PICTURE, take_integer,
     TO(height), 16, 8192},
    {"seed", 'S', "N[,N...]", what, "seed of the noise; 1,2,3 makes three (default: random)", PICTURE, take_seeds,
     TO(seeds), 0, 9223372036854775807.0},
    {"count", 0, "N", what, "number of pictures, with seeds S, S+1, ...", PICTURE & ~GRID, take_integer, TO(count), 1,
     MAX_PICTURES},
    {"combinations", 0, NULL, what,
     "a picture for each combination of the choices in the prompt, with seeds S, S+1 ...", GENERATE | BATCH, take_flag,
     TO(combinations), 0, 0},
    {"wildcards", 0, "DIR", what, "folder with NAME.txt, a line of which replaces __NAME__ in the prompt", PICTURE,
     take_text, TO(wildcards), 0, 0},
    {"no-templates", 0, NULL, what, "use the prompt as it is; without this, {red|blue} and __NAME__ are choices",
     PICTURE, take_flag, TO(no_templates), 0, 0},
    {"text-encoder", 0, "FILE", what, "text encoder of a model from files: a file or folder",
     PICTURE | INFO | CODEC | TOKENIZE, take_text, TO(text_encoder), 0, 0},
    {"vae", 0, "FILE", what, "autoencoder of a model from files", PICTURE | INFO | CODEC, take_text, TO(vae), 0, 0},
    {"tokenizer", 0, "FILE", what,
     "a folder, a tokenizer.json or a GGUF text encoder (default: beside the text encoder)",
     PICTURE | INFO | CODEC | TOKENIZE, take_text, TO(tokenizer), 0, 0},
    {"vision", 0, "FILE", what, "the mmproj file, to look at images (default: beside the text encoder)",
     PICTURE | INFO | CODEC, take_text, TO(vision), 0, 0},
    {"variant", 0, "NAME", what, "base, distilled, kv, text, edit or edit-plus, if the name of the file does not tell",
     PICTURE | INFO | CODEC, take_text, TO(variant), 0, 0},
    {"x", 0, "NAME=VALUES", what, "columns of a grid: an option and its values, such as steps=2,4,8 or seed=1..5", GRID,
     take_axis, TO(x), 0, 0},
    {"y", 0, "NAME=VALUES", what, "rows of a grid; texts are separated by bars: 'prompt=a fox|a dog'", GRID, take_axis,
     TO(y), 0, 0},
    {"steps", 's', "N", leads, "number of steps; more are slower (default: the model's)", PICTURE, take_integer,
     TO(steps), 1, 1000},
    {"guidance", 'g', "X", leads, "how closely the prompt is followed; 1 means no guidance (default: the model's)",
     PICTURE, take_number, TO(guidance), 1, 1000},
    {"negative", 'n', "TEXT", leads, "what the picture should not show; needs guidance", PICTURE, take_text,
     TO(negative), 0, 0},
    {"sampler", 0, "NAME", leads, "how a step is made: " SAMPLERS " (default: the model's)", PICTURE, take_name,
     TO(sampler), 0, 0},
    {"schedule", 0, "NAME", leads, "noise in each step: " SCHEDULES " (default: auto, the model's)", PICTURE, take_name,
     TO(schedule), 0, 0},
    {"shift", 0, "X", leads, "shift of the schedule; more means more steps at high noise (default: the model's)",
     PICTURE, take_number, TO(shift), 0.01, 100},
    {"fast", 0, NULL, leads, "steps, sampler and schedule that are recommended for speed, if they are not given",
     PICTURE, take_flag, TO(fast), 0, 0},
    {"cache", 0, "SHARE", leads,
     "forecast this share of the passes instead of computing them: auto, off, or 0 to 0.8 (default: off)", PICTURE,
     take_cache, TO(cache), 0, 0.8},
    {"guidance-range", 0, "A..B", leads, "guidance only in this part of the steps, such as 0..0.8; the rest is faster",
     PICTURE, take_range, TO(guidance_range), 0, 1},
    {"guidance-every", 0, "N", leads, "compute the negative prompt only in every Nth computed pass", PICTURE,
     take_integer, TO(guidance_every), 1, 1000},
    {"image", 'i', "FILE", leads, "an image to look at (PNG, JPEG, WebP); may be repeated", PICTURE, take_image,
     TO(images), 0, 0},
    {"strength", 0, "X", leads, "start from the first image and change it this much; 1 keeps nothing of it", PICTURE,
     take_number, TO(strength), 0.001, 1},
    {"mask", 0, "FILE", leads, "repaint the first image where this is white, or transparent", PICTURE, take_text,
     TO(mask), 0, 0},
    {"extend", 0, "SIDES", leads, "paint around the first image: left=128,right=64,top=32,bottom=32", PICTURE,
     take_extend, TO(extend), 0, 0},
    {"crop-to-mask", 0, "PIXELS", leads, "paint only the part of the image around the mask, with so many pixels more",
     PICTURE, take_integer, TO(crop), 0, 8192},
    {"keep-outside", 0, "SWITCH", leads, "on: paste the image outside of the mask; off: leave what the model made",
     PICTURE, take_keep_outside, TO(change_outside), 0, 0},
    {"feather", 0, "PIXELS", leads, "soft edge inside the mask (default 4)", PICTURE, take_integer, TO(feather), 0,
     1024},
    {"background", 0, "HOW", leads,
     "auto: as the model makes it, transparent or not; opaque: on white; transparent: refuse models that cannot",
     PICTURE, take_background, TO(background), 0, 0},
    {"layers", 0, "N", leads, "number of layers that a model of layers takes an image apart into (default 4)", PICTURE,
     take_integer, TO(layers), 1, LZ_MAX_LAYERS},
    {"resolution", 0, "PIXELS", leads, "side of a square with the area of these layers: 640 (the default) or 1024",
     PICTURE, take_integer, TO(resolution), 640, 1024},
    {"lora", 0, "FILE[=X]", leads, "a LoRA and its weight (default 1); may be repeated", PICTURE, take_lora, TO(loras),
     0, 0},
    {"lora-partial", 0, NULL, leads, "use a LoRA even if only a part of it belongs to the model", PICTURE, take_flag,
     TO(lora_partial), 0, 0},
    {"lora-folder", 0, "DIR", leads, "folder of LoRAs for <lora:NAME:0.8> in a prompt (default $LAZULI_LORAS)", PICTURE,
     take_text, TO(lora_folder), 0, 0},
    {"lora-schedule", 0, "WHOSE", leads,
     "steps, guidance and schedule with a LoRA for few steps (Lightning): lora or model", PICTURE, take_lora_schedule,
     TO(lora_ordinary), 0, 0},
    {"output", 'o', "FILE", files, ".png, .jpg, .webp, DIR or - (default lazuli-SEED.png)", PICTURE | CODEC | COMPARE,
     take_text, TO(output), 0, 0},
    {"noise", 0, "FILE", files, "use the tensor 'noise' of a .safetensors file instead of the noise of the seed",
     PICTURE, take_text, TO(noise), 0, 0},
    {"dump", 0, "FILE", files, "write text, noise, latents and image as float32 .safetensors", PICTURE & ~GRID,
     take_text, TO(dump), 0, 0},
    {"to", 0, "DIR", files, "folder for the model (default: the Hugging Face cache)", PULL, take_text, TO(to), 0, 0},
    {"revision", 0, "NAME", files, "branch, tag or commit of the model (default: main)", PULL, take_text, TO(revision),
     0, 0},
    {"check", 0, NULL, files, "also check the hashes of files that were in the cache before", PULL, take_flag,
     TO(check), 0, 0},
    {"endpoint", 0, "URL", files, "address of the hub (default: $HF_ENDPOINT, else https://huggingface.co)", PULL,
     take_text, TO(endpoint), 0, 0},
    {"type", 0, "TYPE", files,
     "f32 f16 bf16 fp8 int8 (.safetensors); q8_0 q6_k q5_k q4_k q3_k q2_k q5_1 q5_0 q4_1 q4_0 (.gguf)", CONVERT,
     take_text, TO(type), 0, 0},
    {"part", 0, "NAME", files, "transformer, text_encoder or vae of a model (default: the whole model, into a folder)",
     CONVERT, take_text, TO(part), 0, 0},
    {"from", 0, "FILE", files, "take the settings that are not given from a picture made by Lazuli", PICTURE,
     take_settings_file, TO(from), 0, 0},
    {"settings", 0, "FILE", files, "the same from a JSON file, such as {\"prompt\": \"a red fox\", \"seed\": 7}",
     PICTURE, take_settings_file, TO(settings), 0, 0},
    {"steps-dir", 0, "DIR", files, "also write the decoded picture after each step; each step takes a decode longer",
     GENERATE, take_text, TO(steps_dir), 0, 0},
    {"sheet", 0, "FILE", files, "also write all pictures side by side into one .png, .jpg or .webp", GENERATE,
     take_text, TO(sheet), 0, 0},
    {"keep-cells", 0, "DIR", files, "also write each picture of the grid, as DIR/NAME-ROW-COLUMN.png", GRID, take_text,
     TO(keep_cells), 0, 0},
    {"full-paths", 0, NULL, files, "record full paths of files in the picture and its dump, instead of names",
     GENERATE | BATCH | GRID, take_flag, TO(full_paths), 0, 0},
    {"no-metadata", 0, NULL, files, "write pixels only, without prompt and settings; --from cannot repeat it",
     GENERATE | GRID, take_flag, TO(no_metadata), 0, 0},
    {"device", 0, "NAME", machine,
     "cpu, cuda, cuda:N, ref (the slow reference) or auto (a GPU for large models if there is one)",
     PICTURE | INFO | CODEC | HTTP, take_device, TO(device), 0, 0},
    {"precision", 0, "TYPE", machine,
     "f32, bf16, int8 or fp8 (newer GPUs; both faster, slightly other pictures), or auto (the fastest exact one)",
     PICTURE | INFO | CODEC | HTTP, take_precision, TO(precision), 0, 0},
    {"offload", 0, "HOW", machine,
     "weights of a model too large for the GPU: auto (stream what does not fit), none (fail), stream (stream all)",
     PICTURE | INFO | CODEC | HTTP, take_offload, TO(offload), 0, 0},
    {"threads", 0, "N", machine, "number of threads, at most and by default one per core; does not change the picture",
     PICTURE | INFO | CODEC | CONVERT | HTTP, take_integer, TO(threads), 1, 1024},
    {"batch", 0, "N", machine,
     "pictures of one size that are made together: auto (one on a CPU, several on a GPU), off or a number",
     GENERATE | BATCH | HTTP, take_batch, TO(batch), 1, LZ_MAX_TOGETHER},
    {"listen", 0, "WHERE", http,
     "ADDRESS:PORT, or unix:PATH for a socket in a folder (default 127.0.0.1:7860); may be repeated", SERVE, take_names,
     TO(serve.listen), 0, 0},
    {"all-models", 0, NULL, http, "also serve the other complete models of 'lazuli models'", HTTP, take_flag,
     TO(serve.all_models), 0, 0},
    {"models-loaded", 0, "N", http,
     "models that are kept open, if memory suffices; the least recently used one is closed (default 1)", HTTP,
     take_integer, TO(serve.models_loaded), 1, MAX_NAMES},
    {"metrics-listen", 0, "WHERE", http, "a further address, for /metrics and health checks only, without keys", SERVE,
     take_text, TO(serve.metrics_listen), 0, 0},
    {"state", 0, "DIR", http, "folder for jobs and pictures (default lazuli/serve in $XDG_STATE_HOME)", HTTP, take_text,
     TO(serve.state), 0, 0},
    {"store", 0, "URL", http, "redis://HOST:PORT/DB, which keeps the jobs of a fleet (default: SQLite in --state)",
     HTTP, take_text, TO(serve.store), 0, 0},
    {"fleet", 0, "NAME", http, "name of the fleet, if one Redis has several (default lazuli)", HTTP, take_text,
     TO(serve.fleet), 0, 0},
    {"pictures", 0, "WHERE", http, "folder that all servers and workers of the fleet share, or s3://BUCKET/PREFIX",
     HTTP, take_text, TO(serve.pictures), 0, 0},
    {"s3-endpoint", 0, "URL", http, "address of the store of --pictures s3://... (default: that of AWS)", HTTP,
     take_text, TO(serve.s3_endpoint), 0, 0},
    {"key-file", 0, "FILE", http,
     "keys of clients, one 'NAME KEY' or 'NAME KEY admin' a line, also in $LAZULI_KEYS; read again on SIGHUP", SERVE,
     take_text, TO(serve.key_file), 0, 0},
    {"cert", 0, "FILE", http, "certificate in PEM, for https; read again on SIGHUP", SERVE, take_text, TO(serve.cert),
     0, 0},
    {"cert-key", 0, "FILE", http, "the key of --cert, in PEM", SERVE, take_text, TO(serve.cert_key), 0, 0},
    {"no-auth", 0, NULL, http, "serve other machines without keys", SERVE, take_flag, TO(serve.no_auth), 0, 0},
    {"allow-host", 0, "NAME", http, "a further name of this server in the header Host; may be repeated", SERVE,
     take_names, TO(serve.hosts), 0, 0},
    {"allow-origin", 0, "URL", http, "a site whose pages may use this server; may be repeated", SERVE, take_names,
     TO(serve.origins), 0, 0},
    {"public-url", 0, "URL", http, "public address of this server if it is behind a proxy", SERVE, take_text,
     TO(serve.public_url), 0, 0},
    {"queue", 0, "N", http, "jobs that may wait (default 64)", SERVE, take_integer, TO(serve.queue), 1, 4000},
    {"queue-per-key", 0, "N", http, "jobs of one key or address that may wait (default 16)", SERVE, take_integer,
     TO(serve.queue_per_key), 1, 4000},
    {"queue-timeout", 0, "SECONDS", http, "longest time that a request waits for its turn (default 600)", SERVE,
     take_integer, TO(serve.queue_timeout), 1, 86400},
    {"drain-timeout", 0, "SECONDS", http, "time that a running picture has after SIGTERM (default 60)", HTTP,
     take_integer, TO(serve.drain_timeout), 1, 86400},
    {"max-pixels", 0, "N", http, "pixels of a picture, at most (default 4194304)", SERVE, take_integer,
     TO(serve.max_pixels), 4096, 67108864},
    {"max-input-pixels", 0, "N", http, "pixels of an image that a client sends, at most (default 50000000)", SERVE,
     take_integer, TO(serve.max_input_pixels), 4096, 1000000000},
    {"max-body", 0, "BYTES", http, "bytes of a request, at most (default 67108864)", SERVE, take_integer,
     TO(serve.max_body), 1024, 268435456},
    {"keep-pictures", 0, "DAYS,SIZE", http,
     "remove pictures that are older, and the oldest beyond this size, unless pinned (default 30,10GiB); 0: keep none",
     SERVE, take_text, TO(serve.keep_pictures), 0, 0},
    {"idle-unload", 0, "SECONDS", http,
     "give the memory back after so long without work; the next picture loads again (default 0: never)", SERVE,
     take_integer, TO(serve.idle_unload), 0, 604800},
    {"quality", 0, "LIST", http, "steps for values of the field quality of /v1, such as low=2,high=8 (default: none)",
     SERVE, take_text, TO(serve.quality), 0, 0},
    {"pin", 0, "LIST", http,
     "settings of clients to ignore: steps,guidance,size; none; auto (default: on /sdapi, those of distilled models)",
     SERVE, take_text, TO(serve.pin), 0, 0},
    {"strict", 0, NULL, http, "refuse unknown fields, and names of other models such as gpt-image-1", SERVE, take_flag,
     TO(serve.strict), 0, 0},
    {"previews", 0, "HOW", http, "previews in streams of /v1 and in /sdapi: small (default), full or off", SERVE,
     take_text, TO(serve.previews), 0, 0},
    {"log", 0, "HOW", http, "lines on standard error: text (default) or json", SERVE, take_text, TO(serve.log), 0, 0},
    {"log-prompts", 0, NULL, http, "write the prompts of jobs to the log", SERVE, take_flag, TO(serve.log_prompts), 0,
     0},
    {"words", 0, NULL, words, "print the words that the model knows, or the lines of its list with a word: --words cat",
     INFO, take_flag, TO(list_words), 0, 0},
    {"preview", 0, NULL, words, "show the picture on the terminal while it forms, small", GENERATE, take_flag,
     TO(preview), 0, 0},
    {"show", 0, NULL, words, "show the finished picture on the terminal", GENERATE | GRID, take_flag, TO(show), 0, 0},
    {"json", 0, NULL, words, "print one JSON object on stdout, also for errors", EVERY, take_flag, TO(json), 0, 0},
    {"quiet", 'q', NULL, words, "print nothing but errors", PICTURE | CODEC | PULL | CONVERT | COMPARE | HTTP,
     take_flag, TO(quiet), 0, 0},
    {"verbose", 'v', NULL, words, "print device, model, plan and times; -vv adds --profile", PICTURE & ~GRID,
     take_again, TO(verbose), 0, 0},
    {"profile", 0, NULL, words, "print where the time went, kernel by kernel", PICTURE & ~GRID, take_flag, TO(profile),
     0, 0},
    {"help", 'h', NULL, words, "print one screen; --help all prints everything, COMMAND --help one command", EVERY,
     take_flag, TO(help), 0, 0},
    {"version", 0, NULL, words, "print the version", EVERY, take_flag, TO(version), 0, 0},
};
const size_t n_options = COUNT(options);
static_assert(COUNT(options) <= MAX_OPTIONS, "arguments.given has an element for each");

bool is_setting(const option *o) { return o->commands & GENERATE && o->argument && o->take != take_settings_file; }

bool is_axis(const option *o) {
    bool picture = o->group == what || o->group == leads || o->group == machine || o->to == TO(noise);
    bool number = o->to == TO(count) || o->to == TO(combinations) || o->to == TO(batch); /* of pictures */
    return picture && !number && o->commands & GENERATE && (o->argument || o->take == take_flag);
}

int set_option(arguments *args, const option *o, const char *value) {
    bool on = strcmp(value, "on") == 0;
    forget_option(args, o);
    args->given[o - options] = true;
    args->elsewhere[o - options] = args->by_line[o - options] = false;
    if (o->to == TO(prompt)) args->template = NULL;
    if (o->to == TO(model)) args->model_version = NULL;
    if (o->argument) return o->take(args, o, value);
    if (!on && strcmp(value, "off") != 0)
        return fail(args, NOT_UNDERSTOOD, "--%s is a switch, so its values are on and off, not '%s'", o->name, value);
    *(bool *)option_place(args, o) = on;
    return DONE;
}

bool keeps_text(const option *o) {
    return o->take == take_text || o->take == take_model || o->take == take_image || o->take == take_lora ||
           o->take == take_device || o->take == take_extend;
}

bool collects(const option *o) { return o->take == take_image || o->take == take_lora || o->take == take_seeds; }

void forget_option(arguments *args, const option *o) {
    if (o->take == take_image) args->n_images = 0;
    if (o->take == take_lora) args->n_loras = 0;
    if (o->take == take_seeds) args->n_seeds = 0;
}

const char *option_choices(const option *o) {
    if (o->to == TO(device)) return "auto cpu cuda ref";
    if (o->take == take_lora_schedule) return "lora model";
    if (o->take == take_keep_outside) return "on off";
    if (o->take == take_background) return "auto opaque transparent";
    if (o->to == TO(sampler)) return SAMPLERS;
    if (o->to == TO(schedule)) return SCHEDULES;
    if (o->take == take_cache || o->take == take_batch) return "auto off";
    return o->take == take_precision ? "auto f32 bf16 int8 fp8" : o->take == take_offload ? "auto none stream" : NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const option *find_option(const char *name, size_t length) {
    for (size_t i = 0; i < n_options; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0) return &options[i];
    return NULL;
}

static const option *find_letter(char letter) {
    for (size_t i = 0; i < n_options; i++)
        if (letter && options[i].letter == letter) return &options[i];
    return NULL;
}

static bool is_option(const char *word) {
    if (word[0] != '-' || !word[1]) return false;
    if (word[1] == '-') return find_option(word + 2, strcspn(word + 2, "=")) != NULL;
    return !word[2] && find_letter(word[1]);
}

static int no_such_option(const arguments *args, const char *dashes, const char *name, size_t length) {
    char given[40];
    snprintf(given, sizeof given, "%.*s", (int)length, name);
    const option *nearest = dashes[1] ? nearest_option(given) : NULL;
    if (nearest)
        return fail(args, NOT_UNDERSTOOD, "there is no option %s%s; did you mean --%s?", dashes, given, nearest->name);
    return fail(args, NOT_UNDERSTOOD, "there is no option %s%s; 'lazuli --help all' lists them", dashes, given);
}

typedef struct reader {
    int argc, at;
    char **argv;
} reader;

static bool has(const bool *set, const char *name) {
    const option *o = find_option(name, strlen(name));
    return o && set[o - options];
}

bool is_given(const arguments *args, const char *name) { return has(args->given, name); }
bool is_elsewhere(const arguments *args, const char *name) { return has(args->elsewhere, name); }
bool is_by_line(const arguments *args, const char *name) { return has(args->by_line, name); }

/* value: attached with '=' or to the letter; or NULL. */
static int read_option(reader *r, arguments *args, const option *o, const char *value) {
    args->given[o - options] = true;
    if (!o->argument) {
        if (value) return fail(args, NOT_UNDERSTOOD, "--%s takes no value, but was given '%s'", o->name, value);
        return o->take(args, o, NULL);
    }
    if (!value && (r->at + 1 >= r->argc || is_option(r->argv[r->at + 1])))
        return fail(args, NOT_UNDERSTOOD, "--%s needs a value: --%s %s", o->name, o->name, o->argument);
    return o->take(args, o, value ? value : r->argv[++r->at]);
}

static int read_word(reader *r, arguments *args, const char *word) {
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        const option *o = find_option(word + 2, length);
        if (!o) return no_such_option(args, "--", word + 2, length);
        return read_option(r, args, o, word[2 + length] ? word + 3 + length : NULL);
    }
    for (const char *letter = word + 1; *letter; letter++) { /* -qv, -W512 */
        const option *o = find_letter(*letter);
        if (!o) return no_such_option(args, "-", letter, 1);
        if (o->argument) return read_option(r, args, o, letter[1] ? letter + 1 : NULL);
        int code = read_option(r, args, o, NULL);
        if (code != DONE) return code;
    }
    return DONE;
}

const command *find_command(const char *name) {
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

int parse(int argc, char **argv, arguments *args) {
    reader r = {.argc = argc, .argv = argv, .at = 1};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        args->json = args->json || strcmp(argv[i], "--json") == 0; /* so that parse errors are printed as JSON too */
    args->words = argv;
    bool no_options = false;
    for (; r.at < argc; r.at++) {
        char *word = argv[r.at];
        int code = DONE;
        if (!no_options && strcmp(word, "--") == 0)
            no_options = args->only_words = true;
        else if (!no_options && word[0] == '-' && word[1])
            code = read_word(&r, args, word);
        else if (!args->only_words && !args->n_words && (args->command = find_command(word)))
            args->only_words = true;
        else
            args->words[args->n_words++] = word; /* argv has space, since this word was read from it */
        if (code != DONE) return code;
    }
    if (!args->command && (args->n_words || args->prompt || args->from || args->settings)) args->command = &commands[0];
    return DONE;
}

int check_options(arguments *args) {
    const command *c = args->command ? args->command : &commands[0]; /* a session takes the options of generate */
    for (size_t i = 0; i < n_options; i++)
        if (args->given[i] && !(options[i].commands & c->bit))
            return fail(args, NOT_UNDERSTOOD, "%s does not take --%s; 'lazuli %s --help' lists its options", c->name,
                        options[i].name, c->name);
    return read_settings(args);
}
