/* test_config.c - the table of options and its way through argv, file, help, print and JSON.
 *
 * Most tests walk the whole table, so that a new row is tested the moment it is written.
 */
#include "test.h"

#include <jansson.h>
#include <limits.h>

#include "base/io.h"
#include "cli/compare_int.h"
#include "cli/options.h"
#include "train/method.h"
#include "volume/volume.h"

enum { WORDS_MAX = 16 };

/* Parses "falx VERB words..."; the words end with NULL. */
static int parse(struct config *c, struct error *e, enum verb verb, ...)
{
    char *argv[WORDS_MAX] = {(char *)(uintptr_t)verbs[verb].name};
    int argc = 1;
    va_list args;
    va_start(args, verb);
    for (char *w; (w = va_arg(args, char *)) != NULL;)
        argv[argc++] = w;
    va_end(args);
    return config_parse(c, verb, argc, argv, e);
}

/* A config of the verb with all it needs, whatever that is. */
static void parse_plain(struct config *c, enum verb verb)
{
    struct error e = {.code = ERR_NONE};
    const char *plain = verb == VERB_TRAIN ? "--preset=none" : "--print-config";
    if (parse(c, &e, verb, "--print-config", plain, NULL) < 0)
        test_fail("%s: %s", verbs[verb].name, e.text);
}

static void expect_error(const struct error *e, const char *id, const char *fact)
{
    assert_error(*e, ERR_CONFIG, id, fact);
}

static void refuses(const char *words, const char *value, const char *id, const char *fact)
{
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_CHECK, "set", words, value, NULL), -1);
    expect_error(&e, id, fact);
    assert_null(c.owned);
}

static void refuses_text(const char *text, const char *id, const char *fact)
{
    struct config c;
    struct error e = {.code = ERR_NONE};
    parse_plain(&c, VERB_CHECK);
    assert_int_equal(config_apply_text(&c, text, "run.cfg", &e), -1);
    expect_error(&e, id, fact);
    config_free(&c);
}

static char *printed(const struct config *c)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    config_print(c, f);
    fclose(f);
    return text;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void table_is_sound(void **state)
{
    (void)state;
    for (int i = 0; i < n_options; i++) {
        const struct option_row *o = &options[i];
        assert_true(strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(o->name));
        assert_true(o->verbs != 0 && o->verbs < 1u << VERB_COUNT);
        assert_non_null(o->help);
        assert_true(o->offset < sizeof(struct config));
        assert_true(o->kind == OPTION_FLAG || o->meta || o->choices);
        assert_true(o->kind != OPTION_CHOICE || o->choices);
        assert_true(!(o->traits & OPTION_NEEDED) || (o->meta && !o->value));
        if (i > 0)
            assert_true(o->group >= options[i - 1].group);
    }
}

/* Names, aliases and letters of one verb are all different. */
static void names_are_unique(void **state)
{
    (void)state;
    for (int v = 0; v < VERB_COUNT; v++)
        for (const struct option_row *o = options; o < options + n_options; o++) {
            if (!(o->verbs & 1u << v))
                continue;
            assert_ptr_equal(option_find(o->name, strlen(o->name), (enum verb)v), o);
            if (o->letter)
                assert_ptr_equal(option_by_letter(o->letter, (enum verb)v), o);
            for (const char *a = o->aliases; a;) {
                size_t n = strcspn(a, "|");
                assert_ptr_equal(option_find(a, n, (enum verb)v), o);
                a = a[n] ? a + n + 1 : NULL;
            }
        }
}

/* The numbers behind words are those of the enums they stand for; limits are the library's. */
static void words_match_enums(void **state)
{
    (void)state;
    const char *nan = option_find("nan", 3, VERB_CHECK)->choices;
    assert_int_equal(choice_find(nan, "refuse", 6), NAN_REFUSE);
    assert_int_equal(choice_find(nan, "zero", 4), NAN_ZERO);
    assert_int_equal(choice_find(nan, "min", 3), NAN_MIN);
    struct config c;
    parse_plain(&c, VERB_INFO);
    assert_true((uint64_t)c.limit_voxels == volume_default_limits.voxels);
    assert_true((uint64_t)c.limit_bytes == volume_default_limits.bytes);
    config_free(&c);
}

