/* test_checkpoint.c - two files in turn: what is written comes back to the bit, any damage is
 * found and the other file used, nothing that was good is ever overwritten by something that
 * failed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "train/train_int.h"

#define A "run/checkpoint-a.safetensors"
#define B "run/checkpoint-b.safetensors"

static struct device *dev;
static struct train_private own;
static struct trainer t;
static struct settings set;
static struct checkpoint_files files;
static struct checkpoint_facts facts;
static unsigned char state_bytes[5];
static struct report listener = {.line = test_listen};

/* A network of two layers: the file is a few kilobytes, most of them header. */
static void define(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, self->channels);
    x = net_norm_relu(b, net_conv(b, x, CONV_1, 2, "a"), "n");
    net_output(b, net_conv(b, x, CONV_1, self->classes, "b"), "logits");
}
static const struct net_definition def = {.define = define, .channels = 1, .classes = 2, .filters = 1};

static void make_trainer(void)
{
    struct error e;
    memset(&t, 0, sizeof t);
    memset(&own, 0, sizeof own);
    t.own = &own;
    t.dev = dev;
    t.set = &set;
    assert_non_null(trainer_model(&t, "student", &def, 0, NET_TRAINING, 1, &e));
    assert_non_null(trainer_model(&t, "teacher", &def, 0, NET_FORWARD_ONLY, 0, &e));
    assert_ok(trainer_state(&t, "bytes", state_bytes, sizeof state_bytes, &e), e);
}

static void free_trainer(void)
{
    trainer_free_models(&t);
}

/* Numbers that are functions of `salt`. */
static void fill(int salt)
{
    for (int i = 0; i < 2; i++) {
        struct params *p = t.models[i].params;
        for (int64_t k = 0; k < p->count; k++)
            p->value[k] = (float)(salt * 100 + i * 50) + (float)k / 7;
        p->batches = salt + 10 * i;
        for (int64_t k = 0; t.models[i].optim && k < p->trainable_count; k++)
            t.models[i].optim->moment[0][k] = (float)(-salt) / (float)(k + 1);
    }
    t.models[0].optim->updates = 3 * salt;
    memset(state_bytes, salt, sizeof state_bytes);
}

static void assert_filled(int salt)
{
    float value[2][64], moment[64];
    for (int i = 0; i < 2; i++)
        memcpy(value[i], t.models[i].params->value, (size_t)t.models[i].params->count * sizeof(float));
    size_t n = (size_t)t.models[0].params->trainable_count;
    memcpy(moment, t.models[0].optim->moment[0], n * sizeof(float));
    assert_int_equal(t.models[0].params->batches, salt);
    assert_int_equal(t.models[1].params->batches, salt + 10);
    assert_int_equal(t.models[0].optim->updates, 3 * salt);
    assert_int_equal(state_bytes[4], salt);
    fill(salt);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(value[i], t.models[i].params->value,
                            (size_t)t.models[i].params->count * sizeof(float));
    assert_memory_equal(moment, t.models[0].optim->moment[0], n * sizeof(float));
}

static int save(int salt, int anchor, struct error *e)
{
    struct counters at = {.phase = 1,
                          .step = salt,
                          .updates = salt,
                          .validated = -1,
                          .bad_row = 2,
                          .rollbacks = 1,
                          .dice = NAN,
                          .best = 0.1 * salt};
    fill(salt);
    return checkpoint_save(&files, &t, &at, &facts, anchor, e);
}

/* The salt of what is read, -1 if nothing is there; else refused. */
static int open_salt(struct error *e)
{
    struct st_file f = {.n_tensors = 0};
    struct counters at;
    *test_told = '\0';
    *e = (struct error){.code = ERR_NONE};
    int found = checkpoint_open(&f, &files, "run", &listener, e);
    if (found <= 0)
        return -1;
    assert_int_equal(checkpoint_counters(&at, &f, e), 0);
    fill(77);
    assert_ok(checkpoint_load(&t, &f, e), *e);
    assert_filled((int)at.step);
    assert_true(isnan(at.dice) && at.best == 0.1 * (double)at.step && at.bad_row == 2 && at.validated == -1);
    st_free(&f);
    return (int)at.step;
}

