/* test_seeing.c: files of the command line that need no model: templates of prompts, and how much pictures differ, against
 * tools/oracle/seeing.py; and the letters of labels. */
#include <jansson.h>
#include <sys/stat.h>

#include "check.h"
#include "cli/difference.c" /* NOLINT(bugprone-suspicious-include): these are not in the library */
#include "cli/font.c"       /* NOLINT(bugprone-suspicious-include) */
#include "cli/template.c"   /* NOLINT(bugprone-suspicious-include) */
#include "cli/wildcards.c"  /* NOLINT(bugprone-suspicious-include) */
#include "folder.h"

static json_t *rows(const char *key) { /* to be freed */
    json_t *all = json_load_file(test_data("seeing/values.json"), 0, NULL),
           *list = json_incref(json_object_get(all, key));
    CHECK(json_array_size(list) >= 5, "%s", key);
    json_decref(all);
    return list;
}

static int64_t whole(const json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }
static double real(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* The pictures of tools/oracle/seeing.py. */
static void fill_pictures(lz_image *a, lz_image *b, int apart) {
    int64_t n = 3 * a->width * a->height;
    uint32_t state = (uint32_t)(a->width * 1000 + a->height);
    a->pixels = malloc((size_t)n);
    b->pixels = malloc((size_t)n);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            state = state * 1664525 + 1013904223;
            int noise = (int)(state >> 24), x = (int)(i / 3 % a->width), y = (int)(i / 3 / a->width);
            if (pass == 0) {
                a->pixels[i] = (uint8_t)((noise / 4 + 3 * x + 2 * y + 20 * (int)(i % 3)) % 256);
                continue;
            }
            int changed = a->pixels[i] + noise % (2 * apart + 1) - apart;
            b->pixels[i] = (uint8_t)(changed < 0 ? 0 : changed > 255 ? 255 : changed);
        }
}

