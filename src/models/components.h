/* components.h: declares the components that names.h describes, for files that only pass pointers to them. */
#ifndef LZ_COMPONENTS_H
#define LZ_COMPONENTS_H

typedef struct lz_component lz_component;
typedef struct lz_names lz_names;

extern const lz_component lz_names_flux2, lz_names_flux3, lz_names_qwen_image, lz_names_z_image, lz_names_qwen3,
    lz_names_qwen25, lz_names_qwen25_vision, lz_names_flux2_vae, lz_names_flux1_vae, lz_names_qwen_vae,
    lz_names_qwen_image21, lz_names_qwen3_vision, lz_names_qwen21_vae;

#endif
