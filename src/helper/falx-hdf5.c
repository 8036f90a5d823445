/* falx-hdf5.c - one data set of an HDF5 file to stdout. The only user of libhdf5.
 *
 *     falx-hdf5 header|voxels FILE MEMBER
 *
 * Runs under falx-limit, for libhdf5 can be made to crash, hang or allocate without bound by a few
 * damaged bytes. Nothing here defends against that; the limits and the reader of our output
 * (hdf5.c) do. What is checked here is what only libhdf5 can tell: that the file does not lead to
 * other files (external links, external storage, virtual data sets), needs no loadable code
 * (filters), and holds a plain array of numbers that its bytes can justify.
 *
 * Memory: one block of the array at a time. A block is made of whole chunks, so that each chunk is
 * decoded once, and grows along the last axes up to BLOCK_BYTES.
 */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "volume/hdf5_reply.h"
#include "volume/volume.h"

enum {
    BLOCK_BYTES = 8 << 20,   /* fewer system calls than chunks, small beside the memory limit */
    CHUNK_BYTES = 128 << 20, /* filters hold up to four copies: 512 MiB of 1 GiB */
    DEFLATE_MOST = 1032      /* decoded bytes per compressed byte: 258 bytes from 2 bits */
};

struct job {
    const char *path, *member;
    hid_t file, set, type; /* type: of the voxels in memory */
    size_t each;           /* bytes of one voxel */
    int chunk_rank;        /* 0 if not chunked */
    uint64_t file_bytes;
    struct hdf5_reply reply;
};

/* ---- libhdf5's own words --------------------------------------------------------------------- */

static herr_t take_first(unsigned n, const H5E_error2_t *entry, void *out)
{
    if (n == 0 && entry->desc)
        snprintf(out, 120, "%s", entry->desc);
    return 0;
}

/* fail() with the innermost message of libhdf5's error stack; damage to chunks has its own id. */
static int fail_hdf5(struct error *e, const char *id, const char *what)
{
    char why[120] = "no reason given";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, why);
    return fail(e, ERR_DATA, strstr(why, "chunk") ? "H07" : id, "%s: %s", what, why);
}

/* ---- finding the data set -------------------------------------------------------------------- */

/* "image" not found: tell what is there instead. */
static int fail_missing(struct job *j, struct error *e)
{
    char names[160] = "";
    H5G_info_t info;
    memset(&info, 0, sizeof info);
    if (H5Gget_info(j->file, &info) >= 0)
        for (hsize_t i = 0; i < info.nlinks && i < 8; i++) {
            char name[64];
            if (H5Lget_name_by_idx(j->file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                                   H5P_DEFAULT) <= 0)
                break;
            size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
        }
    return fail(e, ERR_DATA, "H02", "no data set \"%s\"; the file holds: %s", j->member,
                *names ? names : "nothing");
}

/* Every step of the path must be a hard link: others lead to other files or run user code. */
static int check_links(struct job *j, struct error *e)
{
    char path[256];
    size_t n = strlen(j->member);
    if (n == 0 || n >= sizeof path)
        return fail(e, ERR_DATA, "H02", "data set name of %zu bytes, allowed 1..255", n);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && j->member[i] != '/')
            continue;
        memcpy(path, j->member, i);
        path[i] = '\0';
        H5L_info_t link;
        if (H5Lexists(j->file, path, H5P_DEFAULT) <= 0 || H5Lget_info(j->file, path, &link, H5P_DEFAULT) < 0)
            return fail_missing(j, e);
        if (link.type != H5L_TYPE_HARD)
            return fail(e, ERR_DATA, "H06", "\"%s\" is %s link, which may lead to another file", path,
                        link.type == H5L_TYPE_SOFT ? "a soft" : "an external");
    }
    return 0;
}

