/* hdf5.c - volumes from HDF5 files, as research code stores them: one data set a volume, no
 * geometry.
 *
 * libhdf5 is not linked here. The helper program falx-hdf5 opens the file under limits
 * (base/child.h) and sends a header and the voxels (hdf5_reply.h); this file checks every number of
 * that header again and puts the voxels in volume order:
 *
 *     HDF5 array (a0, a1, a2), last index fastest  ->  volume i = a0, j = a1, k = a2, first index
 * fastest
 *
 * Memory stays at the volume plus one run of voxels, for blocks are scattered as they arrive.
 */
#include <string.h>

#include "base/child.h"
#include "base/io.h"
#include "volume/hdf5_reply.h"
#include "volume/volume.h"

enum {
    MEMORY_BYTES = 1 << 30, /* address space of the helper */
    OPEN_FILES = 16,
    FILE_RATE = 16 << 20,  /* CPU: one second, one more for each of these bytes of the file... */
    DECODE_RATE = 8 << 20, /* ...and for each of these bytes of voxels, as in falx-hdf5.c */
    BASE_WALL_MS = 1600,   /* a small file is read or refused within 2 s, all included */
    WALL_RATE = 256 << 10, /* bytes of the file a second: a busy network disk */
    SECONDS_MOST = 3600,   /* added to either clock */
    RUN_BYTES = 1 << 16    /* voxels taken from the pipe at once: its capacity */
};

int hdf5_recognise(const unsigned char *head, size_t n)
{
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};
    for (size_t at = 0; at + 8 <= n; at = at == 0 ? 512 : 2 * at) /* a user block may come first */
        if (memcmp(head + at, signature, 8) == 0)
            return 1;
    return 0;
}

/* ---- running the helper ---------------------------------------------------------------------- */

static unsigned seconds_for(uint64_t bytes, uint64_t rate)
{
    return bytes / rate < SECONDS_MOST ? (unsigned)(bytes / rate) : SECONDS_MOST;
}

/* How long a file may take from start to end, `voxel_bytes` being known or 0. */
static unsigned wall_for(uint64_t file_bytes, uint64_t voxel_bytes)
{
    return BASE_WALL_MS + 1000 * seconds_for(file_bytes, WALL_RATE) +
           2000 * seconds_for(voxel_bytes, DECODE_RATE);
}

static int start_helper(struct child **out, const char *path, uint64_t file_bytes,
                        const struct volume_request *r, uint64_t bytes_most, struct error *e)
{
    struct child_limits limits = {
        .memory_bytes = MEMORY_BYTES,
        .output_bytes = sizeof(struct hdf5_reply),
        .cpu_seconds = 1 + seconds_for(file_bytes, FILE_RATE),
        .open_files = OPEN_FILES,
        .wall_ms = wall_for(file_bytes, 0),
    };
    limits.cpu_seconds_most = limits.cpu_seconds + seconds_for(bytes_most, DECODE_RATE);
    char *program = NULL;
    if (child_find_helper(&program, "falx-hdf5", e) < 0)
        return -1;
    char *argv[] = {program, r->part == VOLUME_HEADER_ONLY ? "header" : "voxels", (char *)path,
                    (char *)(r->member ? r->member : "image"), NULL};
    int rc = child_start(out, argv, NULL, &limits, e);
    mem_free(program);
    return rc;
}

/* Turns the end of a helper that did not deliver into an error. `what` it owed. */
static int fail_end(struct child *c, const char *what, struct error *e)
{
    struct child_end end;
    child_finish(&end, c);
    switch (end.fate) {
    case CHILD_SIGNALLED:
        return fail(e, ERR_DATA, "H08", "HDF5 parser crashed on this file (signal %d)", end.code);
    case CHILD_OUT_OF_CPU:
        return fail(e, ERR_DATA, "H08", "HDF5 parser ran out of its CPU time on this file");
    case CHILD_OUT_OF_TIME:
        return fail(e, ERR_DATA, "H08", "HDF5 parser did not finish this file in time");
    case CHILD_TOO_LOUD:
        return fail(e, ERR_DATA, "H08", "HDF5 parser sent more than the file declares");
    case CHILD_EXITED:
        break;
    }
    if (end.code == CHILD_NOT_FOUND)
        return fail(e, ERR_SYSTEM, NULL, "helper program falx-hdf5 cannot be started");
    if (end.code == ERR_DATA)
        return fail(e, ERR_DATA, "H01", "%s cannot be read: damaged or truncated", what);
    return fail(e, ERR_DATA, "H08", "HDF5 parser gave no %s of this file (exit %d)", what,
                end.code);
}

