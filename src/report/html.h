/* html.h - text of a page or table built in memory: markup, escaped text, fields of CSV, bytes as base64.
 *
 * Failures (memory) are kept and told once, by html_take(). Everything that comes from a file or a user goes
 * through html_text(), which is the same for the content of an element and for a value in double quotes.
 */
#ifndef FALX_HTML_H
#define FALX_HTML_H

#include "base/base.h"

struct html { /* start zeroed */
    char *text;
    size_t n, room;
    int failed;
    struct error why;
};

void html_add(struct html *h, const char *fmt, ...) PRINTF(2, 3); /* markup of ours and numbers */
/* & < > " ' as entities; control bytes, and bytes that are not UTF-8, as \xNN. */
void html_text(struct html *h, const char *text);
/* A field of a CSV file: in quotes where a reader would be misled, behind ' where a spreadsheet would take it
 * for a formula (= + - @); control bytes as \xNN. */
void html_csv(struct html *h, const char *text);
void html_base64(struct html *h, const void *bytes, size_t n);
/* Gives the text, its length in *n (may be NULL), and empties *h; -1 if anything failed on the way. */
int html_take(char **text, size_t *n, struct html *h, struct error *e);
/* Writes the text to a file and empties *h. path NULL: its error is told already. */
int html_write(struct html *h, const char *path, struct error *e);
void html_drop(struct html *h);

#endif
