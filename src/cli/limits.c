/* limits.c - the bounds that input is held to, as `--limits` and `doctor` show them, and how options say that
 * volumes and data sets are read.
 *
 * The two limits of a volume can be moved by options; the others are fixed where the input is
 * parsed and only told here.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/config.h"
#include "volume/header_text.h"
#include "volume/nifti.h"

int limit_at(struct limit *out, int number, const struct config *c)
{
    static const struct limit fixed[] = {
        {"header-text", "bytes", HEADER_MAX_BYTES},
        {"nifti-extensions", "bytes", NIFTI_EXTENSION_BYTES},
        {"config-file", "bytes", CONFIG_BYTES_MAX},
    };
    int n_fixed = (int)(sizeof fixed / sizeof *fixed);
    int64_t voxels = c && c->limit_voxels ? c->limit_voxels : (int64_t)volume_default_limits.voxels;
    int64_t bytes = c && c->limit_bytes ? c->limit_bytes : (int64_t)volume_default_limits.bytes;
    if (number == 0)
        *out = (struct limit){"limit-voxels", "voxels", voxels};
    else if (number == 1)
        *out = (struct limit){"limit-bytes", "bytes", bytes};
    else if (number >= 2 && number - 2 < n_fixed)
        *out = fixed[number - 2];
    else
        return 0;
    return 1;
}

void limits_print(const struct config *c, FILE *to)
{
    struct limit l;
    for (int i = 0; limit_at(&l, i, c); i++)
        fprintf(to, "%-18s %12" PRId64 " %s\n", l.name, l.value, l.unit);
}

struct volume_request config_request(const struct config *c)
{
    return (struct volume_request){
        .part = VOLUME_ALL,
        .member = c->member,
        .strict = c->strict,
        .allow_gaps = c->allow_gaps,
        .limits = {(uint64_t)c->limit_voxels, (uint64_t)c->limit_bytes},
        .report = console_report(c),
    };
}

struct dataset_options config_dataset(const struct config *c)
{
    return (struct dataset_options){
        .follow = c->follow,
        .labeled = c->labeled,
        .leave_out = c->leave_out,
        .label_map = c->label_map,
        .seed = (uint64_t)c->set.seed,
        .geometry_tolerance_mm = c->geometry_tolerance_mm,
        .report = console_report(c),
    };
}

int keep_volume(struct volume *v, int64_t which, struct error *e)
{
    int64_t n = volume_channels(v);
    if (which >= n)
        return fail(e, ERR_CONFIG, "N31", "--volume %lld, the file has volumes 0 to %lld", (long long)which,
                    (long long)n - 1);
    size_t bytes = (size_t)volume_voxels(v) * dtype_bytes(v->dtype);
    if (v->data && which > 0)
        memmove(v->data, (char *)v->data + (size_t)which * bytes, bytes);
    v->n_dims = v->n_dims < 3 ? v->n_dims : 3;
    for (int a = 3; a < VOLUME_MAX_DIMS; a++)
        v->dims[a] = 1;
    return 0;
}
