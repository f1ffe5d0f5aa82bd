/* test_vocabulary.c: what a model was trained for (lazuli.json, words.txt): how prompts are rewritten, and remarks
 * about words, sizes and images beyond it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "pipeline/family.h"
#include "pipeline/job.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif
#define DEMO LZ_SOURCE_DIR "/models/demo"
#define SMALL LZ_SOURCE_DIR "/tests/data/flux2/A"

static lz_remarks remark(lz_model *model, const char *prompt) {
    lz_remarks r = {.size = ""};
    lz_error err = {0};
    CHECK_OK(lz_remark(model, &LZ_PICTURE_OPTIONS(.prompt = prompt), &r, &err), &err);
    return r;
}

/* trap 22: words that the demo model does not know gave some picture without a word. read_as NULL: the prompt stays as
 * it is; unknown NULL: nothing is said. */
static void demo_words(void) {
    static const struct {
        const char *prompt, *read_as, *unknown;
    } cases[] = {
        {"a cup of coffee", "a hot beverage", NULL},
        {"two Bikes on a red background.", "two bicycles on a red background.", NULL},
        {"a photo of a cute cat, 8k, highly detailed", "a cat", NULL},
        {"Please draw me a dog", "a dog", NULL},
        {"cute, adorable", NULL, "the prompt names no thing that this model knows"}, /* nothing would be left */
        {"a hot dog", NULL, NULL},                                                   /* not something hot */
        {"a flat picture of a fox", NULL, NULL},
        {"A RED APPLE", NULL, NULL},
        {"", NULL, NULL},
        {" .,;!", NULL, "names no thing"},
        {"a wombat", NULL, "this model does not know \"wombat\""},
        {"a giraf", NULL, "this model does not know \"giraf\""},
        {"a pengiun", NULL, "\"pengiun\" (it knows \"penguin\")"},
        {"a beautiful wizzard", "a wizzard", "\"wizzard\" (it knows \"mage\")"},
        {"two kittens", "two cat faces", NULL},
        {"🦊", "fox", NULL},
        {"a cute 🐼 on a blue background", "a panda on a blue background", NULL},
        {"☕\xef\xb8\x8f and ❤", "hot beverage and red heart", NULL}, /* U+FE0F is ignored, here and in the list */
        {"🦊🐼 ⭐ on red", "fox and panda and star on red", NULL},
        {"a 🦊and a 🐼", "a fox and a panda", NULL},
        {"👋🏽", "waving hand", NULL},        /* with a tone of the skin */
        {"👨🏽‍⚖️", "man judge", NULL}, /* and joined to a sign */
        {"🏁 🦊", "fox", "this model does not know \"🏁\""},
        {"fox!\xef\xb8\x8f", NULL, NULL}, /* U+FE0F alone is no word */
        {"\xef\xb8\x8f"
         "fox",
         NULL, NULL},
        {"two🦊", "two fox", NULL},
        {"make the fox bigger", NULL, "changes a picture, and there is none"},
        {"a larger cat", "a bigger cat", NULL},
        {"larger", "bigger", "names no thing"},
        {"turn the fox into a line picture", NULL, "changes a picture"},
        {"a few of them", "three of them", "changes a picture"},
        {"seven of them", "six of them", "changes a picture"},
        {"make it seven", "make it six", "changes a picture"},
        {"add seven more", "add five more", "changes a picture"},
        {"thirteen balloons", "six balloons", NULL},
        {"thousands of balloons", "six balloons", NULL},
        {"two dozen eggs", "six eggs", NULL},
        {"a basket of fruit on red", "a basket on red", NULL},
        {"a not red cat", "a cat", NULL},
        {"the not so big cat", "the cat", "does not know \"so\""},
        {"a red heart on fire", "a heart on fire", NULL},
        {"a happy birthday cake", "a birthday cake", NULL},
        {"a plate of cookies", "three cookies", NULL},
        {"a cute glasses", "a glasses", NULL},
        {"a 🦊🦊", "two foxes", NULL},
        {"two 🦊🦊", "two foxes", NULL},
        {"((a cat:1.2)), best quality", "a cat", NULL},
        {"a [red] cat (on blue:0.85), 8k", "a red cat on blue", NULL},
        {"a dog (without a hat) on red", "a dog on red", NULL},
        /* Brackets and weights are left out before anything else is read, quotation marks after it */
        {"two (dogs)", "two dogs", NULL},
        {"(two:1.2) dogs", "two dogs", NULL},
        {"((big)) dogs", "three big dogs", NULL},
        {"a dog without (a hat:1.3) on red", "a dog on red", NULL},
        {"no (hat), a dog", "a dog", NULL},
        {"(a cat:1.2) (a dog:1.2)", "a cat and a dog", NULL},
        {"(a cat), (a dog)", "a cat and a dog", NULL},
        {"(cat:1.3), [dog]", "cat and dog", NULL},
        {"(seven) dogs", "six dogs", NULL},
        {"(three:1.2) quantum dogs", "three dogs", "\"quantum\""},
        {"a fox in the (quiet) harbour", "a fox", "\"harbour\""},
        {"(hot) dog", "hot dog", NULL},
        {"a (light blue) car", "a blue automobile", NULL},
        {"a cat on (a chair)", "a cat above a chair", NULL},
        {"a cat on {a chair}", "a cat above a chair", NULL},
        {"(🦊)(🦊)", "two foxes", NULL},
        {"( a cat )", "a cat", NULL},
        {"a cat , ( )", "a cat", NULL},
        {"\\(a cat\\) :)", "a cat", NULL},
        {"[a dog:1.2]", "a dog", NULL},
        {"(a dog: 1.2)", "a dog", NULL},
        {"a dog:1.3, (on red:-1)", "a dog, on red", NULL},
        {"\"a cat\"", "a cat", NULL},
        {"“a red car” on blue, \"8k\"", "a red automobile on blue", NULL},
        {"a\"cat\"", "a cat", NULL},
        {"two \"big\" dogs", "two big dogs", NULL},
        {"a japanese “here” button", NULL, NULL},
        /* A picture that is changed */
        {"make it blue without a hat", "make it blue", "changes a picture"},
        {"make the background red no hat", "make the background red", "changes a picture"},
        {"make it blue please", "make it blue", "changes a picture"},
        {"make it red not blue", "make it red", "changes a picture"},
        {"the same on blue please", "the same on blue", "changes a picture"},
        {"make it 12", "make it six", "changes a picture"},
        {"twenty of them", "six of them", "changes a picture"},
        {"add 2 more", "add two more", "changes a picture"},
        {"add 7 more", "add five more", "changes a picture"},
        {"turn the cat into a dog", NULL, "changes a picture"},
        {"put the cat in a house", NULL, "changes a picture"},
        {"don't make it red", NULL, "no thing but what"},
        {"two cats, one of them black", NULL, NULL},
        {"seven hundred", "hundred", "names no thing that this"},
        {"make the 🦊🦊 blue", "make the two foxes blue", "changes a picture"},
        {"make the seven foxes blue", "make the six foxes blue", "changes a picture"},
        {"add one more 🦊🦊", "add one more foxes", "changes a picture"},
        {"a cat on red please", "a cat on red", NULL},
        {"a cat on red without a hat", "a cat on red", NULL},
        {"a fox in red without a hat", "a fox in red", NULL},
        {"a car in red without wheels", "an automobile in red", NULL},
        {"a no dogs sign", "a sign", "\"sign\""},
        {"a never ending road", "a motorway", "\"ending\""},
        /* Words between two things, and numbers */
        {"a cat turning into a dog", "a cat and a dog", "\"turning\""},
        {"a rocket to the moon", "a rocket and the crescent moon", NULL},
        {"a bouquet of roses", "a bouquet and a rose", NULL},
        {"a christmas tree with presents", "a christmas tree with a wrapped gift", NULL},
        {"big red dogs and old owls", "a big red dog and an owl", "\"old\""},
        {"a cat / a dog", "a cat and a dog", NULL},
        {"a cat | a dog; an owl", "a cat and a dog and an owl", NULL},
        {"a blue dog - red cat", "a blue dog and red cat", NULL},
        {"a cat – a dog", "a cat and a dog", NULL},
        {"2 dogs, 1 cat", "2 dogs and cat", NULL},
        {"25 cats", "six cats", NULL},
        {"an orange", "a tangerine", NULL},
        {"an orange on a chair", "a tangerine above a chair", NULL},
        {"an orange please", "a tangerine", NULL},
        {"an orange and a lemon", "a tangerine and a lemon", NULL},
        {"an orange and white cat", NULL, NULL},
        {"a cat on an orange and blue background", NULL, NULL},
        {"two oranges", "two tangerines", NULL},
        {"an emoji of a cat", NULL, NULL},
        {"a cat on the left of a house", NULL, NULL},
        {"a cat with a background of trees", "a cat with a background of a deciduous tree", NULL},
        {"a cat on top of a car", "a cat above an automobile", NULL},
        {"a cat on blue without big hat", "a cat on blue", NULL},
        {"an orange cat", NULL, NULL},
        {"a cat on an orange background", NULL, NULL},
        {"a big 🦊🦊", "two big foxes", NULL},
        {"one plate of cookies", "three cookies", NULL},
        {"a cat that isn’t red", "a cat", NULL},
        {"a dog isn’t in a hat", "a dog", NULL},
        {"a dog’s cats", NULL, NULL},
        {"the dogs’ cats", NULL, NULL},
        {"a cat that isn't red", "a cat", NULL},
        {"a cat without a hat nor a ball on red", "a cat on red", NULL},
        {"a cup of hot chocolate", "a hot beverage", NULL},
        {"🍌🍌", "two bananas", NULL},
        {"🍌 🍌🍌 and 🐟🐟", "three bananas and two fish", NULL},
        {"🍌🍌🍌🍌🍌", "five bananas", NULL},
        {"🍌🍌🍌🍌🍌🍌🍌", "six bananas", NULL},
        {"a fox \xf0\x9f\x8f", "a fox", "this model does not know"}, /* not UTF-8 */
        {"❤\xef\xb8\x8e", "red heart", NULL},
        /* Unknown words are left out, and what joins them to the others */
        {"a quantum fox", "a fox", "\"quantum\""},
        {"a fox in the quiet harbour of yesteryear", "a fox", "\"quiet\""},
        {"two quantum foxes and a dog in transylvania on a red background", "two foxes and a dog on a red background",
         "\"quantum\""},
        {"a guitar in the style of qqa", "a guitar", "\"qqa\""},
        {"a lemon, tack sharp, qqa", "a lemon", "\"qqa\""},
        {"Qqa's turtle, f/1.8", "turtle", "\"qqa's\""},
        {"🦊 qqa 🐼", "fox and panda", "\"qqa\""},
        {"a fox with a", NULL, NULL}, /* no word is unknown */
        {"a cat and a very big dog", "a cat and a big dog", NULL},
        {"a very small cat", "a small cat", NULL},
        {"a fox on a qqa little house", "a fox above a little house", "\"qqa\""},
        {"a fox in the big qqa on a red qqb background", "a fox on a red background", "\"qqa\""},
        {"a cat in qqa style", "a cat", "\"qqa\""},
        {"a cat on a qqa background", "a cat on a background", "\"qqa\""},
        {"a big red qqa", NULL, "\"qqa\""},
        {"a qqa on a red background", "a red background", "\"qqa\""},
        {"qqa and a dragon", "a dragon", "\"qqa\""},
        {"a slice of pizza", "a pizza", NULL},
        {"a dog qqa a cat", "a dog and a cat", "\"qqa\""},
        {"an octopus playing chess", "an octopus and chess pawn", NULL},
        {"a fox near a house", "a fox next to a house", NULL},
        {"cat, qqa dog", "cat and dog", "\"qqa\""},
        {"a lemon, qqa, qqb banana", "a lemon and banana", "\"qqa\""},
        {"a cat and a “dog”", "a cat and a dog", NULL},
        {"a cat and a 'dog'", NULL, NULL},
        {"a fox… and\xc2\xa0"
         "a dog",
         NULL, NULL},
        {"a fox’s dog and ice-cream", NULL, NULL},
        {"a fox in the\nqqa", "a fox", "\"qqa\""},
        {"fox🏁cat", "fox and cat", "🏁"},
        /* Lower case, which is no remark by itself; plurals get a number; there are at most six of a thing */
        {"A Red FOX", NULL, NULL},
        {"Three Bikes", "three bicycles", NULL},
        {"dogs", "three dogs", NULL},
        {"big red dogs and a cat, Cats", "a big red dog and a cat and a cat", NULL},
        {"two dogs", NULL, NULL},
        {"two big dogs", NULL, NULL},
        {"kittens on a blue background", "three cat faces on a blue background", NULL},
        {"jeans", NULL, NULL}, /* no plural */
        {"seven apples", "six red apples", NULL},
        {"a dozen eggs", "six eggs", NULL},
        {"a few cats", "three cats", NULL},
        {"a 3d render of a cat", "a 3d picture of a cat", NULL},
        {"a pair of glasses", "glasses", NULL},
        {"seven fish", "six fish", NULL},
        {"8 potatoes and two buses", "six potatos and two bus", NULL},
        {"7 o'clock", "seven o'clock", NULL},
        {"100 points", NULL, "\"points\""}, /* no plural of the list: no number */
        {"a field of grass", "a herb", NULL},
        {"a group of three cats", "three cats", NULL},
        {"many, many big red balloons", "six big red balloons", NULL},
        {"seven 🦊", "six fox", NULL},
        /* Nothing is put between words that belong together */
        {"3d fox", NULL, NULL},
        {"a fox in 3d", NULL, NULL},
        {"a fox, flat", NULL, NULL},
        {"two 3d dogs", NULL, NULL},
        {"retro car", "retro automobile", NULL},
        {"make the dogs blue", NULL, "changes a picture"},
        {"put the big red dogs on a blue background", NULL, "changes a picture"},
        {"add two more dogs", NULL, "changes a picture"},
        {"a dog's cats", NULL, NULL},
        {"cats' eyes", "three cats' eyes", NULL},
        {"one more cats", "three cats", "\"more\""},
        {"a 3d picture of dogs", "a 3d picture of three dogs", NULL},
        {"a couple of dogs", NULL, NULL},
        {"a pair of shoes", "a pair of running shoes", NULL},
        {"some dogs and some red bread", "three dogs and red bread", NULL},
        /* What is known, but not before a thing */
        {"a cat on a chair", "a cat above a chair", NULL},
        {"a monkey in the big red car on blue", "a monkey and the big red automobile on blue", NULL},
        {"a cat on red, in line style", NULL, NULL},
        {"a light blue car on a dark green background", "a blue automobile on a dark green background", NULL},
        {"make it dark green", NULL, "changes a picture"},
        {"a navy blue fox in navy blue", "a blue fox in dark blue", NULL},
        /* Things that follow each other */
        {"a dog, a cat & an owl", "a dog and a cat and an owl", NULL},
        {"dog + big red cat, red background", "dog and big red cat, red background", NULL},
        {"a school bus", "a bus", NULL},
        {"a cat a dog", "a cat and a dog", NULL},
        {"a hundred cats in a row", "six cats", "\"row\""},
        /* Articles */
        {"a realistic eagle", "an eagle", NULL},
        {"an awesome cat", "a cat", NULL},
        {"a vector icon of a house", "a house", NULL},
        {"a sniper drawing of an owl", "an owl", "\"sniper\""},
        {"cute dogs and quantum cats", "a dog and a cat", "\"quantum\""},
        /* Negations are left out with what they negate */
        {"a cat without a hat", "a cat", NULL},
        {"a cat without a big red hat on a blue background", "a cat on a blue background", NULL},
        {"a dog and a cat without a hat and a ball", "a dog and a cat and a soccer ball", NULL},
        {"a cat, no hat, no dog, line style", "a cat, line style", NULL},
        {"a cat but not a dog", "a cat", "\"but\""},
        {"a house without qqa", "a house", "\"qqa\""},
        {"a house without qqa windows", "a house", "\"qqa\""},
        {"a cat with no hat", "a cat", NULL},
        {"a cat and no dog on a blue background", "a cat on a blue background", NULL},
        {"a cat not in a house", "a cat", NULL},
        {"without a hat, a cat", "a cat", NULL},
        {"a cat without", "a cat", NULL},
        {"a cat without, a dog", "a cat and a dog", NULL},
        {"a cat not red on a blue background", "a cat on a blue background", NULL},
        {"a house without cats or dogs", "a house", NULL},
        {"a house without a cat or a dog on red", "a house on red", NULL},
        {"a house without qqa or dogs, line style", "a house, line style", "\"qqa\""},
        {"a man without a hat riding a horse", "a man and a horse", NULL},
        {"a cat or a dog", "a cat and a dog", NULL},
        {"a fox, no 🦊🦊🦊", "a fox", NULL},
        {"a cat, no 🐕🐼, on red", "a cat, on red", NULL},
        {"a dog no 🐼on red", "a dog on red", NULL},
        {"not more than two dogs", NULL, "\"more\""},              /* nothing would be left */
        {"no entry", NULL, NULL},                                  /* a thing */
        {"no hat", NULL, "names no thing but what it leaves out"}, /* nothing would be left */
        {"a qqa", NULL, "\"qqa\""},                                /* nothing would be left */
        {"two caffeines", NULL, "\"caffeines\" (it knows \"hot beverage\")"},
        {"qqa qqb qqc qqd qqe", NULL, "\"qqa\", \"qqb\", \"qqc\" and 2 more"},
        {"ein schöner Käfer", NULL, "\"schöner\", \"käfer\""},
    };
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_remarks r = remark(model, cases[i].prompt);
        CHECK(strcmp(r.read_as, cases[i].read_as ? cases[i].read_as : "") == 0, "trap 22: '%s' is read as '%s'",
              cases[i].prompt, r.read_as);
        const char *said = *r.words ? r.words : r.images;
        CHECK(cases[i].unknown ? strstr(said, cases[i].unknown) != NULL : !*said, "trap 22: '%s': %s", cases[i].prompt,
              said);
    }
    lz_model_close(model);
    lz_close(ctx);
}

