/* dicom_series.c - from a folder of files to one stack of slices that can be trusted; see dicom.h.
 *
 * A slice's place is its ImagePositionPatient p; u and v are the directions of its rows and
 * columns, n = u x v the normal of the stack. Slices are sorted by p.n; the steps between them must
 * be equal, and p must move along n only (otherwise the gantry was tilted and the voxel grid is
 * sheared).
 */
#include "volume/dicom.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

enum {
    MAX_LEVELS = 3,    /* folders below the given one: archives store patient / study / series */
    MAX_FILES = 20000, /* of one series; the largest CT series have about 3,000 */
    MAX_OTHER = 10000  /* files beside them that are not DICOM: this is no scan's folder */
};
static const double COSINE_TOLERANCE = 1e-3;   /* of directions: strings of about 6 digits */
static const double SPACING_TOLERANCE = 1e-3;  /* relative, between slices of a series */
static const double STEP_TOLERANCE = 0.1;      /* relative: positions are often rounded to 0.1 mm */
static const double SHEAR_TOLERANCE = 0.02;    /* sideways per mm along the normal: about 1 degree */
static const double PLACE_TOLERANCE_MM = 0.05; /* two places closer than this are the same */

/* ---- collecting ------------------------------------------------------------------------------ */

void dicom_series_free(struct dicom_series *d)
{
    for (int i = 0; i < d->n; i++)
        mem_free(d->slice[i].path);
    mem_free(d->slice);
    memset(d, 0, sizeof *d);
}

static int add_slice(struct dicom_series *d, const char *path, const struct dicom_header *h, struct error *e)
{
    if (d->n >= MAX_FILES)
        return fail(e, ERR_DATA, "D07", "more than %d image files", MAX_FILES);
    if (d->n == d->room) {
        int room = d->room ? 2 * d->room : 64;
        void *p = mem_resize(e, d->slice, (size_t)room, sizeof *d->slice);
        if (!p)
            return -1;
        d->slice = p;
        d->room = room;
    }
    struct dicom_slice s = {mem_string(e, path), *h, 0};
    if (!s.path)
        return -1;
    d->slice[d->n++] = s;
    return 0;
}

/* A DICOM file without an image (directory, report, plan) is none of ours; nor is a mask. */
static int add_dicom(struct dicom_series *d, const char *path, struct source *s, struct error *e)
{
    struct dicom_header h;
    uint64_t bytes = 0, file_bytes = source_left_at_most(s);
    if (dicom_read_header(&h, s, e) < 0)
        return -1;
    if ((h.rows == 0 && !h.has_pixels) || h.is_segmentation) {
        d->n_other++;
        return 0;
    }
    if (!h.has_pixels)
        return fail(e, ERR_DATA, "D06", "no pixels in an image of %d x %d", h.rows, h.columns);
    if (dicom_check_pixels(&bytes, &h, e) < 0 || add_slice(d, path, &h, e) < 0)
        return -1;
    d->file_bytes += file_bytes;
    return 0;
}

static int add_file(struct dicom_series *d, const char *path, struct error *e)
{
    struct source *s = NULL;
    struct error why = {ERR_NONE, "", ""};
    unsigned char head[132];
    if (source_open(&s, path, &why) < 0) {
        d->n_other++; /* a FIFO, an archive: no DICOM file; but what we may not read is an error */
        if (why.code == ERR_DATA)
            return 0;
        if (e)
            *e = why;
        return fail_in(e, path);
    }
    int64_t n = source_peek(s, head, sizeof head, NULL);
    int is_dicom = n > 0 && !source_is_compressed(s) && dicom_recognise(head, (size_t)n);
    int rc = 0;
    if (is_dicom)
        rc = add_dicom(d, path, s, e);
    else if (text_ends_with_nocase(path, ".dcm"))
        rc = fail(e, ERR_DATA, "D01", "not a DICOM file: no DICM at byte 128");
    else
        d->n_other++;
    source_close(s);
    return rc < 0 ? fail_in(e, path) : 0;
}

