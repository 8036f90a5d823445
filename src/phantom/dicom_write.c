/* dicom_write.c - a CT volume as DICOM slices (PS3.10 file, explicit VR, little-endian,
 * uncompressed).
 *
 * A file is 128 zero bytes, "DICM", a group of file meta elements, then the data set, elements in
 * rising order of tag. An element is tag (2 x 16 bits), two letters of value representation, its
 * length, and the value padded to an even length. Values are stored with intercept -1024, as
 * scanners do.
 */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "phantom/phantom_set.h"

enum { HEAD_BYTES = 2048 /* the elements before the pixels take about 1000 */ };

struct head {
    unsigned char byte[HEAD_BYTES];
    size_t n;
};

static void put(struct head *h, uint64_t value, int bytes)
{
    CHECK(h->n + 8 < sizeof h->byte);
    for (int b = 0; b < bytes; b++)
        h->byte[h->n++] = (unsigned char)(value >> (8 * b));
}

static void put_tag(struct head *h, uint32_t tag, const char *vr)
{
    put(h, tag >> 16, 2);
    put(h, tag & 0xffff, 2);
    put(h, (uint64_t)vr[0], 1);
    put(h, (uint64_t)vr[1], 1);
}

static void put_text(struct head *h, uint32_t tag, const char *vr, const char *text)
{
    size_t n = strlen(text), even = n + n % 2;
    put_tag(h, tag, vr);
    put(h, even, 2);
    for (size_t i = 0; i < n; i++)
        put(h, (unsigned char)text[i], 1);
    if (even > n)
        put(h, strcmp(vr, "UI") ? ' ' : 0, 1);
}

static void put_short(struct head *h, uint32_t tag, unsigned value)
{
    put_tag(h, tag, "US");
    put(h, 2, 2);
    put(h, value, 2);
}

/* Numbers of at most 16 characters, separated by backslashes. */
static void put_reals(struct head *h, uint32_t tag, const double *value, int n)
{
    char text[128];
    int at = 0;
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%.4f", i ? "\\" : "", value[i]);
    put_text(h, tag, "DS", text);
}

static void put_int(struct head *h, uint32_t tag, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_text(h, tag, "IS", text);
}

/* Unique ids below the root for numbers (2.25, PS3.5 B.2): the key, and what is counted. */
static void put_uid(struct head *h, uint32_t tag, uint64_t key, int64_t number)
{
    char text[64];
    snprintf(text, sizeof text, "2.25.%llu%05lld", (unsigned long long)(key >> 1), (long long)number);
    put_text(h, tag, "UI", text);
}

enum { UID_STUDY = 90001, UID_SERIES = 90002, UID_FRAME = 90003 }; /* slices are 1..1024 */

static const char CT_STORAGE[] = "1.2.840.10008.5.1.4.1.1.2", EXPLICIT_LITTLE[] = "1.2.840.10008.1.2.1";

static void put_meta(struct head *h, uint64_t key, int64_t slice)
{
    h->n = 128;
    put(h, 0x4d434944, 4); /* DICM */
    put_tag(h, 0x00020000, "UL");
    put(h, 4, 2);
    size_t length_at = h->n;
    put(h, 0, 4);
    put_tag(h, 0x00020001, "OB");
    put(h, 0, 2);
    put(h, 2, 4);
    put(h, 0x0100, 2);
    put_text(h, 0x00020002, "UI", CT_STORAGE);
    put_uid(h, 0x00020003, key, slice);
    put_text(h, 0x00020010, "UI", EXPLICIT_LITTLE);
    put_text(h, 0x00020012, "UI", "2.25.1337");
    size_t end = h->n;
    h->n = length_at;
    put(h, end - length_at - 4, 4);
    h->n = end;
}

