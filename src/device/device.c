/* device.c - tensors, and opening a device by name: the processor (cpu.c) or a GPU (cuda/cuda.c). "auto" is
 * the first GPU if one can be opened, else the processor; `falx doctor` tells why.
 */
#include "device/device.h"

#include <string.h>

#include "device/cpu.h"
#include "device/cuda/cuda.h"

size_t value_bytes(enum value_type t)
{
    switch (t) {
    case VALUE_F32: return 4;
    case VALUE_BF16: return 2;
    case VALUE_U8: break;
    }
    return 1;
}

int64_t tensor_voxels(const struct tensor *t)
{
    return (int64_t)t->n * t->d * t->h * t->w;
}

int64_t tensor_count(const struct tensor *t)
{
    return tensor_voxels(t) * t->c;
}

struct tensor tensor_items(const struct tensor *t, int first, int n)
{
    CHECK(first >= 0 && n >= 0 && first + n <= t->n);
    struct tensor view = *t;
    size_t item = (size_t)t->d * (size_t)t->h * (size_t)t->w * (size_t)t->c * value_bytes(t->type);
    if (view.data)
        view.data = (char *)t->data + (size_t)first * item;
    view.n = n;
    return view;
}

const char *precision_name(enum precision p)
{
    switch (p) {
    case PRECISION_F32: return "f32";
    case PRECISION_BF16: return "bf16";
    case PRECISION_TF32: return "tf32";
    case PRECISION_AUTO: break;
    }
    return "auto";
}

int device_open(struct device **out, const struct device_options *o, struct error *e)
{
    const char *name = o->name ? o->name : "auto";
    *out = NULL;
    if (cuda_is_name(name))
        return cuda_open(out, o, e);
    int automatic = strcmp(name, "auto") == 0;
    if (automatic && cuda_open(out, o, NULL) == 0)
        return 0;
    if (automatic || strcmp(name, "cpu") == 0)
        return cpu_open(out, o, e);
    return fail(e, ERR_CONFIG, "C01", "unknown device \"%s\": auto, cpu, cuda and cuda:0, cuda:1, ... exist",
                o->name);
}

void device_close(struct device *dev)
{
    if (dev)
        dev->ops->close(dev);
}

int device_check(struct device *dev, struct error *e)
{
    if (dev->error.code == ERR_NONE)
        return 0;
    if (e)
        *e = dev->error;
    return -1;
}

int device_forgive_memory(struct device *dev)
{
    struct error *e = &dev->error;
    if (e->code != ERR_DEVICE || (strcmp(e->id, "G03") != 0 && strcmp(e->id, "G04") != 0))
        return 0;
    *e = (struct error){.code = ERR_NONE};
    return 1;
}

int device_kind_length(const struct device *dev)
{
    const char *last = strrchr(dev->describe, ',');
    return (int)(last && strstr(last, "thread") ? (size_t)(last - dev->describe) : strlen(dev->describe));
}

enum value_type device_value_type(const struct device *dev)
{
    return dev->precision == PRECISION_BF16 ? VALUE_BF16 : VALUE_F32;
}
