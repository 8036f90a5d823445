/* dicom_header.h - what must be known of a DICOM file before a converter may see it.
 *
 * The converter (dcm2niix) decodes pixels and builds the geometry. This header is read by us first,
 * to refuse what is damaged, what belongs to two patients, and series with holes.
 */
#ifndef FALX_DICOM_HEADER_H
#define FALX_DICOM_HEADER_H

#include "base/source.h"

enum {
    DICOM_UID = 65,             /* PS3.5 6.2: at most 64 characters */
    DICOM_MAX_DEPTH = 32,       /* nested sequences; real files stay below 10 */
    DICOM_MAX_ELEMENTS = 100000 /* in one file, nested ones included */
};

struct dicom_header {
    const char *preamble_program; /* "MZ" or "ELF" if the free bytes begin so, or NULL */
    char transfer_syntax[DICOM_UID];
    int encapsulated; /* 1: pixels are compressed fragments */
    char sop_class[DICOM_UID], sop_instance[DICOM_UID], series[DICOM_UID], frame[DICOM_UID];
    uint64_t patient; /* hash of the patient's id (of the name if there is no id) */
    int is_localizer, is_segmentation;
    int64_t instance;                                        /* InstanceNumber; 0 if absent */
    int rows, columns, samples, bits_allocated, bits_stored; /* 0 if absent */
    int64_t frames;                                          /* 1 if absent */
    int has_position, has_orientation, has_spacing, has_pixels;
    double position[3];    /* LPS mm of the first voxel's centre */
    double orientation[6]; /* LPS directions of growing column and growing row index */
    double spacing[2];     /* mm between rows, between columns */
    uint64_t pixel_bytes;  /* stored, fragments summed */
};

/* Walks every element of the file: implicit and explicit VR, both byte orders, nesting. Lengths are
 * checked against what is left of the file and of the enclosing sequence [D02], nesting [D03], VRs
 * of the meta header [D04], the transfer syntax [D05]. No text of the file enters an error but
 * UIDs. */
int dicom_read_header(struct dicom_header *out, struct source *s, struct error *e);

/* Rows x Columns x Frames x Bits against the pixel bytes [D06]; *bytes gets the decoded size. */
int dicom_check_pixels(uint64_t *bytes, const struct dicom_header *h, struct error *e);

#endif
