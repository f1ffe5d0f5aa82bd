/* lazuli.h: pictures from text. This header is the manual, in order of need; docs/embedding.md says how to build.
 *
 *     lz_error err;
 *     lz_context *ctx = lz_open(.error = &err);                      // where to compute; NULL: err.text says why
 *     lz_model *model = lz_model_open(ctx, "models/demo", &err);     // NULL here and failures below: the same
 *     lz_picture picture;
 *     if (lz_generate(model, &picture, &err, .prompt = "a red fox", .seed = 1) == LZ_OK) {
 *         lz_image_write(ctx, "fox.png", &picture.image, NULL, &err);
 *         lz_picture_free(&picture);
 *     }
 *     lz_model_close(model);
 *     lz_close(ctx);
 *
 * The models run on a runtime of lazy arrays, which is public too: lazuli_array.h. This header includes it at its end;
 * a program that only makes pictures needs nothing of it.
 *
 * Rules that hold for all functions:
 *
 *   Globals    There are none. Everything belongs to a context; contexts are independent of each other. The library
 *              reads no environment variable, prints nothing, and never ends the program.
 *   Threads    Functions may be called from any thread, and for one context from several threads at once. The exception
 *              is a function that ends an object (close, free, end): no other thread may use that object meanwhile or
 *              later. Structs that the caller owns (options, pictures, images, errors) are not locked.
 *   Ownership  Who opens or makes an object ends it with the function named beside it. A context is closed last, after
 *              its models, pictures, images, tokenizers, weights, streams, compiled functions, texts and retained
 *              arrays. Arguments are only read during the call, unless their comment says otherwise.
 *   NULL       No argument crashes a function, NULL and nonsense included. A function that needs an argument fails with
 *              LZ_BAD_ARGUMENT if it is NULL. Functions that close, free, release, end, start, stop or wait do nothing
 *              with NULL. Functions that only tell something (lz_model_about, lz_memory_info, lz_shape, ...) return
 *              zeros. What cannot be checked: a pointer that is not NULL must point to a living object of its type, as
 *              long as the sizes beside it say.
 *   Errors     A function that can fail returns an lz_status, or a pointer that is NULL if it failed, and fills an
 *              lz_error. After a failure there is nothing to free: what the function had made is gone.
 */
#ifndef LAZULI_H
#define LAZULI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Versions ---------------------------------------------------------------------------------------------- */

/* Of this header. Before 1.0 a new MINOR may change anything in it (CHANGELOG.md says what), and the shared library has
 * another name then (liblazuli.so.0.2), so a program never runs with a library that it was not built for. A new PATCH
 * keeps what programs were built with: option structs may get members at their end, and enums values; structs that the
 * library fills or returns keep their size. From 1.0 on the same holds for MAJOR and MINOR. */
#define LZ_VERSION "0.2.0"
#define LZ_VERSION_MAJOR 0
#define LZ_VERSION_MINOR 2
#define LZ_VERSION_PATCH 0
#define LZ_VERSION_NUMBER (LZ_VERSION_MAJOR * 10000 + LZ_VERSION_MINOR * 100 + LZ_VERSION_PATCH)

/* Of the library that is running. */
const char *lz_version(void);
int lz_version_number(void); /* as LZ_VERSION_NUMBER */

/* ---- 2. Errors ------------------------------------------------------------------------------------------------ */

typedef enum lz_status {
    LZ_OK = 0,
    LZ_BAD_ARGUMENT,  /* a number, name or pointer that makes no sense */
    LZ_BAD_SHAPE,     /* sizes that do not fit together */
    LZ_BAD_TYPE,      /* an element type the op does not take */
    LZ_BAD_INDEX,     /* take or gather met an index outside its axis */
    LZ_OUT_OF_MEMORY, /* of the system, or of the limit set on the context */
    LZ_BAD_FILE,      /* a file whose contents are wrong */
    LZ_IO,            /* a file that cannot be read or written */
    LZ_NOT_FOUND,     /* no such tensor, device, file */
    LZ_CANCELLED,     /* watch returned false */
    LZ_DEVICE_FAILED, /* the GPU or its driver failed; the text has the driver's words */
    LZ_STATUS_COUNT
} lz_status;

