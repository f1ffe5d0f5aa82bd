/* help.c: the help, printed from the tables, in lines of 80 columns. `lazuli --help` is one screen of 24 lines; --help
 * all has every table, and COMMAND --help has the rows of one command. */
#include <string.h>

#include "cache.h"

enum { COLUMNS = 80, TEXT_COLUMN = 23 };

const explained exit_codes[] = {
    {"0", "success"},
    {"1",
     "failure; one sentence on stderr says why. In a batch some lines failed, and the others are done. The pictures "
     "of compare differ"},
    {"2", "a command, an option or a value was not understood. The pictures of compare cannot be compared"},
    {"130", "stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP). No half-written file stays, and a batch can continue"},
    {"141", "the reader of stdout closed it before everything was printed"},
    {NULL, NULL},
};

const explained variables[] = {
    {"LAZULI_MODEL", "the folder or name of the model, if -m names none"},
    {"LAZULI_KEYS", "keys of the clients of serve, in lines as in --key-file, in place of it or besides"},
    {"LAZULI_LORAS", "the folder of LoRAs for <lora:NAME:0.8> in a prompt, if --lora-folder names none"},
    {"LAZULI_SETTINGS",
     "the settings file, which names models of several files (default lazuli/settings.toml in $XDG_CONFIG_HOME)"},
    {"LAZULI_CACHE", "the folder for compiled GPU kernels (default $XDG_CACHE_HOME/lazuli); if empty, none are kept"},
    {"LAZULI_CUDA_PATH", "folders with NVIDIA's libraries, separated by colons; if empty, the usual ones"},
    {"LAZULI_CUDA_GEMM", "library, own or any: the kernels for matrix products on a GPU (default: the fastest)"},
    {"LAZULI_CUDA_SDPA", "library: attention on a GPU by cuDNN, even if Lazuli has a kernel of its own"},
    {"LAZULI_CUDA_DNN", "if it is 0, cuDNN is not used"},
    {"LAZULI_CUDA_TRACE", "if it is set, choices, refusals and compilations for a GPU are printed on stderr"},
    {"LAZULI_PULL_PAUSE", "seconds before pull repeats a failed request for the first time (default 0.5)"},
    {"LAZULI_PULL_STALL", "seconds with less than 1 KiB each after which pull repeats a request (default 60)"},
    {"LAZULI_STORE_PASSWORD", "the password of Redis, for --store of serve and worker"},
    {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN", "the keys for --pictures s3://BUCKET"},
    {"AWS_REGION, AWS_DEFAULT_REGION", "the region for --pictures s3://BUCKET (default us-east-1)"},
    {"HF_ENDPOINT", "the hub for pull (default https://huggingface.co)"},
    {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN", "the token for the hub"},
    {"HF_TOKEN_PATH", "the file with the token (default $HF_HOME/token)"},
    {"HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE", "the folder for pulled models (default $HF_HOME/hub)"},
    {"HF_HOME", "the folder of the Hugging Face tools (default $XDG_CACHE_HOME/huggingface)"},
    {"XDG_CACHE_HOME", "the folder for caches (default ~/.cache)"},
    {"XDG_CONFIG_HOME", "the folder for settings (default ~/.config)"},
    {"XDG_STATE_HOME",
     "its folder lazuli/ holds the history of sessions and pictures that were not saved (default ~/.local/state)"},
    {"HOME", "your home folder, written ~ above"},
    {"CURL_CA_BUNDLE, SSL_CERT_FILE", "a file with certificates of your own, for pull"},
    {"https_proxy, http_proxy, no_proxy", "proxies, for pull"},
    {"NO_COLOR", "if it is not empty, output on a terminal has no colours"},
    {"TERM", "the kind of the terminal, for pictures and colours; if it is dumb, there are no colours or previews, "
             "and progress is a plain line every ten seconds"},
    {"LINES, COLUMNS", "the size of pictures on the terminal (default: the size of the terminal)"},
    {NULL, NULL},
};

const example examples[] = {
    {GENERATE, "lazuli \"a fox in 3d style on a blue background\" -o fox.png", "a first picture, by the demo model"},
    {GENERATE, "lazuli \"a red fox in the snow\" -m models/klein -o fox.png", "by another model"},
    {GENERATE, "export LAZULI_MODEL=models/klein", "use this model if -m is not given"},
    {GENERATE, "lazuli a red fox -S 1,2,3 -W 768 -H 512", "three wide pictures, lazuli-1.png ..."},
    {GENERATE, "lazuli -p \"make the sky purple\" -i photo.jpg -o new.png", "look at an image"},
    {GENERATE, "lazuli -p \"an oil painting\" -i photo.jpg --strength 0.6", "start from an image"},
    {GENERATE, "lazuli --from fox.png -o again.png", "make it again; on a CPU the same bytes"},
    {GENERATE, "lazuli --from fox.png -S 8 -s 20", "make it with another seed and more steps"},
    {GENERATE, "echo a red fox | lazuli - --json | jq .pictures[0].file", "JSON for scripts"},
    {GENERATE, "lazuli a red fox --preview --show", "show it while it forms, and when it is done"},
    {GENERATE, "lazuli \"a {red|blue} fox in {snow|a wood}\" --count 9", "choices, made by the seed of each picture"},
    {GENERATE, "lazuli \"a {red|blue} fox\" --combinations", "all of them, once each"},
    {GENERATE, "lazuli a red fox --count 9 --sheet foxes.jpg", "nine pictures, and one with all of them"},
    {GENERATE, "lazuli", "start a session for many prompts"},
    {GENERATE, "lazuli -i photo.jpg", "start a session; the first prompt looks at this image"},
    {PLAN, "lazuli plan a red fox -W 2048 -H 2048", "memory and time of a picture, without making it"},
    {PLAN, "lazuli plan -m flux2-klein-4b", "the same for a model that was not downloaded"},
    {INFO, "lazuli info models/klein", "the parts of a model, and what a picture takes"},
    {INFO, "lazuli info model.safetensors", "the contents of a weight file"},
    {TOKENIZE, "lazuli tokenize -m models/klein a red fox", "the token ids of a prompt"},
    {TOKENIZE, "lazuli tokenize -m models/klein <prompts.jsonl", "{\"text\": ...} to {\"ids\": [...]}, line by line"},
    {ENCODE, "lazuli encode -m models/klein in.png -o latents.safetensors", "an image to latents"},
    {DECODE, "lazuli decode -m models/klein latents.safetensors -o out.png", "latents to a picture"},
    {TENSORS, "lazuli tensors models/klein", "all tensors of a model: transformer/NAME, vae/NAME ..."},
    {TENSORS, "lazuli tensors model.safetensors", "names, types, shapes, bytes; reads the header only"},
    {TENSORS, "lazuli tensors --json models/klein/vae | jq .bytes", ""},
    {CONVERT, "lazuli convert models/klein klein-q8.gguf --part transformer --type q8_0", ""},
    {CONVERT, "lazuli convert klein.safetensors klein-q4.gguf --type q4_k", "a file, a quarter as large"},
    {CONVERT, "lazuli convert models/klein models/klein-int8 --type int8", "a whole model, into a new folder"},
    {DEVICES, "lazuli devices", "instruction sets, threads and GPUs of this machine"},
    {PULL, "lazuli pull flux2-klein-4b", "then use it: lazuli -m flux2-klein-4b \"a red fox\""},
    {PULL, "lazuli pull Qwen/Qwen-Image --to models/qwen", "download into a folder"},
    {MODELS, "lazuli models", "models on this machine, with sizes and missing files"},
    {BATCH, "lazuli batch prompts.txt -o 'out/{line}-{seed}.png'", "one prompt a line; run it again to continue"},
    {BATCH, "lazuli batch prompts.txt -o out/", "into a folder, with names chosen by Lazuli"},
    {BATCH, "lazuli batch jobs.jsonl -m models/klein -s 4", "{\"prompt\": ..., \"seed\": 7, \"width\": 512} a line"},
    {GRID, "lazuli grid \"a fox\" --x steps=2,4,8 --y sampler=euler,heun -o grid.png", "six pictures, with labels"},
    {GRID, "lazuli grid \"a fox\" --x seed=1..5", "one row"},
    {GRID, "lazuli grid --x 'prompt=a fox|a dog' --y guidance=1,2,4", ""},
    {GRID, "lazuli grid \"a fox\" --lora style.safetensors --x lora=0..1:0.25", "weights of a LoRA"},
    {GRID, "lazuli grid --from fox.png --x steps=2,4,8", "settings of a picture, with other steps"},
    {COMPARE, "lazuli compare before.png after.png", "PSNR, SSIM, differing pixels, and settings"},
    {COMPARE, "lazuli compare a.png b.png -o difference.png", "a picture of the differences, amplified"},
    {COMPARE, "lazuli compare -q a.png b.png && echo equal", "0 equal, 1 different, 2 trouble, like cmp"},
    {SERVE, "lazuli serve", "the demo model on http://127.0.0.1:7860"},
    {SERVE, "lazuli serve -m flux2-klein-4b -m z-image-turbo", "two models; the first is the default"},
    {SERVE, "lazuli serve -m flux2-klein-4b --listen 0.0.0.0:7860 --key-file keys", ""},
    {SERVE, "lazuli serve --store redis://10.0.0.1 --pictures /srv/lazuli", "one of a fleet"},
    {WORKER, "lazuli worker --store redis://10.0.0.1 --pictures /srv/lazuli", ""},
    {COMPLETIONS, "eval \"$(lazuli completions bash)\"", "for this shell; `make install` installs them"},
    {MAN, "lazuli man | man -l -", "read the manual page without installing it"},
};
const size_t n_examples = COUNT(examples);

/* Help texts of an option for one command, if they differ from the text in options.c. */
static const struct {
    int commands;
    const char *option, *help;
} differences[] = {
    {ENCODE, "output", "the .safetensors file to write; required"},
    {DECODE, "output", "the .png, .jpg or .webp to write, or - (stdout); required"},
    {COMPARE, "output", "also write the differences as a .png, .jpg or .webp, amplified, or to - (stdout)"},
    {COMPARE, "quiet", "print nothing; the exit code tells whether the pictures are equal"},
    {GRID, "output", ".png, .jpg, .webp, DIR or - (default lazuli-grid.png)"},
    {GRID, "seed", "seed of all pictures (default: random); --x seed=1,2,3 is an axis"},
    {BATCH, "output", "file names with {file}, {line}, {n} and {seed}, or a folder (default {file}-{line}-{seed}.png)"},
    {BATCH, "seed", "seed of lines that have none (default: the line number)"},
    {BATCH, "prompt", "prompt of each JSON line that has none"},
    {BATCH, "dump", "write text, noise, latents and image of each picture; names as for -o, ending in .safetensors"},
    {BATCH, "json", "print a JSON object for each picture and each error, one a line"},
    {TOKENIZE, "json", "print errors as JSON on stdout too; ids are always JSON"},
    {COMPLETIONS | MAN, "json", "print errors as JSON on stdout"},
    {PLAN, "quiet", "print the plan without notes"},
    {PLAN, "seed", "as for generate; has no effect on a plan"},
    {PLAN, "count", "as for generate; has no effect on a plan"},
    {PLAN, "wildcards", "as for generate; has no effect on a plan"},
    {PLAN, "no-templates", "as for generate; has no effect on a plan"},
    {PLAN, "output", "as for generate; has no effect on a plan"},
    {PLAN, "dump", "as for generate; has no effect on a plan"},
    {PLAN, "verbose", "as for generate; has no effect on a plan"},
    {PLAN, "profile", "as for generate; has no effect on a plan"},
};

const char *option_help(const option *o, int bit) {
    for (size_t i = 0; i < COUNT(differences); i++)
        if (differences[i].commands & bit && strcmp(differences[i].option, o->name) == 0) return differences[i].help;
    return o->help;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void print_title(const char *title) {
    printf("\n%s%s:%s\n", colour(stdout, "\033[1m"), title, colour(stdout, "\033[0m"));
}

/* Prints text from a column on, with line breaks at blanks; later lines begin at indent. */
static void print_text(int column, int indent, const char *text) {
    const char *between = "";
    for (size_t n; *text; text += n + strspn(text + n, " ")) {
        n = strcspn(text, " ");
        if (column + (int)(strlen(between) + n) > COLUMNS) {
            printf("\n%*s", column = indent, "");
            between = "";
        }
        column += printf("%s%.*s", between, (int)n, text);
        between = " ";
    }
    putchar('\n');
}

/* Prints a name, and a text after it, or below it if the name is long. */
static void print_row(const char *name, const char *text) {
    int column = printf("  %s", name);
    if (column >= TEXT_COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", TEXT_COLUMN - column, "");
    print_text(TEXT_COLUMN, TEXT_COLUMN, text);
}

static void print_example(const char *line, const char *why) {
    int width = (int)strlen(line) < 40 ? 40 : (int)strlen(line);
    if (!*why)
        printf("  %s\n", line);
    else if (2 + width + 2 + (int)strlen(why) <= COLUMNS)
        printf("  %-*s  %s\n", width, line, why);
    else
        printf("  %s\n      %s\n", line, why);
}

static void print_examples(const command *only) {
    for (size_t i = 0; i < n_examples; i++)
        if (!only || examples[i].command == only->bit) print_example(examples[i].line, examples[i].why);
}

static void print_option(const option *o, int bit) {
    char name[60];
    snprintf(name, sizeof name, "%c%c%c --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
             o->letter ? ',' : ' ', o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    print_row(name, option_help(o, bit));
}

static void print_options(const command *only) {
    const char *group = NULL;
    for (size_t i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (only && !(o->commands & only->bit)) continue;
        if (o->group != group) print_title(group = o->group);
        print_option(o, only ? only->bit : 0);
    }
}

static void print_models(void) {
    print_title("short names for pull");
    static const char marks[] = " *+#"; /* of the licences, in the order in which they appear */
    const char *licences[sizeof marks - 1];
    size_t n = 0;
    for (size_t i = 0; i < n_known_models; i++) {
        const known_model *m = &known_models[i];
        size_t k = 0;
        while (k < n && strcmp(m->licence, licences[k]) != 0) k++;
        if (k == n && n < COUNT(licences)) licences[n++] = m->licence;
        if (m->parts && i && !known_models[i - 1].parts) print_title("short names for pull, of single files");
        printf("  %-24s %8s  %s%s", m->name, show_bytes(m->bytes).text, m->parts ? "of " : "", known_repo(m));
        if (k && k < COUNT(licences)) printf(" %c", marks[k]);
        puts("");
    }
    print_title("licences of these models");
    for (size_t k = 0; k < n; k++) printf("  %.*s %s\n", k ? 1 : 8, k ? &marks[k] : "no mark:", licences[k]);
}

static void print_explained(const char *title, const explained *list) {
    print_title(title);
    for (; list->name; list++) print_row(list->name, list->text);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void print_command(const command *c) {
    printf("usage: lazuli %s [OPTIONS]%s%s\n", c->name, *c->takes ? " " : "", c->takes);
    print_text(0, 0, c->help);
    print_title("examples");
    print_examples(c);
    if (c->bit == PULL) print_models();
    print_options(c);
}

static void print_everything(void) {
    print_title("examples");
    print_examples(NULL);
    print_title("commands");
    for (size_t i = 0; i < n_commands; i++) {
        char name[40];
        snprintf(name, sizeof name, "%-11s %s", commands[i].name, commands[i].takes);
        print_row(name, commands[i].help);
    }
    print_options(NULL);
    print_models();
    print_explained("environment", variables);
    print_explained("exit codes", exit_codes);
}

static void print_first_screen(void) {
    static const char *const common[] = {"model", "output", "width", "height", "seed", "steps", "image", "show"};
    putchar('\n');
    print_example("lazuli \"a fox in 3d style\" -o fox.png", "a first picture, by the demo model");
    print_example("lazuli", "start a session for many prompts");
    print_example("lazuli pull flux2-klein-4b", "download a larger model");
    print_example("lazuli -m flux2-klein-4b \"a red fox\"", "make a picture with it");
    print_example("lazuli -m flux2-klein-4b -i a.jpg \"snow\"", "look at an image");
    printf("\n%scommands:%s", colour(stdout, "\033[1m"), colour(stdout, "\033[0m"));
    int column = 9;
    for (size_t i = 0; i < n_commands; i++) {
        if (column + 1 + (int)strlen(commands[i].name) > COLUMNS) printf("\n%*s", column = 9, "");
        column += printf(" %s", commands[i].name);
    }
    putchar('\n');
    print_title("common options");
    for (size_t i = 0; i < COUNT(common); i++) print_option(find_option(common[i], strlen(common[i])), GENERATE);
    puts("\n'lazuli --help all' prints everything, 'lazuli COMMAND --help' one command.");
}

void print_help(const command *only, bool all) {
    if (only) {
        print_command(only);
        return;
    }
    puts("usage: lazuli [COMMAND] [OPTIONS] [WORDS]\n"
         "Makes pictures from text on this machine. Without COMMAND, WORDS is the prompt.");
    if (all)
        print_everything();
    else
        print_first_screen();
}
