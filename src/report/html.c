/* html.c - see html.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "report/html.h"

/* Makes room for n more bytes and a NUL; 0 if there is none. */
static int reserve(struct html *h, size_t n)
{
    size_t want;
    if (h->failed)
        return 0;
    if (size_add(&want, h->n, n) < 0 || size_add(&want, want, 1) < 0) {
        fail(&h->why, ERR_MEMORY, NULL, "the page is larger than memory can be");
        h->failed = 1;
        return 0;
    }
    if (want <= h->room)
        return 1;
    size_t room = want < SIZE_MAX / 2 ? 2 * want : want; /* doubling: the cost a byte stays constant */
    char *more = mem_resize(&h->why, h->text, room, 1);
    h->failed = !more;
    if (more) {
        h->text = more;
        h->room = room;
    }
    return !h->failed;
}

static void put(struct html *h, const char *bytes, size_t n)
{
    if (!reserve(h, n))
        return;
    memcpy(h->text + h->n, bytes, n);
    h->n += n;
    h->text[h->n] = '\0';
}

void html_add(struct html *h, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(h, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(h->text + h->n, (size_t)n + 1, fmt, args);
    va_end(args);
    h->n += (size_t)n;
}

static const char *entity(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

/* The text with control bytes as \xNN (mem_free); NULL if memory is short. */
static char *escaped(struct html *h, const char *text)
{
    size_t bytes = 4 * strlen(text) + 1; /* a byte becomes \xNN at most */
    char *clean = mem_alloc(&h->why, bytes, 1);
    h->failed |= !clean;
    return clean ? text_escape(clean, bytes, text) : NULL;
}

void html_text(struct html *h, const char *text)
{
    char *clean = escaped(h, text);
    for (const char *at = clean; clean && *at;) {
        size_t plain = strcspn(at, "&<>\"'");
        put(h, at, plain);
        at += plain;
        if (*at) {
            const char *name = entity(*at++);
            put(h, name, strlen(name));
        }
    }
    mem_free(clean);
}

void html_csv(struct html *h, const char *text)
{
    char *clean = escaped(h, text);
    if (!clean)
        return;
    int formula = *clean && strchr("=+-@", *clean), quote = formula || strpbrk(clean, ",\"");
    html_add(h, "%s%s", quote ? "\"" : "", formula ? "'" : "");
    for (const char *at = clean; *at; at++)
        html_add(h, *at == '"' ? "\"%c" : "%c", *at);
    html_add(h, "%s", quote ? "\"" : "");
    mem_free(clean);
}

void html_base64(struct html *h, const void *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    size_t want;
    if (size_mul(&want, n / 3 + 1, 4) < 0)
        want = SIZE_MAX; /* which reserve() refuses */
    if (!reserve(h, want))
        return;
    for (size_t i = 0; i < n; i += 3) {
        unsigned left = n - i < 3 ? (unsigned)(n - i) : 3, word = (unsigned)in[i] << 16;
        word |= left > 1 ? (unsigned)in[i + 1] << 8 : 0;
        word |= left > 2 ? in[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++)
            h->text[h->n++] = k <= left ? digit[word >> (18 - 6 * k) & 63] : '=';
    }
    h->text[h->n] = '\0';
}

int html_take(char **text, size_t *n, struct html *h, struct error *e)
{
    int result = h->failed ? -1 : 0;
    if (result == 0 && !h->text && !(h->text = mem_string(&h->why, "")))
        result = -1;
    *text = NULL;
    if (result < 0) {
        if (e)
            *e = h->why;
        html_drop(h);
        return -1;
    }
    *text = h->text;
    if (n)
        *n = h->n;
    memset(h, 0, sizeof *h);
    return 0;
}

int html_write(struct html *h, const char *path, struct error *e)
{
    char *text = NULL;
    size_t n;
    int result = html_take(&text, &n, h, e);
    if (result == 0)
        result = path ? io_write_all(path, 0666, text, n, e) : -1;
    mem_free(text);
    return result;
}

void html_drop(struct html *h)
{
    mem_free(h->text);
    memset(h, 0, sizeof *h);
}
