/* test_train.c - the loop: a run that was stopped, killed or rolled back anywhere ends in the same
 * bytes as one that was not; numbers that are not finite never reach the weights; steps allocate
 * nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training.h"

static struct case_store cases, held_out;
static struct settings set;
static size_t most_written = 1 << 30; /* by one write [P06] */
static struct report listener = {.line = test_listen};

/* ---- running --------------------------------------------------------------------------------- */

/* Nothing but the files a run may leave. */
static void assert_no_leftovers(const char *run)
{
    struct io_listing l;
    assert_int_equal(io_list(&l, run, NULL), 0);
    for (int i = 0; i < l.n; i++)
        if (!text_ends_with(l.entry[i].name, ".safetensors"))
            test_fail("%s left behind", l.entry[i].name);
    io_listing_free(&l);
}

static size_t room; /* of the device, for cases */

static int train(const char *run, int resume, int threads, struct error *e)
{
    struct device *dev = tiny_device(threads, PRECISION_F32);
    dev->room = room;
    int64_t stop_at = heard.stop_at;
    struct train_options o = tiny_options(&set, &cases, dev, run);
    struct train_result r;
    heard.stop_at = stop_at;
    o.resume = resume;
    o.report = &listener;
    o.val = held_out.n_cases ? &held_out : NULL;
    *test_told = '\0';
    int result = train_run(&r, &o, e);
    device_close(dev);
    return result;
}

static uint64_t reference(void)
{
    return uninterrupted(train);
}

static int setup(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof fault);
    set = tiny_settings();
    heard.stop_at = -1;
    io = &quick;
    case_store_free(&held_out);
    most_written = 1 << 30;
    return 0;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void it_learns(void **state)
{
    (void)state;
    struct error e;
    double loss[64] = {0};
    struct device *dev = tiny_device(2, PRECISION_F32);
    set.steps = 40;
    fresh_folder("run");
    struct train_options o = tiny_options(&set, &cases, dev, "run");
    struct train_result r;
    heard.loss = loss;
    set.stages = 1;
    assert_ok(train_run(&r, &o, &e), e);
    assert_int_equal(r.steps, 40);
    assert_int_equal(heard.steps, 40);
    assert_true(isnan(r.dice));
    assert_true(loss[40] < 0.75 * loss[1]);
    device_close(dev);
    assert_no_leftovers("run");
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    for (int threads = 2; threads <= 4; threads += 2) {
        fresh_folder("run");
        assert_ok(train("run", 0, threads, &e), e);
        assert_true(result_of("run") == want);
    }
}

/* Patches cut out by the device are those of the sampler. */
static void cases_on_the_device_change_no_bit(void **state)
{
    (void)state;
    struct error e;
    for (int kind = AUGMENT_PAPER; kind <= AUGMENT_MIRROR; kind++) {
        set.augment = kind;
        room = 0;
        uint64_t want = reference();
        for (int enough = 0; enough < 2; enough++) {
            room = enough ? 1 << 30 : 1;
            fresh_folder("run");
            assert_ok(train("run", 0, 2, &e), e);
            assert_true(result_of("run") == want);
        }
        room = 0;
    }
}

static void stopped_at_every_step(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    int64_t total = 8 + 2 + 4;
    for (int64_t at = 0; at < total; at++) {
        heard.stop_at = at;
        fresh_folder("run");
        assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
        assert_int_equal(heard.done, at);
        assert_no_leftovers("run");
        heard.stop_at = -1;
        assert_ok(train("run", 1, at % 3 ? 2 : 1, &e), e);
        assert_int_equal(heard.steps, total - at); /* nothing was done twice */
        assert_true(result_of("run") == want);
        test_tally("kills", 1);
    }
}

static void one_step_a_start(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    fresh_folder("run");
    for (heard.stop_at = 1; heard.stop_at < 14; heard.stop_at++)
        assert_refused(train("run", 1, 1, &e), e, ERR_STOPPED, "P11");
    heard.stop_at = -1;
    assert_ok(train("run", 1, 1, &e), e);
    assert_int_equal(heard.steps, 1);
    assert_true(result_of("run") == want);
}

