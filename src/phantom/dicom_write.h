/* dicom_write.h - minimal CT series, for synthetic data. */
#ifndef FALX_DICOM_WRITE_H
#define FALX_DICOM_WRITE_H

#include "volume/volume.h"

/* Writes an int16 volume of Hounsfield units, its axes along L, P and S, as one file a slice:
 * FOLDER/1-001.dcm and on, from the feet up. `patient` is the patient id; `key` makes the unique
 * ids: equal keys give equal files. */
int dicom_write_series(const struct volume *v, const char *folder, const char *patient,
                       uint64_t key, struct error *e);

#endif
