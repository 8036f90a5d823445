/* columns.c - draws the comparison of methods of picture.h, like the figures of the literature:
 *
 *   title                             [] agreed [] missed [] too much
 *   truth      method     method ...
 *   1 2        Dice 0.81  Dice 0.86
 *   +--------+ +--------+ +--------+
 *   | axial  | |        | |        |     the same slice in a row, at the same scale
 *   | coronal ...
 *
 * Box, scale and greys come from the truth alone, so that no method moves the picture of another.
 */
#include <stdio.h>
#include <string.h>

#include "score/letters.h"
#include "score/sheet_int.h"

enum { MARGIN = 14, GAP = 6, HEAD = 34, NAMES = 42, MAX_WIDTH = 3200, WIDE = 232, NARROW = 140 };

/* The slice along an axis with most voxels of the truth; the middle one if there are none. */
static int64_t fullest_slice(const struct columns *c, int axis, struct error *e)
{
    const int64_t *n = c->dims;
    int64_t best = n[axis] / 2, *count = mem_alloc(e, (size_t)n[axis], sizeof *count);
    if (!count)
        return -1;
    for (int64_t i = 0, z = 0; z < n[2]; z++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t x = 0; x < n[0]; x++, i++)
                count[axis == 0 ? x : axis == 1 ? y : z] += c->truth[i] != 0;
    for (int64_t k = 0; k < n[axis]; k++)
        best = count[k] > count[best] ? k : best;
    mem_free(count);
    return best;
}

/* Large if that fits into a pane, for pages that show half the size; else small and cut to the width. */
static void put_name(struct picture *out, const struct scene *s, int x, int y, const uint8_t rgb[3],
                     const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", s->pane / LETTER_WIDTH < 60 ? s->pane / LETTER_WIDTH : 60, name);
    letters_draw(out, x, y, letters_width(text, 2) <= s->pane ? 2 : 1, rgb, text);
}

static int draw_panes(struct picture *out, struct scene *s, const struct columns *c, struct error *e)
{
    struct sheet one = *s->sheet;
    char caption[48];
    int y = HEAD + NAMES;
    for (int row = 0; row < 3; row++) {
        const struct view *v = &s->view[row];
        int64_t slice = fullest_slice(c, v->through, e);
        if (slice < 0)
            return -1;
        snprintf(caption, sizeof caption, "%s %lld", v->name, (long long)slice);
        for (int k = 0; k <= c->n; k++) {
            one.prediction = k ? c->masks[k - 1] : NULL;
            s->sheet = &one;
            sheet_pane(out, s, v, MARGIN + k * (s->pane + GAP), y, slice, k ? NULL : caption);
        }
        y += s->pane_height[row] + GAP;
    }
    return 0;
}

int picture_draw_columns(struct picture *out, const struct columns *c, struct error *e)
{
    struct sheet sheet = {.dims = {c->dims[0], c->dims[1], c->dims[2]},
                          .geometry = c->geometry,
                          .image = c->image,
                          .truth = c->truth,
                          .title = c->title};
    struct scene s;
    int pane = (MAX_WIDTH - 2 * MARGIN) / (c->n + 1) - GAP;
    pane = pane > WIDE ? WIDE : pane < NARROW ? NARROW : pane;
    CHECK(c->n >= 1 && c->n <= 128);
    if (sheet_scene(&s, &sheet, pane, e) < 0)
        return -1;
    int height = HEAD + NAMES + MARGIN + 2 * GAP;
    for (int i = 0; i < 3; i++)
        height += s.pane_height[i];
    if (picture_new(out, 2 * MARGIN + (c->n + 1) * (pane + GAP) - GAP, height, e) < 0)
        return -1;
    sheet_clear(out);
    sheet.prediction = c->masks[0]; /* the keys of a comparison */
    int right = sheet_keys(out, out->width - MARGIN, &sheet);
    sheet.prediction = NULL;
    int dot = letters_width(c->title, 2) < right - MARGIN ? 2 : 1;
    letters_draw(out, MARGIN, dot == 2 ? 12 : 16, dot, sheet_ink, c->title);
    put_name(out, &s, MARGIN, HEAD, sheet_ink, "truth");
    for (int k = 0; k < c->n; k++) {
        put_name(out, &s, MARGIN + (k + 1) * (pane + GAP), HEAD, sheet_ink, c->names[k]);
        if (c->notes)
            put_name(out, &s, MARGIN + (k + 1) * (pane + GAP), HEAD + 20, sheet_faint, c->notes[k]);
    }
    if (draw_panes(out, &s, c, e) < 0) {
        picture_free(out);
        return -1;
    }
    return 0;
}
