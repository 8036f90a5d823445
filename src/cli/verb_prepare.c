/* verb_prepare.c - `falx prepare DATASET -o FOLDER`: crop, resample and normalise a data set. */
#include <string.h>

#include "base/io.h"
#include "cli/config.h"
#include "data/dataset.h"
#include "prepare/prepare_set.h"

static void print_result(const char *folder, const struct prepare_summary *s)
{
    const struct recipe *r = &s->recipe;
    printf("%s: %d case%s by recipe %s: %d prepared, %d kept, %d left out", folder, s->n_cases,
           s->n_cases == 1 ? "" : "s", r->name, s->n_made, s->n_kept, s->n_bad);
    if (r->spacing_mm[0] > 0.0)
        printf("; %.4g x %.4g x %.4g mm", r->spacing_mm[0], r->spacing_mm[1], r->spacing_mm[2]);
    if (r->patch[0] > 0)
        printf("; patch %lld,%lld,%lld", (long long)r->patch[0], (long long)r->patch[1],
               (long long)r->patch[2]);
    printf("\n");
}

/* The exit code. */
static int prepare(const struct config *c, const struct dataset *d, struct pool *pool, struct error *e)
{
    struct progress_passes passes = {.config = c};
    struct prepare_summary summary;
    struct prepare_options o = {.preset = c->preset ? c->preset : "auto",
                                .folder = c->output,
                                .version = FALX_VERSION,
                                .seed = (uint64_t)c->set.seed,
                                .nan = (enum nan_policy)c->nan,
                                .crop = (enum crop_rule)c->crop,
                                .force = c->force,
                                .skip_bad = c->skip_bad,
                                .request = config_request(c),
                                .pool = pool,
                                .report = console_report(c),
                                .progress = progress_pass,
                                .progress_arg = &passes};
    if (d->note[0])
        report_line(o.report, REPORT_NOTE, d->root, NULL, "%s", d->note);
    int status = prepare_set(&summary, d, &o, e);
    progress_end(passes.line);
    if (status < 0)
        return complain(e);
    if (summary.n_bad > 0 && !c->skip_bad)
        return ERR_DATA; /* each was told in a line of its own */
    prepare_note_crop(o.report, d->root, &summary.recipe, summary.n_hidden);
    if (!c->quiet)
        print_result(c->output, &summary);
    return 0;
}

/* Even --force does not prepare a set in its own place, where every case would be replaced by itself. */
static int check_place(const struct config *c, const struct dataset *d, struct error *e)
{
    if (!io_is_same(c->output, d->root) && !io_is_same(c->output, c->args[0]))
        return 0;
    fail(e, ERR_CONFIG, "O01", "this is the data set to prepare, and would be replaced");
    return fail_in(e, c->output);
}

int verb_prepare(struct config *c)
{
    struct error e = {.code = ERR_NONE};
    struct dataset d = {0};
    struct pool *pool = NULL;
    struct dataset_options o = config_dataset(c);
    int code;
    if (pool_new(&pool, (int)c->threads, &e) < 0 || dataset_open(&d, c->args[0], &o, &e) < 0 ||
        check_place(c, &d, &e) < 0)
        code = complain(&e);
    else
        code = prepare(c, &d, pool, &e);
    dataset_free(&d);
    pool_free(pool);
    return code;
}
