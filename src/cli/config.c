/* config.c - from words to a checked struct config.
 *
 * Four sources write the same fields, the strongest last:
 *
 *     default (options.c)  ->  preset (presets.c)  ->  config file (--config)  ->  command line
 *
 * If neither names a preset or a method, `falx train` takes preset auto.
 *
 * All values pass through option_set(), so a default, a line and a flag obey the same rules. The
 * file is read between the other two, which is why the command line is first only scanned:
 * scan_word() splits it into (option, value) pairs and positional arguments without setting
 * anything.
 *
 * Paths are taken literally: nothing is expanded, and nothing here is ever given to a shell.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/io.h"
#include "cli/options.h"
#include "train/method.h"

/* Strings of a config hang in one list. */
struct owned {
    struct owned *next;
    char text[];
};

static const char *own(struct config *c, const char *text, struct error *e)
{
    size_t n = strlen(text) + 1;
    struct owned *o = mem_alloc(e, sizeof *o + n, 1);
    if (!o)
        return NULL;
    memcpy(o->text, text, n);
    o->next = c->owned;
    c->owned = o;
    return o->text;
}

void config_free(struct config *c)
{
    for (struct owned *o = c->owned, *next; o; o = next) {
        next = o->next;
        mem_free(o);
    }
    for (int i = 0; i < c->n_given; i++)
        mem_free(c->given[i]);
    mem_free(c->given);
    mem_free(c->args);
    memset(c, 0, sizeof *c);
}

/* ---- one value --------------------------------------------------------------------------- */

static int refuse(const struct option_row *o, const char *text, const char *id, struct error *e)
{
    char allowed[200];
    option_allowed(allowed, sizeof allowed, o);
    return fail(e, ERR_CONFIG, id, "\"%.60s\", allowed %s", text, allowed);
}

/* A number gone wrong is C02; a word where a number belongs has the wrong type, C01. */
static const char *number_fault(const char *text)
{
    int number = strchr("+-.0123456789", *text) || strncasecmp(text, "nan", 3) == 0 ||
                 strncasecmp(text, "inf", 3) == 0;
    return *text && number ? "C02" : "C01";
}

static const char *range_fault(const struct option_row *o)
{
    return o->id ? o->id : "C02";
}

/* Reads one whole number; returns the id of what is wrong with it, or NULL. */
static const char *int_fault(int64_t *out, const struct option_row *o, const char *text)
{
    int64_t v;
    if (parse_int(&v, text) < 0)
        return number_fault(text);
    if ((double)v < o->min || (double)v > o->max || (o->multiple && v % o->multiple != 0))
        return range_fault(o);
    *out = v;
    return NULL;
}

static int set_int(int64_t *out, const struct option_row *o, const char *text, struct error *e)
{
    const char *fault = NULL;
    if (o->traits & OPTION_AUTO && strcmp(text, "auto") == 0)
        *out = 0;
    else if (o->kind == OPTION_SEED && strcmp(text, "random") == 0)
        *out = -1;
    else
        fault = int_fault(out, o, text);
    return fault ? refuse(o, text, fault, e) : 0;
}

static int set_real(double *out, const struct option_row *o, const char *text, struct error *e)
{
    double v;
    if (o->traits & OPTION_AUTO && strcmp(text, "auto") == 0) {
        *out = -1;
        return 0;
    }
    if (parse_real(&v, text) < 0)
        return refuse(o, text, number_fault(text), e);
    if (v < o->min || v > o->max || (o->traits & OPTION_MAX_OPEN && !(v < o->max)))
        return refuse(o, text, range_fault(o), e);
    *out = v;
    return 0;
}

/* The text without the blanks around it, cut to fit word[cap]. */
static void trimmed(char *word, size_t cap, const char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n && strchr(" \t", text[n - 1]))
        n--;
    snprintf(word, cap, "%.*s", (int)(n < cap ? n : cap), text);
}

