/* cli.h: shared by the files of the command line: arguments, tables, messages, exit codes.
 *
 *   main.c       chooses the command                       options.c      the table of options, and reading them
 *   take.c       values of options                         session_*.c    commands of a session
 *   help.c       prints both tables                        say.c          errors, notes, numbers
 *   job.c        a model and the options of a picture      output.c       names of output files
 *   model.c      finds the model                           progress.c     the progress line, Ctrl-C
 *   settings.c   options from files                        names.c        names of models, the Hugging Face cache
 *   whole.c      whether a model is complete               pull/          downloads a model
 *   meant.c      words that are probably no prompt         sets.c         models of several files
 *   see.c        pictures on the terminal                  interactive.c  a session, prompt by prompt
 *   sheet.c      pictures side by side                     shrunk.c       files that become shorter while in use
 *   published.c  plans with a model that is not here       estimate.c     estimated times
 *   album.c      pictures of a session                     parts.c        paths, unfinished files
 *   loras.c      LoRAs of a picture                        known.c        published models and their short names
 *   difference.c how much two pictures differ              template.c     prompts with choices (wildcards.c: files)
 *   axis.c       axes of a grid                            font.c         labels on pictures
 *   prompts.c    the prompt of the arguments               pictures.c     seeds, prompts and names of pictures
 *   fast.c       settings for speed                        mask.c         repainting a part of a picture
 *   transparent.c  pictures with transparency              layers.c       files of a picture of layers
 *   writing.c    pictures while they are written
 *   with/, without/  drawing and line editing, with optional libraries or without them
 * The other files are one command (or two) each.
 *
 * Results go to stdout, everything else to stderr. */
#ifndef LZ_CLI_H
#define LZ_CLI_H

#include <jansson.h>
#include <stdio.h>

#define LZ_NO_SUGAR /* errors should not name source lines of this program */
#include "lazuli.h"
#include "parts.h"
#include "shrunk.h"

enum { DONE = 0, FAILED = 1, NOT_UNDERSTOOD = 2, STOPPED = 130, UNREAD = 141 };
enum { MAX_PICTURES = 1000, MAX_LORAS = 16, MAX_OPTIONS = 128 };

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* ---- commands and options ---------------------------------------------------------------------------------------- */

enum {
    GENERATE = 1,
    PLAN = 2,
    INFO = 4,
    TOKENIZE = 8,
    ENCODE = 16,
    DECODE = 32,
    TENSORS = 64,
    DEVICES = 128,
    BATCH = 256,
    COMPLETIONS = 512,
    PULL = 1024,
    MODELS = 2048,
    MAN = 4096,
    CONVERT = 8192,
    GRID = 16384,
    COMPARE = 32768,
    SERVE = 65536,
    WORKER = 131072,
    PICTURE = GENERATE | PLAN | BATCH | GRID,
    CODEC = ENCODE | DECODE,
    EVERY = 0x3ffff,
};

typedef struct arguments arguments;

typedef struct command {
    int bit;
    const char *name, *takes, *help;
    int least, most; /* number of words it takes */
    int (*run)(const arguments *);
} command;
extern const command commands[];
extern const size_t n_commands;

enum { MAX_NAMES = 16 };
typedef struct name_list { /* values of an option that may be repeated */
    const char *all[MAX_NAMES + 1];
    int n;
} name_list;