/* What is said to be read as something else gives its features, and the known prompt those of its own. */
static void demo_reads(void) {
    static const char *const prompts[] = {"a cup of coffee", "a hot beverage", "a hot dog"};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    lz_picture p[3] = {{.steps = 0}};
    for (int i = 0; i < 3 && model; i++)
        CHECK_OK(lz_generate(model, &p[i], &err, .prompt = prompts[i], .width = 16, .height = 16, .steps = 1), &err);
    const void *said = lz_data(p[0].text, &err), *known = lz_data(p[1].text, &err);
    if (!said || !known || !p[0].image.pixels || !p[2].image.pixels)
        CHECK(false, "nothing was painted: %s", err.text);
    else {
        size_t bytes = 4 * (size_t)lz_size(p[0].text);
        CHECK(lz_size(p[0].text) == lz_size(p[1].text) && memcmp(said, known, bytes) == 0, "trap 22");
        CHECK(memcmp(p[0].image.pixels, p[2].image.pixels, sizeof(uint8_t[16][16][3])) != 0);
    }
    for (int i = 0; i < 3; i++) lz_picture_free(&p[i]);
    lz_model_close(model);
    lz_close(ctx);
}

/* Are all words known? "in line style" is, although it names no thing. */
static bool all_known(const lz_remarks *r, bool names_thing) {
    return !*r->words || (!names_thing && strncmp(r->words, "the prompt names no", 19) == 0);
}

