/* find_sides.c - see find_sides.h.
 *
 * Names decide where they differ in more than a number: "left kidney" and "kidney_right" are, "spleen" and
 * "stomach" are not a pair. Else labels do: two classes are sides of one thing if, in every label that holds
 * both, the same one lies further along the first axis, they lie beside each other and clearly apart, and if
 * they are of about one volume and one brightness altogether. Liver and spleen are too different, the parts
 * of one lesion too close, the ends of a hippocampus behind each other.
 *
 * Named sides, too, must lie one after the other along the first axis: in data prepared by others that may be
 * any axis.
 */
#include "sample/find_sides.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

static const double beside = 0.5; /* distance along the other axes, to that along the first, at most */
static const double apart = 1.5;  /* distance to the sum of standard deviations; two balls that touch: 2.2 */
static const double alike = 2.0;  /* volumes differ by less than this factor */
static const double bright = 0.5; /* distance of mean values to the sum of their deviations, at most */

/* ---- names ----------------------------------------------------------------------------------------- */

/* 1 if y is x with the word at x + at, `from`, replaced by `to`; case does not matter. */
static int is_replaced(const char *x, size_t at, const char *from, const char *y, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to);
    return strncasecmp(x + at, from, n_from) == 0 && strlen(x) - n_from == strlen(y) - n_to &&
           strncasecmp(x, y, at) == 0 && strncasecmp(y + at, to, n_to) == 0 &&
           strcasecmp(x + at + n_from, y + at + n_to) == 0;
}

/* One or two letters are a word only if no other letter stands beside them. */
static int is_word(const char *x, size_t at, const char *word)
{
    size_t n = strlen(word);
    return n > 2 || ((at == 0 || !isalnum((unsigned char)x[at - 1])) && !isalnum((unsigned char)x[at + n]));
}

static int names_are_sides(const char *x, const char *y)
{
    static const char *const words[][2] = {{"left", "right"}, {"l", "r"}, {"lt", "rt"}, {"lh", "rh"}};
    for (size_t i = 0; i < 2 * sizeof words / sizeof *words; i++) {
        const char *from = words[i / 2][i % 2], *to = words[i / 2][1 - i % 2];
        for (size_t at = 0; x[at]; at++)
            if (is_replaced(x, at, from, y, to) && is_word(x, at, from))
                return 1;
    }
    return 0;
}

/* 1 if the names are one but for digits, and so say nothing: "1", "class 2". */
static int names_are_numbers(const char *x, const char *y)
{
    for (;; x++, y++) {
        while (isdigit((unsigned char)*x))
            x++;
        while (isdigit((unsigned char)*y))
            y++;
        if (*x != *y || !*x)
            return *x == *y;
    }
}

/* ---- places ---------------------------------------------------------------------------------------- */

struct place {                /* of a class in one case */
    double voxels, at[3], sd; /* mean and, along the first axis, deviation, mm */
    double value, square;     /* sums over the first channel */
};

static void find_places(struct place *place, const struct case_store *s, const struct stored_case *k)
{
    const label_t *label = k->label;
    const float *image = k->image;
    for (int i = 0; i < s->n_classes; i++)
        place[i] = (struct place){0};
    for (int d = 0; d < k->dims[0]; d++)
        for (int h = 0; h < k->dims[1]; h++)
            for (int w = 0; w < k->dims[2]; w++, image += s->channels) {
                struct place *p = &place[*label++];
                const double mm[3] = {d * k->spacing_mm[0], h * k->spacing_mm[1], w * k->spacing_mm[2]};
                p->voxels++;
                p->sd += mm[0] * mm[0];
                p->value += (double)*image;
                p->square += (double)*image * (double)*image;
                for (int a = 0; a < 3; a++)
                    p->at[a] += mm[a];
            }
    for (struct place *p = place; p < place + s->n_classes; p++) {
        for (int a = 0; a < 3 && p->voxels > 0; a++)
            p->at[a] /= p->voxels;
        p->sd = p->voxels > 0 ? sqrt(fmax(p->sd / p->voxels - p->at[0] * p->at[0], 0.0)) : 0.0;
    }
}

enum relation { NOT_SEEN, BEFORE, BEHIND, NO_SIDES };