/* "X" or "X,Y,Z" */
static int set_int3(int64_t out[3], const struct option_row *o, const char *text, struct error *e)
{
    int64_t v[3] = {0, 0, 0};
    int n = 0, is_auto = o->traits & OPTION_AUTO && strcmp(text, "auto") == 0;
    for (const char *at = is_auto ? NULL : text; at; n++) {
        char part[PATH_MAX], word[32];
        text_next(part, sizeof part, &at);
        trimmed(word, sizeof word, part);
        const char *fault = n < 3 ? int_fault(&v[n], o, word) : number_fault(text);
        if (fault)
            return refuse(o, text, fault, e);
    }
    if (n == 2)
        return refuse(o, text, number_fault(text), e);
    for (int i = 0; i < 3; i++)
        out[i] = v[n == 3 ? i : 0];
    return 0;
}

static int set_text(struct config *c, const char **out, const struct option_row *o, const char *text,
                    struct error *e)
{
    size_t n = strlen(text);
    if (n == 0 || n >= PATH_MAX)
        return fail(e, ERR_CONFIG, "C04", "%zu bytes, allowed 1..%d", n, PATH_MAX - 1);
    if (o->choices && choice_find(o->choices, text, n) < 0)
        return refuse(o, text, "C01", e);
    int64_t count;
    double real; /* 1.5 is a wrong count, not a file */
    int is_count = o->kind == OPTION_COUNT_OR_PATH &&
                   (strspn(text, "+-0123456789") == n || parse_real(&real, text) == 0);
    const char *fault = is_count ? int_fault(&count, o, text) : NULL;
    if (fault)
        return refuse(o, text, fault, e);
    const char *copy = own(c, text, e);
    if (!copy)
        return -1;
    *out = copy;
    return 0;
}

static int set_word(int *out, const struct option_row *o, const char *text, struct error *e)
{
    if (o->traits & OPTION_AUTO && strcmp(text, "auto") == 0) {
        *out = -1;
        return 0;
    }
    int number = o->kind == OPTION_FLAG ? choice_find("false|true|no|yes", text, strlen(text))
                                        : choice_find(o->choices, text, strlen(text));
    if (number < 0 && o->old_choices)
        number = choice_find(o->old_choices, text, strlen(text));
    if (number < 0)
        return refuse(o, text, "C01", e);
    *out = o->kind == OPTION_FLAG ? number & 1 : number;
    return 0;
}

int option_set(struct config *c, const struct option_row *o, const char *text, struct error *e)
{
    void *at = (char *)c + o->offset;
    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_CHOICE: return set_word(at, o, text, e);
    case OPTION_INT:
    case OPTION_SEED: return set_int(at, o, text, e);
    case OPTION_REAL: return set_real(at, o, text, e);
    case OPTION_INT3: return set_int3(at, o, text, e);
    case OPTION_TEXT:
    case OPTION_PATH:
    case OPTION_COUNT_OR_PATH: break;
    }
    return set_text(c, at, o, text, e);
}

/* Rows of other verbs first: where a name has several rows, the verb's own default stays. */
static int set_defaults(struct config *c, struct error *e)
{
    for (int own_rows = 0; own_rows <= 1; own_rows++)
        for (const struct option_row *o = options; o < options + n_options; o++) {
            int is_own = (o->verbs >> c->verb & 1u) != 0;
            if (is_own == own_rows && o->value && option_set(c, o, o->value, e) < 0)
                return fail_in(e, o->name);
        }
    return 0;
}

/* ---- config file ------------------------------------------------------------------------- */

static int apply_file(struct config *c, const char *path, struct error *e)
{
    char *text;
    if (io_read_text(&text, NULL, path, CONFIG_BYTES_MAX, e) < 0) {
        if (e && e->code == ERR_DATA)
            e->code = ERR_CONFIG; /* not a regular file, too long, NUL bytes */
        return -1;
    }
    int result = config_apply_text(c, text, path, e);
    mem_free(text);
    return result;
}

/* ---- command line ------------------------------------------------------------------------ */

struct given {
    const struct option_row *option;
    const char *value;
};

struct scan {
    enum verb verb;
    char **argv;
    int argc, at;
    struct given *given; /* in order; the last one wins */
    int n_given;
    char **args; /* positional */
    int n_args;
};