static void differences(void) {
    size_t i;
    json_t *all = rows("pictures"), *row;
    json_array_foreach(all, i, row) {
        lz_image a = {.width = whole(row, "width"), .height = whole(row, "height")}, b = a;
        difference d;
        fill_pictures(&a, &b, (int)whole(row, "apart"));
        CHECK(measure_difference(&a, &b, &d));
        CHECK(fabs(d.ssim - real(row, "ssim")) < 1e-9, "case %zu: SSIM %.9f, not %.9f", i, d.ssim, real(row, "ssim"));
        CHECK(fabs(d.psnr - real(row, "psnr")) < 1e-9, "case %zu: PSNR %.9f, not %.9f", i, d.psnr, real(row, "psnr"));
        CHECK_I64(d.differing, whole(row, "differing"));
        CHECK_I64(d.largest, whole(row, "largest"));
        CHECK(d.x == whole(row, "x") && d.y == whole(row, "y"), "case %zu: at %lld, %lld", i, (long long)d.x,
              (long long)d.y);
        lz_image drawn = {.width = a.width, .height = a.height, .pixels = malloc((size_t)(3 * d.pixels))};
        int times = draw_difference(&a, &b, d.largest, &drawn), most = 0;
        CHECK_I64(times, 255 / d.largest);
        for (int64_t k = 0; k < 3 * d.pixels; k++) {
            int wanted = times * abs(a.pixels[k] - b.pixels[k]);
            if (!CHECK(drawn.pixels[k] == wanted)) break;
            most = wanted > most ? wanted : most;
        }
        CHECK_I64(most, times * d.largest);
        CHECK(measure_difference(&a, &a, &d));
        CHECK(d.differing == 0 && d.largest == 0 && d.x == -1 && d.psnr == INFINITY && fabs(d.ssim - 1) < 1e-12);
        CHECK_I64(draw_difference(&a, &a, 0, &drawn), 1);
        CHECK(drawn.pixels[0] == 0);
        a.width = b.width = 10; /* smaller than the window */
        a.height = b.height = 9;
        CHECK(measure_difference(&a, &b, &d) && isnan(d.ssim) && d.pixels == 90);
        free(a.pixels);
        free(b.pixels);
        free(drawn.pixels);
    }
    json_decref(all);
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

static const char *wildcards(void) {
    static char path[1024];
    snprintf(path, sizeof path, "%s", test_data("seeing/values.json"));
    *strrchr(path, '/') = 0;
    return path;
}

static void templates(void) {
    size_t i, k;
    json_t *all = rows("templates"), *row, *pair;
    json_array_foreach(all, i, row) {
        const char *text = json_string_value(json_object_get(row, "template"));
        bool literal = true; /* a text that is no template must stay as it is */
        json_array_foreach(json_object_get(row, "prompts"), k, pair) {
            char error[TEMPLATE_ERROR];
            uint64_t seed = strtoull(json_string_value(json_array_get(pair, 0)), NULL, 10);
            const char *wanted = json_string_value(json_array_get(pair, 1));
            char *got = template_expand(text, wildcards(), seed, error);
            CHECK((got == NULL) == (wanted == NULL) && (!got || strcmp(got, wanted) == 0),
                  "'%s' with %llu: '%s', not '%s'", text, (unsigned long long)seed, got ? got : error,
                  wanted ? wanted : "an error");
            CHECK((got == NULL) == (*error != 0));
            literal = literal && wanted && strcmp(wanted, text) == 0;
            free(got);
        }
        CHECK(is_template(text, true) == !literal, "'%s'", text);
    }
    json_decref(all);
}

static void not_templates(void) {
    static const char *const texts[] = {
        "",
        "a red fox",
        "a {red} fox",
        "{",
        "}",
        ":-{ and",
        "a | b",
        "{\"scene\": \"a|b\", \"list\": [{\"x\": \"{c|d}\"}], \"__colour__\": 1}",
        "  {\"a\": \"b|c\"}\n",
        "\\ and \\n",
        "snake_case and __",
        "____",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) CHECK(!is_template(texts[i], true), "'%s'", texts[i]);
    CHECK(!is_template("a __colour__ car", false) && is_template("a __colour__ car", true));
    CHECK(is_template("{\"a\": \"b|c\"} and more", false)); /* no JSON any more */
    CHECK(is_template("\\{a|b\\}", false));
}

static void refused(const char *text, const char *part) {
    char error[TEMPLATE_ERROR], *got = template_expand(text, in_folder(""), 0, error);
    CHECK(!got, "'%.60s' gave '%.60s'", text, got ? got : "");
    CHECK_TEXT(error, part);
    free(got);
}

static void write_text(const char *name, const char *text, size_t times) {
    FILE *f = fopen(in_folder(name), "w");
    if (!f) abort();
    for (size_t i = 0; i < times; i++) fputs(text, f);
    fclose(f);
}

static void hostile_templates(void) {
    char error[TEMPLATE_ERROR], *text;
    size_t size = 0;
    enter_folder();
    refused("{a|b", "never closed: '{a|b'");
    refused(":-{ and |", "never closed: '{ and |'");
    refused("{0::a|0::b}", "no option with a weight");
    refused("__../x__", "is no name of a file in the folder");
    refused("__/etc/passwd__", "is no name of a file in the folder");
    refused("__a//b__", "is no name of a file in the folder");
    refused("__.hidden__", "is no name of a file in the folder");
    refused("__none__", "cannot be opened: No such file");
    write_text("empty.txt", "\n# nothing\n", 1);
    refused("__empty__", "the file has no lines");
    write_text("itself.txt", "a __itself__", 1);
    refused("__itself__", "nested more than 32 deep");
    write_text("many.txt", "__two__ __two__", 1);
    for (int i = 0; i < 12; i++) { /* 2^12 choices in few bytes */
        char name[32], line[64];
        snprintf(name, sizeof name, "%c.txt", 'a' + i);
        snprintf(line, sizeof line, "__%c__ __%c__", 'b' + i, 'b' + i);
        write_text(name, line, 1);
    }
    write_text("m.txt", "x", 1);
    refused("__a__", "makes more than 1000 choices");
    write_text("long.txt", "0123456789", 7000);
    refused("__long__", "a line of the file is too long; the limit is 64 KiB");
    write_text("large.txt", "0123456789\n", 400000);
    refused("__large__", "the file is too large; the limit is 4 MiB");
    write_text("lines.txt", "1\n", 300000);
    refused("__lines__", "the file has more than 100000 lines");
    write_text("grow.txt", "0123456789", 6000);
    FILE *f = open_memstream(&text, &size);
    for (int i = 0; i < 20; i++) fputs("__grow__", f);
    fclose(f);
    refused(text, "has more than 1048576 bytes when its choices are made");
    free(text);
    if (mkdir(in_folder("folder.txt"), 0700) != 0 || symlink("/etc/passwd", in_folder("link.txt")) != 0) abort();
    refused("__folder__", "is not a file");
    refused("__link__", "is a link out of the folder");
    rmdir(in_folder("folder.txt"));
    f = open_memstream(&text, &size); /* braces that are never closed take time, but not its square */
    for (int i = 0; i < 300000; i++) fputs("{a", f);
    fclose(f);
    char *same = template_expand(text, NULL, 0, error);
    CHECK(same && strcmp(same, text) == 0, "%s", error);
    free(same);
    free(text);
    f = open_memstream(&text, &size);
    for (int i = 0; i < 33; i++) fputs("{a|", f);
    for (int i = 0; i < 33; i++) fputs("}", f);
    fclose(f);
    bool deep = false; /* seed by seed, until the last option is chosen everywhere or the depth is refused */
    combinations c = {.n = 0};
    for (char *next; (next = template_next(&c, text, NULL, error));) free(next);
    deep = strstr(error, "nested more than 32 deep") != NULL;
    CHECK(deep, "%s", error);
    combinations_free(&c);
    free(text);
    leave_folder();
}

static void weights(void) {
    char error[TEMPLATE_ERROR];
    int red = 0, n = 4000, first = 0;
    for (int i = 0; i < n; i++) {
        char *one = template_expand("{3::red|1::blue}", NULL, (uint64_t)i, error),
             *two = template_expand("{a|b|c|d}", NULL, (uint64_t)i, error);
        red += strcmp(one, "red") == 0;
        first += strcmp(two, "a") == 0;
        free(one);
        free(two);
    }
    CHECK(abs(red - 3000) < 110 && abs(first - 1000) < 110, "%d and %d of %d", red, first, n); /* four sigma */
}

static void all_combinations(void) {
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"{a|b} {c|d|e}", "a c/a d/a e/b c/b d/b e/"},
        {"{a|b{1|2}|0::x} y", "a y/b1 y/b2 y/"},
        {"{2$$a|b|c}", "a, b/a, c/b, a/b, c/c, a/c, b/"},
        {"{1-2$$+$$a|b}", "a/b/a+b/b+a/"},
        {"__sub/animal__", "fox/red dog/blue dog/green dog/dark grey dog/light grey dog/cat/"},
        {"plain", "plain/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        combinations c = {.n = 0};
        char error[TEMPLATE_ERROR], all[400] = "";
        for (char *next; (next = template_next(&c, cases[i].text, wildcards(), error)) && strlen(all) < 300;) {
            size_t used = strlen(all);
            snprintf(all + used, sizeof all - used, "%s/", next);
            free(next);
        }
        CHECK(strcmp(all, cases[i].wanted) == 0 && !*error, "'%s': %s %s", cases[i].text, all, error);
        combinations_free(&c);
    }
}