/* Every value of every option, as text, is the same in a and b. */
static void assert_same(const struct config *a, const struct config *b)
{
    char x[PATH_MAX], y[PATH_MAX];
    for (const struct option_row *o = options; o < options + n_options; o++) {
        if (!(o->verbs & 1u << a->verb) || o->traits & OPTION_ARGV_ONLY)
            continue;
        assert_int_equal(option_text(x, sizeof x, o, a), option_text(y, sizeof y, o, b));
        assert_string_equal(x, y);
    }
}

/* A default is what the row says, and what --print-config prints reads back as the same. */
static void defaults_read_back(void **state)
{
    (void)state;
    for (int v = 0; v < VERB_COUNT; v++) {
        struct config c, back;
        struct error e = {.code = ERR_NONE};
        char text[PATH_MAX];
        parse_plain(&c, (enum verb)v);
        for (const struct option_row *o = options; o < options + n_options; o++)
            if (o->verbs & 1u << v && o->value && o->kind != OPTION_INT3 &&
                strcmp(o->name, "labeled-batch") != 0 && strcmp(o->name, "consistency") != 0 &&
                strcmp(o->name, "steps") != 0 && !(o->traits & OPTION_ARGV_ONLY)) {
                option_text(text, sizeof text, o, &c);
                assert_string_equal(text, o->value);
            }
        char *file = printed(&c);
        memset(&back, 0, sizeof back); /* nothing set: the file alone must restore all */
        back.verb = (enum verb)v;
        if (config_apply_text(&back, file, "printed", &e) < 0)
            test_fail("%s", e.text);
        assert_same(&c, &back);
        free(file);
        config_free(&c);
        config_free(&back);
    }
}

static void odd_values_read_back(void **state)
{
    (void)state;
    static const char *const odd[] = {" lead", "trail ", "a # b",     "\"q\"",        "back\\slash",
                                      "a\nb",  "#",      "tab\there", "\x01\x7f\xff", "~/$HOME/`x`",
                                      "a=b",   "\\x41",  "C:\\x",     "a;b"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct config c, back;
        struct error e = {.code = ERR_NONE};
        assert_int_equal(parse(&c, &e, VERB_PREPARE, "set", "-o", odd[i], NULL), 0);
        parse_plain(&back, VERB_PREPARE);
        char *file = printed(&c);
        if (config_apply_text(&back, file, "printed", &e) < 0)
            test_fail("%s", e.text);
        assert_string_equal(back.output, odd[i]);
        assert_same(&c, &back);
        free(file);
        config_free(&c);
        config_free(&back);
    }
}

static void help_mentions_every_option(void **state)
{
    (void)state;
    for (int v = 0; v < VERB_COUNT; v++) {
        char *text = NULL, word[80], alone[80];
        size_t n;
        FILE *f = open_memstream(&text, &n);
        config_print_help((enum verb)v, f);
        fclose(f);
        for (const struct option_row *o = options; o < options + n_options; o++) {
            snprintf(word, sizeof word, "--%s ", o->name); /* --method is not --methods */
            snprintf(alone, sizeof alone, "--%s\n", o->name);
            const struct option_row *shown = option_find(o->name, strlen(o->name), (enum verb)v);
            int mine = shown->verbs & 1u << v && strcmp(shown->name, o->name) == 0; /* not an alias */
            if (mine != (strstr(text, word) || strstr(text, alone)))
                test_fail("falx %s --help and --%s", verbs[v].name, o->name);
        }
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            assert_true(strcspn(line, "\n") <= 80);
        free(text);
    }
}

/* ---- command line ------------------------------------------------------------------------------
 */

