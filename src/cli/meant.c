/* meant.c: recognises words that are probably not a prompt: a mistyped command, a command of another program, the name
 * of a model or of a picture. Finds the option that is nearest to a mistyped one.
 *
 * A prompt may begin with any word ("list of fruits", "run in the park", "concert in a hall"). So a first word that
 * resembles a command is reported only if it is the only word, if operands follow (a model, a file, a prompt in quotes),
 * or if it is a command with one typing error and no word of its own ("genrate a fox"). The names of a model and of a
 * picture that exists are always reported. After `generate`, after `--` and with --prompt, words are always a prompt. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cache.h"

/* Commands of other programs, and the equivalent here. NAME and PROMPT are replaced by the words that follow. */
static const struct {
    const char *words, *hint;
} others[] = {
    {"run use", "lazuli -m NAME \"PROMPT\" makes a picture with a model"},
    {"list ls", "'lazuli models' lists the models on this machine"},
    {"show inspect", "'lazuli info -m NAME' describes a model, --show draws a picture on the terminal"},
    {"download get fetch install add create", "'lazuli pull NAME' downloads a model"},
    {"update upgrade", "'lazuli pull NAME' downloads new files of a model"},
    {"search find", "'lazuli pull --help' lists models that can be downloaded"},
    {"rm remove delete uninstall", "'lazuli models' prints the folder of each model, which can be removed"},
    {"server start stop daemon ps api", "'lazuli serve' makes pictures for other programs, over HTTP"},
    {"chat repl shell session interactive", "'lazuli' without arguments starts a session"},
    {"gen paint draw imagine txt2img text2img t2i", "lazuli \"PROMPT\" -o picture.png"},
    {"img2img image2image i2i", "lazuli \"PROMPT\" -i photo.jpg --strength 0.6 -o picture.png"},
    {"edit inpaint", "lazuli \"PROMPT\" -i photo.jpg -o picture.png"},
    {"diff cmp", "'lazuli compare A B' tells how much two pictures differ"},
    {"bench benchmark", "'lazuli \"PROMPT\" --profile' prints where the time goes"},
    {"login auth", "$HF_TOKEN holds the token for the Hugging Face hub"},
    {"gpu gpus device", "'lazuli devices' lists the devices of this machine"},
    {"quit exit", "nothing is running"},
};

/* Words one typing error away from a command that prompts may begin with: nouns, verbs, and forms of the command. */
static const char ordinary[] =
    "pan lan model modele modelo modelos modals modes morels motels yodels device devises sensors censors tenors "
    "tensor "
    "concert convent convents converts covert bach bath botch butch bitch catch hatch latch match natch patch watch "
    "decade decide decoded decoder decodes encoded encoder encodes encore generated generates venerate tokenized "
    "tokenizer completion complexions versions aversion hep";

/* Levenshtein distance, with a swap of neighbours as one change; keeps the last three rows of its table. */
int distance(const char *a, const char *b) {
    int rows[3][64], n = (int)strlen(b), i = 0;
    if (n > 63) return n;
    for (int j = 0; j <= n; j++) rows[0][j] = j;
    while (a[i]) {
        int *row = rows[++i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (before[j] + 1 < best) best = before[j] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            row[j] = swapped && earlier[j - 2] + 1 < best ? earlier[j - 2] + 1 : best;
        }
    }
    return rows[i % 3][n];
}

static bool is_one_of(const char *word, const char *list) {
    for (size_t n; *list; list += n + strspn(list + n, " ")) {
        n = strcspn(list, " ");
        if (strlen(word) == n && strncasecmp(word, list, n) == 0) return true;
    }
    return false;
}

/* Options of other programs, and the equivalent here. */
static const struct {
    const char *names, *option;
} other_options[] = {
    {"port host bind address", "listen"},
    {"size image-size", "width"},
    {"n num number num-images images-per-prompt batch-count", "count"},
    {"cfg cfg-scale", "guidance"},
    {"input input-image init-image init-img reference", "image"},
    {"num-steps num-inference-steps sampling-steps", "steps"},
    {"ckpt checkpoint", "model"},
    {"outdir", "output"},
};

/* Does text begin with this word, that is, with its letters and then a hyphen? */
static bool begins_with_word(const char *text, const char *word) {
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 && text[n] == '-';
}

/* An option of another program, an option that was cut short (--out), one with a typing error, or one with a word
 * added (--output-file). Larger distances than two are not suggested. */
const option *nearest_option(const char *name) {
    const option *nearest = NULL, *whole = NULL;
    for (size_t i = 0; i < COUNT(other_options); i++)
        if (is_one_of(name, other_options[i].names))
            return find_option(other_options[i].option, strlen(other_options[i].option));
    for (size_t i = 0; i < n_options && name[0] && name[1]; i++)
        if (strncmp(options[i].name, name, strlen(name)) == 0) return &options[i];
    int best = 3;
    for (size_t i = 0; i < n_options; i++) {
        int d = distance(name, options[i].name);
        if (d < best && 2 * d < (int)strlen(options[i].name)) {
            best = d;
            nearest = &options[i];
        }
        if (begins_with_word(name, options[i].name) && (!whole || strlen(options[i].name) > strlen(whole->name)))
            whole = &options[i];
    }
    return nearest ? nearest : whole;
}

