/* header_text.c - the shared half of the NRRD and MetaImage readers; see header_text.h.
 *
 *     source --header_next_line--> "name: value" --header_add--> fields --(nrrd.c, metaimage.c)-->
 *         dims, dtype, geometry, where the voxels are --volume_read_voxels--> file order
 *         --header_reorder_axes--> i, j, k, channels
 *
 * Nothing here knows a format: which fields exist and what they mean is said by the reader. Numbers
 * are parsed strictly (whole word, decimal, finite), whatever the locale.
 */
#include "volume/header_text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

int header_init(struct header_text *h, const struct source *s, struct error *e)
{
    uint64_t most = source_left_at_most(s);
    h->n_fields = h->n_doubts = 0;
    h->bytes = 0;
    h->cap = most < HEADER_MAX_BYTES - 2 ? (size_t)most + 2 : HEADER_MAX_BYTES; /* 2: NUL, end */
    h->text = mem_alloc(e, h->cap + 1, 1);
    return h->text ? 0 : -1;
}

void header_done(struct header_text *h)
{
    mem_free(h->text);
    h->text = NULL;
}

/* A NUL byte: inside a field it is a forged header, elsewhere the voxels have begun unannounced. */
static int refuse_nul(const char *line, size_t at, struct error *e)
{
    for (size_t i = 0; i < at; i++)
        if (line[i] == ':' || line[i] == '=' || line[0] == '#')
            return fail(e, ERR_DATA, "R13", "NUL byte in a header line");
    return fail(e, ERR_DATA, "R02", "binary data inside the header, no blank line before the data");
}

int header_next_line(char **line, struct header_text *h, struct source *s, struct error *e)
{
    char *start = h->text + h->bytes;
    size_t n = 0;
    int64_t got = 0;
    for (;;) {
        if (h->bytes + n >= h->cap)
            return fail(e, ERR_DATA, "R02", "header longer than %zu bytes", h->cap);
        if (n >= HEADER_MAX_LINE)
            return fail(e, ERR_DATA, "R02", "header line longer than %d bytes, or no blank line "
                        "before the data", HEADER_MAX_LINE);
        got = source_read_some(s, start + n, 1, e);
        if (got < 0)
            return -1;
        if (got == 0 || start[n] == '\n')
            break;
        if (start[n] == '\0')
            return refuse_nul(start, n, e);
        n++;
    }
    if (got == 0 && n == 0)
        return 0;
    h->bytes += n + 1; /* the NUL stands where the line end was */
    if (n > 0 && start[n - 1] == '\r')
        n--;
    start[n] = '\0';
    *line = start;
    return 1;
}

char *header_trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    text[n] = '\0';
    return text;
}

char *header_normalise(char *out, size_t cap, const char *text)
{
    size_t n = 0;
    for (; *text && n + 1 < cap; text++)
        if (*text != ' ' && *text != '\t' && *text != '_')
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
    return out;
}

int header_add(struct header_text *h, char *name, char *value, struct error *e)
{
    header_normalise(name, strlen(name) + 1, name);
    if (header_find(h, name))
        return fail(e, ERR_DATA, "R05", "field \"%.60s\" appears twice", name);
    if (h->n_fields == HEADER_MAX_FIELDS)
        return fail(e, ERR_DATA, "R13", "more than %d header fields", HEADER_MAX_FIELDS);
    h->field[h->n_fields].name = name;
    h->field[h->n_fields++].value = header_trim(value);
    return 0;
}

const char *header_find(const struct header_text *h, const char *name)
{
    for (int i = 0; i < h->n_fields; i++)
        if (strcmp(h->field[i].name, name) == 0)
            return h->field[i].value;
    return NULL;
}

const char *header_need(const struct header_text *h, const char *name, const char *shown,
                        struct error *e)
{
    const char *value = header_find(h, name);
    if (!value)
        fail(e, ERR_DATA, "R03", "field \"%s\" is missing", shown);
    return value;
}

/* ---- values ---------------------------------------------------------------------------------- */

int header_word(char out[HEADER_WORD], const char **at)
{
    const char *p = *at + strspn(*at, " \t");
    size_t n = strcspn(p, " \t");
    *at = p + n;
    if (n >= HEADER_WORD)
        return -1;
    memcpy(out, p, n);
    out[n] = '\0';
    return n > 0;
}

int header_ints(int64_t *out, int n, const char *text)
{
    char word[HEADER_WORD];
    for (int i = 0; i < n; i++)
        if (header_word(word, &text) != 1 || parse_int(&out[i], word) < 0)
            return -1;
    return header_word(word, &text) == 0 ? 0 : -1;
}

int header_reals(double *out, int n, const char *text)
{
    char word[HEADER_WORD];
    for (int i = 0; i < n; i++)
        if (header_word(word, &text) != 1 || parse_real(&out[i], word) < 0)
            return -1;
    return header_word(word, &text) == 0 ? 0 : -1;
}

int header_unit(double *mm, const char *word)
{
    static const struct {
        const char *name;
        double mm;
    } units[] = {{"", 1}, {"?", 1}, {"???", 1}, {"mm", 1}, {"millimeter", 1}, {"millimetre", 1},
                 {"um", 1e-3}, {"\xC2\xB5m", 1e-3}, {"\xCE\xBCm", 1e-3}, /* micro sign, Greek mu */
                 {"micron", 1e-3}, {"micrometer", 1e-3}, {"micrometre", 1e-3},
                 {"nm", 1e-6}, {"cm", 10}, {"centimeter", 10}, {"centimetre", 10},
                 {"m", 1e3}, {"meter", 1e3}, {"metre", 1e3}};
    size_t n = strlen(word);
    if (n > 3 && (word[n - 1] == 's' || word[n - 1] == 'S'))
        n--; /* plural */
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == n && strncasecmp(units[i].name, word, n) == 0) {
            *mm = units[i].mm;
            return 0;
        }
    return -1;
}