static void a_finished_run_stays(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference(), checkpoint = hash_of("reference", "checkpoint-a.safetensors");
    assert_ok(train("reference", 1, 1, &e), e);
    assert_int_equal(heard.steps, 0);
    assert_reported(REPORT_NOTE, "", "reference: ");
    assert_true(result_of("reference") == want);
    assert_true(hash_of("reference", "checkpoint-a.safetensors") == checkpoint);
    assert_int_equal(unlink("reference/model.safetensors"), 0); /* lost: made again */
    assert_ok(train("reference", 1, 1, &e), e);
    assert_int_equal(heard.steps, 0);
    assert_true(result_of("reference") == want);
}

static void resume_without_checkpoint_starts_over(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    fresh_folder("run");
    assert_ok(train("run", 1, 1, &e), e);
    assert_reported(REPORT_NOTE, "", "run: ", "checkpoint");
    assert_true(result_of("run") == want);
}

/* Whoever asks for a model in between gets none rather than an earlier run's. */
static void starting_anew_forgets_old_models(void **state)
{
    static const char *const models[] = {"run/model.safetensors", "run/best.safetensors",
                                         "run/stage1.safetensors", "run/stage1-middle.safetensors"};
    (void)state;
    struct error e;
    fresh_folder("run");
    assert_ok(train("run", 0, 1, &e), e);
    for (int i = 0; i < 4; i++)
        if (!io_exists(models[i]))
            assert_int_equal(link("run/model.safetensors", models[i]), 0);
    heard.stop_at = 3;
    assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
    for (int i = 0; i < 4; i++)
        assert_false(io_exists(models[i]));
}

static void checkpoints_by_the_clock_change_no_bit(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    struct device *dev = tiny_device(1, PRECISION_F32);
    struct train_options o = tiny_options(&set, &cases, dev, "run");
    struct train_result r;
    o.checkpoint_every = 0;
    o.checkpoint_seconds = 1e-9; /* every step */
    fresh_folder("run");
    assert_ok(train_run(&r, &o, &e), e);
    device_close(dev);
    assert_true(result_of("run") == want);
}

/* ---- sudden death [P01, P19] ----------------------------------------------------------------- */

static int calls, trap, trap_errno, trap_forever; /* trap_errno 0: SIGKILL */

static int trapped(void)
{
    int n = calls++;
    if (n < trap || (n > trap && !trap_forever))
        return 0;
    if (trap_errno == 0)
        raise(SIGKILL);
    errno = trap_errno;
    return 1;
}
static int t_open(const char *p, int f, mode_t m)
{
    return f & (O_WRONLY | O_DIRECTORY) && trapped() ? -1 : io_posix.open(p, f, m);
}
/* A checkpoint is a few hundred writes into one unfinished file: one in a hundred stands for its
 * neighbours. */
static ssize_t t_write(int fd, const void *b, size_t n)
{
    static unsigned writes;
    if ((writes++ % 100 == 0 || trap_forever) && trapped())
        return -1;
    return io_posix.write(fd, b, n > most_written ? most_written : n);
}
static int t_fsync(int fd)
{
    return trapped() ? -1 : quick_fsync(fd);
}
static int t_rename(const char *a, const char *b)
{
    return trapped() ? -1 : io_posix.rename(a, b);
}
static int t_unlink(const char *p)
{
    if (trap_errno == 0)
        trapped();
    return unlink(p);
}
static const struct io_ops traps = {t_open, read, t_write, t_fsync, close, t_rename, t_unlink, mkdir, lstat};

/* A child trains in "run" and dies at I/O call n. 1 if it died, 0 if it came to the end. */
static int child_dies_at(int n, int resume)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct error e = {.text = ""};
        calls = 0, trap = n, trap_errno = 0, trap_forever = 0;
        io = &traps;
        int result = train("run", resume, 1, &e);
        if (result < 0)
            fprintf(stderr, "child: %s [%s]\n", e.text, e.id);
        _exit(result < 0 ? 1 : 0);
    }
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL;
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static void killed_at_every_io_call(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    int n = 0;
    for (;; n++) {
        fresh_folder("run");
        if (!child_dies_at(n, 0))
            break;
        if (n % 4 == 1)
            child_dies_at(n / 2, 1); /* and again while resuming */
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
        assert_no_leftovers("run");
    }
    test_tally("kills", n);
    assert_true(n > 40);
}

