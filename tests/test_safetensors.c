/* test_safetensors.c: files of weights: those of other programs, those we write, and invalid ones. The Python fixtures
 * come from tools/oracle/safetensors_fixture.py, which has the rule for their values. */
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "io/weights.h"

static const lz_dtype all_types[] = {LZ_BOOL, LZ_U8, LZ_I8, LZ_I32, LZ_I64, LZ_F8, LZ_F16, LZ_BF16, LZ_F32, LZ_F64};
static const struct {
    const char *name;
    lz_dims dims;
} all_shapes[] = {{"matrix", {2, {3, 5}}}, {"vector", {1, {11}}}, {"scalar", {0, {0}}}, {"empty", {2, {0, 4}}}};

static double rule(lz_dtype dtype, int64_t i) {
    int64_t n = i % 7 - 2;
    return dtype == LZ_BOOL ? n > 0 : dtype == LZ_U8 ? (double)(n + 2) : (double)n;
}

static bool follows_rule(lz_array *a) {
    lz_error err = {.status = LZ_OK};
    const void *data = lz_data(a, &err);
    if (!CHECK(err.status == LZ_OK, "%s", err.text)) return false;
    for (int64_t i = 0; i < lz_size(a); i++)
        if (element_as_double(data, lz_type(a), i) != rule(lz_type(a), i)) return false;
    return true;
}