struct arguments {
    const command *command;
    char **words; /* arguments that are neither the command nor options */
    int n_words;
    bool only_words; /* after a command or `--`: the words are not checked for commands */
    int precision;   /* lz_dtype, or 0 */
    int offload;     /* lz_offload */
    const char *model, *prompt, *negative, *output, *device, *noise, *dump;
    const char *text_encoder, *vision, *vae, *tokenizer, *variant; /* of a model from files */
    const char *to, *endpoint, *revision;                          /* of pull */
    const char *type, *part;                                       /* of convert */
    const char *images[LZ_MAX_IMAGES];
    int n_images;
    const char *loras[MAX_LORAS]; /* FILE[=WEIGHT] */
    int n_loras;
    const char *lora_folder;
    bool lora_partial, lora_ordinary; /* ordinary: --lora-schedule model */
    int64_t seeds[MAX_PICTURES];
    int n_seeds;
    /* Pictures that are made together, at most; 0: as many as are faster. */
    int64_t batch;
    int64_t width, height, steps, count, threads, verbose; /* 0: not given */
    double guidance, strength, shift;                      /* 0: not given */
    const char *mask, *extend;                             /* NULL: not given */
    lz_sides sides;                                        /* of extend */
    bool change_outside;                                   /* --keep-outside off */
    int64_t feather, crop;                                 /* pixels; is_given tells whether they were given */
    double cache;                                          /* as in lz_picture_options */
    double guidance_range[2];                              /* from, to; both 0: not given */
    int64_t guidance_every;                                /* 0: not given */
    int background;                                        /* lz_background */
    int64_t layers, resolution;                            /* 0: not given */
    const char *sampler, *schedule;                        /* NULL: not given */
    const char *wildcards;                                 /* folder; NULL: not given */
    const char
        *model_version;   /* of the model that the settings in a file were made with; "": it had none; NULL: unknown */
    const char *template; /* the prompt was made from this template, or must not be read as one; NULL: neither */
    bool no_templates, combinations;
    bool fast;
    bool help, version, json, quiet, profile, check;
    const char *from, *settings; /* files with further options */
    json_t *sources[2];          /* owned: the JSON of these files; strings above point into it */
    /* By the index of an option: it was given; it did not come from argv; it came from a line of a batch. */
    bool given[MAX_OPTIONS], elsewhere[MAX_OPTIONS], by_line[MAX_OPTIONS];
    const char *where; /* a file name before errors and notes; or NULL */
    int64_t line;      /* a line number before errors and notes, in a batch; or 0 */
    bool preview, show, full_paths, no_metadata, list_words;
    const char *steps_dir, *sheet;
    const char *x, *y, *keep_cells; /* of grid */
    json_t *said;                   /* keys: notes that were printed, and are not printed again; NULL: print all */
    json_t *once;                   /* keys: notes of note_once that were printed; main owns it, and copies share it */
    struct {                        /* of serve and worker; numbers: 0 if not given */
        name_list models, listen, hosts, origins;
        const char *state, *key_file, *public_url, *pin, *previews, *log, *cert, *cert_key;
        const char *metrics_listen, *keep_pictures, *quality;
        const char *store, *fleet, *pictures, *s3_endpoint;
        int64_t queue, queue_per_key, queue_timeout, drain_timeout, idle_unload, max_pixels, max_input_pixels, max_body,
            models_loaded;
        bool no_auth, strict, log_prompts, all_models;
    } serve;
};

typedef struct option {
    const char *name;
    char letter; /* 0: none */
    const char *argument, *group, *help;
    int commands;
    int (*take)(arguments *args, const struct option *option, const char *value); /* an exit code */
    /* Offset of the member of arguments. */
    size_t to;
    double low, high;
} option;
extern const option options[];
extern const size_t n_options;

const option *find_option(const char *name, size_t length); /* or NULL */
const option *nearest_option(const char *name);             /* similar option, or NULL */
bool is_setting(const option *option); /* the option is about the picture, so it may be in a file of settings */
bool keeps_text(const option *option); /* the option stores a pointer to its value */
bool is_axis(const option *option);    /* the option may be an axis of a grid */
bool collects(const option *option);   /* the option may be given several times, and all values are used */
void forget_option(arguments *args, const option *option); /* removes the values of an option that collects */
/* Replaces the value of an option, as if it had been typed; a switch takes "on" and "off". Returns an exit code. */
int set_option(arguments *args, const option *option, const char *value);
/* The name of a sampler or schedule in the library, also from a name that other programs use; NULL: there is none. */
const char *name_in_library(const option *o, const char *value);
/* auto, off or a share of --cache. False: it is none of them. */
bool read_cache(const option *o, const char *value, double *to);
const char *option_choices(const option *option); /* "auto f32 bf16 int8 fp8", or NULL: any value */
bool is_given(const arguments *args, const char *name);
bool is_elsewhere(const arguments *args, const char *name); /* it comes from a file of settings */
bool is_by_line(const arguments *args, const char *name);   /* it comes from this line of a batch */