static int unknown_option(const struct scan *s, const struct option_row *elsewhere, const char *name,
                          size_t n, struct error *e)
{
    char word[64], of[160] = "";
    snprintf(word, sizeof word, "%.*s", (int)(n < 60 ? n : 60), name);
    const char *nearest = option_nearest(word, s->verb), *verb = verbs[s->verb].name;
    if (!elsewhere)
        return fail(e, ERR_CONFIG, "C01", "unknown option of %s%s%s%s", verb,
                    nearest ? "; did you mean --" : "", nearest ? nearest : "", nearest ? "?" : "");
    for (int v = 0; v < VERB_COUNT; v++)
        if (elsewhere->verbs & 1u << v)
            snprintf(of + strlen(of), sizeof of - strlen(of), "%s%s", *of ? ", " : "", verbs[v].name);
    return fail(e, ERR_CONFIG, "C01", "not an option of %s, only of %s", verb, of);
}

/* A following word that is no option: "-" and negative numbers are values. */
static int is_value(const char *word)
{
    return word[0] != '-' || word[1] == '\0' || strchr(".0123456789", word[1]);
}

static int take(struct scan *s, const struct option_row *o, const char *value, int negated, struct error *e)
{
    if (o->kind == OPTION_FLAG && !value) {
        value = negated ? "false" : "true";
    } else if (!value) {
        if (s->at + 1 >= s->argc || !is_value(s->argv[s->at + 1]))
            return fail(e, ERR_CONFIG, "C01", "needs a value: --%s=%s", o->name,
                        o->meta ? o->meta : o->choices);
        value = s->argv[++s->at];
    }
    s->given[s->n_given++] = (struct given){o, value};
    return 0;
}

static int scan_long(struct scan *s, const char *name, struct error *e)
{
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    const struct option_row *o = option_find(name, n, s->verb);
    int negated = 0;
    if (!o && !value && (text_starts_with(name, "no-") || text_starts_with(name, "no_"))) {
        const struct option_row *flag = option_find(name + 3, n - 3, s->verb);
        negated = flag && flag->kind == OPTION_FLAG;
        o = negated ? flag : NULL;
    }
    if (!o || !(o->verbs & 1u << s->verb))
        return unknown_option(s, o, name, n, e);
    return take(s, o, value, negated, e);
}

/* -o FILE or -oFILE */
static int scan_short(struct scan *s, const char *word, struct error *e)
{
    const struct option_row *o = option_by_letter(word[1], s->verb);
    if (!o || (o->kind == OPTION_FLAG && word[2]))
        return unknown_option(s, NULL, word + 1, strlen(word + 1), e);
    return take(s, o, word[2] ? word + 2 : NULL, 0, e);
}

static int scan_word(struct scan *s, int *options_ended, struct error *e)
{
    char *word = s->argv[s->at], shown[64];
    int result = 0;
    if (!*options_ended && strcmp(word, "--") == 0) {
        *options_ended = 1;
    } else if (*options_ended || word[0] != '-' || word[1] == '\0') {
        size_t n = strlen(word);
        s->args[s->n_args++] = word;
        if (n == 0 || n >= PATH_MAX)
            result = fail(e, ERR_CONFIG, "C04", "%zu bytes, allowed 1..%d", n, PATH_MAX - 1);
    } else {
        result = word[1] == '-' ? scan_long(s, word + 2, e) : scan_short(s, word, e);
    }
    if (result < 0) {
        int n = (int)(*options_ended || word[0] != '-' ? strlen(word) : strcspn(word, "="));
        snprintf(shown, sizeof shown, "%.*s", n < 60 ? n : 60, word);
        return fail_in(e, n ? shown : "argument");
    }
    return 0;
}

/* Sets the options of which `traits & OPTION_ARGV_ONLY` is as given. */
static int apply_given(struct config *c, const struct scan *s, unsigned argv_only, struct error *e)
{
    char name[64];
    for (int i = 0; i < s->n_given; i++) {
        const struct given *g = &s->given[i];
        if ((g->option->traits & OPTION_ARGV_ONLY) != argv_only)
            continue;
        snprintf(name, sizeof name, "--%s", g->option->name);
        if (option_set(c, g->option, g->value, e) < 0)
            return fail_in(e, name);
    }
    return 0;
}

