/* sheet.c - draws the contact sheet of picture.h: slices of a scan with masks over them.
 *
 *   title                                   [] agreed [] missed [] too much
 *   +--------+ +--------+ +--------+ +--------+ +--------+
 *   | axial  | |        | |        | |        | |        |     five slices through the object
 *   +--------+ +--------+ +--------+ +--------+ +--------+
 *   | coronal ...
 *   | sagittal ...
 *
 * With a map of values (heat) the masks are outlines, truth white and prediction cyan, and the head
 * shows the scale from 0 to the map's largest value.
 *
 * All panes show the same length in millimetres, chosen so that the object fills most of it. The
 * grey of the scan is interpolated; masks are shown voxel by voxel as they are, filled lightly and
 * outlined.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "score/letters.h"
#include "score/picture.h"
#include "score/select.h"
#include "score/sheet_int.h"

enum {
    PANE = 232,  /* pixels a side at most */
    GAP = 6,     /* between panes */
    MARGIN = 14, /* around the sheet */
    HEAD = 34,   /* height of the line above the panes */
    MAX_SLICES = 12
};

/* Comparison. The first three as in the figures of the literature: true positives red, false
 * negatives green, false positives blue. */
static const struct {
    uint8_t rgb[3];
    const char *name;
} kinds[] = {
    {{240, 62, 62}, "agreed"},
    {{64, 206, 96}, "missed"},
    {{76, 128, 255}, "too much"},
    {{250, 208, 60}, "wrong class"},
};
enum { KIND_NONE, KIND_AGREED, KIND_MISSED, KIND_EXTRA, KIND_WRONG };

/* One colour a class, well apart in hue and lightness; classes beyond the last start over. */
static const uint8_t class_colours[][3] = {
    {240, 82, 82},  {72, 149, 255},  {252, 196, 64}, {72, 200, 120},  {190, 112, 240}, {64, 208, 212},
    {255, 146, 66}, {240, 120, 190}, {168, 220, 80}, {150, 160, 255}, {200, 150, 110}, {230, 230, 230},
};
enum { N_COLOURS = sizeof class_colours / sizeof *class_colours };

/* From low to high: dark to light, so that the order also shows without hue. */
static const uint8_t heat_colours[][3] = {
    {46, 16, 92}, {140, 28, 120}, {218, 62, 78}, {250, 148, 36}, {252, 246, 160},
};
enum { N_HEATS = sizeof heat_colours / sizeof *heat_colours };
static const uint8_t outline_truth[3] = {255, 255, 255}, outline_prediction[3] = {64, 224, 240};

static const uint8_t paper[3] = {18, 19, 22};  /* between panes */
static const uint8_t ground[3] = {44, 46, 52}; /* inside the volume when there is no scan */
const uint8_t sheet_ink[3] = {236, 238, 242}, sheet_faint[3] = {170, 174, 182};

/* ---- what to show -------------------------------------------------------------------------- */

/* Screen directions run against R, A and S: to the right is towards the patient's left (in the
 * sagittal plane towards the back), down is towards the back or the feet. */
static void find_views(struct view view[3], const struct geometry *g)
{
    static const char *const names[] = {"sagittal", "coronal", "axial"};
    static const int across_body[] = {1, 0, 0}, down_body[] = {2, 2, 1};
    int axis[3], sign[3], voxel_axis[3];
    geometry_axes(axis, sign, g);
    for (int a = 0; a < 3; a++)
        voxel_axis[axis[a]] = a;
    for (int i = 0; i < 3; i++) { /* top row axial, then coronal, sagittal */
        int body = 2 - i;
        struct view *v = &view[i];
        v->name = names[body];
        v->through = voxel_axis[body];
        v->across = voxel_axis[across_body[body]];
        v->down = voxel_axis[down_body[body]];
        v->flip_across = sign[v->across] > 0;
        v->flip_down = sign[v->down] > 0;
    }
}

