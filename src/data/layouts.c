/* layouts.c - what all layouts share: walking folders, building cases.
 *
 * A folder is read once into a `struct scan`: files sorted by stem, so that an image finds its
 * label by bisection. Hidden and underscore files (the droppings of macOS and of archive tools) are
 * left out, as are notes, and the data files that belong to a header file next to them.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/layouts.h"

/* ---- building cases -------------------------------------------------------------------------- */

struct data_case *opening_add(struct opening *w, const char *name, enum split split, struct error *e)
{
    struct dataset *d = w->d;
    if (d->n_cases == w->capacity) {
        int more = w->capacity > INT_MAX / 2 ? INT_MAX : 2 * w->capacity + 16;
        struct data_case *grown = mem_resize(e, d->cases, (size_t)more, sizeof *grown);
        if (!grown)
            return NULL;
        d->cases = grown;
        w->capacity = more;
    }
    struct data_case *c = &d->cases[d->n_cases];
    memset(c, 0, sizeof *c);
    c->split = split;
    c->name = mem_string(e, name);
    if (!c->name)
        return NULL;
    for (char *slash = strchr(c->name, '/'); slash; slash = strchr(slash, '/'))
        *slash = '_'; /* names of outputs begin with it: it must not lead anywhere */
    d->n_cases++;
    return c;
}

int case_add_image(struct data_case *c, const char *path, struct error *e)
{
    char **grown = mem_resize(e, c->images, (size_t)c->n_images + 1, sizeof *grown);
    if (!grown)
        return -1;
    c->images = grown;
    c->images[c->n_images] = mem_string(e, path);
    if (!c->images[c->n_images])
        return -1;
    c->n_images++;
    return 0;
}

int case_add_channels(struct opening *w, struct data_case *c, const char *path, struct error *e)
{
    const char *name = path_name(path), *ending = name + stem_length(name);
    for (int channel = 0;; channel++) {
        char *file = mem_format(e, "%.*s_%04d%s", (int)(ending - path), path, channel, ending);
        int there = file ? io_find(file, e) : -1;
        if (there == 1 && (opening_contain(w, file, e) < 0 || case_add_image(c, file, e) < 0))
            there = -1;
        mem_free(file);
        if (there != 1)
            return there < 0 ? -1 : channel;
    }
}

int case_set_label(struct data_case *c, const char *path, struct error *e)
{
    mem_free(c->label);
    c->label = mem_string(e, path);
    return c->label ? 0 : -1;
}

void case_free(struct data_case *c)
{
    for (int i = 0; i < c->n_images; i++)
        mem_free(c->images[i]);
    mem_free(c->images);
    mem_free(c->label);
    mem_free(c->hidden_label);
    mem_free(c->name);
    memset(c, 0, sizeof *c);
}

int opening_add_files(struct opening *w, const char *name, enum split split, const char *image,
                      const char *label, struct error *e)
{
    struct data_case *c = opening_add(w, name, split, e);
    if (!c || opening_contain(w, image, e) < 0 || case_add_image(c, image, e) < 0)
        return -1;
    int there = label ? io_find(label, e) : 0;
    if (there != 1)
        return there;
    return opening_contain(w, label, e) < 0 ? -1 : case_set_label(c, label, e);
}

int opening_set_classes(struct opening *w, const char *const *names, int n, struct error *e)
{
    struct dataset *d = w->d;
    d->class_names = mem_alloc(e, (size_t)n, sizeof *d->class_names);
    if (!d->class_names)
        return -1;
    for (d->n_classes = 0; d->n_classes < n; d->n_classes++) {
        int k = d->n_classes;
        d->class_names[k] = names[k] ? mem_string(e, names[k]) : mem_format(e, "class %d", k);
        if (!d->class_names[k])
            return -1;
    }
    return 0;
}

void opening_note(struct opening *w, const char *fmt, ...)
{
    size_t used = strlen(w->d->note), cap = sizeof w->d->note;
    if (used && used + 3 < cap) {
        memcpy(w->d->note + used, "; ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->d->note + used, cap - used, fmt, args);
    va_end(args);
}

/* ---- files and folders ----------------------------------------------------------------------- */

int opening_contain(struct opening *w, const char *path, struct error *e)
{
    if (w->o->follow || !w->real_root) /* a lone file has no root that it could lead out of */
        return 0;
    char real[PATH_MAX];
    if (!realpath(path, real))
        return 0;
    size_t n = strlen(w->real_root);
    int inside = strncmp(real, w->real_root, n) == 0 &&
                 (real[n] == '/' || real[n] == '\0' || strcmp(w->real_root, "/") == 0);
    if (inside)
        return 0;
    fail(e, ERR_DATA, "L11", "a link out of the data set (--follow allows it)");
    return fail_in(e, path);
}

int name_leads_out(const char *name)
{
    if (*name == '/')
        return 1;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return 1;
    }
    return 0;
}

char *opening_path(struct opening *w, const char *name, struct error *e)
{
    if (!w->o->follow && name_leads_out(name)) {
        fail(e, ERR_DATA, "L11", "\"%.100s\" leads out of the data set (--follow allows it)", name);
        return NULL;
    }
    while (name[0] == '.' && name[1] == '/')
        name += 1 + strspn(name + 1, "/"); /* ".//x" is x, not /x */
    char *path = *name == '/' ? mem_string(e, name) : path_join(e, w->d->root, name);
    if (path && opening_contain(w, path, e) == 0)
        return path;
    mem_free(path);
    return NULL;
}

/* A link that leads nowhere, to what is not mounted for example, is no folder that is missing. */
int opening_has_folder(struct opening *w, const char *name, struct error *e)
{
    struct stat st;
    char *path = path_join(e, w->d->root, name);
    int found = path ? io_find(path, e) : -1;
    if (found == 1 && stat(path, &st) < 0) {
        fail_errno(e, errno, "cannot open");
        found = fail_in(e, path);
    } else if (found == 1) {
        found = S_ISDIR(st.st_mode) ? 1 : 0;
    }
    mem_free(path);
    return found;
}

int opening_has_file(struct opening *w, const char *name, struct error *e)
{
    char *path = path_join(e, w->d->root, name);
    int found = path ? io_find(path, e) : -1;
    if (found == 1)
        found = !io_is_folder(path);
    mem_free(path);
    return found;
}

/* Longer endings first. */
static const char *const volume_endings[] = {".nii.gz", ".hdr.gz", ".img.gz", ".seg.nrrd", ".nii",
                                             ".hdr",    ".img",    ".nrrd",   ".nhdr",     ".mha",
                                             ".mhd",    ".h5",     ".hdf5"};
/* Text, pictures, and voxels whose header is another file. */
static const char *const other_endings[] = {".txt",  ".json",   ".csv",  ".tsv",  ".md",   ".xml", ".list",
                                            ".html", ".pdf",    ".log",  ".ini",  ".db",   ".png", ".jpg",
                                            ".raw",  ".raw.gz", ".zraw", ".bval", ".bvec", ".sh",  ".py"};

size_t stem_length(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof volume_endings / sizeof *volume_endings; i++) {
        size_t m = strlen(volume_endings[i]);
        if (n > m && text_ends_with_nocase(name, volume_endings[i]))
            return n - m;
    }
    return n;
}