/* ---- letters ----------------------------------------------------------------------------------------------------- */

/* Draws a label into white pixels, and returns them as rows of '#' and '.'. */
static char *drawn(label l, int64_t width, int64_t height, int64_t x, int64_t y) {
    static char text[4000];
    lz_image image = {.width = width, .height = height, .pixels = malloc((size_t)(3 * width * height))};
    memset(image.pixels, 255, (size_t)(3 * width * height));
    label_draw(&l, &image, x, y);
    char *to = text;
    for (int64_t i = 0; i < width * height; i++) {
        *to++ = image.pixels[3 * i] ? '.' : '#';
        if (i % width == width - 1) *to++ = '\n';
    }
    *to = 0;
    free(image.pixels);
    return text;
}

static void letters(void) {
    static const char hg[] = "#....\n#....\n####.\n#...#\n#...#\n#...#\n#...#\n.....\n.....\n";
    CHECK(strcmp(drawn((label){"h", 1, 9, 1}, 5, 9, 0, 0), hg) == 0, "\n%s", drawn((label){"h", 1, 9, 1}, 5, 9, 0, 0));
    /* Twice as large; accents are left out; other letters are boxes, and so are bytes that are no UTF-8 */
    CHECK(strncmp(drawn((label){"1", 2, 9, 1}, 10, 18, 0, 0), "....##....\n....##....\n..####....\n", 33) == 0);
    char plain[400];
    snprintf(plain, sizeof plain, "%s", drawn((label){"ueA", 1, 9, 1}, 18, 9, 0, 0));
    CHECK(strcmp(drawn((label){"\303\274\303\251\303\205", 1, 9, 1}, 18, 9, 0, 0), plain) == 0);
    static const char box[] = "#####\n#...#\n#...#\n#...#\n#...#\n#...#\n#####\n.....\n.....\n";
    CHECK(strcmp(drawn((label){"\347\213\220", 1, 9, 1}, 5, 9, 0, 0), box) == 0);
    CHECK(strcmp(drawn((label){"\377", 1, 9, 1}, 5, 9, 0, 0), box) == 0);
    CHECK(strcmp(drawn((label){"\303", 1, 9, 1}, 5, 9, 0, 0), box) == 0);
    /* Outside of the image nothing is written; the sanitizers watch */
    drawn((label){"WWWW WWWW", 3, 4, 2}, 20, 20, -7, -5);
    drawn((label){"WWWW", 3, 4, 2}, 20, 20, 15, 100);
    /* All letters differ */
    for (int a = FIRST; a <= BOX; a++)
        for (int b = a + 1; b <= BOX; b++)
            CHECK(memcmp(glyphs[a - FIRST], glyphs[b - FIRST], ROWS) != 0, "%c %c", a, b);
}