int parse(int argc, char **argv, arguments *args); /* an exit code */
/* Checks that the command takes the options, and reads files of settings. Returns an exit code. */
int check_options(arguments *args);
const command *find_command(const char *name); /* or NULL */
/* Is it a folder with a model, or a name in our list or in the Hugging Face cache? */
bool names_model(const char *word);
/* Are the words a mistyped command, a command of another program or the name of a model? hint: what to type instead. */
bool is_hardly_a_prompt(const arguments *args, char *hint, size_t size);
const char *slip_of(const char *word); /* the command that the word is a mistyped form of, or NULL */
bool has_blank(const char *text);
int refuse_or_ask(const arguments *args, const char *hint); /* returns DONE if the user wants the words as a prompt */
void print_help(const command *only, bool all);             /* of one command, or NULL: of all, else the first screen */
/* The help for a command, which may differ; bit 0: for all commands. */
const char *option_help(const option *option, int bit);
bool is_blank(const char *text); /* it is empty, or has only blanks */
/* Digits only, in this range. */
bool whole_number(const char *text, size_t length, double low, double high, int64_t *to);
bool read_number(const option *option, const char *text, double *to); /* in the option's range */
int distance(const char *a, const char *b); /* number of letters to change, add, remove or swap */

int generate_command(const arguments *args);
bool is_interactive(const arguments *args); /* no prompt and no output was given, and stdin and stdout are a terminal */
int interactive_command(const arguments *args);
int plan_command(const arguments *args);
int info_command(const arguments *args);
int tokenize_command(const arguments *args);
int encode_command(const arguments *args);
int decode_command(const arguments *args);
int tensors_command(const arguments *args);
int devices_command(const arguments *args);
int pull_command(const arguments *args);
int models_command(const arguments *args);
int batch_command(const arguments *args);
int completions_command(const arguments *args);
int man_command(const arguments *args);
int convert_command(const arguments *args);
int compare_command(const arguments *args);
int grid_command(const arguments *args);
int serve_command(const arguments *args);
int worker_command(const arguments *args);

typedef struct explained {
    const char *name, *text;
} explained;
extern const explained exit_codes[], variables[];                                      /* ended by NULL */
void each_order(void (*print)(const char *name, const char *takes, const char *help)); /* commands of a session */

typedef struct example {
    int command;
    const char *line, *why;
} example;
extern const example examples[];
extern const size_t n_examples;

/* ---- speaking ---------------------------------------------------------------------------------------------------- */

/* Like fprintf, and the only function that prints untrusted text: lz_printable is applied to all but a '\n' at the end
 * of format. */
__attribute__((format(printf, 2, 3))) void say(FILE *to, const char *format, ...);
/* One sentence on stderr and, with --json, as {"error": ...} on stdout. Returns code. */
__attribute__((format(printf, 3, 4))) int fail(const arguments *args, int code, const char *format, ...);
int fail_with(const arguments *args, const lz_error *err); /* of the library: FAILED, or STOPPED */
/* The same for a file that settings name with this option. instead: the option that would replace it. Returns
 * FAILED. */
int fail_elsewhere(const arguments *args, const char *name, const char *instead, const lz_error *err);
/* The error, and where the name of the file comes from if it was not typed. name: of the option. Returns an exit code */
int fail_file(const arguments *args, const char *name, const lz_error *err);
/* A sentence on stderr, unless -q. */
__attribute__((format(printf, 2, 3))) void note(const arguments *args, const char *format, ...);
void note_once(const arguments *args, const char *text); /* the same, unless it was noted before in this process */

/* For lz_context_options.log: prints remarks about the files of a model. */
void say_remark(void *user, lz_log_level level, const char *text);

const char *colour(FILE *to, const char *code); /* the code, or "" if there should be no colours */
bool lines_move(void); /* is stderr a terminal on which lines can be redrawn, for progress and previews? */
/* Flushes stdout and checks for write errors. Returns an exit code. */
int flush_output(const arguments *args);
/* Releases the object; NULL: out of memory. Returns an exit code. */
int print_json(const arguments *args, json_t *object);
json_t *json_text(const char *text); /* invalid UTF-8 becomes '?'; NULL becomes null */
json_t *json_milliseconds(double seconds);
/* Prints untrusted text on stdout without control characters, padded to width, truncated to most. */
void print_masked(const char *text, int width, int most);

typedef struct figure {
    char text[32];
} figure;
figure show_bytes(int64_t bytes);    /* "1.5 GiB" */
figure show_flops(double flops);     /* "3.21 Tflop" */
figure show_seconds(double seconds); /* "812 ms", "3.4 s", "2m05s", "1h20m" */
figure show_steps(int run, int all); /* "4 steps", "2 of 4 steps" */
int64_t bytes_of(const lz_array *a); /* as stored */
double seconds_now(void);

