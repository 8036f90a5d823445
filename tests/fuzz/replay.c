/* replay.c - runs a fuzz target over saved inputs without a fuzzing compiler: replay FILE-OR-FOLDER... */
#include <stdint.h>
#include <stdio.h>

#include "base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int n_inputs;

static void replay_file(const char *path)
{
    int fd;
    uint64_t bytes;
    struct error e;
    if (io_open_regular(&fd, &bytes, path, &e) < 0)
        return;
    uint8_t *data = mem_alloc(&e, bytes, 1);
    if (data && io_read_full(fd, data, bytes) == (ssize_t)bytes) {
        LLVMFuzzerTestOneInput(data, bytes);
        n_inputs++;
    }
    mem_free(data);
    io->close(fd);
}

int main(int argc, char **argv)
{
    struct error e;
    for (int i = 1; i < argc; i++) {
        struct io_listing l;
        if (!io_is_folder(argv[i])) {
            replay_file(argv[i]);
            continue;
        }
        if (io_list(&l, argv[i], &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        for (int k = 0; k < l.n; k++) {
            char *path = path_join(&e, argv[i], l.entry[k].name);
            replay_file(path);
            mem_free(path);
        }
        io_listing_free(&l);
    }
    printf("%s: %d inputs\n", argv[0], n_inputs);
    return n_inputs ? 0 : 1;
}
