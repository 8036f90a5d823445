/* header_text.h - headers made of text lines (NRRD, MetaImage): lines, fields, numbers, and the way
 * from there to voxels and geometry.
 *
 * A header is read line by line from a source until the format says it is complete, so that the
 * cursor stands on the first byte of the voxels. Each "name: value" becomes a field; names are kept
 * in lower case without blanks and underscores, so "Byte Skip" and "byteskip" are the same field.
 * Everything is bounded: 64 kB of text, 16 kB a line, 1024 fields.
 */
#ifndef FALX_HEADER_TEXT_H
#define FALX_HEADER_TEXT_H

#include "volume/volume.h"

enum {
    HEADER_MAX_BYTES = 1 << 16, /* default limit on header text of every format */
    HEADER_MAX_LINE = 1 << 14,
    HEADER_MAX_FIELDS = 1 << 10, /* duplicates are searched pairwise: keeps that below 10 ms */
    HEADER_WORD = 80             /* longest word worth parsing, with its NUL */
};

struct header_text {
    char *text;   /* owned: all lines, each ended by NUL */
    size_t bytes; /* of text in use */
    size_t cap;   /* of text: the limit, or less if the source is shorter */
    struct {
        const char *name;  /* normalised; borrowed from text */
        const char *value; /* without blanks around it; borrowed from text */
    } field[HEADER_MAX_FIELDS];
    int n_fields;
    struct report *report; /* the request's, for volume_warn() */
};

int header_init(struct header_text *h, const struct source *s, const struct volume_request *r,
                struct error *e);
void header_done(struct header_text *h);

/* The next line without its end (LF or CRLF), kept in h. Returns 1, or 0 if the source is at its
 * end, or -1: too long [R02], NUL byte inside a field [R13] or among bytes that are no field [R02].
 */
int header_next_line(char **line, struct header_text *h, struct source *s, struct error *e);
/* Adds a field; both strings must live in h. Duplicates [R05] and too many fields [R13] are
 * refused. */
int header_add(struct header_text *h, char *name, char *value, struct error *e);
/* Value of a field by normalised name, or NULL. */
const char *header_find(const struct header_text *h, const char *name);
/* The same for a field that must be there [R03]; `shown` is its name as users know it. */
const char *header_need(const struct header_text *h, const char *name, const char *shown, struct error *e);

/* In lower case without blanks and underscores, cut to cap - 1 bytes. Returns out. */
char *header_normalise(char *out, size_t cap, const char *text);
/* Takes the next blank-separated word of *at into out[HEADER_WORD] and moves *at behind it. Returns
 * 1, 0 if there is none, -1 if it is too long. */
int header_word(char out[HEADER_WORD], const char **at);
int header_reals(double *out, int n, const char *text); /* exactly n finite numbers, or -1 */
/* v's dims from `first` on: exactly n counts of 1 or more, all other dims 1 [R04]. */
int header_sizes(struct volume *v, int first, int n, const char *text, const char *shown, struct error *e);
/* names[dtype] is a list of normalised names, a blank around each [R06]. */
int header_dtype(enum dtype *out, const char *const names[DTYPE_F64 + 1], const char *text, struct error *e);
/* Millimetres in a unit of length ("um", "cm", "meters", ...); empty: millimetres, and so, with a
 * warning [N23], for words that are no unit. */
double header_unit(const struct header_text *h, const char *word);

/* Where the voxels are. */
struct header_data {
    const char *file;          /* NULL: behind the header */
    int64_t skip_lines;        /* of the raw file, */
    int64_t skip_raw;          /* then bytes of it, */
    int64_t packed;            /* bytes that must then be there, */
    enum source_coding coding; /* then decoding, */
    int64_t skip;              /* then decoded bytes; -1: the voxels end the file */
    int is_big;                /* big-endian */
    const char *id_claim;      /* as for volume_read_voxels */
};
/* Opens detached data, goes to the voxels and reads them; v has dims and dtype in file order. Only
 * a plain name in the header's own folder and not the header itself is followed: paths, LIST and %d
 * patterns are refused [R09]; so are skips beyond the end [R10]. */
int header_read_voxels(struct volume *v, struct source *s, const struct header_data *d,
                       const struct volume_request *r, struct error *e);

/* Reorders v, whose dims and data (may be NULL) follow the file's axes, so that file axis from[a]
 * becomes axis a. `from` permutes all VOLUME_MAX_DIMS axes; those past n_dims have extent 1. */
int header_reorder_axes(struct volume *v, const int from[VOLUME_MAX_DIMS], struct error *e);

/* Makes the geometry from directions in LPS, RAS or LAS millimetres. column[a] is the step of voxel
 * axis a. Refuses what is not finite or singular [R11]. */
enum header_space { HEADER_RAS, HEADER_LPS, HEADER_LAS };
int header_geometry(struct geometry *g, const double column[3][3], const double origin[3],
                    enum header_space space, struct error *e);

#endif
