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
#include "volume/dicom.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_BYTES = 256 }; /* longest value of interest: ImageType; six decimal strings need 101 */
#define LENGTH_UNDEFINED 0xFFFFFFFFu
#define TAG(group, element) ((uint32_t)(group) << 16 | (element))
#define TAG_ITEM TAG(0xFFFE, 0xE000)
#define TAG_ITEM_END TAG(0xFFFE, 0xE00D)
#define TAG_SEQUENCE_END TAG(0xFFFE, 0xE0DD)
#define TAG_FRAMES TAG(0x0028, 0x0008)
#define TAG_PIXELS TAG(0x7FE0, 0x0010)

struct walk {
    struct source *s;
    struct dicom_header *h;
    int big_endian, implicit_vr; /* of the data set */
    int n_elements;
    int after_pixels;     /* the pixels of the outermost level have been passed */
    unsigned char tag[4]; /* first tag behind the meta header: read, but not yet understood */
    int has_tag;
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

PRINTF(4, 5)
static int refuse(const struct element *el, const char *id, struct error *e, const char *fmt, ...)
{
    char what[80];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return fail(e, ERR_DATA, id, "element (%04X,%04X) at byte %llu: %s", el->tag >> 16, el->tag & 0xFFFF,
                (unsigned long long)el->at, what);
}

/* The element's length: even, and no more than the bytes left to its container. */
static int check_length(const struct element *el, uint64_t left, struct error *e)
{
    if (el->length % 2 != 0)
        return refuse(el, "D02", e, "odd length %u", el->length);
    if (el->length > left)
        return refuse(el, "D02", e, "length %u, %llu bytes left", el->length, (unsigned long long)left);
    return 0;
}

/* Bytes left up to `end`, an offset in the file. */
static uint64_t left_until(const struct walk *w, uint64_t end)
{
    uint64_t at = source_offset(w->s);
    return end > at ? end - at : 0;
}

static int take(struct walk *w, void *out, size_t n, uint64_t end, const struct element *el, struct error *e)
{
    if (left_until(w, end) < n)
        return refuse(el, "D02", e, "ends inside an element");
    return source_read(w->s, out, n, e);
}

/* ---- one element head ------------------------------------------------------------------------ */

static int is_in(const char *list, const char *vr)
{
    for (const char *p = list; *p; p += 3)
        if (p[0] == vr[0] && p[1] == vr[1])
            return 1;
    return 0;
}

/* VR and length of an explicit element whose tag is read. */
static int read_explicit(struct element *el, struct walk *w, int big, uint64_t end, struct error *e)
{
    unsigned char b[4];
    if (take(w, b, 4, end, el, e) < 0)
        return -1;
    memcpy(el->vr, b, 2);
    if (is_in("AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US ", el->vr)) {
        el->length = get16(b + 2, big);
        return 0;
    }
    /* PS3.5 7.1.2: VRs of later editions have the long form; anything else is damage */
    int known = is_in("OB OD OF OL OV OW SQ SV UC UN UR UT UV ", el->vr);
    int letters = b[0] >= 'A' && b[0] <= 'Z' && b[1] >= 'A' && b[1] <= 'Z';
    if (!known && (el->tag >> 16 == 2 || !letters))
        return refuse(el, el->tag >> 16 == 2 ? "D04" : "D02", e, "unknown VR 0x%02X%02X", b[0], b[1]);
    if (take(w, b, 4, end, el, e) < 0)
        return -1;
    el->length = get32(b, big);
    return 0;
}

/* The four bytes of the next tag, and where they stand. */
static int read_tag(unsigned char b[4], struct element *el, struct walk *w, uint64_t end, struct error *e)
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

static int read_element(struct element *el, struct walk *w, int implicit_vr, uint64_t end, struct error *e)
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
static int read_text(char out[VALUE_BYTES], struct walk *w, const struct element *el, struct error *e)
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

/* Values of interest, where in struct dicom_header they go and how. */
enum kind {
    KIND_SHORT, /* two bytes to an int */
    KIND_UID,   /* text to a char[DICOM_UID] */
    KIND_REALS, /* n numbers to doubles; 1 or 0 to the int at `has` */
    KIND_COUNT, /* one number to an int64_t */
    KIND_HASH,  /* of the text, to a uint64_t */
    KIND_WORD   /* 1 to an int if the text has the word */
};
#define AT(field) offsetof(struct dicom_header, field)
static const struct field {
    uint32_t tag;
    enum kind kind;
    size_t at, has;
    int n;
    const char *word;
} fields[] = {
    {TAG(0x0002, 0x0010), KIND_UID, AT(transfer_syntax), 0, 0, NULL},
    {TAG(0x0008, 0x0008), KIND_WORD, AT(is_localizer), 0, 0, "LOCALIZER"}, /* ImageType */
    {TAG(0x0008, 0x0060), KIND_WORD, AT(is_segmentation), 0, 0, "SEG"},    /* Modality */
    {TAG(0x0010, 0x0010), KIND_HASH, AT(patient_name), 0, 0, NULL},
    {TAG(0x0010, 0x0020), KIND_HASH, AT(patient_id), 0, 0, NULL},
    {TAG(0x0020, 0x000E), KIND_UID, AT(series), 0, 0, NULL},
    {TAG(0x0020, 0x0013), KIND_COUNT, AT(instance), 0, 0, NULL},
    {TAG(0x0020, 0x0032), KIND_REALS, AT(position), AT(has_position), 3, NULL},
    {TAG(0x0020, 0x0037), KIND_REALS, AT(orientation), AT(has_orientation), 6, NULL},
    {TAG(0x0020, 0x0052), KIND_UID, AT(frame), 0, 0, NULL},
    {TAG(0x0028, 0x0002), KIND_SHORT, AT(samples), 0, 0, NULL},
    {TAG_FRAMES, KIND_COUNT, AT(frames), 0, 0, NULL},
    {TAG(0x0028, 0x0010), KIND_SHORT, AT(rows), 0, 0, NULL},
    {TAG(0x0028, 0x0011), KIND_SHORT, AT(columns), 0, 0, NULL},
    {TAG(0x0028, 0x0030), KIND_REALS, AT(spacing), AT(has_spacing), 2, NULL},
    {TAG(0x0028, 0x0100), KIND_SHORT, AT(bits_allocated), 0, 0, NULL},
    {TAG(0x0028, 0x0101), KIND_SHORT, AT(bits_stored), 0, 0, NULL},
};

static int keep_short(void *to, struct walk *w, const struct element *el, struct error *e)
{
    unsigned char b[2];
    if (el->length != 2)
        return source_skip(w->s, el->length, e);
    if (source_read(w->s, b, 2, e) < 0)
        return -1;
    *(int *)to = (int)get16(b, w->big_endian);
    return 0;
}

static int keep_text(char *base, const struct field *f, const struct element *el, const char *text,
                     struct error *e)
{
    void *to = base + f->at;
    double x = 0.0;
    switch (f->kind) {
    case KIND_SHORT: break;
    case KIND_UID:
        if (strlen(text) >= DICOM_UID)
            return refuse(el, "D02", e, "UID of more than 64 characters");
        memcpy(to, text, strlen(text) + 1);
        break;
    case KIND_REALS: *(int *)(void *)(base + f->has) = parse_numbers(to, f->n, text) == f->n; break;
    case KIND_COUNT: {
        int good = parse_numbers(&x, 1, text) == 1 && x >= -INT32_MAX && x <= INT32_MAX;
        if (f->tag == TAG_FRAMES && !(good && x >= 1))
            return refuse(el, "D06", e, "NumberOfFrames is not a number from 1 to 2147483647");
        *(int64_t *)to = good ? (int64_t)x : 0;
        break;
    }
    case KIND_HASH: *(uint64_t *)to = *text ? hash_bytes(text, strlen(text), 0) : 0; break;
    case KIND_WORD: *(int *)to = strstr(text, f->word) != NULL; break;
    }
    return 0;
}

/* A value with a length, on the outermost level. */
static int keep_value(struct walk *w, const struct element *el, struct error *e)
{
    char text[VALUE_BYTES], *base = (char *)w->h;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (fields[i].tag != el->tag)
            continue;
        if (fields[i].kind == KIND_SHORT)
            return keep_short(base + fields[i].at, w, el, e);
        return read_text(text, w, el, e) < 0 ? -1 : keep_text(base, &fields[i], el, text, e);
    }
    return source_skip(w->s, el->length, e);
}