static void killed_at_random_instants(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    struct rng r = rng_start(11, 0, RNG_TEST, 0);
    for (int trial = 0; trial < 20; trial++) {
        fresh_folder("run");
        for (int again = 0; again < 1 + trial % 3; again++) {
            pid_t pid = fork();
            if (pid == 0) {
                train("run", again > 0, 1, &e);
                _exit(0);
            }
            usleep(rng_below(&r, 60000));
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
        test_tally("kills", 1 + trial % 3);
        assert_no_leftovers("run");
    }
}

/* ---- disks that fail [P03, P05, P06] --------------------------------------------------------- */

static void a_full_disk_does_not_stop_training(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    /* short writes alone change nothing; then one of them meets a full disk */
    for (int full = 0; full < 2; full++) {
        fresh_folder("run");
        calls = 0, trap = full ? 12 : 1 << 30, trap_errno = ENOSPC, trap_forever = 0;
        most_written = 999;
        io = &traps;
        assert_ok(train("run", 0, 1, &e), e);
        io = &quick;
        assert_true(result_of("run") == want);
        assert_no_leftovers("run");
    }
}

static void a_disk_that_stays_full_ends_it(void **state)
{
    (void)state;
    struct error e;
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT};
    set.steps = 24; /* anchors after 10 and 20, others after 9 and so on */
    uint64_t want = reference();
    for (int i = 0; i < 4; i++) {
        fresh_folder("run");
        heard.stop_at = 7;
        assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
        heard.stop_at = -1;
        calls = 0, trap = 0, trap_errno = errors[i], trap_forever = 1;
        io = &traps;
        assert_int_equal(train("run", 1, 1, &e), -1);
        io = &quick;
        assert_int_equal(e.code, ERR_SYSTEM);
        assert_says(e.text, "checkpoint");
        int lines = 0;
        for (const char *p = test_told; (p = strstr(p, "[P03]")); p++)
            lines++;
        assert_int_equal(lines, 2); /* the third failure is the error */
        assert_no_leftovers("run");
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
    }
}

/* ---- numbers that are not finite ------------------------------------------------------------- */

static void one_bad_step_is_skipped(void **state)
{
    (void)state;
    struct error e;
    for (int kind = FAULT_LOSS; kind <= FAULT_GRADIENT; kind++) {
        fault.from = 4, fault.until = 6, fault.cured = 1;
        fault.kind = kind;
        uint64_t want = reference();
        assert_int_equal(heard.steps, 14);
        assert_reported(REPORT_WARNING, kind == FAULT_LOSS ? "M01" : "M02", "step");
        /* the teacher and the statistics did not hear of it, or nothing could be published [M10] */
        heard.stop_at = 5; /* between the two bad steps */
        fresh_folder("run");
        assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
        heard.stop_at = -1;
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
    }
}

static void three_bad_steps_roll_back(void **state)
{
    (void)state;
    struct error e;
    set.schedule = SCHEDULE_CONSTANT;
    set.steps = 24;
    fault.from = 14, fault.until = 20, fault.cured = 1;
    uint64_t want = reference();
    assert_int_equal(heard.resumed, 1);
    assert_int_equal(heard.resumed_at, 10); /* anchors are 10 steps apart here */
    assert_reported(REPORT_WARNING, "M01", "step 10");
    assert_int_equal(heard.steps, 42 + 7);
    assert_true(fabs(heard.rate - 0.5 * set.lr) < 1e-12);
    for (int64_t at = 9; at <= 19; at += 2) { /* stopped before, between and after */
        heard.stop_at = at;
        fresh_folder("run");
        assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
        heard.stop_at = -1;
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
    }
}

static void rollbacks_survive_a_kill(void **state)
{
    (void)state;
    struct error e;
    fault.from = 3, fault.until = 7, fault.cured = 2; /* it takes two */
    uint64_t want = reference();
    assert_int_equal(heard.resumed, 2);
    for (int n = 0;; n += 5) {
        fresh_folder("run");
        if (!child_dies_at(n, 0))
            break;
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want);
        test_tally("kills", 1);
    }
}