static lz_array *made_by_rule(lz_context *ctx, lz_dims dims, lz_dtype dtype) {
    float numbers[64];
    int64_t n = 1;
    for (int i = 0; i < dims.n; i++) n *= dims.at[i];
    for (int64_t i = 0; i < n; i++) numbers[i] = (float)rule(dtype, i);
    return lz_cast(lz_from(ctx, dims, LZ_F32, numbers), dtype);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void write_bytes(const char *name, const void *data, size_t bytes) {
    FILE *f = fopen(in_folder(name), "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) abort();
}

static void write_text(const char *name, const char *text) { write_bytes(name, text, strlen(text)); }

/* A safetensors file with this header and so many bytes of data, all 1. */
static size_t build(char *to, const char *header, size_t data) {
    size_t n = strlen(header);
    memset(to, 0, 8);
    to[0] = (char)n;
    to[1] = (char)(n >> 8);
    memcpy(to + 8, header, n);
    memset(to + 8 + n, 1, data);
    return 8 + n + data;
}

static void write_tensors(const char *name, const char *header, size_t data) {
    char file[4096];
    write_bytes(name, file, build(file, header, data));
}

/* ---- files of others --------------------------------------------------------------------------------------------- */

static void reads_what_python_wrote(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err;
    lz_weights *w = lz_weights_open(ctx, test_data("python.safetensors"), &err);
    if (!CHECK(w, "%s", err.text)) return;
    CHECK_I64(lz_weights_count(w), 42);
    for (int64_t i = 1; i < lz_weights_count(w); i++)
        CHECK(strcmp(lz_weights_name(w, i - 1), lz_weights_name(w, i)) < 0, "names are sorted");
    CHECK(!lz_weights_name(w, -1) && !lz_weights_name(w, 42));
    for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++)
        for (size_t s = 0; s < sizeof all_shapes / sizeof *all_shapes; s++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%s", all_shapes[s].name, lz_dtype_name(all_types[t]));
            lz_array *a = lz_weights_get(w, name);
            CHECK(lz_weights_has(w, name), "%s", name);
            CHECK_OK(lz_check(a, &err), &err);
            CHECK_I64(lz_type(a), all_types[t]);
            CHECK(same_dims(lz_shape(a), all_shapes[s].dims), "%s", name);
            CHECK(follows_rule(a), "%s", name);
        }
    CHECK(follows_rule(lz_weights_get(w, "odd \"name\"\n\u00e9\U0001f600")));
    CHECK(strcmp(lz_weights_metadata(w, "format"), "pt") == 0);
    CHECK(strcmp(lz_weights_metadata(w, "tab\t"), "\u00e9") == 0);
    CHECK(!lz_weights_metadata(w, "nothing"));
    lz_weights_close(w);
    lz_close(ctx);
}

static void unknown_types_are_listed(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err;
    lz_weights *w = lz_weights_open(ctx, test_data("python.safetensors"), &err);
    if (!CHECK(w, "%s", err.text)) return;
    CHECK(lz_weights_has(w, "unknown.i16"));
    CHECK_STATUS(lz_check(lz_weights_get(w, "unknown.i16"), &err), LZ_BAD_TYPE, &err);
    CHECK_TEXT(err.text, "tensor 'unknown.i16' has the type I16");
    CHECK_TEXT(err.text, "python.safetensors");
    CHECK_STATUS(lz_check(lz_weights_cast(w, "unknown.i16", LZ_F32), &err), LZ_BAD_TYPE, &err);
    lz_weights_close(w);
    lz_close(ctx);
}

static void reads_shards(void) {
    lz_context *ctx = lz_open(.threads = 1);
    static const char *const paths[] = {"python-shards", "python-shards/model.safetensors.index.json"};
    for (int i = 0; i < 2; i++) {
        lz_error err;
        char path[1100];
        snprintf(path, sizeof path, "%.*s%s", (int)strlen(test_data("ops.txt")) - 7, test_data("ops.txt"), paths[i]);
        lz_weights *w = lz_weights_open(ctx, path, &err);
        if (!CHECK(w, "%s", err.text)) return;
        CHECK_I64(lz_weights_count(w), 3);
        CHECK(strcmp(lz_weights_metadata(w, "format"), "pt") == 0);
        lz_array *taken[3];
        for (int64_t k = 0; k < 3; k++) taken[k] = lz_weights_get(w, lz_weights_name(w, k));
        lz_weights_close(w); /* arrays already taken stay valid */
        for (int k = 0; k < 3; k++) CHECK(follows_rule(taken[k]) && lz_type(taken[k]) == LZ_BF16);
    }
    lz_close(ctx);
}

/* ---- files of ours ----------------------------------------------------------------------------------------------- */

/* 0: the interpreter of LZ_PYTHON (python3) read the file and found it right; 1: it did not; -1: it has no packages. */
static int ask_python(const char *file) {
    const char *python = getenv("LZ_PYTHON");
    char command[1400];
    snprintf(command, sizeof command, "%s -c 'import torch, safetensors' 2>/dev/null", python ? python : "python3");
    if (system(command) != 0) return -1;
    snprintf(command, sizeof command, "%s tools/oracle/safetensors_fixture.py %s", python ? python : "python3", file);
    return system(command) != 0;
}

static void round_trip(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    char names[41][64];
    lz_named_array arrays[41];
    int n = 0;
    for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++)
        for (size_t s = 0; s < sizeof all_shapes / sizeof *all_shapes; s++) {
            snprintf(names[n], sizeof names[n], "%s.%s", all_shapes[s].name, lz_dtype_name(all_types[t]));
            arrays[n] = (lz_named_array){names[n], made_by_rule(ctx, all_shapes[s].dims, all_types[t])};
            n++;
        }
    arrays[n++] = (lz_named_array){"odd \"name\"\n\u00e9", made_by_rule(ctx, LZ_DIMS(2), LZ_F32)};
    const char *metadata[] = {"made by", "lazuli", "\u00e9", "quote \" and \\", NULL};
    const char *path = in_folder("ours.safetensors");
    CHECK_OK(lz_weights_save(ctx, path, arrays, n, metadata, &err), &err);
    CHECK_I64(files_in_folder(), 1);

    lz_weights *w = lz_weights_open(ctx, path, &err);
    if (CHECK(w, "%s", err.text)) {
        CHECK_I64(lz_weights_count(w), n);
        for (int i = 0; i < n; i++) {
            lz_array *a = lz_weights_get(w, arrays[i].name);
            CHECK_I64(lz_type(a), lz_type(arrays[i].array));
            CHECK(same_dims(lz_shape(a), lz_shape(arrays[i].array)), "%s", arrays[i].name);
            CHECK(follows_rule(a), "%s", arrays[i].name);
        }
        CHECK(strcmp(lz_weights_metadata(w, "\u00e9"), "quote \" and \\") == 0);

        /* Over itself, while its arrays borrow from it. */
        lz_named_array again = {"a", lz_weights_get(w, "matrix.f32")};
        CHECK_OK(lz_weights_save(ctx, in_folder("again.safetensors"), &again, 1, NULL, &err), &err);
        lz_weights *v = lz_weights_open(ctx, in_folder("again.safetensors"), &err);
        lz_named_array third = {"b", lz_weights_get(v, "a")};
        CHECK_OK(lz_weights_save(ctx, in_folder("again.safetensors"), &third, 1, NULL, &err), &err);
        CHECK(follows_rule(third.array));
        lz_weights_close(v);
        v = lz_weights_open(ctx, in_folder("again.safetensors"), &err);
        CHECK(lz_weights_has(v, "b") && !lz_weights_has(v, "a"));
        lz_weights_close(v);
        lz_weights_close(w);
    }
    struct stat s;
    mode_t mask = umask(0);
    umask(mask);
    CHECK(stat(path, &s) == 0 && (s.st_mode & 0777) == (0666 & ~mask), "permissions are those of any new file");

    int answer = ask_python(path);
    if (answer < 0)
        printf("skipped: Python does not read our file here, because it has no torch and safetensors (LZ_PYTHON names "
               "it)\n");
    else
        CHECK_I64(answer, 0);
    lz_close(ctx);
    leave_folder();
}

