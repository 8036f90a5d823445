/* config_file.c - the text of a config file, line by line into a config.
 *
 *     # comment
 *     batch = 4          # '#' starts a comment at the start of a line or after a blank
 *     output = "a # b"   # quotes: blanks, '#' and odd bytes are kept; \" \\ \xNN are known
 *
 * Keys are the long names of the options. There are no sections and no includes. A line that is
 * wrong is refused with file:line:column, counted in bytes from 1; so is a key that was set before.
 */
#include <limits.h>
#include <string.h>

#include "cli/options.h"

struct line {
    const char *path, *start, *at, *end; /* [start, end) is the line without its end */
    int number;
};

static int fail_at(const struct line *l, const char *at, struct error *e)
{
    char where[PATH_MAX + 32];
    snprintf(where, sizeof where, "%s:%d:%td", l->path, l->number, at - l->start + 1);
    return fail_in(e, where);
}

static void skip_blanks(struct line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t'))
        l->at++;
}

static int hex_digit(char ch)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *d = memchr(digits, ch, sizeof digits - 1);
    return d ? (int)((d - digits) & 15) : -1;
}

/* One character of a quoted value; moves past it. -1: unknown escape. */
static int quoted_char(struct line *l)
{
    if (*l->at != '\\')
        return (unsigned char)*l->at++;
    const char *s = l->at + 1;
    if (s < l->end && (*s == '"' || *s == '\\')) {
        l->at += 2;
        return *s;
    }
    if (l->end - s < 3 || *s != 'x' || hex_digit(s[1]) < 0 || hex_digit(s[2]) < 0)
        return -1;
    int value = hex_digit(s[1]) * 16 + hex_digit(s[2]);
    l->at += 4;
    return value ? value : -1; /* a NUL would end the text early */
}

static int read_quoted(char *out, struct line *l, struct error *e)
{
    const char *open = l->at++;
    while (l->at < l->end && *l->at != '"') {
        int ch = quoted_char(l);
        if (ch < 0)
            return fail(e, ERR_CONFIG, "C01", "unknown escape, allowed \\\" \\\\ \\xNN");
        *out++ = (char)ch;
    }
    *out = '\0';
    if (l->at == l->end) {
        l->at = open;
        return fail(e, ERR_CONFIG, "C01", "quote is not closed");
    }
    l->at++;
    skip_blanks(l);
    if (l->at < l->end && *l->at != '#')
        return fail(e, ERR_CONFIG, "C01", "text after the closing quote");
    return 0;
}

/* The value at l->at into out, which has room for the whole line. */
static int read_value(char *out, struct line *l, struct error *e)
{
    if (l->at < l->end && *l->at == '"')
        return read_quoted(out, l, e);
    const char *start = l->at, *stop = l->at;
    for (; l->at < l->end && !(*l->at == '#' && (l->at[-1] == ' ' || l->at[-1] == '\t')); l->at++) {
        if ((unsigned char)*l->at < 0x20 && *l->at != '\t')
            return fail(e, ERR_CONFIG, "C01", "control character 0x%02X", (unsigned char)*l->at);
        if (*l->at != ' ' && *l->at != '\t')
            stop = l->at + 1;
    }
    l->at = start;
    memcpy(out, start, (size_t)(stop - start));
    out[stop - start] = '\0';
    return stop > start ? 0 : fail(e, ERR_CONFIG, "C01", "no value");
}

static int unknown_key(const char *key, size_t n, enum verb verb, struct error *e)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(n < 60 ? n : 60), key);
    const char *nearest = option_nearest(word, verb);
    return fail(e, ERR_CONFIG, "C01", "unknown key \"%s\"%s%s%s", word, nearest ? "; did you mean \"" : "",
                nearest ? nearest : "", nearest ? "\"?" : "");
}

/* Reads `key =`. first_line remembers where each option was set, for duplicates. */
static int read_key(const struct option_row **out, struct line *l, const struct config *c,
                    int first_line[OPTION_MAX], struct error *e)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *key = l->at;
    size_t n = 0;
    while (key + n < l->end && memchr(letters, key[n], sizeof letters - 1))
        n++;
    if (n == 7 && memcmp(key, "include", 7) == 0)
        return fail(e, ERR_CONFIG, "C06", "include is not supported, a config file stands alone");
    l->at += n;
    skip_blanks(l);
    if (n == 0 || l->at == l->end || *l->at != '=')
        return fail(e, ERR_CONFIG, "C01", "expected `key = value`");
    l->at = key;
    const struct option_row *o = option_find(key, n, c->verb);
    if (!o)
        return unknown_key(key, n, c->verb, e);
    if (o->traits & OPTION_ARGV_ONLY)
        return fail(e, ERR_CONFIG, o->offset == offsetof(struct config, config_file) ? "C06" : "C01",
                    "%s is for the command line only", o->name);
    int *seen = &first_line[o - options];
    if (*seen)
        return fail(e, ERR_CONFIG, "C01", "duplicate key %s, first set in line %d", o->name, *seen);
    *seen = l->number;
    l->at = memchr(key, '=', (size_t)(l->end - key));
    l->at++;
    skip_blanks(l);
    *out = o;
    return 0;
}

static int apply_line(struct config *c, struct line *l, int first_line[OPTION_MAX], struct error *e)
{
    const struct option_row *o = NULL;
    skip_blanks(l);
    if (l->at == l->end || *l->at == '#')
        return 0;
    if (read_key(&o, l, c, first_line, e) < 0)
        return fail_at(l, l->at, e);
    const char *at = l->at;
    char *value = mem_alloc(e, (size_t)(l->end - l->at) + 1, 1);
    if (!value)
        return -1;
    int result = read_value(value, l, e);
    if (result < 0) {
        fail_at(l, l->at, e);
    } else if ((result = option_set(c, o, value, e)) < 0) {
        fail_in(e, o->name);
        fail_at(l, at, e);
    }
    mem_free(value);
    return result;
}

int config_apply_text(struct config *c, const char *text, const char *path, struct error *e)
{
    int first_line[OPTION_MAX] = {0};
    struct line l = {.path = path, .number = 1};
    for (const char *at = text; *at; l.number++) {
        size_t n = strcspn(at, "\n");
        l.start = l.at = at;
        l.end = at + n - (n && at[n - 1] == '\r');
        if (apply_line(c, &l, first_line, e) < 0)
            return -1;
        at += n + (at[n] == '\n');
    }
    return 0;
}
