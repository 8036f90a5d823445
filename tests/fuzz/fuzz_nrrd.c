/* fuzz_nrrd.c - any bytes as a NRRD file; detached voxels are the same bytes. See volume_fuzz.h. */
#include "volume_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    return fuzz_volume(&format_nrrd, bytes, n);
}
