/* volume.h - a scan or a mask in memory, and its way in from and out to files.
 *
 * Voxels are kept as stored in the file (type and bits), in host byte order (little-endian), first
 * axis fastest, as in NIfTI: voxel (i, j, k) of channel t is
 * data[i + dims[0] * (j + dims[1] * (k + dims[2] * t))], and value = slope * stored + inter. The
 * affine maps (i, j, k, 1) to millimetres in RAS (x grows towards the patient's Right, y Anterior,
 * z Superior).
 *
 * Readers: one file per format. Content decides which one reads a file, never its name.
 */
#ifndef FALX_VOLUME_H
#define FALX_VOLUME_H

#include "base/base.h"
#include "base/source.h"

enum dtype {
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_U16,
    DTYPE_I16,
    DTYPE_U32,
    DTYPE_I32,
    DTYPE_U64,
    DTYPE_I64,
    DTYPE_F32,
    DTYPE_F64
};
size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t); /* "uint8", "int16", "float32", ... */

typedef uint16_t label_t; /* a class number; 0 is background */

enum { VOLUME_MAX_DIMS = 7 };

/* Where a volume lies in the patient. */
struct geometry {
    double affine[3][4];  /* (i, j, k, 1) -> RAS mm */
    double spacing_mm[3]; /* length of the affine's columns, or the file's own spacing */
    int known;            /* 0: the file names no patient orientation; the affine is a guess */
    /* A NIfTI header's own words, kept so that output carries them unchanged; version 0 = none. */
    struct nifti_space {
        int64_t version; /* 1 or 2 */
        int64_t qform_code, sform_code, xyzt_units;
        double pixdim[8], quatern[3], qoffset[3], srow[3][4];
    } nifti;
};

struct volume {
    const char *format;            /* "NIfTI-1", "NRRD", "MetaImage", "HDF5", "DICOM", or "memory" (static) */
    enum dtype dtype;              /* of data */
    int n_dims;                    /* 1..7 */
    int64_t dims[VOLUME_MAX_DIMS]; /* all >= 1; those past n_dims are 1 */
    double slope, inter;           /* 1 and 0 if the file scales nothing */
    struct geometry geometry;
    void *data; /* owned; NULL if only the header was read */
};

struct volume_limits {
    uint64_t voxels; /* default 2^31 */
    uint64_t bytes;  /* decoded, default 8 GiB */
};
extern const struct volume_limits volume_default_limits;

enum volume_part { VOLUME_ALL, VOLUME_HEADER_ONLY };

struct volume_request {
    enum volume_part part;
    const char *member;          /* HDF5 data set name; NULL = "image" */
    int strict;                  /* 1: a warning that has an id is a refusal */
    int describe;                /* 1: odd spacing or orientation is a warning, as info and convert want */
    int allow_gaps;              /* DICOM: accept missing slices */
    int place_unknown;           /* 1: the caller knows that no orientation is named; no warning [N24] */
    struct volume_limits limits; /* zero = defaults */
    struct report *report;       /* warnings, told only if the read succeeds; may be NULL */
};

/* Reads a file, or a folder holding one DICOM series. `r` may be NULL. Errors carry the path. */
int volume_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e);
/* The same from an open source (NIfTI, NRRD, MetaImage): what the fuzzers call. */
int volume_read_source(struct volume *out, struct source *s, const struct volume_request *r, struct error *e);
/* Writes .nii, .nii.gz, .nrrd or .seg.nrrd, decided by the name, atomically, with v's geometry and
 * no free text of any header. .seg.nrrd needs a label volume; one segment a class. */
int volume_write(const struct volume *v, const char *path, struct error *e);
int volume_can_write(const char *path, struct error *e); /* 0 if the name is one of these */
void volume_free(struct volume *v);                      /* zeroed or freed volumes are fine */

/* Zeroed voxels of the given shape, on the grid of `like` (NULL: identity, unknown). */
int volume_new(struct volume *out, enum dtype t, const int64_t dims[3], const struct geometry *like,
               struct error *e);

int64_t volume_voxels(const struct volume *v);              /* dims[0] * dims[1] * dims[2] */
int64_t volume_channels(const struct volume *v);            /* product of the other dims */
size_t volume_bytes(const struct volume *v);                /* of all channels */
double volume_value(const struct volume *v, int64_t index); /* scaled value of one stored number */

/* Values for arithmetic: one channel as float32, scaling applied. */
enum nan_policy { NAN_REFUSE, NAN_ZERO, NAN_MIN };
/* *out gets volume_voxels(v) floats, first axis fastest (mem_free). NaN and Inf are refused with
 * count and first index unless the policy replaces them [N37]; values beyond +-1e30 are refused:
 * [N20] if scaling made them, else [N39]. */