static void forms_of_options(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "--out=x=y", "-j4", "set", "--strict", "--no-strict",
                           "--follow=yes", "-q", "--preset", "paper-la", NULL),
                     0);
    assert_string_equal(c.output, "x=y");
    assert_int_equal(c.threads, 4);
    assert_int_equal(c.strict, 0);
    assert_int_equal(c.follow, 1);
    assert_int_equal(c.quiet, 1);
    assert_string_equal(c.preset, "paper-la");
    assert_int_equal(c.n_args, 1);
    assert_string_equal(c.args[0], "set");
    config_free(&c);
    assert_int_equal(parse(&c, &e, VERB_INFO, "-", "--", "--strict", "-x", NULL), 0);
    assert_int_equal(c.strict, 0);
    assert_int_equal(c.n_args, 3);
    assert_string_equal(c.args[1], "--strict");
    config_free(&c);
    assert_int_equal(parse(&c, &e, VERB_CONVERT, "--volume", "-1", "in", "out", NULL), 0);
    assert_int_equal(c.volume, -1);
    config_free(&c);
}

static void names_of_research_scripts(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_CHECK, "set", "--labelnum", "16", "--batch_size=6", "--labeled_bs",
                           "3", "--patch_size", "112, 112,80", "--ema_decay", "0.5", "--num_workers=2", NULL),
                     0);
    assert_string_equal(c.labeled, "16");
    assert_int_equal(c.set.batch, 6);
    assert_int_equal(c.set.labeled_batch, 3);
    assert_int_equal(c.set.patch[0] * 1000000 + c.set.patch[1] * 1000 + c.set.patch[2], 112112080);
    assert_true(c.set.ema_decay == 0.5);
    assert_int_equal(c.threads, 2);
    config_free(&c);
}

static void wrong_words(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    refuses("--bacth", "3", "C01", "--batch");
    refuses("--csv", "x", "C01", "eval");
    refuses("--xyzzy=1", NULL, "C01", "--xyzzy");
    refuses("--batch", NULL, "C01", "--batch");
    refuses("--batch", "--json", "C01", "--batch");
    refuses("-x", NULL, "C01", "-x: ");
    refuses("-qq", NULL, "C01", "-qq: ");
    refuses("--no-batch", NULL, "C01", "--no-batch");
    refuses("--json=maybe", NULL, "C01", "true|false");
    refuses("--nan", "drop", "C01", "refuse|zero|min");
    refuses("more", "still", "C01", "DATASET");
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "set", NULL), -1);
    expect_error(&e, "C01", "--output");
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "set", "-o", "x", "--preset", "heart", NULL), -1);
    expect_error(&e, "C01", "pancreas|colon|auto");
    assert_int_equal(parse(&c, &e, VERB_CHECK, "--help", "--batch", "0", "--config", "none", NULL), 0);
    assert_int_equal(c.help, 1); /* help is given whatever else is wrong */
    config_free(&c);
}

static void strict_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0x10", "12abc", "nan", "1e999", "1.5", "1,5", "+-3", "3 ", "-", "99999999999999999999", "1e2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses("--threads", bad[i], "C02", "--threads: \"");
    static const char *const bad_real[] = {"nan", "inf",  "-inf", "0x1p-1", "1e999",
                                           "0,5", "0.5x", "",     " 0.5"};
    for (size_t i = 0; i < sizeof bad_real / sizeof *bad_real; i++) {
        struct config c;
        struct error e = {.code = ERR_NONE};
        char word[40];
        snprintf(word, sizeof word, "--ema-decay=%s", bad_real[i]);
        assert_int_equal(parse(&c, &e, VERB_CHECK, "set", word, NULL), -1);
        expect_error(&e, *bad_real[i] && *bad_real[i] != ' ' ? "C02" : "C01", "--ema-decay: \"");
    }
    refuses("--threads", "many", "C01", "0..1024");
    refuses("--threads", "1025", "C02", "0..1024");
    refuses("--seed", "-1", "C02", "random");
    refuses("--limit-voxels", "0", "C02", "1..1099511627776");
}

