/* nrrd.c - reads NRRD: a text header, a blank line, voxels; or a header (.nhdr) beside its voxels.
 *
 *     NRRD0004                                magic with the version
 *     # comment                               skipped, as are "key:=value" lines
 *     type: short                             fields, in any order
 *     dimension: 4
 *     space: left-posterior-superior          the patient's axes
 *     sizes: 3 256 256 25                     fastest axis first
 *     space directions: none (0.8,0,0) ...    step of each axis in space; none: not a spatial axis
 *     space origin: (-99,99,-78)              centre of the first voxel
 *     encoding: gzip
 *     <blank line, unless there is a "data file:">
 *
 * Spatial axes become i, j, k in the order of the file; the others follow as channels, wherever
 * they stood. A header that names no space keeps its directions as they are and the geometry is
 * marked as not known. Fields that do not bear on voxels or their place are ignored.
 */
#include "volume/nrrd.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "volume/header_text.h"

enum {
    KEY_VALUES_MAX = 1 << 12, /* "key:=value" lines; a segmentation of 100 organs has about 800 */
    SKIP_LINES_MAX = 1 << 16,
    SKIP_PACKED_MAX = 1 << 20 /* decoded bytes skipped in gzip */
};

struct nrrd {
    int n_axes, n_space; /* numbers in a direction; 0 as long as nothing tells */
    int known;           /* the header names the patient's axes */
    enum header_space space;
    int is_spatial[VOLUME_MAX_DIMS]; /* these in file order */
    double step[VOLUME_MAX_DIMS][3]; /* of spatial axes, mm */
    double origin[3];                /* mm */
    struct header_data data;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static int nrrd_recognise(const unsigned char *head, size_t n)
{
    return n >= 4 && memcmp(head, "NRRD", 4) == 0;
}

static int read_magic(struct header_text *h, struct source *s, struct error *e)
{
    char *line;
    int got = header_next_line(&line, h, s, e);
    if (got < 0)
        return -1;
    if (got == 0 || strlen(line) != 8 || strncmp(line, "NRRD000", 7) != 0 || line[7] < '1' || line[7] > '5')
        return fail(e, ERR_DATA, "R01", "magic \"%.12s\", allowed NRRD0001 to NRRD0005", got ? line : "");
    return 0;
}

/* Splits "name: value" (1) or tells that the line is "key:=value" (0). The colon is the first one
 * with a blank or '=' behind it; if there is none, the first. */
static int split_line(char *line, char **value, struct error *e)
{
    char *colon = NULL;
    for (char *p = strchr(line, ':'); p && !colon; p = strchr(p + 1, ':'))
        if (p[1] == ' ' || p[1] == '\t' || p[1] == '=')
            colon = p;
    if (!colon)
        colon = strchr(line, ':');
    if (!colon)
        return fail(e, ERR_DATA, "R02", "header line \"%.40s\" is no field; no blank line?", line);
    if (colon[1] == '=')
        return 0;
    *colon = '\0';
    *value = colon + 1;
    return 1;
}

static int read_fields(struct header_text *h, struct source *s, struct error *e)
{
    char *line, *value = NULL;
    int got, n_key_values = 0;
    while ((got = header_next_line(&line, h, s, e)) > 0 && *line) {
        if (*line == '#')
            continue;
        int is_field = split_line(line, &value, e);
        if (is_field < 0)
            return -1;
        if (is_field == 0 && ++n_key_values > KEY_VALUES_MAX)
            return fail(e, ERR_DATA, "R13", "more than %d key:=value lines", KEY_VALUES_MAX);
        if (is_field && header_add(h, line, value, e) < 0)
            return -1;
        const char *data_file = is_field ? header_find(h, "datafile") : NULL;
        if (data_file && text_starts_with(data_file, "LIST"))
            return 0; /* names of files follow, however many; lists are refused later */
    }
    if (got < 0)
        return -1;
    if (got == 0 && !header_find(h, "datafile"))
        return fail(e, ERR_DATA, "R02", "no blank line before the data, the file ends in the header");
    return 0;
}

/* ---- shape and coding ------------------------------------------------------------------------ */

static const char *const type_names[DTYPE_F64 + 1] = {
    [DTYPE_I8] = " signedchar int8 int8t ",
    [DTYPE_U8] = " uchar unsignedchar uint8 uint8t ",
    [DTYPE_I16] = " short shortint signedshort signedshortint int16 int16t ",
    [DTYPE_U16] = " ushort unsignedshort unsignedshortint uint16 uint16t ",
    [DTYPE_I32] = " int signedint int32 int32t ",
    [DTYPE_U32] = " uint unsignedint uint32 uint32t ",
    [DTYPE_I64] = " longlong longlongint signedlonglong signedlonglongint int64 int64t ",
    [DTYPE_U64] = " ulonglong unsignedlonglong unsignedlonglongint uint64 uint64t ",
    [DTYPE_F32] = " float ",
    [DTYPE_F64] = " double ",
};

static int parse_shape(struct volume *v, const struct header_text *h, struct error *e)
{
    const char *dimension = header_need(h, "dimension", "dimension", e), *sizes, *type;
    int64_t n;
    if (!dimension || !(sizes = header_need(h, "sizes", "sizes", e)) ||
        !(type = header_need(h, "type", "type", e)))
        return -1;
    if (parse_int(&n, dimension) < 0 || n < 1 || n > VOLUME_MAX_DIMS)
        return fail(e, ERR_DATA, "R04", "dimension \"%.40s\", allowed 1..%d", dimension, VOLUME_MAX_DIMS);
    v->n_dims = (int)n;
    if (header_sizes(v, 0, v->n_dims, sizes, "sizes", e) < 0)
        return -1;
    return header_dtype(&v->dtype, type_names, type, e);
}

static int parse_skips(struct header_data *d, const struct header_text *h, struct error *e)
{
    const char *lines = header_find(h, "lineskip"), *bytes = header_find(h, "byteskip");
    if (lines &&
        (parse_int(&d->skip_lines, lines) < 0 || d->skip_lines < 0 || d->skip_lines > SKIP_LINES_MAX))
        return fail(e, ERR_DATA, "R10", "line skip \"%.40s\", allowed 0..%d", lines, SKIP_LINES_MAX);
    if (bytes && (parse_int(&d->skip, bytes) < 0 || d->skip < -1))
        return fail(e, ERR_DATA, "R10", "byte skip \"%.40s\", allowed -1 or more", bytes);
    if (d->coding == SOURCE_GZIP && (d->skip < 0 || d->skip > SKIP_PACKED_MAX))
        return fail(e, ERR_DATA, "R10", "byte skip %lld with gzip, allowed 0..%d", (long long)d->skip,
                    SKIP_PACKED_MAX);
    return 0;
}

static int parse_coding(struct header_data *d, enum dtype t, const struct header_text *h, struct error *e)
{
    const char *endian = header_find(h, "endian");
    const char *encoding = header_need(h, "encoding", "encoding", e);
    if (!encoding)
        return -1;
    if (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "gz") == 0)
        d->coding = SOURCE_GZIP;
    else if (strcasecmp(encoding, "raw") != 0)
        return fail(e, ERR_DATA, "R07", "encoding \"%.40s\" is not supported, raw and gzip are", encoding);
    if (!endian && dtype_bytes(t) > 1)
        return fail(e, ERR_DATA, "R08", "field \"endian\" is missing, needed for type %s", dtype_name(t));
    d->is_big = endian && strcasecmp(endian, "big") == 0;
    if (endian && !d->is_big && strcasecmp(endian, "little") != 0)
        return fail(e, ERR_DATA, "R08", "endian \"%.40s\", allowed little or big", endian);
    d->file = header_find(h, "datafile");
    d->id_claim = "R14";
    return parse_skips(d, h, e);
}

