/* phantom_set.c - a synthetic data set on disk, in any of the layouts falx reads.
 *
 *     plain      images/NAME.nii.gz  labels/NAME.nii.gz
 *     nnunet     imagesTr/NAME_0000.nii.gz  labelsTr/  imagesUn/ (unlabelled)  imagesTs/  labelsTs/
 *     msd        imagesTr/NAME.nii.gz (4D if several channels)  labelsTr/  imagesTs/  labelsTs/
 *     datalist   images/NAME[_c].nii.gz  labels/
 *     h5         NAME/mri_norm2.h5 with image (z-scored) and, if labelled, label
 *     la         NAME/lgemri.nrrd  NAME/laendo.nrrd (0 and 255)
 *     pancreas   Pancreas-CT/NAME/series/1-001.dcm ...  TCIA_pancreas_labels/label0001.nii.gz
 *
 * and always truth/NAME.nii.gz for the cases whose label a trainer must not see. Cases are made in
 * parallel, each by one thread; when there are fewer cases than threads, the threads share each
 * case.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "phantom/dicom_write.h"
#include "phantom/hdf5_write.h"
#include "phantom/phantom_set.h"

static const char LABELS_PANCREAS[] = "TCIA_pancreas_labels", SCANS_PANCREAS[] = "Pancreas-CT";

static const struct {
    enum layout layout;
    const char *name;
} layouts[] = {{LAYOUT_PLAIN, "plain"},       {LAYOUT_NNUNET, "nnunet"}, {LAYOUT_MSD, "msd"},
               {LAYOUT_DATALIST, "datalist"}, {LAYOUT_H5, "h5"},         {LAYOUT_LA, "la"},
               {LAYOUT_PANCREAS, "pancreas"}};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

int phantom_layout(enum layout *out, const char *name, struct error *e)
{
    for (int n = 0; n < N_LAYOUTS; n++) {
        if (strcmp(layouts[n].name, name) == 0) {
            *out = layouts[n].layout;
            return 0;
        }
    }
    return fail(e, ERR_CONFIG, "C02",
                "--layout %s, allowed plain|nnunet|msd|datalist|h5|la|pancreas", name);
}

const char *phantom_layout_name(enum layout l)
{
    int n = 0;
    while (n < N_LAYOUTS - 1 && layouts[n].layout != l)
        n++;
    return layouts[n].name;
}

const struct phantom_folders *phantom_folders(enum layout l)
{
    static const struct phantom_folders plain = {{"images", "images", "images"},
                                                 {"labels", NULL, "labels"}};
    static const struct phantom_folders nnunet = {{"imagesTr", "imagesUn", "imagesTs"},
                                                  {"labelsTr", NULL, "labelsTs"}};
    static const struct phantom_folders msd = {{"imagesTr", "imagesTr", "imagesTs"},
                                               {"labelsTr", NULL, "labelsTs"}};
    if (l == LAYOUT_PLAIN || l == LAYOUT_DATALIST)
        return &plain;
    return l == LAYOUT_NNUNET ? &nnunet : l == LAYOUT_MSD ? &msd : NULL;
}

enum phantom_role phantom_role(const struct phantom_options *o, int index)
{
    if (index >= o->cases)
        return PHANTOM_TEST;
    return index < o->labeled ? PHANTOM_LABELED : PHANTOM_UNLABELED;
}

void phantom_name(char name[PHANTOM_NAME_BYTES], const struct phantom_options *o, int index)
{
    int number = index + 1;
    if (o->layout == LAYOUT_PANCREAS) {
        /* 25 and 70 are never used: in the real set they repeat case 2, and readers drop them. */
        number += number >= 25;
        number += number >= 70;
        snprintf(name, PHANTOM_NAME_BYTES, "PANCREAS_%04d", number);
        return;
    }
    snprintf(name, PHANTOM_NAME_BYTES, "phantom_%04d", number);
}

/* ---- one case ------------------------------------------------------------------------------- */

/* Writes below the set's folder; the path of the message is that of the file. */
static int write_volume(const struct volume *v, const char *folder, const char *sub,
                        const char *file, struct error *e)
{
    char *path = mem_format(e, "%s/%s/%s", folder, sub, file);
    int rc = path ? volume_write(v, path, e) : -1;
    mem_free(path);
    return rc;
}

