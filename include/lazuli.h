/* lazuli.h: pictures from text. This header is the manual, in order of need. docs/embedding.md says how to build.
 *
 *     lz_error err;
 *     lz_context *ctx = lz_open(.error = &err);                      // NULL if it failed; err.text says why
 *     lz_model *model = lz_model_open(ctx, "models/demo", &err);     // NULL if it failed
 *     lz_picture picture;
 *     if (lz_generate(model, &picture, &err, .prompt = "a red fox", .seed = 1) == LZ_OK) {
 *         lz_image_write(ctx, "fox.png", &picture.image, NULL, &err);
 *         lz_picture_free(&picture);
 *     }
 *     lz_model_close(model);
 *     lz_close(ctx);
 *
 * The models run on a runtime of lazy arrays, which lazuli_array.h declares. This header includes lazuli_array.h at its
 * end. A program that only makes pictures needs nothing of it.
 *
 * Rules that hold for all functions:
 *
 *   Globals    There are none. Every object belongs to a context, and contexts are independent of each other. The
 *              library reads no environment variable, prints nothing, and never ends the program.
 *   Threads    Functions may be called from any thread, and for one context from several threads at once. The exception
 *              is a function that ends an object (close, free, end). While it runs and after it, no other thread may
 *              use that object. Structs that the caller owns (options, pictures, images, errors) are not locked.
 *   Ownership  The caller ends an object that it opened or made, with the function declared beside it. A context is
 *              closed last, after its models, pictures, images, tokenizers, weights, streams, compiled functions, texts
 *              and retained arrays. Arguments are read during the call only, unless their comment says otherwise.
 *   NULL       A function that needs an argument fails with LZ_BAD_ARGUMENT if the argument is NULL. Functions that
 *              close, free, release, end, start, stop or wait do nothing with NULL. Functions that only return facts
 *              (lz_model_about, lz_memory_info, lz_shape, ...) return zeros for NULL. Invalid values are errors too.
 *              The library cannot check a pointer that is not NULL: it must point to a living object of its type, as
 *              large as the sizes given with it.
 *   Errors     A function that can fail returns an lz_status, or a pointer that is NULL if it failed, and fills an
 *              lz_error. After a failure there is nothing to free.
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

/* The version of this header. Before 1.0 a new MINOR may change anything in it (CHANGELOG.md lists the changes). The
 * name of the shared library contains MINOR (liblazuli.so.0.2), so a program never runs with a library that it was not
 * built for. A new PATCH keeps working with programs that were built before it: option structs may get members at their
 * end, enums may get values, and structs that the library fills or returns keep their size. From 1.0 on, MAJOR takes
 * the role of MINOR, and MINOR that of PATCH. */
#define LZ_VERSION "0.2.0"
#define LZ_VERSION_MAJOR 0
#define LZ_VERSION_MINOR 2
#define LZ_VERSION_PATCH 0
#define LZ_VERSION_NUMBER (LZ_VERSION_MAJOR * 10000 + LZ_VERSION_MINOR * 100 + LZ_VERSION_PATCH)

/* The version of the library that is running. */
const char *lz_version(void);
int lz_version_number(void); /* as LZ_VERSION_NUMBER */

/* ---- 2. Errors ------------------------------------------------------------------------------------------------ */

typedef enum lz_status {
    LZ_OK = 0,
    LZ_BAD_ARGUMENT,  /* an invalid number, name or pointer */
    LZ_BAD_SHAPE,     /* sizes that do not fit together */
    LZ_BAD_TYPE,      /* an element type the op does not take */
    LZ_BAD_INDEX,     /* take or gather met an index outside its axis */
    LZ_OUT_OF_MEMORY, /* the system, or the limit of the context, has no memory left */
    LZ_BAD_FILE,      /* a file whose contents are wrong */
    LZ_IO,            /* a file that cannot be read or written */
    LZ_NOT_FOUND,     /* no such tensor, device or file */
    LZ_CANCELLED,     /* watch returned false */
    LZ_DEVICE_FAILED, /* the GPU or its driver failed; the text contains the driver's message */
    LZ_STATUS_COUNT
} lz_status;

const char *lz_status_name(lz_status status); /* such as "bad shape" */

/* A function that fails fills it. A function that succeeds leaves it unchanged. Functions accept NULL for it. */
typedef struct lz_error {
    lz_status status;
    char text[600]; /* one sentence that says what failed, where, and what to do */
} lz_error;

/* Makes text from outside safe to print on a terminal. Control characters (C0, DEL, C1), marks that change the
 * direction of writing, and bytes that are not UTF-8 become '?', in place. Returns text. */
char *lz_printable(char *text);

/* ---- 3. Contexts ---------------------------------------------------------------------------------------------- */

/* A context holds a device, its threads and its memory. All objects below are made in a context. */
typedef struct lz_context lz_context;

/* Types of numbers. A program that makes pictures needs LZ_F32, LZ_BF16 and LZ_FASTEST, for `compute` below. */
typedef enum lz_dtype {
    LZ_BOOL,
    LZ_U8,
    LZ_I8,
    LZ_I32,
    LZ_I64,
    LZ_F8, /* e4m3fn, for storage. It can be cast, moved, and given to matmul and linear; other arithmetic refuses it */
    LZ_F16,
    LZ_BF16,
    LZ_F32,
    LZ_F64, /* exact and slow. Computed by the reference kernels on the host, also in a context of a GPU */
    LZ_DTYPE_COUNT
} lz_dtype;
#define LZ_FASTEST (-1) /* bf16 if the device or processor multiplies bf16 faster than f32, else f32 */

