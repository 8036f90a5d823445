/* dicom_header.c - a bounded walk over the elements of one DICOM file (PS3.5 section 7, PS3.10).
 *
 *     128 free bytes, "DICM"
 *     meta header   group 0002, explicit VR little endian; names the transfer syntax of the rest
 *     data set      elements (group, element) [VR] length value; a sequence (SQ) holds items,
 *                   an item holds elements; both have a length or are closed by a delimiter
 *
 *     explicit VR   gg gg ee ee V R ll ll            value      most VRs
 *                   gg gg ee ee V R 00 00 ll ll ll ll value     OB OW SQ UN UT ...
 *     implicit VR   gg gg ee ee ll ll ll ll          value
 *
 * Every element is counted and its length compared with the bytes that its container has left, so a
 * walk ends whatever the bytes are. Values are looked at only on the outermost level and only for
 * known tags, through one small buffer: memory does not depend on the file.
 */
#include "volume/dicom_header.h"

#include <stdio.h>
#include <string.h>

enum { VALUE_BYTES = 256 }; /* longest value of interest: ImageType; six decimal strings need 101 */
#define LENGTH_UNDEFINED 0xFFFFFFFFu
#define TAG(group, element) ((uint32_t)(group) << 16 | (element))
#define TAG_ITEM TAG(0xFFFE, 0xE000)
#define TAG_ITEM_END TAG(0xFFFE, 0xE00D)
#define TAG_SEQUENCE_END TAG(0xFFFE, 0xE0DD)
#define TAG_PIXELS TAG(0x7FE0, 0x0010)

struct walk {
    struct source *s;
    struct dicom_header *h;
    int big_endian, implicit_vr; /* of the data set */
    int n_elements;
    int after_pixels;     /* the pixels of the outermost level have been passed */
    unsigned char tag[4]; /* first tag behind the meta header: read, but not yet understood */
    int has_tag;
    char patient_id[VALUE_BYTES], patient_name[VALUE_BYTES];
};

