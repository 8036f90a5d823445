/* fuzz_nifti.c - any bytes as NIfTI. Beyond not crashing: reading twice gives the same volume, and what is
 * accepted can be written and read back bit for bit.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "volume/nifti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct volume a, b;
    if (fuzz_read(&a, data, n) < 0)
        return 0;
    FUZZ_CHECK(fuzz_read(&b, data, n) == 0 && fuzz_same(&a, &b));
    volume_free(&b);
    if (strncmp(a.format, "NIfTI", 5) == 0) {
        size_t bytes = fuzz_bytes(&a);
        unsigned char *copy = malloc(NIFTI_HEADER_MAX + bytes);
        size_t header = nifti_header(copy, &a);
        memcpy(copy + header, a.data, bytes);
        FUZZ_CHECK(fuzz_read(&b, copy, header + bytes) == 0 && fuzz_same(&a, &b));
        volume_free(&b);
        free(copy);
    }
    volume_free(&a);
    return 0;
}