/* The source of host memory. allocate returns memory aligned to 64 bytes, or NULL. Both functions are required, may be
 * called from any thread, and are used until the context is closed. */
typedef struct lz_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory, size_t bytes);
    void *user;
} lz_allocator;

/* What to do if the weights of a program do not fit into a GPU's memory together with everything else. A picture made
 * with streamed weights may differ in roundings from a picture made with all weights in GPU memory; two runs with the
 * same setting are equal. */
typedef enum lz_offload {
    LZ_OFFLOAD_AUTO,   /* as many weights as fit stay on the GPU; the others are streamed: sent again in every run */
    LZ_OFFLOAD_NONE,   /* fail with LZ_OUT_OF_MEMORY */
    LZ_OFFLOAD_STREAM, /* stream all weights, even if they would fit; takes the least memory */
} lz_offload;

/* Levels of log messages. */
typedef enum lz_log_level {
    LZ_LOG_NOTE,   /* for users: work is done in another way than asked, such as decoding in tiles if memory is short */
    LZ_LOG_DETAIL, /* for developers: choices, refusals and compilations of a GPU */
    LZ_LOG_REMARK, /* for users: something about the files of a model; each remark is made once in a context */
} lz_log_level;

/* Every option struct begins with its size, so that later versions can add members. The macros of section 10 fill in
 * the size, and a size of 0 is refused. Members that are not set are zero, which means the default. Pointers are read
 * during lz_open_with only. */
typedef struct lz_context_options {
    size_t size;                   /* sizeof(lz_context_options) */
    const char *device;            /* "cpu" (default), "cuda", "cuda:N", or "ref" (the slow, simple reference) */
    int threads;                   /* 0 means one per core that this process may use. Results never depend on it. */
    int64_t memory_limit;          /* bytes of array data, on a GPU of its memory; 0 means no limit */
    int64_t cache_limit;           /* freed bytes kept for reuse; 0 means 64 MiB, a negative number none */
    bool no_fusion;                /* run every op as its own kernel; in f32 the results are the same, bit for bit */
    const char *isa;               /* such as "baseline" or "avx2" (`lazuli devices`); NULL means the fastest */
    const lz_allocator *allocator; /* NULL means the C library's */
    /* The type of models: LZ_F32, LZ_BF16, LZ_FASTEST; 0 means f32, on a GPU bf16. LZ_I8: the products of layers with
     * weights of 8-bit integers are products of 8-bit integers, and all else is as with LZ_FASTEST. LZ_F8: the same with
     * e4m3, for NVIDIA GPUs of compute capability 8.9 or newer. A model with other weights is quantised when it
     * is opened, into cache_folder. Pictures change slightly. */
    int compute;
    int offload;     /* an lz_offload; has an effect only on devices with memory of their own */
    lz_error *error; /* filled if the context cannot be opened; lz_open_with uses its own err first */
    /* Receives log messages until lz_close returns. It is called on any thread, but by one thread at a time, and must
     * not call lz_ functions of this context. text is one line, valid during the call. NULL means no messages. */
    void (*log)(void *user, lz_log_level level, const char *text);
    void *log_user;
    /* Results of long work are kept here for later processes; NULL keeps none. On GPUs: kernels, which are compiled and
     * measured at their first use. With LZ_I8 or LZ_F8: quantised weights, up to 64 GiB of each. The command line uses
     * ~/.cache/lazuli. */
    const char *cache_folder;
    const char *cuda_path; /* folders with NVIDIA's libraries, separated by colons; empty or NULL: the usual ones */
    const char *cuda_gemm; /* kernels of products: "library", "own", "any" or "single"; NULL: the fastest, measured */
    const char *cuda_sdpa; /* kernels of attention: "library" or "own"; NULL: the fastest, measured */
    bool no_cudnn;         /* do not use cuDNN, even if it is installed */
    /* Called while the weights of a file are quantised (LZ_I8, LZ_F8), with the share that is done, on the thread that opens
     * the model or makes the picture. If it returns false, that function fails with LZ_CANCELLED, and no file is left. */
    bool (*quantising)(void *user, double done);
    void *quantising_user;
} lz_context_options;

/* In C, call lz_open(.device = "cuda", .error = &err) or lz_open_with(&LZ_CONTEXT_OPTIONS(.device = "cuda"), &err).
 * Both return NULL if they fail. If options is NULL, all options have their defaults. The default device is the CPU,
 * because a library should not use a GPU that the program did not name. The command line uses a GPU for large models if
 * there is one. */
lz_context *lz_open_with(const lz_context_options *options, lz_error *err);
/* Ends open scopes, and frees the arrays that belong to the context. All other objects of the context must have been
 * ended before; for example, lz_model_close comes before lz_close. */
void lz_close(lz_context *ctx);

const char *lz_precision_name(const lz_context *ctx); /* "f32", "bf16", "int8" or "fp8"; see compute */
const char *lz_device_name(const lz_context *ctx);    /* such as "cpu (avx512), 2 threads"; valid until lz_close */

