/* header_text.c - the shared half of the NRRD and MetaImage readers; see header_text.h.
 *
 *     source --header_next_line--> "name: value" --header_add--> fields --(nrrd.c, metaimage.c)-->
 *         dims, dtype, geometry, where the voxels are --header_read_voxels--> file order
 *         --header_reorder_axes--> i, j, k, channels
 *
 * Nothing here knows a format: which fields exist and what they mean is said by the reader. Numbers
 * are parsed strictly (whole word, decimal, finite), whatever the locale.
 */
#include "volume/header_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SKIP_TEXT_MAX = 1 << 20 }; /* bytes of lines before the voxels */

int header_init(struct header_text *h, const struct source *s, const struct volume_request *r,
                struct error *e)
{
    uint64_t most = source_left_at_most(s);
    h->n_fields = 0;
    h->bytes = 0;
    h->cap = most < HEADER_MAX_BYTES - 2 ? (size_t)most + 2 : HEADER_MAX_BYTES; /* 2: NUL, end */
    h->text = mem_alloc(e, h->cap + 1, 1);
    h->report = r->report;
    return h->text ? 0 : -1;
}

void header_done(struct header_text *h)
{
    mem_free(h->text);
    h->text = NULL;
}

/* ---- lines and fields ------------------------------------------------------------------------ */

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
            return fail(e, ERR_DATA, "R02",
                        "header line longer than %d bytes, or no blank line before the data",
                        HEADER_MAX_LINE);
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

static char *trim(char *text)
{
    text += strspn(text, " \t");
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
    h->field[h->n_fields++].value = trim(value);
    return 0;
}

const char *header_find(const struct header_text *h, const char *name)
{
    for (int i = 0; i < h->n_fields; i++)
        if (strcmp(h->field[i].name, name) == 0)
            return h->field[i].value;
    return NULL;
}

const char *header_need(const struct header_text *h, const char *name, const char *shown, struct error *e)
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

int header_reals(double *out, int n, const char *text)
{
    char word[HEADER_WORD];
    for (int i = 0; i < n; i++)
        if (header_word(word, &text) != 1 || parse_real(&out[i], word) < 0)
            return -1;
    return header_word(word, &text) == 0 ? 0 : -1;
}

int header_sizes(struct volume *v, int first, int n, const char *text, const char *shown, struct error *e)
{
    const char *at = text;
    char word[HEADER_WORD];
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        v->dims[a] = 1;
    int good = 1;
    for (int a = 0; a < n && good; a++)
        good = header_word(word, &at) == 1 && parse_int(&v->dims[first + a], word) == 0;
    if (!good || header_word(word, &at) != 0)
        return fail(e, ERR_DATA, "R04", "%s \"%.60s\": not %d integers", shown, text, n);
    for (int a = 0; a < n; a++)
        if (v->dims[first + a] < 1)
            return fail(e, ERR_DATA, "R04", "%s[%d]=%lld, allowed 1 or more", shown, a,
                        (long long)v->dims[first + a]);
    return 0;
}

int header_dtype(enum dtype *out, const char *const names[DTYPE_F64 + 1], const char *text, struct error *e)
{
    char name[HEADER_WORD], word[HEADER_WORD + 2];
    snprintf(word, sizeof word, " %s ", header_normalise(name, sizeof name, text));
    for (int t = DTYPE_U8; t <= DTYPE_F64; t++)
        if (strstr(names[t], word)) {
            *out = (enum dtype)t;
            return 0;
        }
    return fail(e, ERR_DATA, "R06", "type \"%.40s\" is not a scalar type", text);
}

double header_unit(const struct header_text *h, const char *word)
{
    static const struct {
        const char *name;
        double mm;
    } units[] = {{"", 1},
                 {"?", 1},
                 {"???", 1},
                 {"mm", 1},
                 {"millimeter", 1},
                 {"millimetre", 1},
                 {"um", 1e-3},
                 {"\xC2\xB5m", 1e-3},
                 {"\xCE\xBCm", 1e-3}, /* micro sign, Greek mu */
                 {"micron", 1e-3},
                 {"micrometer", 1e-3},
                 {"micrometre", 1e-3},
                 {"nm", 1e-6},
                 {"cm", 10},
                 {"centimeter", 10},
                 {"centimetre", 10},
                 {"m", 1e3},
                 {"meter", 1e3},
                 {"metre", 1e3}};
    size_t n = strlen(word);
    if (n > 3 && (word[n - 1] == 's' || word[n - 1] == 'S'))
        n--; /* plural */
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == n && strncasecmp(units[i].name, word, n) == 0)
            return units[i].mm;
    volume_warn(h, "N23", "unknown unit of length, taken as mm");
    return 1;
}

