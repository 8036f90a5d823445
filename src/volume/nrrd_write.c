/* nrrd_write.c - writes volumes as NRRD and masks as segmentations of 3D Slicer.
 *
 * The patient's axes of NRRD files are LPS by custom, so the first two rows of the RAS affine
 * change their sign: exact, and every number is printed with 17 digits, so reading gives back the
 * same bits. A volume of unknown orientation is written without the name of a space. Axes past the
 * third are channels ("list", direction "none"). Headers carry geometry alone, no free text.
 */
#include "volume/nrrd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "volume/header_text.h"

/* A header without segments: 12 numbers of 24 digits, 7 axes of 20, and words. */
enum { PLAIN_HEADER_MAX = 2048 };

/* Header text under construction; `bytes` stops below cap. */
struct header_out {
    char *text;
    size_t bytes, cap;
};

PRINTF(2, 3) static void put(struct header_out *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t room = t->cap - t->bytes;
    int n = vsnprintf(t->text + t->bytes, room, fmt, args);
    va_end(args);
    t->bytes = n < 0 || (size_t)n >= room ? t->cap - 1 : t->bytes + (size_t)n;
}

/* Column c of the affine in the space that is written. */
static void put_column(struct header_out *t, const struct geometry *g, int c)
{
    double sign = g->known ? -1.0 : 1.0;
    char x[32], y[32], z[32];
    put(t, " (%s,%s,%s)", text_real(x, sign * g->affine[0][c]), text_real(y, sign * g->affine[1][c]),
        text_real(z, g->affine[2][c]));
}

/* Everything but the blank line. */
static void put_header(struct header_out *t, const struct volume *v, int gzip)
{
    int n_axes = v->n_dims < 3 ? 3 : v->n_dims;
    put(t, "NRRD0004\ntype: %s\ndimension: %d\n",
        v->dtype == DTYPE_F32   ? "float"
        : v->dtype == DTYPE_F64 ? "double"
                                : dtype_name(v->dtype),
        n_axes);
    put(t, v->geometry.known ? "space: left-posterior-superior\nsizes:" : "space dimension: 3\nsizes:");
    for (int a = 0; a < n_axes; a++)
        put(t, " %lld", (long long)v->dims[a]);
    put(t, "\nspace directions:");
    for (int a = 0; a < 3; a++)
        put_column(t, &v->geometry, a);
    for (int a = 3; a < n_axes; a++)
        put(t, " none");
    put(t, "\nkinds: domain domain domain");
    for (int a = 3; a < n_axes; a++)
        put(t, " list");
    if (dtype_bytes(v->dtype) > 1)
        put(t, "\nendian: little");
    put(t, "\nencoding: %s\nspace origin:", gzip ? "gzip" : "raw");
    put_column(t, &v->geometry, 3);
    put(t, "\n");
}

int nrrd_header(char **out, const struct volume *v, int gzip, struct error *e)
{
    CHECK(v->slope == 1.0 && v->inter == 0.0);
    struct header_out t = {mem_alloc(e, PLAIN_HEADER_MAX, 1), 0, PLAIN_HEADER_MAX};
    *out = t.text;
    if (!t.text)
        return -1;
    put_header(&t, v, gzip);
    put(&t, "\n");
    return 0;
}

/* ---- voxels ---------------------------------------------------------------------------------- */

/* The values of scaled voxels: float where 24 bits hold the stored numbers, else double. */
static int scaled_values(struct volume *out, const struct volume *v, struct error *e)
{
    int64_t n = volume_voxels(v) * volume_channels(v);
    *out = *v;
    out->dtype = dtype_bytes(v->dtype) <= 2 || v->dtype == DTYPE_F32 ? DTYPE_F32 : DTYPE_F64;
    out->slope = 1.0;
    out->inter = 0.0;
    out->data = mem_alloc(e, (size_t)n, dtype_bytes(out->dtype));
    if (!out->data)
        return -1;
    double block[4096];
    for (int64_t at = 0; at < n; at += 4096) {
        int64_t count = n - at < 4096 ? n - at : 4096;
        volume_block(block, v, at, count);
        for (int64_t i = 0; i < count; i++)
            if (out->dtype == DTYPE_F32)
                ((float *)out->data)[at + i] = (float)block[i];
            else
                ((double *)out->data)[at + i] = block[i];
    }
    return 0;
}

static int write_voxels(const struct volume *v, const char *path, struct error *e)
{
    struct volume scaled = {0};
    char *header = NULL;
    int is_scaled = v->slope != 1.0 || v->inter != 0.0, result = -1;
    if ((is_scaled && scaled_values(&scaled, v, e) < 0) ||
        nrrd_header(&header, is_scaled ? &scaled : v, 1, e) < 0)
        fail_in(e, path);
    else
        result = volume_write_file(is_scaled ? &scaled : v, path, header, strlen(header), 1, e);
    mem_free(header);
    mem_free(scaled.data);
    return result;
}

/* ---- segmentations --------------------------------------------------------------------------- */