const char *lz_status_name(lz_status status); /* such as "bad shape" */

/* Filled when a function fails, and left alone when it does not. Functions take NULL in its place. */
typedef struct lz_error {
    lz_status status;
    char text[600]; /* one sentence: what failed, where, and what to do */
} lz_error;

/* For text from outside that is to be printed on a terminal: control characters (C0, DEL, C1), marks that turn the
 * direction of writing, and bytes that are not UTF-8 become '?', in place. Returns text. */
char *lz_printable(char *text);

/* ---- 3. Contexts ---------------------------------------------------------------------------------------------- */

/* A context is a place to compute: a device, its threads, its memory. Everything below is made in one. */
typedef struct lz_context lz_context;

/* Types of numbers. Pictures need three of them, for `compute` below: LZ_F32, LZ_BF16 and LZ_FASTEST. */
typedef enum lz_dtype {
    LZ_BOOL,
    LZ_U8,
    LZ_I8,
    LZ_I32,
    LZ_I64,
    LZ_F8, /* e4m3fn. Storage only: cast it, move it, or give it to matmul and linear; arithmetic refuses it */
    LZ_F16,
    LZ_BF16,
    LZ_F32,
    LZ_F64, /* exact, slow: runs on the reference kernels, on the host, whatever the device */
    LZ_DTYPE_COUNT
} lz_dtype;
#define LZ_FASTEST (-1) /* bf16 if the device or processor multiplies bf16 faster than f32, else f32 */

/* Where host memory comes from. allocate returns memory aligned to 64 bytes, or NULL. Both functions are needed, may be
 * called from any thread, and are used until the context is closed. */
typedef struct lz_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} lz_allocator;

/* What to do when the weights of a program do not fit into a GPU's memory beside everything else. With streamed weights
 * a result may differ in roundings from one with all weights resident; from run to run it is the same. */
typedef enum lz_offload {
    LZ_OFFLOAD_AUTO,   /* as many as fit stay there, the others are sent in every run, ahead of the kernels */
    LZ_OFFLOAD_NONE,   /* fail with LZ_OUT_OF_MEMORY */
    LZ_OFFLOAD_STREAM, /* all weights are sent in every run, even if they would fit: takes the least memory */
} lz_offload;

/* What the library says without being asked. */
typedef enum lz_log_level {
    LZ_LOG_NOTE,   /* for users: something is done another way than asked, such as in tiles because memory is short */
    LZ_LOG_DETAIL, /* for developers: choices, refusals and compilations of a GPU */
} lz_log_level;

/* Every option struct begins with its size, so that it can grow: the macros fill it in, and a size of 0 is refused.
 * Members that are not named are zero, which means the default. Pointers are read during lz_open_with only. */
typedef struct lz_context_options {
    size_t size;                   /* sizeof(lz_context_options) */
    const char *device;            /* "cpu" (default), "cuda" or "cuda:N", or "ref": slow and obviously right */
    int threads;                   /* 0: one per core this process may use. Results never depend on it. */
    int64_t memory_limit;          /* bytes of array data (on a GPU: in its memory), 0: no limit */
    int64_t cache_limit;           /* freed bytes kept for reuse; 0: 64 MiB, negative: none */
    bool no_fusion;                /* run every op as its own kernel; in f32 the bits are the same */
    const char *isa;               /* such as "baseline" or "avx2" (`lazuli devices`); NULL: the best here */
    const lz_allocator *allocator; /* NULL: the C library's */
    int compute;                   /* models compute in LZ_F32, LZ_BF16 or LZ_FASTEST; 0: f32, on a GPU bf16 */
    int offload;                   /* lz_offload; changes nothing where kernels work on the host's memory */
    lz_error *error;               /* filled if the context cannot be opened; lz_open_with prefers its own err */
    /* Called on any thread, but one call at a time, until lz_close returns; must not call lz_ functions of this
     * context. text is one line, valid during the call. NULL: nothing is said. */
    void (*log)(void *user, lz_log_level level, const char *text);
    void *log_user;
    /* GPUs only. Kernels are compiled and measured when they are first needed, which takes seconds; a folder keeps the
     * results for later processes, NULL keeps none. The command line takes ~/.cache/lazuli. */
    const char *cache_folder;
    const char *cuda_path; /* folders with NVIDIA's libraries, separated by colons; empty or NULL: the usual ones */
    const char *cuda_gemm; /* products by "library", "own", "any" or "single" kernels; NULL: the fastest, measured */
    const char *cuda_sdpa; /* attention by "library" or "own" kernel; NULL: the fastest, measured */
    bool no_cudnn;         /* do as if cuDNN were not installed */
} lz_context_options;

