/* fuzz_metaimage.c - any bytes as a MetaImage file; detached voxels are the same bytes. See
 * volume_fuzz.h. */
#include "volume_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    return fuzz_volume(&format_metaimage, bytes, n);
}