/* A device of this machine. The CPU is listed first, then every GPU. "ref" is not listed. */
typedef struct lz_device_info {
    char device[32];   /* for lz_context_options.device: "cpu", "cuda:0" */
    char name[128];    /* such as "cpu (avx512)" or "NVIDIA H200" */
    int64_t memory;    /* bytes in total; 0 if unknown */
    char problem[256]; /* why no context can be opened there; empty if one can */
} lz_device_info;
/* Fills up to n entries, and returns the number of devices, or -1 if it failed. devices may be NULL if n is 0. Only isa
 * and cuda_path of the options are used; options may be NULL. No context is opened. */
int lz_find_devices(const lz_context_options *options, lz_device_info *devices, int n, lz_error *err);

/* Frees text or bytes that a function returned, if its comment says that the caller frees them. */
void lz_free_text(lz_context *ctx, char *text);

/* Memory of a context. In a context of a GPU this is the GPU's memory, otherwise the host's. */
typedef struct lz_memory {
    int64_t active;      /* bytes in arrays and arenas */
    int64_t cached;      /* bytes that were freed and are kept for reuse */
    int64_t peak;        /* the largest active + cached so far */
    int64_t limit;       /* 0 if there is none */
    int64_t allocations; /* calls of the allocator so far, for arrays or anything else */
    int64_t nodes;       /* arrays described so far */
    int64_t streamed;    /* bytes of streamed weights that were sent to the device so far */
} lz_memory;
lz_memory lz_memory_info(lz_context *ctx);
void lz_set_memory_limit(lz_context *ctx, int64_t bytes);
void lz_reset_peak(lz_context *ctx);
void lz_clear_cache(lz_context *ctx);

/* ---- 4. Images ------------------------------------------------------------------------------------------------ */

/* Pixels are stored row by row from the top, without gaps, with 8 bits for each channel. An image that a function fills
 * is freed with lz_image_free. If the caller fills an image, the caller owns its pixels. */
typedef struct lz_image {
    int64_t width, height;
    uint8_t *pixels;
    int channels; /* 3: red, green, blue. 4: also opacity, 255 is opaque; the colours are not multiplied by it. 0 means 3,
                     and other numbers are refused */
} lz_image;
/* Reads a PNG, JPEG or WebP file, recognised by its content. The image has 3 channels: transparent pixels are blended
 * with white. 16 bits are rounded to 8, CMYK becomes RGB, and the orientation that a camera recorded is applied. Colour
 * profiles and gamma are ignored. */
lz_status lz_image_read(lz_context *ctx, const char *path, lz_image *image, lz_error *err);
/* The same for a file in memory, which is not needed after the call. */
lz_status lz_image_decode(lz_context *ctx, const void *data, int64_t bytes, lz_image *image, lz_error *err);
/* The same with opacity: the image has 4 channels, unless all pixels of the file are opaque. */
lz_status lz_image_read_alpha(lz_context *ctx, const char *path, lz_image *image, lz_error *err);
lz_status lz_image_decode_alpha(lz_context *ctx, const void *data, int64_t bytes, lz_image *image, lz_error *err);
/* The same for a mask (section 6). If some pixels of the file are transparent, its transparency is the mask: transparent
 * pixels become white, which is repainted, and opaque ones black. */
lz_status lz_image_read_mask(lz_context *ctx, const char *path, lz_image *image, lz_error *err);
lz_status lz_image_decode_mask(lz_context *ctx, const void *data, int64_t bytes, lz_image *image, lz_error *err);
/* Writes a file in the format of its ending: .png, .jpg, .jpeg (quality 95, 4:4:4) or .webp (quality 95). The file
 * appears whole or not at all, with the same bytes every time. If it replaces a file, it keeps that file's permissions,
 * and a link stays a link. A PNG or WebP of an image with 4 channels has transparency; for a JPEG, the pixels are
 * blended with white. text is NULL, or a list of key, value, ..., ended by NULL. A PNG keeps it in tEXt and iTXt,
 * a JPEG in comments, a WebP in XMP, where control characters other than tab and line ends become U+FFFD. */
lz_status lz_image_write(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                         lz_error *err);
/* Returns the bytes of such a file. kind is an ending such as ".png". quality is 1 to 100, for JPEG and WebP; 0 means 95.
 * Free the bytes with lz_free_text. NULL if it failed. */
char *lz_image_encode(lz_context *ctx, const char *kind, const lz_image *image, const char *const *text, int quality,
                      int64_t *bytes, lz_error *err);
void lz_image_free(lz_context *ctx, lz_image *image);
/* Returns the text that a file holds under this key, in UTF-8. The text was written by lz_image_write or by other
 * programs (tEXt, zTXt, iTXt). Pixels are not decoded. Free the text with lz_free_text. NULL if it failed, with
 * LZ_NOT_FOUND if there is no such text. */
char *lz_image_read_text(lz_context *ctx, const char *path, const char *key, lz_error *err);
char *lz_image_decode_text(lz_context *ctx, const void *data, int64_t bytes, const char *key, lz_error *err);

/* ---- 5. Models ------------------------------------------------------------------------------------------------ */