/* In C: lz_open(.device = "cuda", .error = &err), or lz_open_with(&LZ_CONTEXT_OPTIONS(.device = "cuda"), &err). Both
 * return NULL if they fail. options: NULL means the defaults. The default is the CPU, because a library should not take
 * a GPU that nobody offered it; the command line chooses a GPU for large models if there is one. */
lz_context *lz_open_with(const lz_context_options *options, lz_error *err);
/* Ends open scopes, and frees the arrays that belong to the context. Whatever else was made in the context must be gone
 * before: lz_close may not precede lz_model_close. */
void lz_close(lz_context *ctx);

const char *lz_device_name(const lz_context *ctx); /* such as "cpu (avx512), 2 threads"; valid until lz_close */

/* What this machine can compute on: the CPU first, then every GPU. "ref" is not listed. */
typedef struct lz_device_info {
    char device[32];   /* for lz_context_options.device: "cpu", "cuda:0" */
    char name[128];    /* such as "cpu (avx512)" or "NVIDIA H200" */
    int64_t memory;    /* bytes in all; 0: unknown */
    char problem[256]; /* why no context can be opened there; empty: one can */
} lz_device_info;
/* Fills up to n entries, and returns how many devices there are; -1: it failed. devices may be NULL if n is 0. Of the
 * options (NULL: the defaults) only isa and cuda_path count. No context is opened. */
int lz_find_devices(const lz_context_options *options, lz_device_info *devices, int n, lz_error *err);

/* Frees a text or bytes that a function returned for the caller to free (each says so). */
void lz_free_text(lz_context *ctx, char *text);

/* Memory of a context: on a GPU its memory, else the host's. */
typedef struct lz_memory {
    int64_t active;      /* bytes in arrays and arenas */
    int64_t cached;      /* freed, kept for reuse */
    int64_t peak;        /* most of active + cached so far */
    int64_t limit;       /* 0: none */
    int64_t allocations; /* times the allocator was asked, for arrays or anything else */
    int64_t nodes;       /* arrays described so far */
    int64_t streamed;    /* bytes of weights that were sent to a device for one run only, so far */
} lz_memory;
lz_memory lz_memory_info(lz_context *ctx);
void lz_set_memory_limit(lz_context *ctx, int64_t bytes);
void lz_reset_peak(lz_context *ctx);
void lz_clear_cache(lz_context *ctx);

/* ---- 4. Images ------------------------------------------------------------------------------------------------ */

/* Row by row from the top, without gaps, 8 bits a channel. An image that a function fills is freed with lz_image_free;
 * of one that the caller fills, the caller owns the pixels. */
typedef struct lz_image {
    int64_t width, height;
    uint8_t *pixels;
    int channels; /* 3: RGB; the library sets it so. 0 means 3, and other numbers are refused */
} lz_image;
/* PNG, JPEG or WebP, told by the content. Alpha is laid over white, 16 bits are rounded to 8, CMYK becomes RGB, and the
 * orientation a camera noted is applied; colour profiles and gamma are ignored. */