/* ---- files ------------------------------------------------------------------------------------------------------- */

int check_output(const arguments *args, const char *path); /* can the file be written? Returns an exit code. */
int check_free(const arguments *args, const char *path,
               int64_t bytes); /* are that many bytes free on the disk? Returns an exit code */
/* claimed: the outputs of a run, so that no file is written twice: names and inodes, and the line of a batch (else 0).
 * An error if another output is the same file. Returns an exit code. */
int claim_output(const arguments *args, json_t *claimed, const char *path);
int claim_steps(const arguments *args, json_t *claimed, int64_t seed); /* every file of --steps-dir with this seed */
bool is_claimed(const json_t *claimed, const char *path);
/* An error if the output is one of the files that are read: images, the mask, the noise, LoRAs, and `also` (or NULL).
 * Returns an exit code. */
int check_unread(const arguments *args, const char *also, const char *path);
/* inputs: the images, masks and noise that lines of a batch read, as in claimed. claim_inputs adds those of a line. The
 * other returns an error if the output is an input of another line. */
void claim_inputs(const arguments *args, json_t *inputs);
int check_inputs(const arguments *args, const json_t *inputs, const char *path);
/* Creates an empty file with this name, or this name and a number, and one for each layer; takes ownership of first.
 * The caller frees the returned name, and removes the files if nothing is written. NULL: err has the reason. */
char *reserve_name(const json_t *claimed, char *first, int layers, lz_error *err);
/* The same for lazuli-SEED.png in folder (NULL: the current folder). */
char *reserve_path(const json_t *claimed, const char *folder, int64_t seed, int layers, lz_error *err);
void remove_layers(const char *path, int n); /* removes the files of the first n layers of the picture */

/* `-o -` writes the picture to stdout, as PNG. Text that would go to stdout then goes to stderr. */
bool is_stdout(const char *path);
FILE *result_stream(const arguments *args);
int check_stdout(const arguments *args, int pictures); /* can pictures be written to stdout? Returns an exit code */
lz_status put_picture(lz_context *ctx, const char *path, const lz_image *image, const char *const *text, lz_error *err);
int64_t picture_side_limit(const char *path);        /* by its ending; 0: not the name of a picture */
bool is_tensor_file(const char *path);               /* by its ending */
char *numbered_path(const char *path, int number);   /* fox.png, 2: fox-2.png; free it */
bool is_folder(const char *path);                    /* it is one, or its name ends in a slash */
char *file_in(const char *folder, const char *name); /* FOLDER/NAME; folder: NULL for this one; free it */
/* Reads a file, or stdin ('-'), of up to most bytes, and adds a zero byte. Returns an exit code; the caller frees
 * *text, after an error too. */
int read_file(const arguments *args, const char *path, size_t most, char **text, size_t *bytes);

/* ---- a model and what is asked of it ----------------------------------------------------------------------------- */

typedef struct model_set model_set; /* cache.h */

typedef struct model_choice {
    const char *folder;   /* or a file */
    const model_set *set; /* the entry of the settings file that was named, or NULL */
    const char *name;     /* the last part of the folder's path, or OWNER/REPO if it is in the Hugging Face cache */
    bool from_environment, demo; /* demo: no model was named */
    /* A model that is not on this machine, and can only be planned with (published.c); or NULL. */
    const struct known_model *published;
    char *owned; /* the string of folder, if it was allocated; otherwise NULL */
} model_choice;

char *find_demo(void); /* absolute path of the demo model's folder, owned; NULL: not found */
int choose_model(const arguments *args, model_choice *choice); /* an exit code; free(choice->owned) in any case */
/* The files of a model: of the arguments, else of its set. */
lz_model_options parts_of(const arguments *args, const model_choice *choice);
/* Says which model is used, if the user did not choose it. */
void say_model(const arguments *args, const model_choice *choice);
/* Reports that the model cannot be opened. */
int fail_model(const arguments *args, const model_choice *choice, const lz_error *err);

/* How long a picture may take: see estimate.c. */
typedef struct estimate {
    int64_t product[2], convolution[2]; /* output and input channels of the model's largest layers */
    double stages[4], seconds;          /* of each of lz_picture_plan.stages, and of all stages; 0: unknown */
} estimate;