static void divergence_is_given_up(void **state)
{
    (void)state;
    struct error e;
    for (int kind = FAULT_LOSS; kind <= FAULT_GRADIENT; kind++) {
        fault.from = 3, fault.until = 1000, fault.cured = 99;
        fault.kind = kind;
        fresh_folder("run");
        assert_refused(train("run", 0, 1, &e), e, ERR_NUMERIC, kind == FAULT_LOSS ? "M01" : "M02", "step 6",
                       kind == FAULT_LOSS ? "loss" : "block_one.conv.0.bias");
        assert_int_equal(heard.steps, 3 * 6);
        assert_false(io_exists("run/model.safetensors"));
        assert_refused(train("run", 1, 1, &e), e, ERR_NUMERIC, kind == FAULT_LOSS ? "M01" : "M02");
    }
}

static void bad_weights_are_never_published(void **state)
{
    (void)state;
    struct error e;
    fault.from = 5, fault.until = 6, fault.cured = 1, fault.kind = FAULT_WEIGHTS;
    reference(); /* poisoned in step 6, noticed when the phase ends at the latest */
    assert_int_equal(heard.resumed, 1);
    fault.cured = 99;
    fresh_folder("run");
    assert_int_equal(train("run", 0, 1, &e), -1);
    assert_int_equal(e.code, ERR_NUMERIC);
    assert_false(io_exists("run/stage1.safetensors"));
}

static void gradients_are_clipped(void **state)
{
    (void)state;
    struct error e;
    set.clip = 1.0;
    fault.from = 4, fault.until = 5, fault.cured = 99, fault.kind = FAULT_EXPLODE;
    uint64_t want = reference();
    assert_not_reported(REPORT_WARNING, "M01");
    assert_not_reported(REPORT_WARNING, "M02");
    fresh_folder("run");
    assert_ok(train("run", 0, 2, &e), e);
    assert_true(result_of("run") == want);
    assert_true(heard.gradient > 0.0);
}

/* ---- validation ------------------------------------------------------------------------------ */

static void validation_is_reported_and_the_best_kept(void **state)
{
    (void)state;
    struct error e;
    tiny_cases(&held_out, 2, 0, 77);
    set.val_every = 3;
    uint64_t want = reference(), best = hash_of("reference", "best.safetensors");
    assert_int_equal(heard.validated, 3 + 2); /* after 3, 6, 8 and 3, 4 steps; the walk has none */
    assert_true(heard.dice >= 0.0 && heard.dice <= 1.0);
    for (int64_t at = 3; at <= 13; at += 2) {
        heard.stop_at = at;
        fresh_folder("run");
        assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
        heard.stop_at = -1;
        assert_ok(train("run", 1, 1, &e), e);
        assert_true(result_of("run") == want && hash_of("run", "best.safetensors") == best);
    }
}

/* ---- what a resume must agree on ------------------------------------------------------------- */

static int resume_with(struct train_options *o, struct error *e)
{
    struct train_result r;
    o->resume = 1;
    heard.stop_at = -1;
    return train_run(&r, o, e);
}

static void a_changed_run_is_refused(void **state)
{
    (void)state;
    struct error e;
    heard.stop_at = 7;
    fresh_folder("run");
    assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
    struct device *dev = tiny_device(1, PRECISION_F32);
    struct train_options o = tiny_options(&set, &cases, dev, "run");
    set.lr = 0.06;
    assert_refused(resume_with(&o, &e), e, ERR_BUSY, "K05", "lr = 0.050000000000000003",
                   "0.059999999999999998");
    set.lr = 0.05;
    o.data_hash++;
    assert_refused(resume_with(&o, &e), e, ERR_BUSY, "K05", "data");
    o.data_hash--;
    o.version = "2"; /* [P22] */
    assert_refused(resume_with(&o, &e), e, ERR_BUSY, "K05", "version");
    o.override = "steps,versions";
    assert_refused(resume_with(&o, &e), e, ERR_CONFIG, "C02");
    set.weight_decay *= 2;
    o.override = "weight-decay,version"; /* [K06] goes on, with what is now */
    assert_ok(resume_with(&o, &e), e);
    assert_int_equal(heard.steps, 14 - 7);
    device_close(dev);
}