void header_doubt(struct header_text *h, const char *id, const char *text)
{
    if (h->n_doubts == HEADER_MAX_DOUBTS)
        return;
    h->doubt[h->n_doubts].id = id;
    h->doubt[h->n_doubts++].text = text;
}

int header_refuse_doubts(const struct header_text *h, const struct volume_request *r,
                         struct error *e)
{
    if (!r || !r->strict || h->n_doubts == 0)
        return 0;
    return fail(e, ERR_DATA, h->doubt[0].id, "%s", h->doubt[0].text);
}

void header_report_doubts(const struct header_text *h, const struct source *s,
                          const struct volume_request *r)
{
    for (int i = 0; i < h->n_doubts; i++)
        report_line(r ? r->report : NULL, REPORT_WARNING, source_path(s), h->doubt[i].id, "%s",
                    h->doubt[i].text);
}

int header_open_data(struct source **out, struct source *header, const char *name, struct error *e)
{
    *out = NULL;
    if (text_starts_with(name, "./"))
        name += 2;
    if (strcmp(name, "LIST") == 0 || text_starts_with(name, "LIST "))
        return fail(e, ERR_DATA, "R09", "data file \"%.80s\": lists of files are not supported",
                    name);
    if (strchr(name, '%'))
        return fail(e, ERR_DATA, "R09", "data file \"%.80s\": patterns are not supported", name);
    if (!path_is_plain(name))
        return fail(e, ERR_DATA, "R09",
                    "data file \"%.80s\" is not a plain name in the header's folder", name);
    if (strcmp(name, path_name(source_path(header))) == 0)
        return fail(e, ERR_DATA, "R09", "data file \"%.80s\" is the header itself", name);
    if (source_open_beside(out, header, name, e) < 0) {
        if (e && strcmp(e->id, "N36") == 0)
            memcpy(e->id, "R09", 4);
        return -1;
    }
    return 0;
}

/* ---- axes and geometry ----------------------------------------------------------------------- */

/* Gathers n elements of `each` bytes that lie `stride` elements apart. */
static void copy_line(unsigned char *out, const unsigned char *in, int64_t n, int64_t stride,
                      size_t each)
{
    size_t step = (size_t)stride * each;
    switch (each) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            out[i] = in[(size_t)i * step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 2 * i, in + (size_t)i * step, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 4 * i, in + (size_t)i * step, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 8 * i, in + (size_t)i * step, 8);
    }
}

/* Copies every line along the first new axis, in the order of the new axes. */
static void copy_reordered(unsigned char *out, const struct volume *v, const int64_t dims[],
                           const int64_t stride[])
{
    size_t each = dtype_bytes(v->dtype);
    int64_t index[VOLUME_MAX_DIMS] = {0}, from = 0;
    for (;;) {
        copy_line(out, (const unsigned char *)v->data + (size_t)from * each, dims[0], stride[0],
                  each);
        out += (size_t)dims[0] * each;
        int a = 1;
        while (a < VOLUME_MAX_DIMS && index[a] + 1 == dims[a]) {
            from -= index[a] * stride[a];
            index[a++] = 0;
        }
        if (a == VOLUME_MAX_DIMS)
            return;
        index[a]++;
        from += stride[a];
    }
}

int header_reorder_axes(struct volume *v, const int from[VOLUME_MAX_DIMS], struct error *e)
{
    int64_t stride[VOLUME_MAX_DIMS], file_stride[VOLUME_MAX_DIMS], dims[VOLUME_MAX_DIMS], n = 1;
    int moved = 0, last = -1;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        file_stride[a] = n;
        n *= v->dims[a];
    }
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        dims[a] = v->dims[from[a]];
        stride[a] = file_stride[from[a]];
        if (dims[a] > 1) { /* axes of extent 1 may stand anywhere */
            moved |= from[a] < last;
            last = from[a];
        }
    }
    if (moved && v->data) {
        unsigned char *data = mem_alloc(e, (size_t)n, dtype_bytes(v->dtype));
        if (!data)
            return -1;
        copy_reordered(data, v, dims, stride);
        mem_free(v->data);
        v->data = data;
    }
    memcpy(v->dims, dims, sizeof dims);
    return 0;
}

int header_geometry(struct geometry *g, const double column[3][3], const double origin[3],
                    enum header_space space, struct error *e)
{
    const double sign[3] = {space == HEADER_RAS ? 1 : -1, space == HEADER_LPS ? -1 : 1, 1};
    double affine[3][4], inverse[3][4];
    for (int row = 0; row < 3; row++) {
        for (int a = 0; a < 3; a++)
            affine[row][a] = sign[row] * column[a][row];
        affine[row][3] = sign[row] * origin[row];
    }
    if (affine_invert(inverse, (const double(*)[4])affine) < 0)
        return fail(e, ERR_DATA, "R11", "space directions are singular or not finite");
    geometry_from_affine(g, (const double(*)[4])affine);
    for (int a = 0; a < 3; a++)
        if (!isfinite(g->spacing_mm[a]) || g->spacing_mm[a] <= 0)
            return fail(e, ERR_DATA, "R11", "spacing[%d]=%g", a, g->spacing_mm[a]);
    return 0;
}