/* Is it the second word of a line, and no thing, which is the first word of such a line? */
static bool is_plural(const char *text, const char *word) {
    size_t length = strlen(word);
    char thing[400];
    snprintf(thing, sizeof thing, "\n%s, ", word);
    if (strstr(text, thing)) return false;
    for (const char *at = text; (at = strstr(at, word)); at++) {
        const char *first = at, *end = at + length;
        while (first > text && first[-1] != '\n') first--;
        bool begins = at - first > 2 && !memcmp(at - 2, ", ", 2) && strcspn(first, ",=~") == (size_t)(at - 2 - first);
        bool ends = *end == '\n' || !strncmp(end, " =", 2) || !strncmp(end, " ~", 2);
        if (begins && ends) return true;
    }
    return false;
}

/* Prompts of known words stay as they are, or they would no longer be what diffusers paints: every word of the list, alone
 * and in a sentence of the training, and the prompts of the sheet. A plural alone gets "three". */
static void known_stays(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    const char *text = model ? lz_model_words(model) : "";
    int n = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t end = strcspn(line, "#=~\n");
        const char *comma = memchr(line, ',', end);
        bool thing = comma && comma[-1] != '.'; /* "fox, foxes", not "a ..., an ..." */
        for (size_t at = 0, length; at < end && n < 20000; at += length + 1) {
            char prompt[300], expected[400] = "";
            length = strcspn(line + at, ",#=~\n");
            if (at + length > end || length < 2) continue;
            const char *word = line + at, *last = word + length; /* without the dots of a word that refers to others */
            while (word < last && strchr(" .", *word)) word++;
            while (last > word && strchr(" .", last[-1])) last--;
            snprintf(prompt, sizeof prompt, "a %.*s in 3d style on a dark blue background", (int)(last - word), word);
            lz_remarks r = remark(model, prompt);
            bool elsewhere = strncmp(prompt, "a orange in", 11) == 0; /* a tangerine */
            CHECK((!*r.read_as || elsewhere) && all_known(&r, thing), "'%s': %s %s", prompt, r.read_as, r.words);
            n++;
            bool refers = word > line + at + 1 || (last < line + at + length && *last == '.');
            if (refers) continue;
            snprintf(prompt, sizeof prompt, "%.*s", (int)(last - word), word);
            if (is_plural(text, prompt)) snprintf(expected, sizeof expected, "three %s", prompt);
            r = remark(model, prompt);
            CHECK(strcmp(r.read_as, expected) == 0 && all_known(&r, thing), "'%s': %s %s", prompt, r.read_as, r.words);
        }
    }
    CHECK(n > 3000, "%d known words", n);
    char row[600];
    FILE *sheet = fopen(LZ_SOURCE_DIR "/docs/demo-sheet.md", "r");
    for (n = 0; sheet && fgets(row, sizeof row, sheet);) {
        char *prompt = row[0] == '|' && row[2] >= '0' && row[2] <= '9' ? strchr(row + 1, '|') + 2 : NULL;
        if (!prompt) continue;
        *strstr(prompt, " |") = 0;
        lz_remarks r = remark(model, prompt); /* everyday words may be read as others */
        CHECK(all_known(&r, false) && (!strstr(prompt, " style") || !*r.read_as), "%s: %s %s", prompt, r.words,
              r.read_as);
        n++;
    }
    if (sheet) fclose(sheet);
    CHECK_I64(n, 30);
    lz_model_close(model);
    lz_close(ctx);
}