/* A model, opened from a folder in the diffusers layout, as it is published: model_index.json, scheduler, tokenizer,
 * text_encoder, transformer, vae. The families are FLUX.2 [klein], Qwen-Image, Qwen-Image 2.1 and Z-Image. Lightning
 * models of Qwen-Image, and Z-Image-Turbo, are recognised by their schedule. Edit models of Qwen-Image look at images,
 * and their folder has a processor/ too. Qwen-Image-Layered takes an image apart. Qwen-Image 2.1 has its tokenizer in
 * processor/. A field of a configuration that is not implemented is refused by name. model_index.json may set defaults,
 * under the names of the arguments in diffusers: num_inference_steps, width, height. Published folders set none. Then
 * the defaults are the family's number of steps and 1024 x 1024.
 *
 * Weights are mapped, not read. If a weight file is changed later, the next picture fails with LZ_IO. If a file becomes
 * shorter while a picture is made, the process gets SIGBUS, as with all mapped files; a program may install a handler.
 *
 * lz_model_open takes a folder, and does not search for one. The demo model is installed as share/lazuli/models/demo
 * below the prefix; `pkg-config --variable=demo lazuli` prints its folder. `lazuli pull` puts models into the cache of
 * the Hugging Face tools, and `lazuli models` prints their folders.
 *
 * FLUX.3 [klein] is another family. Its folders have a modular_model_index.json. It keeps a single reference image
 * whole: if neither width nor height is set, the picture has the size of that image, up to 4 megapixels, although the
 * settled options have a size in whole tokens. */
typedef struct lz_model lz_model;
/* Several threads may use one model. Their pictures are made at the same time, interleaved step by step. */
lz_model *lz_model_open(lz_context *ctx, const char *folder, lz_error *err);

/* A model from single files, as ComfyUI, stable-diffusion.cpp and llama.cpp use them: safetensors or GGUF, with the
 * tensor names of any of these programs. Lazuli recognises a file by its tensors, never by its name. Sizes are those of
 * the tensors; settings that the tensors do not show are those of the published model. If model is a folder, the given
 * parts replace those of the folder. */
typedef struct lz_model_options {
    size_t size;       /* sizeof(lz_model_options) */
    const char *model; /* a model folder, or a file of the transformer, which may contain other parts too */
    /* Files or folders; NULL means the part of model. A tokenizer is a folder, a tokenizer.json, or a GGUF file of the
     * text encoder; it is also found beside the text encoder or the transformer. vision is the image part of a text
     * encoder in GGUF; it is also found beside the text encoder, by "mmproj" in its name. */
    const char *text_encoder, *vision, *vae, *tokenizer;
    /* Which variant of its family a single file is. FLUX.2 [klein], Z-Image and Qwen-Image 2.1: "base" or "distilled"
     * (Turbo). FLUX.2 [klein] also: "kv", which computes references once (FLUX.2-klein-9b-kv). Qwen-Image: "text",
     * "edit", "edit-plus" (2509, 2511) or "distilled" (Lightning); tensors tell whether it is Layered. NULL takes it from
     * base, turbo, edit, 2509, 2511 and lightning in the file's name, and from kv as a whole word of it. Of a diffusers
     * folder, model_index.json says it; of a folder of Z-Image its schedule does, unless a variant is given. */
    const char *variant;
} lz_model_options;
lz_model *lz_model_open_with(lz_context *ctx, const lz_model_options *options, lz_error *err);
void lz_model_close(lz_model *model); /* after all pictures of the model have ended */

/* What a weight file or folder is, recognised by its tensors. */
typedef struct lz_file_facts {
    char what[200]; /* "a FLUX.2 [klein] 4B transformer"; "a LoRA"; "no model that is known here" */
    char needs
        [400]; /* parts that lz_model_open_with needs besides a transformer: "a text encoder (--text-encoder), ..." */
    char refused[300];                                      /* why no model can be made of it; or "" */
    bool transformer, text_encoder, vision, vae, tokenizer; /* that it holds */
    bool lora;                                              /* it is a LoRA, for lz_model_set_loras */
} lz_file_facts;
lz_status lz_file_about(lz_context *ctx, const char *path, lz_file_facts *facts, lz_error *err);

/* The pipelines that lz_model_open supports, by their "_class_name" in model_index.json ("Flux2KleinPipeline"), for
 * i = 0, 1, ...; NULL after the last. */
const char *lz_pipeline_name(int i);

typedef struct lz_model_facts {
    const char *family;            /* "FLUX.2 [klein]", "Qwen-Image", "Qwen-Image 2.1", "Z-Image" */
    bool distilled;                /* few steps, no guidance by default */
    bool guidance_built_in;        /* distilled, and the guidance of the options is ignored */
    int64_t width, height;         /* the default size */
    int steps;                     /* the default number */
    double guidance;               /* the default; 1 means no guidance */
    int64_t token_pixels;          /* width and height of a picture are multiples of this */
    int64_t channels;              /* of the latents */
    int least_images, most_images; /* how many reference images it takes, not counting a start image */
    bool keeps_image;              /* a single reference image, without a requested size, gives the picture its size */
    bool references_once;          /* reference images are computed once, before the steps (FLUX.2-klein-9b-kv) */
    bool transparent;              /* its pictures may be transparent, and it sees the opacity of images */
    bool references, start_images; /* it was trained to look at reference images, and to start from an image */
    bool masks;                    /* it can repaint a part of an image */
    int layers;                    /* above 0: it takes an image apart into layers, by default so many */
    char version[32];              /* of the weights, from lazuli.json in its folder; "": it names none */
    int n_sizes;                   /* how many sizes it was trained for, by lazuli.json; 0: any */
    const int64_t (*sizes)[2];     /* width, height. Images get the nearest. Valid until lz_model_close */
} lz_model_facts;
lz_model_facts lz_model_about(const lz_model *model); /* the texts are constants */