/* Smallest box that holds a class; lo > hi: the class is absent. */
struct extent {
    int64_t lo[3], hi[3];
};

static void find_extents(struct extent *box, const label_t *label, const int64_t dims[3], label_t highest)
{
    for (int c = 0; c <= highest; c++)
        for (int a = 0; a < 3; a++) {
            box[c].lo[a] = INT64_MAX;
            box[c].hi[a] = -1;
        }
    int64_t at[3];
    for (at[2] = 0; at[2] < dims[2]; at[2]++)
        for (at[1] = 0; at[1] < dims[1]; at[1]++)
            for (at[0] = 0; at[0] < dims[0]; at[0]++) {
                struct extent *b = &box[*label++];
                for (int a = 0; a < 3; a++) {
                    b->lo[a] = at[a] < b->lo[a] ? at[a] : b->lo[a];
                    b->hi[a] = at[a] > b->hi[a] ? at[a] : b->hi[a];
                }
            }
}

/* One segment for each class present. Colours run around the circle of hues by the golden angle, so
 * that neighbours differ; the numbers have two digits, as colours need no more. */
static void put_segments(struct header_out *t, const struct extent *box, label_t highest)
{
    put(t, "Segmentation_MasterRepresentation:=Binary labelmap\n"
           "Segmentation_ContainedRepresentationNames:=Binary labelmap|\n"
           "Segmentation_ReferenceImageExtentOffset:=0 0 0\n");
    for (int c = 1, n = 0; c <= highest; c++) {
        if (box[c].hi[0] < 0)
            continue;
        int hue = n * 137 % 360, ramp = hue % 120 * 100 / 120; /* degrees; percent within a third */
        int rgb[3] = {0, 0, 0};
        rgb[hue / 120] = 100 - ramp;
        rgb[(hue / 120 + 1) % 3] = ramp;
        put(t, "Segment%d_ID:=Segment_%d\nSegment%d_Name:=class %d\n", n, c, n, c);
        put(t, "Segment%d_Color:=%d.%02d %d.%02d %d.%02d\n", n, rgb[0] / 100, rgb[0] % 100, rgb[1] / 100,
            rgb[1] % 100, rgb[2] / 100, rgb[2] % 100);
        put(t, "Segment%d_LabelValue:=%d\nSegment%d_Layer:=0\nSegment%d_Extent:=", n, c, n, n);
        for (int a = 0; a < 3; a++)
            put(t, "%lld %lld%c", (long long)box[c].lo[a], (long long)box[c].hi[a], a < 2 ? ' ' : '\n');
        n++;
    }
}

/* Labels as bytes where they fit, in place: byte i never lies behind label i. */
static enum dtype pack_labels(label_t *label, int64_t n, label_t highest)
{
    unsigned char *bytes = (unsigned char *)label;
    if (highest > UINT8_MAX)
        return DTYPE_U16;
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)label[i];
    return DTYPE_U8;
}

/* The labels, their boxes and the header that tells of both. The caller frees all three. */
static int describe_segments(struct volume *mask, struct extent **box, struct header_out *header,
                             const struct volume *v, struct error *e)
{
    label_t *label, highest;
    if (volume_channels(v) != 1)
        return fail(e, ERR_DATA, "N31", "%lld channels, a segmentation has one",
                    (long long)volume_channels(v));
    if (volume_labels(&label, &highest, v, e) < 0)
        return -1;
    mask->data = label;
    if (!(*box = mem_alloc(e, (size_t)highest + 1, sizeof **box)) ||
        !(header->text = mem_alloc(e, header->cap, 1)))
        return -1;
    find_extents(*box, label, v->dims, highest);
    mask->n_dims = 3;
    mask->dtype = pack_labels(label, volume_voxels(v), highest);
    put_header(header, mask, 1);
    put_segments(header, *box, highest);
    put(header, "\n");
    if (header->bytes == header->cap - 1)
        return fail(e, ERR_DATA, NULL, "too many classes for the header of a segmentation (%d bytes)",
                    HEADER_MAX_BYTES);
    return 0;
}

static int write_segments(const struct volume *v, const char *path, struct error *e)
{
    struct volume mask = *v;
    struct extent *box = NULL;
    struct header_out header = {NULL, 0, HEADER_MAX_BYTES}; /* what readers take */
    mask.data = NULL;
    int result = describe_segments(&mask, &box, &header, v, e);
    if (result < 0)
        fail_in(e, path);
    else
        result = volume_write_file(&mask, path, header.text, header.bytes, 1, e);
    mem_free(mask.data);
    mem_free(box);
    mem_free(header.text);
    return result;
}

int nrrd_write(const struct volume *v, const char *path, struct error *e)
{
    double inverse[3][4];
    if (affine_invert(inverse, v->geometry.affine) < 0) { /* no reader would take it */
        fail(e, ERR_DATA, "R11", "NRRD cannot tell spacing or directions that are singular or not finite");
        return fail_in(e, path);
    }
    return text_ends_with_nocase(path, ".seg.nrrd") ? write_segments(v, path, e) : write_voxels(v, path, e);
}
