/* error.c - errors and reports as lines of text that cannot lie: see base.h.
 *
 * Whatever a file name or a header contains, the text that leaves here is one printable line.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static void PRINTF(2, 0) set_text(struct error *e, const char *fmt, va_list args)
{
    char raw[1024];
    vsnprintf(raw, sizeof raw, fmt, args);
    text_escape(e->text, sizeof e->text, raw);
}

int fail(struct error *e, enum error_code code, const char *id, const char *fmt, ...)
{
    if (!e)
        return -1;
    e->code = code;
    snprintf(e->id, sizeof e->id, "%s", id ? id : "");
    va_list args;
    va_start(args, fmt);
    set_text(e, fmt, args);
    va_end(args);
    return -1;
}

/* Escapes a path; one that is too long loses its beginning, since its end tells most. */
static void show_path(char *out, size_t cap, const char *path)
{
    char escaped[4 * 4096 + 1];
    text_escape(escaped, sizeof escaped, path);
    size_t n = strlen(escaped);
    if (n < cap) {
        memcpy(out, escaped, n + 1);
        return;
    }
    const char *tail = escaped + n - (cap - 4);
    while (((unsigned char)*tail & 0xC0) == 0x80)
        tail++; /* do not start inside a UTF-8 sequence */
    snprintf(out, cap, "...%s", tail);
}

int fail_in(struct error *e, const char *path)
{
    if (!e)
        return -1;
    char shown[PATH_SHOWN + 1], text[sizeof e->text + sizeof shown + 2];
    show_path(shown, sizeof shown, path);
    snprintf(text, sizeof text, "%s: %s", shown, e->text);
    text_escape(e->text, sizeof e->text, text); /* both parts are escaped: it only cuts, between letters */
    return -1;
}

int fail_errno(struct error *e, int errno_value, const char *what)
{
    char reason[128];
    const char *text = strerror_r(errno_value, reason, sizeof reason);
    enum error_code code = errno_value == ENOMEM ? ERR_MEMORY : ERR_SYSTEM;
    return fail(e, code, "Z12", "%s: %s", what, text);
}

_Noreturn void check_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "falx: internal error: %s (%s:%d)\n", cond, file, line);
    abort();
}

/* Keeps a line, or sends it out with its path and id. */
static void deliver(struct report *r, enum report_kind kind, const char *path, struct error *line)
{
    struct report_hold *h = r->hold;
    if (h) {
        path = path ? path : h->path;
        if (h->n == (int)(sizeof h->held / sizeof h->held[0]))
            return;
        h->held[h->n].kind = kind;
        h->held[h->n].line = *line;
        show_path(h->held[h->n++].path, PATH_SHOWN + 1, path ? path : "");
        return;
    }
    r->n_warnings += kind == REPORT_WARNING;
    r->n_problems += kind == REPORT_PROBLEM;
    if (!r->line)
        return;
    if (path)
        fail_in(line, path);
    char text[sizeof line->text + 16];
    const char *id = line->id;
    snprintf(text, sizeof text, "%s%s%s%s", line->text, *id ? " [" : "", id, *id ? "]" : "");
    r->line(r, kind, text);
}

void report_line(struct report *r, enum report_kind kind, const char *path, const char *id, const char *fmt,
                 ...)
{
    if (!r)
        return;
    struct error line = {.code = ERR_DATA};
    snprintf(line.id, sizeof line.id, "%s", id ? id : "");
    va_list args;
    va_start(args, fmt);
    set_text(&line, fmt, args);
    va_end(args);
    deliver(r, kind, path, &line);
}

void report_hold(struct report_hold *h)
{
    h->report = (struct report){.hold = h};
    h->path = NULL;
    h->n = 0;
}

void report_release(struct report_hold *h, struct report *to)
{
    for (int i = 0; to && i < h->n; i++)
        deliver(to, h->held[i].kind, *h->held[i].path ? h->held[i].path : NULL, &h->held[i].line);
}

int report_refuse(const struct report_hold *h, struct error *e)
{
    for (int i = 0; i < h->n; i++)
        if (h->held[i].kind == REPORT_WARNING && h->held[i].line.id[0]) {
            if (e)
                *e = h->held[i].line;
            return -1;
        }
    return 0;
}
