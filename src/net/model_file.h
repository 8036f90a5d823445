/* model_file.h - params to and from safetensors, under PyTorch's names and layouts.
 *
 * model.safetensors holds the state dict (weights, running_mean, running_var, num_batches_tracked as I64
 * scalars) and the definition as metadata: falx.network ("vnet", "aua", "vnet-sdf"), falx.channels,
 * falx.classes, falx.filters, falx.rank, falx.dropout, falx.head_norm, falx.format (1). No time,
 * path, host or command: equal training gives equal bytes. A file from elsewhere (no metadata) is recognised
 * by names and shapes.
 */
#ifndef FALX_MODEL_FILE_H
#define FALX_MODEL_FILE_H

#include "net/net.h"
#include "net/safetensors.h"

/* Adds every parameter of p to f as PREFIX + name; downloads into memory that *keep owns. */
struct model_copy {
    float *values;    /* host */
    int64_t *batches; /* one, shared by all layers */
    char *names;      /* one after another, each with its NUL */
};
int model_to_tensors(struct st_file *f, struct model_copy *keep, const struct params *p, const char *prefix,
                     struct error *e);
void model_copy_free(struct model_copy *keep);
/* Fills p; tensors missing, extra under the prefix or of another shape: the first 3 of each [S10]; values
 * that are not finite: tensor and index [S09]. */
int model_from_tensors(struct params *p, const struct st_file *f, const char *prefix, struct error *e);

int model_write(const char *path, const struct params *p, const struct net_definition *def, struct error *e);
/* The definition a file was made with, and then its values. */
int model_read(struct params **out, struct net_definition *def, const char *path, struct device *dev,
               struct error *e);

#endif