struct element {
    uint32_t tag;
    char vr[3]; /* "" if implicit */
    uint32_t length;
    uint64_t at; /* byte of the file where the tag stands */
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint32_t get16(const unsigned char *p, int big)
{
    return big ? (uint32_t)(p[0] << 8 | p[1]) : (uint32_t)(p[1] << 8 | p[0]);
}

static uint32_t get32(const unsigned char *p, int big)
{
    return big ? get16(p, 1) << 16 | get16(p + 2, 1) : get16(p + 2, 0) << 16 | get16(p, 0);
}

static int refuse(const struct element *el, const char *id, const char *what, struct error *e)
{
    return fail(e, ERR_DATA, id, "element (%04X,%04X) at byte %llu: %s", el->tag >> 16,
                el->tag & 0xFFFF, (unsigned long long)el->at, what);
}

static int refuse_length(const struct element *el, uint64_t left, struct error *e)
{
    char what[80];
    snprintf(what, sizeof what, "length %u, %llu bytes left", el->length, (unsigned long long)left);
    return refuse(el, "D02", what, e);
}

/* Bytes left up to `end`, an offset in the file. */
static uint64_t left_until(const struct walk *w, uint64_t end)
{
    uint64_t at = source_offset(w->s);
    return end > at ? end - at : 0;
}

static int take(struct walk *w, void *out, size_t n, uint64_t end, const struct element *el,
                struct error *e)
{
    if (left_until(w, end) < n)
        return refuse(el, "D02", "ends inside an element", e);
    return source_read(w->s, out, n, e);
}

/* ---- one element head ------------------------------------------------------------------------ */

static int is_long_vr(const char *vr)
{
    static const char list[] = "OB OD OF OL OV OW SQ SV UC UN UR UT UV ";
    for (const char *p = list; *p; p += 3)
        if (p[0] == vr[0] && p[1] == vr[1])
            return 1;
    return 0;
}

static int is_short_vr(const char *vr)
{
    static const char list[] = "AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US ";
    for (const char *p = list; *p; p += 3)
        if (p[0] == vr[0] && p[1] == vr[1])
            return 1;
    return 0;
}

/* VR and length of an explicit element whose tag is read. */
static int read_explicit(struct element *el, struct walk *w, int big, uint64_t end, struct error *e)
{
    unsigned char b[4];
    char what[64];
    if (take(w, b, 4, end, el, e) < 0)
        return -1;
    el->vr[0] = (char)b[0];
    el->vr[1] = (char)b[1];
    if (is_short_vr(el->vr)) {
        el->length = get16(b + 2, big);
        return 0;
    }
    /* PS3.5 7.1.2: VRs of later editions have the long form; anything else is damage */
    int known = is_long_vr(el->vr),
        letters = b[0] >= 'A' && b[0] <= 'Z' && b[1] >= 'A' && b[1] <= 'Z';
    if (!known && (el->tag >> 16 == 2 || !letters)) {
        snprintf(what, sizeof what, "unknown VR 0x%02X%02X", b[0], b[1]);
        return refuse(el, el->tag >> 16 == 2 ? "D04" : "D02", what, e);
    }
    if (take(w, b, 4, end, el, e) < 0)
        return -1;
    el->length = get32(b, big);
    return 0;
}

/* The four bytes of the next tag, and where they stand. */
static int read_tag(unsigned char b[4], struct element *el, struct walk *w, uint64_t end,
                    struct error *e)
{
    memset(el, 0, sizeof *el);
    el->at = source_offset(w->s) - (w->has_tag ? 4 : 0);
    if (++w->n_elements > DICOM_MAX_ELEMENTS)
        return fail(e, ERR_DATA, "D02", "more than %d elements", DICOM_MAX_ELEMENTS);
    if (!w->has_tag)
        return take(w, b, 4, end, el, e);
    memcpy(b, w->tag, 4);
    w->has_tag = 0;
    return 0;
}

static int read_element(struct element *el, struct walk *w, int implicit_vr, uint64_t end,
                        struct error *e)
{
    unsigned char b[4];
    int big = w->big_endian;
    if (read_tag(b, el, w, end, e) < 0)
        return -1;
    el->tag = TAG(get16(b, big), get16(b + 2, big));
    if (el->tag >> 16 != 0xFFFE && !implicit_vr)
        return read_explicit(el, w, big, end, e);
    if (take(w, b, 4, end, el, e) < 0) /* delimiters have no VR in any encoding */
        return -1;
    el->length = get32(b, big);
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The value without padding, cut to the buffer; the cursor stands behind the element. */
static int read_text(char out[VALUE_BYTES], struct walk *w, const struct element *el,
                     struct error *e)
{
    size_t n = el->length < VALUE_BYTES - 1 ? el->length : VALUE_BYTES - 1;
    if (source_read(w->s, out, n, e) < 0 || source_skip(w->s, el->length - n, e) < 0)
        return -1;
    out[n] = '\0';
    n = strlen(out);
    while (n > 0 && out[n - 1] == ' ')
        out[--n] = '\0';
    return 0;
}

/* Up to n numbers separated by backslashes; returns how many were sound. */
static int parse_numbers(double *out, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        char one[32];
        text += strspn(text, " ");
        size_t k = strcspn(text, "\\"), used = k;
        while (k > 0 && text[k - 1] == ' ')
            k--;
        if (k == 0 || k >= sizeof one)
            return i;
        memcpy(one, text, k);
        one[k] = '\0';
        if (parse_real(&out[i], one) < 0)
            return i;
        text += used;
        if (*text != '\\')
            return i + 1;
        text++;
    }
    return n;
}

static int set_uid(char out[DICOM_UID], const struct element *el, const char *text, struct error *e)
{
    if (strlen(text) >= DICOM_UID)
        return refuse(el, "D02", "UID of more than 64 characters", e);
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

/* Text values of interest. */
static int keep_text(struct walk *w, const struct element *el, const char *text, struct error *e)
{
    struct dicom_header *h = w->h;
    double x[6];
    switch (el->tag) {
    case TAG(0x0002, 0x0010):
        return set_uid(h->transfer_syntax, el, text, e);
    case TAG(0x0008, 0x0008):
        h->is_localizer = strstr(text, "LOCALIZER") != NULL;
        break;
    case TAG(0x0008, 0x0016):
        return set_uid(h->sop_class, el, text, e);
    case TAG(0x0008, 0x0018):
        return set_uid(h->sop_instance, el, text, e);
    case TAG(0x0008, 0x0060):
        h->is_segmentation = strcmp(text, "SEG") == 0;
        break;
    case TAG(0x0010, 0x0010):
        memcpy(w->patient_name, text, strlen(text) + 1);
        break;
    case TAG(0x0010, 0x0020):
        memcpy(w->patient_id, text, strlen(text) + 1);
        break;
    case TAG(0x0020, 0x000E):
        return set_uid(h->series, el, text, e);
    case TAG(0x0020, 0x0052):
        return set_uid(h->frame, el, text, e);
    case TAG(0x0020, 0x0013):
        if (parse_numbers(x, 1, text) == 1 && x[0] > -1e9 && x[0] < 1e9)
            h->instance = (int64_t)x[0];
        break;
    case TAG(0x0020, 0x0032):
        h->has_position = parse_numbers(h->position, 3, text) == 3;
        break;
    case TAG(0x0020, 0x0037):
        h->has_orientation = parse_numbers(h->orientation, 6, text) == 6;
        break;
    case TAG(0x0028, 0x0030):
        h->has_spacing = parse_numbers(h->spacing, 2, text) == 2;
        break;
    case TAG(0x0028, 0x0008):
        if (parse_numbers(x, 1, text) != 1 || x[0] < 1 || x[0] > INT32_MAX)
            return refuse(el, "D06", "NumberOfFrames is not a number from 1 to 2147483647", e);
        h->frames = (int64_t)x[0];
        break;
    default:
        break;
    }
    return 0;
}

static int *short_of_interest(struct dicom_header *h, uint32_t tag)
{
    switch (tag) {
    case TAG(0x0028, 0x0002):
        return &h->samples;
    case TAG(0x0028, 0x0010):
        return &h->rows;
    case TAG(0x0028, 0x0011):
        return &h->columns;
    case TAG(0x0028, 0x0100):
        return &h->bits_allocated;
    case TAG(0x0028, 0x0101):
        return &h->bits_stored;
    default:
        return NULL;
    }
}

static int is_text_of_interest(uint32_t tag)
{
    static const uint32_t tags[] = {
        TAG(0x0002, 0x0010), TAG(0x0008, 0x0008), TAG(0x0008, 0x0016), TAG(0x0008, 0x0018),
        TAG(0x0008, 0x0060), TAG(0x0010, 0x0010), TAG(0x0010, 0x0020), TAG(0x0020, 0x000E),
        TAG(0x0020, 0x0013), TAG(0x0020, 0x0032), TAG(0x0020, 0x0037), TAG(0x0020, 0x0052),
        TAG(0x0028, 0x0008), TAG(0x0028, 0x0030),
    };
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (tags[i] == tag)
            return 1;
    return 0;
}

/* A value with a length, on the outermost level. */
static int keep_value(struct walk *w, const struct element *el, struct error *e)
{
    int *number = short_of_interest(w->h, el->tag);
    char text[VALUE_BYTES];
    unsigned char b[2];
    if (number && el->length == 2) {
        if (source_read(w->s, b, 2, e) < 0)
            return -1;
        *number = (int)get16(b, w->big_endian);
        return 0;
    }
    if (is_text_of_interest(el->tag))
        return read_text(text, w, el, e) < 0 ? -1 : keep_text(w, el, text, e);
    return source_skip(w->s, el->length, e);
}

/* ---- containers ------------------------------------------------------------------------------ */

static int walk_elements(struct walk *w, int implicit_vr, int depth, uint64_t end, int delimited,
                         struct error *e);

/* Items until the sequence's end or its delimiter. */
static int walk_sequence(struct walk *w, const struct element *sq, int implicit_vr, int depth,
                         uint64_t end, struct error *e)
{
    int delimited = sq->length == LENGTH_UNDEFINED;
    if (depth > DICOM_MAX_DEPTH) {
        char what[64];
        snprintf(what, sizeof what, "sequences nested %d deep, allowed %d", depth, DICOM_MAX_DEPTH);
        return refuse(sq, "D03", what, e);
    }
    if (!delimited)
        end = source_offset(w->s) + sq->length;
    while (delimited || left_until(w, end) > 0) {
        struct element item;
        if (read_element(&item, w, implicit_vr, end, e) < 0)
            return -1;
        if (delimited && item.tag == TAG_SEQUENCE_END)
            return 0;
        if (item.tag != TAG_ITEM)
            return refuse(&item, "D02", "expected an item of a sequence", e);
        int open = item.length == LENGTH_UNDEFINED;
        if (!open && item.length > left_until(w, end))
            return refuse_length(&item, left_until(w, end), e);
        uint64_t item_end = open ? end : source_offset(w->s) + item.length;
        if (walk_elements(w, implicit_vr, depth, item_end, open, e) < 0)
            return -1;
    }
    return 0;
}

/* Compressed pixels: fragments as items until the delimiter. */
static int walk_fragments(struct walk *w, int depth, uint64_t end, struct error *e)
{
    for (;;) {
        struct element item;
        if (read_element(&item, w, 1, end, e) < 0)
            return -1;
        if (item.tag == TAG_SEQUENCE_END)
            return 0;
        if (item.tag != TAG_ITEM || item.length == LENGTH_UNDEFINED)
            return refuse(&item, "D02", "expected a fragment of compressed pixels", e);
        if (item.length % 2 != 0)
            return refuse(&item, "D02", "odd length", e);
        if (item.length > left_until(w, end))
            return refuse_length(&item, left_until(w, end), e);
        if (source_skip(w->s, item.length, e) < 0)
            return -1;
        if (depth == 0)
            w->h->pixel_bytes += item.length;
    }
}

/* An element of undefined length: a sequence, or compressed pixels. */
static int walk_undefined(struct walk *w, const struct element *el, int implicit_vr, int depth,
                          uint64_t end, struct error *e)
{
    if (el->tag == TAG_PIXELS && w->h->encapsulated)
        return walk_fragments(w, depth, end, e);
    if (strcmp(el->vr, "UN") == 0) /* PS3.5 6.2.2: holds an implicit VR sequence */
        return walk_sequence(w, el, 1, depth + 1, end, e);
    if (strcmp(el->vr, "SQ") == 0 || (implicit_vr && el->tag != TAG_PIXELS))
        return walk_sequence(w, el, implicit_vr, depth + 1, end, e);
    return refuse(el, "D02", "length 0xFFFFFFFF on an element that is no sequence", e);
}

static int walk_element(struct walk *w, const struct element *el, int implicit_vr, int depth,
                        uint64_t end, struct error *e)
{
    if (depth == 0 && el->tag == TAG_PIXELS) {
        w->h->has_pixels = w->after_pixels = 1;
        w->h->pixel_bytes = el->length == LENGTH_UNDEFINED ? 0 : el->length;
    }
    if (el->length == LENGTH_UNDEFINED)
        return walk_undefined(w, el, implicit_vr, depth, end, e);
    if (el->length % 2 != 0) {
        char what[48];
        snprintf(what, sizeof what, "odd length %u", el->length);
        return refuse(el, "D02", what, e);
    }
    if (el->length > left_until(w, end))
        return refuse_length(el, left_until(w, end), e);
    if (strcmp(el->vr, "SQ") == 0)
        return walk_sequence(w, el, implicit_vr, depth + 1, end, e);
    return depth == 0 ? keep_value(w, el, e) : source_skip(w->s, el->length, e);
}

/* Elements up to `end`, or up to an item delimiter if `delimited`. */
static int walk_elements(struct walk *w, int implicit_vr, int depth, uint64_t end, int delimited,
                         struct error *e)
{
    while (delimited || left_until(w, end) > 0) {
        struct element el;
        if (w->after_pixels && depth == 0 && left_until(w, end) < 8)
            return 0; /* padding of the file itself */
        if (read_element(&el, w, implicit_vr, end, e) < 0)
            return -1;
        if (delimited && el.tag == TAG_ITEM_END)
            return 0;
        if (el.tag >> 16 == 0xFFFE)
            return refuse(&el, "D02", "delimiter outside of a sequence", e);
        if (walk_element(w, &el, implicit_vr, depth, end, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Group 0002. It ends where another group begins, whose tag is kept for the walk that follows,
 * since only now the byte order of that tag is known. (The group's own length element is not relied
 * on.) */
static int walk_meta(struct walk *w, uint64_t end, struct error *e)
{
    while (left_until(w, end) > 0) {
        struct element el;
        unsigned char b[4];
        if (read_tag(b, &el, w, end, e) < 0)
            return -1;
        el.tag = TAG(get16(b, 0), get16(b + 2, 0));
        if (el.tag >> 16 != 2) {
            memcpy(w->tag, b, 4);
            w->has_tag = 1;
            return 0;
        }
        if (read_explicit(&el, w, 0, end, e) < 0 || walk_element(w, &el, 0, 0, end, e) < 0)
            return -1;
    }
    return 0;
}

/* What dcm2niix decodes, as Debian builds it: without JPEG-LS, and nothing deflated as a whole. */
static int accept_syntax(struct walk *w, struct error *e)
{
    static const struct {
        const char *uid;
        int implicit_vr, big_endian, encapsulated;
    } known[] = {
        {"1.2.840.10008.1.2", 1, 0, 0},      {"1.2.840.10008.1.2.1", 0, 0, 0},
        {"1.2.840.10008.1.2.2", 0, 1, 0},    {"1.2.840.10008.1.2.5", 0, 0, 1},    /* RLE */
        {"1.2.840.10008.1.2.4.50", 0, 0, 1}, {"1.2.840.10008.1.2.4.51", 0, 0, 1}, /* JPEG */
        {"1.2.840.10008.1.2.4.57", 0, 0, 1}, {"1.2.840.10008.1.2.4.70", 0, 0, 1}, /* lossless */
        {"1.2.840.10008.1.2.4.90", 0, 0, 1}, {"1.2.840.10008.1.2.4.91", 0, 0, 1}, /* JPEG 2000 */
    };
    const char *uid = w->h->transfer_syntax;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(uid, known[i].uid) == 0) {
            w->implicit_vr = known[i].implicit_vr;
            w->big_endian = known[i].big_endian;
            w->h->encapsulated = known[i].encapsulated;
            return 0;
        }
    return fail(e, ERR_DATA, "D05", "transfer syntax %s is not decoded here",
                *uid ? uid : "(none)");
}

int dicom_read_header(struct dicom_header *out, struct source *s, struct error *e)
{
    struct walk w = {.s = s, .h = out};
    unsigned char head[132];
    uint64_t end = source_left_at_most(s);
    memset(out, 0, sizeof *out);
    out->frames = 1;
    if (source_is_compressed(s) || end < sizeof head)
        return fail(e, ERR_DATA, "D01", "not a DICOM file: no DICM at byte 128");
    if (source_read(s, head, sizeof head, e) < 0)
        return -1;
    if (memcmp(head + 128, "DICM", 4) != 0)
        return fail(e, ERR_DATA, "D01", "not a DICOM file: no DICM at byte 128");
    if (memcmp(head, "MZ", 2) == 0)
        out->preamble_program = "MZ";
    else if (memcmp(head, "\177ELF", 4) == 0)
        out->preamble_program = "ELF";
    if (walk_meta(&w, end, e) < 0 || accept_syntax(&w, e) < 0 ||
        walk_elements(&w, w.implicit_vr, 0, end, 0, e) < 0)
        return -1;
    const char *who = *w.patient_id ? w.patient_id : w.patient_name;
    out->patient = *who ? hash_bytes(who, strlen(who), 0) : 0;
    return 0;
}

int dicom_check_pixels(uint64_t *bytes, const struct dicom_header *h, struct error *e)
{
    size_t voxels, n;
    int samples = h->samples ? h->samples : 1;
    if (h->rows < 1 || h->columns < 1)
        return fail(e, ERR_DATA, "D06", "Rows=%d, Columns=%d, must be at least 1", h->rows,
                    h->columns);
    if (h->bits_allocated != 8 && h->bits_allocated != 16 && h->bits_allocated != 32)
        return fail(e, ERR_DATA, "D06", "BitsAllocated=%d, allowed 8, 16, 32", h->bits_allocated);
    if (h->bits_stored < 1 || h->bits_stored > h->bits_allocated)
        return fail(e, ERR_DATA, "D06", "BitsStored=%d, allowed 1..BitsAllocated=%d",
                    h->bits_stored, h->bits_allocated);
    if (size_mul(&voxels, (size_t)h->rows * (size_t)h->columns, (size_t)h->frames) < 0 ||
        size_mul(&n, voxels, (size_t)samples * (size_t)h->bits_allocated / 8) < 0)
        return fail(e, ERR_DATA, "D06", "Rows=%d x Columns=%d x Frames=%lld overflows", h->rows,
                    h->columns, (long long)h->frames);
    if (!h->encapsulated && h->pixel_bytes != n + n % 2)
        return fail(e, ERR_DATA, "D06",
                    "%llu bytes of pixels, %d rows x %d columns x %lld frames x %d "
                    "bits need %zu",
                    (unsigned long long)h->pixel_bytes, h->rows, h->columns, (long long)h->frames,
                    samples * h->bits_allocated, n);
    *bytes = n;
    return 0;
}