/* A LoRA is a file with small changes of some weights of a model: LoRA, LoHa, LoKr, DoRA and whole differences, for the
 * transformer or the text encoder, with the tensor names of any trainer. The weights of the model are not changed; the
 * change is computed beside them. */
typedef struct lz_lora {
    size_t size;      /* sizeof(lz_lora) */
    const char *path; /* a safetensors file */
    double weight;    /* how much of the change is added; 1 is as it was trained, 0 adds nothing */
    bool partial;     /* ignore modules that the model does not have; otherwise they are an error */
    bool ordinary;    /* keep the steps, guidance and schedule of the model, even if the LoRA is for few steps */
} lz_lora;
/* Replaces all LoRAs of the model, for the next pictures; n = 0 removes them. No picture or plan of the model may be
 * under way, and jobs that were made before are refused. The model and its text encoder are not opened again. After a
 * failure the LoRAs are as before. A file is refused if none of its modules belongs to the model, or if its shapes do
 * not fit. */
lz_status lz_model_set_loras(lz_model *model, const lz_lora *loras, int n, lz_error *err);

/* How the model uses a LoRA. */
typedef struct lz_lora_facts {
    const char *path;    /* owned by the library, valid until the LoRAs change */
    double weight;       /* as given */
    int modules, used;   /* number of modules in the file, and of those that the model has */
    int in_text;         /* of the used modules, number in the text encoder */
    int given_twice;     /* fused matrices that the file also has in parts; the parts are used */
    char unused[3][128]; /* names of modules that the model does not have */
    int64_t rank;        /* the largest; 0 if no module has a rank */
    int steps;           /* above 0 if the LoRA is for so many steps without guidance; they are then the defaults */
    double shift;        /* of the schedule of such a LoRA; otherwise 0 */
} lz_lora_facts;
/* Fills up to n entries, and returns the number of LoRAs of the model. facts may be NULL if n is 0. */
int lz_model_loras(const lz_model *model, lz_lora_facts *facts, int n);

/* ---- 6. Making a picture -------------------------------------------------------------------------------------- */

typedef struct lz_array lz_array; /* an array of numbers; see lazuli_array.h */

/* The argument of watch. A picture goes through the stages "text", "encode" (only with images), "denoise" and "decode",
 * in this order. "text" and "encode" may come several times, once for each prompt or image, and "decode" once for each
 * tile.
 *
 * The progress of the whole picture follows from lz_plan_picture, which gives the operations (flops) of each stage. It
 * is (flops of the stages before + s * flops of this stage) / flops of all stages, with s = (step + done) / steps in
 * "denoise" and s = done in the other stages. */
typedef struct lz_progress {
    const char *stage;
    int step;    /* in "denoise" the pass through the model, from 0; in "text" 1 for the negative prompt; otherwise 0 */
    int steps;   /* passes of this picture, in every stage: one a step, or two with heun and res_2s */
    double done; /* the share of this stage or step that is done, 0 to 1 */
    const lz_image *preview; /* an estimate of the finished picture, after each step if the options ask for it; else
                                NULL. Owned by the library, valid during the call */
} lz_progress;

typedef enum lz_preview {
    LZ_PREVIEW_NONE,
    LZ_PREVIEW_SMALL, /* one pixel for 8 x 8, by a linear map from latents to colours. The map is fitted once to the
                         model's autoencoder, by encoding a small test image. On a GPU each step waits once */
    LZ_PREVIEW_FULL,  /* decoded, as large and as slow as the picture itself. The last preview is the picture */
} lz_preview;

#define LZ_MAX_IMAGES 16

/* Pixels that are added at the sides of an image. */
typedef struct lz_sides {
    int64_t left, top, right, bottom;
} lz_sides;

/* Repainting a part of the first image (inpainting), and painting around it (outpainting): the options mask and extend
 * below, together or alone. FLUX.2 [klein], Qwen-Image with its Edit models, and Z-Image do this; other models refuse a
 * mask. The picture starts from the first image, and strength 0 means the default of the family, as in diffusers: 0.8
 * for FLUX.2, 0.6 for Qwen-Image, 1 for Z-Image; with extend 1. After every step, what is not repainted is replaced by
 * the first image with the noise of that step. A model that looks at images also gets the first image as a reference,
 * unless it was not trained to (section 9).
 *
 * If neither width nor height nor noise is set, the picture has the size of the first image (with extend, of the
 * larger one), although the settled options have the size that is painted, in whole tokens. Outside of the mask it has
 * the pixels of the first image. */
