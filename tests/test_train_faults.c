/* test_train_faults.c - what happens to a run from outside: the power fails, the folder goes away, someone
 * reads along, clocks jump, threads are refused, the caller computes in another mode. The bits of the result
 * are always those of the undisturbed run.
 *
 * Wall clocks and thread starts are this program's own functions, which stand before the C library's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "base/pool.h"
#include "net/model_file.h"
#include "training.h"

static struct case_store cases, held_out;
static struct settings set;
static struct report listener = {.line = test_listen};
static const struct io_ops *run_with; /* system calls of the runs to come */
static int run_lock;                  /* lock of the folder, or 0 */

/* ---- clocks that jump, threads that do not start ------------------------------------------------- */

enum { TEN_YEARS = 315576000 };
static int wall_asked, monotonic_asked; /* how often a time of day, and of the steady clock */
static time_t wall_jump;                /* added to the time of day, with another sign at every call */

static time_t jumped(void)
{
    wall_asked++;
    return wall_jump = -wall_jump;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long code = syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME)
        monotonic_asked++;
    else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        t->tv_sec += jumped();
    return (int)code;
}

time_t time(time_t *out)
{
    struct timespec t = {.tv_sec = 0};
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

static int threads_left = -1; /* that may still be started; -1: any number */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (threads_left == 0)
        return EAGAIN;
    threads_left -= threads_left > 0;
    return real(thread, attr, start, arg);
}

/* ---- running --------------------------------------------------------------------------------------- */

static int train_on(struct device *dev, const char *run, int resume, struct error *e)
{
    int64_t stop_at = heard.stop_at;
    struct train_options o = tiny_options(&set, &cases, dev, run);
    struct train_result r;
    heard.stop_at = stop_at;
    o.resume = resume;
    o.report = &listener;
    o.lock = run_lock;
    o.sampler_threads = 1;
    o.val = held_out.n_cases ? &held_out : NULL;
    *test_told = '\0';
    io = run_with;
    int result = train_run(&r, &o, e);
    io = &quick;
    return result;
}

static int train(const char *run, int resume, int threads, struct error *e)
{
    struct device *dev = tiny_device(threads, PRECISION_F32);
    int result = train_on(dev, run, resume, e);
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
    loss_weight = 1.0;
    io = run_with = &quick;
    run_lock = 0;
    case_store_free(&held_out);
    return 0;
}

/* ---- the power fails [P02] ------------------------------------------------------------------------- */

/* A file on its way to its name. Up to its fsync the disk may hold anything of it; up to the fsync of the
 * folder the disk may hold the old name, the new one or neither. "old" keeps what the rename replaces. */
static struct pending {
    int fd, folder; /* descriptors; -1 */
    int active, synced, renamed, had_old;
    char temp[200], name[200];
    int calls, die_at;
    int64_t durable; /* steps done at the last checkpoint that must survive */
} * disk;

static void maybe_die(void)
{
    if (disk->calls++ == disk->die_at)
        _exit(99);
}
static int p_open(const char *path, int flags, mode_t mode)
{
    if (!(flags & (O_WRONLY | O_DIRECTORY)))
        return io_posix.open(path, flags, mode);
    maybe_die();
    int fd = io_posix.open(path, flags, mode);
    if (flags & O_DIRECTORY) {
        disk->folder = fd;
        disk->fd = -1; /* closed, and the number may be the folder's now */
        return fd;
    }
    if (disk->active && disk->renamed)
        _exit(98); /* the next file is begun before the last one's name is safe */
    disk->fd = fd;
    disk->active = 1;
    disk->synced = disk->renamed = disk->had_old = 0;
    snprintf(disk->temp, sizeof disk->temp, "%s", path);
    return fd;
}
static ssize_t p_write(int fd, const void *bytes, size_t n)
{
    disk->synced = 0;
    return io_posix.write(fd, bytes, n);
}
static int p_fsync(int fd)
{
    maybe_die();
    if (fd == disk->fd) {
        disk->synced = 1;
    } else if (fd == disk->folder && disk->renamed) {
        disk->active = 0;
        if (strstr(disk->name, "checkpoint-"))
            disk->durable = heard.done;
    }
    return 0;
}
static int p_rename(const char *from, const char *to)
{
    maybe_die();
    unlink("old");
    disk->had_old = link(to, "old") == 0;
    disk->renamed = 1;
    snprintf(disk->name, sizeof disk->name, "%s", to);
    return io_posix.rename(from, to);
}
static const struct io_ops power = {p_open, read, p_write, p_fsync, close, p_rename, unlink, mkdir, lstat};

/* 1 if the power failed at call n, 0 if the run came to its end before. */
static int power_fails_at(int n)
{
    *disk = (struct pending){.fd = -1, .folder = -1, .die_at = n};
    pid_t pid = fork();
    if (pid == 0) {
        struct error e = {.text = ""};
        run_with = &power;
        int result = train("run", 0, 1, &e);
        if (result < 0)
            fprintf(stderr, "child: %s [%s]\n", e.text, e.id);
        _exit(result < 0 ? 1 : 0);
    }
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 99)
        test_fail("the run ended with %d", WEXITSTATUS(status));
    return WEXITSTATUS(status) == 99;
}

