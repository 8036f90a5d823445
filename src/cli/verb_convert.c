/* verb_convert.c - `falx convert IN OUT`: any readable volume or DICOM folder to NIfTI or NRRD, with the
 * voxels, type and geometry it has.
 */
#include <string.h>

#include "base/io.h"
#include "cli/config.h"
#include "volume/volume.h"

/* Keeps one volume of a 4D file, in place. */
static int keep_volume(struct volume *v, int64_t which, struct error *e)
{
    int64_t n = volume_channels(v);
    if (which >= n)
        return fail(e, ERR_CONFIG, "N31", "--volume %lld, the file has volumes 0 to %lld",
                    (long long)which, (long long)n - 1);
    size_t bytes = (size_t)volume_voxels(v) * dtype_bytes(v->dtype);
    memmove(v->data, (char *)v->data + (size_t)which * bytes, bytes);
    v->n_dims = v->n_dims < 3 ? v->n_dims : 3;
    for (int a = 3; a < VOLUME_MAX_DIMS; a++)
        v->dims[a] = 1;
    return 0;
}

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