/* trap 4: sizes and images that the model was not trained for gave broken pictures without a word. */
static void demo_sizes(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    static uint8_t grey[256 * 256 * 3];
    lz_image image = {.width = 256, .height = 256, .pixels = grey};
    lz_remarks r;
    lz_model *model = lz_model_open(ctx, DEMO, &err), *other = lz_model_open(ctx, SMALL, &err);
    if (!CHECK(model && other, "%s", err.text)) return;
    lz_picture_options own = LZ_PICTURE_OPTIONS(.prompt = "a fox"),
                       large = LZ_PICTURE_OPTIONS(.width = 640, .height = 256);
    lz_picture_options look = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1),
                       start = LZ_PICTURE_OPTIONS(.images = &image, .n_images = 1, .strength = 0.5);
    CHECK_OK(lz_remark(model, &own, &r, &err), &err);
    CHECK(!*r.size && !*r.images && !*r.words && !*r.read_as);
    CHECK_OK(lz_remark(model, &large, &r, &err), &err);
    CHECK_TEXT(r.size, "not trained for pictures of 640 x 256, so this one may be poor; the nearest size is 512 x 256");
    static const struct {
        int64_t width, height;
        const char *nearest; /* NULL: a size of the training */
    } sizes[] = {{512, 256, NULL},        {512, 512, NULL},         {128, 128, NULL},          {320, 208, "384 x 256"},
                 {208, 320, "256 x 384"}, {1200, 800, "512 x 384"}, {1024, 1024, "512 x 512"}, {16, 16, "128 x 128"},
                 {288, 496, "256 x 512"}, {800, 16, "256 x 128"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        large.width = sizes[i].width;
        large.height = sizes[i].height;
        CHECK_OK(lz_remark(model, &large, &r, &err), &err);
        CHECK(sizes[i].nearest ? strstr(r.size, sizes[i].nearest) != NULL : !*r.size, "%s", r.size);
    }
    CHECK_OK(lz_remark(model, &LZ_PICTURE_OPTIONS(.prompt = "a cat, a dog and three birds"), &r, &err), &err);
    CHECK_TEXT(r.prompt, "names 3 things, and this model was trained for pictures of at most 2");
    CHECK_OK(lz_remark(model, &LZ_PICTURE_OPTIONS(.prompt = "a cat and three birds"), &r, &err), &err);
    CHECK(!*r.prompt, "%s", r.prompt);
    look.prompt = "make it blue"; /* an edit needs no thing */
    CHECK_OK(lz_remark(model, &look, &r, &err), &err);
    CHECK(!*r.images && !*r.size && !*r.words, "%s", r.images);
    lz_image images[] = {image, image};
    CHECK_OK(lz_remark(model, &LZ_PICTURE_OPTIONS(.images = images, .n_images = 2), &r, &err), &err);
    CHECK_TEXT(r.images, "trained to look at 1 image, so a picture from 2 is likely to be broken");
    CHECK_OK(lz_remark(model, &LZ_PICTURE_OPTIONS(.images = images, .n_images = 2, .strength = 0.5), &r, &err), &err);
    CHECK(!*r.images, "%s", r.images); /* one of them is the start */
    CHECK_OK(lz_remark(model, &start, &r, &err), &err);
    CHECK(!*r.images && !*r.size, "%s", r.images);
    CHECK_OK(lz_remark(other, &look, &r, &err), &err); /* a folder that says nothing */
    CHECK(!*r.size && !*r.images && !*r.words && !*r.read_as && !lz_model_words(other));
    CHECK_STATUS(lz_remark(model, &LZ_PICTURE_OPTIONS(.width = -1), &r, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_remark(model, NULL, &r, &err), LZ_BAD_ARGUMENT, &err);
    lz_model_close(model);
    lz_model_close(other);
    lz_close(ctx);
}

/* A reference has the size of the picture, as in training: the whole image, whose edges are continued. */
static void demo_references(void) {
    static const struct {
        int64_t image[2], asked[2], small[2], size[2];
    } cases[] = {
        {{256, 256}, {0, 0}, {256, 256}, {256, 256}},   {{250, 250}, {0, 0}, {256, 256}, {256, 256}},
        {{500, 50}, {0, 0}, {256, 26}, {256, 128}},     {{256, 256}, {512, 256}, {256, 256}, {512, 256}},
        {{40, 30}, {512, 512}, {512, 384}, {512, 512}}, {{256, 256}, {200, 400}, {192, 192}, {192, 400}},
        {{256, 256}, {512, 0}, {512, 512}, {512, 256}}, {{600, 16}, {0, 0}, {256, 7}, {256, 128}},
    };
    static uint8_t grey[600 * 256 * 3];
    static const uint8_t two[6] = {10, 20, 30, 200, 210, 220};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    for (size_t i = 0; model && i < sizeof cases / sizeof *cases; i++) {
        lz_image image = {.width = cases[i].image[0], .height = cases[i].image[1], .pixels = grey};
        lz_job *job = lz_job_make(model,
                                  &LZ_PICTURE_OPTIONS(.prompt = "make it blue", .images = &image, .n_images = 1,
                                                      .width = cases[i].asked[0], .height = cases[i].asked[1]),
                                  NULL, &err);
        if (!CHECK(job != NULL, "%s", err.text)) continue;
        lz_reference_size s = lz_job_reference_size(job, &image, 1);
        if (i == 6) { /* the height comes from the image */
            CHECK_I64(job->options.height, 256);
        } else {
            CHECK_I64(s.small_width, cases[i].small[0]);
            CHECK_I64(s.small_height, cases[i].small[1]);
        }
        CHECK_I64(s.width, cases[i].size[0]);
        CHECK_I64(s.height, cases[i].size[1]);
        CHECK(s.edges && job->options.width == s.width && job->options.height == s.height && !job->crop.width);
        lz_job_free(job);
    }
    CHECK(model != NULL, "%s", err.text);
    lz_image image = {.width = 2, .height = 1, .pixels = (uint8_t *)two}, around = {0};
    CHECK_OK(lz_crop_image(ctx, &image, (lz_reference_size){2, 1, 4, 3, true}, &around, &err), &err);
    for (int i = 0; around.pixels && i < 4 * 3; i++)
        CHECK(memcmp(around.pixels + 3 * i, two + 3 * (i % 4 / 2), 3) == 0, "pixel %d", i);
    lz_image_free(ctx, &around);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- folders of our own ------------------------------------------------------------------------------------------ */

static void write_file(const char *name, const char *text, size_t bytes) {
    FILE *f = fopen(in_folder(name), "w");
    CHECK(f && fwrite(text, 1, bytes, f) == bytes);
    if (f) fclose(f);
}

/* The small model with such a lazuli.json, and with words if there are some. */
static lz_model *open_with(lz_context *ctx, const char *json, const char *words, size_t bytes, lz_error *err) {
    static const char *const parts[] = {"tokenizer",   "text_encoder", "scheduler",
                                        "transformer", "vae",          "model_index.json"};
    char path[512];
    empty_folder();
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, SMALL "/%s", parts[i]);
        CHECK(symlink(path, in_folder(parts[i])) == 0);
    }
    write_file("lazuli.json", json, strlen(json));
    if (words) write_file("words.txt", words, bytes);
    *err = (lz_error){0};
    return lz_model_open(ctx, folder, err);
}

