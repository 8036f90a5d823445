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
 * and always truth/NAME.nii.gz for the cases whose label a trainer must not see, with rough/NAME.nii.gz,
 * an imperfect mask to score against it. Cases are made in parallel, each by one thread; when there are
 * fewer cases than threads, the threads share each case.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "phantom/phantom_set.h"
#include "volume/resample.h"

int phantom_layout(enum layout *out, const char *name, struct error *e)
{
    for (int l = LAYOUT_PLAIN; l < LAYOUT_PREPARED; l++)
        if (strcmp(layout_name((enum layout)l), name) == 0) {
            *out = (enum layout)l;
            return 0;
        }
    return fail(e, ERR_CONFIG, "C02", "--layout %s, allowed plain|nnunet|msd|datalist|h5|la|pancreas", name);
}

const struct phantom_folders *phantom_folders(enum layout l)
{
    static const struct phantom_folders folders[] = {
        [LAYOUT_PLAIN] = {{"images", "images", "images"}, {"labels", NULL, "labels"}},
        [LAYOUT_NNUNET] = {{"imagesTr", "imagesUn", "imagesTs"}, {"labelsTr", NULL, "labelsTs"}},
        [LAYOUT_MSD] = {{"imagesTr", "imagesTr", "imagesTs"}, {"labelsTr", NULL, "labelsTs"}},
        [LAYOUT_DATALIST] = {{"images", "images", "images"}, {"labels", NULL, "labels"}}};
    return l <= LAYOUT_DATALIST ? &folders[l] : NULL;
}

enum phantom_role phantom_role(const struct phantom_options *o, int index)
{
    if (index >= o->cases)
        return PHANTOM_TEST;
    return index < o->labeled ? PHANTOM_LABELED : PHANTOM_UNLABELED;
}

void phantom_name(char name[PHANTOM_NAME_BYTES], const struct phantom_options *o, int index)
{
    int number = index + 1, is_ct = o->layout == LAYOUT_PANCREAS;
    if (is_ct) { /* 25 and 70 are never used: in the real set they repeat case 2, and readers drop
                    them */
        number += number >= 25;
        number += number >= 70;
    }
    snprintf(name, PHANTOM_NAME_BYTES, is_ct ? "PANCREAS_%04d" : "phantom_%04d", number);
}

/* ---- one case ------------------------------------------------------------------------------- */

struct made {           /* a case on its way to disk */
    const char *folder; /* of the set */
    const struct phantom_options *o;
    int index;
    enum phantom_role role;
    char name[PHANTOM_NAME_BYTES], file[PHANTOM_NAME_BYTES + 16]; /* NAME, NAME.nii.gz */
    struct volume image, label;
};

/* FOLDER/SUB/FILE, the folders made; for mem_free. */
static char *place(const struct made *m, const char *sub, const char *file, struct error *e)
{
    char *parent = path_join(e, m->folder, sub), *path = NULL;
    if (parent && io_make_folders(parent, e) == 0)
        path = path_join(e, parent, file);
    mem_free(parent);
    return path;
}

static int put_volume(const struct volume *v, const struct made *m, const char *sub, const char *file,
                      struct error *e)
{
    char *path = place(m, sub, file, e);
    int rc = path ? volume_write(v, path, e) : -1;
    mem_free(path);
    return rc;
}

/* One file a channel, numbered: NAME_0000.nii.gz (nnU-Net) and so on. */
static int put_channels(const struct made *m, const char *sub, struct error *e)
{
    for (int c = 0; c < m->o->channels; c++) {
        char file[PHANTOM_NAME_BYTES + 32];
        struct volume one = m->image; /* borrows the voxels */
        one.n_dims = 3;
        one.dims[3] = 1;
        one.data = (int16_t *)m->image.data + c * volume_voxels(&m->image);
        snprintf(file, sizeof file, "%s_%04d.nii.gz", m->name, c);
        if (put_volume(&one, m, sub, file, e) < 0)
            return -1;
    }
    return 0;
}

int phantom_numbers_channels(const struct phantom_options *o)
{
    return o->layout == LAYOUT_NNUNET || (o->layout == LAYOUT_DATALIST && o->channels > 1);
}

static int put_nifti_case(struct made *m, struct error *e)
{
    const struct phantom_folders *f = phantom_folders(m->o->layout);
    int rc = phantom_numbers_channels(m->o) ? put_channels(m, f->image[m->role], e)
                                            : put_volume(&m->image, m, f->image[m->role], m->file, e);
    if (rc == 0 && f->label[m->role])
        rc = put_volume(&m->label, m, f->label[m->role], m->file, e);
    return rc;
}

static int put_la_case(struct made *m, struct error *e)
{
    if (put_volume(&m->image, m, m->name, "lgemri.nrrd", e) < 0)
        return -1;
    if (m->role == PHANTOM_UNLABELED)
        return 0;
    uint8_t *mask = m->label.data;
    for (int64_t n = 0; n < volume_voxels(&m->label); n++)
        mask[n] = mask[n] ? 255 : 0;
    return put_volume(&m->label, m, m->name, "laendo.nrrd", e);
}

