/* layouts_h5.c - the research layout: one HDF5 file a case (`image`, `label`, already normalised), lists.
 *
 *     ROOT/CASE/mri_norm2.h5     Left Atrium, as shared with the first papers
 *     ROOT/CASE.h5               BraTS, ACDC; also below ROOT/data/ or the only other folder of ROOT
 *     ROOT/CASE_norm.h5          Pancreas
 *     train.list, test.list      in ROOT or one level above; order matters (lists.c)
 *
 * Image and label lie in one file, so a case's label path is its image path. Files without a
 * `label` exist (unlabelled pools); only the file itself can tell, so its header is asked.
 */
#include <string.h>

#include "data/layouts.h"

static int has_label(const char *path)
{
    struct volume v = {0};
    struct error e = {0};
    struct volume_request r = {.part = VOLUME_HEADER_ONLY, .member = "label"};
    int result = volume_read(&v, path, &r, &e);
    volume_free(&v);
    return result == 0 || strcmp(e.id, "H02") != 0; /* other faults are reported when it is loaded */
}

static int add_file(struct opening *w, const char *name, size_t n, const char *path, struct error *e)
{
    if (n > 5 && strncmp(name + n - 5, "_norm", 5) == 0)
        n -= 5;
    char *cut = mem_format(e, "%.*s", (int)n, name);
    int result = cut ? opening_add_files(w, cut, SPLIT_TRAIN, path, has_label(path) ? path : NULL, e) : -1;
    mem_free(cut);
    return result;
}

/* Adds what `folder` holds; answers how many cases that were, or -1. */
static int add_folder(struct opening *w, const char *folder, struct error *e)
{
    struct io_listing l;
    if (io_list(&l, folder, e) < 0)
        return -1;
    int found = 0;
    for (int i = 0; i < l.n && found >= 0; i++) {
        const char *name = l.entry[i].name;
        if (name[0] == '.' || name[0] == '_')
            continue;
        char *path = mem_format(e, l.entry[i].is_folder ? "%s/%s/mri_norm2.h5" : "%s/%s", folder, name);
        int is_case = !path                  ? -1
                      : l.entry[i].is_folder ? io_find(path, e)
                                             : text_ends_with(name, ".h5") || text_ends_with(name, ".hdf5");
        size_t n = l.entry[i].is_folder ? strlen(name) : stem_length(name);
        if (is_case < 0 || (is_case && add_file(w, name, n, path, e) < 0))
            found = -1;
        else
            found += is_case;
        mem_free(path);
    }
    io_listing_free(&l);
    return found;
}

int layout_open_h5(struct opening *w, struct error *e)
{
    w->d->layout = LAYOUT_H5;
    int found = add_folder(w, w->d->root, e);
    struct io_listing l = {NULL, 0};
    if (found == 0 && io_list(&l, w->d->root, e) < 0)
        return -1;
    for (int i = 0; i < l.n && found == 0; i++) {
        if (!l.entry[i].is_folder || l.entry[i].name[0] == '.' || l.entry[i].name[0] == '_')
            continue;
        char *folder = path_join(e, w->d->root, l.entry[i].name);
        found = folder ? add_folder(w, folder, e) : -1;
        mem_free(folder);
    }
    io_listing_free(&l);
    return found < 0 ? -1 : found > 0;
}