/* trap 4: one size, no images; and a version. */
static void one_size(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    static uint8_t grey[64 * 64 * 3];
    lz_image image = {.width = 64, .height = 64, .pixels = grey};
    lz_picture_options small = LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 48, .height = 64),
                       look = LZ_PICTURE_OPTIONS(.width = 64, .height = 64, .images = &image, .n_images = 1);
    lz_remarks r;
    enter_folder();
    lz_model *model = open_with(ctx, "{\"version\": \"1.5-b\", \"sizes\": [[64, 64]], \"references\": false}", NULL, 0,
                                &err);
    if (CHECK(model != NULL, "%s", err.text)) {
        CHECK(strcmp(lz_model_about(model).version, "1.5-b") == 0);
        CHECK_OK(lz_remark(model, &small, &r, &err), &err);
        CHECK_TEXT(r.size, "not trained for pictures of 48 x 64, so this one may be poor; the nearest size is 64 x 64");
        CHECK_OK(lz_remark(model, &look, &r, &err), &err);
        CHECK_TEXT(r.images, "not trained to look at images");
        CHECK(!*r.size, "%s", r.size);
    }
    lz_model_close(model);
    model = open_with(ctx, "{\"version\": null, \"words\": null, \"sizes\": null}", NULL, 0, &err);
    CHECK(model && !*lz_model_about(model).version);
    lz_model_close(model);
    leave_folder();
    lz_close(ctx);
}