int name_is_other(const char *name)
{
    for (size_t i = 0; i < sizeof other_endings / sizeof *other_endings; i++)
        if (text_ends_with_nocase(name, other_endings[i]))
            return 1;
    return 0;
}

static int by_entry(const void *name, const void *entry)
{
    return strcmp(name, ((const struct io_entry *)entry)->name);
}

/* x.img next to x.hdr: the header is the volume. */
static int is_data_of_pair(const struct io_listing *l, const char *name)
{
    static const char *const endings[2] = {".hdr", ".hdr.gz"};
    size_t n = stem_length(name);
    char header[300];
    if (strncmp(name + n, ".img", 4) != 0 || n > 255)
        return 0;
    for (int i = 0; i < 2; i++) {
        snprintf(header, sizeof header, "%.*s%s", (int)n, name, endings[i]);
        if (bsearch(header, l->entry, (size_t)l->n, sizeof *l->entry, by_entry))
            return 1;
    }
    return 0;
}

static int is_volume(const struct io_listing *l, const struct io_entry *entry, const char *ending)
{
    const char *name = entry->name;
    if (name[0] == '.' || name[0] == '_')
        return 0;
    if (ending)
        return !entry->is_folder && text_ends_with(name, ending) && strlen(name) > strlen(ending);
    if (entry->is_folder)
        return 1;
    return !name_is_other(name) && !is_data_of_pair(l, name);
}

static int by_stem(const void *a, const void *b)
{
    return strcmp(((const struct scan_file *)a)->stem, ((const struct scan_file *)b)->stem);
}

static int refuse_twins(const struct scan *s, struct error *e)
{
    for (int i = 1; i < s->n; i++)
        if (strcmp(s->file[i - 1].stem, s->file[i].stem) == 0) {
            fail(e, ERR_DATA, "L14", "two files for case \"%.80s\": also %.100s", s->file[i].stem,
                 path_name(s->file[i].path));
            return fail_in(e, s->file[i - 1].path);
        }
    return 0;
}

/* Only a link can lead out of a folder that lies inside. */
static int contain_if_link(struct opening *w, const char *path, struct error *e)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISLNK(st.st_mode))
        return 0;
    return opening_contain(w, path, e);
}

int scan_folder(struct scan *out, struct opening *w, const char *folder, const char *ending, struct error *e)
{
    struct io_listing l = {NULL, 0};
    char *path = strcmp(folder, ".") ? path_join(e, w->d->root, folder) : mem_string(e, w->d->root);
    int result = -1;
    memset(out, 0, sizeof *out);
    if (!path || opening_contain(w, path, e) < 0 || io_list(&l, path, e) < 0)
        goto out;
    out->file = mem_alloc(e, (size_t)l.n, sizeof *out->file);
    if (!out->file)
        goto out;
    for (int i = 0; i < l.n; i++) {
        if (!is_volume(&l, &l.entry[i], ending))
            continue;
        const char *name = l.entry[i].name;
        size_t n = ending                 ? strlen(name) - strlen(ending)
                   : l.entry[i].is_folder ? strlen(name)
                                          : stem_length(name);
        struct scan_file *f = &out->file[out->n];
        f->stem = mem_format(e, "%.*s", (int)n, name);
        f->path = path_join(e, path, name);
        out->n++;
        if (!f->stem || !f->path || contain_if_link(w, f->path, e) < 0)
            goto out;
    }
    qsort(out->file, (size_t)out->n, sizeof *out->file, by_stem);
    result = refuse_twins(out, e);
out:
    io_listing_free(&l);
    mem_free(path);
    if (result < 0)
        scan_free(out);
    return result;
}

void scan_free(struct scan *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free(s->file[i].stem);
        mem_free(s->file[i].path);
    }
    mem_free(s->file);
    memset(s, 0, sizeof *s);
}

struct scan_file *scan_find(const struct scan *s, const char *stem)
{
    struct scan_file key = {(char *)(uintptr_t)stem, NULL, 0};
    return s->n ? bsearch(&key, s->file, (size_t)s->n, sizeof key, by_stem) : NULL;
}
