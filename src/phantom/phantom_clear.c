/* phantom_clear.c - the folder of a synthetic set before it is written: whose is what lies there?
 *
 *     phantom.json or `unfinished` -> options -> every path such a set consists of
 *       -> look: is there anything else? then all stays as it is
 *       -> phantom.json becomes `unfinished` -> remove, path by path -> `unfinished` goes
 *
 * Nothing is removed but what the record names, and folders only once they are empty: scans that
 * somebody added to a synthetic set are never in danger. A label left over from an earlier set, on
 * the other hand, would be read as one of the new. Links are not followed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "phantom/phantom_set.h"

struct names { /* paths below the folder of the set; those of folders end in '/' */
    char **name;
    size_t n, room;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_has(const struct names *l, const char *name)
{
    return l->n && bsearch(&name, l->name, l->n, sizeof *l->name, by_text) != NULL;
}

static void names_free(struct names *l)
{
    for (size_t n = 0; n < l->n; n++)
        mem_free(l->name[n]);
    mem_free(l->name);
}

/* Takes `name`, which may be NULL: then memory was short. */
static int names_take(struct names *l, char *name, struct error *e)
{
    if (name && l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        char **grown = mem_resize(e, l->name, room, sizeof *grown);
        if (!grown) {
            mem_free(name);
            return -1;
        }
        l->name = grown;
        l->room = room;
    }
    if (name)
        l->name[l->n++] = name;
    return name ? 0 : -1;
}

/* The path and the folders it lies in. */
static int names_add(struct names *l, const char *path, struct error *e)
{
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
        if (names_take(l, mem_format(e, "%.*s", (int)(slash - path) + 1, path), e) < 0)
            return -1;
    return names_take(l, mem_string(e, path), e);
}

/* ---- what a set consists of ------------------------------------------------------------------ */

enum { PATH_BYTES = 2 * PHANTOM_NAME_BYTES + 64 };

static int add_file(struct names *l, const char *folder, const char *name, const char *ending,
                    struct error *e)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
    return names_add(l, path, e);
}

static int add_nifti_case(struct names *l, const struct phantom_options *o, int index, const char *name,
                          struct error *e)
{
    const struct phantom_folders *f = phantom_folders(o->layout);
    enum phantom_role role = phantom_role(o, index);
    int split = phantom_numbers_channels(o);
    for (int c = 0; c < (split ? o->channels : 1); c++) {
        char ending[32];
        snprintf(ending, sizeof ending, "_%04d.nii.gz", c);
        if (add_file(l, f->image[role], name, split ? ending : ".nii.gz", e) < 0)
            return -1;
    }
    return f->label[role] ? add_file(l, f->label[role], name, ".nii.gz", e) : 0;
}

static int add_pancreas_case(struct names *l, const struct phantom_options *o, int index, const char *name,
                             struct error *e)
{
    char path[PATH_BYTES];
    for (int64_t slice = 1; slice <= phantom_slices(o, index); slice++) {
        snprintf(path, sizeof path, "Pancreas-CT/%s/series/1-%03lld.dcm", name, (long long)slice);
        if (names_add(l, path, e) < 0)
            return -1;
    }
    snprintf(path, sizeof path, "TCIA_pancreas_labels/label%s.nii.gz", name + strlen("PANCREAS_"));
    return phantom_role(o, index) == PHANTOM_UNLABELED ? 0 : names_add(l, path, e);
}

static int add_case(struct names *l, const struct phantom_options *o, int index, struct error *e)
{
    int rc, hidden = phantom_role(o, index) == PHANTOM_UNLABELED;
    char name[PHANTOM_NAME_BYTES];
    phantom_name(name, o, index);
    if (o->layout == LAYOUT_PANCREAS)
        rc = add_pancreas_case(l, o, index, name, e);
    else if (o->layout == LAYOUT_H5)
        rc = add_file(l, name, "mri_norm2", ".h5", e);
    else if (o->layout == LAYOUT_LA)
        rc = add_file(l, name, "lgemri", ".nrrd", e) < 0 ||
                     (!hidden && add_file(l, name, "laendo", ".nrrd", e) < 0)
                 ? -1
                 : 0;
    else
        rc = add_nifti_case(l, o, index, name, e);
    if (rc == 0 && hidden)
        rc = add_file(l, "truth", name, ".nii.gz", e) < 0 ? -1 : add_file(l, "rough", name, ".nii.gz", e);
    return rc;
}