static void empty_file(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    CHECK_OK(lz_weights_save(ctx, in_folder("none.safetensors"), NULL, 0, NULL, &err), &err);
    lz_weights *w = lz_weights_open(ctx, in_folder("none.safetensors"), &err);
    CHECK(w && lz_weights_count(w) == 0);
    lz_weights_close(w);
    leave_folder();
    lz_close(ctx);
}

static void casts(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    int64_t n = 1 << 16; /* of bf16: 32 pages, so that there are some to give back */
    lz_array *a = lz_cast(lz_sub(lz_arange(ctx, 0, (double)n, 1, LZ_F32), 7.0), LZ_BF16);
    CHECK_OK(lz_weights_save(ctx, in_folder("w.safetensors"), &(lz_named_array){"w", a}, 1, NULL, &err), &err);
    lz_weights *w = lz_weights_open(ctx, in_folder("w.safetensors"), &err);
    lz_array *f = lz_weights_cast(w, "w", LZ_F32), *b = lz_weights_cast(w, "w", LZ_BF16);
    const float *wide = lz_data(f, &err);
    const uint16_t *narrow = lz_data(b, &err);
    int64_t wrong = 0;
    for (int64_t i = 0; wide && narrow && i < n; i++)
        wrong += wide[i] != lz_from_bf16(narrow[i]) || narrow[i] != lz_to_bf16((float)i - 7.0f);
    CHECK(wide && narrow);
    CHECK_I64(wrong, 0);
    lz_weights_close(w);
    leave_folder();
    lz_close(ctx);
}

static void missing_names(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_error err;
    lz_weights *w = lz_weights_open(ctx, test_data("python.safetensors"), &err);
    CHECK(!lz_weights_has(w, "matrx.f32"));
    CHECK_STATUS(lz_check(lz_weights_get(w, "matrx.f32"), &err), LZ_NOT_FOUND, &err);
    CHECK_TEXT(err.text, "there is no tensor 'matrx.f32'; the nearest name is 'matrix.f32'");
    CHECK_TEXT(err.text, "python.safetensors");
    CHECK_STATUS(lz_check(lz_weights_cast(w, "matrx.f32", LZ_F32), &err), LZ_NOT_FOUND, &err);
    CHECK_STATUS(lz_check(lz_weights_get(w, "nothing like any of them"), &err), LZ_NOT_FOUND, &err);
    CHECK(!strstr(err.text, "nearest"), "%s", err.text);
    CHECK_STATUS(lz_check(lz_weights_get(w, NULL), &err), LZ_BAD_ARGUMENT, &err);
    CHECK(!lz_weights_get(NULL, "a") && !lz_weights_has(NULL, "a") && lz_weights_count(NULL) == 0);
    lz_weights_close(w);
    lz_weights_close(NULL);
    CHECK(!lz_weights_open(ctx, "no/such/file", &err) && err.status == LZ_NOT_FOUND);
    CHECK_TEXT(err.text, "no/such/file");
    CHECK(!lz_weights_open(ctx, NULL, &err) && err.status == LZ_BAD_ARGUMENT);
    CHECK(!lz_weights_open(ctx, "/dev/null", &err) && err.status == LZ_IO);
    CHECK(!lz_weights_open(ctx, "no/such/file", NULL));
    lz_close(ctx);
}

static void unaligned_data_is_copied(void) {
    lz_context *ctx = lz_open(.threads = 1);
    _Alignas(8) char file[512];
    size_t n = build(file, "{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}} ", 16);
    for (int odd = 0; odd < 8; odd++) {
        _Alignas(8) char moved[600];
        double numbers[2] = {1.5, -3};
        memcpy(moved + odd, file, n);
        memcpy(moved + odd + n - 16, numbers, 16);
        lz_error err;
        lz_weights *w = lz_weights_open_memory(ctx, "memory", moved + odd, (int64_t)n, &err);
        lz_scope *scope = lz_scope_begin(ctx, "use");
        const double *p = lz_data(lz_weights_get(w, "a"), &err);
        CHECK(p && (uintptr_t)p % 8 == 0 && p[0] == 1.5 && p[1] == -3);
        lz_scope_end(scope);
        lz_weights_close(w);
    }
    lz_close(ctx);
}