/* The options as words that another call of config_parse() understands. */
static int keep_given(struct config *c, const struct scan *s, struct error *e)
{
    if (!(c->given = mem_alloc(e, (size_t)s->n_given + 1, sizeof *c->given)))
        return -1;
    for (; c->n_given < s->n_given; c->n_given++) {
        const struct given *g = &s->given[c->n_given];
        if (!(c->given[c->n_given] = mem_format(e, "--%s=%s", g->option->name, g->value)))
            return -1;
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------- */

static int draw_seed(int64_t *out, struct error *e)
{
    uint32_t drawn; /* 32 bits: short enough to be typed again */
    ssize_t got;
    do
        got = getrandom(&drawn, sizeof drawn, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof drawn) {
        fail_errno(e, got < 0 ? errno : EIO, "no random number");
        return fail_in(e, "--seed");
    }
    *out = drawn;
    return 0;
}

int part_parse(int64_t *i, int64_t *n, const char *part, struct error *e)
{
    char first[24];
    size_t slash = part ? strcspn(part, "/") : 0;
    *i = *n = 1;
    if (!part)
        return 0;
    snprintf(first, sizeof first, "%.*s", (int)(slash < sizeof first ? slash : 0), part);
    if (part[slash] && parse_int(i, first) == 0 && parse_int(n, part + slash + 1) == 0 && *i >= 1 && *i <= *n)
        return 0;
    fail(e, ERR_CONFIG, "C02", "\"%.40s\", allowed I/N with I in 1..N", part);
    return fail_in(e, "--part");
}

int config_check_stride(const struct settings *s, struct error *e)
{
    for (int a = 0; a < 3; a++)
        if (s->patch[a] && s->stride[a] > s->patch[a])
            return fail(e, ERR_CONFIG, "C03",
                        "--stride: %lld, allowed 1..%lld (the patch): windows must touch",
                        (long long)s->stride[a], (long long)s->patch[a]);
    return 0;
}

/* What spans several options, once all are set. */
static int finish(struct config *c, struct error *e)
{
    const struct verb_row *v = &verbs[c->verb];
    if (c->set.seed < 0) {
        c->seed_drawn = 1;
        if (draw_seed(&c->set.seed, e) < 0)
            return -1;
    }
    if (c->set.labeled_batch == 0 && strcmp(c->set.method, "supervised") == 0)
        c->set.labeled_batch = c->set.batch; /* nothing else would be looked at */
    if (c->set.labeled_batch == 0)
        c->set.labeled_batch = c->set.batch > 1 ? c->set.batch / 2 : 1;
    if (c->set.labeled_batch > c->set.batch) {
        fail(e, ERR_CONFIG, "C03", "%lld, allowed 1..%lld (--batch)", (long long)c->set.labeled_batch,
             (long long)c->set.batch);
        return fail_in(e, "--labeled-batch");
    }
    int recorded = c->verb == VERB_TRAIN && c->resume; /* steps and time limit are those of the run */
    if (c->set.steps == 0 && !c->max_time && !recorded)
        c->set.steps = CONFIG_STEPS;
    if (c->max_time && c->time_plan) {
        fail(e, ERR_CONFIG, "C01", "given with --max-time, expected one of them");
        return fail_in(e, "--time-plan");
    }
    const struct method *method = method_find(c->set.method);
    if (c->set.consistency < 0)
        c->set.consistency = method ? method->consistency : 0;
    if (c->print_config || c->show_limits)
        return 0;
    char text[PATH_MAX];
    for (const struct option_row *o = options; o < options + n_options; o++)
        if (o->traits & OPTION_NEEDED && o->verbs & 1u << c->verb && !option_text(text, sizeof text, o, c))
            return fail(e, ERR_CONFIG, "C01", "%s: --%s %s is missing", v->name, o->name, o->meta);
    if (c->n_args < v->min_args || c->n_args > v->max_args)
        return fail(e, ERR_CONFIG, "C01", "%s: %d given, expected %s; see falx %s --help", v->name, c->n_args,
                    *v->args ? v->args : "no argument", v->name);
    if (c->verb != VERB_TRAIN)
        return 0;
    if (config_check_stride(&c->set, e) < 0)
        return -1;
    return method && method->check ? method->check(&c->set, e) : 0;
}

/* A training without --preset and --method has preset auto and, unless its steps or its time are given, a
 * time limit. unnamed: the default of --method. */
static int choose_preset(struct config *c, const char *unnamed, struct error *e)
{
    if (c->verb != VERB_TRAIN || c->train_preset || c->set.method != unnamed)
        return 0;
    c->preset_chosen = 1;
    c->time_chosen = c->set.steps == 0 && !c->max_time && !c->time_plan;
    if (c->time_chosen && !(c->max_time = (char *)own(c, CONFIG_TIME, e)))
        return -1;
    return (c->train_preset = (char *)own(c, "auto", e)) ? 0 : -1;
}

/* File, then command line. */
static int apply_all(struct config *c, const struct scan *s, struct error *e)
{
    if (apply_given(c, s, OPTION_ARGV_ONLY, e) < 0)
        return -1;
    if (c->config_file && apply_file(c, c->config_file, e) < 0)
        return -1;
    return apply_given(c, s, 0, e);
}

static int set_method(struct config *c, const char *method, struct error *e)
{
    return option_set(c, option_find("method", strlen("method"), VERB_TRAIN), method, e);
}

/* Starts again from the defaults, with the preset below what the user set. Which of its texts count depends
 * on the method, and that on the preset and on the user. */
static int apply_preset(struct config *c, const struct scan *s, const struct preset *p, struct error *e)
{
    if (set_method(c, p->method, e) < 0 || apply_all(c, s, e) < 0)
        return -1;
    const char *method = c->set.method; /* stays with the config */
    const char *published = p->published ? method_find(method)->published : NULL;
    if (!p->published && !*p->protocol && *p->own && strcmp(method, p->method) != 0)
        return fail(e, ERR_CONFIG, "C01", "--preset %s is of method %s alone, found --method %s", p->name,
                    p->method, method);
    if (set_defaults(c, e) < 0 || set_method(c, method, e) < 0 ||
        (published && config_apply_text(c, published, p->name, e) < 0) ||
        config_apply_text(c, p->protocol, p->name, e) < 0)
        return -1;
    if (strcmp(method, p->method) == 0 && config_apply_text(c, p->own, p->name, e) < 0)
        return -1;
    return apply_all(c, s, e);
}

int config_parse(struct config *out, enum verb verb, int argc, char **argv, struct error *e)
{
    memset(out, 0, sizeof *out);
    out->verb = verb;
    struct scan s = {.verb = verb, .argv = argv, .argc = argc, .at = 1};
    int options_ended = 0, result = -1;
    s.given = mem_alloc(e, (size_t)argc + 1, sizeof *s.given);
    s.args = mem_alloc(e, (size_t)argc + 1, sizeof *s.args);
    if (!s.given || !s.args)
        goto out;
    for (; s.at < argc; s.at++)
        if (scan_word(&s, &options_ended, e) < 0)
            goto out;
    if (set_defaults(out, e) < 0 || apply_given(out, &s, OPTION_ARGV_ONLY, e) < 0 ||
        keep_given(out, &s, e) < 0)
        goto out;
    out->args = s.args;
    out->n_args = s.n_args;
    s.args = NULL;
    if (out->help) { /* help is given whatever else is wrong */
        result = 0;
        goto out;
    }
    const char *unnamed = out->set.method;
    if (apply_all(out, &s, e) < 0 || choose_preset(out, unnamed, e) < 0)
        goto out;
    if (out->train_preset && strcmp(out->train_preset, "none") != 0 &&
        apply_preset(out, &s, preset_find(out->train_preset), e) < 0)
        goto out;
    if (finish(out, e) < 0)
        goto out;
    result = 0;
out:
    mem_free(s.given);
    mem_free(s.args);
    if (result < 0)
        config_free(out);
    return result;
}
