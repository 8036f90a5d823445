/* dicom_series.h - the files of one DICOM series, checked to be one sound stack of slices. */
#ifndef FALX_DICOM_SERIES_H
#define FALX_DICOM_SERIES_H

#include "volume/dicom_header.h"
#include "volume/volume.h"

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
    int n_programs;      /* files whose preamble is that of a program [D01] */
    int has_gaps;        /* accepted ones */
    double normal[3];    /* of the stack, LPS; zero if there is one slice */
    double step_mm;      /* usual step along it */
    uint64_t bytes;      /* of the pixels, decoded */
    uint64_t file_bytes; /* upper bound of the bytes in the files */
};

/* Reads the headers of a file, or of all files in a folder and three levels below it. Errors carry
 * the file's path. */
int dicom_series_collect(struct dicom_series *out, const char *path, struct error *e);
/* One patient and one frame of reference [D08], one series of equal slices with even steps [D07].
 * Localizer series beside another one are dropped. Errors carry no path. */
int dicom_series_check(struct dicom_series *d, const struct volume_request *r, struct error *e);
/* Warnings, once the series has been read: what was left out, ignored or accepted. */
void dicom_series_report(const struct dicom_series *d, const char *path, struct report *r);
void dicom_series_free(struct dicom_series *d);

#endif