/* The first `keep` of the file's bytes stay, the rest up to `length` (a share of it) is zero. */
static void damage(const char *path, double keep, double length)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, (off_t)(keep * (double)st.st_size)), 0);
    assert_int_equal(truncate(path, (off_t)(length * (double)st.st_size)), 0);
}

/* Makes state number `which` of those the disk may be in; 0 if there are no more. State 0 is what the kernel
 * had in memory. */
static int disk_state(int which)
{
    if (which == 0)
        return 1;
    if (disk->renamed) { /* the new name did not get there; the file itself may have */
        if (which > 2)
            return 0;
        assert_true(disk->synced); /* else the new name could lead to nothing */
        assert_int_equal(which == 1 ? rename(disk->name, disk->temp) : unlink(disk->name), 0);
        if (disk->had_old)
            assert_int_equal(link("old", disk->name), 0);
        return 1;
    }
    if (which == 1)
        return unlink(disk->temp) == 0;
    if (disk->synced || which > 4)
        return 0;
    damage(disk->temp, which == 4 ? 0.4 : 0.0, which == 2 ? 0.0 : which == 3 ? 1.0 : 0.7);
    return 1;
}

/* Every call may be the last one, and for each of them every state the disk may be in. */
static void the_power_fails(void **state)
{
    (void)state;
    struct error e;
    set.steps = 5;
    int64_t total = 5 + 2 + 3;
    uint64_t want = reference();
    int states = 0;
    for (int n = 0;; n++) {
        for (int which = 0;; which++) {
            fresh_folder("run");
            if (!power_fails_at(n)) {
                test_tally("kills", states);
                assert_true(states > 100);
                return;
            }
            if (!disk->active || !disk_state(which))
                break;
            assert_ok(train("run", 1, 1, &e), e);
            assert_true(heard.steps <= total - disk->durable); /* nothing older was needed */
            assert_true(result_of("run") == want);
            assert_not_reported(REPORT_WARNING, "K01");
            assert_false(io_exists(disk->temp));
            states++;
        }
    }
}

/* A disk that lies about fsync may lose the newest file as well: the other one gives the same bits. */
static void the_disk_lies(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    static const struct {
        double keep, length;
    } lost[] = {{0, 0}, {0, 1}, {0.3, 0.9}};
    for (int i = 0; i < 3; i++)
        for (int file = 0; file < 2; file++) {
            heard.stop_at = 7;
            fresh_folder("run");
            assert_refused(train("run", 0, 1, &e), e, ERR_STOPPED, "P11");
            damage(file ? "run/checkpoint-a.safetensors" : "run/checkpoint-b.safetensors", lost[i].keep,
                   lost[i].length);
            heard.stop_at = -1;
            assert_ok(train("run", 1, 1, &e), e);
            assert_reported(REPORT_WARNING, "K01");
            assert_true(result_of("run") == want);
            test_tally("kills", 1);
        }
}

/* ---- the folder goes away [P07] -------------------------------------------------------------------- */

static int saves_left;  /* checkpoints until the folder goes */
static int put_another; /* whether another takes its place */
static int gone_rename(const char *from, const char *to)
{
    int result = io_posix.rename(from, to);
    if (--saves_left == 0) {
        assert_int_equal(rename("run", "moved"), 0);
        if (put_another)
            assert_int_equal(mkdir("run", 0777), 0);
    }
    return result;
}
static const struct io_ops gone = {quick_open,  read,   write, quick_fsync, close,
                                   gone_rename, unlink, mkdir, lstat};

static void a_folder_that_goes_away_ends_the_run(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    for (int n = 1; n <= 9; n += 2)
        for (put_another = 0; put_another < 2; put_another++) {
            struct io_listing l;
            io_remove_tree("moved");
            fresh_folder("run");
            assert_ok(io_lock_folder(&run_lock, "run", &e), e);
            saves_left = n;
            run_with = &gone;
            assert_refused(train("run", 0, 1, &e), e, ERR_SYSTEM, "P07");
            assert_true(text_starts_with(e.text, "run: "));
            run_with = &quick;
            if (put_another) { /* nothing was written into what has the name now */
                assert_ok(io_list(&l, "run", &e), e);
                assert_int_equal(l.n, 0);
                io_listing_free(&l);
            }
            io_unlock_folder(run_lock);
            run_lock = 0;
            assert_ok(train("moved", 1, 1, &e), e); /* goes on where it is now */
            assert_true(result_of("moved") == want);
            test_tally("kills", 1);
        }
}

/* ---- someone reads along [P10] --------------------------------------------------------------------- */

/* Whether the file can be read whole, if it is there. */
static void must_be_whole(const char *path, struct device *dev)
{
    struct error e;
    struct params *p = NULL;
    struct net_definition def;
    if (!io_exists(path))
        return;
    assert_ok(model_read(&p, &def, path, dev, &e), e);
    params_free(p);
}

