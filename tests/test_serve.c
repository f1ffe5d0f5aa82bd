/* test_serve.c: the parsers of the server. What the server does as a whole is tested by tests/cli/serve.py. */
#include "serve/measure.h"
#include "serve/multipart.h"
#include "serve/text.h"
#include "serve/wire.h"

#include "check.h"

static void base64(void) {
    /* RFC 4648, section 10 */
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        buffer text = {.data = NULL}, back = {.data = NULL};
        CHECK(base64_add(&text, pairs[i][0], strlen(pairs[i][0])));
        CHECK(strcmp(text.data, pairs[i][1]) == 0, "%s is %s", pairs[i][0], text.data);
        CHECK(base64_read(pairs[i][1], strlen(pairs[i][1]), &back) && back.size == strlen(pairs[i][0]) &&
                  (!back.size || memcmp(back.data, pairs[i][0], back.size) == 0),
              "%s", pairs[i][1]);
        buffer_free(&text);
        buffer_free(&back);
    }
    static const char *const wrong[] = {
        "Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Zm9=", "Z===", "====", "Zm 9", "Zm9v\nZm9v", "Zm-_", "=Zg=", "Zg=a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        buffer back = {.data = NULL};
        CHECK(!base64_read(wrong[i], strlen(wrong[i]), &back), "%s is refused", wrong[i]);
        buffer_free(&back);
    }
}

