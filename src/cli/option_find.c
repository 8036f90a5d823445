/* option_find.c - looking options up by name, and their values as text. The table is in options.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

/* ---- looking things up ------------------------------------------------------------------- */

/* '_' and '-' are one character in names. */
static int same_name(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((a[i] == '_' ? '-' : a[i]) != b[i])
            return 0;
    return 1;
}

/* Number of the word in "a|b|c" that equals the first n bytes of text, or -1. */
static int word_in_list(const char *list, const char *text, size_t n,
                        int (*same)(const char *, const char *, size_t))
{
    int number = 0;
    for (const char *w = list; w; number++) {
        size_t length = strcspn(w, "|");
        if (length == n && same(text, w, n))
            return number;
        w = w[length] ? w + length + 1 : NULL;
    }
    return -1;
}

static int same_bytes(const char *a, const char *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

int choice_find(const char *choices, const char *text, size_t n)
{
    return word_in_list(choices, text, n, same_bytes);
}

const struct option_row *option_find(const char *name, size_t n, enum verb verb)
{
    const struct option_row *other = NULL;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        int matches = (strlen(o->name) == n && same_name(name, o->name, n)) ||
                      word_in_list(o->aliases, name, n, same_name) >= 0;
        if (matches && o->verbs & 1u << verb)
            return o;
        if (matches && !other)
            other = o;
    }
    return other;
}

const struct option_row *option_by_letter(char letter, enum verb verb)
{
    for (const struct option_row *o = options; o < options + n_options; o++)
        if (o->letter == letter && o->verbs & 1u << verb)
            return o;
    return NULL;
}

/* Two slips, or a third of a long word, still count as the same word. */
int word_is_near(const char *misspelt, const char *word, int *distance)
{
    int length = (int)strlen(word), allowed = length / 3 > 2 ? length / 3 : 2;
    *distance = text_distance(misspelt, word);
    return *distance <= allowed && *distance < length;
}

const char *option_nearest(const char *name, enum verb verb)
{
    const char *best = NULL;
    int best_distance = 0, distance;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        if (!(o->verbs & 1u << verb) || !word_is_near(name, o->name, &distance))
            continue;
        if (!best || distance < best_distance) {
            best = o->name;
            best_distance = distance;
        }
    }
    return best;
}

/* ---- values as text ---------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same number; no exponent for what a person would write out. */
static void real_text(char *out, size_t cap, double v)
{
    double back;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, cap, "%.*g", digits, v);
        int plain = !strchr(out, 'e') || v >= 1e6 || v < 1e-4;
        if (plain && parse_real(&back, out) == 0 && back == v)
            return;
    }
}

static int int_text(char *out, size_t cap, const struct option_row *o, const int64_t *v)
{
    if (o->kind == OPTION_SEED && *v < 0)
        snprintf(out, cap, "random");
    else if (o->traits & OPTION_AUTO && *v == 0)
        snprintf(out, cap, "auto");
    else if (o->kind == OPTION_INT3)
        snprintf(out, cap, "%" PRId64 ",%" PRId64 ",%" PRId64, v[0], v[1], v[2]);
    else
        snprintf(out, cap, "%" PRId64, *v);
    return 1;
}

int option_text(char *out, size_t cap, const struct option_row *o, const struct config *c)
{
    const void *at = (const char *)c + o->offset;
    const char *text;
    switch (o->kind) {
    case OPTION_FLAG:
        snprintf(out, cap, "%s", *(const int *)at < 0 ? "auto" : *(const int *)at ? "true" : "false");
        return 1;
    case OPTION_INT:
    case OPTION_SEED:
    case OPTION_INT3: return int_text(out, cap, o, at);
    case OPTION_REAL:
        if (o->traits & OPTION_AUTO && *(const double *)at < 0)
            snprintf(out, cap, "auto");
        else
            real_text(out, cap, *(const double *)at);
        return 1;
    case OPTION_CHOICE:
        if (*(const int *)at < 0)
            snprintf(out, cap, "auto");
        else
            text_choice(out, cap, o->choices, *(const int *)at);
        return 1;
    case OPTION_TEXT:
    case OPTION_PATH:
    case OPTION_COUNT_OR_PATH: break;
    }
    text = *(char *const *)at;
    snprintf(out, cap, "%s", text ? text : "");
    return text != NULL;
}

char *option_allowed(char *out, size_t cap, const struct option_row *o)
{
    char range[100], multiple[40] = "";
    const char *kind = o->kind == OPTION_REAL ? "a number" : "a whole number";
    if (o->kind == OPTION_REAL)
        snprintf(range, sizeof range, "%s %g%s%g", kind, o->min,
                 o->traits & OPTION_MAX_OPEN ? " to below " : "..", o->max);
    else
        snprintf(range, sizeof range, "%s %.0f..%.0f", kind, o->min, o->max);
    if (o->multiple)
        snprintf(multiple, sizeof multiple, ", a multiple of %" PRId64, o->multiple);
    if (o->kind == OPTION_FLAG)
        snprintf(out, cap, o->traits & OPTION_AUTO ? "true|false|auto" : "true|false");
    else if (o->choices)
        snprintf(out, cap, "%s%s", o->choices,
                 o->kind == OPTION_CHOICE && o->traits & OPTION_AUTO ? "|auto" : "");
    else if (o->kind == OPTION_TEXT || o->kind == OPTION_PATH)
        snprintf(out, cap, "text");
    else
        snprintf(out, cap, "%s%s%s%s", range, multiple, o->kind == OPTION_INT3 ? ", once or X,Y,Z" : "",
                 o->kind == OPTION_SEED            ? ", or random"
                 : o->traits & OPTION_AUTO         ? ", or auto"
                 : o->kind == OPTION_COUNT_OR_PATH ? ", or a file"
                                                   : "");
    return out;
}