static int open_set(struct job *j, struct error *e)
{
    H5O_info_t info;
    j->file = H5Fopen(j->path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (j->file < 0)
        return fail_hdf5(e, "H01", "not a sound HDF5 file");
    if (check_links(j, e) < 0)
        return -1;
    if (H5Oget_info_by_name2(j->file, j->member, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        return fail_hdf5(e, "H01", "damaged object header");
    if (info.type != H5O_TYPE_DATASET)
        return fail(e, ERR_DATA, "H02", "\"%s\" is a %s, expected a data set", j->member,
                    info.type == H5O_TYPE_GROUP ? "group" : "named type");
    j->set = H5Dopen2(j->file, j->member, H5P_DEFAULT);
    if (j->set < 0)
        return fail_hdf5(e, "H01", "cannot open the data set");
    return 0;
}

/* ---- what kind of data set ------------------------------------------------------------------- */

static int check_filters(hid_t plist, struct error *e)
{
    int n = H5Pget_nfilters(plist);
    for (int i = 0; i < n; i++) {
        unsigned flags, config;
        size_t n_values = 0;
        char name[64] = "";
        H5Z_filter_t f =
            H5Pget_filter2(plist, (unsigned)i, &flags, &n_values, NULL, sizeof name, name, &config);
        if (f != H5Z_FILTER_DEFLATE && f != H5Z_FILTER_SHUFFLE && f != H5Z_FILTER_FLETCHER32)
            return fail(e, ERR_DATA, "H05", "filter %d (%s), allowed deflate, shuffle, fletcher32", (int)f,
                        *name ? name : "unnamed");
    }
    return n < 0 ? fail_hdf5(e, "H05", "cannot read the filters") : 0;
}

/* Where the bytes lie, and through what they go. Fills reply.block with the chunk, or with 1s.
 * Comes before the shape is asked for: libhdf5 opens the sources of a virtual data set to answer
 * that. */
static int check_storage(struct job *j, struct error *e)
{
    hsize_t chunk[HDF5_MAX_RANK] = {1, 1, 1, 1};
    int rc = -1;
    hid_t plist = H5Dget_create_plist(j->set);
    H5D_layout_t layout = plist < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(plist);
    if (layout == H5D_LAYOUT_ERROR)
        fail_hdf5(e, "H01", "cannot read the layout");
    else if (layout == H5D_VIRTUAL)
        fail(e, ERR_DATA, "H06", "virtual data set, which would read other files");
    else if (H5Pget_external_count(plist) != 0)
        fail(e, ERR_DATA, "H06", "external storage, which would read other files");
    else if (check_filters(plist, e) == 0)
        rc = 0;
    if (rc == 0 && layout == H5D_CHUNKED)
        j->chunk_rank = H5Pget_chunk(plist, HDF5_MAX_RANK, chunk);
    for (int a = 0; a < HDF5_MAX_RANK; a++)
        j->reply.block[a] = chunk[a];
    H5Pclose(plist);
    return rc;
}

static int check_shape(struct job *j, struct error *e)
{
    hsize_t dims[H5S_MAX_RANK], most[H5S_MAX_RANK];
    hid_t space = H5Dget_space(j->set);
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (rank < 0)
        return fail_hdf5(e, "H03", "cannot read the shape");
    if (rank < 1 || rank > HDF5_MAX_RANK || H5Sget_simple_extent_dims(space, dims, most) != rank) {
        H5Sclose(space);
        return fail(e, ERR_DATA, "H03", "rank %d, allowed 1..%d", rank, HDF5_MAX_RANK);
    }
    H5Sclose(space);
    if (j->chunk_rank != 0 && j->chunk_rank != rank)
        return fail(e, ERR_DATA, "H07", "chunk rank %d, the array has rank %d", j->chunk_rank, rank);
    j->reply.rank = (uint32_t)rank;
    for (int a = 0; a < HDF5_MAX_RANK; a++)
        j->reply.dims[a] = a < rank ? dims[a] : 1;
    for (int a = 0; a < rank; a++) {
        if (most[a] == H5S_UNLIMITED)
            return fail(e, ERR_DATA, "H03", "axis %d is unlimited, expected a fixed extent", a);
        if (dims[a] < 1 || dims[a] > INT32_MAX)
            return fail(e, ERR_DATA, "H03", "axis %d has extent %llu, allowed 1..%d", a,
                        (unsigned long long)dims[a], INT32_MAX);
    }
    return 0;
}

/* The type in memory for the type in the file: same kind and width in host order. */
static int choose_type(struct job *j, hid_t type, struct error *e)
{
    const hid_t natives[10] = {
        [DTYPE_U8] = H5T_NATIVE_UINT8,   [DTYPE_I8] = H5T_NATIVE_INT8,    [DTYPE_U16] = H5T_NATIVE_UINT16,
        [DTYPE_I16] = H5T_NATIVE_INT16,  [DTYPE_U32] = H5T_NATIVE_UINT32, [DTYPE_I32] = H5T_NATIVE_INT32,
        [DTYPE_U64] = H5T_NATIVE_UINT64, [DTYPE_I64] = H5T_NATIVE_INT64,  [DTYPE_F32] = H5T_NATIVE_FLOAT,
        [DTYPE_F64] = H5T_NATIVE_DOUBLE,
    };
    H5T_class_t kind = H5Tget_class(type);
    size_t each = H5Tget_size(type);
    uint32_t width = each == 1 ? 0 : each == 2 ? 1 : each == 4 ? 2 : each == 8 ? 3 : 4;
    int is_bool = kind == H5T_ENUM && width == 0; /* how h5py stores bool: one byte, as it is */
    if (is_bool)
        j->reply.dtype = DTYPE_U8;
    else if (kind == H5T_INTEGER && width < 4) /* wider types follow in steps of two */
        j->reply.dtype = 2 * width + (H5Tget_sign(type) == H5T_SGN_2 ? DTYPE_I8 : DTYPE_U8);
    else if (kind == H5T_FLOAT && width > 0 && width < 4) /* half precision is widened */
        j->reply.dtype = width == 3 ? DTYPE_F64 : DTYPE_F32;
    else
        return fail(e, ERR_DATA, "H04", "type class %d of %zu bytes, allowed integer or float of 1 to 8",
                    (int)kind, each);
    j->type = is_bool ? H5Tcopy(type) : natives[j->reply.dtype];
    j->each = dtype_bytes((enum dtype)j->reply.dtype);
    return 0;
}

static int check_type(struct job *j, struct error *e)
{
    hid_t type = H5Dget_type(j->set);
    if (type < 0)
        return fail_hdf5(e, "H04", "cannot read the type");
    int rc = choose_type(j, type, e);
    H5Tclose(type);
    return rc;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int bytes_of(size_t *out, const uint64_t dims[HDF5_MAX_RANK], size_t each)
{
    *out = each;
    for (int a = 0; a < HDF5_MAX_RANK; a++)
        if (size_mul(out, *out, (size_t)dims[a]) < 0)
            return -1;
    return 0;
}

/* The array against the bytes of the file, the chunk against memory; then the blocks to read in. */
static int plan_blocks(struct job *j, struct error *e)
{
    struct hdf5_reply *r = &j->reply;
    size_t all, chunk, most = (size_t)j->file_bytes * DEFLATE_MOST;
    if (bytes_of(&all, r->dims, j->each) < 0 || all > most)
        return fail(e, ERR_DATA, "H07",
                    "%llux%llux%llux%llu voxels of %zu bytes, more than a file of "
                    "%llu bytes can hold",
                    (unsigned long long)r->dims[0], (unsigned long long)r->dims[1],
                    (unsigned long long)r->dims[2], (unsigned long long)r->dims[3], j->each,
                    (unsigned long long)j->file_bytes);
    for (uint32_t a = 0; a < HDF5_MAX_RANK; a++)
        if (r->block[a] < 1)
            return fail(e, ERR_DATA, "H07", "chunk of extent 0 along axis %u", a);
    if (bytes_of(&chunk, r->block, j->each) < 0 || chunk > CHUNK_BYTES)
        return fail(e, ERR_DATA, "H07", "chunk of %llux%llux%llux%llu voxels, allowed %d MiB",
                    (unsigned long long)r->block[0], (unsigned long long)r->block[1],
                    (unsigned long long)r->block[2], (unsigned long long)r->block[3], CHUNK_BYTES >> 20);
    for (int a = HDF5_MAX_RANK - 1; a >= 0; a--) {
        uint64_t need = (r->dims[a] + r->block[a] - 1) / r->block[a]; /* chunks along this axis */
        uint64_t fit = chunk < BLOCK_BYTES ? BLOCK_BYTES / chunk : 1;
        uint64_t take = need < fit ? need : fit;
        r->block[a] *= take;
        chunk *= (size_t)take;
        if (r->block[a] > r->dims[a])
            r->block[a] = r->dims[a];
        if (take < need)
            break;
    }
    return 0;
}

/* The header took what it took; decoding may take CPU seconds in proportion to the voxels. */
static void allow_decoding(const struct job *j)
{
    struct rlimit cpu;
    size_t all;
    if (bytes_of(&all, j->reply.dims, j->each) < 0 || getrlimit(RLIMIT_CPU, &cpu) < 0 ||
        cpu.rlim_cur == RLIM_INFINITY)
        return;
    rlim_t want = cpu.rlim_cur + (rlim_t)(all / HDF5_DECODE_RATE);
    cpu.rlim_cur = want < cpu.rlim_max ? want : cpu.rlim_max;
    setrlimit(RLIMIT_CPU, &cpu);
}

/* ---- voxels ---------------------------------------------------------------------------------- */

static int write_all(const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t k = write(1, p, n);
        if (k < 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int send_block(struct job *j, void *buffer, hid_t space, const hsize_t at[HDF5_MAX_RANK])
{
    hsize_t count[HDF5_MAX_RANK], n = 1;
    for (int a = 0; a < HDF5_MAX_RANK; a++) {
        hsize_t left = j->reply.dims[a] - at[a];
        count[a] = left < j->reply.block[a] ? left : j->reply.block[a];
        n *= count[a];
    }
    hid_t memory = H5Screate_simple(1, &n, NULL);
    int rc = memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, count, NULL) < 0 ||
                     H5Dread(j->set, j->type, memory, space, H5P_DEFAULT, buffer) < 0
                 ? -1
                 : 0;
    H5Sclose(memory);
    return rc < 0 ? -1 : write_all(buffer, (size_t)n * j->each);
}

static int send_voxels(struct job *j, struct error *e)
{
    const struct hdf5_reply *r = &j->reply;
    hsize_t at[HDF5_MAX_RANK] = {0};
    size_t bytes;
    int axis = 0;
    hid_t space = H5Dget_space(j->set);
    void *buffer = bytes_of(&bytes, r->block, j->each) < 0 ? NULL : mem_alloc(e, bytes, 1);
    while (space >= 0 && buffer && axis >= 0) {
        if (send_block(j, buffer, space, at) < 0)
            break;
        for (axis = HDF5_MAX_RANK - 1; axis >= 0; axis--) { /* the next block, last axis first */
            at[axis] += r->block[axis];
            if (at[axis] < r->dims[axis])
                break;
            at[axis] = 0;
        }
    }
    mem_free(buffer);
    return axis < 0 ? 0 : -1;
}

/* ---------------------------------------------------------------------------------------------- */

static int describe(struct job *j, struct error *e)
{
    struct stat st;
    if (stat(j->path, &st) < 0)
        return fail(e, ERR_SYSTEM, "Z12", "cannot open");
    j->file_bytes = (uint64_t)st.st_size;
    if (open_set(j, e) < 0 || check_storage(j, e) < 0 || check_shape(j, e) < 0 || check_type(j, e) < 0 ||
        plan_blocks(j, e) < 0)
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct job j;
    struct error e = {ERR_NONE, "", ""};
    if (argc != 4)
        return ERR_CONFIG;
    memset(&j, 0, sizeof j);
    j.path = argv[2];
    j.member = argv[3];
    memcpy(j.reply.magic, HDF5_REPLY_MAGIC, sizeof j.reply.magic);
    if (H5PLset_loading_state(0) < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0)
        return ERR_INTERNAL;
    if (describe(&j, &e) < 0) {
        j.reply.code = (uint32_t)e.code;
        memcpy(j.reply.id, e.id, sizeof j.reply.id);
        memcpy(j.reply.text, e.text, sizeof j.reply.text);
    }
    if (write_all(&j.reply, sizeof j.reply) < 0)
        _exit(ERR_SYSTEM);
    int rc = 0;
    if (e.code == ERR_NONE && strcmp(argv[1], "voxels") == 0) {
        allow_decoding(&j);
        rc = send_voxels(&j, &e) < 0 ? ERR_DATA : 0;
    }
    _exit(rc); /* closing a damaged file is one more chance to hang: the kernel closes it */
}
