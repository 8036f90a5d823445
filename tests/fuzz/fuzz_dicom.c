/* fuzz_dicom.c - any bytes as a DICOM file: the walk ends, and accepted numbers are sound. */
#include <math.h>

#include "fuzz.h"
#include "volume/dicom.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct source *s;
    struct dicom_header h;
    struct error e = {ERR_NONE, "", ""};
    uint64_t pixels;
    if (source_open_memory(&s, bytes, n, &e) < 0)
        return 0;
    if (dicom_read_header(&h, s, &e) == 0) {
        FUZZ_CHECK(h.rows >= 0 && h.rows <= 65535 && h.frames >= 1 && h.pixel_bytes <= n);
        FUZZ_CHECK(!h.has_position || (isfinite(h.position[0]) && isfinite(h.position[2])));
        FUZZ_CHECK(strlen(h.series) < DICOM_UID);
        if (dicom_check_pixels(&pixels, &h, &e) == 0 && !h.encapsulated)
            FUZZ_CHECK(pixels <= n);
    } else {
        FUZZ_CHECK(e.code != ERR_NONE && e.text[0]);
    }
    source_close(s);
    return 0;
}