static void find_box(struct scene *s)
{
    const int64_t *n = s->sheet->dims;
    int any = 0;
    for (int64_t i = 0, z = 0; z < n[2]; z++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t x = 0; x < n[0]; x++, i++) {
                if (!s->sheet->truth[i] && !(s->sheet->prediction && s->sheet->prediction[i]))
                    continue;
                const int64_t at[3] = {x, y, z};
                for (int a = 0; a < 3; a++) {
                    s->lo[a] = !any || at[a] < s->lo[a] ? at[a] : s->lo[a];
                    s->hi[a] = !any || at[a] >= s->hi[a] ? at[a] + 1 : s->hi[a];
                }
                any = 1;
            }
    for (int a = 0; !any && a < 3; a++) {
        s->lo[a] = 0;
        s->hi[a] = n[a];
    }
}

/* The object takes two thirds of a pane, unless the whole volume fits better. */
static void find_scale(struct scene *s)
{
    double object = 0, whole = 0;
    for (int a = 0; a < 3; a++) {
        object = fmax(object, (double)(s->hi[a] - s->lo[a]) * s->spacing_mm[a]);
        whole = fmax(whole, (double)s->sheet->dims[a] * s->spacing_mm[a]);
    }
    double shown = fmin(1.5 * object, whole);
    s->pixels_per_mm = s->pane / shown;
    for (int i = 0; i < 3; i++) {
        int axis = s->view[i].down;
        double pixels = (double)s->sheet->dims[axis] * s->spacing_mm[axis] * s->pixels_per_mm;
        s->pane_height[i] = pixels >= s->pane ? s->pane : pixels < 24 ? 24 : (int)(pixels + 0.5);
    }
}

/* Black and white are the 1st and the 99.5th percentile of a sample of the voxels. */
static int find_greys(struct scene *s, struct error *e)
{
    const int64_t *n = s->sheet->dims;
    int64_t voxels = n[0] * n[1] * n[2], step = voxels / 100000 + 1, count = 0;
    const float *image = s->sheet->image;
    double *sample = mem_alloc(e, (size_t)(voxels / step + 1), sizeof *sample);
    double least = INFINITY;
    int result = -1;
    if (!sample)
        return -1;
    for (int64_t i = 0; i < voxels; i += step)
        least = fmin(least, (double)image[i]);
    for (int64_t i = 0; i < voxels; i += step)
        sample[count++] = (double)image[i] - least;
    if (select_percentile(&s->black, sample, count, 0.01, e) < 0 ||
        select_percentile(&s->white, sample, count, 0.995, e) < 0)
        goto out;
    s->black += least;
    s->white = fmax(s->white + least, s->black + 1e-6);
    result = 0;
out:
    mem_free(sample);
    return result;
}

/* Values that are not numbers do not count; a map of nothing is shown as from 0 to 1. */
static void find_hottest(struct scene *s)
{
    const int64_t *n = s->sheet->dims;
    s->hottest = 0;
    for (int64_t i = 0; s->sheet->heat && i < n[0] * n[1] * n[2]; i++)
        if (isfinite(s->sheet->heat[i]))
            s->hottest = fmax(s->hottest, (double)s->sheet->heat[i]);
    s->hottest = s->hottest > 0 ? s->hottest : 1;
}

/* ---- one pane ------------------------------------------------------------------------------ */

/* Voxel coordinates (across, down) of a pixel of the pane; the slice fills the third. */
static void pixel_place(double out[2], const struct scene *s, const struct view *v, const struct pane *p,
                        int px, int py)
{
    double right = (px + 0.5 - 0.5 * p->width) / s->pixels_per_mm;
    double down = (py + 0.5 - 0.5 * p->height) / s->pixels_per_mm;
    out[0] = p->centre[0] + (v->flip_across ? -right : right) / s->spacing_mm[v->across];
    out[1] = p->centre[1] + (v->flip_down ? -down : down) / s->spacing_mm[v->down];
}

