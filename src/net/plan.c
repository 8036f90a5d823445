/* plan.c - where each buffer lies in one block of memory, from when it is alive.
 *
 * Two buffers may share bytes if their lives do not meet. Finding the smallest block is hard in
 * general; largest first, each into the tightest gap between those alive at the same time, is
 * within a few percent of the bound (the most bytes alive at once) for networks:
 *
 *     offset ^      +--------------+
 *            |      | y2           |  +----+
 *            |  +---+--+-----------+  | G2 |
 *            |  | y1                  +----+------+
 *            +--+--------------------------+------+--> time
 */
#include "net/net_int.h"

int plan_add(struct plan *p, size_t bytes, int first, int last)
{
    CHECK(p->n < PLAN_ITEMS && first <= last);
    size_t rounded = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    p->items[p->n] = (struct plan_item){rounded, first, last, 0};
    return p->n++;
}

static int meet(const struct plan_item *a, const struct plan_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The tightest gap among `n` placed items, sorted by offset, that live while `it` does. */
static size_t best_offset(const struct plan *p, const int *placed, int n, const struct plan_item *it)
{
    size_t end = 0, best = 0, best_gap = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        const struct plan_item *o = &p->items[placed[i]];
        if (!meet(o, it))
            continue;
        if (o->offset >= end && o->offset - end >= it->bytes && o->offset - end < best_gap) {
            best_gap = o->offset - end;
            best = end;
        }
        end = o->offset + o->bytes > end ? o->offset + o->bytes : end;
    }
    return best_gap == SIZE_MAX ? end : best;
}

static int next_largest(const struct plan *p, const unsigned char *done)
{
    int best = -1;
    for (int i = 0; i < p->n; i++)
        if (!done[i] && (best < 0 || p->items[i].bytes > p->items[best].bytes))
            best = i;
    return best;
}

void plan_place(struct plan *p)
{
    int placed[PLAN_ITEMS];
    unsigned char done[PLAN_ITEMS] = {0};
    p->bytes = 0;
    for (int n = 0; n < p->n; n++) {
        int k = next_largest(p, done), at = n;
        struct plan_item *it = &p->items[k];
        it->offset = best_offset(p, placed, n, it);
        while (at > 0 && p->items[placed[at - 1]].offset > it->offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = k;
        done[k] = 1;
        if (it->offset + it->bytes > p->bytes)
            p->bytes = it->offset + it->bytes;
    }
}