bool has_blank(const char *text) { return text[strcspn(text, " \t\r\n")] != 0; }

/* For short commands only a missing letter or a swap counts as mistyped: "plane" and "bull" are prompts, "pul" and
 * "plna" are not. A swap keeps the sum of the letters. */
static bool is_slip(const char *word, const char *name) {
    if (strcasecmp(word, name) == 0) return true;
    if (strlen(name) < 4 || distance(word, name) != 1) return false;
    if (strlen(name) > 4 || strlen(word) < 4) return true;
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += word[i] - name[i];
    return strlen(word) == 4 && sum == 0;
}

const char *slip_of(const char *word) {
    static const char *const also[] = {"help", "version"}; /* `lazuli help "a fox"` is a prompt */
    for (size_t i = 0; i < n_commands; i++)
        if (is_slip(word, commands[i].name)) return commands[i].name;
    for (size_t i = 0; i < COUNT(also); i++)
        if (is_slip(word, also[i]) && strcmp(word, also[i]) != 0) return also[i];
    return NULL;
}

bool names_model(const char *word) {
    if (known_by(word) || have_model(word)) return true;
    if (!is_repo(word)) return false;
    char *cache = hub_cache(), *folder = cache_folder(cache, word), *model = folder ? cached_model(folder) : NULL;
    bool there = model != NULL;
    free(model);
    free(folder);
    free(cache);
    return there;
}

static bool names_file(const char *word) { return strpbrk(word, "./") && access(word, F_OK) == 0; }

/* Writes hint with NAME and PROMPT replaced. */
static void expand(const char *hint, const char *name, const char *prompt, char *to, size_t size) {
    for (size_t used = 0; *hint && used + 1 < size; used += strlen(to + used)) {
        bool names = strncmp(hint, "NAME", 4) == 0, prompts = strncmp(hint, "PROMPT", 6) == 0;
        snprintf(to + used, size - used, "%.*s", names || prompts ? 200 : 1, names ? name : prompts ? prompt : hint);
        hint += names ? 4 : prompts ? 6 : 1;
    }
}

static bool explain_model(const arguments *args, const char *prompt, char *hint, size_t size) {
    const char *word = args->words[0], *meant = names_model(word) ? word : NULL;
    bool whole = args->n_words == 1 || (args->n_words == 2 && has_blank(args->words[1])); /* `demo "a fox"` */
    if (whole && strcmp(word, "demo") == 0) meant = word;
    const known_model *near = meant ? NULL : nearest_known(word);
    if (!meant && !near) return false;
    snprintf(hint, size, "'%.200s' is %sthe name of a model; use lazuli -m %.200s \"%.200s\"", word,
             near ? "nearly " : "", near ? near->name : meant, args->n_words == 2 ? args->words[1] : prompt);
    return true;
}

bool is_hardly_a_prompt(const arguments *args, char *hint, size_t size) {
    if (args->only_words || args->prompt || args->n_words < 1 || args->command != &commands[0]) return false;
    const char *word = args->words[0], *last = args->words[args->n_words - 1], *second = args->words[1];
    bool alone = args->n_words == 1;
    if (!alone && !args->n_images && names_file(last) && picture_side_limit(last)) {
        snprintf(hint, size, "'%.200s' is a picture; with -i %.200s the model looks at it", last, last);
        return true;
    }
    if (!*word || has_blank(word)) return false;
    bool model = !alone && (strcmp(second, "demo") == 0 || names_model(second) || nearest_known(second));
    bool operands = model || (!alone && has_blank(last)) || (args->n_words <= 3 && names_file(second));
    const char *name = model || args->n_words > 2 ? second : "NAME";
    const char *prompt = !alone && has_blank(last) ? last : "a red fox";
    if (explain_model(args, prompt, hint, size)) return true;
    if (names_file(word) && picture_side_limit(word)) {
        snprintf(
            hint, size,
            "'%.200s' is a picture; with -i the model looks at it, --from makes it again, and 'lazuli info' prints "
            "its settings",
            word);
        return true;
    }
    const char *meant = slip_of(word);
    bool mistyped = meant && strcasecmp(meant, word) != 0 && !is_one_of(word, ordinary);
    if (!alone && !operands && !mistyped) return false;
    if (meant) {
        snprintf(hint, size, "'%.200s' is not a command; did you mean 'lazuli %s'?", word, meant);
        return true;
    }
    for (size_t i = 0; i < COUNT(others); i++)
        if (is_one_of(word, others[i].words)) {
            size_t used = (size_t)snprintf(hint, size, "'%.200s' is not a command; ", word);
            expand(others[i].hint, name, prompt, hint + used, size - used);
            return true;
        }
    return false;
}

/* On a terminal, asks whether the words are a prompt after all. */
int refuse_or_ask(const arguments *args, const char *hint) {
    if (args->json || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return fail(args, NOT_UNDERSTOOD, "%s ('lazuli generate %s%s' uses the words as a prompt)", hint,
                    args->words[0], args->n_words > 1 ? " ..." : "");
    int code = fail(args, NOT_UNDERSTOOD, "%s", hint);
    fprintf(stderr, "Use the words as a prompt? [y/N] ");
    char answer[8] = "";
    bool yes = fgets(answer, sizeof answer, stdin) && tolower((unsigned char)answer[0]) == 'y';
    return yes ? DONE : code;
}
