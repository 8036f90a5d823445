/* config_print.c - a config on its way out: as help, as a config file, as JSON.
 *
 * All three walk the table of options.c. What --print-config prints is a config file that gives the
 * same config when read back; options that are not set are printed as comments.
 */
#include <limits.h>
#include <string.h>

#include "cli/options.h"

/* ---- config file ------------------------------------------------------------------------- */

static int needs_quotes(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == '#' || text[i] == '"' || text[i] == '\\')
            return 1;
    return n == 0 || text[0] == ' ' || text[n - 1] == ' ';
}

static void print_value(const char *text, FILE *to)
{
    if (!needs_quotes(text)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (const char *s = text; *s; s++) {
        if ((unsigned char)*s < 0x20)
            fprintf(to, "\\x%02x", (unsigned char)*s);
        else
            fprintf(to, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    }
    fputc('"', to);
}

void config_print(const struct config *c, FILE *to)
{
    char text[PATH_MAX];
    for (const struct option_row *o = options; o < options + n_options; o++) {
        if (!(o->verbs & 1u << c->verb) || o->traits & OPTION_ARGV_ONLY)
            continue;
        int is_set = option_text(text, sizeof text, o, c);
        fprintf(to, "%s%s =%s", is_set ? "" : "# ", o->name, is_set ? " " : "");
        if (is_set)
            print_value(text, to);
        fputc('\n', to);
    }
}

/* ---- help -------------------------------------------------------------------------------- */

enum { HELP_COLUMN = 30, HELP_WIDTH = 80 };

/* Words of `text` from HELP_COLUMN on, broken before HELP_WIDTH; the cursor is at `column`. */
static void print_wrapped(const char *text, int column, FILE *to)
{
    if (column >= HELP_COLUMN) {
        fputc('\n', to);
        column = 0;
    }
    fprintf(to, "%*s", HELP_COLUMN - column, "");
    column = HELP_COLUMN;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            fprintf(to, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += fprintf(to, "%s%.*s", column > HELP_COLUMN ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', to);
}

/* "a|b|c" as words that can be wrapped. */
static void spread_choices(char *out, size_t cap, const char *choices)
{
    size_t n = 0;
    for (const char *s = choices; *s && n + 3 < cap; s++) {
        out[n++] = *s == '|' ? ',' : *s;
        if (*s == '|')
            out[n++] = ' ';
    }
    out[n] = '\0';
}

static void print_option_help(const struct option_row *o, FILE *to)
{
    char choices[200] = "", text[400], letter[8] = "    ";
    const char *meta = o->meta ? o->meta : o->kind == OPTION_FLAG ? "" : "WORD";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    if (o->choices)
        spread_choices(choices, sizeof choices, o->choices);
    int column = fprintf(to, "  %s--%s%s%s", letter, o->name, *meta ? " " : "", meta);
    const char *usual = o->value;
    if (o->kind == OPTION_FLAG)
        usual = usual && strcmp(usual, "true") == 0 ? "on" : NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s%s", o->help, *choices ? ": " : "", choices, usual ? " [" : "",
             usual ? usual : "", usual ? "]" : "");
    print_wrapped(text, column, to);
}

void config_print_help(enum verb verb, FILE *to)
{
    const struct verb_row *v = &verbs[verb];
    fprintf(to, "falx %s - %s\n\nusage: falx %s [options]%s%s\n   eg: falx %s\n", v->name, v->about, v->name,
            *v->args ? " " : "", v->args, v->example);
    int group = -1;
    for (const struct option_row *o = options; o < options + n_options; o++) {
        if (!(o->verbs & 1u << verb))
            continue;
        if ((int)o->group != group)
            fprintf(to, "\n%s\n", group_titles[o->group]);
        group = (int)o->group;
        print_option_help(o, to);
    }
    fprintf(to, "\nValues in [brackets] are the defaults. --no-NAME switches a flag off.\n");
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void value_to_json(struct js_out *out, const struct option_row *o, const struct config *c,
                          const char *text)
{
    const void *at = (const char *)c + o->offset;
    const int64_t *v = at;
    if (o->kind == OPTION_FLAG && *(const int *)at < 0)
        js_out_text(out, o->name, "auto");
    else if (o->kind == OPTION_FLAG)
        js_out_bool(out, o->name, *(const int *)at);
    else if (o->kind == OPTION_REAL)
        js_out_real(out, o->name, *(const double *)at);
    else if (o->traits & OPTION_AUTO && *v == 0)
        js_out_text(out, o->name, "auto");
    else if (o->kind == OPTION_INT || o->kind == OPTION_SEED)
        js_out_int(out, o->name, *v);
    else if (o->kind == OPTION_INT3)
        js_out_ints(out, o->name, v, 3);
    else
        js_out_text(out, o->name, text);
}

void config_to_json(struct js_out *out, const struct config *c)
{
    char text[PATH_MAX];
    js_out_text(out, "falx", FALX_VERSION);
    js_out_text(out, "verb", verbs[c->verb].name);
    for (const struct option_row *o = options; o < options + n_options; o++)
        if (o->verbs & 1u << c->verb && !(o->traits & OPTION_ARGV_ONLY) &&
            option_text(text, sizeof text, o, c))
            value_to_json(out, o, c, text);
    js_out_open(out, "arguments", '[');
    for (int i = 0; i < c->n_args; i++)
        js_out_text(out, NULL, c->args[i]);
    js_out_close(out, ']');
}
