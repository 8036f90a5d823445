/* verb_phantom.c - `falx phantom OUT`: a synthetic, reproducible data set. */
#include <string.h>

#include "base/io.h"
#include "cli/config.h"
#include "phantom/phantom.h"

static int options_from(struct phantom_options *o, const struct config *c, struct error *e)
{
    int64_t labeled = c->cases < 4 ? c->cases : 4; /* few labels, many scans: what falx is for */
    if (c->labeled && parse_int(&labeled, c->labeled) < 0)
        return fail(e, ERR_CONFIG, "C02",
                    "--labeled %s, allowed a number: phantom makes its own list", c->labeled);
    if (labeled > c->cases)
        return fail(e, ERR_CONFIG, "C02", "--labeled %lld, allowed 0..%lld (--cases)",
                    (long long)labeled, (long long)c->cases);
    *o = (struct phantom_options){
        .cases = (int)c->cases, .labeled = (int)labeled, .test = (int)c->test,
        .size = {c->size[0], c->size[1], c->size[2]}, .classes = (int)c->classes,
        .channels = (int)c->channels, .seed = (uint64_t)c->seed, .version = FALX_VERSION};
    if (phantom_layout(&o->layout, c->layout, e) < 0)
        return -1;
    return phantom_check(o, e);
}

/* What a synthetic set consists of, in any layout. */
static int is_ours(const char *name)
{
    static const char *const known[] = {"images",
                                        "labels",
                                        "truth",
                                        "rough",
                                        "imagesTr",
                                        "labelsTr",
                                        "imagesUn",
                                        "imagesTs",
                                        "labelsTs",
                                        "Pancreas-CT",
                                        "TCIA_pancreas_labels",
                                        "dataset.json",
                                        "datalist.json",
                                        "train.list",
                                        "test.list",
                                        "phantom.json"};
    for (size_t n = 0; n < sizeof known / sizeof known[0]; n++)
        if (strcmp(name, known[n]) == 0)
            return 1;
    return text_starts_with(name, "phantom_");
}

/* With --force an earlier set goes first: a label left over from it would be read as a label of the
 * new one. Only a folder with a phantom.json is cleared, and only of what a set consists of. */
static int clear_old_set(const char *folder, const struct io_listing *l, struct error *e)
{
    int is_set = 0;
    for (int n = 0; n < l->n; n++)
        is_set |= strcmp(l->entry[n].name, "phantom.json") == 0;
    for (int n = 0; is_set && n < l->n; n++) {
        if (!is_ours(l->entry[n].name))
            continue;
        char *path = path_join(e, folder, l->entry[n].name);
        if (!path)
            return -1;
        if (l->entry[n].is_folder)
            io_remove_tree(path);
        else
            io->unlink(path);
        mem_free(path);
    }
    return 0;
}

/* A folder with anything in it is somebody's work. */
static int claim_folder(const char *folder, int force, struct error *e)
{
    struct io_listing l = {0};
    if (!io_exists(folder))
        return 0;
    if (io_list(&l, folder, e) < 0)
        return -1;
    int rc = 0;
    if (force) {
        rc = clear_old_set(folder, &l, e);
    } else if (l.n > 0) {
        fail(e, ERR_CONFIG, NULL, "not empty (%d entries); use --force to write into it", l.n);
        rc = fail_in(e, folder);
    }
    io_listing_free(&l);
    return rc;
}

static void show_progress(void *arg, int64_t n)
{
    progress_at(arg, n);
}

int verb_phantom(struct config *c)
{
    struct error e;
    struct phantom_options o;
    struct pool *pool = NULL;
    const char *folder = c->args[0];
    if (options_from(&o, c, &e) < 0 || claim_folder(folder, c->force, &e) < 0 ||
        pool_new(&pool, (int)c->threads, &e) < 0)
        return complain(&e);
    struct progress *progress = progress_begin(c, "phantom", o.cases + o.test);
    int rc = phantom_write(folder, &o, pool, show_progress, progress, &e);
    progress_end(progress);
    pool_free(pool);
    if (rc < 0)
        return complain(&e);
    if (!c->quiet)
        printf("%s: %d training cases (%d labelled), %d test cases, layout %s, seed %lld\n", folder,
               o.cases, o.labeled, o.test, c->layout, (long long)c->seed);
    return 0;
}