/* ---- containers ------------------------------------------------------------------------------ */

static int walk_elements(struct walk *w, int implicit_vr, int depth, uint64_t end, int delimited,
                         struct error *e);

/* Items until the sequence's end or its delimiter. */
static int walk_sequence(struct walk *w, const struct element *sq, int implicit_vr, int depth, uint64_t end,
                         struct error *e)
{
    int delimited = sq->length == LENGTH_UNDEFINED;
    if (depth > DICOM_MAX_DEPTH)
        return refuse(sq, "D03", e, "sequences nested %d deep, allowed %d", depth, DICOM_MAX_DEPTH);
    if (!delimited)
        end = source_offset(w->s) + sq->length;
    while (delimited || left_until(w, end) > 0) {
        struct element item;
        if (read_element(&item, w, implicit_vr, end, e) < 0)
            return -1;
        if (delimited && item.tag == TAG_SEQUENCE_END)
            return 0;
        if (item.tag != TAG_ITEM)
            return refuse(&item, "D02", e, "expected an item of a sequence");
        int open = item.length == LENGTH_UNDEFINED;
        if (!open && check_length(&item, left_until(w, end), e) < 0)
            return -1;
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
            return refuse(&item, "D02", e, "expected a fragment of compressed pixels");
        if (check_length(&item, left_until(w, end), e) < 0 || source_skip(w->s, item.length, e) < 0)
            return -1;
        if (depth == 0)
            w->h->pixel_bytes += item.length;
    }
}