lz_status lz_image_read(lz_context *ctx, const char *path, lz_image *image, lz_error *err);
/* The same of a file in memory, which is not needed after the call. */
lz_status lz_image_decode(lz_context *ctx, const void *data, int64_t bytes, lz_image *image, lz_error *err);
/* By the ending of path: .png, .jpg, .jpeg (quality 95, 4:4:4), .webp (quality 95). The file appears whole or not at
 * all, with the same bytes every time. A file that was there leaves its permissions to the new one, and a link stays a
 * link. text: key, value, ..., ended by NULL, or NULL. A PNG keeps it in tEXt and iTXt, a JPEG in comments, a
 * WebP in XMP, where control characters other than tab and the ends of lines become U+FFFD. */
lz_status lz_image_write(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                         lz_error *err);
/* The bytes of such a file, for a kind such as ".png". Free them with lz_free_text. NULL: it failed. */
char *lz_image_encode(lz_context *ctx, const char *kind, const lz_image *image, const char *const *text, int64_t *bytes,
                      lz_error *err);
void lz_image_free(lz_context *ctx, lz_image *image);
/* The text that a picture holds under this key, in UTF-8: text of lz_image_write, or of other programs (tEXt, zTXt,
 * iTXt). Pixels are not looked at. Free it with lz_free_text. NULL: it failed, with LZ_NOT_FOUND if there is no such
 * text. */
char *lz_image_read_text(lz_context *ctx, const char *path, const char *key, lz_error *err);
char *lz_image_decode_text(lz_context *ctx, const void *data, int64_t bytes, const char *key, lz_error *err);

/* ---- 5. Models ------------------------------------------------------------------------------------------------ */

/* A model folder as it is published (diffusers layout): model_index.json, scheduler, tokenizer, text_encoder,
 * transformer, vae. FLUX.2 [klein]; Qwen-Image (Lightning models are recognised by their schedule) and its Edit
 * models, which look at images and have a processor/. A field of a configuration that is not implemented is refused by
 * name. model_index.json may name defaults, as diffusers calls the arguments: num_inference_steps, width, height.
 * Where it does not, as in all published folders, they are the family's steps and 1024 x 1024.
 *
 * Weights are mapped, not read. If a weight file is changed after that, the next picture fails with LZ_IO; if a file
 * becomes shorter in the middle of a picture, the process gets SIGBUS, as with all mapped files, and a program may want
 * a handler.
 *
 * The library takes a folder, and does not search for one. The demo model is installed as share/lazuli/models/demo
 * below the prefix; `pkg-config --variable=demo lazuli` prints its folder. `lazuli pull` puts models into the cache of
 * the Hugging Face tools, and `lazuli models` prints their folders. */
typedef struct lz_model lz_model;
/* One model may serve several threads. Their pictures are made at the same time, and take turns step by step. */
lz_model *lz_model_open(lz_context *ctx, const char *folder, lz_error *err);

/* A model from single files, as ComfyUI, stable-diffusion.cpp and llama.cpp use them: safetensors or GGUF, in the names of any
 * of these programs. What a file is follows from its tensors, never from its name. Sizes are those of the tensors; what they
 * cannot tell is as published. If model is a folder, parts that are given take the place of the folder's. */
typedef struct lz_model_options {
    size_t size;       /* sizeof(lz_model_options) */
    const char *model; /* a model folder, or a file of the transformer, which may hold other parts too */
    /* Files or folders. NULL: what model has. A tokenizer is a folder, a tokenizer.json, or a GGUF file of the text
     * encoder; it is also found beside the text encoder or the transformer. vision: the images' part of a text encoder in
     * GGUF; it is also found beside that, by "mmproj" in its name. */
    const char *text_encoder, *vision, *vae, *tokenizer;
    /* "base" or "distilled" FLUX.2 [klein]; "text", "edit", "edit-plus" (2509, 2511) or "distilled" (Lightning)
     * Qwen-Image. NULL: by the words base, edit, 2509, 2511, lightning in the name of model. Folders say it themselves. */
    const char *variant;
} lz_model_options;
lz_model *lz_model_open_with(lz_context *ctx, const lz_model_options *options, lz_error *err);
void lz_model_close(lz_model *model); /* no picture of it may be under way */