static int add_folder(struct dicom_series *d, const char *folder, int level, struct error *e)
{
    struct io_listing l;
    int rc = 0;
    if (io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n && rc == 0; i++) {
        if (l.entry[i].name[0] == '.') /* left by file managers */
            continue;
        if (d->n_other > MAX_OTHER) {
            fail(e, ERR_DATA, "D01", "more than %d files that are not DICOM", MAX_OTHER);
            rc = fail_in(e, folder);
            break;
        }
        char *path = path_join(e, folder, l.entry[i].name);
        if (!path)
            rc = -1;
        else if (!l.entry[i].is_folder)
            rc = add_file(d, path, e);
        else if (level < MAX_LEVELS)
            rc = add_folder(d, path, level + 1, e);
        mem_free(path);
    }
    io_listing_free(&l);
    return rc;
}

/* ---- one patient, one series ----------------------------------------------------------------- */

static uint64_t patient_of(const struct dicom_header *h)
{
    return h->patient_id ? h->patient_id : h->patient_name;
}

static int check_patient(const struct dicom_series *d, struct error *e)
{
    for (int i = 0; i < d->n; i++)
        if (patient_of(&d->slice[i].header) != patient_of(&d->slice[0].header))
            return fail(e, ERR_DATA, "D08", "files of two patients: %s and %s", path_name(d->slice[0].path),
                        path_name(d->slice[i].path));
    return 0;
}

static int check_frame(const struct dicom_series *d, struct error *e)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->slice[i].header.frame, d->slice[0].header.frame) != 0)
            return fail(e, ERR_DATA, "D08",
                        "two frames of reference, so positions cannot be compared: %s and %s",
                        path_name(d->slice[0].path), path_name(d->slice[i].path));
    return 0;
}

/* 1 if some localizer shares its series with a slice that is none. */
static int localizer_inside(const struct dicom_series *d)
{
    for (int i = 0; i < d->n; i++)
        for (int k = 0; d->slice[i].header.is_localizer && k < d->n; k++)
            if (!d->slice[k].header.is_localizer &&
                strcmp(d->slice[i].header.series, d->slice[k].header.series) == 0)
                return 1;
    return 0;
}

/* Overview images of a series of their own, beside others, are left out. */
static void drop_localizers(struct dicom_series *d)
{
    int n = 0;
    for (int i = 0; i < d->n; i++)
        n += !d->slice[i].header.is_localizer;
    if (n == 0 || n == d->n || localizer_inside(d))
        return;
    d->n_localizers = d->n - n;
    n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->slice[i].header.is_localizer)
            mem_free(d->slice[i].path);
        else
            d->slice[n++] = d->slice[i];
    d->n = n;
}

static int check_one_series(const struct dicom_series *d, struct error *e)
{
    int count[4] = {0}, n_series = 0; /* the first three are told, the rest is one number */
    const char *uid[3] = {NULL};
    for (int i = 0; i < d->n; i++) {
        int k = 0;
        while (k < n_series && strcmp(uid[k], d->slice[i].header.series) != 0)
            k++;
        if (k == n_series && n_series < 3)
            uid[n_series++] = d->slice[i].header.series;
        count[k]++;
    }
    if (n_series < 2)
        return 0;
    char rest[32] = "";
    if (n_series == 3)
        snprintf(rest, sizeof rest, ", %d%s", count[2], count[3] ? " and more" : "");
    return fail(e, ERR_DATA, "D07",
                "several series in one folder (%d, %d%s files): give each a folder of its own", count[0],
                count[1], rest);
}

/* ---- one stack ------------------------------------------------------------------------------- */

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void cross(double out[3], const double a[3], const double b[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3];
}

/* The number a user finds in a viewer. */
static long long slice_number(const struct dicom_series *d, int i)
{
    return d->slice[i].header.instance ? (long long)d->slice[i].header.instance : i + 1;
}

