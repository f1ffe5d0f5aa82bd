/* nvrtc.c: compiles CUDA C++ for the CPU, after cuda_on_cpu.h, into a shared library that takes the place of a cubin.
 *
 * The source is preprocessed first. In the output, kernels are marked by an attribute, and a table of them is appended.
 * "extern __shared__ T name[]" has become "extern static <section> T name[]", which is not valid C++; it is replaced by
 * a pointer to the dynamic shared memory. The whole source is put into an unnamed namespace, so that variables of
 * templates can be put into a section. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim.h"

#define DECLARE(returns, name, version, params) EXPORT returns nvrtc##name params;
LZ_NVRTC_FUNCTIONS(DECLARE)

typedef struct text {
    char *chars; /* ends with 0; NULL: nothing yet */
    size_t n, room;
} text;

struct lz_nvrtc_program_t {
    text source, log, cubin;
    char name[256];
    int n_headers;
    char **headers, **header_names;
};

/* ---- texts and files -------------------------------------------------------------------------------------------- */

static void add_bytes(text *t, const char *bytes, size_t n) {
    if (t->n + n + 1 > t->room) {
        t->room = 2 * t->room + n + 1;
        t->chars = realloc(t->chars, t->room);
        if (!t->chars) abort();
    }
    memcpy(t->chars + t->n, bytes, n);
    t->n += n;
    t->chars[t->n] = 0;
}

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
    char *line = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0) abort();
    add_bytes(t, line, (size_t)n);
    free(line);
}

static void drop(text *t) {
    free(t->chars);
    *t = (text){0};
}

static bool read_file(const char *path, text *t) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    char block[1 << 16];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) add_bytes(t, block, n);
    return !fclose(file) && t->chars;
}

static bool write_file(const char *path, const char *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    bool fine = fwrite(bytes, 1, n, file) == n;
    return !fclose(file) && fine;
}

/* ---- the source, rewritten -------------------------------------------------------------------------------------- */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The end of the brackets that open at p. */
static const char *skip_brackets(const char *p) {
    int depth = 0;
    for (; *p; p++) {
        depth += (*p == '(') - (*p == ')');
        if (!depth) return p + 1;
    }
    return p;
}

static const char *skip_space(const char *p) {
    while (isspace((unsigned char)*p)) p++;
    return p;
}

static const char MARK[] = "__attribute__((lz_sim_kernel))", BOUNDS[] = "__attribute__((lz_sim_bounds",
                  CLUSTER[] = "__attribute__((lz_sim_cluster";
static const char SHARED[] = "static __attribute__((section(\"lz_sim_shared\")))";

/* From behind "extern __shared__": "T name[]" becomes "T *const name = ...". Returns where the declaration ends. */
static const char *rewrite_shared(text *out, const char *p) {
    const char *end = p + strcspn(p, ";"), *bracket = memchr(p, '[', (size_t)(end - p));
    text type = {0};
    add_bytes(&type, "", 0);
    if (!bracket) bracket = end;
    const char *name_end = bracket;
    while (name_end > p && isspace((unsigned char)name_end[-1])) name_end--;
    const char *name = name_end;
    while (name > p && is_word(name[-1])) name--;
    while (p < name) { /* the type, without attributes such as an alignment */
        if (!strncmp(p, "__attribute__", 13))
            p = skip_brackets(skip_space(p + 13));
        else
            add_bytes(&type, p++, 1);
    }
    add(out, "%s *const %.*s = reinterpret_cast<%s *>(lz_sim::own_shared())", type.chars, (int)(name_end - name), name,
        type.chars);
    drop(&type);
    return end;
}