/* ---- space ----------------------------------------------------------------------------------- */

/* Each also exists with time as a fourth number: "...-time", and "LPST" for "LPS". */
static const struct {
    const char *name;
    enum header_space space;
    enum { NAMED, DOUBTFUL, UNNAMED } naming;
} spaces[] = {
    {"left-posterior-superior", HEADER_LPS, NAMED}, {"lps", HEADER_LPS, NAMED},
    {"right-anterior-superior", HEADER_RAS, NAMED}, {"ras", HEADER_RAS, NAMED},
    {"left-anterior-superior", HEADER_LAS, NAMED},  {"las", HEADER_LAS, NAMED},
    {"scanner-xyz", HEADER_LPS, DOUBTFUL},          {"3d-right-handed", HEADER_RAS, UNNAMED},
    {"3d-left-handed", HEADER_RAS, UNNAMED},
};
enum { N_SPACES = sizeof spaces / sizeof spaces[0] };

static int parse_space_name(struct nrrd *n, const struct header_text *h, const char *text, struct error *e)
{
    char name[HEADER_WORD];
    size_t length = strlen(header_normalise(name, sizeof name, text)), i = 0;
    int has_time = text_ends_with(name, "-time") || (length == 4 && name[3] == 't');
    if (has_time)
        name[length - (length == 4 ? 1 : 5)] = '\0';
    while (i < N_SPACES && strcmp(name, spaces[i].name) != 0)
        i++;
    if (i == N_SPACES)
        return fail(e, ERR_DATA, "R12", "space \"%.60s\" is unknown", text);
    n->n_space = has_time ? 4 : 3;
    n->space = spaces[i].space;
    n->known = spaces[i].naming != UNNAMED;
    if (spaces[i].naming == DOUBTFUL)
        volume_warn(h, "R12", "space is scanner-xyz, taken as left-posterior-superior");
    return 0;
}

