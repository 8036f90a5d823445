/* dicom_make.h - small DICOM files for tests, byte by byte: sound ones, and ones damaged on
 * purpose.
 *
 * A file is built in memory from elements in ascending order. dicom_slice() writes one CT slice of
 * 6 columns x 4 rows whose fields can be set before; dicom_begin/.._element/.. write anything else.
 */
#ifndef FALX_DICOM_MAKE_H
#define FALX_DICOM_MAKE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct dicom_make {
    unsigned char byte[1 << 17];
    size_t n;
    int implicit_vr, big_endian; /* of elements written now */
};

#define DICOM_IMPLICIT "1.2.840.10008.1.2"
#define DICOM_EXPLICIT "1.2.840.10008.1.2.1"
#define DICOM_BIG "1.2.840.10008.1.2.2"

static inline void dicom_bytes(struct dicom_make *m, const void *p, size_t n)
{
    if (n > 0 && m->n + n <= sizeof m->byte) {
        memcpy(m->byte + m->n, p, n);
        m->n += n;
    }
}

static inline void dicom_u16(struct dicom_make *m, unsigned v)
{
    unsigned char b[2] = {(unsigned char)(m->big_endian ? v >> 8 : v),
                          (unsigned char)(m->big_endian ? v : v >> 8)};
    dicom_bytes(m, b, 2);
}

static inline void dicom_u32(struct dicom_make *m, uint32_t v)
{
    dicom_u16(m, m->big_endian ? v >> 16 : v & 0xFFFF);
    dicom_u16(m, m->big_endian ? v & 0xFFFF : v >> 16);
}

/* Tag, VR and length as told, true or not. */
static inline void dicom_head(struct dicom_make *m, unsigned group, unsigned element, const char *vr,
                              uint32_t length)
{
    int is_long = strstr("OB OD OF OL OV OW SQ SV UC UN UR UT UV", vr) != NULL;
    dicom_u16(m, group);
    dicom_u16(m, element);
    if (m->implicit_vr || group == 0xFFFE) {
        dicom_u32(m, length);
        return;
    }
    dicom_bytes(m, vr, 2);
    if (is_long)
        dicom_u16(m, 0);
    if (is_long)
        dicom_u32(m, length);
    else
        dicom_u16(m, length);
}

static inline void dicom_text(struct dicom_make *m, unsigned group, unsigned element, const char *vr,
                              const char *text)
{
    size_t n = strlen(text);
    dicom_head(m, group, element, vr, (uint32_t)(n + n % 2));
    dicom_bytes(m, text, n);
    if (n % 2)
        dicom_bytes(m, strcmp(vr, "UI") == 0 ? "" : " ", 1);
}

static inline void dicom_short(struct dicom_make *m, unsigned element, unsigned v)
{
    dicom_head(m, 0x0028, element, "US", 2);
    dicom_u16(m, v);
}

/* Preamble and meta header with a transfer syntax. */
static inline void dicom_begin(struct dicom_make *m, const char *syntax)
{
    static const unsigned char nothing[128];
    m->n = 0;
    m->implicit_vr = m->big_endian = 0;
    dicom_bytes(m, nothing, 128);
    dicom_bytes(m, "DICM", 4);
    dicom_head(m, 2, 0, "UL", 4);
    dicom_u32(m, (uint32_t)(8 + strlen(syntax) + strlen(syntax) % 2));
    dicom_text(m, 2, 0x10, "UI", syntax);
    m->implicit_vr = strcmp(syntax, DICOM_IMPLICIT) == 0;
    m->big_endian = strcmp(syntax, DICOM_BIG) == 0;
}

struct dicom_fields {
    const char *syntax, *image_type, *patient, *series, *frame, *orientation, *spacing;
    int instance;
    double position[3];
    unsigned rows, columns, bits_allocated, bits_stored;
    const char *frames;   /* NULL: element absent */
    uint32_t pixel_bytes; /* length told and written */
};

/* Slice number i (from 0) of a sound axial series, 2.5 mm apart. */
static inline struct dicom_fields dicom_sound(int i)
{
    struct dicom_fields f = {
        .syntax = DICOM_EXPLICIT,
        .image_type = "ORIGINAL\\PRIMARY\\AXIAL",
        .patient = "P1",
        .series = "1.2.3.4",
        .frame = "1.2.3.5",
        .orientation = "1\\0\\0\\0\\1\\0",
        .spacing = "0.75\\0.5",
        .instance = i + 1,
        .position = {-10, -20, 100 + 2.5 * i},
        .rows = 4,
        .columns = 6,
        .bits_allocated = 16,
        .bits_stored = 12,
        .pixel_bytes = 48,
    };
    return f;
}

/* Value of the pixel in column c and row r of slice `instance`. */
static inline unsigned dicom_pixel(int instance, unsigned r, unsigned c)
{
    return (unsigned)instance * 100 + r * 10 + c;
}

static inline void dicom_slice(struct dicom_make *m, const struct dicom_fields *f)
{
    char text[80];
    dicom_begin(m, f->syntax);
    dicom_text(m, 0x0008, 0x0008, "CS", f->image_type);
    dicom_text(m, 0x0008, 0x0016, "UI", "1.2.840.10008.5.1.4.1.1.2");
    snprintf(text, sizeof text, "1.2.3.4.%d", f->instance);
    dicom_text(m, 0x0008, 0x0018, "UI", text);
    dicom_text(m, 0x0008, 0x0060, "CS", "CT");
    dicom_text(m, 0x0010, 0x0010, "PN", "Doe^Jane");
    dicom_text(m, 0x0010, 0x0020, "LO", f->patient);
    dicom_text(m, 0x0018, 0x0050, "DS", "2.5");
    dicom_text(m, 0x0020, 0x000D, "UI", "1.2.3");
    dicom_text(m, 0x0020, 0x000E, "UI", f->series);
    dicom_text(m, 0x0020, 0x0011, "IS", "1");
    snprintf(text, sizeof text, "%d", f->instance);
    dicom_text(m, 0x0020, 0x0013, "IS", text);
    snprintf(text, sizeof text, "%g\\%g\\%g", f->position[0], f->position[1], f->position[2]);
    dicom_text(m, 0x0020, 0x0032, "DS", text);
    dicom_text(m, 0x0020, 0x0037, "DS", f->orientation);
    dicom_text(m, 0x0020, 0x0052, "UI", f->frame);
    dicom_short(m, 0x0002, 1);
    dicom_text(m, 0x0028, 0x0004, "CS", "MONOCHROME2");
    if (f->frames)
        dicom_text(m, 0x0028, 0x0008, "IS", f->frames);
    dicom_short(m, 0x0010, f->rows);
    dicom_short(m, 0x0011, f->columns);
    dicom_text(m, 0x0028, 0x0030, "DS", f->spacing);
    dicom_short(m, 0x0100, f->bits_allocated);
    dicom_short(m, 0x0101, f->bits_stored);
    dicom_short(m, 0x0102, f->bits_stored - 1);
    dicom_short(m, 0x0103, 0);
    dicom_text(m, 0x0028, 0x1052, "DS", "-1024");
    dicom_text(m, 0x0028, 0x1053, "DS", "2");
    dicom_head(m, 0x7FE0, 0x0010, "OW", f->pixel_bytes);
    for (uint32_t i = 0; i < f->pixel_bytes / 2; i++)
        dicom_u16(m, dicom_pixel(f->instance, i / f->columns, i % f->columns));
}

#endif
