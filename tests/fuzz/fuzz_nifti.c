/* fuzz_nifti.c - any bytes as NIfTI. See fuzz.h. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    return fuzz_volume(bytes, n);
}