static void training_values(void **state)
{
    (void)state;
    static const char *const patches[] = {"0", "8", "17", "112,112,81", "-16", "1040"};
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++)
        refuses("--patch", patches[i], "C03", "16");
    refuses("--patch", "32,32", "C02", "X,Y,Z");
    refuses("--patch", "32,32,32,32", "C02", "X,Y,Z");
    refuses("--patch", "32,,32", "C01", "X,Y,Z");
    refuses("--batch", "0", "C03", "1..4096");
    refuses("--labeled-batch", "0", "C03", "--labeled-batch: \"0\"");
    refuses("--labeled-batch", "5", "C03", "1..4 (--batch)");
    refuses("--labeled", "0", "C03", "--labeled: \"0\"");
    refuses("--labeled", "-3", "C03", "--labeled: \"-3\"");
    refuses("--labeled", "1.5", "C02", "--labeled: \"1.5\"");
    refuses("--labeled", "1e3", "C02", "--labeled: \"1e3\"");
    refuses("--ema-decay", "1", "C03", "\"1\"");
    refuses("--ema-decay", "-0.1", "C03", "\"-0.1\"");
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_CHECK, "set", "--batch", "1", "--ema-decay=0", "--patch", "32",
                           "--labeled", "train.list", NULL),
                     0);
    assert_int_equal(c.set.labeled_batch, 1);
    assert_int_equal(c.set.patch[2], 32);
    assert_string_equal(c.labeled, "train.list");
    config_free(&c);
}

static void paths_are_literal(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    char longest[PATH_MAX + 1];
    memset(longest, 'a', PATH_MAX);
    longest[PATH_MAX] = '\0';
    assert_int_equal(parse(&c, &e, VERB_PREPARE, longest, "-o", "x", NULL), -1);
    expect_error(&e, "C04", "4096 bytes");
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "set", "-o", longest, NULL), -1);
    expect_error(&e, "C04", "--output: 4096 bytes");
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "", "-o", "x", NULL), -1);
    expect_error(&e, "C04", "0 bytes");
    assert_int_equal(parse(&c, &e, VERB_PREPARE, "$HOME", "--output=~/\xff;`x`", NULL), 0);
    assert_string_equal(c.args[0], "$HOME");
    assert_string_equal(c.output, "~/\xff;`x`");
    config_free(&c);
}

static void seeds(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    int64_t drawn[3];
    parse_plain(&c, VERB_PHANTOM);
    assert_int_equal(c.set.seed, 1337);
    assert_int_equal(c.seed_drawn, 0);
    config_free(&c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(parse(&c, &e, VERB_PHANTOM, "out", "--seed", "random", NULL), 0);
        assert_int_equal(c.seed_drawn, 1);
        assert_true(c.set.seed >= 0);
        drawn[i] = c.set.seed;
        config_free(&c);
    }
    assert_false(drawn[0] == drawn[1] && drawn[1] == drawn[2]);
}

/* ---- config file
 * --------------------------------------------------------------------------------- */

static void flag_over_file_over_default(void **state)
{
    (void)state;
    char path[] = "/tmp/falx-test-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    static const char text[] = "\xEF\xBB\xBF# comment\r\nbatch = 6 # six\r\n\r\nthreads=3\r\n"
                               "labeled_bs = 5\r\nstrict = yes";
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(io_write_all(path, 0600, text, sizeof text - 1, &e), 0);
    parse_plain(&c, VERB_CHECK);
    assert_int_equal(c.set.batch, 4);
    config_free(&c);
    if (parse(&c, &e, VERB_CHECK, "set", "--threads", "8", "--config", path, "--no-strict", NULL) < 0)
        test_fail("%s", e.text);
    assert_int_equal(c.set.batch, 6);
    assert_int_equal(c.threads, 8);
    assert_int_equal(c.set.labeled_batch, 5);
    assert_int_equal(c.strict, 0);
    assert_true(c.set.ema_decay == 0.99);
    config_free(&c);
    unlink(path);
    assert_int_equal(parse(&c, &e, VERB_CHECK, "set", "--config", path, NULL), -1);
    assert_int_equal(e.code, ERR_SYSTEM);
}

