/* check_set.c - what shows only when cases are seen together. See check.h.
 *
 * Twins: equal hashes are the very same voxels; landmarks find the same scan cropped or scaled
 * otherwise. A scan that is in training and, voxel for voxel, in the test set makes every score a
 * lie: refused. The rest is a warning: the user may know.
 */
#include "data/check_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void problem(struct check_job *j)
{
    if (j->out->code == ERR_NONE)
        j->out->code = ERR_DATA;
}

/* ---- channels -------------------------------------------------------------------------------- */

static void check_channels(struct check_job *j)
{
    int64_t wanted = j->d->n_channels;
    char who[128] = "dataset.json";
    for (int i = 0; i < j->d->n_cases; i++) {
        const struct check_case *c = &j->out->cases[i];
        if (c->bad)
            continue;
        if (!wanted) {
            wanted = c->channels;
            snprintf(who, sizeof who, "case \"%.100s\"", j->d->cases[i].name);
        } else if (c->channels != wanted) {
            report_line(j->o->report, REPORT_PROBLEM, j->d->cases[i].images[0], "L14",
                        "%lld channel%s, %s has %lld", (long long)c->channels, c->channels == 1 ? "" : "s",
                        who, (long long)wanted);
            problem(j);
        }
    }
}

/* ---- classes --------------------------------------------------------------------------------- */

static int sum_classes(struct check_job *j, struct error *e)
{
    struct check_result *r = j->out;
    r->n_classes = j->d->n_classes;
    for (int i = 0; i < r->n_cases && !j->d->n_classes; i++)
        if (!r->cases[i].bad && r->cases[i].n_classes > r->n_classes)
            r->n_classes = r->cases[i].n_classes;
    r->voxels = mem_alloc(e, (size_t)r->n_classes, sizeof *r->voxels);
    r->cases_with = mem_alloc(e, (size_t)r->n_classes, sizeof *r->cases_with);
    if (!r->voxels || !r->cases_with)
        return -1;
    for (int i = 0; i < r->n_cases; i++)
        for (int k = 0; k < r->cases[i].n_classes && !r->cases[i].bad; k++) {
            r->voxels[k] += r->cases[i].voxels[k];
            if (j->d->cases[i].split == SPLIT_TRAIN)
                r->cases_with[k] += r->cases[i].voxels[k] > 0;
        }
    return 0;
}

/* The label that holds the highest class, if any has more classes than training takes. */
static int label_with_most(const struct check_job *j)
{
    int most = -1, n = DATASET_MOST_CLASSES;
    for (int i = 0; i < j->out->n_cases; i++)
        if (!j->out->cases[i].bad && j->out->cases[i].n_classes > n) {
            n = j->out->cases[i].n_classes;
            most = i;
        }
    return most;
}

/* One stray voxel of 65535 makes 65536 classes: told once, in the words of training. Which of them
 * have voxels is then of no use, so the result lists none. 1 if they were too many. */
static int refuse_many_classes(struct check_job *j)
{
    int n = j->out->n_classes, at = label_with_most(j);
    if (n <= DATASET_MOST_CLASSES)
        return 0;
    if (at < 0) { /* declared */
        report_line(j->o->report, REPORT_PROBLEM, j->d->root, "L05", "%d classes, allowed 2..%d", n,
                    DATASET_MOST_CLASSES);
    } else {
        const struct check_case *c = &j->out->cases[at];
        int64_t voxels = c->voxels[c->n_classes - 1];
        report_line(j->o->report, REPORT_PROBLEM, j->d->cases[at].label, "L05",
                    "%d classes, allowed 2..%d: label value %d is in %lld voxel%s", n, DATASET_MOST_CLASSES,
                    c->n_classes - 1, (long long)voxels, voxels == 1 ? "" : "s");
    }
    problem(j);
    j->out->n_classes = 0;
    return 1;
}

/* "2 (liver)", or "2" where classes have no names. */
static void class_text(char *out, size_t bytes, const struct check_job *j, int class)
{
    const char *name = j->d->class_names ? j->d->class_names[class] : NULL;
    snprintf(out, bytes, name ? "%d (%.60s)" : "%d", class, name);
}

/* Tells the run of missing classes that starts with `first`, in one line; answers its last. Training goes on
 * without them: a rare class need not be among few labels. */
static int tell_missing(struct check_job *j, int first)
{
    char from[100], to[100];
    int last = first;
    while (last + 1 < j->out->n_classes && j->out->voxels[last + 1] == 0)
        last++;
    class_text(from, sizeof from, j, first);
    class_text(to, sizeof to, j, last);
    if (first == last)
        report_line(j->o->report, REPORT_WARNING, j->d->root, "L07",
                    "class %s has no voxel in any label and cannot be learnt; --label-map can close the gap",
                    from);
    else
        report_line(j->o->report, REPORT_WARNING, j->d->root, "L07",
                    "classes %s to %s have no voxel in any label and cannot be learnt; --label-map can close "
                    "the gap",
                    from, to);
    return last;
}

