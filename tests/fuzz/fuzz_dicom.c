/* fuzz_dicom.c - any bytes as a DICOM file: the walk ends, and what it accepts has sound numbers.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/source.h"
#include "volume/dicom_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct source *s;
    struct dicom_header h;
    struct error e = {ERR_NONE, "", ""};
    uint64_t pixels;
    if (source_open_memory(&s, bytes, n, &e) < 0)
        return 0;
    if (dicom_read_header(&h, s, &e) == 0) {
        CHECK(h.rows >= 0 && h.rows <= 65535 && h.frames >= 1 && h.pixel_bytes <= n);
        CHECK(!h.has_position || (isfinite(h.position[0]) && isfinite(h.position[2])));
        CHECK(strlen(h.series) < DICOM_UID);
        if (dicom_check_pixels(&pixels, &h, &e) == 0 && !h.encapsulated)
            CHECK(pixels <= n);
    } else {
        CHECK(e.code != ERR_NONE && e.text[0]);
    }
    source_close(s);
    return 0;
}
