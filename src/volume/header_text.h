/* header_text.h - headers made of text lines (NRRD, MetaImage): lines, fields and lists of numbers.
 *
 * A header is read line by line from a source until the format says it is complete, so that the
 * cursor stands on the first byte of the voxels. Each "name: value" becomes a field; names are kept
 * in lower case without blanks and underscores, so "Byte Skip" and "byteskip" are the same field.
 * Everything is bounded: 64 kB of text, 16 kB a line, 1024 fields.
 */
#ifndef FALX_HEADER_TEXT_H
#define FALX_HEADER_TEXT_H

#include "base/base.h"
#include "base/source.h"
#include "volume/volume.h"

enum {
    HEADER_MAX_BYTES = 1 << 16,   /* default limit on header text of every format */
    HEADER_MAX_LINE = 1 << 14,
    HEADER_MAX_FIELDS = 1 << 10,  /* duplicates are searched pairwise: keeps that below 10 ms */
    HEADER_WORD = 80,             /* longest word worth parsing, with its NUL */
    HEADER_MAX_DOUBTS = 4
};

struct header_field {
    const char *name;  /* normalised; borrowed from text */
    const char *value; /* without blanks around it; borrowed from text */
};

struct header_text {
    char *text;   /* owned: all lines, each ended by NUL */
    size_t bytes; /* of text in use */
    size_t cap;   /* of text: the limit, or less if the source is shorter */
    struct header_field field[HEADER_MAX_FIELDS];
    int n_fields;
    struct {
        const char *id, *text;
    } doubt[HEADER_MAX_DOUBTS]; /* warnings to be given once the whole file has proved readable */
    int n_doubts;
};

int header_init(struct header_text *h, const struct source *s, struct error *e);
void header_done(struct header_text *h); /* zeroed headers are fine */

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
const char *header_need(const struct header_text *h, const char *name, const char *shown,
                        struct error *e);

char *header_trim(char *text); /* cuts blanks at both ends, in place */
/* In lower case without blanks and underscores, cut to cap - 1 bytes. Returns out. */
char *header_normalise(char *out, size_t cap, const char *text);

/* Takes the next blank-separated word of *at into out[HEADER_WORD] and moves *at behind it. Returns
 * 1, 0 if there is none, -1 if it is too long. */
int header_word(char out[HEADER_WORD], const char **at);
/* Exactly n numbers separated by blanks, or -1. */
int header_ints(int64_t *out, int n, const char *text);
int header_reals(double *out, int n, const char *text);
/* Millimetres in a unit of length ("um", "cm", "meters", ...); -1 if the word is not one. Empty
 * words mean millimetres. */
int header_unit(double *mm, const char *word);

/* Notes something doubtful but readable (static strings). A file that is refused later must give
 * its error line alone, so the notes wait: header_refuse_doubts() fails on the first one if the
 * request is strict, header_report_doubts() turns them into warnings after the voxels have been
 * read. */
void header_doubt(struct header_text *h, const char *id, const char *text);
int header_refuse_doubts(const struct header_text *h, const struct volume_request *r,
                         struct error *e);
void header_report_doubts(const struct header_text *h, const struct source *s,
                          const struct volume_request *r);
/* Opens detached voxels. Only a plain name in the header's own folder and not the header itself is
 * followed: paths, LIST and %d patterns are refused [R09]. One leading "./" is dropped. */
int header_open_data(struct source **out, struct source *header, const char *name, struct error *e);

/* Reorders v, whose dims and data (may be NULL) follow the file's axes, so that file axis from[a]
 * becomes axis a. `from` permutes all VOLUME_MAX_DIMS axes; those past n_dims have extent 1. */
int header_reorder_axes(struct volume *v, const int from[VOLUME_MAX_DIMS], struct error *e);

/* Makes the geometry from directions in LPS or RAS millimetres. column[a] is the step of voxel axis
 * a. Refuses what is not finite or singular [R11]. */
enum header_space { HEADER_RAS, HEADER_LPS, HEADER_LAS };
int header_geometry(struct geometry *g, const double column[3][3], const double origin[3],
                    enum header_space space, struct error *e);

#endif
