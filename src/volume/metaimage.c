/* metaimage.c - reads MetaImage: "Name = value" lines that end with ElementDataFile, then voxels.
 *
 *     ObjectType = Image
 *     NDims = 3
 *     CompressedData = True                   zlib or gzip stream
 *     TransformMatrix = 1 0 0 0 1 0 0 0 1     direction of axis 0, then 1, then 2 (unit vectors)
 *     Offset = -153.8 -150.3 -1434.5          centre of the first voxel
 *     ElementSpacing = 1.366 1.366 2.5
 *     DimSize = 115 157 129                   fastest axis first
 *     ElementType = MET_SHORT
 *     ElementDataFile = LOCAL                 .mha: voxels follow; .mhd: name of the file with them
 *
 * Coordinates are LPS. Channels are interleaved in the file (fastest of all) and become the last
 * axis here; a fourth axis (time) is the last but one. Refusals carry the ids of the NRRD rows of
 * the fault catalogue where they mean the same, and T01 to T07 for what only this format has.
 */
#include <string.h>
#include <strings.h>

#include "volume/header_text.h"

enum { AXES_MIN = 2, AXES_MAX = 4 };

struct metaimage {
    int n_axes; /* without channels */
    double spacing[AXES_MAX], origin[AXES_MAX], matrix[AXES_MAX * AXES_MAX];
    double unit_mm;
    int known; /* the header gives directions */
    struct header_data data;
};

/* The first line is "Name = ..." with a name that MetaImage headers begin with. */
static int metaimage_recognise(const unsigned char *head, size_t n)
{
    static const char *const first[] = {"ObjectType", "ObjectSubType", "NDims", "Comment"};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        size_t at = strlen(first[i]);
        if (n <= at || memcmp(head, first[i], at) != 0)
            continue;
        while (at < n && (head[at] == ' ' || head[at] == '\t'))
            at++;
        if (at < n && head[at] == '=')
            return 1;
    }
    return 0;
}