/* What a file (or a folder) of weights is, by its tensors. */
typedef struct lz_file_facts {
    char what[200]; /* "a FLUX.2 [klein] 4B transformer"; "no model that is known here" */
    char needs
        [400]; /* parts that lz_model_open_with needs besides a transformer: "a text encoder (--text-encoder), ..." */
    char refused[300];                                      /* why no model can be made of it; or "" */
    bool transformer, text_encoder, vision, vae, tokenizer; /* that it holds */
} lz_file_facts;
lz_status lz_file_about(lz_context *ctx, const char *path, lz_file_facts *facts, lz_error *err);

/* The pipelines that lz_model_open takes, as "_class_name" in model_index.json calls them ("Flux2KleinPipeline"): for
 * i = 0, 1, ...; NULL after the last. */
const char *lz_pipeline_name(int i);

typedef struct lz_model_facts {
    const char *family;            /* "FLUX.2 [klein]", "Qwen-Image" */
    bool distilled;                /* few steps, no guidance by default */
    bool guidance_built_in;        /* distilled, and guidance that is asked for is ignored */
    int64_t width, height;         /* by default */
    int steps;                     /* by default */
    double guidance;               /* by default; 1: none */
    int64_t token_pixels;          /* sides of a picture are multiples of this */
    int64_t channels;              /* of the latents */
    int least_images, most_images; /* to look at; one to start from comes on top */
} lz_model_facts;
lz_model_facts lz_model_about(const lz_model *model); /* its texts are constants */

/* A LoRA is a file that changes some weights of a model a little: LoRA, LoHa, LoKr, DoRA and whole differences, for the
 * transformer or the text encoder, with the names of any trainer. The weights stay as they are; what a LoRA adds is
 * computed beside them. */
typedef struct lz_lora {
    size_t size;      /* sizeof(lz_lora) */
    const char *path; /* a safetensors file */
    double weight;    /* how much of it is added: 1 is as it was trained, 0 nothing */
    bool partial;     /* modules that the model does not have are left out; without this they are an error */
    bool ordinary;    /* a LoRA for few steps (Lightning) leaves the steps, the guidance and the schedule as they are */
} lz_lora;
/* All LoRAs of the pictures that follow, in place of those before; n = 0: none. Between pictures: no picture or plan of the
 * model may be under way, and jobs that were made before are refused. The model and its text encoder are not opened again. After a failure everything is as before. A
 * file of which nothing belongs to the model is refused, and so is one whose shapes do not fit. */
lz_status lz_model_set_loras(lz_model *model, const lz_lora *loras, int n, lz_error *err);

/* What came of a LoRA. */
typedef struct lz_lora_facts {
    const char *path;    /* the library's own, until the LoRAs change */
    double weight;       /* as given */
    int modules, used;   /* in the file; those that the model has */
    int in_text;         /* of these in the text encoder */
    int given_twice;     /* fused matrices that the file holds in parts, too: the parts are used */
    char unused[3][128]; /* names of modules that the model does not have */
    int64_t rank;        /* the largest; 0: no module has one */
    int steps;           /* above 0: it is for so many steps without guidance, which are the model's defaults now */
    double shift;        /* of the schedule, which it brings along, then; else 0 */
} lz_lora_facts;
/* Fills up to n entries, and returns how many LoRAs the model has. facts may be NULL if n is 0. */
int lz_model_loras(const lz_model *model, lz_lora_facts *facts, int n);

/* ---- 6. Making a picture -------------------------------------------------------------------------------------- */

typedef struct lz_array lz_array; /* numbers in some shape: lazuli_array.h */

/* What watch is told. A picture goes through the stages "text", "encode" (only with images), "denoise" and "decode", in
 * this order; "text" and "encode" may come several times, once for each prompt or image, and "decode" once for each
 * tile.
 *
 * Progress of the whole picture: lz_plan_picture gives the operations (flops) of each stage. With s = done, or in
 * "denoise" s = (step + done) / steps, it is (flops of the stages before + s * flops of this stage) / flops of all. */