/* ---- the reply ------------------------------------------------------------------------------- */

/* Believes nothing: a parser that was taken over may have written this. */
static int check_reply(struct hdf5_reply *p, struct error *e)
{
    p->id[sizeof p->id - 1] = '\0';
    p->text[sizeof p->text - 1] = '\0';
    if (memcmp(p->magic, HDF5_REPLY_MAGIC, sizeof p->magic) != 0)
        return fail(e, ERR_DATA, "H08", "HDF5 parser answered nonsense on this file");
    if (p->code != ERR_NONE)
        return fail(e, p->code == ERR_SYSTEM ? ERR_SYSTEM : ERR_DATA, p->id, "%s", p->text);
    int sound = p->rank >= 1 && p->rank <= HDF5_MAX_RANK && p->dtype <= DTYPE_F64;
    for (uint32_t a = 0; a < HDF5_MAX_RANK; a++)
        sound &= p->dims[a] >= 1 && p->dims[a] <= INT32_MAX && p->block[a] >= 1 &&
                 p->block[a] <= p->dims[a] && (a < p->rank || p->dims[a] == 1);
    if (!sound)
        return fail(e, ERR_DATA, "H08", "HDF5 parser answered nonsense on this file");
    return 0;
}

/* Shape and type into *v; the bytes of the voxels into *bytes. */
static int accept_reply(struct volume *v, size_t *bytes, const struct hdf5_reply *p,
                        const struct volume_limits *most, struct error *e)
{
    v->format = "HDF5";
    v->dtype = (enum dtype)p->dtype;
    v->n_dims = (int)p->rank;
    v->slope = 1;
    size_t voxels = 1;
    int fits = 1;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        v->dims[a] = a < HDF5_MAX_RANK ? (int64_t)p->dims[a] : 1;
        fits = fits && size_mul(&voxels, voxels, (size_t)v->dims[a]) == 0;
    }
    if (!fits || size_mul(bytes, voxels, dtype_bytes(v->dtype)) < 0 || voxels > most->voxels ||
        *bytes > most->bytes)
        return fail(e, ERR_DATA, "H03",
                    "%lldx%lldx%lldx%lld voxels, allowed %llu voxels, %llu bytes",
                    (long long)v->dims[0], (long long)v->dims[1], (long long)v->dims[2],
                    (long long)v->dims[3], (unsigned long long)most->voxels,
                    (unsigned long long)most->bytes);
    const double one_mm[3] = {1, 1, 1};
    geometry_identity(&v->geometry, one_mm);
    v->geometry.known = 0;
    return 0;
}

/* ---- voxels ---------------------------------------------------------------------------------- */

/* The place of the next voxel to arrive. */
struct cursor {
    int64_t dims[HDF5_MAX_RANK], stride[HDF5_MAX_RANK]; /* of the volume, in voxels */
    int64_t block[HDF5_MAX_RANK];
    int64_t start[HDF5_MAX_RANK], end[HDF5_MAX_RANK]; /* of the block being filled */
    int64_t at[HDF5_MAX_RANK];                        /* of the next voxel; all in array order */
};

static void enter_block(struct cursor *c)
{
    for (int a = 0; a < HDF5_MAX_RANK; a++) {
        int64_t end = c->start[a] + c->block[a];
        c->at[a] = c->start[a];
        c->end[a] = end < c->dims[a] ? end : c->dims[a];
    }
}

static void next_block(struct cursor *c)
{
    for (int a = HDF5_MAX_RANK - 1; a >= 0; a--) {
        c->start[a] += c->block[a];
        if (c->start[a] < c->dims[a])
            break;
        c->start[a] = 0;
    }
    enter_block(c);
}

static void cursor_start(struct cursor *c, const struct hdf5_reply *p)
{
    memset(c, 0, sizeof *c);
    int64_t stride = 1;
    for (int a = 0; a < HDF5_MAX_RANK; a++) {
        c->dims[a] = (int64_t)p->dims[a];
        c->block[a] = (int64_t)p->block[a];
        c->stride[a] = stride;
        stride *= c->dims[a];
    }
    enter_block(c);
}