typedef struct job {
    const arguments *args;
    char *folder, *name;    /* owned copies of the strings of model_choice */
    lz_model_options parts; /* what the model was opened with; texts of arguments or of the settings file */
    bool is_set;            /* name is an entry of the settings file */
    char *machine;          /* owned: folder, device and other settings with which the model was opened */
    char device[32];        /* requested, or chosen because the model is large; "": none */
    lz_context *ctx;
    lz_model *model;
    lz_model_facts facts;
    char *prompt; /* owned */
    lz_image images[LZ_MAX_IMAGES];
    lz_image blank; /* owned; stands for an image if the model needs one and none is given to a plan */
    lz_image mask;
    lz_picture_options picture; /* all options except seed, watch and previews; job_settle fills in the defaults */
    lz_picture_options asked;   /* the same as they were given, before the defaults were filled in */
    lz_job *work;               /* owned; made by job_settle, planned once, and run for each seed */
    lz_picture_plan plan;
    bool said_guidance, said_negative, said_steps, said_skips; /* the user was told that the option has no effect */
    bool told_version;     /* the user was told that settings were made with another version of the model */
    char said_version[32]; /* which one */
    bool said_cut;         /* the user was told that the size is cut; false again for other arguments */
    char said_fast[96];    /* what the user was told about --fast last */
    lz_remarks said;       /* remarks made so far with this model; for words, those of the last prompt */
    /* owned: the LoRAs of the model, PATH=WEIGHT on a line each; NULL: not known yet */
    char *loras;
    bool loras_ordinary; /* with --lora-schedule model */
    /* The model that the folder stands for, which is not on this machine; or NULL. */
    const struct known_model *published;
    char *stand_in; /* path of that folder, which is removed later; owned */
    estimate estimate;
    int64_t memory;          /* bytes of the device, as together.c found them; 0: not looked up, or unknown */
    double quantising_drawn; /* when the line of quantising was drawn last */
} job;

/* Checks, before a model is opened, that it and the input files exist. coming: names of pictures that will exist by
 * then. Returns an exit code. */
int job_check(const arguments *args, const json_t *coming);
/* Opens the model. Returns an exit code; call job_close after an error too. */
int job_open(job *j, const arguments *args);
int job_stays(const job *j, const arguments *args, bool *stays); /* would job_reopen keep the model? An exit code */
int job_reopen(job *j, const arguments *args);  /* the same for a zeroed or open job: keeps the model if possible */
void job_take(job *j, const arguments *args);   /* other arguments for the open model; the picture is forgotten */
char *job_part(const job *j, const char *part); /* the path of a part such as "vae", owned; NULL: out of memory */
int job_fill(job *j);                           /* fills in the options of the picture */
int job_change_prompt(job *j);                  /* takes the prompt of the arguments, and settles the picture again */
/* The prompt of the arguments: words are joined, and '-' is read from stdin. *text: NULL if there is none. *owned: the
 * text if it was allocated, else NULL; free it after an error too. Returns an exit code. */
int prompt_of(const arguments *args, char **owned, const char **text);
bool reads_prompt(const arguments *args); /* is the prompt '-', so that prompt_of will read stdin? */
int check_loras(const arguments *args);   /* checks that the files of the LoRAs exist. Returns an exit code */
/* Gives the model the LoRAs of the arguments and of the tags in j->picture.prompt, and removes the tags from the
 * prompt. Returns an exit code. */
int use_loras(job *j);
json_t *loras_of(const char *model);   /* the names of the LoRAs that come with a model: a list of texts */
char *join_loras(const json_t *list);  /* the entries of the list, joined by commas; owned. NULL: the list is empty */
bool job_keeps_image(const job *j);    /* the picture gets the size of its only reference image */
bool job_sized_by_image(const job *j); /* no size was asked for, and the image decides it */
void result_size(const job *j, int64_t *width, int64_t *height); /* of the picture; after job_settle */
int job_settle(job *j); /* the second half of job_fill, after prompt and images are set; makes j->work */
void job_drop(job *j);  /* frees j->work, which uses prompt and images until then */
int job_plan(job *j);   /* plans the picture */
int job_ask(job *j);    /* job_fill and job_plan */
void job_close(job *j);
/* The last job_close of a process: removes temporary files, and leaves the memory of the model, on the host and on a
 * device, to the system, which frees it faster. In builds with a sanitizer the same as job_close. */