typedef struct lz_progress {
    const char *stage;
    int step;                /* in "denoise" the step, from 0; in "text" the prompt (1: the negative one); else 0 */
    int steps;               /* denoising steps of this picture, in every stage */
    double done;             /* of this stage or step, 0 to 1 */
    const lz_image *preview; /* once after each step, if the options ask for it: what the picture would become if it
                                went straight on. The library's own, during the call. Else NULL */
} lz_progress;

typedef enum lz_preview {
    LZ_PREVIEW_NONE,
    LZ_PREVIEW_SMALL, /* a pixel for 8 x 8, by a linear map from latents to colours, fitted to the model's autoencoder
                         by encoding a small card once. On a GPU it costs one wait a step */
    LZ_PREVIEW_FULL,  /* decoded: as large and as slow as the picture itself. The last one is the picture */
} lz_preview;

#define LZ_MAX_IMAGES 16

/* Pointers must stay valid until the call that takes the options returns. */
typedef struct lz_picture_options {
    size_t size;            /* sizeof(lz_picture_options) */
    const char *prompt;     /* UTF-8; NULL: empty */
    const char *negative;   /* what guidance leads away from; NULL: empty, for Qwen-Image a space */
    int64_t width, height;  /* 0: of the noise, else of the first image (FLUX.2: shrunk to a megapixel if it is larger;
                               Qwen-Image-Edit: a megapixel in the shape of the last one), else the model's own; cut
                               down to a multiple of the model's token (16) */
    int steps;              /* 0: the model's own */
    double guidance;        /* 0: the model's own; above 1 costs two passes; a distilled FLUX.2 ignores it */
    uint64_t seed;          /* of the noise: torch.Generator("cpu").manual_seed(seed) gives the same */
    const lz_image *images; /* references to look at */
    int n_images;
    double strength; /* above 0: the first image is where the picture starts; 1 keeps nothing of it */
    lz_array *noise; /* [1, c, h, w] f32 in place of the seed's; NULL */
    /* Called between kernels (on a GPU: after each step and stage), on the thread that makes the picture. Returning
     * false ends the picture with LZ_CANCELLED. It may call lz_ functions, except that making a picture or decoding
     * latents with the same model is refused, and that nothing in use may be closed. NULL: nobody watches. */
    bool (*watch)(void *user, const lz_progress *progress);
    void *user;
    int preview;          /* lz_preview: what watch is shown after each step; the picture stays the same */
    double preview_pause; /* seconds: a step that ends earlier than this after the last preview has none, but the last
                           * step always has one. 0: every step */
} lz_picture_options;

/* Filled by lz_generate, freed by lz_picture_free. Arrays are f32, evaluated, and retained until then. */
typedef struct lz_picture {
    lz_image image;    /* freed with the picture. To keep it longer, copy the struct and set this one to zeros */
    lz_array *text;    /* [1, t, e] what the prompt became */
    lz_array *noise;   /* [1, c, h, w] */
    lz_array *latents; /* [1, c, h, w] the last ones, normalised */
    lz_array *pixels;  /* [1, 3, height, width] in 0..1, before rounding */
    int steps;         /* that were run: strength leaves out the first ones */
    double guidance;   /* 1: none */
    bool prompt_cut;   /* the prompt had more tokens than the model reads: its end was left out */
    int64_t tile; /* above 0: memory was short, and the picture was decoded in tiles of so many pixels, faded together:
                        slightly different from decoding it whole */
    int64_t streamed_bytes; /* of weights, sent to the device in the last step because not all of them fit there */
    double text_seconds, encode_seconds, denoise_seconds, decode_seconds;
    double step_seconds[128]; /* of the first steps that were run */
    lz_context *ctx;
} lz_picture;
/* In C: lz_generate(model, &picture, &err, .prompt = "a red fox", .seed = 1). *picture need not be initialised. After a
 * failure it is zero, and lz_picture_free has nothing to do (calling it is no error). A picture that is not a number,
 * or flat, is a failure. On the CPU the features of the last few prompts are kept, so that a prompt that comes again
 * is not read again; it gives the same bits. */