/* From behind the mark: a row for the table. The name stands before the first bracket that belongs to no attribute. */
static void add_kernel(text *table, int *n, const char *p) {
    const char *bounds = NULL, *cluster = NULL;
    for (; *p && *p != '(' && *p != ';' && *p != '{'; p++) {
        if (strncmp(p, "__attribute__", 13)) continue;
        if (!strncmp(p, BOUNDS, sizeof BOUNDS - 1)) bounds = p + sizeof BOUNDS - 1;
        if (!strncmp(p, CLUSTER, sizeof CLUSTER - 1)) cluster = p + sizeof CLUSTER - 1;
        p = skip_brackets(skip_space(p + 13)) - 1;
    }
    if (*p != '(') return;
    while (isspace((unsigned char)p[-1])) p--;
    const char *name = p;
    while (is_word(name[-1])) name--;
    /* The brackets around (threads, blocks) become those of the call. */
    add(table, "    %slz_sim::entry<%.*s>::describe(\"%.*s\", ", cluster ? "lz_sim::clustered(" : "", (int)(p - name),
        name, (int)(p - name), name);
    if (bounds)
        add(table, "%.*s)", (int)(skip_brackets(bounds) - bounds - 2), bounds + 1);
    else
        add(table, "LZ_SIM_MAX_THREADS)");
    if (cluster) add(table, ", %.*s)", (int)(skip_brackets(cluster) - cluster - 2), cluster + 1);
    add(table, ",\n");
    (*n)++;
}

static void rewrite(const text *in, text *out) {
    text table = {0};
    int n = 0;
    for (const char *p = in->chars; *p;) {
        if (!strncmp(p, MARK, sizeof MARK - 1)) add_kernel(&table, &n, p + sizeof MARK - 1);
        bool word_starts = p == in->chars || !is_word(p[-1]);
        const char *after = word_starts && !strncmp(p, "extern", 6) ? skip_space(p + 6) : NULL;
        if (after && !strncmp(after, SHARED, sizeof SHARED - 1))
            p = rewrite_shared(out, after + sizeof SHARED - 1);
        else
            add_bytes(out, p++, 1);
    }
    add(out, "\nstatic const lz_sim_kernel lz_sim_kernels[] = {\n%s    {}};\n", table.chars ? table.chars : "");
    add(out,
        "extern \"C\" __attribute__((visibility(\"default\"))) const lz_sim_module lz_sim_here = "
        "{lz_sim_kernels, %d, lz_sim::run_grid, lz_sim::tell};\n",
        n);
    drop(&table);
}

/* ---- programs --------------------------------------------------------------------------------------------------- */

/* fmaf as an instruction instead of a call: products are several times faster. */
static bool has_fma(void) { return __builtin_cpu_supports("fma"); }

/* Changes with what goes before a source and with the machine, so that nobody takes the kernels of another version out
 * of a cache. */
lz_nvrtc_result nvrtcVersion(int *major, int *minor) {
    text both = {0};
    add_bytes(&both, "", 0);
    read_file(LZ_SIM_SOURCE_DIR "/cuda_on_cpu.h", &both);
    read_file(LZ_SIM_SOURCE_DIR "/module.h", &both);
    add(&both, "%d", has_fma());
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < both.n; i++) hash = (hash ^ (unsigned char)both.chars[i]) * 16777619u;
    drop(&both);
    *major = 13;
    *minor = (int)(1000 + hash % 1000000);
    return LZ_NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(lz_nvrtc_result result) {
    switch (result) {
    case LZ_NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case LZ_NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case LZ_NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case LZ_NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    default: return "NVRTC_ERROR unknown";
    }
}

lz_nvrtc_result nvrtcCreateProgram(lz_nvrtc_program *program, const char *source, const char *name, int n_headers,
                                   const char *const *headers, const char *const *header_names) {
    if (!program || !source || n_headers < 0) return LZ_NVRTC_ERROR_INVALID_INPUT;
    lz_nvrtc_program p = calloc(1, sizeof *p);
    if (!p) return LZ_NVRTC_ERROR_OUT_OF_MEMORY;
    add(&p->source, "%s", source);
    snprintf(p->name, sizeof p->name, "%s", name ? name : "default_program");
    p->headers = calloc((size_t)n_headers + 1, sizeof *p->headers);
    p->header_names = calloc((size_t)n_headers + 1, sizeof *p->header_names);
    if (!p->headers || !p->header_names) abort();
    for (p->n_headers = 0; p->n_headers < n_headers; p->n_headers++) {
        p->headers[p->n_headers] = strdup(headers[p->n_headers]);
        p->header_names[p->n_headers] = strdup(header_names[p->n_headers]);
    }
    *program = p;
    return LZ_NVRTC_SUCCESS;
}

