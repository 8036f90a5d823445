/* text.c - escaping, paths and strict numbers: the small change of base.h. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

/* Length of the UTF-8 sequence at s that is safe to show, or 0: not UTF-8, or a character that could
 * move the cursor or the reader (C0 and C1 controls, DEL, bidirectional overrides and isolates). */
static size_t shown_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7F;
    size_t n = s[0] >= 0xC2 && s[0] < 0xE0   ? 2
               : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
               : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                             : 0;
    if (n == 0)
        return 0;
    uint32_t code = s[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3F);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int odd = code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || code < 0xA0 ||
              (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0x2028 ||
              code == 0x2029 || code == 0x200E || code == 0x200F;
    return odd ? 0 : n;
}

char *text_escape(char *out, size_t cap, const char *in)
{
    const unsigned char *s = (const unsigned char *)in;
    size_t used = 0;
    while (*s) {
        size_t n = shown_length(s), wanted = n ? n : 4;
        if (used + wanted >= cap)
            break;
        if (n)
            memcpy(out + used, s, n);
        else
            snprintf(out + used, cap - used, "\\x%02X", *s);
        used += wanted;
        s += n ? n : 1;
    }
    if (cap)
        out[used] = '\0';
    return out;
}

int text_ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && memcmp(text + n - m, tail, m) == 0;
}

int text_ends_with_nocase(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcasecmp(text + n - m, tail) == 0;
}

int text_starts_with(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

char *text_choice(char *out, size_t cap, const char *choices, int number)
{
    const char *w = choices;
    for (int i = 0; i < number && w; i++)
        w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL;
    if (w && number >= 0)
        snprintf(out, cap, "%.*s", (int)strcspn(w, "|"), w);
    else
        snprintf(out, cap, "%d", number);
    return out;
}

size_t text_next(char *out, size_t cap, const char **at)
{
    size_t n = strcspn(*at, ",");
    snprintf(out, cap, "%.*s", (int)n, *at);
    *at = (*at)[n] ? *at + n + 1 : NULL;
    return n;
}

int text_distance(const char *a, const char *b)
{
    int row[65], n = (int)strnlen(a, 64), m = (int)strnlen(b, 64);
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *path_folder(struct error *e, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_string(e, ".");
    int n = slash == path ? 1 : (int)(slash - path);
    return mem_format(e, "%.*s", n, path);
}

char *path_join(struct error *e, const char *folder, const char *name)
{
    const char *slash = text_ends_with(folder, "/") || !*folder ? "" : "/";
    return mem_format(e, "%s%s%s", folder, slash, name);
}

int path_is_plain(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

int parse_int(int64_t *out, const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return -1;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno)
        return -1;
    *out = v;
    return 0;
}

/* The C locale, made once: a program that embeds falx may run with a decimal comma. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int parse_real(double *out, const char *text)
{
    pthread_once(&c_locale_once, make_c_locale);
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return -1; /* leaves no room for hex, inf, nan or blanks */
    char *end;
    double v = c_locale ? strtod_l(text, &end, c_locale) : strtod(text, &end);
    if (*end || !isfinite(v))
        return -1;
    *out = v;
    return 0;
}

char *text_real(char out[32], double value)
{
    pthread_once(&c_locale_once, make_c_locale);
    locale_t callers = c_locale ? uselocale(c_locale) : (locale_t)0;
    snprintf(out, 32, "%.17g", value);
    if (callers)
        uselocale(callers);
    return out;
}

uint64_t hash_bytes(const void *bytes, size_t n, uint64_t start)
{
    const unsigned char *p = bytes;
    uint64_t h = start ^ 0xCBF29CE484222325u, word;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x100000001B3u;
        h ^= h >> 32; /* multiplication only carries upwards */
    }
    word = n;
    memcpy(&word, p, n);
    h = (h ^ word ^ (uint64_t)n << 56) * 0x100000001B3u;
    return h ^ h >> 29;
}
