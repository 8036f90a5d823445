/* phantom.h - synthetic scans with known truth.
 *
 * One case is a slab of an upper abdomen: skin, fat, muscle, ribs, spine, vessels, bowel and
 * organs, as an MR scanner or a CT would show it. Class 1 is a lobed gland that lies across the
 * spine between vessels, stomach and two bowel loops of nearly its own brightness, so that where
 * things lie, and not how bright they are, decides. Further classes are the other organs, then
 * small nodules.
 *
 *     options, index -> phantom_body (shapes, tissues) -> phantom (voxels) -> phantom_set (files)
 *
 * Every case is a pure function of (options, index): the same bytes for any number of threads, on
 * any machine (no function of libm but sqrtf is used, and no product is fused with a sum).
 */
#ifndef FALX_PHANTOM_H
#define FALX_PHANTOM_H

#include "base/pool.h"
#include "data/dataset.h"
#include "volume/volume.h"

enum {
    PHANTOM_MIN_SIZE = 16, /* voxels along an axis: the coarsest grid that still shows every organ */
    PHANTOM_MAX_SIZE = 1024,
    PHANTOM_MAX_CLASSES = 256, /* with background: labels are stored as uint8 */
    PHANTOM_MAX_CHANNELS = 16,
    PHANTOM_MAX_CASES = 10000,
    PHANTOM_PANCREAS_CASES = 80 /* names PANCREAS_0001..0082 but 0025 and 0070, as in the real set */
};

struct phantom_options {
    int cases;       /* training cases */
    int labeled;     /* of these, the first so many get a label */
    int test;        /* test cases besides; all labelled */
    int64_t size[3]; /* typical voxels along right-left, back-front and foot-head */
    int classes;     /* with background, 2..256 */
    int channels;    /* contrasts of the same anatomy */
    uint64_t seed;
    enum layout layout;  /* PANCREAS gives a CT, every other layout an MR */
    const char *version; /* of the program, recorded in phantom.json; NULL = not recorded */
};

/* 0, or -1 with ERR_CONFIG naming the option that is out of range or does not fit the layout. */
int phantom_check(const struct phantom_options *o, struct error *e);

/* Case `index` (0-based; training cases first, then test cases). *image: int16, one 3D volume, or
 * 4D with a channel per step of the last axis; *label: uint8 on the same grid, every class present.
 * Both to be freed with volume_free. Voxels are shared out over the pool, which may be NULL. */
int phantom_make(struct volume *image, struct volume *label, const struct phantom_options *o, int index,
                 struct pool *pool, struct error *e);

/* Slices from foot to head that case `index` has. */
int64_t phantom_slices(const struct phantom_options *o, int index);

enum phantom_role { PHANTOM_LABELED, PHANTOM_UNLABELED, PHANTOM_TEST };
enum phantom_role phantom_role(const struct phantom_options *o, int index);
/* The name of a case in the data set. */
enum { PHANTOM_NAME_BYTES = 32 };
void phantom_name(char name[PHANTOM_NAME_BYTES], const struct phantom_options *o, int index);

/* Makes `folder` ready for a new set: created if absent, and an earlier set in it removed, if
 * `force` or if that one was never finished. Whatever else lies there is somebody's work: then
 * nothing is touched and the answer is -1 with ERR_CONFIG [O03]. */
int phantom_clear(const char *folder, int force, struct error *e);

/* Writes the whole set below `folder`, which is empty: the layout's own files, truth/ with the
 * labels of unlabelled cases, rough/ with imperfect masks of them, and phantom.json. Until
 * all is there the record is called `unfinished`, and no reader takes the folder for a data set.
 * `done`, if not NULL, is told how many cases are there, by one thread at a time. */
int phantom_write(const char *folder, const struct phantom_options *o, struct pool *pool,
                  void (*done)(void *arg, int64_t n), void *arg, struct error *e);

/* "plain", "nnunet", "msd", "datalist", "h5", "la", "pancreas"; -1 with ERR_CONFIG for other names.
 */
int phantom_layout(enum layout *out, const char *name, struct error *e);

#endif