void job_abandon(job *j);
/* Is the option replaced by --fast? That is typed, so it comes before options of --from and --settings, but after those
 * of a line of a batch. */
bool is_overruled(const arguments *args, const char *name);
void say_fast(job *j); /* tells the user what --fast sets, once for the same settings */
typedef struct plan_steps {
    char text[160];
} plan_steps;
plan_steps show_plan_steps(const job *j); /* of the plan, with the sampler: "8 steps of heun in 15 passes" */
void print_plan(FILE *to, const job *j);
/* The folder of the model, or its name if it is not on this machine; for messages. */
const char *model_told(const job *j);
bool is_host(const lz_context *ctx); /* no device with memory of its own */
int64_t device_memory(job *j);       /* bytes of the device, or of this machine; 0: unknown */
/* together.c: how many pictures of this plan are made together (--batch); plan NULL: the most of any plan. */
int pictures_together(job *j, const lz_picture_plan *plan, bool serves);
int64_t memory_here(void);    /* bytes that this process can use: of the machine, or the limit of its container */
void estimate_shapes(job *j); /* reads the shapes of the model's layers; its folder must exist */
void estimate_time(job *j);   /* fills in the estimate; needs the shapes and a plan */
json_t *json_estimate(double seconds); /* null if unknown */
/* Reports an error if the text is not UTF-8. what: its name in the error. Returns an exit code. */
int check_text(const arguments *args, const char *what, const char *text);
int64_t random_seed(void);
const char *sampler_title(const char *sampler); /* its name in other programs, where it differs */
lz_status write_picture(const job *j, const lz_picture *p, int64_t seed, const char *path,
                        lz_error *err); /* with its metadata */

/* ---- prompts with choices: see template.h ------------------------------------------------------------------------ */

/* Makes the choices of a prompt, by the seed. *to: owned; NULL if the prompt has no choices. Returns an exit code. */
int resolve_prompt(const arguments *args, const char *prompt, int64_t seed, char **to);
/* The same for every combination of choices. Returns an exit code; the caller frees the texts after an error too. */
int resolve_combinations(const arguments *args, const char *prompt, char *to[MAX_PICTURES], int *n);
/* The template to record with a picture, so that settings do not make choices a second time; NULL: none. */
const char *template_of(const arguments *args, const char *prompt);

/* The options --x and --y of a grid (axis.c). */
int take_axis(arguments *args, const option *option, const char *value);

/* ---- a part of a picture is repainted (mask.c) -------------------------------------------------------------------- */

bool repaints(const arguments *args); /* there is a mask, or sides are added */
int take_keep_outside(arguments *args, const option *option, const char *value);
int take_extend(arguments *args, const option *option, const char *value);
int check_repaint(const arguments *args); /* refuses combinations of options. Returns an exit code */
int ask_mask(job *j);                     /* reads the mask, and fills in the options. Returns an exit code */
void forget_mask(job *j);
void say_repainted(const job *j); /* tells the user about sizes; after job_settle */

/* ---- transparency (transparent.c) --------------------------------------------------------------------------------- */

int take_background(arguments *args, const option *option, const char *value);
const char *background_name(int background); /* of an lz_background; NULL: auto */
int check_background(const arguments *args); /* refuses a JPEG with --background transparent. Returns an exit code */
bool is_jpeg(const char *path);              /* by its ending */
/* Tells the user if the file has no transparency and the picture does. */
void say_on_white(const arguments *args, const char *path, const lz_image *image);

/* ---- settings: a JSON object whose keys are names of options ----------------------------------------------------- */

#define SETTINGS_KEY "lazuli" /* key of the settings in a picture */
#define SHEET_KEY "sheet"     /* key in a sheet; these have the seeds of all its pictures */

int read_settings(arguments *args); /* reads the files of --settings and --from. Returns an exit code */
/* Sets options from a JSON object. overrule: replaces options that were given. Returns an exit code. */
int apply_settings(arguments *args, json_t *settings, bool overrule);
/* The settings that make this picture again; files by their names, or by their full paths. NULL: no memory */
json_t *settings_of(const job *j, int64_t seed, bool full_paths);
char *settings_text(json_t *settings); /* one line of ASCII; free it. NULL: no memory */

#endif