static int add_set(struct names *l, const struct phantom_options *o, struct error *e)
{
    static const char *const index[][2] = {/* by layout; the others have lists */
                                           [LAYOUT_NNUNET] = {"dataset.json"},
                                           [LAYOUT_MSD] = {"dataset.json"},
                                           [LAYOUT_DATALIST] = {"datalist.json"}};
    static const char *const lists[2] = {"train.list", "test.list"};
    const char *const *small =
        o->layout != LAYOUT_PLAIN && o->layout <= LAYOUT_DATALIST ? index[o->layout] : lists;
    for (int n = 0; n < 2 && small[n]; n++)
        if (names_add(l, small[n], e) < 0)
            return -1;
    for (int n = 0; n < o->cases + o->test; n++)
        if (add_case(l, o, n, e) < 0)
            return -1;
    if (names_add(l, PHANTOM_RECORD, e) < 0 || names_add(l, PHANTOM_UNFINISHED, e) < 0)
        return -1;
    qsort(l->name, l->n, sizeof *l->name, by_text);
    return 0;
}

/* ---- what is there --------------------------------------------------------------------------- */

/* 1 for a folder of its own, 0 for anything else, links to folders among them. */
static int is_real_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int refuse(const char *folder, const char *what, struct error *e)
{
    fail(e, ERR_CONFIG, "O03", "holds %.150s, which falx phantom did not make; choose another folder", what);
    return fail_in(e, folder);
}

static int visit(const char *root, const char *below, const struct names *ours, int removing,
                 struct error *e);

/* One entry: refused if it is not ours, else removed if `removing`. */
static int visit_entry(const char *root, const char *name, const struct names *ours, int removing,
                       struct error *e)
{
    char *path = path_join(e, root, name);
    int is_folder = path && is_real_folder(path), rc = -1;
    char *key = mem_format(e, "%s%s", name, is_folder ? "/" : "");
    if (!path || !key)
        goto out;
    int is_rest = !is_folder && io_is_unfinished(path_name(name));
    if (!is_rest && !names_has(ours, key)) {
        refuse(root, key, e);
        goto out;
    }
    rc = is_folder ? visit(root, key, ours, removing, e) : 0;
    if (rc == 0 && removing && strcmp(name, PHANTOM_UNFINISHED) != 0 &&
        (is_folder ? rmdir(path) : io->unlink(path)) < 0) {
        fail_errno(e, errno, "cannot remove");
        rc = fail_in(e, path);
    }
out:
    mem_free(path);
    mem_free(key);
    return rc;
}

/* All entries of the folder root + "/" + below, with what lies in them. */
static int visit(const char *root, const char *below, const struct names *ours, int removing, struct error *e)
{
    struct io_listing l = {0};
    char *folder = path_join(e, root, below);
    int rc = folder ? io_list(&l, folder, e) : -1;
    for (int n = 0; n < l.n && rc == 0; n++) {
        char *name = mem_format(e, "%s%s", below, l.entry[n].name);
        rc = name ? visit_entry(root, name, ours, removing, e) : -1;
        mem_free(name);
    }
    io_listing_free(&l);
    mem_free(folder);
    return rc;
}

/* From here on no reader takes the folder for a data set. */
static int begin_removal(const char *record, const char *mark, struct error *e)
{
    if (!io_exists(record) || io->rename(record, mark) == 0)
        return 0;
    fail_errno(e, errno, "cannot rename");
    return fail_in(e, record);
}

int phantom_clear(const char *folder, int force, struct error *e)
{
    struct names ours = {0};
    struct phantom_options o;
    char *record = path_join(e, folder, PHANTOM_RECORD);
    char *mark = path_join(e, folder, PHANTOM_UNFINISHED);
    int rc = -1;
    if (!record || !mark || io_make_folders(folder, e) < 0)
        goto out;
    int half = io_exists(mark) && !is_real_folder(mark), whole = !half && io_exists(record);
    if (whole && !force) {
        fail(e, ERR_CONFIG, "O03", "holds a synthetic set; --force replaces it");
        fail_in(e, folder);
        goto out;
    }
    if ((half || whole) &&
        (phantom_read_record(&o, folder, half ? PHANTOM_UNFINISHED : PHANTOM_RECORD, e) < 0 ||
         add_set(&ours, &o, e) < 0))
        goto out;
    if (visit(folder, "", &ours, 0, e) < 0 || begin_removal(record, mark, e) < 0 ||
        visit(folder, "", &ours, 1, e) < 0)
        goto out;
    if (half || whole)
        io->unlink(mark);
    rc = 0;
out:
    names_free(&ours);
    mem_free(record);
    mem_free(mark);
    return rc;
}
