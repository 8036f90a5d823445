/* hdf5.c - volumes from HDF5 files of research code: one data set a volume, no geometry.
 *
 * libhdf5 is not linked here. The helper program falx-hdf5 opens the file under limits
 * (base/child.h) and sends a header and the voxels (hdf5_reply.h); this file checks every number of
 * that header again and puts the voxels in volume order:
 *
 *     array (a0, a1, a2), last index fastest  ->  i = a0, j = a1, k = a2, first index fastest
 *
 * Memory: the volume and one block of it.
 */
#include <string.h>

#include "base/child.h"
#include "base/io.h"
#include "volume/hdf5_reply.h"
#include "volume/volume.h"

enum {
    MEMORY_BYTES = 1 << 30, /* address space of the helper */
    OPEN_FILES = 16,
    FILE_RATE = 16 << 20, /* CPU: a second, one more for each of these bytes of the file, and voxels' */
    BASE_WALL_MS = 1600,  /* a small file is read or refused within 2 s, all included */
    WALL_RATE = 256 << 10 /* bytes of the file a second: a busy network disk */
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

/* How long a file may take from start to end, `voxel_bytes` being known or 0. */
static unsigned wall_for(uint64_t file_bytes, uint64_t voxel_bytes)
{
    return BASE_WALL_MS + 1000 * child_seconds(file_bytes, WALL_RATE) +
           2000 * child_seconds(voxel_bytes, HDF5_DECODE_RATE);
}

static int start_helper(struct child **out, const char *path, uint64_t file_bytes,
                        const struct volume_request *r, struct error *e)
{
    struct child_limits limits = {
        .memory_bytes = MEMORY_BYTES,
        .output_bytes = sizeof(struct hdf5_reply),
        .cpu_seconds = 1 + child_seconds(file_bytes, FILE_RATE),
        .open_files = OPEN_FILES,
        .wall_ms = wall_for(file_bytes, 0),
    };
    limits.cpu_seconds_most = limits.cpu_seconds + child_seconds(r->limits.bytes, HDF5_DECODE_RATE);
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
    static const char *const ends[] = {
        [CHILD_OUT_OF_CPU] = "ran out of its CPU time on this file",
        [CHILD_OUT_OF_TIME] = "did not finish this file in time",
        [CHILD_TOO_LOUD] = "sent more than the file declares",
    };
    if (end.fate == CHILD_SIGNALLED)
        return fail(e, ERR_DATA, "H08", "HDF5 parser crashed on this file (signal %d)", end.code);
    if (end.fate != CHILD_EXITED)
        return fail(e, ERR_DATA, "H08", "HDF5 parser %s", ends[end.fate]);
    if (end.code == CHILD_NOT_FOUND)
        return fail(e, ERR_SYSTEM, NULL, "helper program falx-hdf5 cannot be started");
    if (end.code == ERR_DATA)
        return fail(e, ERR_DATA, "H01", "%s cannot be read: damaged or truncated", what);
    return fail(e, ERR_DATA, "H08", "HDF5 parser gave no %s of this file (exit %d)", what, end.code);
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
    size_t voxels = 1;
    int fits = 1;
    for (int a = 0; a < VOLUME_MAX_DIMS; a++) {
        v->dims[a] = a < HDF5_MAX_RANK ? (int64_t)p->dims[a] : 1;
        fits = fits && size_mul(&voxels, voxels, (size_t)v->dims[a]) == 0;
    }
    if (!fits || size_mul(bytes, voxels, dtype_bytes(v->dtype)) < 0 || voxels > most->voxels ||
        *bytes > most->bytes)
        return fail(e, ERR_DATA, "H03", "%lldx%lldx%lldx%lld voxels, allowed %llu voxels, %llu bytes",
                    (long long)v->dims[0], (long long)v->dims[1], (long long)v->dims[2],
                    (long long)v->dims[3], (unsigned long long)most->voxels, (unsigned long long)most->bytes);
    geometry_identity(&v->geometry, NULL);
    return 0;
}

/* ---- voxels ---------------------------------------------------------------------------------- */

/* Puts a block of n voxels per axis, last axis fastest, at its place in an array of dims with the
 * first axis fastest. */
static inline void place_block(char *data, const char *from, const int64_t dims[HDF5_MAX_RANK],
                               const int64_t at[HDF5_MAX_RANK], const int64_t n[HDF5_MAX_RANK], size_t each)
{
    int64_t step = dims[0] * dims[1] * dims[2];
    for (int64_t a = at[0]; a < at[0] + n[0]; a++)
        for (int64_t b = at[1]; b < at[1] + n[1]; b++)
            for (int64_t c = at[2]; c < at[2] + n[2]; c++) {
                int64_t to = a + dims[0] * (b + dims[1] * c) + step * at[3];
                for (int64_t d = 0; d < n[3]; d++, to += step, from += each)
                    memcpy(data + (size_t)to * each, from, each);
            }
}

/* All voxels into v->data. 0 if they came, 1 if the helper fell silent, -1 on an error of ours. */
static int receive(struct volume *v, struct child *c, const struct hdf5_reply *p, char *block,
                   struct error *e)
{
    const int64_t *dims = v->dims;
    int64_t at[HDF5_MAX_RANK] = {0}, n[HDF5_MAX_RANK];
    size_t each = dtype_bytes(v->dtype);
    for (int axis = 0; axis >= 0;) {
        size_t bytes = each;
        for (int a = 0; a < HDF5_MAX_RANK; a++) {
            int64_t left = dims[a] - at[a], most = (int64_t)p->block[a];
            n[a] = left < most ? left : most;
            bytes *= (size_t)n[a];
        }
        int64_t got = child_read(c, block, bytes, e);
        if (got < 0 || (size_t)got < bytes)
            return got < 0 ? -1 : 1;
        switch (each) { /* one loop for each width, so that the copy of a voxel is one move */
        case 1: place_block(v->data, block, dims, at, n, 1); break;
        case 2: place_block(v->data, block, dims, at, n, 2); break;
        case 4: place_block(v->data, block, dims, at, n, 4); break;
        default: place_block(v->data, block, dims, at, n, 8); break;
        }
        for (axis = HDF5_MAX_RANK - 1; axis >= 0; axis--) { /* the next block, last axis first */
            at[axis] += n[axis];
            if (at[axis] < dims[axis])
                break;
            at[axis] = 0;
        }
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Talks to the started helper until its end. c is consumed. */
static int read_reply(struct volume *v, struct child *c, uint64_t file_bytes, const struct volume_request *r,
                      struct error *e)
{
    struct hdf5_reply reply;
    struct child_end end;
    size_t bytes = 0, block_bytes;
    char *block = NULL;
    int rc = -1;
    int64_t got = child_read(c, &reply, sizeof reply, e);
    if (got >= 0 && (size_t)got < sizeof reply)
        return fail_end(c, "header", e);
    if (got < 0 || check_reply(&reply, e) < 0 || accept_reply(v, &bytes, &reply, &r->limits, e) < 0)
        goto out;
    if (r->part == VOLUME_HEADER_ONLY) {
        rc = 0;
        goto out;
    }
    child_extend(c, wall_for(file_bytes, bytes), bytes);
    block_bytes = dtype_bytes(v->dtype); /* at most those of the volume: checked */
    for (int a = 0; a < HDF5_MAX_RANK; a++)
        block_bytes *= reply.block[a];
    if (!(v->data = mem_alloc(e, bytes, 1)) || !(block = mem_alloc(e, block_bytes, 1)))
        goto out;
    rc = receive(v, c, &reply, block, e);
    mem_free(block);
    if (rc > 0)
        return fail_end(c, "voxels", e);
    if (rc < 0)
        goto out;
    child_finish(&end, c);          /* what happens to the helper now does not matter... */
    if (end.fate == CHILD_TOO_LOUD) /* ...unless it has more to say */
        return fail(e, ERR_DATA, "H08", "HDF5 parser sent more voxels than the file declares");
    return 0;
out:
    child_kill(c);
    return rc;
}

int hdf5_read(struct volume *out, const char *path, const struct volume_request *r, struct error *e)
{
    int fd;
    uint64_t file_bytes;
    struct child *c;
    if (io_open_regular(&fd, &file_bytes, path, e) < 0)
        return -1;
    io->close(fd);
    if (start_helper(&c, path, file_bytes, r, e) < 0 || read_reply(out, c, file_bytes, r, e) < 0)
        return -1;
    if (!r->place_unknown)
        volume_warn(r, NULL, "HDF5 names no spacing or orientation: 1 mm and identity assumed");
    return 0;
}