lz_nvrtc_result nvrtcDestroyProgram(lz_nvrtc_program *program) {
    if (!program || !*program) return LZ_NVRTC_ERROR_INVALID_PROGRAM;
    lz_nvrtc_program p = *program;
    for (int i = 0; i < p->n_headers; i++) {
        free(p->headers[i]);
        free(p->header_names[i]);
    }
    free(p->headers);
    free(p->header_names);
    drop(&p->source);
    drop(&p->log);
    drop(&p->cubin);
    free(p);
    *program = NULL;
    return LZ_NVRTC_SUCCESS;
}

/* Options that matter here are passed on, those that tune the real compiler are taken, others are refused. */
static bool add_option(text *command, const char *option) {
    static const char *const taken[] = {
        "-arch",
        "--gpu-architecture",
        "-std=",
        "--std=",
        "--use_fast_math",
        "-use_fast_math",
        "--fmad",
        "-fmad",
        "--ftz",
        "-ftz",
        "--prec-",
        "-prec-",
        "--restrict",
        "-restrict",
        "-lineinfo",
        "--generate-line-info",
        "-default-device",
        "--device-as-default-execution-space",
        "--maxrregcount",
        "-maxrregcount",
        "--extra-device-vectorization",
        "-w",
        "--disable-warnings",
        "-diag-suppress",
        "--diag-suppress",
        "--ptxas-options",
        "-Xptxas",
        "--split-compile",
    };
    if (!strncmp(option, "-D", 2) || !strncmp(option, "-I", 2) || !strncmp(option, "-U", 2)) {
        add(command, " '%s'", option);
        return true;
    }
    if (!strncmp(option, "--define-macro=", 15)) {
        add(command, " '-D%s'", option + 15);
        return true;
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strncmp(option, taken[i], strlen(taken[i]))) return true;
    return false;
}

/* Runs the compiler in the folder; what it says goes to the log. */
static bool run_compiler(lz_nvrtc_program p, const char *folder, const char *arguments) {
    const char *compiler = getenv("CXX");
    text command = {0};
    char log[512];
    snprintf(log, sizeof log, "%s/log", folder);
    add(&command, "cd '%s' && LC_ALL=C %s %s >log 2>&1 </dev/null", folder,
        compiler && *compiler ? compiler : LZ_SIM_CXX, arguments);
    int status = system(command.chars);
    bool fine = status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    drop(&command);
    text said = {0};
    if (read_file(log, &said)) add_bytes(&p->log, said.chars, said.n);
    drop(&said);
    return fine;
}