/* An element of undefined length: a sequence, or compressed pixels. */
static int walk_undefined(struct walk *w, const struct element *el, int implicit_vr, int depth, uint64_t end,
                          struct error *e)
{
    if (el->tag == TAG_PIXELS && w->h->encapsulated)
        return walk_fragments(w, depth, end, e);
    if (strcmp(el->vr, "UN") == 0) /* PS3.5 6.2.2: holds an implicit VR sequence */
        return walk_sequence(w, el, 1, depth + 1, end, e);
    if (strcmp(el->vr, "SQ") == 0 || (implicit_vr && el->tag != TAG_PIXELS))
        return walk_sequence(w, el, implicit_vr, depth + 1, end, e);
    return refuse(el, "D02", e, "length 0xFFFFFFFF on an element that is no sequence");
}

static int walk_element(struct walk *w, const struct element *el, int implicit_vr, int depth, uint64_t end,
                        struct error *e)
{
    if (depth == 0 && el->tag == TAG_PIXELS) {
        w->h->has_pixels = w->after_pixels = 1;
        w->h->pixel_bytes = el->length == LENGTH_UNDEFINED ? 0 : el->length;
    }
    if (el->length == LENGTH_UNDEFINED)
        return walk_undefined(w, el, implicit_vr, depth, end, e);
    if (check_length(el, left_until(w, end), e) < 0)
        return -1;
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
            return refuse(&el, "D02", e, "delimiter outside of a sequence");
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
    return fail(e, ERR_DATA, "D05",
                "transfer syntax %s is not decoded here; `gdcmconv --raw` makes one that is",
                *uid ? uid : "(none)");
}

int dicom_read_header(struct dicom_header *out, struct source *s, struct error *e)
{
    struct walk w = {.s = s, .h = out};
    unsigned char head[132];
    uint64_t end = source_left_at_most(s);
    *out = (struct dicom_header){.frames = 1};
    if (!source_is_compressed(s) && end >= sizeof head && source_read(s, head, sizeof head, e) < 0)
        return -1;
    if (source_is_compressed(s) || end < sizeof head || !dicom_recognise(head, sizeof head))
        return fail(e, ERR_DATA, "D01", "not a DICOM file: no DICM at byte 128");
    out->is_program = memcmp(head, "MZ", 2) == 0 || memcmp(head, "\177ELF", 4) == 0;
    if (walk_meta(&w, end, e) < 0 || accept_syntax(&w, e) < 0)
        return -1;
    return walk_elements(&w, w.implicit_vr, 0, end, 0, e);
}

int dicom_check_pixels(uint64_t *bytes, const struct dicom_header *h, struct error *e)
{
    size_t voxels, n;
    int samples = h->samples ? h->samples : 1;
    if (h->rows < 1 || h->columns < 1)
        return fail(e, ERR_DATA, "D06", "Rows=%d, Columns=%d, must be at least 1", h->rows, h->columns);
    if (h->bits_allocated != 8 && h->bits_allocated != 16 && h->bits_allocated != 32)
        return fail(e, ERR_DATA, "D06", "BitsAllocated=%d, allowed 8, 16, 32", h->bits_allocated);
    if (h->bits_stored < 1 || h->bits_stored > h->bits_allocated)
        return fail(e, ERR_DATA, "D06", "BitsStored=%d, allowed 1..BitsAllocated=%d", h->bits_stored,
                    h->bits_allocated);
    if (size_mul(&voxels, (size_t)h->rows * (size_t)h->columns, (size_t)h->frames) < 0 ||
        size_mul(&n, voxels, (size_t)samples * (size_t)h->bits_allocated / 8) < 0)
        return fail(e, ERR_DATA, "D06", "Rows=%d x Columns=%d x Frames=%lld overflows", h->rows, h->columns,
                    (long long)h->frames);
    if (!h->encapsulated && h->pixel_bytes != n + n % 2)
        return fail(e, ERR_DATA, "D06",
                    "%llu bytes of pixels, %d rows x %d columns x %lld frames x %d bits need %zu",
                    (unsigned long long)h->pixel_bytes, h->rows, h->columns, (long long)h->frames,
                    samples * h->bits_allocated, n);
    *bytes = n;
    return 0;
}
