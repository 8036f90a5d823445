/* hdf5_write.c - the smallest HDF5 file that every reader accepts: version 0 superblock, one root
 * group, contiguous data sets (HDF5 file format specification 2.0, sections II to IV).
 *
 *       0  superblock            96 bytes, its last 40 the root group's entry
 *      96  root object header    40: symbol table message -> tree, heap
 *     136  B-tree node          544: one child, the symbol node
 *     680  local heap            32 + 8 + 16 per name
 *     800  symbol node          328: one entry a data set
 *    1128  object headers       144 each: dataspace, datatype, fill value, layout
 *    2048  data, one after the other, each on a multiple of 8
 *
 * All numbers are little-endian. The main program has no libhdf5; reading goes through a helper
 * process.
 */
#include <string.h>

#include "base/io.h"
#include "phantom/phantom_set.h"

enum {
    AT_ROOT = 96,
    AT_TREE = 136,
    AT_HEAP = 680,
    AT_SYMBOLS = 800,
    AT_HEADERS = 1128,
    AT_DATA = 2048,
    HEADER_BYTES = 144,
    NAME_BYTES = 16,
    MAX_ITEMS = 4,
    LEAF_K = 4,
    INTERNAL_K = 16 /* the library's defaults: half the room of symbol and tree nodes */
};
static const uint64_t UNDEFINED = ~(uint64_t)0; /* "no address" */

struct page {
    unsigned char byte[AT_DATA];
    size_t at;
};

static void put(struct page *p, uint64_t value, int bytes)
{
    for (int b = 0; b < bytes; b++)
        p->byte[p->at++] = (unsigned char)(value >> (8 * b));
}

static void put_text(struct page *p, const char *text)
{
    for (; *text; text++)
        p->byte[p->at++] = (unsigned char)*text;
}

static void put_superblock(struct page *p, uint64_t file_bytes)
{
    p->at = 0;
    put(p, 0x0a1a0a0d46444889u, 8); /* "\x89HDF\r\n\x1a\n" */
    put(p, 0, 5);                   /* versions of superblock, free space, root entry, -, messages */
    put(p, 8, 1);                   /* bytes of an address */
    put(p, 8, 1);                   /* bytes of a length */
    put(p, 0, 1);
    put(p, LEAF_K, 2);
    put(p, INTERNAL_K, 2);
    put(p, 0, 4);
    put(p, 0, 8); /* base address */
    put(p, UNDEFINED, 8);
    put(p, file_bytes, 8);
    put(p, UNDEFINED, 8);
    put(p, 0, 8); /* the root's entry: no name */
    put(p, AT_ROOT, 8);
    put(p, 1, 8); /* what follows are the group's addresses */
    put(p, AT_TREE, 8);
    put(p, AT_HEAP, 8);
}

static void put_header_start(struct page *p, int n_messages, int bytes)
{
    put(p, 1, 2); /* version 1 */
    put(p, (uint64_t)n_messages, 2);
    put(p, 1, 4); /* reference count */
    put(p, (uint64_t)bytes, 8);
}

static void put_message(struct page *p, int kind, int bytes)
{
    put(p, (uint64_t)kind, 2);
    put(p, (uint64_t)bytes, 6); /* 2 bytes of size, then flags: none */
}