/* One file a channel, numbered: NAME_0000.nii.gz (nnU-Net) and so on. */
static int write_channels(const struct volume *image, const char *folder, const char *sub,
                          const char *name, struct error *e)
{
    int64_t n = volume_channels(image), voxels = volume_voxels(image);
    for (int64_t c = 0; c < n; c++) {
        char file[PHANTOM_NAME_BYTES + 32];
        struct volume one = *image; /* borrows the voxels */
        one.n_dims = 3;
        one.dims[3] = 1;
        one.data = (int16_t *)image->data + c * voxels;
        snprintf(file, sizeof file, "%s_%04d.nii.gz", name, (int)c);
        if (write_volume(&one, folder, sub, file, e) < 0)
            return -1;
    }
    return 0;
}

static int write_nifti_case(const char *folder, const struct phantom_options *o,
                            enum phantom_role role, const char *name, const struct volume *image,
                            const struct volume *label, struct error *e)
{
    const struct phantom_folders *f = phantom_folders(o->layout);
    char file[PHANTOM_NAME_BYTES + 16];
    snprintf(file, sizeof file, "%s.nii.gz", name);
    int split = o->layout == LAYOUT_NNUNET || (o->layout == LAYOUT_DATALIST && o->channels > 1);
    int rc = split ? write_channels(image, folder, f->image[role], name, e)
                   : write_volume(image, folder, f->image[role], file, e);
    if (rc == 0 && f->label[role])
        rc = write_volume(label, folder, f->label[role], file, e);
    return rc;
}

static int write_la_case(const char *folder, enum phantom_role role, const char *name,
                         const struct volume *image, const struct volume *label, struct error *e)
{
    if (write_volume(image, folder, name, "lgemri.nrrd", e) < 0)
        return -1;
    if (role == PHANTOM_UNLABELED)
        return 0;
    struct volume mask;
    if (volume_new(&mask, DTYPE_U8, label->dims, &label->geometry, e) < 0)
        return -1;
    for (int64_t n = 0; n < volume_voxels(label); n++)
        ((uint8_t *)mask.data)[n] = ((const uint8_t *)label->data)[n] ? 255 : 0;
    int rc = write_volume(&mask, folder, name, "laendo.nrrd", e);
    volume_free(&mask);
    return rc;
}

static int write_pancreas_case(const char *folder, enum phantom_role role, const char *name,
                               uint64_t key, const struct volume *image, const struct volume *label,
                               struct error *e)
{
    char file[PHANTOM_NAME_BYTES + 16];
    snprintf(file, sizeof file, "label%s.nii.gz", name + strlen("PANCREAS_"));
    char *series = mem_format(e, "%s/%s/%s/series", folder, SCANS_PANCREAS, name);
    int rc = series ? io_make_folders(series, e) : -1;
    if (rc == 0)
        rc = dicom_write_series(image, series, name, key, e);
    mem_free(series);
    if (rc == 0 && role != PHANTOM_UNLABELED)
        rc = write_volume(label, folder, LABELS_PANCREAS, file, e);
    return rc;
}

/* Zero mean and unit variance over the volume, as float32; the last axis fastest, as in NumPy. */
static void to_h5_order(float *out, uint8_t *out_label, const struct volume *image,
                        const struct volume *label)
{
    const int16_t *in = image->data;
    const uint8_t *mask = label->data;
    int64_t n = volume_voxels(image), sum = 0, square = 0, at = 0;
    for (int64_t v = 0; v < n; v++) {
        sum += in[v];
        square += (int64_t)in[v] * in[v];
    }
    double mean = (double)sum / (double)n, sd = sqrt((double)square / (double)n - mean * mean);
    for (int64_t i = 0; i < image->dims[0]; i++) {
        for (int64_t j = 0; j < image->dims[1]; j++) {
            for (int64_t k = 0; k < image->dims[2]; k++, at++) {
                int64_t from = i + image->dims[0] * (j + image->dims[1] * k);
                out[at] = (float)((in[from] - mean) / sd);
                out_label[at] = mask[from];
            }
        }
    }
}

static int write_h5_case(const char *folder, enum phantom_role role, const char *name,
                         const struct volume *image, const struct volume *label, struct error *e)
{
    size_t n = (size_t)volume_voxels(image);
    float *values = mem_alloc(e, n, sizeof *values);
    uint8_t *mask = mem_alloc(e, n, 1);
    char *path = mem_format(e, "%s/%s/mri_norm2.h5", folder, name);
    int rc = -1;
    if (values && mask && path) {
        struct hdf5_item item[2] = {{.name = "image", .dtype = DTYPE_F32, .data = values},
                                    {.name = "label", .dtype = DTYPE_U8, .data = mask}};
        memcpy(item[0].dims, image->dims, sizeof item[0].dims);
        memcpy(item[1].dims, image->dims, sizeof item[1].dims);
        to_h5_order(values, mask, image, label);
        rc = hdf5_write(path, item, role == PHANTOM_UNLABELED ? 1 : 2, e);
    }
    mem_free(values);
    mem_free(mask);
    mem_free(path);
    return rc;
}