int volume_floats(float **out, const struct volume *v, int64_t channel, enum nan_policy policy,
                  struct error *e);
/* *out gets class numbers. Values must be within 1e-3 of an integer [L05 N21], not NaN [L06], and
 * in 0..65535 [L04]. *highest (may be NULL) is the largest class found. */
int volume_labels(label_t **out, label_t *highest, const struct volume *v, struct error *e);

/* Statistics over all channels after scaling; voxels that are NaN or infinite are left out and counted. */
struct volume_stats {
    double min, max, mean; /* NaN if nothing is left */
    int64_t n_odd;
};
void volume_measure(struct volume_stats *out, const struct volume *v);

/* Stored numbers [start, start + n) as scaled doubles: the one place that knows all types. */
void volume_block(double *out, const struct volume *v, int64_t start, int64_t n);

/* Files keep the first axis fastest, networks the last: items of `each` bytes from one order to the
 * other; on the network's side `step` bytes lie between them (several channels a voxel). */
void voxels_to_rows(void *rows, size_t step, const void *voxels, size_t each, const int dims[3]);
void voxels_from_rows(void *voxels, const void *rows, size_t step, size_t each, const int dims[3]);

/* ---- geometry -------------------------------------------------------------------------------- */

void geometry_identity(struct geometry *g, const double spacing_mm[3]); /* NULL: 1 mm */
/* Sets the affine and derives the spacing from its columns; drops NIfTI words. */
void geometry_from_affine(struct geometry *g, const double affine[3][4]);
/* "RAS", "LPI", ...: for each voxel axis the patient direction it runs towards (nearest). */
void geometry_orientation(char out[4], const struct geometry *g);
/* Axis of the patient (0..2) and sign that each voxel axis is nearest to; a permutation. */
void geometry_axes(int axis[3], int sign[3], const struct geometry *g);
/* Largest difference of position (mm) over the corners of a grid of `dims`. */
double geometry_distance_mm(const struct geometry *a, const struct geometry *b, const int64_t dims[3]);
int affine_invert(double out[3][4], const double in[3][4]); /* -1 if singular or not finite */
double affine_shear(const double m[3][4]); /* largest cosine between two columns: 0 = orthogonal */
void affine_multiply(double out[3][4], const double a[3][4], const double b[3][4]);

/* ---- for format files ------------------------------------------------------------------------
 *
 * The request they get is complete: never NULL, limits filled in, and a report that holds back what
 * is said about the file until the read has succeeded. So a doubt is simply volume_warn(). Nor is the
 * error NULL. */

#define volume_warn(r, id, ...) report_line((r)->report, REPORT_WARNING, NULL, id, __VA_ARGS__)

struct volume_format {
    /* 1 if the first n decoded bytes look like this format. */
    int (*recognise)(const unsigned char *head, size_t n);
    /* Fills *out, zeroed but for a slope of 1. On failure the caller frees it and adds the path. */
    int (*read)(struct volume *out, struct source *s, const struct volume_request *r, struct error *e);
    int (*write)(const struct volume *v, const char *path, struct error *e); /* or NULL */
};
extern const struct volume_format format_nifti, format_nrrd, format_metaimage;

/* Common last steps of a reader, dims and dtype being set: checks the claim against limits and file
 * [N08 N09 N10, and `id_claim` such as "N11" or "R14"], allocates, reads, swaps bytes, verifies the
 * end of the stream [N12 Z04 Z07]. `data` is where the voxels come from (the header's source or
 * another). Header-only requests stop after the checks. */
enum { VOXELS_BIG_ENDIAN = 1, VOXELS_EXACT = 2 /* bytes behind them are refused with id_claim */ };
int volume_read_voxels(struct volume *v, struct source *data, int flags, const char *id_claim,
                       const struct volume_request *r, struct error *e);
/* Copies voxels of v, seen through `stride` (elements, any sign) from element `start` on, to a
 * dense array of `dims`. */
void volume_gather(void *out, const struct volume *v, const int64_t dims[VOLUME_MAX_DIMS],
                   const int64_t stride[VOLUME_MAX_DIMS], int64_t start);

/* An atomic write of header and voxels. The last 2 - n_plain of these two are one gzip stream. */
int volume_write_file(const struct volume *v, const char *path, const void *header, size_t n, int n_plain,
                      struct error *e);

/* Readers living in other processes. */
int hdf5_recognise(const unsigned char *head, size_t n);
int hdf5_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e);
int dicom_recognise(const unsigned char *head, size_t n);
/* A folder with one series, or one file. Errors carry a path. */
int dicom_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e);

#endif