static void hostile_json(void) {
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"{\"sizes\": 256}", "'sizes'"},
        {"{\"sizes\": [256, 256]}", "'sizes'"},
        {"{\"sizes\": [[256]]}", "'sizes'"},
        {"{\"sizes\": [[256, -256]]}", "'sizes'"},
        {"{\"sizes\": [[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],[1,1],"
         "[1,1]]}",
         "'sizes'"},
        {"{\"version\": 2}", "'version'"},
        {"{\"version\": \"\"}", "'version'"},
        {"{\"version\": \"a b\"}", "'version'"},
        {"{\"version\": \"\\u00e9\"}", "'version'"},
        {"{\"version\": \"12345678901234567890123456789012\"}", "'version'"},
        {"{\"references\": 0}", "'references'"},
        {"{\"references\": -1}", "'references'"},
        {"{\"references\": 17}", "'references'"},
        {"{\"references\": 1.5}", "'references'"},
        {"{\"references\": \"1\"}", "'references'"},
        {"{\"start_images\": \"no\"}", "'start_images'"},
        {"{\"words\": \"../words.txt\"}", "'words'"},
        {"{\"words\": \"\"}", "'words'"},
        {"{\"words\": 1}", "'words'"},
        {"{\"sizes\": [[256, 9000000000000000000]]}", "'sizes'"},
        {"{\"sizes\": [[256, 8208]]}", "of multiples of 16 up to 8192"},
        {"{\"sizes\": [[24, 24]]}", "of multiples of 16 up to 8192"},
        {"{\"words\": \"none.txt\"}", "none.txt"},
    };
    lz_context *ctx = lz_open();
    enter_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_error err;
        lz_model *model = open_with(ctx, cases[i].json, NULL, 0, &err);
        CHECK(model == NULL, "%s was taken", cases[i].json);
        CHECK_TEXT(err.text, cases[i].says);
        lz_model_close(model);
    }
    leave_folder();
    lz_close(ctx);
}