static void data_urls(void) {
    static const struct {
        const char *url;
        bool good;
    } all[] = {{"data:image/png;base64,Zm9v", true},
               {"DATA:;BASE64,Zm9v", true},
               {"data:image/png,foo", false},
               {"data:;base64", false},
               {"http://a/;base64,Zm9v", false},
               {"data:image/png;base64,Zm9", false},
               {"", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        buffer back = {.data = NULL};
        CHECK(data_url_read(all[i].url, strlen(all[i].url), &back) == all[i].good, "%s", all[i].url);
        if (all[i].good) CHECK(back.size == 3 && memcmp(back.data, "foo", 3) == 0);
        buffer_free(&back);
    }
}

static int parts_of(const char *body, form_part parts[PARTS]) {
    const char *why;
    return multipart_read(body, strlen(body), "b", parts, &why);
}

static void forms(void) {
    form_part parts[PARTS];
    char boundary[BOUNDARY + 1];
    CHECK(multipart_boundary("multipart/form-data; boundary=abc", boundary) && strcmp(boundary, "abc") == 0);
    CHECK(multipart_boundary("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"", boundary) &&
          strcmp(boundary, "a b") == 0);
    CHECK(!multipart_boundary("multipart/form-data", boundary));
    CHECK(!multipart_boundary("multipart/form-data; boundary=", boundary));
    CHECK(!multipart_boundary("multipart/form-data; boundary=a\"b", boundary));
    CHECK(!multipart_boundary("application/json; boundary=abc", boundary));
    char longest[200] = "multipart/form-data; boundary=";
    memset(longest + 30, 'x', 70);
    CHECK(multipart_boundary(longest, boundary));
    longest[100] = 'x';
    CHECK(!multipart_boundary(longest, boundary));

    int n = parts_of(
        "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na fox\r\n--b\r\n"
        "content-type: image/png\r\ncontent-disposition: form-data; name=\"image[]\"; filename=\"a;\\\"b.png\"\r\n\r\n"
        "\r\n--x\r\n--b--\r\n",
        parts);
    if (CHECK_I64(n, 2)) {
        CHECK(strcmp(parts[0].name, "prompt") == 0 && !parts[0].is_file && parts[0].size == 5);
        CHECK(strcmp(parts[1].name, "image[]") == 0 && parts[1].is_file && parts[1].size == 5);
        CHECK(memcmp(parts[1].data, "\r\n--x", 5) == 0);
    }
    CHECK_I64(parts_of("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--b--", parts), 1);
    CHECK_I64(parts[0].size, 0);
    CHECK_I64(parts_of("--b--", parts), 0);
    static const char *const wrong[] = {
        "",
        "no boundary",
        "--b\r\n",
        "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nno end",
        "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\nx\r\n--b--",
        "--b\nContent-Disposition: form-data; name=\"a\"\n\nx\n--b--",
        "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--b--",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK_I64(parts_of(wrong[i], parts), -1);

    buffer many = {.data = NULL};
    const char *why;
    for (int i = 0; i < PARTS; i++)
        buffer_print(&many, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n");
    size_t length = many.size;
    buffer_print(&many, "--b--");
    CHECK_I64(multipart_read(many.data, many.size, "b", parts, &why), PARTS);
    many.size = length;
    buffer_print(&many, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--");
    CHECK_I64(multipart_read(many.data, many.size, "b", parts, &why), -1);
    buffer_free(&many);
}

/* The sizes that lz_image_write stores. */
static void sizes(void) {
    static const char *const kinds[] = {".png", ".jpg", ".webp"};
    lz_context *ctx = lz_open(.threads = 1);
    uint8_t pixels[3 * 37 * 21] = {0};
    lz_image image = {.width = 37, .height = 21, .pixels = pixels};
    const char *const texts[] = {"prompt", "a fox", NULL};
    for (int i = 0; i < 6; i++) {
        int64_t bytes = 0, width = 0, height = 0;
        char *data = lz_image_encode(ctx, kinds[i % 3], &image, i < 3 ? NULL : texts, 0, &bytes, NULL);
        CHECK(data && measure_image(data, (size_t)bytes, &width, &height) && width == 37 && height == 21,
              "%s: %lld x %lld", kinds[i % 3], (long long)width, (long long)height);
        for (int64_t n = 0; data && n < bytes; n++) { /* copied, so that a sanitizer sees a read after the end */
            char *cut = malloc((size_t)n + 1);
            memcpy(cut, data, (size_t)n);
            char *tight = realloc(cut, n ? (size_t)n : 1);
            measure_image(tight ? tight : cut, (size_t)n, &width, &height);
            free(tight ? tight : cut);
        }
        lz_free_text(ctx, data);
    }
    int64_t width, height;
    CHECK(!measure_image("GIF89a", 6, &width, &height) && !measure_image("", 0, &width, &height));
    lz_close(ctx);
}

static void texts(void) {
    char good[] = "a+b%20%C3%A9", bad[] = "a%0", zero[] = "a%00";
    CHECK(unescape(good) && strcmp(good, "a b \xc3\xa9") == 0, "%s", good);
    CHECK(!unescape(bad) && !unescape(zero));
    static const char *const utf8[] = {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static const char *const other[] = {"\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\xff", "\x80"};
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8; i++) CHECK(is_utf8(utf8[i], strlen(utf8[i])), "%zu", i);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) CHECK(!is_utf8(other[i], strlen(other[i])), "%zu", i);
    char id[ID_BYTES], again[ID_BYTES], hex[65];
    make_id(id, "job_");
    make_id(again, "job_");
    CHECK(strlen(id) == 30 && is_id(id) && strcmp(id, again) != 0, "%s", id);
    CHECK(!is_id("") && !is_id("../x") && !is_id("A") && !is_id("a.b"));
    hash_hex("abc", 3, hex); /* FIPS 180-2 */
    CHECK(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0, "%s", hex);
    CHECK(same_text("a", "a") && !same_text("a", "b") && !same_text("a", NULL));
}

static void messages(void) {
    buffer b = {.data = NULL}, bytes;
    json_t *object;
    CHECK(wire_add(&b, json_pack("{s:s}", "type", "beat"), "xyz", 3));
    CHECK(wire_add(&b, json_pack("{s:s}", "type", "ready"), NULL, 0));
    size_t all = b.size;
    for (size_t n = 0; n < 20; n++) { /* a part of a message is none */
        buffer piece = {.data = NULL};
        buffer_add(&piece, b.data, n);
        CHECK_I64(wire_take(&piece, &object, &bytes), 0);
        buffer_free(&piece);
    }
    CHECK_I64(wire_take(&b, &object, &bytes), 1);
    CHECK(bytes.size == 3 && memcmp(bytes.data, "xyz", 3) == 0 && b.size < all);
    json_decref(object);
    buffer_free(&bytes);
    CHECK_I64(wire_take(&b, &object, &bytes), 1);
    CHECK(strcmp(json_string_value(json_object_get(object, "type")), "ready") == 0 && !bytes.size && !b.size);
    json_decref(object);
    buffer_add(&b, "\xff\xff\xff\xff\0\0\0\0", 8);
    CHECK_I64(wire_take(&b, &object, &bytes), -1);
    buffer_free(&b);
}

TEST_MAIN({"base64", base64}, {"data_urls", data_urls}, {"forms", forms}, {"sizes", sizes}, {"texts", texts},
          {"messages", messages})