static void readers_see_whole_generations(void **state)
{
    (void)state;
    struct error e;
    struct device *dev = tiny_device(1, PRECISION_F32);
    int64_t last = -1;
    int looks = 0, found = 0, status = 0;
    set.steps = 120;
    set.stages = 1;
    set.val_every = 2;
    tiny_cases(&held_out, 1, 0, 77);
    fresh_folder("run");
    pid_t pid = fork();
    if (pid == 0) {
        struct device *own_device = tiny_device(1, PRECISION_F32);
        struct train_options o = tiny_options(&set, &cases, own_device, "run");
        struct train_result r;
        o.checkpoint_every = 1;
        o.val = &held_out;
        _exit(train_run(&r, &o, &e) < 0);
    }
    *test_told = '\0';
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct checkpoint_files files;
        struct st_file f = {.n_tensors = 0};
        struct counters at;
        int there = checkpoint_open(&f, &files, "run", &listener, &e);
        if (there < 0)
            test_fail("look %d: %s [%s]", looks, e.text, e.id);
        if (there) {
            assert_ok(checkpoint_counters(&at, &f, &e), e);
            assert_true(at.step >= last); /* never back to an older one */
            last = at.step;
        }
        st_free(&f);
        must_be_whole("run/best.safetensors", dev);
        looks++;
        found += there;
    }
    assert_int_equal(status, 0);
    assert_string_equal(test_told, ""); /* nothing looked damaged */
    assert_true(found > 10);
    device_close(dev);
}

/* ---- clocks [P14] ---------------------------------------------------------------------------------- */

static void checkpoints_know_no_time_of_day(void **state)
{
    (void)state;
    struct error e;
    static const char *const files[] = {"checkpoint-a.safetensors", "checkpoint-b.safetensors",
                                        "model.safetensors", "stage1.safetensors", "best.safetensors"};
    tiny_cases(&held_out, 1, 0, 77);
    set.val_every = 3;
    uint64_t want = reference();
    wall_jump = TEN_YEARS;
    wall_asked = monotonic_asked = 0;
    setenv("TZ", "Pacific/Kiritimati", 1);
    tzset();
    fresh_folder("run");
    assert_ok(train("run", 0, 1, &e), e);
    assert_int_equal(wall_asked, 0); /* intervals are of the steady clock */
    assert_true(monotonic_asked > 14);
    assert_true(result_of("run") == want);
    for (int i = 0; i < 5; i++)
        assert_true(hash_of("run", files[i]) == hash_of("reference", files[i]));
    assert_true(llabs((long long)time(NULL) - (long long)time(NULL)) > TEN_YEARS); /* they did jump */
    wall_jump = 0;
    unsetenv("TZ");
    tzset();
}

/* ---- threads [P18] --------------------------------------------------------------------------------- */

static void refused_threads_change_no_bit(void **state)
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    /* of 3 in the pool and, in every phase, 1 in the sampler */
    for (int n = 0; n < 5; n++) {
        threads_left = n;
        fresh_folder("run");
        struct device *dev = tiny_device(4, PRECISION_F32);
        assert_int_equal(pool_threads(dev->pool), n < 3 ? n + 1 : 4);
        int result = train_on(dev, "run", 0, &e);
        device_close(dev);
        assert_int_equal(threads_left, 0);
        threads_left = -1;
        assert_ok(result, e);
        assert_true(result_of("run") == want);
    }
}

/* ---- arithmetic ------------------------------------------------------------------------------------ */

/* A caller that rounds towards zero and flushes denormals, as programs built with -ffast-math do. */
static void the_callers_arithmetic_changes_no_bit(void **state) /* M13 */
{
    (void)state;
    struct error e;
    uint64_t want = reference();
    struct float_mode before;
    float_mode_begin(&before);
    volatile float tiny = 1e-40f;
    assert_true(tiny * 0.5f > 0.0f); /* denormals are kept */
    for (int threads = 1; threads <= 2; threads++) {
        fesetround(FE_TOWARDZERO);
#ifdef __x86_64__
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* flush results, read as zero */
        assert_true(tiny * 0.5f == 0.0f);
#endif
        fresh_folder("run");
        int result = train("run", 0, threads, &e);
        assert_int_equal(fegetround(), FE_TOWARDZERO); /* the caller has its own back */
#ifdef __x86_64__
        assert_true(tiny * 0.5f == 0.0f);
#endif
        float_mode_begin(NULL);
        assert_ok(result, e);
        assert_true(result_of("run") == want);
    }
    float_mode_end(&before);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(the_power_fails),
        TEST(the_disk_lies),
        TEST(a_folder_that_goes_away_ends_the_run),
        TEST(readers_see_whole_generations),
        TEST(checkpoints_know_no_time_of_day),
        TEST(refused_threads_change_no_bit),
        TEST(the_callers_arithmetic_changes_no_bit),
    };
    tiny_cases(&cases, 4, 3, 5);
    disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int result = disk == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
    case_store_free(&cases);
    case_store_free(&held_out);
    return result;
}