static void hostile_words(void) {
    static const char json[] = "{\"words\": \"words.txt\"}";
    static char large[(1 << 20) + 1];
    lz_context *ctx = lz_open();
    lz_error err;
    enter_folder();
    memset(large, 'a', sizeof large);
    static const struct {
        const char *text;
        size_t bytes;
    } bad[] = {{large, sizeof large}, {"fox\0dog", 7}, {"fox\x1b[31m", 8}, {"f\xc3", 2}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lz_model *model = open_with(ctx, json, bad[i].text, bad[i].bytes, &err);
        CHECK(model == NULL, "words %zu were taken", i);
        CHECK_TEXT(err.text, "words.txt: a list of words");
        lz_model_close(model);
    }
    /* Words without spaces between them get some, in memory that has room for it. */
    static char signs[75000];
    for (size_t i = 0; i < sizeof signs; i += 5) memcpy(signs + i, i % 75 < 70 ? "a🦊" : "🦊,", 5);
    lz_model *crowded = open_with(ctx, json, signs, sizeof signs, &err);
    CHECK(crowded != NULL, "%s", err.text);
    lz_model_close(crowded);
    /* Any plain text will do: of random lists and prompts the prompt stays text, and what is said is cut to its
     * room. */
    unsigned state = 7;
    for (int round = 0; round < test_scale(1000); round++) {
        static const char letters[] = "aab c,=~#\n'-9\xc3\xa4";
        char text[500], prompt[400], *to[2] = {text, prompt};
        for (int k = 0; k < 2; k++) {
            size_t n = 0, most = (state = state * 1664525 + 1013904223) >> 24;
            while (n < most) {
                size_t c = (state = state * 1664525 + 1013904223) >> 16;
                c %= 14;
                to[k][n++] = letters[c];
                if (c == 13) to[k][n++] = letters[14];
            }
            to[k][n] = 0;
        }
        if (round % 2)
            strcat(text, "\n= *\na ..., b c ... = ...\n9 = aa ..., ab ...\nba, ca\n= c ..., b ..., ... ac ...\n");
        write_file("words.txt", text, strlen(text));
        lz_vocabulary *words = lz_vocabulary_open(ctx, in_folder("words.txt"), &err);
        if (!CHECK(words != NULL, "%s", err.text)) continue;
        char *read_as = lz_vocabulary_read(words, prompt, &err), said[60];
        lz_vocabulary_unknown(words, prompt, said, sizeof said);
        lz_shown shown;
        CHECK_OK(lz_vocabulary_look(words, prompt, &shown, &err), &err);
        CHECK(shown.things >= -1 && shown.things <= (int)strlen(prompt), "%d things", shown.things);
        CHECK(!read_as || *read_as);
        CHECK(strlen(said) < sizeof said && strcmp(lz_vocabulary_text(words), text) == 0);
        lz_host_free(ctx, read_as);
        lz_vocabulary_close(words);
    }
    /* An emoji that is left out joins nothing. */
    static const char some[] = "fox = 🦊\npanda = 🐼\n= ✨, *\nred\na ...\n";
    static const char *const pairs[][2] = {{"✨🦊", "fox"},
                                           {"a red ✨ 🦊", "a red fox"},
                                           {"🦊✨🐼", "fox and panda"},
                                           {"🦊, qqa 🐼 qqb fox", "fox and panda fox"},
                                           {"a ✨ qqa", "a qqa"}};
    lz_model *signs_only = open_with(ctx, json, some, sizeof some - 1, &err);
    for (size_t i = 0; signs_only && i < sizeof pairs / sizeof *pairs; i++) {
        lz_remarks found = remark(signs_only, pairs[i][0]);
        CHECK(strcmp(found.read_as, pairs[i][1]) == 0, "'%s' is read as '%s'", pairs[i][0], found.read_as);
    }
    CHECK(signs_only != NULL, "%s", err.text);
    lz_model_close(signs_only);
    /* A long phrase is passed over, long words and names are cut between letters. */
    memset(large, 'b', 4000);
    memcpy(large + 4000, ", fox = vixen", 14);
    lz_model *model = open_with(ctx, json, large, 4013, &err);
    CHECK(model && strcmp(remark(model, "a vixen").read_as, "a fox") == 0);
    for (size_t i = 0; i < 4000; i += 2) memcpy(large + i, "\xc3\xa4", 2);
    large[4000] = 0;
    lz_remarks r = model ? remark(model, large) : (lz_remarks){.size = ""};
    CHECK(strstr(r.words, "does not know \"\xc3\xa4") && strstr(r.words, "\xc3\xa4\""), "%s", r.words);
    lz_model_close(model);
    empty_folder();
    leave_folder();
    CHECK(lz_memory_info(ctx).active == 0);
    lz_close(ctx);
}

