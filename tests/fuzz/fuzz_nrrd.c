/* fuzz_nrrd.c - any bytes as NRRD; detached voxels are the same bytes. See fuzz.h. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    return fuzz_volume(bytes, n);
}
