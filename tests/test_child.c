/* test_child.c - whatever a child does, the parent gets an answer in time. The shell plays the bad
 * child.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"

#include <cmocka.h>

static const struct child_limits roomy = {
    .memory_bytes = (uint64_t)1 << 30,
    .file_bytes = 1 << 20,
    .output_bytes = 1 << 16,
    .cpu_seconds = 5,
    .open_files = 32,
    .wall_ms = 10000,
};

struct outcome {
    char out[4096]; /* what it said, NUL-terminated */
    int64_t n;
    struct child_end end;
    double seconds;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs a line of shell to its end. */
static struct outcome shell(const char *line, const struct child_limits *l)
{
    struct outcome o = {.n = 0};
    struct error e;
    struct child *c = NULL;
    char *argv[] = {"sh", "-c", (char *)line, NULL};
    double start = now();
    assert_int_equal(child_start(&c, argv, NULL, l, &e), 0);
    o.n = child_read(c, o.out, sizeof o.out - 1, &e);
    assert_true(o.n >= 0);
    child_finish(&o.end, c);
    o.seconds = now() - start;
    return o;
}

static void test_output_and_status(void **state)
{
    (void)state;
    struct outcome o = shell("echo hello; exit 7", &roomy);
    assert_string_equal(o.out, "hello\n");
    assert_int_equal(o.end.fate, CHILD_EXITED);
    assert_int_equal(o.end.code, 7);
}

static void test_crash_is_a_signal(void **state)
{
    (void)state;
    struct outcome o = shell("kill -SEGV $$", &roomy);
    assert_int_equal(o.end.fate, CHILD_SIGNALLED);
    assert_int_equal(o.end.code, SIGSEGV);
}

static void test_missing_program(void **state)
{
    (void)state;
    struct error e;
    struct child *c = NULL;
    struct child_end end;
    char *argv[] = {"falx-no-such-program", NULL};
    assert_int_equal(child_start(&c, argv, NULL, &roomy, &e), 0);
    child_finish(&end, c);
    assert_int_equal(end.fate, CHILD_EXITED);
    assert_int_equal(end.code, CHILD_NOT_FOUND);
}

/* Killed is not yet gone: on a busy machine the kernel takes a while to end a process. */
static int dies_within_seconds(int pid, int seconds)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int i = 0; i < seconds * 100; i++, nanosleep(&nap, NULL)) {
        char state_of = 'X';
        FILE *f = fopen(path, "r");
        if (f) {
            if (fscanf(f, "%*d %*s %c", &state_of) != 1)
                state_of = 'X';
            fclose(f);
        }
        if (state_of == 'X' || state_of == 'Z') /* gone, or waiting for init to reap it */
            return 1;
    }
    return 0;
}

/* The deadline also reaches what the child itself started, and a child that closed its stdout. */
static void test_deadline_kills_the_group(void **state)
{
    (void)state;
    struct child_limits l = roomy;
    l.wall_ms = 300;
    struct outcome o = shell("sleep 77 & echo $!; wait", &l);
    assert_int_equal(o.end.fate, CHILD_OUT_OF_TIME);
    assert_in_range((int)(o.seconds * 1000), 280, 30000);
    assert_true(dies_within_seconds(atoi(o.out), 20));
    o = shell("exec >&-; sleep 77", &l);
    assert_int_equal(o.end.fate, CHILD_OUT_OF_TIME);
    assert_in_range((int)(o.seconds * 1000), 280, 30000);
}

static void test_cpu_limit(void **state)
{
    (void)state;
    struct child_limits l = roomy;
    l.cpu_seconds = 1;
    l.wall_ms = 60000;
    struct outcome o = shell("while :; do :; done", &l);
    assert_int_equal(o.end.fate, CHILD_OUT_OF_CPU);
    assert_in_range((int)(o.seconds * 1000), 900, 30000);
}

/* The program may raise its own CPU limit, up to the most that was granted. */
static void test_cpu_limit_may_grow(void **state)
{
    (void)state;
    struct child_limits l = roomy;
    l.cpu_seconds = 1;
    l.cpu_seconds_most = 3;
    struct outcome o = shell("ulimit -S -t; ulimit -H -t; ulimit -S -t 3; ulimit -S -t; "
                             "ulimit -S -t 5",
                             &l);
    assert_string_equal(o.out, "1\n4\n3\n"); /* SIGKILL one second after the last SIGXCPU */
    assert_int_not_equal(o.end.code, 0);
}