lz_status lz_generate_with(lz_model *model, const lz_picture_options *options, lz_picture *picture, lz_error *err);
void lz_picture_free(lz_picture *picture);

/* ---- 7. Before a picture is made ------------------------------------------------------------------------------- */

/* Fills in what was left open, or cut to whole tokens: width, height, steps and guidance become what lz_generate would
 * take for them. */
lz_status lz_fill_options(lz_model *model, lz_picture_options *options, lz_error *err);

/* What a picture will take: the most that one stage needs at once. What the picture keeps (text, noise, latents,
 * pixels) and the cache come on top. */
typedef struct lz_stage_plan {
    const char *stage;    /* a constant, as in lz_progress */
    int64_t bytes;        /* intermediates and results at once */
    int64_t weight_bytes; /* that it reads */
    double flops;
    /* On a device with memory of its own; elsewhere 0. */
    int64_t device_bytes;   /* with the weights that stay there meanwhile */
    int64_t streamed_bytes; /* of weights that do not: sent in each run of it (a step, a prompt, a tile) */
} lz_stage_plan;
typedef struct lz_picture_plan {
    lz_stage_plan stages[4];
    int n_stages;
    int steps;                        /* that will be run */
    int64_t peak_bytes, weight_bytes; /* the most of its stages, each */
    int64_t tile; /* above 0: for lack of memory the picture will be decoded in tiles of so many pixels */
    double flops;
    int64_t device_bytes;   /* the most of its stages */
    int64_t streamed_bytes; /* by a denoising step */
} lz_picture_plan;
lz_status lz_plan_picture(lz_model *model, const lz_picture_options *options, lz_picture_plan *plan, lz_error *err);

/* ---- 8. A picture as an object --------------------------------------------------------------------------------- */

/* A job is one picture: its options are settled when it is made, it may be planned, and it is run. What planning found out
 * is used when it runs: the prompt is tokenised once, the text encoder is opened once, and each program is planned once.
 *
 *     lz_job *job = lz_job_new(model, &LZ_PICTURE_OPTIONS(.prompt = "a red fox"), &err);
 *     if (job && !lz_job_plan(job, &plan, &err) && plan.peak_bytes < enough) lz_job_run(job, &picture, &err);
 *     lz_job_free(job);
 *
 * One thread at a time plans, runs, renews or frees a job. While it does, any thread may cancel the job, look at it or wait
 * for it; these never wait for a program that is planned, compiled or run. All jobs of a model are freed before it is
 * closed. */
typedef struct lz_job lz_job;
/* The prompts are copied; images and noise stay the caller's, and valid, until lz_job_free. NULL: it failed. */
lz_job *lz_job_new(lz_model *model, const lz_picture_options *options, lz_error *err);
void lz_job_free(lz_job *job);
/* The options as they were settled (see lz_fill_options), until lz_job_free. Its prompts are the job's own copies. */
const lz_picture_options *lz_job_settled(const lz_job *job);
/* Plans on the first call, and answers the same later. */
lz_status lz_job_plan(lz_job *job, lz_picture_plan *plan, lz_error *err);
/* As lz_generate. A job is run once, and again only after lz_job_renew. */
lz_status lz_job_run(lz_job *job, lz_picture *picture, lz_error *err);
/* Makes a job that was not run yet, or whose run is over, ready to run with the seed, watch, user, preview and preview_pause
 * of these options. Everything else stays: the other options, the tokens, the plan. */
lz_status lz_job_renew(lz_job *job, const lz_picture_options *options, lz_error *err);

/* The job ends with LZ_CANCELLED: before its next kernel on the CPU, before its next step on a device. */
void lz_job_cancel(lz_job *job);
typedef enum lz_job_state { LZ_JOB_NEW, LZ_JOB_RUNNING, LZ_JOB_OVER } lz_job_state;
typedef struct lz_job_view {
    lz_job_state state;
    lz_status status;  /* of a job that is over */
    const char *stage; /* a constant, as in lz_progress; NULL: none yet */
    int step, steps;   /* as in lz_progress */
    double done;       /* of this stage or step, 0 to 1 */
    uint64_t changes;  /* how often the view changed */
} lz_job_view;
lz_job_view lz_job_look(lz_job *job);
/* Waits until the view has changed more often than this, or the job is over. */
lz_job_view lz_job_wait(lz_job *job, uint64_t changes);