/* Pointers must stay valid until the function that gets the options returns. */
typedef struct lz_picture_options {
    size_t size;            /* sizeof(lz_picture_options) */
    const char *prompt;     /* UTF-8; NULL means empty */
    const char *negative;   /* the negative prompt, used with guidance; NULL means empty, for Qwen-Image a space */
    int64_t width, height;  /* 0 means the size of the noise, else of the first image, else the model's default. Of a
                               larger image FLUX.2 takes a megapixel in its shape; Qwen-Image-Edit and 2.1 always take
                               a megapixel in the shape of the last image; a model with n_sizes the nearest of its
                               sizes. Cut down to a multiple of token_pixels (16; of Qwen-Image 2.1 32) */
    int steps;              /* 0 means the model's default; Turbo of Qwen-Image 2.1 always takes its own 8.
                               The schedules beta and beta57 may make fewer of many */
    double guidance;        /* 0 means the model's default; above 1 takes two passes; a distilled FLUX.2 ignores it */
    uint64_t seed;          /* of the noise, which is that of torch.Generator("cpu").manual_seed(seed) */
    const lz_image *images; /* reference images; with 4 channels they are blended with white if the model sees no
                               opacity */
    int n_images;
    double strength; /* above 0, the picture starts from the first image; 1 keeps nothing of that image */
    lz_array *noise; /* [1, c, h, w] f32, used instead of the noise of the seed; or NULL. With n layers it is
                        [n + 1, c, h, w] */
    /* Called between kernels (on a GPU after each step and stage), on the thread that makes the picture. If it returns
     * false, the picture ends with LZ_CANCELLED. It may call lz_ functions, with two exceptions: making a picture or
     * decoding latents with the same model is refused, and objects in use must not be closed. NULL is allowed. */
    bool (*watch)(void *user, const lz_progress *progress);
    void *user;
    int preview;          /* an lz_preview, which watch gets after each step; does not change the picture */
    double preview_pause; /* least seconds between two previews. Steps that end earlier have none, except the last step.
                           * 0 means a preview after every step */
    const char *sampler;  /* a name of lz_sampler_name; NULL means the model's, which is euler for published models */
    const char *schedule; /* a name of lz_schedule_name; NULL means "auto", the model's own */
    double shift; /* of the schedule, above 0; it replaces the model's, which may depend on the size. 0 means the
                             model's */
    /* Use the settings that are recommended for few passes (docs/quality.md): of steps, sampler and schedule, those
     * that are not set here. In the settled options it is false if nothing changed: the model's own are recommended. */
    bool fast;
    const lz_image *mask; /* where it is white (a grey level of 128 or more), the first image is repainted. A mask of
                               another size is stretched, if its shape is nearly that of the image. lz_image_read_mask
                               reads one; NULL means none */
    lz_sides extend;      /* the first image is made larger at these sides, and the new area painted. A side may become
                               larger than asked, so that the size is a whole number of tokens */
    bool crop_to_mask;    /* paint only the part of the image around the mask, enlarged to the size of the picture */
    int64_t crop_padding; /* pixels around the mask that belong to this part */
    bool change_outside;  /* do not paste the first image over the picture outside of the mask. The picture is then as
                               the autoencoder makes it, of the settled size. Has no effect with crop_to_mask */
    int64_t feather;      /* pixels inside the edge of the mask over which the picture fades into the first image; 0
                               means 4, with extend the width of the strip of the image that is repainted (up to two
                               tokens); a negative number means none */
    /* Skipping work, which changes the picture. Passes that are skipped follow from these options and the number of
     * passes alone, and no step waits for a decision. docs/quality.md has measurements. */
    double cache; /* share of the passes, 0 to 0.8, whose velocities are forecast from those of earlier passes instead
                      of being computed. The first and the last are always computed. 0 means none, LZ_CACHE_AUTO a share
                      that grows with the number of passes */
    double guidance_from, guidance_to; /* guidance only in steps k of n with from <= k / n < to; in the others the
                                          negative prompt is not computed. Both 0 means in all */
    int guidance_every; /* the negative prompt is computed in one of so many computed passes; in the others its
                           difference from the prompt is forecast. 0 and 1 mean in all */
    int background;     /* an lz_background */
    /* The next two options are for Qwen-Image-Layered, which takes one image apart. Its prompt describes the whole image,
     * and the layers have the shape of the image. Other models refuse both options. */
    int layers;     /* number of layers, up to LZ_MAX_LAYERS; 0 means the model's default, which is 4 */
    int resolution; /* layers have the area of a square of this side: 640 or 1024; 0 means 640 */
} lz_picture_options;
#define LZ_MAX_LAYERS 64
#define LZ_CACHE_AUTO (-1.0)
typedef enum lz_background {
    LZ_BACKGROUND_AUTO,        /* as the model makes it: 4 channels if a pixel is not opaque, else 3 */
    LZ_BACKGROUND_OPAQUE,      /* 3 channels: a picture with transparency is blended with white */
    LZ_BACKGROUND_TRANSPARENT, /* as auto, and refused by a model that makes no transparency (lz_model_facts) */
} lz_background;

/* Names of samplers and schedules, for i = 0, 1, ...; NULL after the last. heun and res_2s evaluate the model twice in
 * each step but the last; euler_a and lcm add noise, which is drawn with the seed after the noise of the picture. */
const char *lz_sampler_name(int i);
const char *lz_schedule_name(int i);