/* Index of the nearest voxel, or -1 outside the volume. */
static int64_t nearest_voxel(const struct scene *s, const struct view *v, int64_t slice,
                             const double place[2])
{
    const int64_t *n = s->sheet->dims;
    int64_t at[3], across = (int64_t)floor(place[0] + 0.5), down = (int64_t)floor(place[1] + 0.5);
    if (across < 0 || across >= n[v->across] || down < 0 || down >= n[v->down])
        return -1;
    at[v->across] = across;
    at[v->down] = down;
    at[v->through] = slice;
    return at[0] + n[0] * (at[1] + n[1] * at[2]);
}

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Linear interpolation inside the slice. */
static double value_at(const struct scene *s, const struct view *v, int64_t slice, const double place[2],
                       const float *values)
{
    const int64_t *n = s->sheet->dims;
    double a = clamp(place[0], 0, (double)(n[v->across] - 1));
    double b = clamp(place[1], 0, (double)(n[v->down] - 1));
    double low[2] = {floor(a), floor(b)}, value = 0;
    for (int k = 0; k < 4; k++) {
        double corner[2] = {low[0] + (k & 1), low[1] + (k >> 1)};
        double weight = (1 - fabs(a - corner[0])) * (1 - fabs(b - corner[1]));
        int64_t i = weight > 0 ? nearest_voxel(s, v, slice, corner) : -1;
        value += i >= 0 ? weight * (double)values[i] : 0;
    }
    return value;
}

/* The scan as grey 0..255. */
static double grey_at(const struct scene *s, const struct view *v, int64_t slice, const double place[2])
{
    double value = value_at(s, v, slice, place, s->sheet->image);
    return 255 * clamp((value - s->black) / (s->white - s->black), 0, 1);
}

/* What the masks say about a voxel: a kind of agreement, or a class number. */
static int mark_at(const struct scene *s, int64_t voxel)
{
    label_t t = s->sheet->truth[voxel];
    if (!s->sheet->prediction)
        return t;
    label_t p = s->sheet->prediction[voxel];
    if (t == p)
        return t ? KIND_AGREED : KIND_NONE;
    return !p ? KIND_MISSED : !t ? KIND_EXTRA : KIND_WRONG;
}

static const uint8_t *mark_colour(const struct scene *s, int mark)
{
    return s->sheet->prediction ? kinds[mark - 1].rgb : class_colours[(mark - 1) % N_COLOURS];
}

static int mark_of_pixel(const struct scene *s, const struct view *v, const struct pane *p, int px, int py)
{
    double place[2];
    pixel_place(place, s, v, p, px, py);
    int64_t voxel = nearest_voxel(s, v, p->slice, place);
    return voxel < 0 ? -1 : mark_at(s, voxel);
}