static int parse_space(struct nrrd *n, const struct header_text *h, struct error *e)
{
    const char *text = header_find(h, "space"), *dimension = header_find(h, "spacedimension");
    int64_t count;
    if (text && parse_space_name(n, h, text, e) < 0)
        return -1;
    if (dimension &&
        (parse_int(&count, dimension) < 0 || count < 2 || count > 4 || (text && count != n->n_space)))
        return fail(e, ERR_DATA, "R12", "space dimension \"%.40s\", allowed %s", dimension,
                    text ? "what \"space\" says" : "2..4");
    if (dimension)
        n->n_space = (int)count;
    if (!n->known)
        volume_warn(h, "R12", "no patient space is named, orientation unknown");
    return 0;
}

/* One "(x,y,z)" or "none" of *at, which moves behind it. Returns how many numbers it has (0 for
 * none), at most 4, or -1 if it is neither. */
static int parse_vector(double out[4], const char **at)
{
    const char *p = *at + strspn(*at, " \t");
    if (strncasecmp(p, "none", 4) == 0) {
        *at = p + 4;
        return 0;
    }
    if (*p != '(')
        return -1;
    for (int i = 0; i < 4; i++) {
        char word[HEADER_WORD];
        p = p + 1 + strspn(p + 1, " \t");
        size_t n = strcspn(p, " \t,)");
        if (n == 0 || n >= sizeof word)
            return -1;
        memcpy(word, p, n);
        word[n] = '\0';
        p += n + strspn(p + n, " \t");
        if (parse_real(&out[i], word) < 0 || (*p != ',' && *p != ')'))
            return -1;
        if (*p == ')') {
            *at = p + 1;
            return i + 1;
        }
    }
    return -1;
}

/* Puts one direction into axis a; one that only moves in time makes the axis a channel. */
static int set_step(struct nrrd *n, int a, const double v[4], int count, struct error *e)
{
    if (n->n_space == 0 && count >= 2)
        n->n_space = count;
    if (count != n->n_space)
        return fail(e, ERR_DATA, "R11", "space directions[%d] has %d numbers, expected %d", a, count,
                    n->n_space);
    if (count == 4 && v[0] == 0 && v[1] == 0 && v[2] == 0)
        return 0;
    if (count == 4 && v[3] != 0)
        return fail(e, ERR_DATA, "R11", "space directions[%d] mixes space and time", a);
    n->is_spatial[a] = 1;
    for (int i = 0; i < 3 && i < count; i++)
        n->step[a][i] = v[i];
    return 0;
}

