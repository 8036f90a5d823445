/* lists.c - names of cases: list files, the order and split they give, and which labels may be seen.
 *
 * A list file holds one name a line. The research code of this field takes "the first N lines" as the
 * labelled cases, so order is part of the data set. Lookups go through one sorted index: a set of 100,000
 * cases must not cost 10^10 comparisons.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/layouts.h"

enum { LIST_MAX_BYTES = 64 << 20 }; /* 100,000 names of 255 bytes, twice over */

/* ---- list files -------------------------------------------------------------------------------- */

/* 1 if some component of the path is "..". */
static int climbs(const char *name)
{
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return 1;
    }
    return 0;
}

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
        if (!follow && (*name == '/' || climbs(name))) {
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

int list_read(struct list *out, const char *path, int follow, struct error *e)
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

/* ---- the index --------------------------------------------------------------------------------- */

struct name_slot {
    const char *name; /* borrowed from the case */
    int at;
};
struct name_index {
    struct name_slot *slot; /* sorted by name */
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
    const struct name_slot *x = a, *y = b;
    int order = strcasecmp(x->name, y->name);
    return order ? order : by_name(a, b);
}

int names_new(struct name_index **out, const struct data_case *cases, int n, struct error *e)
{
    struct name_index *x = mem_alloc(e, 1, sizeof *x);
    *out = NULL;
    if (!x)
        return -1;
    x->n = n;
    x->slot = mem_alloc(e, (size_t)n, sizeof *x->slot);
    if (!x->slot) {
        mem_free(x);
        return -1;
    }
    for (int i = 0; i < n; i++)
        x->slot[i] = (struct name_slot){cases[i].name, i};
    qsort(x->slot, (size_t)n, sizeof *x->slot, by_name);
    *out = x;
    return 0;
}

int names_find(const struct name_index *x, const char *name)
{
    int low = 0, high = x->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(x->slot[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->n && strcmp(x->slot[low].name, name) == 0 ? x->slot[low].at : -1;
}

void names_free(struct name_index *x)
{
    if (x)
        mem_free(x->slot);
    mem_free(x);
}

int lists_check_names(struct opening *w, struct error *e)
{
    struct name_index *x;
    if (names_new(&x, w->d->cases, w->d->n_cases, e) < 0)
        return -1;
    int result = 0;
    for (int i = 1; i < x->n && result == 0; i++) {
        const struct data_case *a = &w->d->cases[x->slot[i - 1].at], *b = &w->d->cases[x->slot[i].at];
        if (strcmp(a->name, b->name) == 0)
            result = fail(e, ERR_DATA, "L09", "two cases are named \"%.60s\": %.80s and %.80s", a->name,
                          a->n_images ? a->images[0] : "?", b->n_images ? b->images[0] : "?");
    }
    qsort(x->slot, (size_t)x->n, sizeof *x->slot, by_name_nocase);
    for (int i = 1; i < x->n && result == 0; i++)
        if (strcasecmp(x->slot[i - 1].name, x->slot[i].name) == 0)
            report_line(w->o->report, REPORT_WARNING, w->d->root, "L01",
                        "cases \"%.100s\" and \"%.100s\" differ only in letter case",
                        x->slot[i - 1].name, x->slot[i].name);
    names_free(x);
    return result < 0 ? fail_in(e, w->d->root) : 0;
}

/* The case a list entry means: the name itself, or a path whose last part, or folder, is the name. */
static int find_entry(const struct name_index *x, const char *entry)
{
    int at = names_find(x, entry);
    if (at >= 0)
        return at;
    char name[256];
    const char *last = path_name(entry);
    size_t n = stem_length(last);
    if (n < sizeof name) {
        memcpy(name, last, n);
        name[n] = '\0';
        at = names_find(x, name);
    }
    size_t head = (size_t)(last - entry); /* "CASE/mri_norm2.h5" */
    if (at < 0 && head > 1 && head <= sizeof name) {
        memcpy(name, entry, head - 1);
        name[head - 1] = '\0';
        at = names_find(x, name);
    }
    return at;
}

/* ---- order and split --------------------------------------------------------------------------- */

/* Reads folder/NAME.list or NAME.txt; *path is its path, NULL if neither is there. */
static int read_if_there(struct list *out, char **path, const char *folder, const char *name, int follow,
                         struct error *e)
{
    static const char *const endings[] = {".list", ".txt"};
    memset(out, 0, sizeof *out);
    *path = NULL;
    for (int i = 0; i < 2; i++) {
        char *p = mem_format(e, "%s/%s%s", folder, name, endings[i]);
        if (!p)
            return -1;
        if (io_exists(p)) {
            *path = p;
            return list_read(out, p, follow, e);
        }
        mem_free(p);
    }
    return 0;
}

struct ordering { /* what the lists say about each case, in the order of w->d->cases */
    int *place;   /* position in the new order, or -1 */
    int next;
};

/* Gives the cases of one list the next places. */
static int place_list(struct ordering *o, struct opening *w, const struct name_index *x,
                      const struct list *l, const char *path, enum split split, struct error *e)
{
    for (int i = 0; i < l->n; i++) {
        int at = find_entry(x, l->name[i]);
        if (at < 0) {
            fail(e, ERR_DATA, "L01", "names \"%.100s\", for which there is no image", l->name[i]);
            return fail_in(e, path);
        }
        if (o->place[at] >= 0) {
            fail(e, ERR_DATA, "L09", "\"%.100s\" is already on a list: train and test must not share cases",
                 l->name[i]);
            return fail_in(e, path);
        }
        o->place[at] = o->next++;
        w->d->cases[at].split = split;
    }
    return 0;
}

/* Cases on no list: they stay where their own list is absent, else they are left out. */
static int place_rest(struct ordering *o, const struct dataset *d, int has_train, int has_test)
{
    int left_out = 0;
    for (int i = 0; i < d->n_cases; i++) {
        if (o->place[i] >= 0)
            continue;
        int listed = d->cases[i].split == SPLIT_TEST ? has_test : has_train;
        if (listed)
            left_out++;
        else
            o->place[i] = o->next++;
    }
    return left_out;
}

static int reorder(struct dataset *d, const struct ordering *o, struct error *e)
{
    struct data_case *sorted = mem_alloc(e, (size_t)d->n_cases + 1, sizeof *sorted);
    if (!sorted)
        return -1;
    for (int i = 0; i < d->n_cases; i++) {
        if (o->place[i] >= 0)
            sorted[o->place[i]] = d->cases[i];
        else
            case_free(&d->cases[i]);
    }
    mem_free(d->cases);
    d->cases = sorted;
    d->n_cases = o->next;
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

int lists_apply(struct opening *w, const char *folder, struct error *e)
{
    struct list train = {0}, test = {0};
    char *train_path = NULL, *test_path = NULL;
    struct name_index *x = NULL;
    struct ordering o = {NULL, 0};
    int result = -1;
    if (read_if_there(&train, &train_path, folder, "train", w->o->follow, e) < 0 ||
        read_if_there(&test, &test_path, folder, "test", w->o->follow, e) < 0 ||
        names_new(&x, w->d->cases, w->d->n_cases, e) < 0)
        goto out;
    if ((!train_path && !test_path) ||
        (strcmp(folder, w->d->root) != 0 && !fits(&train, x) && !fits(&test, x))) {
        result = 0;
        goto out;
    }
    o.place = mem_alloc(e, (size_t)w->d->n_cases, sizeof *o.place);
    if (!o.place)
        goto out;
    memset(o.place, 0xFF, (size_t)w->d->n_cases * sizeof *o.place); /* all -1 */
    if (place_list(&o, w, x, &train, train_path, SPLIT_TRAIN, e) < 0 ||
        place_list(&o, w, x, &test, test_path, SPLIT_TEST, e) < 0)
        goto out;
    int left_out = place_rest(&o, w->d, train_path != NULL, test_path != NULL);
    if (reorder(w->d, &o, e) < 0)
        goto out;
    w->capacity = w->d->n_cases + 1;
    w->d->note[0] = '\0'; /* a published split does not hold any more */
    if (left_out)
        opening_note(w, "%d case%s on no list left out", left_out, left_out == 1 ? "" : "s");
    result = 1;
out:
    mem_free(o.place);
    names_free(x);
    list_free(&train);
    list_free(&test);
    mem_free(train_path);
    mem_free(test_path);
    return result;
}

/* ---- which labels may be seen -------------------------------------------------------------------- */

static void hide(struct data_case *c)
{
    mem_free(c->label);
    c->label = NULL;
}

static int hide_all_but_first(struct dataset *d, int64_t wanted, struct error *e)
{
    int have = dataset_count(d, SPLIT_TRAIN, 1);
    if (wanted < 1 || wanted > have)
        return fail(e, ERR_CONFIG, "C03", "--labeled %lld, but %d training case%s a label",
                    (long long)wanted, have, have == 1 ? " has" : "s have");
    for (int i = 0; i < d->n_cases; i++)
        if (d->cases[i].split == SPLIT_TRAIN && d->cases[i].label && wanted-- <= 0)
            hide(&d->cases[i]);
    return 0;
}

static int hide_all_but_listed(struct dataset *d, const char *path, int follow, struct error *e)
{
    struct list l;
    struct name_index *x = NULL;
    char *keep = NULL;
    int result = -1;
    if (list_read(&l, path, follow, e) < 0)
        return -1;
    keep = mem_alloc(e, (size_t)d->n_cases, 1);
    if (!keep || names_new(&x, d->cases, d->n_cases, e) < 0)
        goto out;
    for (int i = 0; i < l.n; i++) {
        int at = find_entry(x, l.name[i]);
        if (at < 0 || !d->cases[at].label) {
            fail(e, ERR_DATA, "L01", "names \"%.100s\", which %s", l.name[i],
                 at < 0 ? "is no case" : "has no label");
            fail_in(e, path);
            goto out;
        }
        keep[at] = 1;
    }
    for (int i = 0; i < d->n_cases; i++)
        if (d->cases[i].split == SPLIT_TRAIN && !keep[i])
            hide(&d->cases[i]);
    result = 0;
out:
    names_free(x);
    mem_free(keep);
    list_free(&l);
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
