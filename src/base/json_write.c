/* json_write.c - see json_write.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/json_write.h"

static void put(struct js_out *o, const char *bytes, size_t n)
{
    if (o->failed)
        return;
    if (o->room - o->n < n + 1) {
        size_t room = 2 * (o->room + n) + 1024;
        char *more = mem_resize(&o->why, o->text, room, 1);
        if (!more) {
            o->failed = 1;
            return;
        }
        o->text = more;
        o->room = room;
    }
    memcpy(o->text + o->n, bytes, n);
    o->n += n;
    o->text[o->n] = '\0';
}

static void put_text(struct js_out *o, const char *text)
{
    put(o, text, strlen(text));
}

static void put_quoted(struct js_out *o, const char *text)
{
    char *quoted = js_quote(text, &o->why);
    if (quoted)
        put_text(o, quoted);
    else
        o->failed = 1;
    mem_free(quoted);
}

/* Comma, line end, indent and key of the next value. */
static void begin(struct js_out *o, const char *key)
{
    if (o->comma)
        put_text(o, ",");
    if (o->n)
        put_text(o, "\n");
    for (int i = 0; i < o->depth; i++)
        put_text(o, "  ");
    if (key) {
        put_quoted(o, key);
        put_text(o, ": ");
    }
    o->comma = 1;
}

void js_out_open(struct js_out *o, const char *key, char bracket)
{
    begin(o, key);
    put(o, &bracket, 1);
    o->depth++;
    o->comma = 0;
}

void js_out_close(struct js_out *o, char bracket)
{
    int empty = !o->comma;
    o->depth--;
    o->comma = 0;
    if (!empty)
        begin(o, NULL);
    o->comma = 1;
    put(o, &bracket, 1);
    if (o->depth == 0)
        put_text(o, "\n");
}

static void put_number(struct js_out *o, const char *fmt, ...) PRINTF(2, 3);
static void put_number(struct js_out *o, const char *fmt, ...)
{
    char text[40];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_text(o, text);
}

void js_out_text(struct js_out *o, const char *key, const char *value)
{
    begin(o, key);
    if (value)
        put_quoted(o, value);
    else
        put_text(o, "null");
}

void js_out_bool(struct js_out *o, const char *key, int value)
{
    begin(o, key);
    put_text(o, value ? "true" : "false");
}

static void put_real(struct js_out *o, double value)
{
    char text[32];
    put_text(o, isfinite(value) ? text_real(text, value) : "null");
}

void js_out_int(struct js_out *o, const char *key, int64_t value)
{
    begin(o, key);
    put_number(o, "%" PRId64, value);
}

void js_out_real(struct js_out *o, const char *key, double value)
{
    begin(o, key);
    put_real(o, value);
}

void js_out_ints(struct js_out *o, const char *key, const int64_t *values, int n)
{
    begin(o, key);
    for (int i = 0; i < n; i++)
        put_number(o, "%s%" PRId64, i ? ", " : "[", values[i]);
    put_text(o, n ? "]" : "[]");
}

void js_out_reals(struct js_out *o, const char *key, const double *values, int n)
{
    begin(o, key);
    for (int i = 0; i < n; i++) {
        put_text(o, i ? ", " : "[");
        put_real(o, values[i]);
    }
    put_text(o, n ? "]" : "[]");
}

int js_out_take(char **text, struct js_out *o, struct error *e)
{
    int failed = o->failed;
    if (failed) {
        if (e)
            *e = o->why;
        mem_free(o->text);
        *text = NULL;
    } else {
        *text = o->text;
    }
    memset(o, 0, sizeof *o);
    return failed ? -1 : 0;
}

int js_out_write(struct js_out *o, const char *path, mode_t mode, struct error *e)
{
    char *text = NULL;
    int result = js_out_take(&text, o, e);
    if (result == 0)
        result = path ? io_write_all(path, mode, text, strlen(text), e) : -1;
    mem_free(text);
    return result;
}