static enum relation relate(const struct place *x, const struct place *y, int named)
{
    double along = y->at[0] - x->at[0], across = fmax(fabs(y->at[1] - x->at[1]), fabs(y->at[2] - x->at[2]));
    if (x->voxels == 0 || y->voxels == 0)
        return NOT_SEEN;
    if (along == 0.0 || across > (named ? 1.0 : beside) * fabs(along) ||
        (!named && fabs(along) < apart * (x->sd + y->sd)))
        return NO_SIDES;
    return along > 0.0 ? BEFORE : BEHIND;
}

/* What all labels so far say of a pair, and one more. */
static uint8_t agree(uint8_t all, enum relation one)
{
    return one == NOT_SEEN || one == all ? all : all == NOT_SEEN ? (uint8_t)one : NO_SIDES;
}

static int look_alike(const struct place *x, const struct place *y)
{
    double mx = x->value / x->voxels, my = y->value / y->voxels;
    double sx = sqrt(fmax(x->square / x->voxels - mx * mx, 0.0));
    double sy = sqrt(fmax(y->square / y->voxels - my * my, 0.0));
    return x->voxels <= alike * y->voxels && y->voxels <= alike * x->voxels &&
           fabs(mx - my) <= bright * (sx + sy);
}

/* ---- pairs ----------------------------------------------------------------------------------------- */

struct pairs {
    int n;               /* classes */
    char *const *names;  /* or NULL */
    struct place *place; /* (n), of a case */
    struct place *all;   /* (n), voxels and values of all cases */
    uint8_t *relation;   /* (n, n), of all cases */
};

static int are_named(const struct pairs *p, int i, int k)
{
    return p->names && names_are_sides(p->names[i], p->names[k]);
}

static void look_at(struct pairs *p, const struct case_store *s, const struct stored_case *k)
{
    find_places(p->place, s, k);
    for (int i = 1; i < p->n; i++) {
        p->all[i].voxels += p->place[i].voxels;
        p->all[i].value += p->place[i].value;
        p->all[i].square += p->place[i].square;
        for (int j = i + 1; j < p->n; j++) {
            uint8_t *r = &p->relation[i * p->n + j];
            *r = agree(*r, relate(&p->place[i], &p->place[j], are_named(p, i, j)));
        }
    }
}

static int are_sides(const struct pairs *p, int i, int k)
{
    uint8_t relation = p->relation[i * p->n + k];
    if (are_named(p, i, k))
        return relation != NO_SIDES;
    if (p->names && !names_are_numbers(p->names[i], p->names[k]))
        return 0;
    return (relation == BEFORE || relation == BEHIND) && look_alike(&p->all[i], &p->all[k]);
}

/* A class that could be the other of several is of none: which one, nobody knows. */
static int settle(struct sides *out, const struct pairs *p)
{
    int found = 0;
    for (int i = 1; i < p->n; i++) {
        int partners = 0, last = 0;
        for (int k = 1; k < p->n; k++)
            if (k != i && are_sides(p, i < k ? i : k, i < k ? k : i)) {
                partners++;
                last = k;
            }
        out->other[i] = (uint8_t)(partners == 1 ? last : i);
    }
    for (int i = 1; i < p->n; i++)
        if (out->other[out->other[i]] != i)
            out->other[i] = (uint8_t)i;
        else
            found += out->other[i] > i;
    return found;
}

int find_sides(struct sides *out, const struct case_store *s, char *const *names, struct error *e)
{
    _Static_assert((int)SIDES_CLASSES == (int)DATASET_MOST_CLASSES, "a place for every class");
    size_t n = (size_t)s->n_classes;
    struct pairs p = {.n = s->n_classes,
                      .names = names,
                      .place = mem_alloc(e, n, sizeof *p.place),
                      .all = mem_alloc(e, n, sizeof *p.all),
                      .relation = mem_alloc(e, n, n)};
    int found = p.place && p.all && p.relation ? 0 : -1;
    *out = (struct sides){0};
    for (int i = 0; i < SIDES_CLASSES; i++)
        out->other[i] = (uint8_t)i;
    for (int c = 0; c < s->n_labeled && found == 0; c++)
        look_at(&p, s, &s->cases[c]);
    if (found == 0)
        found = settle(out, &p);
    mem_free(p.place);
    mem_free(p.all);
    mem_free(p.relation);
    return found;
}