/* Past the end of a row: on to the next row of the block, or to the next block. */
static void next_row(struct cursor *c, int last)
{
    for (int a = last; a >= 0; a--) {
        if (c->at[a] < c->end[a])
            return;
        c->at[a] = c->start[a];
        if (a == 0)
            next_block(c);
        else
            c->at[a - 1]++;
    }
}

/* Scatters n voxels; `last` is the array's last axis, along which they arrive. */
static inline void scatter(char *data, struct cursor *c, int last, const char *from, int64_t n,
                           size_t each)
{
    while (n > 0) {
        int64_t row = c->end[last] - c->at[last], step = c->stride[last], to = 0;
        row = row < n ? row : n;
        for (int a = 0; a <= last; a++)
            to += c->at[a] * c->stride[a];
        for (int64_t i = 0; i < row; i++)
            memcpy(data + (size_t)(to + i * step) * each, from + (size_t)i * each, each);
        from += (size_t)row * each;
        n -= row;
        c->at[last] += row;
        next_row(c, last);
    }
}

/* One loop for each width, so that the copy of a voxel is one instruction. */
static void scatter_run(struct volume *v, struct cursor *c, const char *from, size_t bytes)
{
    int last = v->n_dims - 1;
    switch (dtype_bytes(v->dtype)) {
    case 1:
        scatter(v->data, c, last, from, (int64_t)bytes, 1);
        break;
    case 2:
        scatter(v->data, c, last, from, (int64_t)bytes / 2, 2);
        break;
    case 4:
        scatter(v->data, c, last, from, (int64_t)bytes / 4, 4);
        break;
    default:
        scatter(v->data, c, last, from, (int64_t)bytes / 8, 8);
        break;
    }
}

/* All voxels into v->data. 0 if they came, 1 if the helper fell silent, -1 on an error of ours. */
static int receive(struct volume *v, struct child *c, const struct hdf5_reply *p, size_t bytes,
                   struct error *e)
{
    char run[RUN_BYTES]; /* a multiple of every voxel width */
    struct cursor at;
    cursor_start(&at, p);
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < sizeof run ? bytes - done : sizeof run;
        int64_t got = child_read(c, run, want, e);
        if (got < 0)
            return -1;
        if ((size_t)got < want)
            return 1;
        scatter_run(v, &at, run, want);
        done += want;
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Talks to the started helper until its end. c is consumed. */
static int read_reply(struct volume *v, struct child *c, uint64_t file_bytes,
                      const struct volume_request *r, const struct volume_limits *most,
                      struct error *e)
{
    struct hdf5_reply reply;
    struct child_end end;
    size_t bytes = 0;
    int64_t got = child_read(c, &reply, sizeof reply, e);
    if (got >= 0 && (size_t)got < sizeof reply)
        return fail_end(c, "header", e);
    if (got < 0 || check_reply(&reply, e) < 0 || accept_reply(v, &bytes, &reply, most, e) < 0)
        goto failed;
    if (r->part == VOLUME_HEADER_ONLY) {
        child_kill(c);
        return 0;
    }
    child_extend(c, wall_for(file_bytes, bytes), bytes);
    v->data = mem_alloc(e, bytes, 1);
    if (!v->data)
        goto failed;
    int rc = receive(v, c, &reply, bytes, e);
    if (rc > 0)
        return fail_end(c, "voxels", e);
    if (rc < 0)
        goto failed;
    child_finish(&end,
                 c); /* all voxels are here: what happens to the helper now does not matter... */
    if (end.fate == CHILD_TOO_LOUD) /* ...unless it has more to say */
        return fail(e, ERR_DATA, "H08", "HDF5 parser sent more voxels than the file declares");
    return 0;
failed:
    child_kill(c);
    return -1;
}

int hdf5_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
{
    static const struct volume_request plain;
    r = r ? r : &plain;
    struct volume_limits most = r->limits;
    if (most.voxels == 0)
        most.voxels = volume_default_limits.voxels;
    if (most.bytes == 0)
        most.bytes = volume_default_limits.bytes;
    int fd;
    uint64_t file_bytes;
    struct child *c;
    if (io_open_regular(&fd, &file_bytes, path, e) < 0)
        return fail_in(e, path);
    io->close(fd);
    if (start_helper(&c, path, file_bytes, r, most.bytes, e) < 0 ||
        read_reply(out, c, file_bytes, r, &most, e) < 0) {
        volume_free(out);
        return fail_in(e, path);
    }
    report_line(r->report, REPORT_WARNING, path, NULL,
                "HDF5 names no spacing or orientation: 1 mm and identity assumed");
    return 0;
}