static int check_directions(const struct dicom_header *h, struct error *e)
{
    const double *u = h->orientation, *v = h->orientation + 3;
    if (fabs(dot(u, u) - 1) > 2 * COSINE_TOLERANCE || fabs(dot(v, v) - 1) > 2 * COSINE_TOLERANCE ||
        fabs(dot(u, v)) > COSINE_TOLERANCE)
        return fail(e, ERR_DATA, "D07", "orientation %g\\%g\\%g\\%g\\%g\\%g is no pair of right angles", u[0],
                    u[1], u[2], v[0], v[1], v[2]);
    return 0;
}

/* Slice i against the first one. */
static int check_equal(const struct dicom_series *d, int i, struct error *e)
{
    const struct dicom_header *a = &d->slice[0].header, *b = &d->slice[i].header;
    long long number = slice_number(d, i);
    if (!b->has_position || !b->has_orientation || !b->has_spacing || b->frames != 1)
        return fail(e, ERR_DATA, "D07", "slice %lld has %s", number,
                    !b->has_position      ? "no position"
                    : !b->has_orientation ? "no orientation"
                    : !b->has_spacing     ? "no pixel spacing"
                                          : "several frames");
    if (a->rows != b->rows || a->columns != b->columns || a->bits_allocated != b->bits_allocated ||
        a->samples != b->samples)
        return fail(e, ERR_DATA, "D07",
                    "unequal slices: slice %lld has %d x %d of %d bits, slice %lld %d x %d of %d", number,
                    b->rows, b->columns, b->bits_allocated, slice_number(d, 0), a->rows, a->columns,
                    a->bits_allocated);
    for (int k = 0; k < 6; k++)
        if (fabs(a->orientation[k] - b->orientation[k]) > COSINE_TOLERANCE)
            return fail(e, ERR_DATA, "D07", "mixed orientation: slice %lld differs from slice %lld", number,
                        slice_number(d, 0));
    for (int k = 0; k < 2; k++)
        if (fabs(a->spacing[k] - b->spacing[k]) > SPACING_TOLERANCE * fabs(a->spacing[k]))
            return fail(e, ERR_DATA, "D07",
                        "unequal slices: slice %lld has pixels of %g mm, slice %lld of %g mm", number,
                        b->spacing[k], slice_number(d, 0), a->spacing[k]);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    double x = ((const struct dicom_slice *)a)->along_mm, y = ((const struct dicom_slice *)b)->along_mm;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int check_shear(const struct dicom_series *d, struct error *e)
{
    for (int i = 1; i < d->n; i++) {
        double move[3], aside[3], along = d->slice[i].along_mm - d->slice[0].along_mm;
        for (int k = 0; k < 3; k++) {
            move[k] = d->slice[i].header.position[k] - d->slice[0].header.position[k];
            aside[k] = move[k] - along * d->normal[k];
        }
        double shear = sqrt(dot(aside, aside));
        if (shear > SHEAR_TOLERANCE * along + PLACE_TOLERANCE_MM)
            return fail(e, ERR_DATA, "D07",
                        "gantry tilt: slice %lld lies %g mm beside the line through slice %lld",
                        slice_number(d, i), shear, slice_number(d, 0));
    }
    return 0;
}

static int median_step(double *out, const struct dicom_series *d, struct error *e)
{
    int n = d->n - 1;
    double *step = mem_alloc(e, (size_t)n, sizeof *step);
    if (!step)
        return -1;
    for (int i = 0; i < n; i++)
        step[i] = d->slice[i + 1].along_mm - d->slice[i].along_mm;
    qsort(step, (size_t)n, sizeof *step, by_value);
    *out = step[n / 2];
    mem_free(step);
    return 0;
}

/* Steps between neighbours: none zero, all equal; holes are told with the numbers beside them. */
static int check_steps(struct dicom_series *d, const struct volume_request *r, struct error *e)
{
    double usual;
    char where[120] = "";
    int n_gaps = 0;
    for (int i = 0; i + 1 < d->n; i++)
        if (d->slice[i + 1].along_mm - d->slice[i].along_mm < PLACE_TOLERANCE_MM)
            return fail(e, ERR_DATA, "D07", "duplicate slices: %lld and %lld lie in the same place",
                        slice_number(d, i), slice_number(d, i + 1));
    if (median_step(&usual, d, e) < 0)
        return -1;
    for (int i = 0; i + 1 < d->n; i++) {
        double step = d->slice[i + 1].along_mm - d->slice[i].along_mm;
        if (fabs(step - usual) <= STEP_TOLERANCE * usual + PLACE_TOLERANCE_MM)
            continue;
        size_t k = strlen(where);
        snprintf(where + k, sizeof where - k, "%s%lld-%lld (%g mm)", n_gaps++ ? ", " : "", slice_number(d, i),
                 slice_number(d, i + 1), step);
    }
    d->has_gaps = n_gaps > 0;
    d->step_mm = usual;
    if (n_gaps > 0 && !r->allow_gaps)
        return fail(e, ERR_DATA, "D07",
                    "missing or uneven slices between %s; other steps are %g mm; --allow-gaps "
                    "takes them",
                    where, usual);
    return 0;
}

static int check_stack(struct dicom_series *d, const struct volume_request *r, struct error *e)
{
    const double *u = d->slice[0].header.orientation;
    for (int i = 0; i < d->n; i++)
        if (check_equal(d, i, e) < 0)
            return -1;
    if (check_directions(&d->slice[0].header, e) < 0)
        return -1;
    cross(d->normal, u, u + 3);
    for (int i = 0; i < d->n; i++)
        d->slice[i].along_mm = dot(d->slice[i].header.position, d->normal);
    qsort(d->slice, (size_t)d->n, sizeof *d->slice, by_place);
    return check_steps(d, r, e) < 0 || check_shear(d, e) < 0 ? -1 : 0;
}

/* ---- all together ---------------------------------------------------------------------------- */

static int check_size(struct dicom_series *d, const struct volume_limits *most, struct error *e)
{
    uint64_t voxels = 0, bytes;
    for (int i = 0; i < d->n; i++) {
        const struct dicom_header *h = &d->slice[i].header;
        if (dicom_check_pixels(&bytes, h, e) < 0)
            return -1;
        d->bytes += bytes;
        voxels += (uint64_t)h->rows * (uint64_t)h->columns * (uint64_t)h->frames;
        if (voxels > most->voxels || d->bytes > most->bytes)
            return fail(e, ERR_DATA, "D06", "more than %llu voxels or %llu bytes",
                        (unsigned long long)most->voxels, (unsigned long long)most->bytes);
    }
    return 0;
}

static int check_all(struct dicom_series *d, const struct volume_request *r, struct error *e)
{
    if (d->n == 0)
        return fail(e, ERR_DATA, "D01", "no DICOM image here (%d other files)", d->n_other);
    if (check_patient(d, e) < 0)
        return -1;
    drop_localizers(d);
    if (check_one_series(d, e) < 0 || check_frame(d, e) < 0 || check_size(d, &r->limits, e) < 0)
        return -1;
    return d->n > 1 ? check_stack(d, r, e) : 0;
}

/* What was left out, ignored or accepted. */
static void tell(const struct dicom_series *d, const struct volume_request *r)
{
    int n_programs = 0;
    for (int i = 0; i < d->n; i++)
        n_programs += d->slice[i].header.is_program;
    if (d->n_other + d->n_localizers > 0)
        report_line(r->report, REPORT_NOTE, NULL, NULL, "%d localizer images and %d other files left out",
                    d->n_localizers, d->n_other);
    if (n_programs > 0)
        volume_warn(r, "D01", "%d files begin like a program (MZ or ELF); that part is ignored", n_programs);
    if (d->has_gaps) /* no id: gaps were allowed, so that a strict read takes them too */
        volume_warn(r, NULL,
                    "slices are missing or uneven: holes are filled with copies of the "
                    "nearest slice");
}

int dicom_series_read(struct dicom_series *out, const char *path, const struct volume_request *r,
                      struct error *e)
{
    memset(out, 0, sizeof *out);
    int rc = io_is_folder(path) ? add_folder(out, path, 0, e) : add_file(out, path, e);
    if (rc == 0 && check_all(out, r, e) < 0)
        rc = fail_in(e, path);
    if (rc == 0)
        tell(out, r);
    else
        dicom_series_free(out);
    return rc;
}