/* ---- what nobody should have written ----------------------------------------------------------------------------- */

/* Single quotes stand for double ones. */
static const struct {
    const char *header;
    size_t data;
    const char *words;
} hostile[] = {
    {"", 0, "the header is not valid JSON"},
    {"[]", 0, "the header is not a JSON object"},
    {"{'a':1}", 0, "tensor 'a' lacks a dtype"},
    {"{'a':{'shape':[1],'data_offsets':[0,4]}}", 4, "tensor 'a' lacks a dtype"},
    {"{'a':{'dtype':'F32','data_offsets':[0,4]}}", 4, "tensor 'a' lacks a dtype, a shape"},
    {"{'a':{'dtype':'F32','shape':[1]}}", 4, "tensor 'a' lacks a dtype, a shape or data_offsets"},
    {"{'a':{'dtype':7,'shape':[1],'data_offsets':[0,4]}}", 4, "lacks a dtype"},
    {"{'a':{'dtype':'F32','shape':[1.0],'data_offsets':[0,4]}}", 4, "not an integer from 0 up"},
    {"{'a':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}", 4, "not an integer from 0 up"},
    {"{'a':{'dtype':'F32','shape':['1'],'data_offsets':[0,4]}}", 4, "not an integer from 0 up"},
    {"{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,1,1,1],'data_offsets':[0,4]}}", 4, "has 9 axes, but 8 is the most"},
    {"{'a':{'dtype':'F32','shape':[4294967296,4294967296],'data_offsets':[0,4]}}", 4, "larger than any memory"},
    {"{'a':{'dtype':'F32','shape':[9223372036854775807],'data_offsets':[0,4]}}", 4, "larger than any memory"},
    {"{'a':{'dtype':'F32','shape':[99999999999999999999],'data_offsets':[0,4]}}", 4, "not valid JSON"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0]}}", 4, "data_offsets that are not two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4,8]}}", 4, "data_offsets that are not two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4.0]}}", 4, "data_offsets that are not two integers"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[-4,0]}}", 4, "the data_offsets [-4, 0], which make no range"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[4,0]}}", 4, "the data_offsets [4, 0], which make no range"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,8]}}", 8, "takes 4 bytes, but its data_offsets hold 8"},
    {"{'a':{'dtype':'BF16','shape':[3,2],'data_offsets':[0,4]}}", 4, "of type BF16 and shape [3, 2] takes 12 bytes"},
    {"{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}", 7,
     "ends at byte 70 but the file holds 69: the file is truncated"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[9223372036854775803,9223372036854775807]}}", 4, "truncated"},
    {"{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}", 6, "the last 2 bytes belong to no tensor"},
    {"{}", 3, "the last 3 bytes belong to no tensor"},
    {"{'a':{'dtype':'U8','shape':[4],'data_offsets':[2,6]}}", 6, "the 2 bytes before tensor 'a' belong to no tensor"},
    {"{'a':{'dtype':'U8','shape':[4],'data_offsets':[0,4]},'b':{'dtype':'U8','shape':[4],'data_offsets':[2,6]}}", 6,
     "tensors 'a' and 'b' overlap"},
    {"{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'b':{'dtype':'U8','shape':[2],'data_offsets':[0,2]}}", 2,
     "overlap"},
    {"{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},'b':{'dtype':'U8','shape':[2],'data_offsets':[3,5]}}", 5,
     "the 1 bytes before tensor 'b'"},
    {"{'a':{'dtype':'NEW','shape':[2],'data_offsets':[0,9]}}", 5, "truncated"},
    {"{'a':{'dtype':'U8','shape':[0],'data_offsets':[0,0]},'a':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}}", 0,
     "duplicate"},
    {"{'__metadata__':[]}", 0, "__metadata__ is not an object"},
    {"{'__metadata__':{'a':1}}", 0, "holds a value for 'a' that is not a string"},
    {"{'a\\u0000b':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}}", 0, "not valid JSON"},
    {"{'a\xff':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}}", 0, "not valid JSON"},
    {"{'a':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}} x", 0, "not valid JSON"},
    {"{'\x1b[31m':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}}", 0, "not valid JSON"},
    {"{'\\u001b[31m':3}", 0, "tensor '?[31m' lacks"},
};