/* Every allocation of opening the list and of reading by it fails once. */
static void no_memory(void) {
    static const char json[] = "{\"sizes\": [[64, 64]], \"words\": \"words.txt\"}",
                      words[] = "fox, foxes = vixen ~ animal\n";
    enter_folder();
    write_file("lazuli.json", json, strlen(json));
    write_file("words.txt", words, strlen(words));
    failing f = {.fail_at = 0};
    lz_allocator allocator = {failing_allocate, failing_release, &f};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1, .allocator = &allocator), NULL);
    bool over = false;
    for (long long at = 1; at < 100 && !over; at++) {
        lz_error err = {0};
        lz_trained t = {.n_sizes = 0};
        long long live = f.live;
        char *read_as = NULL;
        lz_shown shown = {.things = -1};
        f.asked = 0;
        f.fail_at = at;
        if (lz_trained_open(&t, ctx, folder, 16, &err) == LZ_OK) read_as = lz_vocabulary_read(t.words, "a vixen", &err);
        if (read_as) lz_vocabulary_look(t.words, "a vixen", &shown, &err);
        over = f.asked < at;
        CHECK_I64(err.status, over ? LZ_OK : LZ_OUT_OF_MEMORY);
        CHECK(!over || (read_as && strcmp(read_as, "a fox") == 0 && shown.things == 1));
        CHECK(over || shown.things == -1);
        lz_host_free(ctx, read_as);
        lz_trained_close(&t);
        CHECK_I64(f.live, live);
    }
    CHECK(over);
    lz_close(ctx);
    empty_folder();
    leave_folder();
}

TEST_MAIN({"demo_words", demo_words}, {"demo_reads", demo_reads}, {"known_stays", known_stays},
          {"demo_sizes", demo_sizes}, {"demo_references", demo_references}, {"one_size", one_size},
          {"hostile_json", hostile_json}, {"hostile_words", hostile_words}, {"no_memory", no_memory})