static void wrong_lines(void **state)
{
    (void)state;
    refuses_text("batch = 4\n  bacth = 3\n", "C01", "run.cfg:2:3: ");
    refuses_text("batch = 4\n\nbatch_size = 3\n", "C01", "run.cfg:3:1: ");
    refuses_text("batch = many\n", "C01", "run.cfg:1:9: batch: \"many\"");
    refuses_text("batch = 12abc\n", "C02", "run.cfg:1:9: batch: \"12abc\"");
    refuses_text("patch = 17", "C03", "run.cfg:1:9: patch: \"17\"");
    refuses_text("[train]\n", "C01", "run.cfg:1:1: ");
    refuses_text("batch 4\n", "C01", "run.cfg:1:7: ");
    refuses_text("= 4\n", "C01", "run.cfg:1:1: ");
    refuses_text("batch =  \n", "C01", "run.cfg:1:10: ");
    refuses_text("batch = # 4\n", "C01", "run.cfg:1:9: ");
    refuses_text("member = \"a\n", "C01", "run.cfg:1:10: ");
    refuses_text("member = \"a\" b\n", "C01", "run.cfg:1:14: ");
    refuses_text("member = \"a\\n\"\n", "C01", "run.cfg:1:12: ");
    refuses_text("member = \"\\x00\"\n", "C01", "run.cfg:1:15: ");
    refuses_text("member = a\x01\n", "C01", "0x01");
    refuses_text("member = \"\"\n", "C04", "member: 0 bytes");
    refuses_text("help = true\n", "C01", "help");
    refuses_text("include other.cfg\n", "C06", "run.cfg:1:1: ");
    refuses_text("include = other.cfg\n", "C06", "run.cfg:1:1: ");
    refuses_text("config = run.cfg\n", "C06", "run.cfg:1:1: ");
}

static void keys_of_other_verbs(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    parse_plain(&c, VERB_INFO);
    assert_int_equal(config_apply_text(&c, "patch = 96\nprotocol = paper\n", "run.cfg", &e), 0);
    assert_int_equal(config_apply_text(&c, "patch = 97\n", "run.cfg", &e), -1);
    expect_error(&e, "C03", "run.cfg:1:9: patch");
    config_free(&c);
}

/* ---- presets ---------------------------------------------------------------------------------- */

/* "falx train" with these words. */
static void parse_preset(struct config *c, const char *preset, const char *method)
{
    struct error e = {.code = ERR_NONE};
    int result =
        method ? parse(c, &e, VERB_TRAIN, "set", "-o", "run", "--preset", preset, "--method", method, NULL)
               : parse(c, &e, VERB_TRAIN, "set", "-o", "run", "--preset", preset, NULL);
    if (result < 0)
        test_fail("--preset %s --method %s: %s", preset, method ? method : "", e.text);
}

static void assert_value(const struct config *c, const char *name, const char *want)
{
    char text[PATH_MAX];
    option_text(text, sizeof text, option_find(name, strlen(name), VERB_TRAIN), c);
    if (strcmp(text, want) != 0)
        test_fail("%s with %s: %s = %s, expected %s", c->train_preset, c->set.method, name, text, want);
}

