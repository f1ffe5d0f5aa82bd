/* qwen25_processor.c: see qwen25_processor.h. */
#include "models/qwen25_processor.h"

#include <math.h>

#include "models/config.h"

enum { MOST = 1 << 26 }; /* pixels of the largest picture that is generated */

/* Fields about names, layout and return values. Images always have three channels here. */
static const char *const harmless[] = {"image_processor_type",
                                       "processor_class",
                                       "feature_extractor_type",
                                       "auto_map",
                                       "data_format",
                                       "input_data_format",
                                       "device",
                                       "disable_grouping",
                                       "return_tensors",
                                       "default_to_square",
                                       "do_convert_rgb",
                                       NULL};

/* The defaults are those of Qwen2VLImageProcessor. size is the newer name of the limits. */
static void read_limits(lz_qwen25_processor *p, lz_config *c) {
    lz_config size = lz_config_inside(c, "size");
    p->min_pixels = 56 * 56;
    p->max_pixels = 28 * 28 * 1280;
    for (int i = 0; i < 3; i++) { /* a later field overrides an earlier one */
        lz_config *from = i < 2 ? &size : c;
        p->min_pixels = lz_config_int(from, i ? "min_pixels" : "shortest_edge", p->min_pixels, 1, MOST);
        p->max_pixels = lz_config_int(from, i ? "max_pixels" : "longest_edge", p->max_pixels, 1, MOST);
    }
    lz_config_refuse_rest(&size, NULL);
    if (!c->err.status) c->err = size.err;
    if (p->min_pixels > p->max_pixels) lz_config_refuse(c, "the fewest pixels are more than the most");
}

static void read_fields(lz_qwen25_processor *p, lz_config *c) {
    static const char *const steps[] = {"do_resize", "do_rescale", "do_normalize"};
    static const char *const others[] = {"do_center_crop", "do_pad"};
    double mean[3] = {0.48145466, 0.4578275, 0.40821073}, spread[3] = {0.26862954, 0.26130258, 0.27577711};
    int n = lz_config_reals(c, "image_mean", mean, 3), k = lz_config_reals(c, "image_std", spread, 3);
    if ((n && n != 3) || (k && k != 3)) lz_config_refuse(c, "'image_mean' and 'image_std' must be three numbers");
    for (int i = 0; i < 3; i++) {
        p->mean[i] = (float)mean[i];
        p->spread[i] = (float)spread[i];
    }
    lz_config_check_divisors(c, "image_std", p->spread, 3);
    read_limits(p, c);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!lz_config_bool(c, steps[i], true)) lz_config_refuse(c, "'%s' is false, which is not supported", steps[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (lz_config_bool(c, others[i], false)) lz_config_refuse(c, "'%s' is true, which is not supported", others[i]);
    if (fabs(lz_config_real(c, "rescale_factor", 1 / 255.0) - 1 / 255.0) > 1e-9)
        lz_config_refuse(c, "'rescale_factor' must be 1/255");
    if (lz_config_int(c, "resample", 3, 0, 100) != 3) lz_config_refuse(c, "'resample' must be 3, bicubic");
    if (lz_config_int(c, "patch_size", 14, 1, 1024) != p->patch || lz_config_int(c, "merge_size", 2, 1, 64) != 2 ||
        lz_config_int(c, "temporal_patch_size", 2, 1, 64) != 2)
        lz_config_refuse(c, "'patch_size', 'merge_size' and 'temporal_patch_size' must be %d, 2 and 2", p->patch);
    lz_config_refuse_rest(c, harmless);
}

static json_t *published(int patch) {
    const double half = 0.5;
    if (patch == 14) return json_pack("{s:i, s:i}", "min_pixels", 56 * 56, "max_pixels", 12845056);
    return json_pack("{s:i, s:i, s:i, s:[f, f, f], s:[f, f, f]}", "patch_size", patch, "min_pixels", 1 << 16,
                     "max_pixels", 1 << 24, "image_mean", half, half, half, "image_std", half, half, half);
}

lz_status lz_qwen25_processor_read(lz_qwen25_processor *p, lz_context *ctx, const char *folder, int patch,
                                   lz_error *err) {
    lz_config c;
    lz_error none = {.status = LZ_OK};
    p->patch = patch;
    if (!folder) {
        lz_status made = lz_config_of(&c, ctx, "processor", published(patch), err);
        if (made) return made;
        read_fields(p, &c);
        return lz_config_end(&c, err);
    }
    lz_status status = lz_config_open(&c, ctx, folder, "processor_config.json", &none);
    if (!status) {
        lz_config inside = lz_config_inside(&c, "image_processor");
        if (inside.root) read_fields(p, &inside);
        bool found = inside.root;
        if (!c.err.status) c.err = inside.err;
        status = lz_config_end(&c, err);
        if (status || found) return status; /* older files of this name have no settings; these are in the other file */
    } else if (status != LZ_NOT_FOUND) {
        if (err) *err = none;
        return status;
    }
    status = lz_config_open(&c, ctx, folder, "preprocessor_config.json", err);
    if (status) return status;
    read_fields(p, &c);
    return lz_config_end(&c, err);
}

/* smart_resize of transformers. */
void lz_qwen25_fit(const lz_qwen25_processor *p, int64_t *width, int64_t *height) {
    const double unit = 2.0 * p->patch, w = (double)*width, h = (double)*height;
    double wide = rint(w / unit) * unit, high = rint(h / unit) * unit;
    if (wide * high > (double)p->max_pixels) {
        double beta = sqrt(h * w / (double)p->max_pixels);
        wide = fmax(unit, floor(w / beta / unit) * unit);
        high = fmax(unit, floor(h / beta / unit) * unit);
    } else if (wide * high < (double)p->min_pixels) {
        double beta = sqrt((double)p->min_pixels / (h * w));
        wide = ceil(w * beta / unit) * unit;
        high = ceil(h * beta / unit) * unit;
    }
    *width = (int64_t)fmax(unit, wide);
    *height = (int64_t)fmax(unit, high);
}
