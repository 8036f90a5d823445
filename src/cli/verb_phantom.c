/* verb_phantom.c - `falx phantom OUT`: a synthetic, reproducible data set. */
#include <string.h>

#include "base/io.h"
#include "cli/config.h"
#include "phantom/phantom.h"

static int options_from(struct phantom_options *o, const struct config *c, struct error *e)
{
    int64_t labeled = c->labels;
    if (labeled == 0) /* few labels, many scans: what falx is for */
        labeled = c->cases < 4 ? c->cases : 4;
    if (labeled > c->cases)
        return fail(e, ERR_CONFIG, "C03", "--labeled %lld, allowed 1..%lld (--cases)", (long long)labeled,
                    (long long)c->cases);
    *o = (struct phantom_options){.cases = (int)c->cases,
                                  .labeled = (int)labeled,
                                  .test = (int)c->test,
                                  .size = {c->size[0], c->size[1], c->size[2]},
                                  .classes = (int)c->classes,
                                  .channels = (int)c->channels,
                                  .seed = (uint64_t)c->set.seed,
                                  .version = FALX_VERSION};
    if (phantom_layout(&o->layout, c->layout, e) < 0)
        return -1;
    return phantom_check(o, e);
}

/* Clears the folder and fills it, alone in it. */
static int make_set(const char *folder, const struct config *c, const struct phantom_options *o,
                    struct pool *pool, struct error *e)
{
    int lock;
    if (io_make_folders(folder, e) < 0 || io_lock_folder(&lock, folder, e) < 0)
        return -1;
    int rc = phantom_clear(folder, c->force, e);
    if (rc == 0) {
        struct progress *progress = progress_begin(c, "phantom", o->cases + o->test);
        rc = phantom_write(folder, o, pool, progress_count, progress, e);
        progress_end(progress);
    }
    io_unlock_folder(lock);
    return rc;
}

int verb_phantom(struct config *c)
{
    struct error e;
    struct phantom_options o;
    struct pool *pool = NULL;
    const char *folder = c->args[0];
    if (options_from(&o, c, &e) < 0 || pool_new(&pool, (int)c->threads, &e) < 0)
        return complain(&e);
    int rc = make_set(folder, c, &o, pool, &e);
    pool_free(pool);
    if (rc < 0)
        return complain(&e);
    if (!c->quiet)
        printf("%s: %d training cases (%d labelled), %d test cases, layout %s, seed %lld\n", folder, o.cases,
               o.labeled, o.test, c->layout, (long long)c->set.seed);
    return 0;
}