static void put_root(struct page *p, const struct hdf5_item *item, int n)
{
    p->at = AT_ROOT;
    put_header_start(p, 1, 24);
    put_message(p, 0x11, 16);
    put(p, AT_TREE, 8);
    put(p, AT_HEAP, 8);
    p->at = AT_TREE;
    put_text(p, "TREE");
    put(p, 0, 2); /* group nodes, leaf */
    put(p, 1, 2); /* entries */
    put(p, UNDEFINED, 8);
    put(p, UNDEFINED, 8);
    put(p, 0, 8); /* every name is above the empty one at heap offset 0 ... */
    put(p, AT_SYMBOLS, 8);
    put(p, (uint64_t)(8 + NAME_BYTES * (n - 1)), 8); /* ... and not above the last */
    p->at = AT_HEAP;
    put_text(p, "HEAP");
    put(p, 0, 4);
    put(p, (uint64_t)(8 + NAME_BYTES * n), 8);
    put(p, 1, 8); /* free list: none */
    put(p, AT_HEAP + 32, 8);
    for (int i = 0; i < n; i++) {
        p->at = (size_t)(AT_HEAP + 32 + 8 + NAME_BYTES * i);
        put_text(p, item[i].name);
    }
    p->at = AT_SYMBOLS;
    put_text(p, "SNOD");
    put(p, 1, 2);
    put(p, (uint64_t)n, 2);
    for (int i = 0; i < n; i++) {
        put(p, (uint64_t)(8 + NAME_BYTES * i), 8);
        put(p, (uint64_t)(AT_HEADERS + HEADER_BYTES * i), 8);
        p->at += 24; /* nothing cached */
    }
}

static void put_datatype(struct page *p, enum dtype t)
{
    size_t start = p->at;
    put_message(p, 3, 24);
    if (t == DTYPE_F32) {
        put(p, 0x11, 1);   /* version 1, floating point */
        put(p, 0x1f20, 3); /* little-endian, implied leading bit, sign at bit 31 */
        put(p, 4, 4);
        put(p, 32 << 16, 4);   /* bit offset 0, precision 32 */
        put(p, 0x17000817, 4); /* exponent at bit 23, of 8 bits; mantissa at bit 0, of 23 bits */
        put(p, 127, 4);        /* exponent bias */
    } else {
        put(p, 0x10, 1); /* version 1, fixed point, unsigned */
        put(p, 0, 3);
        put(p, 1, 4);
        put(p, 8 << 16, 4);
    }
    p->at = start + 8 + 24;
}

static void put_dataset(struct page *p, int i, const struct hdf5_item *item, uint64_t address, uint64_t bytes)
{
    p->at = (size_t)(AT_HEADERS + HEADER_BYTES * i);
    put_header_start(p, 4, 40 + 32 + 16 + 32); /* the four messages with their heads */
    put_message(p, 1, 32);
    put(p, 0x0301, 8); /* dataspace version 1, 3 dimensions */
    for (int a = 0; a < 3; a++)
        put(p, (uint64_t)item->dims[a], 8);
    put_datatype(p, item->dtype);
    put_message(p, 5, 8);
    put(p, 0x020202, 8); /* fill value: version 2, allocated late, written if set, undefined */
    put_message(p, 8, 24);
    put(p, 0x0103, 2); /* layout version 3, contiguous */
    put(p, address, 8);
    put(p, bytes, 8);
}

int hdf5_write(const char *path, const struct hdf5_item *item, int n_items, struct error *e)
{
    static const unsigned char zeros[8];
    struct page p = {.at = 0};
    uint64_t bytes[MAX_ITEMS], end = AT_DATA;
    struct io_file *f = NULL;
    CHECK(n_items >= 1 && n_items <= MAX_ITEMS);
    put_root(&p, item, n_items);
    for (int i = 0; i < n_items; i++) {
        CHECK(strlen(item[i].name) < NAME_BYTES);
        CHECK(item[i].dtype == DTYPE_F32 || item[i].dtype == DTYPE_U8);
        bytes[i] = dtype_bytes(item[i].dtype);
        for (int a = 0; a < 3; a++)
            bytes[i] *= (uint64_t)item[i].dims[a];
        put_dataset(&p, i, &item[i], end, bytes[i]);
        end += (bytes[i] + 7) & ~(uint64_t)7;
    }
    put_superblock(&p, end);
    if (io_create(&f, path, 0666, e) < 0)
        return -1;
    int rc = io_append(f, p.byte, sizeof p.byte, e);
    for (int i = 0; rc == 0 && i < n_items; i++) {
        rc = io_append(f, item[i].data, (size_t)bytes[i], e);
        rc = rc < 0 ? -1 : io_append(f, zeros, (size_t)(-bytes[i] & 7), e);
    }
    if (rc < 0) {
        io_abandon(f);
        return -1;
    }
    return io_commit(f, e);
}