static void hostile_headers(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        char header[512], file[1024];
        snprintf(header, sizeof header, "%s", hostile[i].header);
        for (char *c = header; *c; c++)
            if (*c == '\'') *c = '"';
        size_t n = build(file, header, hostile[i].data);
        write_bytes("bad.safetensors", file, n);
        lz_error err = {.status = LZ_OK};
        CHECK(!lz_weights_open(ctx, in_folder("bad.safetensors"), &err), "%s", header);
        CHECK_I64(err.status, LZ_BAD_FILE);
        CHECK_TEXT(err.text, "/bad.safetensors: ");
        CHECK_TEXT(err.text, hostile[i].words);
        CHECK(!lz_weights_open_memory(ctx, "memory", file, (int64_t)n, NULL));
    }
    leave_folder();
    lz_close(ctx);
}

static void hostile_bytes(void) {
    lz_context *ctx = lz_open(.threads = 1);
    static const struct {
        const char *bytes;
        int64_t n;
        const char *words;
    } cases[] = {
        {"", 0, "holds 0 bytes, too few"},
        {"\1\0\0\0\0\0\0", 7, "holds 7 bytes, too few"},
        {"\377\377\377\377\377\377\377\377{}", 10, "claims a header of 18446744073709551615 bytes"},
        {"\1\341\365\5\0\0\0\0{}", 10, "claims a header of 100000001 bytes"},
        {"\0\341\365\5\0\0\0\0{}", 10,
         "its header ends at byte 100000008 but the file holds 10: the file is truncated"},
        {"\3\0\0\0\0\0\0\0{}", 10, "its header ends at byte 11 but the file holds 10"},
        {"\0\0\0\0\0\0\0\0", 8, "not valid JSON"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "is only a Git LFS pointer"},
        {"<!DOCTYPE html>", 15, "is this a safetensors file?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_error err = {.status = LZ_OK};
        CHECK(!lz_weights_open_memory(ctx, "memory", cases[i].bytes, cases[i].n, &err));
        CHECK_I64(err.status, LZ_BAD_FILE);
        CHECK_TEXT(err.text, cases[i].words);
    }
    lz_close(ctx);
}

static void long_names_are_shortened(void) {
    lz_context *ctx = lz_open(.threads = 1);
    char header[3000], name[2001];
    memset(name, 'n', 2000);
    name[2000] = 0;
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}", name);
    char file[4096];
    lz_error err;
    CHECK(!lz_weights_open_memory(ctx, name, file, (int64_t)build(file, header, 0), &err));
    CHECK_TEXT(err.text, "nnn...nnn");
    CHECK_TEXT(err.text, "not an integer from 0 up: the file is damaged");
    lz_close(ctx);
}

static void truncated_anywhere(void) {
    lz_context *ctx = lz_open(.threads = 1);
    FILE *f = fopen(test_data("python.safetensors"), "rb");
    char file[8192];
    size_t n = f ? fread(file, 1, sizeof file, f) : 0;
    if (f) fclose(f);
    CHECK(n > 3000 && n < sizeof file);
    for (size_t cut = 0; cut < n; cut++) {
        char *copy = malloc(cut + 1); /* of exactly this size, so that a sanitizer sees every byte too far */
        memcpy(copy, file, cut);
        copy = realloc(copy, cut ? cut : 1);
        lz_error err = {.status = LZ_OK};
        CHECK(!lz_weights_open_memory(ctx, "memory", copy, (int64_t)cut, &err) && err.status == LZ_BAD_FILE,
              "cut at %zu", cut);
        free(copy);
    }
    lz_close(ctx);
}