static int setup(void **state)
{
    (void)state;
    io = &io_posix;
    io_remove_tree("run");
    io_remove_tree("other");
    files = (struct checkpoint_files){.run = "run", .newest = -1, .anchor = -1};
    facts.n = 0;
    facts_settings(&facts, &set);
    return mkdir("run", 0777);
}

static size_t read_bytes(unsigned char *out, size_t cap, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, cap, f);
    fclose(f);
    assert_true(n < cap);
    return n;
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* ---- there and back -------------------------------------------------------------------------- */

static void what_was_saved_comes_back(void **state)
{
    (void)state;
    struct error e;
    assert_int_equal(open_salt(&e), -1);
    assert_int_equal(e.code, ERR_NONE);
    for (int salt = 1; salt < 6; salt++) {
        assert_ok(save(salt, salt == 1, &e), e);
        assert_int_equal(open_salt(&e), salt);
        assert_int_equal(files.serial, salt);
        assert_string_equal(test_told, "");
    }
}

static void anchors_are_not_overwritten(void **state)
{
    (void)state;
    struct error e;
    struct st_file f = {.n_tensors = 0};
    struct counters at;
    static const struct {
        int salt, anchor, want_anchor;
    } turns[] = {{1, 1, 1}, {2, 0, 1}, {3, 0, 1}, {4, 1, 4}, {5, 0, 4}, {6, 1, 6}, {7, 1, 7}, {8, 0, 7}};
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        assert_ok(save(turns[i].salt, turns[i].anchor, &e), e);
        if (i % 2)
            assert_int_equal(open_salt(&e), turns[i].salt); /* as after a restart */
        assert_ok(checkpoint_open_anchor(&f, &files, &e), e);
        assert_ok(checkpoint_counters(&at, &f, &e), e);
        assert_int_equal(at.step, turns[i].want_anchor);
        st_free(&f);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void two_generations(void)
{
    struct error e;
    assert_ok(save(1, 1, &e), e); /* a */
    assert_ok(save(2, 0, &e), e); /* b */
}

static void any_truncation_is_found(void **state) /* K01, K08 */
{
    (void)state;
    struct error e;
    static unsigned char bytes[1 << 16];
    two_generations();
    size_t n = read_bytes(bytes, sizeof bytes, B);
    for (size_t cut = 0; cut < n; cut += cut < 600 || cut + 600 > n ? 1 : 7) {
        write_bytes(B, bytes, cut);
        assert_int_equal(open_salt(&e), 1);
        assert_reported(REPORT_WARNING, "K01", "checkpoint-b.safetensors", "checkpoint-a.safetensors");
        assert_null(strchr(strchr(test_told, '\n') + 1, '\n')); /* one line */
    }
    write_bytes(B, bytes, n);
    bytes[n] = 0;
    write_bytes(B, bytes, n + 1);
    assert_int_equal(open_salt(&e), 1);
}

static void any_flipped_bit_is_found(void **state) /* K02 */
{
    (void)state;
    struct error e;
    static unsigned char bytes[1 << 16];
    struct st_limits limits = {.require_checksum = 1};
    two_generations();
    size_t n = read_bytes(bytes, sizeof bytes, B);
    for (size_t bit = 0; bit < 8 * n; bit++) { /* every bit in memory, every 37th through the file */
        struct st_file f = {.n_tensors = 0};
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (st_parse(&f, bytes, n, &limits, &e) == 0)
            test_fail("bit %zu of byte %zu was not noticed", bit % 8, bit / 8);
        if (bit % 37 == 0) {
            write_bytes(B, bytes, n);
            assert_int_equal(open_salt(&e), 1);
        }
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void both_bad_is_an_error(void **state) /* K03 */
{
    (void)state;
    struct error e;
    static unsigned char bytes[1 << 16];
    two_generations();
    size_t n = read_bytes(bytes, sizeof bytes, A);
    write_bytes(A, bytes, n - 5);
    write_bytes(B, "", 0);
    assert_refused(open_salt(&e), e, ERR_BUSY, "K03",
                   "checkpoint-a.safetensors: ", "checkpoint-b.safetensors: ", "0 bytes");
    assert_int_equal(read_bytes(bytes, sizeof bytes, A), n - 5); /* nothing was overwritten */
    assert_int_equal(unlink(A), 0);
    assert_int_equal(open_salt(&e), -1);
    assert_string_equal(e.id, "K03");
    assert_says(e.text, "run: ");
}

/* A file with this format number and otherwise nothing wrong. */
static void save_format(const char *path, const char *format)
{
    struct error e;
    struct st_file f = {.n_tensors = 0};
    int64_t one = 1;
    unsigned char byte = 1;
    assert_ok(st_add(&f, "state/bytes", ST_U8, &one, 1, &byte, &e), e);
    assert_ok(st_set(&f, "falx.format", format, &e), e);
    assert_ok(st_set(&f, "at.serial", "9", &e), e);
    assert_ok(st_write(path, &f, &e), e);
    st_free(&f);
}

static void a_newer_format_is_refused(void **state) /* K04 */
{
    (void)state;
    struct error e;
    two_generations();
    save_format(B, "2");
    /* not passed over: it is the newest, and good */
    assert_refused(open_salt(&e), e, ERR_BUSY, "K04", "format 2", "to 1");
    save_format(B, "1"); /* a file without counters is damaged */
    assert_int_equal(open_salt(&e), 1);
    assert_reported(REPORT_WARNING, "K01", "at.");
}

static unsigned char golden[1 << 16];
static size_t n_golden;
enum { GOLDEN_SALT = 21 };

/* golden/checkpoint-1.safetensors was written by the first falx with this format (`test_checkpoint --write`);
 * it stays as it is, and whatever comes later must load it. A new format gets a file of its own. */
static void an_older_format_loads(void **state) /* K04 */
{
    (void)state;
    struct error e;
    write_bytes(A, golden, n_golden);
    assert_int_equal(open_salt(&e), GOLDEN_SALT);
    assert_string_equal(test_told, "");
    assert_true(files.serial == 1 && files.newest == 0 && files.anchor == 0);
    assert_ok(save(3, 0, &e), e); /* and a run goes on from it */
    assert_int_equal(open_salt(&e), 3);
    assert_true(files.serial == 2 && files.newest == 1 && files.anchor == 0);
}

static void links_out_of_the_folder_are_refused(void **state) /* K07 */
{
    (void)state;
    struct error e;
    two_generations();
    assert_int_equal(mkdir("other", 0777), 0);
    assert_int_equal(rename(B, "other/b"), 0);
    assert_int_equal(symlink("../other/b", B), 0);
    assert_int_equal(open_salt(&e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    assert_string_equal(e.id, "K07");
    assert_int_equal(unlink(B), 0);
    assert_int_equal(rename("other/b", "run/elsewhere"), 0);
    assert_int_equal(symlink("elsewhere", B), 0); /* inside is fine */
    assert_int_equal(open_salt(&e), 2);
}

/* ---- another run ----------------------------------------------------------------------------- */

static void every_setting_is_compared(void **state) /* K05 */
{
    (void)state;
    struct error e;
    struct st_file f = {.n_tensors = 0};
    assert_ok(save(1, 1, &e), e);
    assert_int_equal(checkpoint_open(&f, &files, "run", NULL, &e), 1);
    assert_ok(checkpoint_same(&f, &facts, NULL, &e), e);
    /* change the settings byte by byte; up to 4 bytes between members may be padding */
    int unnoticed = 0;
    for (size_t i = sizeof set.method; i < sizeof set; i++) {
        struct checkpoint_facts changed = {.n = 0};
        unsigned char *byte = (unsigned char *)&set + i;
        *byte ^= 1;
        facts_settings(&changed, &set);
        *byte ^= 1;
        int same = checkpoint_same(&f, &changed, NULL, &e) == 0;
        unnoticed = same ? unnoticed + 1 : 0;
        if (unnoticed > 4)
            test_fail("byte %zu of struct settings has no row in settings.c", i);
        if (!same)
            assert_string_equal(e.id, "K05");
    }
    st_free(&f);
}

static void differing_keys_are_named_and_may_be_overridden(void **state)
{
    (void)state;
    struct error e;
    struct st_file f = {.n_tensors = 0};
    struct checkpoint_facts now = facts;
    assert_ok(save(1, 1, &e), e);
    assert_int_equal(checkpoint_open(&f, &files, "run", NULL, &e), 1);
    facts_add(&now, "data", "%d", 7);
    assert_refused(checkpoint_same(&f, &now, NULL, &e), e, ERR_BUSY, "K05", "scans",
                   "labels"); /* no hashes */
    assert_refused(checkpoint_same(&f, &now, "data2", &e), e, ERR_CONFIG, "C02");
    assert_refused(checkpoint_same(&f, &now, "lr,dat", &e), e, ERR_CONFIG, "C02");
    assert_ok(checkpoint_same(&f, &now, "lr,data", &e), e);
    set.augment = AUGMENT_MIRROR;
    now.n = 0;
    facts_settings(&now, &set);
    set.augment = AUGMENT_PAPER;
    assert_refused(checkpoint_same(&f, &now, NULL, &e), e, ERR_BUSY, "K05", "augment = paper", "mirror");
    st_free(&f);
}

static void other_models_and_states_are_refused(void **state)
{
    (void)state;
    struct error e;
    struct st_file f = {.n_tensors = 0};
    assert_ok(save(1, 1, &e), e);
    assert_int_equal(checkpoint_open(&f, &files, "run", NULL, &e), 1);
    t.n_states = 0; /* one too many in the file */
    assert_refused(checkpoint_load(&t, &f, &e), e, ERR_BUSY, "S10");
    t.n_states = 1;
    t.states[0].bytes--;
    assert_refused(checkpoint_load(&t, &f, &e), e, ERR_BUSY, "S10");
    t.states[0].bytes++;
    strcpy(t.models[1].name, "critic");
    assert_refused(checkpoint_load(&t, &f, &e), e, ERR_BUSY, "S10", "model.teacher/");
    strcpy(t.models[1].name, "teacher");
    assert_non_null(trainer_model(&t, "third", &def, 0, NET_FORWARD_ONLY, 0, &e));
    assert_int_equal(checkpoint_load(&t, &f, &e), -1); /* one too few */
    trainer_drop_model(&t, "third");
    t.n_models = 2;
    assert_ok(checkpoint_load(&t, &f, &e), e);
    st_free(&f);
}

/* ---- writing that fails ---------------------------------------------------------------------- */

static void bad_numbers_are_not_saved(void **state) /* M04 */
{
    (void)state;
    struct error e;
    struct counters at = {.phase = 0};
    static unsigned char before[1 << 16], after[1 << 16];
    two_generations();
    size_t n = read_bytes(before, sizeof before, B);
    for (int which = 0; which < 3; which++) {
        fill(3);
        if (which < 2)
            t.models[which].params->value[2] = which ? INFINITY : NAN;
        else
            t.models[0].optim->moment[0][1] = NAN;
        assert_refused(checkpoint_save(&files, &t, &at, &facts, 0, &e), e, ERR_NUMERIC, "M04",
                       which == 1 ? "teacher" : "student");
    }
    assert_int_equal(read_bytes(after, sizeof after, B), n);
    assert_memory_equal(before, after, n);
}

static int calls, trap, trap_errno, trap_forever;
static int trapped(void)
{
    int n = calls++;
    if (n < trap || (n > trap && !trap_forever))
        return 0;
    errno = trap_errno;
    return 1;
}
static int t_open(const char *p, int f, mode_t m)
{
    return trapped() ? -1 : io_posix.open(p, f, m);
}
static ssize_t t_write(int fd, const void *b, size_t n)
{
    return trapped() ? -1 : io_posix.write(fd, b, n > 700 ? 700 : n);
}
static int t_fsync(int fd)
{
    return trapped() ? -1 : io_posix.fsync(fd);
}
static int t_close(int fd)
{
    int bad = trapped(), code = io_posix.close(fd);
    return bad ? -1 : code;
}
static int t_rename(const char *a, const char *b)
{
    return trapped() ? -1 : io_posix.rename(a, b);
}
static int t_lstat(const char *p, struct stat *s)
{
    return trapped() ? -1 : io_posix.lstat(p, s);
}
static const struct io_ops traps = {t_open,   read,   t_write, t_fsync, t_close,
                                    t_rename, unlink, mkdir,   t_lstat};

static int entries(const char *folder)
{
    struct io_listing l;
    assert_int_equal(io_list(&l, folder, NULL), 0);
    int n = l.n;
    io_listing_free(&l);
    return n;
}

/* Every call fails with every error, once (a second try with a new file helps) or from then on. */
static void a_failed_write_loses_nothing(void **state) /* P03, P05, P06 */
{
    (void)state;
    struct error e;
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT, EINTR};
    for (int k = 0; k < 5; k++)
        for (int forever = 0; forever < (errors[k] == EINTR ? 1 : 2); forever++)
            for (int n = 0;; n += n < 6 ? 1 : 3) {
                setup(NULL);
                two_generations();
                calls = 0, trap = n, trap_errno = errors[k], trap_forever = forever;
                io = &traps;
                int result = save(3, 0, &e);
                io = &io_posix;
                int used = calls;
                if (!forever)
                    assert_ok(result, e);
                if (result < 0) {
                    assert_int_equal(e.code, ERR_SYSTEM);
                    assert_says(e.text, "checkpoint-b");
                }
                assert_int_equal(entries("run"), 2); /* no temporary file left */
                int got = open_salt(&e);
                assert_true(result == 0 ? got == 3 : got == 2 || got == 3);
                if (n >= used)
                    break;
            }
}

/* A file system that does not answer has not lost the run: beginning anew would remove it. */
static void a_checkpoint_that_cannot_be_seen(void **state)
{
    (void)state;
    struct error e;
    struct st_file f;
    two_generations();
    for (int n = 0; n < 2; n++) {
        struct io_ops blind = io_posix;
        blind.lstat = t_lstat;
        calls = 0, trap = n, trap_errno = EIO, trap_forever = 1;
        io = &blind;
        int result = checkpoint_open(&f, &files, "run", NULL, &e);
        io = &io_posix;
        assert_refused(result, e, ERR_SYSTEM, "Z12");
    }
    assert_int_equal(open_salt(&e), 2);
}

static void nothing_leaks_over_many_checkpoints(void **state) /* P20 */
{
    (void)state;
    struct error e;
    assert_ok(save(0, 1, &e), e);
    int fds = entries("/proc/self/fd"), listed = 0;
    for (int i = 1; i <= 300; i++) {
        assert_ok(save(i % 50, i % 7 == 0, &e), e);
        listed = i > 1 && entries("run") > listed ? entries("run") : listed;
    }
    assert_int_equal(listed, 2);
    assert_int_equal(entries("/proc/self/fd"), fds);
    assert_int_equal(files.serial, 301);
}

static int start(void **state)
{
    struct error e;
    static char method[] = "tiny";
    set.method = method;
    set.lr = 0.01;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    if (test_folder_make(state) < 0 || device_open(&dev, &o, &e) < 0)
        return -1;
    make_trainer();
    return 0;
}

static int finish(void **state)
{
    free_trainer();
    device_close(dev);
    return test_folder_remove(state);
}

/* Lies beside this file; looked for before the working folder changes. */
static void read_golden(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%.*s/golden/checkpoint-1.safetensors",
             (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    FILE *f = fopen(path, "rb");
    n_golden = f ? fread(golden, 1, sizeof golden, f) : 0;
    if (f)
        fclose(f);
}

/* --write: the golden file, as run/checkpoint-a.safetensors in the working folder. */
static int write_golden(void)
{
    struct error e;
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    static char method[] = "tiny";
    set.method = method;
    set.lr = 0.01;
    if (setup(NULL) < 0 || device_open(&dev, &o, &e) < 0)
        return 1;
    make_trainer();
    int result = save(GOLDEN_SALT, 1, &e);
    free_trainer();
    device_close(dev);
    return result < 0;
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(what_was_saved_comes_back),
        TEST(anchors_are_not_overwritten),
        TEST(any_truncation_is_found),
        TEST(any_flipped_bit_is_found),
        TEST(both_bad_is_an_error),
        TEST(a_newer_format_is_refused),
        TEST(an_older_format_loads),
        TEST(links_out_of_the_folder_are_refused),
        TEST(every_setting_is_compared),
        TEST(differing_keys_are_named_and_may_be_overridden),
        TEST(other_models_and_states_are_refused),
        TEST(bad_numbers_are_not_saved),
        TEST(a_failed_write_loses_nothing),
        TEST(a_checkpoint_that_cannot_be_seen),
        TEST(nothing_leaks_over_many_checkpoints),
    };
    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        return write_golden();
    read_golden();
    return cmocka_run_group_tests(tests, start, finish);
}