/* Arguments of the authors' scripts, read there once more, not from src/method. */
static const struct {
    const char *method, *steps, *schedule, *lr, *batch, *labeled_batch, *consistency, *rampup, *patch,
        *stride;
} authors[] = {
    {"supervised", "6000", "step", "0.01", "4", "4", "0", "auto", "112,112,80", "18,18,4"},
    {"ua-mt", "6000", "step", "0.01", "4", "2", "0.1", "6000", "112,112,80", "18,18,4"},
    {"sassnet", "6000", "step", "0.01", "4", "2", "0.01", "6000", "112,112,80", "18,18,4"},
    {"dtc", "6000", "step", "0.01", "4", "2", "1", "6000", "112,112,80", "18,18,4"},
    {"mc-net", "15000", "constant", "0.01", "4", "2", "1", "6000", "112,112,80", "18,18,4"},
    {"mc-net-plus", "15000", "constant", "0.01", "4", "2", "1", "6000", "112,112,80", "18,18,4"},
    {"copy-paste", "15000", "step", "0.01", "8", "4", "0", "auto", "112,112,80", "18,18,4"},
    {"mt", "30000", "poly", "0.01", "4", "2", "0.1", "30000", "96,96,96", "64,64,64"},
    {"entropy", "30000", "poly", "0.01", "4", "2", "0.1", "30000", "96,96,96", "64,64,64"},
    {"ict", "30000", "poly", "0.01", "4", "2", "0.1", "30000", "96,96,96", "64,64,64"},
    {"dan", "30000", "poly", "0.01", "4", "2", "0.1", "30000", "96,96,96", "64,64,64"},
    {"cct", "30000", "poly", "0.01", "4", "2", "0.1", "30000", "96,96,96", "64,64,64"},
    {"urpc", "60000", "poly", "0.1", "4", "2", "0.1", "60000", "112,112,112", "64,64,64"},
    {"aua", "6000", "step", "0.01", "4", "2", "0.15", "6000", "96,96,96", "16,16,16"},
};
enum { N_AUTHORS = sizeof authors / sizeof *authors };

/* What is the method's own, whatever the preset. */
static void assert_own(const struct config *c, int author)
{
    assert_value(c, "method", authors[author].method);
    assert_value(c, "steps", authors[author].steps);
    assert_value(c, "schedule", authors[author].schedule);
    assert_value(c, "lr", authors[author].lr);
    assert_value(c, "batch", authors[author].batch);
    assert_value(c, "labeled-batch", authors[author].labeled_batch);
    assert_value(c, "consistency", authors[author].consistency);
    assert_value(c, "rampup-length", authors[author].rampup);
    assert_value(c, "dropout", "both");
}

static void published_settings_are_the_authors(void **state)
{
    (void)state;
    struct config c;
    for (int i = 0; i < N_AUTHORS; i++) {
        parse_preset(&c, "published", authors[i].method);
        assert_own(&c, i);
        assert_value(&c, "patch", authors[i].patch);
        assert_value(&c, "stride", authors[i].stride);
        assert_value(&c, "window-mode", "constant");
        assert_value(&c, "augment", strcmp(authors[i].method, "aua") == 0 ? "crop" : "paper");
        config_free(&c);
    }
    for (int i = 0; methods[i]; i++) {
        assert_non_null(methods[i]->published);
        parse_preset(&c, "published", methods[i]->name);
        config_free(&c);
    }
}

/* Of a paper-* preset every method gets the protocol; AUA's constants are AUA's alone. */
static void presets_leave_methods_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *recipe, *patch, *augment, *stride, *lambda_c, *cov_mask;
    } paper[] = {
        {"paper-la", "paper-la", "112,112,80", "crop", "18,18,4", "0.09", "field"},
        {"paper-pancreas20", "paper-pancreas", "96,96,96", "crop", "16,16,16", "0.09", "inside"},
        {"paper-pancreas5", "paper-pancreas", "96,96,96", "crop", "16,16,16", "0.01", "inside"},
        {"paper-colon5", "paper-colon", "96,96,96", "paper", "16,16,16", "0.03", "inside"},
    };
    struct config c;
    for (size_t p = 0; p < sizeof paper / sizeof *paper; p++)
        for (int i = -1; i < N_AUTHORS; i++) {
            int aua = i < 0 || strcmp(authors[i].method, "aua") == 0;
            parse_preset(&c, paper[p].preset, i < 0 ? NULL : authors[i].method);
            assert_own(&c, i < 0 ? N_AUTHORS - 1 : i);
            assert_value(&c, "recipe", paper[p].recipe);
            assert_value(&c, "patch", paper[p].patch);
            assert_value(&c, "augment", paper[p].augment);
            assert_value(&c, "stride", paper[p].stride);
            assert_value(&c, "window-mode", "constant");
            assert_value(&c, "largest", "false");
            assert_value(&c, "lambda-c", aua ? paper[p].lambda_c : "0.09"); /* the default */
            assert_value(&c, "cov-mask", aua ? paper[p].cov_mask : "auto");
            config_free(&c);
        }
    parse_preset(&c, "auto", "aua");
    assert_value(&c, "pseudo-threshold", "0"); /* copy-paste's is 0.8 */
    assert_value(&c, "optimizer", "adam");     /* of the recipe */
    config_free(&c);
}

