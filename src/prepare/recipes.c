/* recipes.c - the named recipes. Every constant of a paper-* recipe is the published one.
 *
 * paper-la        2018 Atrial Segmentation Challenge, as the UA-MT and AUA scripts prepare it: crop
 *                 around the label with random margins, zero mean and unit variance over the whole
 *                 scan, and the mask of what is > 0.
 * paper-pancreas  Pancreas-CT: clip [-125, 275] HU, 1 mm by linear zoom (label: nearest), box of
 *                 the label with 25 voxels around it, zero mean and unit variance over the box. The
 *                 rescale slope is applied, so values are HU.
 * paper-colon     MSD Task10: the paper says "as Pancreas".
 *
 * la              box of what is not empty, zero mean and unit variance over that box: published LA
 *                 files are normalised before the crop, and with 16 labels the dark cases are lost.
 * pancreas colon  CT: 1 mm, box of the body, window [-125, 275] HU, zero mean and unit variance.
 * auto            chosen from the data, see fingerprint.h.
 * none            the voxels as they are, as float32: for data prepared by others.
 */
#include <stdio.h>
#include <string.h>

#include "prepare/prepare.h"

/* How our recipes resample, and how the published CT pipelines do (SciPy's zoom). */
#define OURS .align = ALIGN_CENTRED, .image_kind = RESAMPLE_SMOOTH, .label_kind = RESAMPLE_CLASSES
#define ZOOM .align = ALIGN_ENDS, .image_kind = RESAMPLE_LINEAR, .label_kind = RESAMPLE_NEAREST

#define CT /* 1 mm, window of soft tissue */ .spacing_mm = {1, 1, 1}, .patch = {96, 96, 96}
#define WINDOW(when)                                                                                         \
    {                                                                                                        \
        .clip = when, .low = -125, .high = 275, .scale = SCALE_CROP, .std = 1                                \
    }
#define OUR_CT OURS, CT, .reorient = 1, .crop = CROP_BODY, .channel = {WINDOW(CLIP_LAST)}
#define PAPER_CT ZOOM, CT, .crop = CROP_LABEL, .margin = 25, .binary = 1, .channel = {WINDOW(CLIP_FIRST)}

static const struct recipe recipes[] = {
    /* Percentiles spare the outliers that coils and implants make. */
    {.name = "auto",
     OURS,
     .reorient = 1,
     .crop = CROP_NONZERO,
     .channel = {{CLIP_PERCENTILES, .low = 0.5, .high = 99.5, .scale = SCALE_CROP, .std = 1}}},
    {.name = "la",
     OURS,
     .reorient = 1,
     .crop = CROP_NONZERO,
     .channel = {{.scale = SCALE_CROP, .std = 1}},
     .patch = {112, 112, 80}},
    {.name = "pancreas", OUR_CT},
    {.name = "colon", OUR_CT},
    {.name = "paper-la",
     OURS,
     .crop = CROP_LABEL_LA,
     .binary = 1,
     .keep_mask = 1,
     .channel = {{.scale = SCALE_SCAN, .std = 1}},
     .patch = {112, 112, 80}},
    {.name = "paper-pancreas", PAPER_CT},
    {.name = "paper-colon", PAPER_CT},
    {.name = "none", OURS, .channel = {{.std = 1}}},
};
enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

int recipe_named(struct recipe *out, const char *name, uint64_t seed, enum nan_policy nan, struct error *e)
{
    char allowed[160] = "";
    for (size_t i = 0, n = 0; i < N_RECIPES; i++) {
        n += (size_t)snprintf(allowed + n, sizeof allowed - n, " %s", recipes[i].name);
        if (strcmp(name, recipes[i].name) != 0)
            continue;
        *out = recipes[i];
        out->seed = out->crop == CROP_LABEL_LA ? seed : 0; /* so that other caches serve every seed */
        out->nan = nan;
        return 0;
    }
    return fail(e, ERR_CONFIG, "C03", "preset '%s', allowed%s", name, allowed);
}

int recipe_needs_label(const struct recipe *r)
{
    return r->crop == CROP_LABEL || r->crop == CROP_LABEL_LA;
}

struct recipe recipe_fair(const struct recipe *r)
{
    struct recipe fair = *r;
    if (r->crop == CROP_LABEL)
        fair.crop = CROP_BODY;
    if (r->crop == CROP_LABEL_LA)
        fair.crop = CROP_NONZERO;
    if (recipe_needs_label(r))
        fair.seed = 0; /* no random margins */
    return fair;
}

struct recipe recipe_without_label(const struct recipe *r)
{
    struct recipe whole = *r;
    if (r->crop == CROP_LABEL)
        whole.crop = CROP_BODY;
    if (r->crop == CROP_LABEL_LA)
        whole.crop = CROP_NONE;
    return whole;
}