static int parse_directions(struct nrrd *n, const char *text, struct error *e)
{
    int n_spatial = 0;
    for (int a = 0; a < n->n_axes; a++) {
        double v[4];
        int count = parse_vector(v, &text);
        if (count < 0)
            return fail(e, ERR_DATA, "R11", "space directions[%d] is no vector of finite numbers", a);
        if (count > 0 && set_step(n, a, v, count, e) < 0)
            return -1;
        n_spatial += n->is_spatial[a];
    }
    if (text[strspn(text, " \t")])
        return fail(e, ERR_DATA, "R11", "more space directions than the %d axes", n->n_axes);
    int n_needed = n->n_space == 2 ? 2 : 3;
    int is_slice = n->n_axes == 2 && n_spatial == 2; /* a single slice lying in space */
    if (n_spatial != n_needed && !is_slice)
        return fail(e, ERR_DATA, "R11", "%d space directions and %d none, a space of %d needs %d", n_spatial,
                    n->n_axes - n_spatial, n_needed, n_needed);
    return 0;
}

/* Words that say whether an axis is a place in space: 1, 0, or -1 if the word does not tell. */
static int kind_is_spatial(const char *kind)
{
    if (strcasecmp(kind, "domain") == 0 || strcasecmp(kind, "space") == 0)
        return 1;
    return strcmp(kind, "???") == 0 || strcasecmp(kind, "none") == 0 ? -1 : 0;
}

/* Without directions: the first three axes that nothing calls otherwise are spatial. */
static int choose_axes(struct nrrd *n, const struct header_text *h, const double spacing[], struct error *e)
{
    const char *kinds = header_find(h, "kinds");
    int n_spatial = 0;
    for (int a = 0; a < n->n_axes; a++) {
        char word[HEADER_WORD];
        if (kinds && header_word(word, &kinds) != 1)
            return fail(e, ERR_DATA, "R04", "kinds has fewer than %d words", n->n_axes);
        int told = kinds ? kind_is_spatial(word) : -1;
        if (told < 0)
            told = !(isnan(spacing[a]) && n->n_axes > 3);
        n->is_spatial[a] = told && n_spatial < 3;
        n_spatial += n->is_spatial[a];
    }
    return n_spatial > 0 ? 0 : fail(e, ERR_DATA, "R04", "none of the %d axes is spatial", n->n_axes);
}

/* The next unit of a list of quoted words; beyond its end millimetres. */
static double next_unit(const char **at, const struct header_text *h)
{
    char word[HEADER_WORD] = "";
    if (*at == NULL)
        return 1;
    *at += strspn(*at, " \t");
    size_t quoted = **at == '"', n = strcspn(*at + quoted, quoted ? "\"" : " \t");
    memcpy(word, *at + quoted, n < sizeof word ? n : sizeof word - 1);
    *at += quoted + n;
    *at += quoted && **at == '"';
    return header_unit(h, word);
}

static int parse_spacings(struct nrrd *n, const struct header_text *h, struct error *e)
{
    const char *text = header_find(h, "spacings"), *units = header_find(h, "units");
    double spacing[VOLUME_MAX_DIMS];
    char word[HEADER_WORD];
    for (int a = 0; a < n->n_axes; a++) {
        spacing[a] = NAN;
        if (text && (header_word(word, &text) != 1 ||
                     (strcasecmp(word, "nan") != 0 && parse_real(&spacing[a], word) < 0)))
            return fail(e, ERR_DATA, "R11", "spacings[%d] is not a number", a);
    }
    if (text && header_word(word, &text) != 0)
        return fail(e, ERR_DATA, "R11", "more spacings than the %d axes", n->n_axes);
    if (choose_axes(n, h, spacing, e) < 0)
        return -1;
    for (int a = 0, i = 0; a < n->n_axes; a++) {
        double mm = next_unit(&units, h);
        if (!n->is_spatial[a])
            continue;
        if (spacing[a] == 0)
            return fail(e, ERR_DATA, "N22", "spacings[%d]=0", a);
        if (spacing[a] < 0)
            volume_warn(h, "N22", "negative spacing, its absolute value is taken");
        n->step[a][i++] = isnan(spacing[a]) ? 1 : fabs(spacing[a]) * mm;
    }
    return 0;
}

