/* dicom.c - a DICOM series as a volume, through the program dcm2niix.
 *
 *     folder -> headers checked by us (dicom.h) -> links 00001.dcm ... in a private folder
 *            -> dcm2niix under limits -> one NIfTI file there -> our NIfTI reader -> folder removed
 *
 * The converter sees only files that passed the checks, under names of our own: no text of a header
 * or of a file name can become a path. It writes into the private folder only.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "volume/dicom.h"

enum {
    BASE_SECONDS = 10,     /* start and folder scan, generously */
    DECODE_RATE = 4 << 20, /* bytes of pixels a second: JPEG 2000 on a slow core */
    FILE_RATE = 1 << 20,   /* bytes of the files a second: a busy network disk */
    OPEN_FILES = 64,
    OUTPUT_BYTES = 16 << 20 /* chatter on stdout, some lines a file */
};

int dicom_recognise(const unsigned char *head, size_t n)
{
    return n >= 132 && memcmp(head + 128, "DICM", 4) == 0;
}

/* ---- converting ------------------------------------------------------------------------------ */

/* folder/00001.dcm ... pointing at the slices, in order. */
static int link_slices(const char *folder, const struct dicom_series *d, struct error *e)
{
    for (int i = 0; i < d->n; i++) {
        char real[PATH_MAX], name[32];
        snprintf(name, sizeof name, "%05d.dcm", i + 1);
        char *link = path_join(e, folder, name);
        if (!link)
            return -1;
        int rc = realpath(d->slice[i].path, real) ? symlink(real, link) : -1;
        if (rc < 0)
            fail_errno(e, errno, "cannot link a slice into the temporary folder");
        mem_free(link);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int fail_end(const struct child_end *end, const struct dicom_series *d, struct error *e)
{
    const char *id = d->slice[0].header.encapsulated ? "D05" : "D06";
    if (end->fate == CHILD_EXITED && end->code == CHILD_NOT_FOUND)
        return fail(e, ERR_SYSTEM, NULL, "DICOM needs the program dcm2niix, which is not installed");
    if (end->fate == CHILD_SIGNALLED)
        return fail(e, ERR_DATA, id, "dcm2niix crashed on this series (signal %d)", end->code);
    if (end->fate != CHILD_EXITED)
        return fail(e, ERR_DATA, id, "dcm2niix did not finish this series within its limits");
    return fail(e, ERR_DATA, id, "dcm2niix cannot convert this series (exit %d, transfer syntax %s)",
                end->code, d->slice[0].header.transfer_syntax);
}

/* dcm2niix in -> out, under limits in proportion to the checked size. */
static int run_converter(const char *home, char *in, char *out, const struct dicom_series *d, struct error *e)
{
    unsigned decode = child_seconds(d->bytes, DECODE_RATE), read = child_seconds(d->file_bytes, FILE_RATE);
    const struct child_limits limits = {
        .memory_bytes = ((uint64_t)1 << 30) + 8 * d->bytes + d->file_bytes,
        .file_bytes = (1 << 20) + 8 * d->bytes, /* int8 may become float32, and a second file */
        .output_bytes = OUTPUT_BYTES,
        .cpu_seconds = BASE_SECONDS + decode + read,
        .open_files = OPEN_FILES,
        .wall_ms = 1000 * (BASE_SECONDS + 2 * decode + read),
    };
    /* not compressed, no sidecar, slices of one series merged whatever their other tags say */
    char *program = NULL;
    struct child *c = NULL;
    struct child_end end;
    if (child_find_helper(&program, "dcm2niix", NULL) < 0) /* a bundle brings its own */
        program = NULL;
    char *argv[] = {
        program ? program : "dcm2niix", "-z", "n", "-b", "n", "-m", "y", "-f", "out", "-o", out, in, NULL};
    int rc = child_start(&c, argv, home, &limits, e);
    mem_free(program);
    if (rc < 0)
        return -1;
    child_finish(&end, c);
    if (end.fate != CHILD_EXITED || end.code != 0)
        return fail_end(&end, d, e);
    return 0;
}

/* The one NIfTI file in `folder`. Of an uneven stack dcm2niix writes a second one, named "_Eq",
 * resampled to even steps; it loses slices at the end and is not used. */
static int find_output(char **out, const char *folder, struct error *e)
{
    struct io_listing l;
    const char *chosen = NULL;
    int n = 0;
    if (io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++)
        if (text_ends_with(l.entry[i].name, ".nii") && !strstr(l.entry[i].name, "_Eq")) {
            chosen = l.entry[i].name;
            n++;
        }
    *out = n == 1 ? path_join(e, folder, chosen) : NULL;
    io_listing_free(&l);
    if (n != 1)
        return fail(e, ERR_DATA, "D07", "dcm2niix made %d volumes of this series, expected 1", n);
    return *out ? 0 : -1;
}

/* ---- holes ----------------------------------------------------------------------------------- */

/* Spreads the slices of an uneven stack over an even grid of the usual step; each place takes the
 * nearest slice, so no value is invented. */
static int fill_gaps(struct volume *v, const struct dicom_series *d, struct error *e)
{
    double from = d->slice[0].along_mm, until = d->slice[d->n - 1].along_mm;
    double count = rint((until - from) / d->step_mm) + 1;
    if (v->dims[2] != d->n || volume_channels(v) != 1 || !(count <= 4.0 * d->n))
        return fail(e, ERR_DATA, "D07", "%d slices over %g mm with steps of %g mm cannot be filled up", d->n,
                    until - from, d->step_mm);
    int64_t n = (int64_t)count;
    double column[3] = {-d->normal[0], -d->normal[1], d->normal[2]}, along = 0; /* LPS to RAS */
    for (int a = 0; a < 3; a++)
        along += column[a] * v->geometry.affine[a][2];
    int reversed = along < 0; /* the converter may have turned the stack around */
    size_t bytes = (size_t)(v->dims[0] * v->dims[1]) * dtype_bytes(v->dtype);
    char *data = v->data ? mem_alloc(e, (size_t)n, bytes) : NULL;
    if (v->data && !data)
        return -1;
    for (int64_t k = 0, near = 0; k < n && data; k++) {
        double place = from + (double)k * d->step_mm;
        while (near + 1 < d->n &&
               fabs(d->slice[near + 1].along_mm - place) < fabs(d->slice[near].along_mm - place))
            near++;
        int64_t source = reversed ? d->n - 1 - near : near, to = reversed ? n - 1 - k : k;
        memcpy(data + (size_t)to * bytes, (char *)v->data + (size_t)source * bytes, bytes);
    }
    mem_free(v->data);
    v->data = data;
    v->dims[2] = n;
    double affine[3][4];
    memcpy(affine, v->geometry.affine, sizeof affine);
    for (int a = 0; a < 3; a++)
        affine[a][2] = column[a] * (reversed ? -d->step_mm : d->step_mm);
    geometry_from_affine(&v->geometry, (const double(*)[4])affine);
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the converter's file; it must hold every voxel that was put in, and no more. */
static int read_output(struct volume *out, const char *file, const struct dicom_series *d,
                       const struct volume_request *r, struct error *e)
{
    struct volume_request inner = {.part = r->part, .limits = r->limits};
    struct source *s;
    if (source_open(&s, file, e) < 0)
        return -1;
    int rc = volume_read_source(out, s, &inner, e);
    source_close(s);
    if (rc < 0)
        return -1;
    const struct dicom_header *h = &d->slice[0].header;
    int64_t expected = (int64_t)h->rows * h->columns * h->frames * d->n;
    int64_t got = volume_voxels(out) * volume_channels(out);
    if (got != expected)
        return fail(e, ERR_DATA, "D07", "dcm2niix gave %lld voxels, the slices hold %lld", (long long)got,
                    (long long)expected);
    out->format = "DICOM";
    return d->has_gaps ? fill_gaps(out, d, e) : 0;
}

static int convert(struct volume *out, const struct dicom_series *d, const struct volume_request *r,
                   struct error *e)
{
    char *home = NULL, *in = NULL, *made = NULL, *file = NULL;
    int rc = -1;
    if (io_temp_folder(&home, e) < 0)
        return -1;
    in = path_join(e, home, "in");
    made = path_join(e, home, "out");
    if (in && made && io_make_folders(in, e) == 0 && io_make_folders(made, e) == 0 &&
        link_slices(in, d, e) == 0 && run_converter(home, in, made, d, e) == 0 &&
        find_output(&file, made, e) == 0)
        rc = read_output(out, file, d, r, e);
    io_remove_tree(home);
    mem_free(home);
    mem_free(in);
    mem_free(made);
    mem_free(file);
    return rc;
}

int dicom_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
{
    struct dicom_series d;
    if (dicom_series_read(&d, path, r, e) < 0)
        return -1;
    int rc = convert(out, &d, r, e);
    dicom_series_free(&d);
    return rc < 0 ? fail_in(e, path) : 0;
}
