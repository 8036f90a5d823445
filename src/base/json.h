/* json.h - the little of JSON that data sets need, over jansson, with limits.
 *
 * Refused while reading: more than JS_MAX_BYTES, nesting deeper than JS_MAX_DEPTH, the same key twice in
 * one object, NUL inside strings, text after the end, bytes that are not UTF-8. Integers stay integers.
 * Objects keep the order of the file, which in nnU-Net's `labels` has a meaning.
 *
 * A `const struct js *` is borrowed from its document and lives as long as that. Every accessor accepts
 * NULL and values of another kind, and answers "nothing" (NULL, 0 or -1): a caller checks once, at the end.
 */
#ifndef FALX_JSON_H
#define FALX_JSON_H

#include "base/base.h"

enum {
    JS_MAX_BYTES = 64 << 20, /* 100,000 cases of some 300 bytes each, twice over */
    JS_MAX_DEPTH = 32        /* the formats read here nest five deep */
};

struct js; /* a value, or a whole document */

/* Errors of js_read_file carry the path; those of js_parse do not. */
int js_read_file(struct js **out, const char *path, struct error *e);
int js_parse(struct js **out, const char *text, size_t bytes, struct error *e);
void js_free(struct js *document); /* NULL is fine; only what js_read_file or js_parse gave */

const struct js *js_get(const struct js *object, const char *key);
int js_is_object(const struct js *v);
int js_is_array(const struct js *v);
int js_is_bool(int *out, const struct js *v); /* 1 and the value; or 0, and *out stays as it is */
int js_count(const struct js *v);             /* entries of an array or object, else 0 */
const struct js *js_at(const struct js *array, int i);
const char *js_text(const struct js *v);      /* NULL if it is no string */
int js_int(int64_t *out, const struct js *v); /* -1 if it is no integer */
int js_real(double *out, const struct js *v); /* any number, else -1 */
double js_number(const struct js *v);         /* any number, else NaN */
/* Walks an object in file order: start with *place = NULL; 0 at the end. */
int js_next(void **place, const char **key, const struct js **value, const struct js *object);

/* "text" in quotes, ASCII only; reading it gives the text back, except that bytes which are not UTF-8
 * come as \xNN. For mem_free. */
char *js_quote(const char *text, struct error *e);

const char *js_library_version(void);

#endif