static int make_case_folder(const char *folder, const char *name, struct error *e)
{
    char *path = path_join(e, folder, name);
    int rc = path ? io_make_folders(path, e) : -1;
    mem_free(path);
    return rc;
}

static int write_case(const char *folder, const struct phantom_options *o, int index,
                      struct pool *pool, struct error *e)
{
    char name[PHANTOM_NAME_BYTES], file[PHANTOM_NAME_BYTES + 16];
    enum phantom_role role = phantom_role(o, index);
    struct volume image, label;
    phantom_name(name, o, index);
    if (phantom_make(&image, &label, o, index, pool, e) < 0)
        return -1;
    int rc = 0;
    if (o->layout == LAYOUT_H5 || o->layout == LAYOUT_LA)
        rc = make_case_folder(folder, name, e);
    if (rc < 0)
        goto out;
    if (o->layout == LAYOUT_H5)
        rc = write_h5_case(folder, role, name, &image, &label, e);
    else if (o->layout == LAYOUT_LA)
        rc = write_la_case(folder, role, name, &image, &label, e);
    else if (o->layout == LAYOUT_PANCREAS)
        rc = write_pancreas_case(folder, role, name, hash_bytes(name, strlen(name), o->seed),
                                 &image, &label, e);
    else
        rc = write_nifti_case(folder, o, role, name, &image, &label, e);
    snprintf(file, sizeof file, "%s.nii.gz", name);
    if (rc == 0 && role == PHANTOM_UNLABELED)
        rc = write_volume(&label, folder, "truth", file, e);
out:
    volume_free(&image);
    volume_free(&label);
    return rc;
}

/* ---- the set --------------------------------------------------------------------------------- */

struct making {
    const char *folder;
    const struct phantom_options *o;
    struct pool *inner;  /* threads within a case, or NULL */
    struct error *error; /* one a case; code 0 = fine */
    atomic_int failed;   /* 1: do not start further cases */
    void (*done)(void *arg);
    void *arg;
};

static void make_one(void *arg, int64_t index)
{
    struct making *m = arg;
    if (atomic_load(&m->failed))
        return;
    if (write_case(m->folder, m->o, (int)index, m->inner, &m->error[index]) < 0)
        atomic_store(&m->failed, 1);
    else if (m->done)
        m->done(m->arg);
}

static int make_folders(const char *folder, const struct phantom_options *o, struct error *e)
{
    const struct phantom_folders *f = phantom_folders(o->layout);
    const char *sub[7] = {o->labeled < o->cases ? "truth" : NULL};
    for (int role = 0; f && role < 3; role++) {
        int used = role == PHANTOM_LABELED ? o->labeled > 0
                   : role == PHANTOM_TEST  ? o->test > 0
                                           : o->labeled < o->cases;
        sub[1 + role] = used ? f->image[role] : NULL;
        sub[4 + role] = used ? f->label[role] : NULL;
    }
    if (o->layout == LAYOUT_PANCREAS) {
        sub[1] = SCANS_PANCREAS;
        sub[2] = LABELS_PANCREAS;
    }
    int rc = io_make_folders(folder, e);
    for (int n = 0; n < 7 && rc == 0; n++)
        if (sub[n])
            rc = make_case_folder(folder, sub[n], e);
    return rc;
}

int phantom_write(const char *folder, const struct phantom_options *o, struct pool *pool,
                  void (*done)(void *arg), void *arg, struct error *e)
{
    if (phantom_check(o, e) < 0 || make_folders(folder, o, e) < 0)
        return -1;
    int n = o->cases + o->test, rc = 0;
    struct making m = {.folder = folder, .o = o, .done = done, .arg = arg};
    m.error = mem_alloc(e, (size_t)n, sizeof *m.error);
    if (!m.error)
        return -1;
    atomic_init(&m.failed, 0);
    if (n < pool_threads(pool)) {
        m.inner = pool;
        pool = NULL;
    }
    pool_run(pool, n, make_one, &m);
    for (int i = n - 1; i >= 0; i--) {
        if (m.error[i].code != ERR_NONE) {
            rc = -1;
            if (e)
                *e = m.error[i]; /* the first case that failed */
        }
    }
    mem_free(m.error);
    return rc < 0 ? -1 : phantom_write_index(folder, o, e);
}