static void check_classes(struct check_job *j)
{
    const struct check_result *r = j->out;
    int labeled = dataset_count(j->d, SPLIT_TRAIN, 1), in_test = dataset_count(j->d, SPLIT_TEST, 1);
    int seen = 0; /* classes with an example, for training if there is any */
    if (r->n_classes == 0 || labeled + in_test == 0)
        return;
    for (int k = 1; k < r->n_classes; k++)
        seen += labeled ? r->cases_with[k] > 0 : r->voxels[k] > 0;
    if (seen == 0) {
        report_line(j->o->report, REPORT_PROBLEM, j->d->root, "L07", "no label has any foreground");
        problem(j);
        return;
    }
    for (int k = 1; k < r->n_classes; k++) {
        if (r->voxels[k] == 0) {
            k = tell_missing(j, k);
        } else if (r->cases_with[k] == 0 && labeled > 0) {
            char class[100];
            class_text(class, sizeof class, j, k);
            report_line(j->o->report, REPORT_WARNING, j->d->root, "L07",
                        "class %s is in test labels only and cannot be learnt", class);
        }
    }
}

/* ---- twins ----------------------------------------------------------------------------------- */

static int by_hash(const void *p, const void *q)
{
    const struct check_case *x = *(const struct check_case *const *)p;
    const struct check_case *y = *(const struct check_case *const *)q;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x > y) - (x < y);
}

static int by_cases(const void *p, const void *q)
{
    const struct twin *x = p, *y = q;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return (x->b > y->b) - (x->b < y->b);
}

/* Equal hashes: each case with the first of its kind. Training cases come before test cases, so a
 * case on both sides always shows. Answers how many were written to `out`. */
static int exact_twins(struct twin *out, const struct check_case **sorted, int n,
                       const struct check_case *cases)
{
    int found = 0, first = 0;
    for (int i = 1; i < n; i++) {
        if (sorted[i]->hash != sorted[first]->hash)
            first = i;
        else
            out[found++] =
                (struct twin){.a = (int)(sorted[first] - cases), .b = (int)(sorted[i] - cases), .exact = 1};
    }
    return found;
}

static int find_twins(struct check_job *j, struct error *e)
{
    struct check_result *r = j->out;
    struct twin *near = NULL;
    int n_near, n = 0, result = -1;
    const struct check_case **sorted = mem_alloc(e, (size_t)r->n_cases, sizeof *sorted);
    if (!sorted || landmarks_find_twins(&near, &n_near, j->points, r->n_cases, e) < 0)
        goto out;
    for (int i = 0; i < r->n_cases; i++)
        if (!r->cases[i].bad && !r->cases[i].constant)
            sorted[n++] = &r->cases[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_hash);
    r->twins = mem_alloc(e, (size_t)n + (size_t)n_near, sizeof *r->twins);
    if (!r->twins)
        goto out;
    r->n_twins = exact_twins(r->twins, sorted, n, r->cases);
    for (int i = 0; i < n_near; i++)
        if (r->cases[near[i].a].hash != r->cases[near[i].b].hash)
            r->twins[r->n_twins++] = near[i];
    qsort(r->twins, (size_t)r->n_twins, sizeof *r->twins, by_cases);
    result = 0;
out:
    mem_free(sorted);
    mem_free(near);
    return result;
}

static const char *role(const struct data_case *c)
{
    return c->split == SPLIT_TEST ? "test" : c->label ? "labelled" : "unlabelled";
}

/* Pairs of cases by what they mean for a split. */
enum pair_kind { PAIR_LEAK, PAIR_IDENTICAL, PAIR_SIMILAR, PAIR_KINDS };
enum { PAIRS_SHOWN = 3 }; /* from one more on, one line with that many examples */

static const struct {
    const char *many, *advice;
    enum report_kind kind;
} pair_rows[PAIR_KINDS] = {
    [PAIR_LEAK] = {"test cases are identical to training cases", "exclude one of each pair with --leave-out",
                   REPORT_PROBLEM},
    [PAIR_IDENTICAL] = {"pairs of cases are identical", "exclude one of each pair with --leave-out",
                        REPORT_WARNING},
    [PAIR_SIMILAR] = {"pairs of cases look like the same scan",
                      "keep each pair on one side of a split: list both in one file (--labeled, --leave-out)",
                      REPORT_WARNING},
};

static enum pair_kind kind_of(const struct check_job *j, const struct twin *t)
{
    if (!t->exact)
        return PAIR_SIMILAR;
    return j->d->cases[t->a].split != j->d->cases[t->b].split ? PAIR_LEAK : PAIR_IDENTICAL;
}