/* The paper's rows are found by method: presets of published settings stand for theirs, others do not. */
static void specs_have_names_in_the_paper(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"aua", "aua"},
                                           {"paper-la", "aua"},
                                           {"paper-colon5:stages=1:lambda-c=0", "aua:stages=1:lambda-c=0"},
                                           {"published", "aua"},
                                           {"mt:steps=5", "mt:steps=5"},
                                           {"paper-text", "paper-text"},
                                           {"la", "la"}};
    struct error e = {.code = ERR_NONE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *paper = plan_spec_paper(names[i][0], &e);
        assert_string_equal(paper, names[i][1]);
        mem_free(paper);
    }
}

/* The method may be named in a file, and both are stronger than the preset. */
static void files_and_flags_are_above_presets(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    static const char file[] = "method = mc-net\nlr = 0.5\n";
    assert_ok(io_write_all("preset.cfg", 0666, file, sizeof file - 1, &e), e);
    assert_int_equal(parse(&c, &e, VERB_TRAIN, "set", "-o", "run", "--preset", "paper-la", "--config",
                           "preset.cfg", "--steps", "7", NULL),
                     0);
    assert_value(&c, "method", "mc-net");
    assert_value(&c, "schedule", "constant");
    assert_value(&c, "lr", "0.5");
    assert_value(&c, "steps", "7");
    assert_value(&c, "stride", "18,18,4");
    config_free(&c);
    assert_int_equal(parse(&c, &e, VERB_TRAIN, "set", "-o", "run", "--preset", "paper-la", "--config",
                           "preset.cfg", "--method", "aua", NULL),
                     0);
    assert_value(&c, "schedule", "step");
    assert_value(&c, "cov-mask", "field");
    config_free(&c);
    io->unlink("preset.cfg");
}

static void a_line_cannot_be_forged(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_CHECK, "set", "--batch", "1\nfalx: error: x", NULL), -1);
    assert_null(strchr(e.text, '\n'));
    expect_error(&e, "C02", "1\\x0Afalx");
}

/* Each allocation fails once; nothing leaks (with ASan) and the error says so. */
static void memory_runs_out(void **state)
{
    (void)state;
    int failures = 0;
    for (int64_t k = 0;; k++) {
        struct config c;
        struct error e = {.code = ERR_NONE};
        mem_fail_at(k, 0);
        int result = parse(&c, &e, VERB_PREPARE, "set", "-o", "x", "--labeled", "3", NULL);
        if (result == 0)
            result = config_apply_text(&c, "label_map = 255=1\n", "run.cfg", &e);
        mem_fail_at(-1, 0);
        config_free(&c);
        if (result == 0)
            break;
        assert_int_equal(e.code, ERR_MEMORY);
        failures++;
    }
    assert_true(failures >= 4);
}

/* ---- out ----------------------------------------------------------------------------------------
 */

/* Read by jansson itself: the writer is ours. */
static json_t *config_as_json(const struct config *c)
{
    struct js_out o = {0};
    struct error e;
    char *text;
    js_out_open(&o, NULL, '{');
    config_to_json(&o, c);
    js_out_close(&o, '}');
    assert_int_equal(js_out_take(&text, &o, &e), 0);
    json_t *read = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(read);
    mem_free(text);
    return read;
}

