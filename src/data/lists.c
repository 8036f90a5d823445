/* lists.c - names of cases: list files, the order and split they give, and which labels may be
 * seen.
 *
 * A list file holds one name a line. The research code of this field takes "the first N lines" as
 * the labelled cases, so order is part of the data set. Lookups go through one sorted index: a set
 * of 100,000 cases must not cost 10^10 comparisons.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/layouts.h"

enum { LIST_MAX_BYTES = 64 << 20 }; /* 100,000 names of 255 bytes, twice over */

/* ---- list files ------------------------------------------------------------------------------ */

static char *trim(char *line)
{
    while (*line == ' ' || *line == '\t')
        line++;
    size_t n = strlen(line);
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
        line[--n] = '\0';
    return line;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int refuse_twins(const struct list *l, struct error *e)
{
    char **sorted = mem_alloc(e, (size_t)l->n, sizeof *sorted);
    if (!sorted)
        return -1;
    if (l->n)
        memcpy(sorted, l->name, (size_t)l->n * sizeof *sorted);
    qsort(sorted, (size_t)l->n, sizeof *sorted, by_text);
    int result = 0;
    for (int i = 1; i < l->n && result == 0; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            result = fail(e, ERR_DATA, "L09", "names \"%.100s\" twice", sorted[i]);
    mem_free(sorted);
    return result;
}

int list_parse(struct list *out, char *text, int follow, struct error *e)
{
    memset(out, 0, sizeof *out);
    out->text = text;
    size_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    out->name = mem_alloc(e, lines, sizeof *out->name);
    if (!out->name)
        goto bad;
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        char *name = trim(line);
        if (*name == '\0' || *name == '#')
            continue;
        if (!follow && name_leads_out(name)) {
            fail(e, ERR_DATA, "L11", "line %d: \"%.100s\" leads out of the data set (--follow allows it)",
                 number, name);
            goto bad;
        }
        out->name[out->n++] = name;
    }
    if (refuse_twins(out, e) < 0)
        goto bad;
    return 0;
bad:
    list_free(out);
    return -1;
}

static int list_read(struct list *out, const char *path, int follow, struct error *e)
{
    memset(out, 0, sizeof *out);
    char *text;
    if (io_read_text(&text, NULL, path, LIST_MAX_BYTES, e) < 0)
        return -1;
    return list_parse(out, text, follow, e) < 0 ? fail_in(e, path) : 0;
}

void list_free(struct list *l)
{
    mem_free(l->name);
    mem_free(l->text);
    memset(l, 0, sizeof *l);
}

/* ---- the index ------------------------------------------------------------------------------- */

struct name_slot {
    const char *name; /* borrowed from the case */
    int at;
};
struct name_index {
    struct name_slot *slot; /* sorted by name, then by position */
    int n;
};

static int by_name(const void *a, const void *b)
{
    const struct name_slot *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static int by_name_nocase(const void *a, const void *b)
{
    int order = strcasecmp(((const struct name_slot *)a)->name, ((const struct name_slot *)b)->name);
    return order ? order : by_name(a, b);
}

static int by_name_alone(const void *a, const void *b)
{
    return strcmp(((const struct name_slot *)a)->name, ((const struct name_slot *)b)->name);
}

static int index_names(struct name_index *x, const struct dataset *d, struct error *e)
{
    x->n = d->n_cases;
    x->slot = mem_alloc(e, (size_t)x->n, sizeof *x->slot);
    if (!x->slot)
        return -1;
    for (int i = 0; i < x->n; i++)
        x->slot[i] = (struct name_slot){d->cases[i].name, i};
    qsort(x->slot, (size_t)x->n, sizeof *x->slot, by_name);
    return 0;
}

/* Position of the case, or -1. */
static int find_name(const struct name_index *x, const char *name)
{
    struct name_slot key = {name, 0};
    struct name_slot *found = bsearch(&key, x->slot, (size_t)x->n, sizeof key, by_name_alone);
    return found ? found->at : -1;
}

int names_find_twins(int *a, int *b, const struct dataset *d, struct error *e)
{
    struct name_index x;
    if (index_names(&x, d, e) < 0)
        return -1;
    int found = 0;
    for (int i = 1; i < x.n && !found; i++) {
        found = by_name_alone(&x.slot[i - 1], &x.slot[i]) == 0;
        *a = x.slot[i - 1].at;
        *b = x.slot[i].at;
    }
    mem_free(x.slot);
    return found;
}

int lists_check_names(struct opening *w, struct error *e)
{
    const struct dataset *d = w->d;
    struct name_index x;
    int a, b, twins = names_find_twins(&a, &b, d, e);
    if (twins == 1) {
        fail(e, ERR_DATA, "L09", "two cases are named \"%.60s\": %.80s and %.80s", d->cases[a].name,
             d->cases[a].images[0], d->cases[b].images[0]);
        fail_in(e, d->root);
    }
    if (twins || index_names(&x, d, e) < 0)
        return -1;
    qsort(x.slot, (size_t)x.n, sizeof *x.slot, by_name_nocase);
    for (int i = 1; i < x.n; i++)
        if (strcasecmp(x.slot[i - 1].name, x.slot[i].name) == 0)
            report_line(w->o->report, REPORT_WARNING, d->root, "L01",
                        "cases \"%.100s\" and \"%.100s\" differ only in letter case", x.slot[i - 1].name,
                        x.slot[i].name);
    mem_free(x.slot);
    return 0;
}

static int find_part(const struct name_index *x, const char *text, size_t n)
{
    char name[256];
    if (n >= sizeof name)
        return -1;
    memcpy(name, text, n);
    name[n] = '\0';
    return find_name(x, name);
}

/* The case a list entry means: the name itself, or a path whose last part, or folder, is the name.
 */
static int find_entry(const struct name_index *x, const char *entry)
{
    const char *last = path_name(entry);
    int at = find_name(x, entry);
    if (at < 0)
        at = find_part(x, last, stem_length(last));
    if (at < 0 && last - entry > 1) /* "CASE/mri_norm2.h5" */
        at = find_part(x, entry, (size_t)(last - entry) - 1);
    return at;
}

/* ---- order and split ------------------------------------------------------------------------- */

/* Reads folder/NAME.list or NAME.txt; *path is its path, NULL if neither is there. */
static int read_if_there(struct list *out, char **path, const char *folder, const char *name, int follow,
                         struct error *e)
{
    static const char *const endings[] = {".list", ".txt"};
    memset(out, 0, sizeof *out);
    *path = NULL;
    for (int i = 0; i < 2; i++) {
        char *p = mem_format(e, "%s/%s%s", folder, name, endings[i]);
        int there = p ? io_find(p, e) : -1;
        if (there == 1) {
            *path = p;
            return list_read(out, p, follow, e);
        }
        mem_free(p);
        if (there < 0)
            return -1;
    }
    return 0;
}

struct order {   /* what the lists make of w->d->cases */
    int *from;   /* n positions, in the new order */
    char *taken; /* of every case: is it among them? */
    int n;
};

static void take(struct order *o, int at)
{
    o->from[o->n++] = at;
    o->taken[at] = 1;
}

/* The cases of one list come next. */
static int take_list(struct order *o, struct dataset *d, const struct name_index *x, const struct list *l,
                     const char *path, enum split split, struct error *e)
{
    for (int i = 0; i < l->n; i++) {
        int at = find_entry(x, l->name[i]);
        if (at < 0 || o->taken[at]) {
            if (at < 0)
                fail(e, ERR_DATA, "L01", "names \"%.100s\", for which there is no image", l->name[i]);
            else
                fail(e, ERR_DATA, "L09",
                     "\"%.100s\" is already on a list: train and test must not share "
                     "cases",
                     l->name[i]);
            return fail_in(e, path);
        }
        take(o, at);
        d->cases[at].split = split;
    }
    return 0;
}

static int reorder(struct dataset *d, const struct order *o, struct error *e)
{
    struct data_case *sorted = mem_alloc(e, (size_t)d->n_cases, sizeof *sorted);
    if (!sorted)
        return -1;
    for (int i = 0; i < d->n_cases; i++)
        if (!o->taken[i])
            case_free(&d->cases[i]);
    for (int i = 0; i < o->n; i++)
        sorted[i] = d->cases[o->from[i]];
    mem_free(d->cases);
    d->cases = sorted;
    d->n_cases = o->n;
    return 0;
}

/* Does any entry of the list name a case? Lists one level up may belong to other data. */
static int fits(const struct list *l, const struct name_index *x)
{
    for (int i = 0; i < l->n; i++)
        if (find_entry(x, l->name[i]) >= 0)
            return 1;
    return 0;
}

/* Takes the lists' cases, then those whose own list is absent; the others are left out. */
static int apply(struct opening *w, const struct name_index *x, const struct list list[2],
                 char *const path[2], struct error *e)
{
    struct dataset *d = w->d;
    int result = -1, n = d->n_cases;
    struct order o = {mem_alloc(e, (size_t)n, sizeof *o.from), mem_alloc(e, (size_t)n, 1), 0};
    if (!o.from || !o.taken)
        goto out;
    for (int split = SPLIT_TRAIN; split <= SPLIT_TEST; split++)
        if (take_list(&o, d, x, &list[split], path[split], (enum split)split, e) < 0)
            goto out;
    for (int i = 0; i < n; i++)
        if (!o.taken[i] && !path[d->cases[i].split])
            take(&o, i);
    if (reorder(d, &o, e) < 0)
        goto out;
    w->capacity = n;
    d->note[0] = '\0'; /* a published split does not hold any more */
    if (o.n < n)
        opening_note(w, "%d case%s on no list left out", n - o.n, n - o.n == 1 ? "" : "s");
    result = 1;
out:
    mem_free(o.from);
    mem_free(o.taken);
    return result;
}

int lists_apply(struct opening *w, const char *folder, struct error *e)
{
    struct list list[2] = {{0}}; /* by enum split */
    char *path[2] = {NULL, NULL};
    struct name_index x = {NULL, 0};
    int result = -1;
    if (read_if_there(&list[SPLIT_TRAIN], &path[SPLIT_TRAIN], folder, "train", w->o->follow, e) < 0 ||
        read_if_there(&list[SPLIT_TEST], &path[SPLIT_TEST], folder, "test", w->o->follow, e) < 0 ||
        index_names(&x, w->d, e) < 0)
        goto out;
    int ours = strcmp(folder, w->d->root) == 0 || fits(&list[0], &x) || fits(&list[1], &x);
    result = ours && (path[0] || path[1]) ? apply(w, &x, list, path, e) : 0;
out:
    mem_free(x.slot);
    for (int split = 0; split < 2; split++) {
        list_free(&list[split]);
        mem_free(path[split]);
    }
    return result;
}

int dataset_mark_listed(char *mark, const struct dataset *d, const char *path, int follow, struct error *e)
{
    struct list l;
    struct name_index x = {NULL, 0};
    int result = -1;
    if (list_read(&l, path, follow, e) < 0)
        return -1;
    if (index_names(&x, d, e) < 0)
        goto out;
    for (int i = 0; i < l.n; i++) {
        int at = find_entry(&x, l.name[i]);
        if (at < 0) {
            fail(e, ERR_DATA, "L01", "names \"%.100s\", which is no case", l.name[i]);
            fail_in(e, path);
            goto out;
        }
        mark[at] = 1;
    }
    result = l.n;
out:
    mem_free(x.slot);
    list_free(&l);
    return result;
}

int dataset_mark_last(char *mark, const struct dataset *d, int64_t n, struct error *e)
{
    int64_t found = 0;
    for (int i = d->n_cases - 1; i >= 0 && found < n; i--)
        if (d->cases[i].split == SPLIT_TRAIN && d->cases[i].label)
            found += mark[i] = 1;
    return found == n ? 0
                      : fail(e, ERR_CONFIG, "C03", "%lld cases wanted, %lld have a label", (long long)n,
                             (long long)found);
}

int lists_leave_out(struct opening *w, const char *path, struct error *e)
{
    struct dataset *d = w->d;
    if (!path)
        return 0;
    char *mark = mem_alloc(e, (size_t)d->n_cases, 1);
    int result = mark && dataset_mark_listed(mark, d, path, w->o->follow, e) >= 0 ? 0 : -1;
    for (int i = 0; i < d->n_cases && result == 0; i++)
        mark[i] = !mark[i];
    if (result == 0)
        dataset_keep(d, mark);
    mem_free(mark);
    return result;
}

/* ---- which labels may be seen ---------------------------------------------------------------- */

static void hide(struct data_case *c)
{
    if (c->label)
        c->hidden_label = c->label;
    c->label = NULL;
}

static int hide_all_but_first(struct dataset *d, int64_t wanted, struct error *e)
{
    int have = dataset_count(d, SPLIT_TRAIN, 1);
    if (wanted < 1 || wanted > have)
        return fail(e, ERR_CONFIG, "C03", "--labeled %lld, but %d training case%s a label", (long long)wanted,
                    have, have == 1 ? " has" : "s have");
    for (int i = 0; i < d->n_cases; i++)
        if (d->cases[i].split == SPLIT_TRAIN && d->cases[i].label && wanted-- <= 0)
            hide(&d->cases[i]);
    return 0;
}

static int hide_all_but_listed(struct dataset *d, const char *path, int follow, struct error *e)
{
    char *keep = mem_alloc(e, (size_t)d->n_cases, 1);
    int result = keep && dataset_mark_listed(keep, d, path, follow, e) >= 0 ? 0 : -1;
    for (int i = 0; i < d->n_cases && result == 0; i++) {
        if (keep[i] && !d->cases[i].label) {
            fail(e, ERR_DATA, "L01", "names \"%.100s\", which has no label", d->cases[i].name);
            result = fail_in(e, path);
        } else if (d->cases[i].split == SPLIT_TRAIN && !keep[i]) {
            hide(&d->cases[i]);
        }
    }
    if (result == 0 && dataset_count(d, SPLIT_TRAIN, 1) == 0) {
        fail(e, ERR_CONFIG, "C03", "--labeled names no training case");
        result = fail_in(e, path);
    }
    mem_free(keep);
    return result;
}

int lists_hide_labels(struct opening *w, const char *labeled, struct error *e)
{
    int64_t n;
    if (!labeled)
        return 0;
    if (parse_int(&n, labeled) == 0)
        return hide_all_but_first(w->d, n, e);
    return hide_all_but_listed(w->d, labeled, w->o->follow, e);
}