static bool compile_in(lz_nvrtc_program p, const char *folder, const char *options) {
    char path[512];
    text source = {0}, arguments = {0}, preprocessed = {0}, rewritten = {0}, library = {0};
    for (int i = 0; i < p->n_headers; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, p->header_names[i]);
        if (!write_file(path, p->headers[i], strlen(p->headers[i]))) return false;
    }
    add(&source, "#include \"cuda_on_cpu.h\"\nnamespace {\n#line 1 \"%s\"\n%s\n}\n", p->name, p->source.chars);
    snprintf(path, sizeof path, "%s/source.cpp", folder);
    bool fine = write_file(path, source.chars, source.n);
    add(&arguments, "-std=c++17 -E -w -I. '-I%s'%s source.cpp -o preprocessed", LZ_SIM_SOURCE_DIR, options);
    fine = fine && run_compiler(p, folder, arguments.chars);
    snprintf(path, sizeof path, "%s/preprocessed", folder);
    fine = fine && read_file(path, &preprocessed);
    if (fine) {
        rewrite(&preprocessed, &rewritten);
        snprintf(path, sizeof path, "%s/rewritten.ii", folder);
        fine = write_file(path, rewritten.chars, rewritten.n);
    }
    drop(&arguments);
    /* No exceptions and no guards for static variables: then only the C library is needed. */
    add(&arguments,
        "-std=c++17 -O1%s -ffp-contract=off -fno-strict-aliasing -fno-math-errno -fno-exceptions -fno-rtti "
        "-fno-threadsafe-statics -fvisibility=hidden -w -fPIC -shared -nodefaultlibs rewritten.ii -o library.so "
        "-lm -lc -lgcc",
        has_fma() ? " -mfma" : "");
    fine = fine && run_compiler(p, folder, arguments.chars);
    snprintf(path, sizeof path, "%s/library.so", folder);
    fine = fine && read_file(path, &library);
    if (fine) {
        lz_sim_image header = {.magic = LZ_SIM_MAGIC, .bytes = library.n};
        add_bytes(&p->cubin, (const char *)&header, sizeof header);
        add_bytes(&p->cubin, library.chars, library.n);
    }
    drop(&source), drop(&arguments), drop(&preprocessed), drop(&rewritten), drop(&library);
    return fine;
}

static atomic_int compiling, most_compiling;

int lz_sim_most_compiling(void) { return atomic_load(&most_compiling); }

static void begin_compiling(void) {
    int now = atomic_fetch_add(&compiling, 1) + 1, most = atomic_load(&most_compiling);
    while (now > most && !atomic_compare_exchange_weak(&most_compiling, &most, now)) {}
}

lz_nvrtc_result nvrtcCompileProgram(lz_nvrtc_program program, int n_options, const char *const *options) {
    if (!program) return LZ_NVRTC_ERROR_INVALID_PROGRAM;
    drop(&program->log), drop(&program->cubin);
    text passed = {0};
    add_bytes(&passed, "", 0);
    for (int i = 0; i < n_options; i++) {
        if (add_option(&passed, options[i])) continue;
        add(&program->log, "nvrtc: error: unrecognized option %s found\n", options[i]);
        drop(&passed);
        return LZ_NVRTC_ERROR_INVALID_OPTION;
    }
    char folder[256];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lz-sim-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    begin_compiling();
    bool fine = mkdtemp(folder) && compile_in(program, folder, passed.chars);
    atomic_fetch_sub(&compiling, 1);
    drop(&passed);
    static const char *const files[] = {"source.cpp", "preprocessed", "rewritten.ii", "library.so", "log"};
    char path[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    for (int i = 0; i < program->n_headers; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, program->header_names[i]);
        unlink(path);
    }
    rmdir(folder);
    return fine ? LZ_NVRTC_SUCCESS : LZ_NVRTC_ERROR_COMPILATION;
}

lz_nvrtc_result nvrtcGetCUBINSize(lz_nvrtc_program program, size_t *bytes) {
    *bytes = program->cubin.n;
    return LZ_NVRTC_SUCCESS;
}

lz_nvrtc_result nvrtcGetCUBIN(lz_nvrtc_program program, char *cubin) {
    if (program->cubin.n) memcpy(cubin, program->cubin.chars, program->cubin.n);
    return LZ_NVRTC_SUCCESS;
}

lz_nvrtc_result nvrtcGetProgramLogSize(lz_nvrtc_program program, size_t *bytes) {
    *bytes = program->log.n + 1;
    return LZ_NVRTC_SUCCESS;
}

lz_nvrtc_result nvrtcGetProgramLog(lz_nvrtc_program program, char *log) {
    snprintf(log, program->log.n + 1, "%s", program->log.chars ? program->log.chars : "");
    return LZ_NVRTC_SUCCESS;
}