static int read_fields(struct header_text *h, struct source *s, struct error *e)
{
    char *line;
    int got;
    while (!header_find(h, "elementdatafile")) {
        if ((got = header_next_line(&line, h, s, e)) < 0)
            return -1;
        if (got == 0)
            return fail(e, ERR_DATA, "R03", "field \"ElementDataFile\" is missing");
        if (*line == '#' || line[strspn(line, " \t")] == '\0')
            continue;
        char *equals = line + strcspn(line, "=:");
        if (*equals == '\0')
            return fail(e, ERR_DATA, "R02", "header line \"%.40s\" is no field", line);
        *equals = '\0';
        if (header_add(h, line, equals + 1, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* The first of up to three names of the same thing that the header has. */
static const char *find_any(const struct header_text *h, const char *a, const char *b, const char *c)
{
    const char *value = header_find(h, a);
    if (!value && b)
        value = header_find(h, b);
    if (!value && c)
        value = header_find(h, c);
    return value;
}

/* True or False; *out stays as it is if the header does not have the field. Returns 1 if it has. */
static int parse_flag(int *out, const struct header_text *h, const char *name, struct error *e)
{
    const char *value = header_find(h, name);
    if (!value)
        return 0;
    if (strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0)
        *out = 1;
    else if (strcasecmp(value, "false") == 0 || strcmp(value, "0") == 0)
        *out = 0;
    else
        return fail(e, ERR_DATA, "T03", "%s = \"%.40s\", allowed True or False", name, value);
    return 1;
}

static const char *const type_names[DTYPE_F64 + 1] = {
    /* The format fixes LONG at 4 bytes, whatever the machine that wrote it. */
    [DTYPE_U8] = " metuchar ",      [DTYPE_I8] = " metchar ",           [DTYPE_U16] = " metushort ",
    [DTYPE_I16] = " metshort ",     [DTYPE_U32] = " metuint metulong ", [DTYPE_I32] = " metint metlong ",
    [DTYPE_U64] = " metulonglong ", [DTYPE_I64] = " metlonglong ",      [DTYPE_F32] = " metfloat ",
    [DTYPE_F64] = " metdouble ",
};

/* The file's axes: channels (1 if there are none), then those of DimSize. */
static int parse_shape(struct volume *v, struct metaimage *m, const struct header_text *h, struct error *e)
{
    const char *object = header_find(h, "objecttype"), *axes = header_need(h, "ndims", "NDims", e);
    const char *sizes, *type, *channels = header_find(h, "elementnumberofchannels");
    int64_t n_axes, n_channels = 1;
    if (object && strcasecmp(object, "Image") != 0)
        return fail(e, ERR_DATA, "T01", "ObjectType \"%.40s\", expected Image", object);
    if (!axes || !(sizes = header_need(h, "dimsize", "DimSize", e)) ||
        !(type = header_need(h, "elementtype", "ElementType", e)))
        return -1;
    if (parse_int(&n_axes, axes) < 0 || n_axes < AXES_MIN || n_axes > AXES_MAX)
        return fail(e, ERR_DATA, "T02", "NDims \"%.40s\", allowed %d..%d", axes, AXES_MIN, AXES_MAX);
    m->n_axes = (int)n_axes;
    if (channels && (parse_int(&n_channels, channels) < 0 || n_channels < 1))
        return fail(e, ERR_DATA, "R04", "ElementNumberOfChannels \"%.40s\", allowed 1 or more", channels);
    if (header_sizes(v, 1, m->n_axes, sizes, "DimSize", e) < 0)
        return -1;
    v->dims[0] = n_channels;
    return header_dtype(&v->dtype, type_names, type, e);
}

static int parse_order(int *is_big, enum dtype t, const struct header_text *h, struct error *e)
{
    int element = 0, data = 0;
    int has_element = parse_flag(&element, h, "elementbyteordermsb", e);
    int has_data = has_element < 0 ? -1 : parse_flag(&data, h, "binarydatabyteordermsb", e);
    if (has_data < 0)
        return -1;
    if (has_element && has_data && element != data)
        return fail(e, ERR_DATA, "T04", "ElementByteOrderMSB and BinaryDataByteOrderMSB disagree");
    *is_big = element || data;
    if (!has_element && !has_data && dtype_bytes(t) > 1)
        volume_warn(h, "T04", "no byte order is given, taken as little endian");
    return 0;
}

/* HeaderSize counts from the start of the file that holds the voxels; `at` bytes of it are read. */
static int parse_skip(struct header_data *d, const struct header_text *h, int64_t at, struct error *e)
{
    const char *skip = header_find(h, "headersize"), *slice = header_find(h, "headersizeperslice");
    int64_t bytes = 0;
    if (skip && (parse_int(&bytes, skip) < 0 || bytes < -1))
        return fail(e, ERR_DATA, "R10", "HeaderSize \"%.40s\", allowed -1 or more", skip);
    if (bytes < 0 && d->coding != SOURCE_PLAIN)
        return fail(e, ERR_DATA, "R10", "HeaderSize -1 with compressed data");
    if (bytes > 0 && bytes < at)
        return fail(e, ERR_DATA, "R10", "HeaderSize %lld lies inside the header of %lld bytes",
                    (long long)bytes, (long long)at);
    if (slice && strcmp(slice, "0") != 0)
        return fail(e, ERR_DATA, "T06", "HeaderSizePerSlice \"%.40s\" is not supported", slice);
    d->skip_raw = bytes > 0 ? bytes - at : 0;
    d->skip = bytes < 0 ? -1 : 0;
    return 0;
}

static int parse_coding(struct header_data *d, enum dtype t, const struct header_text *h,
                        const struct source *s, struct error *e)
{
    int is_binary = 1, is_packed = 0;
    const char *file = header_find(h, "elementdatafile");
    const char *packed = header_find(h, "compresseddatasize");
    if (parse_flag(&is_binary, h, "binarydata", e) < 0 ||
        parse_flag(&is_packed, h, "compresseddata", e) < 0 || parse_order(&d->is_big, t, h, e) < 0)
        return -1;
    if (!is_binary)
        return fail(e, ERR_DATA, "R07", "BinaryData = False: voxels as text are not supported");
    if (is_packed && packed && (parse_int(&d->packed, packed) < 0 || d->packed < 0))
        return fail(e, ERR_DATA, "T05", "CompressedDataSize \"%.40s\" is no number of bytes", packed);
    d->coding = is_packed ? SOURCE_GZIP_OR_ZLIB : SOURCE_PLAIN;
    d->file = strcasecmp(file, "LOCAL") == 0 ? NULL : file;
    d->id_claim = "N11";
    return parse_skip(d, h, d->file ? 0 : (int64_t)source_offset(s), e);
}

/* A list of numbers, one per axis or more, that may be missing. */
static int parse_list(double *out, int n, const char *text, const char *name, struct error *e)
{
    if (text && header_reals(out, n, text) < 0)
        return fail(e, ERR_DATA, "R11", "%s \"%.60s\" is not %d finite numbers", name, text, n);
    return 0;
}

/* Values stand for intensities of their own only through fields that no reader in use applies. */
static void note_scaling(const struct header_text *h)
{
    const char *slope = header_find(h, "elementtointensityfunctionslope");
    const char *inter = header_find(h, "elementtointensityfunctionoffset");
    double a = 1, b = 0;
    if ((slope && (parse_real(&a, slope) < 0 || a != 1)) || (inter && (parse_real(&b, inter) < 0 || b != 0)))
        volume_warn(h, "T07", "ElementToIntensityFunction is not applied");
}

static int parse_place(struct metaimage *m, const struct header_text *h, struct error *e)
{
    const char *matrix = find_any(h, "transformmatrix", "rotation", "orientation");
    const char *offset = find_any(h, "offset", "position", "origin");
    const char *spacing = find_any(h, "elementspacing", "elementsize", NULL);
    const char *unit = header_find(h, "distanceunits");
    for (int a = 0; a < AXES_MAX; a++)
        m->spacing[a] = 1;
    for (int a = 0; a < m->n_axes; a++)
        m->matrix[a * m->n_axes + a] = 1;
    if (parse_list(m->matrix, m->n_axes * m->n_axes, matrix, "TransformMatrix", e) < 0 ||
        parse_list(m->origin, m->n_axes, offset, "Offset", e) < 0 ||
        parse_list(m->spacing, m->n_axes, spacing, "ElementSpacing", e) < 0)
        return -1;
    for (int a = 0; a < m->n_axes && a < 3; a++) {
        if (m->spacing[a] == 0)
            return fail(e, ERR_DATA, "N22", "ElementSpacing[%d]=0", a);
        if (m->spacing[a] < 0)
            volume_warn(h, "N22", "negative spacing, its absolute value is taken");
        m->spacing[a] = m->spacing[a] < 0 ? -m->spacing[a] : m->spacing[a];
    }
    m->unit_mm = unit ? header_unit(h, unit) : 1;
    m->known = matrix != NULL;
    if (!m->known)
        volume_warn(h, "R12", "no TransformMatrix, orientation unknown");
    note_scaling(h);
    return 0;
}

/* ---- assembling ------------------------------------------------------------------------------ */

/* The first three axes; those that a 2D image lacks are unit steps of their own. */
static int make_geometry(struct geometry *g, const struct metaimage *m, struct error *e)
{
    double column[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, origin[3] = {0};
    int n = m->n_axes;
    for (int a = 0; a < n && a < 3; a++) {
        origin[a] = m->origin[a] * m->unit_mm;
        for (int row = 0; row < n && row < 3; row++)
            column[a][row] = m->matrix[a * n + row] * m->spacing[a] * m->unit_mm;
    }
    for (int a = 0; n == 4 && a < 3; a++)
        if (m->matrix[a * n + 3] != 0 || m->matrix[3 * n + a] != 0)
            return fail(e, ERR_DATA, "R11", "TransformMatrix mixes space and the fourth axis");
    if (header_geometry(g, (const double(*)[3])column, origin, HEADER_LPS, e) < 0)
        return -1;
    g->known = m->known;
    return 0;
}

/* Puts i, j, k first, then a fourth axis, then the channels. */
static int order_axes(struct volume *v, int n_axes, struct error *e)
{
    static const int from[VOLUME_MAX_DIMS] = {1, 2, 3, 4, 0, 5, 6};
    static const int from_3d[VOLUME_MAX_DIMS] = {1, 2, 3, 0, 4, 5, 6};
    v->n_dims = v->dims[0] == 1 ? n_axes : n_axes == 4 ? 5 : 4;
    return header_reorder_axes(v, n_axes == 4 ? from : from_3d, e);
}

static int metaimage_read(struct volume *out, struct source *s, const struct volume_request *r,
                          struct error *e)
{
    struct header_text h;
    struct metaimage m = {0};
    if (header_init(&h, s, r, e) < 0)
        return -1;
    out->format = "MetaImage";
    int result = -1;
    if (read_fields(&h, s, e) == 0 && parse_shape(out, &m, &h, e) == 0 &&
        parse_coding(&m.data, out->dtype, &h, s, e) == 0 && parse_place(&m, &h, e) == 0 &&
        make_geometry(&out->geometry, &m, e) == 0 && header_read_voxels(out, s, &m.data, r, e) == 0)
        result = order_axes(out, m.n_axes, e);
    header_done(&h);
    return result;
}

const struct volume_format format_metaimage = {metaimage_recognise, metaimage_read, NULL};