/* ---- voxels ---------------------------------------------------------------------------------- */

static int open_data(struct source **out, struct source *header, const char *name, struct error *e)
{
    const char *why = NULL;
    if (text_starts_with(name, "./"))
        name += 2;
    if (strcmp(name, "LIST") == 0 || text_starts_with(name, "LIST "))
        why = ": lists of files are not supported";
    else if (strchr(name, '%'))
        why = ": patterns are not supported";
    else if (!path_is_plain(name))
        why = " is not a plain name in the header's folder";
    else if (strcmp(name, path_name(source_path(header))) == 0)
        why = " is the header itself";
    if (why)
        return fail(e, ERR_DATA, "R09", "data file \"%.80s\"%s", name, why);
    if (source_open_beside(out, header, name, e) == 0)
        return 0;
    if (e && strcmp(e->id, "N36") == 0)
        memcpy(e->id, "R09", 4);
    return -1;
}

static int skip_lines(struct source *data, int64_t n, struct error *e)
{
    unsigned char byte;
    if (n > 0 && source_offset(data) == 0 && source_peek(data, &byte, 1, e) < 0)
        return -1; /* the peek fills the buffer, so that single bytes cost no system call */
    for (int64_t used = 0; n > 0; used++) {
        int64_t got = source_read_some(data, &byte, 1, e);
        if (got < 0)
            return -1;
        if (got == 0 || used == SKIP_TEXT_MAX)
            return fail(e, ERR_DATA, "R10", "line skip: %lld lines more than %s", (long long)n,
                        got ? "1 MiB of text" : "the file has");
        n -= byte == '\n';
    }
    return 0;
}

static int skip_bytes(struct source *data, int64_t n, struct error *e)
{
    if (source_can_hold(data, (uint64_t)n, "R10", e) < 0)
        return -1;
    return source_skip(data, (uint64_t)n, e);
}

static int skip_to_end(struct source *data, const struct volume *v, struct error *e)
{
    size_t bytes = dtype_bytes(v->dtype);
    for (int a = 0; a < VOLUME_MAX_DIMS; a++)
        if (size_mul(&bytes, bytes, (size_t)v->dims[a]) < 0)
            return 0; /* volume_read_voxels refuses such sizes */
    return bytes < source_left_at_most(data) ? source_seek_from_end(data, bytes, e) : 0;
}

int header_read_voxels(struct volume *v, struct source *s, const struct header_data *d,
                       const struct volume_request *r, struct error *e)
{
    struct source *detached = NULL;
    int result = -1;
    if (d->file && open_data(&detached, s, d->file, e) < 0)
        return -1;
    struct source *data = detached ? detached : s;
    if (skip_lines(data, d->skip_lines, e) == 0 && skip_bytes(data, d->skip_raw, e) == 0 &&
        source_can_hold(data, (uint64_t)d->packed, d->id_claim, e) == 0 &&
        (d->coding == SOURCE_PLAIN || source_decode(data, d->coding, e) == 0) &&
        (d->skip < 0 ? skip_to_end(data, v, e) : skip_bytes(data, d->skip, e)) == 0)
        result = volume_read_voxels(v, data, d->is_big ? VOXELS_BIG_ENDIAN : 0, d->id_claim, r, e);
    if (result < 0 && detached)
        fail_in(e, d->file);
    source_close(detached);
    return result;
}

/* ---- axes and geometry ----------------------------------------------------------------------- */

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
        void *data = mem_alloc(e, (size_t)n, dtype_bytes(v->dtype));
        if (!data)
            return -1;
        volume_gather(data, v, dims, stride, 0);
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