static void test_too_much_output(void **state)
{
    (void)state;
    struct child_limits l = roomy;
    l.output_bytes = 1000;
    struct outcome o = shell("yes", &l);
    assert_int_equal(o.n, 1000);
    assert_int_equal(o.end.fate, CHILD_TOO_LOUD);
    o = shell("head -c 1000 /dev/zero", &l);
    assert_int_equal(o.n, 1000);
    assert_int_equal(o.end.fate, CHILD_EXITED);
}

static void test_other_limits(void **state)
{
    (void)state;
    struct outcome o = shell("ulimit -c; ulimit -n; ulimit -f; ulimit -v", &roomy);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    assert_string_equal(o.out, "0\n32\n2048\nunlimited\n");
#else
    assert_string_equal(o.out, "0\n32\n2048\n1048576\n"); /* blocks of 512 bytes, KiB */
    o = shell("dd if=/dev/zero of=/dev/null bs=1100M count=1", &roomy);
    assert_int_equal(o.end.fate, CHILD_EXITED);
    assert_int_not_equal(o.end.code, 0);
#endif
}

/* stdin is empty, nothing is inherited, the environment is the short list. */
static void test_surroundings(void **state)
{
    (void)state;
    setenv("FALX_TEST_SECRET", "secret", 1);
    struct outcome o = shell("cat; ls /proc/self/fd | wc -l; echo \"$HOME $FALX_TEST_SECRET.\"", &roomy);
    unsetenv("FALX_TEST_SECRET");
    assert_string_equal(o.out, "4\n/ .\n"); /* 0, 1, 2 and the one ls opens */
}

static void test_kill_at_once(void **state)
{
    (void)state;
    struct error e;
    struct child *c = NULL;
    char *argv[] = {"sleep", "77", NULL};
    double start = now();
    assert_int_equal(child_start(&c, argv, NULL, &roomy, &e), 0);
    child_kill(c);
    child_kill(NULL);
    assert_true(now() - start < 5);
}

static void test_helpers_are_found(void **state)
{
    (void)state;
    struct error e;
    char *path = NULL, *folder = NULL, *mine = NULL;
    assert_int_equal(child_find_helper(&path, "falx-limit", &e), 0);
    assert_true(text_ends_with(path, "/falx-limit"));
    mem_free(path);
    assert_int_equal(child_find_helper(&path, "falx-no-such-helper", &e), -1);
    assert_int_equal(e.code, ERR_SYSTEM);
    assert_int_equal(io_temp_folder(&folder, &e), 0);
    mine = path_join(&e, folder, "falx-limit");
    assert_int_equal(io_write_all(mine, 0700, "#!/bin/sh\n", 10, &e), 0);
    assert_int_equal(chmod(mine, 0700), 0);
    setenv("FALX_HELPERS", folder, 1);
    assert_int_equal(child_find_helper(&path, "falx-limit", &e), 0);
    unsetenv("FALX_HELPERS");
    assert_string_equal(path, mine);
    io_remove_tree(folder);
    mem_free(path);
    mem_free(mine);
    mem_free(folder);
}

/* Each allocation of a start fails once: an error, no process, no leak of a descriptor. */
static void test_no_memory(void **state)
{
    (void)state;
    char *argv[] = {"true", NULL};
    for (int64_t n = 0;; n++) {
        struct error e = {ERR_NONE, "", ""};
        struct child *c = NULL;
        mem_fail_at(n, 0);
        int rc = child_start(&c, argv, NULL, &roomy, &e);
        mem_fail_at(-1, 0);
        if (rc == 0) {
            child_kill(c);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(e.code, ERR_MEMORY);
    }
}

/* The path leads to the file that is running. */
static void test_self_is_found(void **state)
{
    (void)state;
    struct error e = {ERR_NONE, "", ""};
    struct stat mine, found;
    char *path = NULL;
    assert_int_equal(child_find_self(&path, &e), 0);
    assert_int_equal(stat("/proc/self/exe", &mine), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_true(mine.st_ino == found.st_ino && mine.st_dev == found.st_dev);
    mem_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_and_status), cmocka_unit_test(test_crash_is_a_signal),
        cmocka_unit_test(test_missing_program),   cmocka_unit_test(test_deadline_kills_the_group),
        cmocka_unit_test(test_cpu_limit),         cmocka_unit_test(test_cpu_limit_may_grow),
        cmocka_unit_test(test_too_much_output),   cmocka_unit_test(test_other_limits),
        cmocka_unit_test(test_surroundings),      cmocka_unit_test(test_kill_at_once),
        cmocka_unit_test(test_helpers_are_found), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_self_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