static void lines(void) {
    static const struct {
        const char *text;
        int columns, lines, wide, high;
    } cases[] = {
        {"", 10, 3, 0, 0},
        {"steps 4", 10, 3, 7, 1},
        {"steps 4", 7, 3, 7, 1},
        {"steps 4", 6, 3, 5, 2},
        {"steps 4", 3, 9, 3, 3},
        {"a fox in the snow", 8, 9, 8, 2},
        {"aaaaaaaaaa", 4, 2, 4, 2},
        {"one two three four", 5, 2, 5, 2},
        {"aaaa", 1, 2, 1, 2},
        {"aaaa", 2, 9, 2, 2},
        {"\303\274\303\274\303\274", 3, 1, 3, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        label_size s = label_measure(&(label){cases[i].text, 1, cases[i].columns, cases[i].lines});
        CHECK(s.columns == cases[i].wide && s.lines == cases[i].high, "case %zu: %d x %d", i, s.columns, s.lines);
    }
    char cut[4000]; /* a text that is too long ends in dots */
    snprintf(cut, sizeof cut, "%s", drawn((label){"aaaaaaaa", 1, 6, 1}, 36, 9, 0, 0));
    CHECK(strcmp(cut, drawn((label){"aaa...", 1, 6, 1}, 36, 9, 0, 0)) == 0, "\n%s", cut);
}

TEST_MAIN({"differences", differences}, {"templates", templates}, {"not templates", not_templates},
          {"hostile templates", hostile_templates}, {"weights", weights}, {"combinations", all_combinations},
          {"letters", letters}, {"lines", lines})