static void put_identity(struct head *h, const char *patient, uint64_t key, int64_t slice)
{
    put_text(h, 0x00080008, "CS", "ORIGINAL\\PRIMARY\\AXIAL");
    put_text(h, 0x00080016, "UI", CT_STORAGE);
    put_uid(h, 0x00080018, key, slice);
    put_text(h, 0x00080020, "DA", "20000101");
    put_text(h, 0x00080030, "TM", "120000");
    put_text(h, 0x00080060, "CS", "CT");
    put_text(h, 0x00080070, "LO", "falx phantom");
    put_text(h, 0x00100010, "PN", patient);
    put_text(h, 0x00100020, "LO", patient);
}

/* Position and directions in DICOM's LPS: x and y are those of RAS, negated. */
static void put_space(struct head *h, const struct volume *v, uint64_t key, int64_t slice)
{
    const struct geometry *g = &v->geometry;
    double position[3], direction[6], pixel[2] = {g->spacing_mm[1], g->spacing_mm[0]};
    for (int a = 0; a < 3; a++) {
        double sign = a < 2 ? -1 : 1;
        position[a] = sign * (g->affine[a][3] + g->affine[a][2] * (double)(slice - 1));
        direction[a] = sign * g->affine[a][0] / g->spacing_mm[0];
        direction[a + 3] = sign * g->affine[a][1] / g->spacing_mm[1];
    }
    put_reals(h, 0x00180050, &g->spacing_mm[2], 1);
    put_text(h, 0x00185100, "CS", "HFS");
    put_uid(h, 0x0020000d, key, UID_STUDY);
    put_uid(h, 0x0020000e, key, UID_SERIES);
    put_text(h, 0x00200010, "SH", "1");
    put_int(h, 0x00200011, 1);
    put_int(h, 0x00200013, slice);
    put_reals(h, 0x00200032, position, 3);
    put_reals(h, 0x00200037, direction, 6);
    put_uid(h, 0x00200052, key, UID_FRAME);
    put_short(h, 0x00280002, 1);
    put_text(h, 0x00280004, "CS", "MONOCHROME2");
    put_short(h, 0x00280010, (unsigned)v->dims[1]);
    put_short(h, 0x00280011, (unsigned)v->dims[0]);
    put_reals(h, 0x00280030, pixel, 2);
}

static void put_pixel_form(struct head *h, size_t pixel_bytes)
{
    put_short(h, 0x00280100, 16);
    put_short(h, 0x00280101, 16);
    put_short(h, 0x00280102, 15);
    put_short(h, 0x00280103, 1); /* signed */
    put_text(h, 0x00281052, "DS", "-1024");
    put_text(h, 0x00281053, "DS", "1");
    put_tag(h, 0x7fe00010, "OW");
    put(h, 0, 2);
    put(h, pixel_bytes, 4);
}

static int write_slice(const struct volume *v, const char *path, const char *patient, uint64_t key,
                       int64_t slice, struct error *e)
{
    int64_t n = v->dims[0] * v->dims[1];
    size_t bytes = (size_t)n * 2;
    struct head h = {.n = 0};
    put_meta(&h, key, slice);
    put_identity(&h, patient, key, slice);
    put_space(&h, v, key, slice);
    put_pixel_form(&h, bytes);
    unsigned char *file = mem_alloc(e, h.n + bytes, 1);
    if (!file)
        return -1;
    memcpy(file, h.byte, h.n);
    const int16_t *hu = (const int16_t *)v->data + (slice - 1) * n;
    for (int64_t i = 0; i < n; i++) {
        int stored = hu[i] + 1024;
        file[h.n + 2 * (size_t)i] = (unsigned char)(stored & 255);
        file[h.n + 2 * (size_t)i + 1] = (unsigned char)(stored >> 8 & 255);
    }
    int rc = io_write_all(path, 0666, file, h.n + bytes, e);
    mem_free(file);
    return rc;
}

int dicom_write_series(const struct volume *v, const char *folder, const char *patient, uint64_t key,
                       struct error *e)
{
    for (int64_t slice = 1; slice <= v->dims[2]; slice++) {
        char *path = mem_format(e, "%s/1-%03lld.dcm", folder, (long long)slice);
        int rc = path ? write_slice(v, path, patient, key, slice, e) : -1;
        mem_free(path);
        if (rc < 0)
            return -1;
    }
    return 0;
}
