/* align.c - Pancreas-CT: DICOM scans, and labels as NIfTI files with axes of their own.
 *
 * The published scripts read a scan as [row, column, slice] and exchange axes 0 and 1 of the label,
 * so the label file counts [column, row, slice]. A NIfTI made from the DICOM series counts [column,
 * row from below, slice], perhaps with the slices the other way round. Of the 16 ways to exchange
 * and reverse,
 *   - the one whose voxels lie where the image's lie is taken, if the label's header knows it;
 *   - else the one that puts most label voxels on soft tissue. The pancreas is an organ of 30 to
 *     150 HU between fat, gas and bone: turned the wrong way a label meets many of those.
 */
#include "data/align.h"

#include <math.h>
#include <string.h>

#include "volume/resample.h"

struct way { /* output axis a is input axis axis[a], reversed if flip[a] */
    int axis[3], flip[3];
};

/* Way 0 is what the scripts and the converter imply; it wins ties. */
static struct way way_number(int n)
{
    int swap = n >> 3 & 1;
    return (struct way){{swap, !swap, 2}, {n & 1, !(n >> 1 & 1), n >> 2 & 1}};
}
enum { WAYS = 16 };

static const float tissue_low = 0, tissue_high = 200; /* HU: enhanced organs, blood and muscle */

static int fits(const struct way *w, const struct volume *label, const struct volume *image)
{
    for (int a = 0; a < 3; a++)
        if (label->dims[w->axis[a]] != image->dims[a])
            return 0;
    return 1;
}

/* The way that puts the voxels in their place, to half a voxel; -1 if there is none. */
static int by_position(const struct volume *label, const struct volume *image)
{
    const double *s = image->geometry.spacing_mm;
    double nearest = fmin(s[0], fmin(s[1], s[2])) / 2;
    int best = -1;
    for (int n = 0; n < WAYS && label->geometry.known && image->geometry.known; n++) {
        struct way w = way_number(n);
        struct geometry g;
        if (!fits(&w, label, image))
            continue;
        geometry_permute(&g, label, w.axis, w.flip);
        double apart = geometry_distance_mm(&g, &image->geometry, image->dims);
        if (apart < nearest) {
            nearest = apart;
            best = n;
        }
    }
    return best;
}

/* How many label voxels lie on tissue if turned this way. */
static int64_t on_tissue(const struct way *w, const struct volume *label, const struct volume *image)
{
    const label_t *classes = label->data;
    int64_t step[3] = {1, image->dims[0], image->dims[0] * image->dims[1]};
    int64_t go[3] = {0}, start = 0, count = 0, at = 0;
    for (int a = 0; a < 3; a++) { /* one step along the label's axis moves so far in the image */
        go[w->axis[a]] = w->flip[a] ? -step[a] : step[a];
        start += w->flip[a] ? step[a] * (image->dims[a] - 1) : 0;
    }
    for (int64_t k = 0; k < label->dims[2]; k++)
        for (int64_t j = 0; j < label->dims[1]; j++)
            for (int64_t i = 0; i < label->dims[0]; i++, at++) {
                if (!classes[at])
                    continue;
                double v = volume_value(image, start + i * go[0] + j * go[1] + k * go[2]);
                count += v >= (double)tissue_low && v <= (double)tissue_high;
            }
    return count;
}

static int by_values(const struct volume *label, const struct volume *image)
{
    int best = -1;
    int64_t most = -1;
    for (int n = 0; n < WAYS; n++) {
        struct way w = way_number(n);
        if (!fits(&w, label, image))
            continue;
        int64_t count = on_tissue(&w, label, image);
        if (count > most) {
            most = count;
            best = n;
        }
    }
    return best;
}

int align_label(struct volume *label, const struct volume *image, struct error *e)
{
    int n = by_position(label, image);
    if (n < 0)
        n = by_values(label, image);
    if (n < 0)
        return fail(e, ERR_DATA, "L02", "%lldx%lldx%lld voxels, the image has %lldx%lldx%lld",
                    (long long)label->dims[0], (long long)label->dims[1], (long long)label->dims[2],
                    (long long)image->dims[0], (long long)image->dims[1], (long long)image->dims[2]);
    struct way w = way_number(n);
    struct volume moved;
    if (volume_permute(&moved, label, w.axis, w.flip, e) < 0)
        return -1;
    volume_free(label);
    *label = moved;
    label->geometry = image->geometry;
    return 0;
}