/* ---- 9. What a model was trained for --------------------------------------------------------------------------- */

/* A model folder may hold a file lazuli.json, which lists the sizes, images and words that the model was trained with:
 *
 *     {"sizes": [[256, 256]], "references": false, "start_images": true, "words": "words.txt"}
 *
 * Every key is optional; published folders have no such file. words.txt lists words that the model knows, words that
 * are replaced by known ones, and words that are left out of the prompt; models/demo/words.txt is an example.
 * lz_generate makes any picture; lz_remark says in one sentence each why the result may be poor. An empty text: no
 * remark. */
typedef struct lz_remarks {
    char size[200];
    char images[200];
    char words[600];   /* words that are not known, and the nearest that are */
    char read_as[600]; /* the prompt that the model is given, if it is not the one of the options; cut if it is long */
} lz_remarks;
lz_status lz_remark(lz_model *model, const lz_picture_options *options, lz_remarks *remarks, lz_error *err);
lz_status lz_job_remark(const lz_job *job, lz_remarks *remarks, lz_error *err); /* the same, of a job's options */
const char *lz_model_words(const lz_model *model); /* the text of its list, until it is closed; NULL: it has none */

/* The tokenizer of a model folder, of its tokenizer/ alone, or a tokenizer.json. It never changes, so threads may share it. */
typedef struct lz_tokenizer lz_tokenizer;
lz_tokenizer *lz_tokenizer_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_tokenizer_free(lz_tokenizer *tokenizer);
lz_status lz_tokenize(const lz_tokenizer *tokenizer, const char *text, size_t bytes, int64_t **ids, int64_t *n,
                      lz_error *err); /* free *ids with lz_free_ids */
void lz_free_ids(lz_context *ctx, int64_t *ids);

#ifdef __cplusplus
}
#endif

/* ---- 10. Options as arguments ----------------------------------------------------------------------------------- */

/* LZ_CONTEXT_OPTIONS, LZ_MODEL_OPTIONS, LZ_PICTURE_OPTIONS and LZ_LORA are options with their size. In C the members
 * follow in the parentheses; in C++ they are set one by one:
 *
 *     auto options = LZ_PICTURE_OPTIONS();
 *     options.prompt = "a red fox";
 *     lz_status status = lz_generate_with(model, &options, &picture, &err);
 */
#ifdef __cplusplus
template <class Options> Options lz_options_of() {
    Options options = {};
    options.size = sizeof options;
    return options;
}
#define LZ_CONTEXT_OPTIONS() lz_options_of<lz_context_options>()
#define LZ_PICTURE_OPTIONS() lz_options_of<lz_picture_options>()
#define LZ_MODEL_OPTIONS() lz_options_of<lz_model_options>()
#define LZ_LORA() lz_options_of<lz_lora>()
#else
#define LZ_CONTEXT_OPTIONS(...) ((lz_context_options){.size = sizeof(lz_context_options), __VA_ARGS__})
#define LZ_PICTURE_OPTIONS(...) ((lz_picture_options){.size = sizeof(lz_picture_options), __VA_ARGS__})
#define LZ_MODEL_OPTIONS(...) ((lz_model_options){.size = sizeof(lz_model_options), __VA_ARGS__})
#define LZ_LORA(...) ((lz_lora){.size = sizeof(lz_lora), __VA_ARGS__})
#define lz_open(...) lz_open_with(&LZ_CONTEXT_OPTIONS(__VA_ARGS__), NULL)
#define lz_generate(model, picture, err, ...) lz_generate_with(model, &LZ_PICTURE_OPTIONS(__VA_ARGS__), picture, err)
#endif

#include "lazuli_array.h"
#endif