/* lz_generate fills it, and lz_picture_free frees it. The arrays are f32 and evaluated, and are retained until then. */
typedef struct lz_picture {
    lz_image image;    /* freed with the picture. To keep it longer, copy the struct and set this one to zeros. Of a
                          picture of layers, all layers, each on top of the one before */
    lz_array *text;    /* [1, t, e] features of the prompt */
    lz_array *noise;   /* [1, c, h, w]; with n layers [n + 1, c, h, w], of which the first is the whole picture */
    lz_array *latents; /* the same shape, after the last step, normalised */
    lz_array *pixels;  /* [1, 3, height, width] in 0..1, before rounding, and before the first image is pasted;
                          [1, 4, height, width] of a model with transparency, whatever the background; with n layers
                          [n, 4, height, width] */
    lz_image *layers;  /* n_layers images of 4 channels, or 3 with an opaque background, the lowest first; freed with
                          the picture. NULL: no layers */
    int n_layers;
    int steps;                         /* number of steps that were run; strength skips the first ones */
    int passes, forecast, evaluations; /* as in lz_picture_plan */
    double guidance;                   /* 1 means no guidance */
    bool prompt_cut;                   /* the prompt had more tokens than the model reads, so its end was ignored */
    int64_t tile; /* above 0 if memory was short: the picture was decoded in overlapping tiles of this many pixels,
                          and differs slightly from one that is decoded whole */
    int64_t streamed_bytes; /* of weights that were streamed in the last step */
    double text_seconds, encode_seconds, denoise_seconds, decode_seconds;
    double step_seconds[128]; /* of the first 128 passes that were run */
    lz_context *ctx;
} lz_picture;
/* In C, call lz_generate(model, &picture, &err, .prompt = "a red fox", .seed = 1). *picture need not be initialised.
 * After a failure it is zero, so lz_picture_free is not needed, and is allowed. A picture with NaN, of one flat
 * colour, or without a visible pixel, is a failure. On the CPU the features of the last few prompts are kept. A repeated
 * prompt skips the text encoder, and gives the same bits. */
lz_status lz_generate_with(lz_model *model, const lz_picture_options *options, lz_picture *picture, lz_error *err);
void lz_picture_free(lz_picture *picture);

/* ---- 7. Before a picture is made ------------------------------------------------------------------------------- */

/* Sets width, height, steps, guidance, sampler, schedule and cache to the values that lz_generate would use, and fast to
 * whether it had an effect. */
lz_status lz_fill_options(lz_model *model, lz_picture_options *options, lz_error *err);

/* The memory and work of one stage of a picture. The memory of the finished picture (text, noise, latents, pixels) and
 * the cache are not included. */
typedef struct lz_stage_plan {
    const char *stage;    /* a constant, as in lz_progress */
    int64_t bytes;        /* the most that intermediates and results take at once */
    int64_t weight_bytes; /* of the weights that it reads */
    double flops;
    /* For a device with memory of its own; otherwise 0. */
    int64_t device_bytes;   /* bytes, and the weights that stay on the device meanwhile */
    int64_t streamed_bytes; /* of weights that are streamed in each run of the stage (a step, a prompt, a tile) */
} lz_stage_plan;
typedef struct lz_picture_plan {
    lz_stage_plan stages[4];
    int n_stages;
    int steps;                        /* number of steps that will be run */
    int passes;                       /* through the model in these steps: one a step, or two with heun and res_2s */
    int forecast;                     /* passes that are forecast, not computed */
    int evaluations;                  /* of the model in the other passes: one for each prompt that is computed */
    int64_t peak_bytes, weight_bytes; /* the largest bytes and the largest weight_bytes of its stages */
    int64_t tile;                     /* above 0 if memory is short: the picture will be decoded in tiles so large */
    double flops;                     /* of all stages */
    int64_t device_bytes;             /* the largest of its stages */
    int64_t streamed_bytes;           /* of a denoising step */
} lz_picture_plan;
lz_status lz_plan_picture(lz_model *model, const lz_picture_options *options, lz_picture_plan *plan, lz_error *err);

/* ---- 8. A picture as an object --------------------------------------------------------------------------------- */

/* A job is one picture. lz_job_new settles its options, lz_job_plan plans it (optional), and lz_job_run runs it. The
 * run uses the results of planning: the prompt is tokenised once, the text encoder is opened once, and each program is
 * planned once.
 *
 *     lz_job *job = lz_job_new(model, &LZ_PICTURE_OPTIONS(.prompt = "a red fox"), &err);
 *     if (job && !lz_job_plan(job, &plan, &err) && plan.peak_bytes < enough) lz_job_run(job, &picture, &err);
 *     lz_job_free(job);
 *
 * One thread at a time plans, runs, renews or frees a job. While it does, any thread may cancel the job, look at it or
 * wait for it; these calls never wait while a program is planned, compiled or run. All jobs of a model are freed before
 * it is closed. */
typedef struct lz_job lz_job;
/* The prompts are copied. The caller owns images, mask and noise, and keeps them valid until lz_job_free. NULL if it
 * failed. */
lz_job *lz_job_new(lz_model *model, const lz_picture_options *options, lz_error *err);
void lz_job_free(lz_job *job);
/* The settled options (see lz_fill_options), valid until lz_job_free. The prompts are the job's copies. */
const lz_picture_options *lz_job_settled(const lz_job *job);
/* Says that the job will run after it is planned (optional). lz_job_plan then begins to send weights to a device, and to
 * prepare kernels, while it plans the rest. */
