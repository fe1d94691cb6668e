/* image.h - what other rooms may use of images: so far their size plan (vision.md 4.2, recipe.md 2.9). */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

#include <deepinfer/base.h>

#define IMG_PATCH 14       /* pixels of a patch's side */
#define IMG_DOWNSAMPLE 3   /* patches of a token's side */
#define IMG_MAX_TOKENS 1024
#define IMG_MAX_SIDE (1 << 24) /* pixels; larger sizes are refused */

/* How an image of some size is shown to the model. */
typedef struct img_plan {
    int32_t width;  /* the picture is scaled to this size, in pixels ... */
    int32_t height;
    int32_t rows;   /* ... and read as so many tokens; a row ends with one token more, and two stand around the whole */
    int32_t columns;
    int32_t tokens; /* rows * (columns + 1) + 2 */
} img_plan;

/* False for a size that can't be used: a side below 1 or above IMG_MAX_SIDE, or one that finds no stable plan. */
bool img_plan_size(int32_t width, int32_t height, img_plan *out);

#endif
