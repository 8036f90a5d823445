/* recipes.c - the named recipes. Every constant of a paper-* recipe is the published one.
 *
 * paper-la        2018 Atrial Segmentation Challenge, as the UA-MT and AUA scripts prepare it: crop
 *                 around the label with random margins, zero mean and unit variance over the whole
 *                 scan, and the mask of what is > 0.
 * paper-pancreas  Pancreas-CT: clip [-125, 275] HU, 1 mm by linear zoom (label: nearest), box of
 * the label with 25 voxels around it, zero mean and unit variance over the box. The rescale slope
 * is applied, so values are HU. paper-colon     MSD Task10: the paper says "as Pancreas".
 *
 * la              box of what is not empty, zero mean and unit variance over that box: published LA
 *                 files are normalised before the crop, and with 16 labels the dark cases are lost.
 * pancreas colon  CT: 1 mm, box of the body, window [-125, 275] HU, zero mean and unit variance.
 * auto            chosen from the data, see fingerprint.h.
 * none            the voxels as they are, as float32: for data prepared by others.
 */
#include <string.h>

#include "prepare/prepare.h"

static const struct recipe_channel as_is = {.clip = CLIP_NONE, .scale = SCALE_NONE, .std = 1.0};
static const struct recipe_channel soft_tissue = {/* the window of the published CT pipelines */
                                                  .clip = CLIP_LAST,
                                                  .low = -125.0,
                                                  .high = 275.0,
                                                  .scale = SCALE_CROP,
                                                  .std = 1.0};

static void set_paper_ct(struct recipe *r)
{
    r->spacing_mm[0] = r->spacing_mm[1] = r->spacing_mm[2] = 1.0;
    r->align = ALIGN_ENDS;
    r->image_kind = RESAMPLE_LINEAR;
    r->label_kind = RESAMPLE_NEAREST;
    r->crop = CROP_LABEL;
    r->margin = 25;
    r->binary = 1;
    r->channel[0] = soft_tissue;
    r->channel[0].clip = CLIP_FIRST;
    r->patch[0] = r->patch[1] = r->patch[2] = 96;
}

static void set_paper_la(struct recipe *r)
{
    r->crop = CROP_LABEL_LA;
    r->binary = 1;
    r->keep_mask = 1;
    r->channel[0].scale = SCALE_SCAN;
    r->patch[0] = r->patch[1] = 112;
    r->patch[2] = 80;
}

static void set_la(struct recipe *r)
{
    r->reorient = 1;
    r->crop = CROP_NONZERO;
    r->channel[0].scale = SCALE_CROP;
    r->patch[0] = r->patch[1] = 112;
    r->patch[2] = 80;
}

static void set_ct(struct recipe *r)
{
    r->reorient = 1;
    r->spacing_mm[0] = r->spacing_mm[1] = r->spacing_mm[2] = 1.0;
    r->crop = CROP_BODY;
    r->channel[0] = soft_tissue;
    r->patch[0] = r->patch[1] = r->patch[2] = 96;
}

/* What recipe_choose() starts from. */
static void set_auto(struct recipe *r)
{
    r->reorient = 1;
    r->crop = CROP_NONZERO;
    r->channel[0].clip = CLIP_PERCENTILES;
    r->channel[0].low = 0.5; /* percent: spares the outliers that coils and implants make */
    r->channel[0].high = 99.5;
    r->channel[0].scale = SCALE_CROP;
}

static void set_none(struct recipe *r)
{
    (void)r;
}

static const char *const names[] = {
    "auto", "la", "pancreas", "colon", "paper-la", "paper-pancreas", "paper-colon", "none", NULL};
static void (*const setters[])(struct recipe *r) = {
    set_auto, set_la, set_ct, set_ct, set_paper_la, set_paper_ct, set_paper_ct, set_none};

const char *const *recipe_names(void)
{
    return names;
}

int recipe_named(struct recipe *out, const char *name, uint64_t seed, enum nan_policy nan,
                 struct error *e)
{
    for (int i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *out = (struct recipe){.seed = seed,
                               .nan = nan,
                               .align = ALIGN_CENTRED,
                               .image_kind = RESAMPLE_SMOOTH,
                               .label_kind = RESAMPLE_CLASSES,
                               .channel = {as_is}};
        memcpy(out->name, name, strlen(name) + 1);
        setters[i](out);
        return 0;
    }
    return fail(e, ERR_CONFIG, "C03",
                "preset '%s', allowed auto, la, pancreas, colon, paper-la, "
                "paper-pancreas, paper-colon, none",
                name);
}

int recipe_needs_label(const struct recipe *r)
{
    return r->crop == CROP_LABEL || r->crop == CROP_LABEL_LA;
}