/* Origin and units of space, which scale the rows of every direction and of the origin. */
static int parse_origin(struct nrrd *n, const struct header_text *h, struct error *e)
{
    const char *text = header_find(h, "spaceorigin"), *units = header_find(h, "spaceunits");
    int has_directions = header_find(h, "spacedirections") != NULL;
    if (text && strcasecmp(text, "none") != 0) {
        double v[4] = {0};
        int count = parse_vector(v, &text);
        if (count < 2 || text[strspn(text, " \t")] || (n->n_space && count != n->n_space))
            return fail(e, ERR_DATA, "R11", "space origin is no vector of %d finite numbers",
                        n->n_space ? n->n_space : 3);
        memcpy(n->origin, v, sizeof n->origin);
        if (count == 2)
            n->origin[2] = 0;
    }
    for (int row = 0; row < 3; row++) {
        double mm = next_unit(&units, h);
        n->origin[row] *= mm;
        for (int a = 0; has_directions && a < n->n_axes; a++)
            n->step[a][row] *= mm;
    }
    return 0;
}

static int parse_place(struct nrrd *n, const struct header_text *h, struct error *e)
{
    const char *directions = header_find(h, "spacedirections");
    if (parse_space(n, h, e) < 0)
        return -1;
    if ((directions ? parse_directions(n, directions, e) : parse_spacings(n, h, e)) < 0)
        return -1;
    return parse_origin(n, h, e);
}

/* ---- assembling ------------------------------------------------------------------------------ */

/* A unit step across a slice given by two directions. */
static void complete_slice(double column[3][3])
{
    const double *a = column[0], *b = column[1];
    double c[3] = {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
    double length = sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2]);
    for (int i = 0; i < 3; i++)
        column[2][i] = c[i] / length; /* parallel directions give NaN, refused as singular */
}

static int make_geometry(struct geometry *g, const struct nrrd *n, int has_directions, struct error *e)
{
    double column[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    int n_spatial = 0;
    for (int a = 0; a < n->n_axes; a++)
        if (n->is_spatial[a])
            memcpy(column[n_spatial++], n->step[a], sizeof column[0]);
    if (has_directions && n_spatial == 2)
        complete_slice(column);
    if (header_geometry(g, (const double(*)[3])column, n->origin, n->space, e) < 0)
        return -1;
    g->known = n->known;
    return 0;
}

/* from[a] is the file axis that becomes axis a: spatial ones, padded to three, then the rest. */
static int order_axes(int from[VOLUME_MAX_DIMS], int *n_dims, const struct nrrd *n, struct error *e)
{
    int n_spatial = 0, n_channel = 0, next = 0, pad = n->n_axes;
    for (int a = 0; a < n->n_axes; a++)
        n_spatial += n->is_spatial[a];
    n_channel = n->n_axes - n_spatial;
    *n_dims = n_channel ? 3 + n_channel : n_spatial;
    if (*n_dims > VOLUME_MAX_DIMS)
        return fail(e, ERR_DATA, "R04", "%d axes that are not spatial, allowed %d", n_channel,
                    VOLUME_MAX_DIMS - 3);
    for (int a = 0; a < n->n_axes; a++)
        if (n->is_spatial[a])
            from[next++] = a;
    while (next < 3)
        from[next++] = pad++;
    for (int a = 0; a < n->n_axes; a++)
        if (!n->is_spatial[a])
            from[next++] = a;
    while (next < VOLUME_MAX_DIMS)
        from[next++] = pad++;
    return 0;
}

static int nrrd_read(struct volume *out, struct source *s, const struct volume_request *r, struct error *e)
{
    struct header_text h;
    struct nrrd n = {.space = HEADER_RAS};
    int from[VOLUME_MAX_DIMS], n_dims, result = -1;
    if (header_init(&h, s, r, e) < 0)
        return -1;
    if (read_magic(&h, s, e) < 0 || read_fields(&h, s, e) < 0 || parse_shape(out, &h, e) < 0 ||
        parse_coding(&n.data, out->dtype, &h, e) < 0)
        goto out;
    out->format = "NRRD";
    n.n_axes = out->n_dims;
    if (parse_place(&n, &h, e) < 0 || order_axes(from, &n_dims, &n, e) < 0 ||
        make_geometry(&out->geometry, &n, header_find(&h, "spacedirections") != NULL, e) < 0 ||
        header_read_voxels(out, s, &n.data, r, e) < 0 || header_reorder_axes(out, from, e) < 0)
        goto out;
    out->n_dims = n_dims;
    result = 0;
out:
    header_done(&h);
    return result;
}

const struct volume_format format_nrrd = {nrrd_recognise, nrrd_read, nrrd_write};
