/* falx-launch.c - starts a program of a bundle (tools/bundle) with the bundle's own loader.
 *
 * The bundle brings its C library, so that it runs where the system's is older, or of another make.
 * But the kernel takes a program's loader from a fixed place outside. So this program, linked
 * statically, lies in the bundle as bin/falx and as lib/HELPER, and becomes
 *
 *     lib/ld-linux-x86-64.so.2 --argv0 NAME --library-path FOLDERS lib/NAME.real ARGUMENT...
 *
 * From then on /proc/self/exe is the loader: whatever is looked for beside the running program, the
 * other helpers and libfalx_cuda.so, is looked for in lib/. Exit status 127: could not be started.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

/* Where the NVIDIA driver of a host keeps libcuda.so.1 if neither LD_LIBRARY_PATH nor the host's
 * /etc/ld.so.cache leads there: containers (which mount the driver), WSL, NixOS, Fedora without cache. */
#define DRIVER_FOLDERS "/usr/local/nvidia/lib64:/usr/lib/wsl/lib:/run/opengl-driver/lib:/usr/lib64"

/* $ORIGIN is the folder of NAME.real, whatever characters its path holds; it comes first, since a
 * library of the host may need another C library than ours. */
static char *library_path(struct error *e)
{
    const char *host = getenv("LD_LIBRARY_PATH");
    int given = host && *host; /* an empty entry would be the current folder */
    return mem_format(e, "$ORIGIN:%s%s" DRIVER_FOLDERS, given ? host : "", given ? ":" : "");
}

int main(int argc, char **argv)
{
    char self[PATH_MAX];
    struct error e = {0};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    int folder = (int)(path_name(self) - self);
    char *name = mem_string(&e, path_name(self));
    char *loader = mem_format(&e, "%.*s../lib/ld-linux-x86-64.so.2", folder, self);
    char *program = mem_format(&e, "%.*s../lib/%s.real", folder, self, name ? name : "");
    char *folders = library_path(&e);
    char **args = mem_alloc(&e, (size_t)argc + 7, sizeof *args);
    if (name && loader && program && folders && args) {
        static char argv0[] = "--argv0", path[] = "--library-path";
        char *const head[] = {loader, argv0, name, path, folders, program};
        memcpy(args, head, sizeof head);
        if (argc > 1)
            memcpy(args + 6, argv + 1, (size_t)(argc - 1) * sizeof *args);
        unsetenv("LD_PRELOAD"); /* made for the host's C library */
        unsetenv("LD_AUDIT");
        execv(loader, args);
        fail_errno(&e, errno, n > 0 ? loader : "/proc/self/exe");
    }
    fprintf(stderr, "falx: error: %s\n", e.text);
    return 127;
}