static void json_holds_the_config(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    assert_int_equal(parse(&c, &e, VERB_CHECK, "s\xff", "--patch=32", "--labeled", "a.list", NULL), 0);
    json_t *all = config_as_json(&c);
    assert_string_equal(json_string_value(json_object_get(all, "verb")), "check");
    assert_int_equal(json_integer_value(json_object_get(all, "batch")), 4);
    assert_true(json_real_value(json_object_get(all, "ema-decay")) == 0.99);
    assert_true(json_is_false(json_object_get(all, "strict")));
    assert_string_equal(json_string_value(json_object_get(all, "nan")), "refuse");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(all, "patch"), 2)), 32);
    assert_string_equal(json_string_value(json_object_get(all, "labeled")), "a.list");
    assert_string_equal(json_string_value(json_array_get(json_object_get(all, "arguments"), 0)), "s\\xFF");
    assert_int_equal(json_integer_value(json_object_get(all, "seed")), 1337);
    json_decref(all);
    config_free(&c);
}

/* Without --preset and --method: auto; without steps and time, too: within 40 minutes. */
static void default_preset(void **state)
{
    (void)state;
    struct config file;
    struct error why = {.code = ERR_NONE};
    char path[] = "/tmp/falx-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "method = mt\n", 12) == 12 && close(fd) == 0);
    assert_int_equal(parse(&file, &why, VERB_TRAIN, "set", "-o", "run", "--config", path, NULL), 0);
    unlink(path);
    assert_true(!file.train_preset && !file.max_time && file.set.steps == 6000);
    assert_string_equal(file.set.method, "mt");
    config_free(&file);
    static const struct {
        const char *words[2], *preset, *method, *max_time;
        int64_t steps;
    } want[] = {
        {{"--lr=0.1", NULL}, "auto", "copy-paste", "40m", 3200},
        {{"--steps=7", NULL}, "auto", "copy-paste", NULL, 7},
        {{"--max-time=5m", NULL}, "auto", "copy-paste", "5m", 3200},
        {{"--time-plan=run", NULL}, "auto", "copy-paste", NULL, 3200},
        {{"--steps=auto", "--max-time=1h"}, "auto", "copy-paste", "1h", 0},
        {{"--preset=auto", NULL}, "auto", "copy-paste", NULL, 3200},
        {{"--preset=none", NULL}, "none", "aua", NULL, 6000},
        {{"--method=aua", NULL}, NULL, "aua", NULL, 6000},
        {{"--method=mt", "--max-time=5m"}, NULL, "mt", "5m", 0},
        {{"--preset=la", "--method=mt"}, "la", "mt", NULL, 8000},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct config c;
        struct error e = {.code = ERR_NONE};
        if (parse(&c, &e, VERB_TRAIN, "set", "-o", "run", want[i].words[0], want[i].words[1], NULL) < 0)
            test_fail("%zu: %s", i, e.text);
        assert_string_equal(c.train_preset ? c.train_preset : "", want[i].preset ? want[i].preset : "");
        assert_string_equal(c.set.method, want[i].method);
        assert_string_equal(c.max_time ? c.max_time : "", want[i].max_time ? want[i].max_time : "");
        assert_int_equal(c.set.steps, want[i].steps);
        config_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(words_match_enums),
        cmocka_unit_test(defaults_read_back),
        cmocka_unit_test(default_preset),
        cmocka_unit_test(odd_values_read_back),
        cmocka_unit_test(help_mentions_every_option),
        cmocka_unit_test(forms_of_options),
        cmocka_unit_test(names_of_research_scripts),
        cmocka_unit_test(wrong_words),
        cmocka_unit_test(strict_numbers),
        cmocka_unit_test(training_values),
        cmocka_unit_test(paths_are_literal),
        cmocka_unit_test(seeds),
        cmocka_unit_test(flag_over_file_over_default),
        cmocka_unit_test(wrong_lines),
        cmocka_unit_test(keys_of_other_verbs),
        cmocka_unit_test(a_line_cannot_be_forged),
        cmocka_unit_test(published_settings_are_the_authors),
        cmocka_unit_test(presets_leave_methods_their_own),
        cmocka_unit_test(files_and_flags_are_above_presets),
        cmocka_unit_test(specs_have_names_in_the_paper),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(json_holds_the_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
