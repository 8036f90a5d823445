/* dicom.h - what must be known of DICOM files before a converter may see them.
 *
 * The converter (dcm2niix) decodes pixels and builds the geometry. Headers are read by us first
 * (dicom_header.c), and the files of a series are checked to be one sound stack of slices
 * (dicom_series.c): what is damaged, belongs to two patients or has holes is refused.
 */
#ifndef FALX_DICOM_H
#define FALX_DICOM_H

#include "volume/volume.h"

enum {
    DICOM_UID = 65,             /* PS3.5 6.2: at most 64 characters */
    DICOM_MAX_DEPTH = 32,       /* nested sequences; real files stay below 10 */
    DICOM_MAX_ELEMENTS = 100000 /* in one file, nested ones included */
};

struct dicom_header {
    int is_program; /* the free bytes in front begin like a program (MZ or ELF) */
    char transfer_syntax[DICOM_UID], series[DICOM_UID], frame[DICOM_UID];
    int encapsulated;                  /* 1: pixels are compressed fragments */
    uint64_t patient_id, patient_name; /* hashes; 0 if absent */
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

struct dicom_slice {
    char *path;
    struct dicom_header header;
    double along_mm; /* place along the stack's normal */
};

struct dicom_series {
    struct dicom_slice *slice; /* sorted along the normal if they have positions */
    int n, room;
    int n_other;         /* files left out: no DICOM, or no image in it */
    int n_localizers;    /* files left out: overview images of a series of their own */
    int has_gaps;        /* accepted ones */
    double normal[3];    /* of the stack, LPS; zero if there is one slice */
    double step_mm;      /* usual step along it */
    uint64_t bytes;      /* of the pixels, decoded */
    uint64_t file_bytes; /* upper bound of the bytes in the files */
};

/* Reads the headers of a file, or of all files in a folder and three levels below it, and checks
 * them: one patient and one frame of reference [D08], one series of equal slices with even steps
 * [D07]. Localizer series beside another one are dropped. Errors carry a path. */
int dicom_series_read(struct dicom_series *out, const char *path, const struct volume_request *r,
                      struct error *e);
void dicom_series_free(struct dicom_series *d);

#endif
