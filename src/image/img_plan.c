/* img_plan.c - size plan of an image: from its pixels to the grid of tokens that the model sees (vision.md 4.2, recipe.md 2.9).
 *
 * Doubles and their roundings are part of the format: the expressions stand in the order in which they are evaluated. The grid
 * never has more than IMG_MAX_TOKENS tokens: small pictures are scaled up to IMG_MIN_PIXELS, sides are rounded up to whole patches,
 * and what is then too large is scaled down from its unrounded sides. */
#include "image/image.h"

#include <math.h>

#define IMG_MIN_PIXELS 295936 /* 544 * 544 */
#define CELL (IMG_PATCH * IMG_DOWNSAMPLE)
#define MAX_INNER (IMG_MAX_TOKENS - 2) /* tokens of the grid without the two around it */

static int32_t up_to_patches(double side)
{
    return (int32_t)ceil(side / IMG_PATCH) * IMG_PATCH;
}

static int32_t cells(int32_t side)
{
    return (side / IMG_PATCH + IMG_DOWNSAMPLE - 1) / IMG_DOWNSAMPLE;
}

static int64_t count(int32_t width, int32_t height)
{
    return (int64_t)cells(height) * (cells(width) + 1) + 2;
}

/* The largest grid that keeps the proportions of width x height; very long pictures get a single row or column. */
static void shrink(double width, double height, int32_t *planned_width, int32_t *planned_height)
{
    const double ratio = height / width;
    const double columns = sqrt(MAX_INNER / ratio + 0.25) - 0.5;
    const double rows = columns * ratio;
    if (columns < 1.0) {
        *planned_height = MAX_INNER / 2 * CELL;
        *planned_width = CELL;
    } else if (rows < 1.0) {
        *planned_height = CELL;
        *planned_width = (MAX_INNER - 1) * CELL;
    } else {
        const double scale = fmin(floor(columns) * CELL / width, floor(rows) * CELL / height);
        *planned_height = (int32_t)floor(height * scale / IMG_PATCH) * IMG_PATCH;
        *planned_width = (int32_t)floor(width * scale / IMG_PATCH) * IMG_PATCH;
    }
}

bool img_plan_size(int32_t width, int32_t height, img_plan *out)
{
    if (width < 1 || height < 1 || width > IMG_MAX_SIDE || height > IMG_MAX_SIDE) {
        return false;
    }
    double w = width;
    double h = height;
    if (w * h < IMG_MIN_PIXELS) {
        const double scale = sqrt(IMG_MIN_PIXELS / (w * h));
        w = trunc(w * scale);
        h = trunc(h * scale);
    }
    int32_t planned_width = up_to_patches(w);
    int32_t planned_height = up_to_patches(h);
    if (count(planned_width, planned_height) > IMG_MAX_TOKENS) {
        shrink(w, h, &planned_width, &planned_height);
    }
    const int64_t tokens = count(planned_width, planned_height);
    if (planned_width < IMG_PATCH || planned_height < IMG_PATCH || tokens > IMG_MAX_TOKENS) {
        return false;
    }
    *out = (img_plan){
        .width = planned_width,
        .height = planned_height,
        .rows = cells(planned_height),
        .columns = cells(planned_width),
        .tokens = (int32_t)tokens,
    };
    return true;
}
