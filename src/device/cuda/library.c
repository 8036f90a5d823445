/* library.c - where the table of driver.h comes from: libfalx_cuda.so, looked for when a GPU is (cuda.h says
 * where). It stays loaded.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/cuda.h"

typedef const struct cuda_driver *driver_function(void);

/* The table of a library; NULL with the reason in *e. */
static const struct cuda_driver *load(const char *path, struct error *e)
{
    driver_function *function;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "falx_cuda_driver") : NULL;
    if (!symbol) {
        const char *why = dlerror();
        fail(e, ERR_DEVICE, "G01", "%s", why ? why : path); /* it names the file */
        return NULL;
    }
    memcpy(&function, &symbol, sizeof function); /* ISO C has no conversion */
    return function();
}

/* Looks in the program's own folder and in ../lib; allocates nothing, since "auto" looks here, too. */
static const struct cuda_driver *load_beside(struct error *e)
{
    static const char *const places[] = {"libfalx_cuda.so", "../lib/libfalx_cuda.so"};
    char program[PATH_MAX], path[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    int folder = (int)(path_name(program) - program);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s%s", folder, program, places[i]);
        if (access(path, F_OK) == 0)
            return load(path, e);
    }
    fail(e, ERR_DEVICE, "G01", "libfalx_cuda.so is not beside the program; `make cuda` builds it");
    return NULL;
}

int cuda_open(struct device **out, const struct device_options *o, struct error *e)
{
    const char *path = getenv("FALX_CUDA_LIBRARY");
    const struct cuda_driver *d = NULL;
    *out = NULL;
    if (path && *path == 0)
        return fail(e, ERR_DEVICE, "G01", "FALX_CUDA_LIBRARY is empty: no GPU is looked for");
    d = path ? load(path, e) : load_beside(e);
    return d ? cuda_open_driver(out, d, o, e) : -1;
}