static void report_pair(struct check_job *j, const struct twin *t, enum pair_kind kind)
{
    const struct data_case *a = &j->d->cases[t->a], *b = &j->d->cases[t->b];
    char how[100] = "identical to";
    if (!t->exact)
        snprintf(how, sizeof how, "the same scan shifted by (%d, %d, %d) voxels as", t->offset[0],
                 t->offset[1], t->offset[2]);
    report_line(j->o->report, pair_rows[kind].kind, b->images[0], "L09",
                "%s case \"%.60s\" is %s %s case \"%.60s\"", role(b), b->name, how, role(a), a->name);
}

/* `pairs` of one kind in one line: the count, examples, what to do. */
static void report_many(struct check_job *j, const struct twin *const *pairs, int n, enum pair_kind kind)
{
    char shown[200] = "";
    for (int i = 0; i < PAIRS_SHOWN; i++) {
        size_t used = strlen(shown);
        snprintf(shown + used, sizeof shown - used, "%s%.28s and %.28s", i ? ", " : "",
                 j->d->cases[pairs[i]->a].name, j->d->cases[pairs[i]->b].name);
    }
    report_line(j->o->report, pair_rows[kind].kind, NULL, "L09", "%d %s (%s, ...); %s", n,
                pair_rows[kind].many, shown, pair_rows[kind].advice);
}

static int report_twins(struct check_job *j, struct error *e)
{
    const struct check_result *r = j->out;
    const struct twin **pairs = mem_alloc(e, (size_t)r->n_twins, sizeof *pairs);
    if (!pairs)
        return -1;
    for (enum pair_kind kind = 0; kind < PAIR_KINDS; kind++) {
        int n = 0;
        for (int i = 0; i < r->n_twins; i++)
            if (kind_of(j, &r->twins[i]) == kind)
                pairs[n++] = &r->twins[i];
        if (n > PAIRS_SHOWN)
            report_many(j, pairs, n, kind);
        for (int i = 0; i < n && n <= PAIRS_SHOWN; i++)
            report_pair(j, pairs[i], kind);
        if (n && pair_rows[kind].kind == REPORT_PROBLEM)
            problem(j);
    }
    mem_free(pairs);
    return 0;
}

/* ---- what training will do ------------------------------------------------------------------- */

static void check_patch(struct check_job *j)
{
    const int64_t *p = j->o->patch;
    int smaller = 0, least = 0;
    for (int i = 0; i < j->out->n_cases; i++) {
        const struct check_case *c = &j->out->cases[i];
        if (c->bad || (c->dims[0] >= p[0] && c->dims[1] >= p[1] && c->dims[2] >= p[2]))
            continue;
        if (smaller++ == 0)
            least = i;
    }
    if (!smaller)
        return;
    const struct check_case *c = &j->out->cases[least];
    report_line(j->o->report, REPORT_WARNING, j->d->cases[least].images[0], "C03",
                "%lldx%lldx%lld voxels, less than the patch of %lldx%lldx%lld: %d such volume%s will be "
                "padded",
                (long long)c->dims[0], (long long)c->dims[1], (long long)c->dims[2], (long long)p[0],
                (long long)p[1], (long long)p[2], smaller, smaller == 1 ? "" : "s");
}

static void check_batch(struct check_job *j)
{
    struct report *r = j->o->report;
    int labeled = dataset_count(j->d, SPLIT_TRAIN, 1), rest = dataset_count(j->d, SPLIT_TRAIN, 0);
    if (labeled == 0)
        report_line(r, REPORT_NOTE, NULL, NULL, "no labelled training case: only for predicting");
    else if (rest == 0)
        report_line(r, REPORT_NOTE, NULL, NULL,
                    "no unlabelled training case: batches are drawn from labelled ones only");
    if (labeled > 0 && labeled < j->o->labeled_batch)
        report_line(r, REPORT_NOTE, NULL, NULL,
                    "%d labelled case%s for %lld in a batch: cases will repeat within a batch", labeled,
                    labeled == 1 ? "" : "s", (long long)j->o->labeled_batch);
}

/* Leaving out every case leaves nothing, which preparing refuses alike. */
static void refuse_none_left(struct check_job *j)
{
    report_line(j->o->report, REPORT_PROBLEM, j->d->root, "L01", "no case that can be prepared");
    problem(j);
}

int check_set(struct check_job *j, struct error *e)
{
    check_channels(j);
    if (sum_classes(j, e) < 0)
        return -1;
    int many = refuse_many_classes(j);
    if (j->o->skip_bad && j->out->n_bad == j->out->n_cases)
        refuse_none_left(j);
    else if (!many && (j->out->n_bad == 0 || j->o->skip_bad)) /* bad: a class may hide there */
        check_classes(j);
    if (find_twins(j, e) < 0 || report_twins(j, e) < 0)
        return -1;
    check_patch(j);
    check_batch(j);
    return 0;
}