static int is_outline(const struct scene *s, const struct view *v, const struct pane *p, int px, int py,
                      int mark)
{
    static const int step[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    for (int k = 0; k < 4; k++)
        if (mark_of_pixel(s, v, p, px + step[k][0], py + step[k][1]) != mark)
            return 1;
    return 0;
}

static void heat_colour(double rgb[3], double share)
{
    double at = clamp(share, 0, 1) * (N_HEATS - 1);
    int low = at >= N_HEATS - 1 ? N_HEATS - 2 : (int)at;
    for (int i = 0; i < 3; i++)
        rgb[i] = heat_colours[low][i] + (at - low) * (heat_colours[low + 1][i] - heat_colours[low][i]);
}

/* Does the class of the mask change beside this pixel? */
static int is_edge(const label_t *mask, const struct scene *s, const struct view *v, const struct pane *p,
                   int px, int py)
{
    label_t class[3] = {0, 0, 0};
    for (int k = 0; k < 3; k++) { /* here, to the right, below */
        double place[2];
        pixel_place(place, s, v, p, px + (k == 1), py + (k == 2));
        int64_t voxel = nearest_voxel(s, v, p->slice, place);
        class[k] = voxel < 0 ? 0 : mask[voxel];
    }
    return class[0] != class[1] || class[0] != class[2];
}

/* The hotter, the less of the scan shows through. */
static void draw_heat(uint8_t rgb[3], const struct scene *s, const struct view *v, const struct pane *p,
                      int px, int py)
{
    double place[2], colour[3];
    pixel_place(place, s, v, p, px, py);
    if (nearest_voxel(s, v, p->slice, place) < 0)
        return;
    double share = value_at(s, v, p->slice, place, s->sheet->heat) / s->hottest;
    share = share > 0 ? share : 0; /* what is not a number counts as nothing */
    double grey = s->sheet->image ? grey_at(s, v, p->slice, place) : 0;
    double cover = 0.9 * clamp(share, 0, 1);
    heat_colour(colour, share);
    for (int i = 0; i < 3; i++) {
        double below = s->sheet->image ? grey : ground[i];
        rgb[i] = (uint8_t)(below + cover * (colour[i] - below) + 0.5);
    }
    if (is_edge(s->sheet->truth, s, v, p, px, py))
        memcpy(rgb, outline_truth, 3);
    if (s->sheet->prediction && is_edge(s->sheet->prediction, s, v, p, px, py))
        memcpy(rgb, outline_prediction, 3);
}

static void draw_pixel(uint8_t rgb[3], const struct scene *s, const struct view *v, const struct pane *p,
                       int px, int py)
{
    double place[2];
    pixel_place(place, s, v, p, px, py);
    int mark = mark_of_pixel(s, v, p, px, py);
    if (mark < 0)
        return; /* outside: stays as it is */
    double grey = s->sheet->image ? grey_at(s, v, p->slice, place) : 0;
    /* how much of the colour covers what is below */
    double cover = mark ? (s->sheet->image ? 0.38 : 0.72) : 0;
    if (mark && is_outline(s, v, p, px, py, mark))
        cover = 1;
    for (int i = 0; i < 3; i++) {
        double below = s->sheet->image ? grey : ground[i];
        double colour = mark ? mark_colour(s, mark)[i] : 0;
        rgb[i] = (uint8_t)(below + cover * (colour - below) + 0.5);
    }
}

static void draw_pane(struct picture *out, const struct scene *s, const struct view *v, const struct pane *p,
                      const char *caption)
{
    for (int py = 0; py < p->height; py++)
        for (int px = 0; px < p->width; px++) {
            size_t at = (size_t)(p->y + py) * (size_t)out->width + (size_t)(p->x + px);
            (s->sheet->heat ? draw_heat : draw_pixel)(out->rgb + 3 * at, s, v, p, px, py);
        }
    if (!caption)
        return;
    letters_draw(out, p->x + 5, p->y + 6, 1, paper, caption); /* shadow */
    letters_draw(out, p->x + 4, p->y + 5, 1, sheet_ink, caption);
}

/* ---- the sheet ----------------------------------------------------------------------------- */

/* The middle of the object, moved so that the pane shows no outside while there is inside left. */
static double pane_centre(const struct scene *s, int axis, int pixels)
{
    double middle = 0.5 * (double)(s->lo[axis] + s->hi[axis]) - 0.5;
    double half = 0.5 * pixels / s->pixels_per_mm / s->spacing_mm[axis];
    double last = (double)s->sheet->dims[axis] - 0.5;
    if (2 * half >= last + 0.5)
        return 0.5 * (last - 0.5);
    return clamp(middle, half - 0.5, last - half);
}

void sheet_pane(struct picture *out, const struct scene *s, const struct view *v, int x, int y, int64_t slice,
                const char *caption)
{
    struct pane p = {.x = x, .y = y, .width = s->pane, .height = s->pane_height[v - s->view], .slice = slice};
    p.centre[0] = pane_centre(s, v->across, p.width);
    p.centre[1] = pane_centre(s, v->down, p.height);
    draw_pane(out, s, v, &p, caption);
}

static void draw_row(struct picture *out, const struct scene *s, const struct view *v, int y)
{
    char caption[48];
    int64_t lo = s->lo[v->through], extent = s->hi[v->through] - lo;
    for (int i = 0; i < s->n_slices; i++) {
        int64_t slice = lo + extent * (2 * i + 1) / (2 * s->n_slices);
        snprintf(caption, sizeof caption, "%s %lld", v->name, (long long)slice);
        sheet_pane(out, s, v, MARGIN + i * (PANE + GAP), y, slice, caption);
    }
}

static uint8_t *pixel_at(struct picture *p, int x, int y)
{
    return p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
}

static int draw_key(struct picture *out, int right, const uint8_t rgb[3], const char *name)
{
    int x = right - letters_width(name, 1);
    letters_draw(out, x, 16, 1, sheet_faint, name);
    x -= 15;
    for (int dy = 0; dy < 9; dy++)
        for (int dx = 0; dx < 9; dx++)
            memcpy(pixel_at(out, x + dx, 15 + dy), rgb, 3);
    return x - 14;
}

/* Which classes the masks hold, at most N_COLOURS, and whether two classes are ever confused. */
static void survey(int has_class[N_COLOURS], int *confused, const struct sheet *s)
{
    memset(has_class, 0, N_COLOURS * sizeof *has_class);
    *confused = 0;
    for (int64_t i = 0; i < s->dims[0] * s->dims[1] * s->dims[2]; i++) {
        label_t t = s->truth[i], p = s->prediction ? s->prediction[i] : 0;
        if (t >= 1 && t <= N_COLOURS)
            has_class[t - 1] = 1;
        *confused |= t && p && t != p;
    }
}

/* "0 [colours] 0.42 name"; returns where it begins. */
static int draw_scale(struct picture *out, int right, const char *name, double most)
{
    enum { LENGTH = 120 };
    char text[64];
    double colour[3];
    snprintf(text, sizeof text, "%.3g %s", most, name ? name : "");
    int x = right - letters_width(text, 1);
    letters_draw(out, x, 16, 1, sheet_faint, text);
    x -= LENGTH + 6;
    for (int dx = 0; dx < LENGTH; dx++) {
        heat_colour(colour, dx / (LENGTH - 1.0));
        for (int dy = 0; dy < 9; dy++)
            for (int i = 0; i < 3; i++)
                pixel_at(out, x + dx, 15 + dy)[i] = (uint8_t)(colour[i] + 0.5);
    }
    letters_draw(out, x - 10, 16, 1, sheet_faint, "0");
    return x - 28;
}

int sheet_keys(struct picture *out, int right, const struct sheet *s)
{
    int has_class[N_COLOURS], confused;
    char name[16];
    survey(has_class, &confused, s);
    for (int k = 3; s->prediction && k >= 0; k--)
        if (k < 3 || confused)
            right = draw_key(out, right, kinds[k].rgb, kinds[k].name);
    for (int k = N_COLOURS - 1; !s->prediction && k >= 0; k--)
        if (has_class[k] && right > out->width / 2) {
            snprintf(name, sizeof name, "%d", k + 1);
            right = draw_key(out, right, class_colours[k], name);
        }
    return right;
}

static void draw_head(struct picture *out, const struct scene *scene)
{
    const struct sheet *s = scene->sheet;
    int right = out->width - MARGIN;
    if (s->heat) {
        right = draw_scale(out, right, s->heat_name, scene->hottest);
        right = s->prediction ? draw_key(out, right, outline_prediction, "prediction") : right;
        right = draw_key(out, right, outline_truth, "truth");
    } else {
        right = sheet_keys(out, right, s);
    }
    if (s->title) {
        int dot = letters_width(s->title, 2) < right - MARGIN ? 2 : 1;
        letters_draw(out, MARGIN, dot == 2 ? 12 : 16, dot, sheet_ink, s->title);
    }
}

int sheet_scene(struct scene *out, const struct sheet *sheet, int pane, struct error *e)
{
    *out = (struct scene){.sheet = sheet, .pane = pane};
    for (int a = 0; a < 3; a++) {
        double mm = sheet->geometry->spacing_mm[a];
        out->spacing_mm[a] = mm > 0 && isfinite(mm) ? mm : 1;
    }
    find_views(out->view, sheet->geometry);
    find_box(out);
    find_scale(out);
    if (sheet->image && find_greys(out, e) < 0)
        return -1;
    find_hottest(out);
    return 0;
}

void sheet_clear(struct picture *out)
{
    for (size_t i = 0; i < (size_t)out->width * (size_t)out->height; i++)
        memcpy(out->rgb + 3 * i, paper, 3);
}

int picture_draw_sheet(struct picture *out, const struct sheet *sheet, struct error *e)
{
    struct scene s;
    CHECK(sheet->truth);
    if (sheet_scene(&s, sheet, PANE, e) < 0)
        return -1;
    s.n_slices = sheet->n_slices < 1 ? 5 : sheet->n_slices;
    if (s.n_slices > MAX_SLICES)
        s.n_slices = MAX_SLICES;
    int height = HEAD + MARGIN + 2 * GAP;
    for (int i = 0; i < 3; i++)
        height += s.pane_height[i];
    if (picture_new(out, 2 * MARGIN + s.n_slices * (PANE + GAP) - GAP, height, e) < 0)
        return -1;
    sheet_clear(out);
    draw_head(out, &s);
    for (int i = 0, y = HEAD; i < 3; y += s.pane_height[i++] + GAP)
        draw_row(out, &s, &s.view[i], y);
    return 0;
}
