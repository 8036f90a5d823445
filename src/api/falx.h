/* falx.h - the library: open a trained run, predict volumes, read its metrics.
 *
 *     struct falx_error e;
 *     struct falx_run *run;
 *     if (falx_open(&run, "run", NULL, &e) < 0) { puts(e.text); return 1; }
 *     ... falx_predict(...) ...
 *     falx_close(run);
 *
 * Functions return 0, or -1 with *e filled (e may be NULL). Nothing is printed, nothing exits, and there
 * is no state outside of the handle: runs are independent of each other. One handle is for one thread at a
 * time. A NULL where something is needed, such as a run that could not be opened, is refused like bad input.
 * Link with `pkg-config --cflags --libs falx`.
 */
#ifndef FALX_H
#define FALX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FALX_API __attribute__((visibility("default")))

struct falx_error {
    int code;       /* as the exit codes of the program: 3 input refused, 4 system, 5 memory, ... */
    char id[8];     /* of the fault catalogue, or "" */
    char text[360]; /* one line */
};

enum { FALX_MOST_THREADS = 1024 };
struct falx_options {
    int threads;           /* 0: one per core; at most FALX_MOST_THREADS */
    const char *device;    /* "auto" (NULL), "cpu", "cuda", "cuda:N" */
    const char *precision; /* "auto" (NULL), "f32", "bf16", "tf32" */
    const char *model;     /* "final" (NULL), "best", "stage1" */
    int uncertainty;       /* 1: std and entropy can be asked for */
    /* 0: as the run was trained to, as `falx predict` does; 1: yes; -1: no */
    int mirror;  /* mean over the mirror images that training saw */
    int largest; /* only the largest component of every class */
    int adapt;   /* batch norm goes half by the scan's own statistics */
};

struct falx_run;
FALX_API int falx_open(struct falx_run **out, const char *folder, const struct falx_options *o,
                       struct falx_error *e);
FALX_API void falx_close(struct falx_run *run); /* NULL is fine */

struct falx_info {
    int channels, classes; /* of the image; with background */
    int patch[3];
    const char *method; /* lives as long as the run */
};
FALX_API void falx_info(struct falx_info *out, const struct falx_run *run); /* NULL: zeros and "" */
/* Name of class i, or NULL if the data set had none. */
FALX_API const char *falx_class_name(const struct falx_run *run, int i);

/* A raw scan, as it would be read from a file: voxel (i, j, k) of channel t is
 * voxels[i + dims[0] * (j + dims[1] * (k + dims[2] * t))]. */
struct falx_image {
    const float *voxels;
    int64_t dims[3];
    int channels;
    double affine[3][4]; /* voxel indices to RAS millimetres, as in NIfTI */
};

/* What to fill, each dims[0] * dims[1] * dims[2] numbers in the order of the image; NULL: not wanted. */
struct falx_maps {
    uint8_t *mask;     /* class of each voxel */
    float *foreground; /* 1 - probability of background */
    float *std;        /* of the foreground probability over samples; runs of method aua only */
    float *entropy;    /* 0 sure .. 1 */
    double ambiguity;  /* out: one number for the case; 0 unless uncertainty */
};
FALX_API int falx_predict(struct falx_run *run, struct falx_maps *maps, const struct falx_image *image,
                          struct falx_error *e);
/* From a file (or DICOM folder) to a mask .nii, .nii.gz or .nrrd on the same grid. A file that is there
 * is replaced, but never the scan itself. */
FALX_API int falx_predict_file(struct falx_run *run, const char *in, const char *out, struct falx_error *e);

/* A number of training over the steps: "loss", "supervised", ...; "validation" is the mean Dice. */
struct falx_curve {
    int n;
    int *phase; /* 0-based */
    int64_t *step;
    double *value;
};
FALX_API int falx_metric(struct falx_curve *out, const struct falx_run *run, const char *name,
                         struct falx_error *e);
FALX_API void falx_curve_free(struct falx_curve *c); /* NULL is fine */

FALX_API const char *falx_version(void);

#ifdef __cplusplus
}
#endif

#endif
