/* json_write.h - JSON text built in memory: indented objects, one line a value, arrays of numbers
 * inline.
 *
 * Failures (memory) are kept and told once, by js_out_take(). Reals are written with 17 digits, so
 * that reading gives the same bits; NaN and infinities, which JSON lacks, become null. A key of NULL
 * stands for an element of an array.
 */
#ifndef FALX_JSON_WRITE_H
#define FALX_JSON_WRITE_H

#include <sys/types.h>

#include "base/base.h"

struct js_out { /* start zeroed */
    char *text;
    size_t n, room;
    int depth, comma, failed;
    struct error why;
};

void js_out_open(struct js_out *o, const char *key, char bracket);      /* '{' or '[' */
void js_out_close(struct js_out *o, char bracket);                      /* '}' or ']' */
void js_out_text(struct js_out *o, const char *key, const char *value); /* NULL gives null */
void js_out_bool(struct js_out *o, const char *key, int value);
void js_out_int(struct js_out *o, const char *key, int64_t value);
void js_out_real(struct js_out *o, const char *key, double value);
void js_out_ints(struct js_out *o, const char *key, const int64_t *values, int n);
void js_out_reals(struct js_out *o, const char *key, const double *values, int n);
/* Gives the text (mem_free) and empties *o; -1 if anything failed on the way. */
int js_out_take(char **text, struct js_out *o, struct error *e);
/* Writes the text to a file of this mode and empties *o. path NULL: its error is told already. */
int js_out_write(struct js_out *o, const char *path, mode_t mode, struct error *e);

#endif