static void bools_are_checked(void) {
    lz_context *ctx = lz_open(.threads = 1);
    char file[256];
    size_t n = build(file, "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    file[n - 2] = 2;
    lz_error err;
    lz_weights *w = lz_weights_open_memory(ctx, "memory", file, (int64_t)n, &err);
    CHECK_STATUS(lz_check(lz_weights_get(w, "a"), &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "bytes other than 0 and 1");
    lz_weights_close(w);
    lz_close(ctx);
}

/* ---- indexes and folders ----------------------------------------------------------------------------------------- */

#define ONE_TENSOR(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"

static void hostile_indexes(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    write_tensors("one.safetensors", ONE_TENSOR("a"), 2);
    write_tensors("two.safetensors", ONE_TENSOR("b"), 2);
    write_tensors("same.safetensors", ONE_TENSOR("a"), 2);
    static const struct {
        const char *index;
        lz_status status;
        const char *words;
    } cases[] = {
        {"", LZ_BAD_FILE, "the index is not valid JSON"},
        {"{}", LZ_BAD_FILE, "has no weight_map"},
        {"[]", LZ_BAD_FILE, "has no weight_map"},
        {"{'weight_map':{'a':1}}", LZ_BAD_FILE, "gives tensor 'a' a file that is not a string"},
        {"{'weight_map':{'a':''}}", LZ_BAD_FILE, "not a plain file name"},
        {"{'weight_map':{'a':'..'}}", LZ_BAD_FILE, "not a plain file name"},
        {"{'weight_map':{'a':'../one.safetensors'}}", LZ_BAD_FILE,
         "'../one.safetensors', which is not a plain file name"},
        {"{'weight_map':{'a':'/etc/passwd'}}", LZ_BAD_FILE, "not a plain file name"},
        {"{'weight_map':{'a':'none.safetensors'}}", LZ_NOT_FOUND, "none.safetensors: cannot be opened"},
        {"{'weight_map':{'x':'one.safetensors'}}", LZ_BAD_FILE,
         "puts tensor 'x' into 'one.safetensors', which does not hold it"},
        {"{'weight_map':{'a':'one.safetensors','b':'one.safetensors','c':'two.safetensors'}}", LZ_BAD_FILE,
         "puts tensor 'b' into 'one.safetensors', which does not hold it"},
        {"{'weight_map':{'a':'one.safetensors','c':'same.safetensors'}}", LZ_BAD_FILE, "tensor 'a' is also in"},
        {"{'weight_map':{'a':'one.safetensors','a':'two.safetensors'}}", LZ_BAD_FILE, "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char index[512];
        snprintf(index, sizeof index, "%s", cases[i].index);
        for (char *c = index; *c; c++)
            if (*c == '\'') *c = '"';
        write_text("x.safetensors.index.json", index);
        lz_error err = {.status = LZ_OK};
        CHECK(!lz_weights_open(ctx, in_folder("x.safetensors.index.json"), &err), "%s", index);
        CHECK_I64(err.status, cases[i].status);
        CHECK_TEXT(err.text, cases[i].words);
        CHECK(!lz_weights_open(ctx, folder, &err), "the folder leads to its index");
    }
    leave_folder();
    lz_close(ctx);
}

static void folders(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    CHECK(!lz_weights_open(ctx, folder, &err) && err.status == LZ_NOT_FOUND);
    CHECK_TEXT(err.text, "holds no .safetensors file");
    /* Each line adds a file that goes before the ones there already; its one tensor tells which was opened. */
    static const char *const steps[][2] = {
        {"z.safetensors", "z"}, {"model.safetensors", "model"}, {"diffusion_pytorch_model.safetensors", "diffusion"}};
    for (int i = 0; i < 3; i++) {
        char header[200];
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                 steps[i][1]);
        write_tensors(steps[i][0], header, 2);
        lz_weights *w = lz_weights_open(ctx, folder, &err);
        CHECK(w && lz_weights_has(w, steps[i][1]), "%s", steps[i][0]);
        lz_weights_close(w);
    }
    /* Beside an index a single file is a stray one in diffusers, and goes before it in transformers. */
    write_tensors("shard.safetensors", ONE_TENSOR("shard"), 2);
    static const char *const stray[][2] = {{"diffusion_pytorch_model", "shard"}, {"model", "model"}};
    for (int i = 0; i < 2; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s.safetensors.index.json", stray[i][0]);
        write_text(name, "{\"weight_map\":{\"shard\":\"shard.safetensors\"}}");
        lz_weights *w = lz_weights_open(ctx, folder, &err);
        CHECK(w && lz_weights_has(w, stray[i][1]), "trap 3: %s: %s", name, w ? lz_weights_name(w, 0) : err.text);
        lz_weights_close(w);
        unlink(in_folder(name));
        unlink(in_folder("diffusion_pytorch_model.safetensors"));
    }
    unlink(in_folder("shard.safetensors"));
    unlink(in_folder("model.safetensors"));
    write_tensors("y.safetensors", ONE_TENSOR("y"), 2);
    CHECK(!lz_weights_open(ctx, folder, &err) && err.status == LZ_BAD_ARGUMENT);
    CHECK_TEXT(err.text, "holds 2 files *.safetensors: name the one to open");
    write_text("any.safetensors.index.json", "{\"weight_map\":{\"y\":\"y.safetensors\"}}");
    lz_weights *w = lz_weights_open(ctx, folder, &err);
    CHECK(w && lz_weights_count(w) == 1 && lz_weights_has(w, "y"));
    lz_weights_close(w);
    /* Shards without their index */
    static const char *const old[] = {"any.safetensors.index.json", "y.safetensors", "z.safetensors"};
    for (int i = 0; i < 3; i++) unlink(in_folder(old[i]));
    for (int i = 1; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "diffusion_pytorch_model-%05d-of-00002.safetensors", i);
        write_tensors(name, ONE_TENSOR("shard"), 2);
    }
    CHECK(!lz_weights_open(ctx, folder, &err) && err.status == LZ_NOT_FOUND);
    CHECK_TEXT(err.text,
               "2 files *.safetensors of one model, but not their *.safetensors.index.json: download that again");
    leave_folder();
    lz_close(ctx);
}

/* Files of a variant, as save_pretrained(variant="fp16") names them: in one piece, in shards, and in the older spelling
 * of shards. */
static void variants(void) {
    lz_context *ctx = lz_open(.threads = 1);
    static const char *const kinds[][3] = {
        /* shards, and the index of them */
        {"diffusion_pytorch_model.fp16.safetensors"},
        {"model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors",
         "model.safetensors.index.fp16.json"},
        {"diffusion_pytorch_model-00001-of-00002.fp16.safetensors",
         "diffusion_pytorch_model-00002-of-00002.fp16.safetensors",
         "diffusion_pytorch_model.safetensors.index.fp16.json"}};
    for (int i = 0; i < 3; i++) {
        lz_error err = {.status = LZ_OK};
        char index[400];
        enter_folder();
        write_tensors(kinds[i][0], ONE_TENSOR("a"), 2);
        if (kinds[i][1]) {
            write_tensors(kinds[i][1], ONE_TENSOR("b"), 2);
            snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s\",\"b\":\"%s\"}}", kinds[i][0], kinds[i][1]);
            write_text(kinds[i][2], index);
        }
        lz_weights *w = lz_weights_open(ctx, folder, &err);
        CHECK(w && lz_weights_count(w) == (kinds[i][1] ? 2 : 1), "trap 2: %s: %s", kinds[i][0], err.text);
        lz_weights_close(w);
        write_tensors("model.safetensors", ONE_TENSOR("plain"), 2); /* what is not a variant goes first */
        w = lz_weights_open(ctx, folder, &err);
        CHECK(w && lz_weights_has(w, "plain"), "%s", err.text);
        lz_weights_close(w);
        leave_folder();
    }
    lz_close(ctx);
}

