/* verb_convert.c - `falx convert IN OUT`: any readable volume or DICOM folder to NIfTI or NRRD, with the
 * voxels, type and geometry it has.
 */
#include "base/io.h"
#include "cli/config.h"
#include "volume/volume.h"

int verb_convert(struct config *c)
{
    const char *in = c->args[0], *out = c->args[1];
    struct error e;
    struct volume v = {0};
    struct volume_request r = config_request(c);
    r.describe = 1;
    int result = -1;
    if (volume_can_write(out, &e) < 0 || io_check_output(out, c->force, &e) < 0)
        return complain(&e);
    if (volume_read(&v, in, &r, &e) < 0)
        return complain(&e);
    if (c->volume >= 0 && keep_volume(&v, c->volume, &e) < 0)
        fail_in(&e, in);
    else
        result = volume_write(&v, out, &e);
    volume_free(&v);
    return result < 0 ? complain(&e) : 0;
}