static void unknown_methods_are_refused(void **state)
{
    (void)state;
    struct error e;
    static char other[] = "other";
    set.method = other;
    fresh_folder("run");
    assert_refused(train("run", 0, 1, &e), e, ERR_CONFIG, "C01");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void steps_allocate_nothing(void **state)
{
    (void)state;
    struct error e;
    struct device *dev = tiny_device(2, PRECISION_F32);
    struct train_options o = tiny_options(&set, &cases, dev, "run");
    struct train_result r;
    o.checkpoint_every = 0;
    set.steps = 10; /* anchors at 0 only */
    set.stages = 1;
    o.sampler_threads = 1;
    fresh_folder("run");
    mem_fail_at(-1, 0);
    assert_ok(train_run(&r, &o, &e), e);
    assert_int_equal(heard.most_allocs, 0);
    device_close(dev);
}

/* Every allocation fails once: an error or the result, never a crash or a leak [P16]. */
static void memory_that_runs_out(void **state)
{
    (void)state;
    struct error e;
    set.steps = 2;
    set.stages = 1;
    int failed = 0;
    for (int n = 0;; n += 1 + n / 32) {
        struct device *dev = tiny_device(1, PRECISION_F32);
        struct train_options o = tiny_options(&set, &cases, dev, "run");
        struct train_result r;
        o.listen.step = NULL;
        fresh_folder("run");
        mem_fail_at(n, 0);
        int result = train_run(&r, &o, &e);
        int64_t used = mem_count();
        mem_fail_at(-1, 0);
        device_close(dev);
        assert_no_leftovers("run");
        if (result < 0)
            assert_int_equal(e.code, ERR_MEMORY), failed++;
        else if (used <= n)
            break;
    }
    assert_true(failed > 20);
}

static void memory_is_foretold(void **state)
{
    (void)state;
    struct error e;
    size_t bytes[3];
    struct device *dev = tiny_device(1, PRECISION_F32);
    for (int i = 0; i < 3; i++) {
        set.patch[0] = set.patch[1] = set.patch[2] = 16 * (i + 1);
        assert_ok(train_memory(&bytes[i], &set, dev, 1, 2, &e), e);
    }
    /* weights and their like stay, the rest grows with the voxels: 1, 8, 27 */
    double growth = (double)(bytes[2] - bytes[1]) / (double)(bytes[1] - bytes[0]);
    assert_true(growth > 0.7 * 19 / 7 && growth < 1.3 * 19 / 7);
    assert_true(bytes[1] - bytes[0] > 3u * 7 * 4096 * 5); /* the batch alone */
    device_close(dev);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(it_learns),
        TEST(threads_change_no_bit),
        TEST(cases_on_the_device_change_no_bit),
        TEST(stopped_at_every_step),
        TEST(one_step_a_start),
        TEST(a_finished_run_stays),
        TEST(resume_without_checkpoint_starts_over),
        TEST(starting_anew_forgets_old_models),
        TEST(checkpoints_by_the_clock_change_no_bit),
        TEST(killed_at_every_io_call),
        TEST(killed_at_random_instants),
        TEST(a_full_disk_does_not_stop_training),
        TEST(a_disk_that_stays_full_ends_it),
        TEST(one_bad_step_is_skipped),
        TEST(three_bad_steps_roll_back),
        TEST(rollbacks_survive_a_kill),
        TEST(divergence_is_given_up),
        TEST(bad_weights_are_never_published),
        TEST(gradients_are_clipped),
        TEST(validation_is_reported_and_the_best_kept),
        TEST(a_changed_run_is_refused),
        TEST(unknown_methods_are_refused),
        TEST(steps_allocate_nothing),
        TEST(memory_that_runs_out),
        TEST(memory_is_foretold),
    };
    tiny_cases(&cases, 4, 3, 5);
#ifdef __SANITIZE_ADDRESS__
    if (!getenv("FALX_SOAK"))
        cmocka_set_test_filter(
            "memory_that_runs_out"); /* who frees what; bits are proved in the plain build */
#endif
    int result = cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
    case_store_free(&cases);
    case_store_free(&held_out);
    return result;
}