/* ---- saving that fails ------------------------------------------------------------------------------------------- */

static void failed_saves_leave_nothing(void) {
    lz_context *ctx = lz_open(.threads = 1);
    enter_folder();
    lz_error err;
    lz_array *a = lz_full(ctx, LZ_DIMS(2), LZ_F32, 1), *b = lz_full(ctx, LZ_DIMS(3), LZ_F32, 1);
    lz_array *late = lz_take(a, lz_cast(b, LZ_I64), 0);               /* good */
    lz_array *fails = lz_take(a, lz_cast(lz_mul(b, 9.0), LZ_I64), 0); /* an index outside: known only when it runs */
    const char *path = in_folder("w.safetensors");
    struct {
        lz_named_array arrays[2];
        const char *metadata[3];
        lz_status status;
        const char *words;
    } cases[] = {
        {{{"a", a}, {"a", b}}, {0}, LZ_BAD_ARGUMENT, "'a' is given twice"},
        {{{"a", a}, {NULL, b}}, {0}, LZ_BAD_ARGUMENT, "array 1 to be saved has no name"},
        {{{"a", a}, {"__metadata__", b}}, {0}, LZ_BAD_ARGUMENT, "no tensor can have the name"},
        {{{"a", a}, {"\xff", b}}, {0}, LZ_BAD_ARGUMENT, "not valid UTF-8"},
        {{{"a", a}, {"b", NULL}}, {0}, LZ_BAD_ARGUMENT, "NULL"},
        {{{"a", a}, {"b", b}}, {"key"}, LZ_BAD_ARGUMENT, "metadata 'key' has no value"},
        {{{"a", a}, {"b", b}}, {"key", "\xff"}, LZ_BAD_ARGUMENT, "not valid UTF-8"},
        {{{"a", a}, {"b", lz_reshape(a, LZ_DIMS(5))}}, {0}, LZ_BAD_SHAPE, "reshape"},
        {{{"a", late}, {"b", fails}}, {0}, LZ_BAD_INDEX, "take"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(lz_weights_save(ctx, path, cases[i].arrays, 2, cases[i].metadata, &err), cases[i].status, &err);
        CHECK_TEXT(err.text, cases[i].words);
        CHECK_I64(files_in_folder(), 0);
    }
    lz_named_array good = {"a", a};
    CHECK_STATUS(lz_weights_save(ctx, in_folder("no/w.safetensors"), &good, 1, NULL, &err), LZ_IO, &err);
    CHECK_TEXT(err.text, "cannot be written");
    CHECK_STATUS(lz_weights_save(ctx, folder, &good, 1, NULL, &err), LZ_IO, &err);
    CHECK_TEXT(err.text, "is a folder");
    CHECK_STATUS(lz_weights_save(ctx, NULL, &good, 1, NULL, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_I64(files_in_folder(), 0);

    /* An old file survives a failure to replace it. */
    CHECK_OK(lz_weights_save(ctx, path, &good, 1, NULL, &err), &err);
    CHECK_STATUS(lz_weights_save(ctx, path, &(lz_named_array){"b", fails}, 1, NULL, &err), LZ_BAD_INDEX, &err);
    lz_weights *w = lz_weights_open(ctx, path, &err);
    CHECK(w && lz_weights_has(w, "a"));
    lz_weights_close(w);
    CHECK_I64(files_in_folder(), 1);
    leave_folder();
    lz_close(ctx);
}

/* ---- memory that runs out ---------------------------------------------------------------------------------------- */

typedef struct meter {
    int64_t left, alive; /* allocations until they fail; not yet freed */
} meter;

static void *metered(void *user, size_t bytes) {
    meter *m = user;
    if (m->left-- <= 0) return NULL;
    m->alive++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void unmetered(void *user, void *memory, size_t bytes) {
    (void)bytes;
    if (memory) ((meter *)user)->alive--;
    free(memory);
}

/* Fails the 1st, 2nd, 3rd ... allocation until everything succeeds. */
static void every_allocation_may_fail(void) {
    enter_folder();
    int64_t n = 0;
    for (bool done = false; !done && n < 10000; n++) {
        meter m = {.left = 1 << 30};
        lz_allocator allocator = {metered, unmetered, &m};
        lz_context *ctx = lz_open(.threads = 1, .allocator = &allocator);
        lz_array *a = lz_full(ctx, LZ_DIMS(4, 4), LZ_F32, 2);
        m.left = n;
        lz_error err = {.status = LZ_OK};
        char shards[1100];
        snprintf(shards, sizeof shards, "%.*spython-shards", (int)strlen(test_data("ops.txt")) - 7,
                 test_data("ops.txt"));
        lz_weights *w = lz_weights_open(ctx, shards, &err);
        if (!w) {
            CHECK_I64(err.status, LZ_OUT_OF_MEMORY);
        } else {
            lz_array *b = lz_weights_get(w, "a.weight"), *c = lz_weights_cast(w, "b.weight", LZ_F32);
            lz_named_array arrays[] = {{"a", a}, {"b", b}, {"c", c}};
            lz_status status = lz_weights_save(ctx, in_folder("w.safetensors"), arrays, 3, NULL, &err);
            done = status == LZ_OK;
            if (!done) {
                CHECK_STATUS(status, LZ_OUT_OF_MEMORY, &err);
                CHECK_I64(files_in_folder(), 0);
            }
        }
        lz_weights_close(w);
        m.left = 1 << 30;
        lz_close(ctx);
        CHECK_I64(m.alive, 0);
    }
    CHECK(n > 10 && n < 10000, "%lld", (long long)n);
    leave_folder();
}

TEST_MAIN({"reads what python wrote", reads_what_python_wrote}, {"unknown types are listed", unknown_types_are_listed},
          {"reads shards", reads_shards}, {"round trip", round_trip}, {"empty file", empty_file}, {"casts", casts},
          {"missing names", missing_names}, {"unaligned data is copied", unaligned_data_is_copied},
          {"hostile headers", hostile_headers}, {"hostile bytes", hostile_bytes},
          {"long names are shortened", long_names_are_shortened}, {"truncated anywhere", truncated_anywhere},
          {"bools are checked", bools_are_checked}, {"hostile indexes", hostile_indexes}, {"folders", folders},
          {"variants", variants}, {"failed saves leave nothing", failed_saves_leave_nothing},
          {"every allocation may fail", every_allocation_may_fail})