void lz_job_expect(lz_job *job);
/* Plans on the first call, and returns the same plan later. */
lz_status lz_job_plan(lz_job *job, lz_picture_plan *plan, lz_error *err);
/* As lz_generate. A job is run once, and again after lz_job_renew. */
lz_status lz_job_run(lz_job *job, lz_picture *picture, lz_error *err);
/* Runs n jobs of one model, at most LZ_MAX_TOGETHER, on this thread. Jobs whose pictures have the same size, schedule,
 * sampler, sizes of images and length of the prompts share each pass through the model; the others run one after
 * another. On the CPU in f32 a picture has the same bytes as by lz_job_run; in bf16 too, unless the picture or a
 * prompt has at most 8 tokens, and on a GPU, values differ within the rounding of the kernels. A job that is cancelled ends the others no sooner. If memory does not suffice, the pictures are made one
 * by one. pictures and errors are arrays of n; errors may be NULL. Each job has a result of its own, as of lz_job_run;
 * errors[i].status is LZ_OK if it succeeded. Times of a shared pass are divided by its number of pictures. Returns the
 * status of the first job that failed. */
#define LZ_MAX_TOGETHER 16
lz_status lz_jobs_run(lz_job *const *jobs, int n, lz_picture *pictures, lz_error *errors);
/* Would lz_jobs_run run both in the same passes? Neither job is running. Their prompts are tokenised, if they were not. */
bool lz_jobs_alike(lz_job *a, lz_job *b);
/* Prepares a job that is not running for another run, with the seed, watch, user, preview and preview_pause of these
 * options. The other options, the tokens and the plan stay. */
lz_status lz_job_renew(lz_job *job, const lz_picture_options *options, lz_error *err);

/* Ends the job with LZ_CANCELLED, before its next kernel on the CPU, or before its next step on a device. */
void lz_job_cancel(lz_job *job);
typedef enum lz_job_state { LZ_JOB_NEW, LZ_JOB_RUNNING, LZ_JOB_OVER } lz_job_state;
typedef struct lz_job_view {
    lz_job_state state;
    lz_status status;  /* of a job that is over */
    const char *stage; /* a constant, as in lz_progress; NULL before the first stage */
    int step, steps;   /* as in lz_progress */
    double done;       /* the share of this stage or step that is done, 0 to 1 */
    uint64_t changes;  /* number of changes of the view so far */
} lz_job_view;
lz_job_view lz_job_look(lz_job *job);
/* Waits until the view has more than `changes` changes, or the job is over. */
lz_job_view lz_job_wait(lz_job *job, uint64_t changes);

/* ---- 9. What a model was trained for --------------------------------------------------------------------------- */

/* A model folder may contain a file lazuli.json, which lists the sizes, images and words that the model was trained
 * with:
 *
 *     {"version": "2", "sizes": [[256, 256]], "references": false, "start_images": true, "words": "words.txt",
 *      "things": 2}
 *
 * Every key is optional, and published folders have no such file. "references" may also be the number of images that it
 * can look at, and "things" is how many things of the list a picture may show. The version tells apart weights of the
 * same name. words.txt lists words that the model knows, words that are replaced by known ones, and words that are left
 * out of the prompt; models/demo/words.txt is an example.
 * lz_generate makes a picture even if the model was not trained for it. lz_remark fills one sentence for each reason
 * why the result may be poor. An empty text means that there is no remark. */
typedef struct lz_remarks {
    char size[200];
    char images[200]; /* more images than it was trained for; a prompt that changes a picture, without one */
    char prompt[200]; /* shorter than the captions of the training, or more things than it was trained for */
    char words[600]; /* unknown words of the prompt, and the nearest known ones; that it names no thing that is known */
    char read_as[600]; /* the prompt that the model gets, if it differs from that of the options in more than upper and
                          lower case (a model with a list of words gets lower case); cut if it is long */
} lz_remarks;
lz_status lz_remark(lz_model *model, const lz_picture_options *options, lz_remarks *remarks, lz_error *err);
lz_status lz_job_remark(const lz_job *job, lz_remarks *remarks, lz_error *err); /* the same for the options of a job */
const char *lz_model_words(const lz_model *model); /* the text of its list, valid until lz_model_close; or NULL */

/* The tokenizer of a model folder, of its tokenizer/ folder, or a tokenizer.json. It never changes, so threads may
 * share it. */
typedef struct lz_tokenizer lz_tokenizer;
lz_tokenizer *lz_tokenizer_open(lz_context *ctx, const char *folder, lz_error *err);
/* The tokenizer of a model from files (lz_model_open_with), or of a GGUF file that contains one. */
lz_tokenizer *lz_tokenizer_open_with(lz_context *ctx, const lz_model_options *options, lz_error *err);
void lz_tokenizer_free(lz_tokenizer *tokenizer);
lz_status lz_tokenize(const lz_tokenizer *tokenizer, const char *text, size_t bytes, int64_t **ids, int64_t *n,
                      lz_error *err); /* free *ids with lz_free_ids */
void lz_free_ids(lz_context *ctx, int64_t *ids);

#ifdef __cplusplus
}
#endif

/* ---- 10. Options as arguments ----------------------------------------------------------------------------------- */

/* LZ_CONTEXT_OPTIONS, LZ_MODEL_OPTIONS, LZ_PICTURE_OPTIONS and LZ_LORA make options with their size set. In C the
 * members stand in the parentheses; in C++ they are set one by one:
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