static int put_pancreas_case(struct made *m, struct error *e)
{
    char file[PHANTOM_NAME_BYTES + 16];
    char *series = mem_format(e, "%s/Pancreas-CT/%s/series", m->folder, m->name);
    int rc = series ? io_make_folders(series, e) : -1;
    if (rc == 0)
        rc = dicom_write_series(&m->image, series, m->name, hash_bytes(m->name, strlen(m->name), m->o->seed),
                                e);
    mem_free(series);
    snprintf(file, sizeof file, "label%s.nii.gz", m->name + strlen("PANCREAS_"));
    if (rc == 0 && m->role != PHANTOM_UNLABELED)
        rc = put_volume(&m->label, m, "TCIA_pancreas_labels", file, e);
    return rc;
}

/* Zero mean and unit variance over the volume. */
static void standardise(float *values, int64_t n)
{
    double sum = 0, square = 0; /* of integers: exact */
    for (int64_t v = 0; v < n; v++) {
        sum += (double)values[v];
        square += (double)values[v] * (double)values[v];
    }
    double mean = sum / (double)n, sd = sqrt(square / (double)n - mean * mean);
    for (int64_t v = 0; v < n; v++)
        values[v] = (float)(((double)values[v] - mean) / sd);
}

static int put_h5_case(struct made *m, struct error *e)
{
    static const int reversed[3] = {2, 1, 0}, flip[3] = {0, 0, 0}; /* the last axis fastest, as in NumPy */
    const int64_t *n = m->image.dims;
    struct volume image = {0}, label = {0};
    float *values = NULL;
    char *path = place(m, m->name, "mri_norm2.h5", e);
    int rc = -1;
    if (path && volume_permute(&image, &m->image, reversed, flip, e) == 0 &&
        volume_permute(&label, &m->label, reversed, flip, e) == 0 &&
        volume_floats(&values, &image, 0, NAN_REFUSE, e) == 0) {
        standardise(values, volume_voxels(&image));
        struct hdf5_item item[2] = {{"image", DTYPE_F32, {n[0], n[1], n[2]}, values},
                                    {"label", DTYPE_U8, {n[0], n[1], n[2]}, label.data}};
        rc = hdf5_write(path, item, m->role == PHANTOM_UNLABELED ? 1 : 2, e);
    }
    volume_free(&image);
    volume_free(&label);
    mem_free(values);
    mem_free(path);
    return rc;
}

static int put_case(struct made *m, struct error *e)
{
    enum layout l = m->o->layout;
    int rc = l == LAYOUT_H5         ? put_h5_case(m, e)
             : l == LAYOUT_LA       ? put_la_case(m, e)
             : l == LAYOUT_PANCREAS ? put_pancreas_case(m, e)
                                    : put_nifti_case(m, e);
    if (rc < 0 || m->role != PHANTOM_UNLABELED)
        return rc;
    if (put_volume(&m->label, m, "truth", m->file, e) < 0 ||
        phantom_roughen(&m->label, m->o, m->index, e) < 0)
        return -1;
    return put_volume(&m->label, m, "rough", m->file, e);
}

/* ---- the set --------------------------------------------------------------------------------- */

struct making {
    const char *folder;
    const struct phantom_options *o;
    struct pool *inner; /* threads within a case, or NULL */
    void (*done)(void *arg, int64_t n);
    void *arg;
    pthread_mutex_t lock; /* over what follows */
    struct error error;   /* of the first case that failed; code 0 = fine */
    int64_t n_done;
};

static void make_one(void *arg, int64_t index)
{
    struct making *g = arg;
    struct made m = {
        .folder = g->folder, .o = g->o, .index = (int)index, .role = phantom_role(g->o, (int)index)};
    struct error e = {0};
    pthread_mutex_lock(&g->lock);
    int stop = g->error.code != ERR_NONE;
    pthread_mutex_unlock(&g->lock);
    if (stop)
        return;
    phantom_name(m.name, g->o, m.index);
    snprintf(m.file, sizeof m.file, "%s.nii.gz", m.name);
    int rc = phantom_make(&m.image, &m.label, g->o, m.index, g->inner, &e);
    rc = rc < 0 ? -1 : put_case(&m, &e);
    volume_free(&m.image);
    volume_free(&m.label);
    pthread_mutex_lock(&g->lock);
    if (rc < 0 && g->error.code == ERR_NONE)
        g->error = e;
    if (rc == 0 && g->done)
        g->done(g->arg, ++g->n_done);
    pthread_mutex_unlock(&g->lock);
}

/* The record gets its final name: from now on the folder is a data set. */
static int finish(const char *folder, struct error *e)
{
    char *from = path_join(e, folder, PHANTOM_UNFINISHED);
    char *to = path_join(e, folder, PHANTOM_RECORD);
    int rc = from && to ? io->rename(from, to) : -1;
    if (from && to && rc < 0) {
        fail_errno(e, errno, "cannot rename into place");
        fail_in(e, to);
    }
    mem_free(from);
    mem_free(to);
    return rc;
}

int phantom_write(const char *folder, const struct phantom_options *o, struct pool *pool,
                  void (*done)(void *arg, int64_t n), void *arg, struct error *e)
{
    struct making g = {.folder = folder, .o = o, .done = done, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (phantom_check(o, e) < 0 || io_make_folders(folder, e) < 0 ||
        phantom_write_record(folder, PHANTOM_UNFINISHED, o, e) < 0)
        return -1;
    int n = o->cases + o->test, few = n < pool_threads(pool);
    g.inner = few ? pool : NULL;
    pool_run(few ? NULL : pool, n, make_one, &g);
    if (g.error.code != ERR_NONE) {
        if (e)
            *e = g.error;
        return -1;
    }
    return phantom_write_index(folder, o, e) < 0 ? -1 : finish(folder, e);
}
