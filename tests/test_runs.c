/* The run store: what is flushed is there after a kill, readers never see half of it, strangers'
 * and damaged files are refused by one line. sqlite3 itself is used as the other program. */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runs/runs.h"

static struct runs *open_or_die(const char *path)
{
    struct runs *r;
    struct error e;
    assert_ok(runs_open(&r, path, &e), e);
    return r;
}

static struct runs *reading(const char *path)
{
    struct runs *r;
    struct error e;
    assert_ok(runs_open_reading(&r, path, &e), e);
    return r;
}

static void add(struct runs *r, int phase, int64_t step, const char *name, double value)
{
    struct error e;
    assert_ok(runs_add_step(r, phase, step, name, value, &e), e);
}

static int count(struct runs *r, const char *name)
{
    struct runs_curve c;
    struct error e;
    assert_ok(runs_curve(&c, r, name, &e), e);
    int n = c.n;
    runs_curve_free(&c);
    return n;
}

/* The first number a query answers, asked as a user would. */
static double ask(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    double answer = sqlite3_column_double(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return answer;
}

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void numbers_come_back(void **state)
{
    (void)state;
    struct runs *r = open_or_die("a.sqlite");
    struct error e;
    struct runs_curve c;
    for (int64_t step = 2; step >= 0; step--) { /* in any order */
        add(r, 1, step, "loss", 0.1 * (double)step);
        add(r, 0, step, "loss", (double)(1 + step) / 3);
        add(r, 0, step, "bcl", NAN);
    }
    assert_ok(runs_flush(r, &e), e);
    assert_ok(runs_curve(&c, r, "loss", &e), e);
    assert_int_equal(c.n, 6);
    for (int i = 0; i < 6; i++) {
        assert_true(c.phase[i] == i / 3 && c.step[i] == i % 3);
        assert_true(c.value[i] == (i < 3 ? (double)(1 + i) / 3 : 0.1 * (double)(i - 3))); /* to the bit */
    }
    runs_curve_free(&c);
    assert_ok(runs_curve(&c, r, "bcl", &e), e);
    assert_true(c.n == 3 && isnan(c.value[1]));
    runs_curve_free(&c);
    assert_int_equal(count(r, "'; DROP TABLE steps; --"), 0);
    char **names;
    int n;
    assert_ok(runs_names(&names, &n, r, &e), e);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "bcl");
    assert_string_equal(names[1], "loss");
    for (int i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
    add(r, 0, 1, "loss", 42); /* a step done again replaces what was there */
    assert_ok(runs_set_fact(r, "method", "aua", &e), e);
    assert_ok(runs_set_fact(r, "method", "it's aua", &e), e);
    runs_close(r); /* flushes */
    assert_true(ask("a.sqlite", "SELECT value FROM steps WHERE phase=0 AND step=1 AND name='loss'") == 42);
    assert_true(ask("a.sqlite", "SELECT count(*) FROM facts WHERE key='method' AND value='it''s aua'") == 1);
    assert_false(io_exists("a.sqlite-wal") || io_exists("a.sqlite-journal"));
}

static void validation_is_the_mean_of_foreground(void **state)
{
    (void)state;
    struct runs *r = open_or_die("v.sqlite");
    struct error e;
    struct runs_curve c;
    const double dice[2][4] = {{0.99, 0.5, 0.75, NAN}, {0.98, NAN, NAN, NAN}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++)
            assert_ok(runs_add_validation(r, 0, 100 * (i + 1), k, dice[i][k], &e), e);
    assert_ok(runs_flush(r, &e), e);
    assert_ok(runs_validation(&c, r, &e), e);
    assert_true(c.n == 2 && c.step[0] == 100 && c.step[1] == 200);
    assert_true(c.value[0] == 0.625 && isnan(c.value[1]));
    runs_curve_free(&c);
    runs_close(r);
}

static void a_resume_forgets_what_comes_again(void **state)
{
    (void)state;
    struct runs *r = open_or_die("f.sqlite");
    struct error e;
    for (int phase = 0; phase < 3; phase++)
        for (int64_t step = 1; step <= 10; step++) {
            add(r, phase, step, "loss", 1);
            if (step % 5 == 0)
                assert_ok(runs_add_validation(r, phase, step, 1, 0.5, &e), e);
            if (phase == 1 && step == 7)
                assert_ok(runs_flush(r, &e), e); /* half in the file, half in memory */
        }
    assert_ok(runs_forget_after(r, 1, 8, &e), e);
    assert_ok(runs_flush(r, &e), e);
    assert_int_equal(count(r, "loss"), 18);
    assert_ok(runs_forget_after(r, 1, 4, &e), e);
    assert_int_equal(count(r, "loss"), 14);
    assert_true(ask("f.sqlite", "SELECT count(*) FROM validation") == 2);
    assert_ok(runs_forget_after(r, 0, -1, &e), e);
    assert_int_equal(count(r, "loss"), 0);
    runs_close(r);
}

/* Flushes 50 steps at a time for ever; tells through the pipe when the first are there. */
static _Noreturn void write_until_killed(int phase, int tell)
{
    struct runs *r;
    struct error e;
    if (runs_open(&r, "k.sqlite", &e) < 0)
        _exit(1);
    for (int64_t step = 0;; step++) {
        if (runs_add_step(r, phase, step, "loss", 1, &e) < 0)
            _exit(1);
        if (step % 50 == 49 && runs_flush(r, &e) < 0)
            _exit(1);
        if (step == 49 && write(tell, "", 1) != 1)
            _exit(1);
    }
}

static void a_kill_leaves_whole_flushes(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        int tell[2], status;
        char byte;
        assert_int_equal(pipe(tell), 0);
        pid_t pid = fork();
        if (pid == 0)
            write_until_killed(round, tell[1]);
        close(tell[1]);
        assert_int_equal(read(tell[0], &byte, 1), 1);
        close(tell[0]);
        usleep((useconds_t)(731 * round));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        struct runs *r = open_or_die("k.sqlite");
        assert_int_equal(count(r, "loss") % 50, 0);
        assert_true(count(r, "loss") >= 50 * (round + 1));
        runs_close(r);
        assert_false(io_exists("k.sqlite-journal"));
        test_tally("kills", 1);
    }
}

/* Reader and writer in two processes: the reader sees whole flushes only, growing. */
static void a_reader_beside_a_writer(void **state)
{
    (void)state;
    runs_close(open_or_die("w.sqlite"));
    pid_t pid = fork();
    if (pid == 0) {
        struct runs *r;
        struct error e;
        int bad = runs_open(&r, "w.sqlite", &e);
        for (int64_t step = 0; bad == 0 && step < 40 * 25; step++) {
            bad = runs_add_step(r, 0, step, "loss", 1, &e);
            if (bad == 0 && step % 25 == 24)
                bad = runs_flush(r, &e);
        }
        if (bad == 0)
            runs_close(r);
        _exit(bad ? 1 : 0);
    }
    int before = 0, status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct runs *r = reading("w.sqlite");
        int n = count(r, "loss");
        assert_true(n >= before && n % 25 == 0);
        before = n;
        runs_close(r);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct runs *r = reading("w.sqlite");
    assert_int_equal(count(r, "loss"), 1000);
    struct error e;
    add(r, 0, 1, "loss", 2);
    assert_int_equal(runs_flush(r, &e), -1); /* reading only */
    runs_close(r);
}

/* Someone keeps a read transaction open: nothing is lost, training goes on, rows arrive later. */
static void a_lock_delays_rows_but_loses_none(void **state)
{
    (void)state;
    struct runs *r = open_or_die("l.sqlite");
    struct error e;
    sqlite3 *db;
    add(r, 0, 0, "loss", 1);
    assert_ok(runs_flush(r, &e), e);
    assert_int_equal(sqlite3_open("l.sqlite", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM steps;", NULL, NULL, NULL), SQLITE_OK);
    add(r, 0, 1, "loss", 1);
    assert_ok(runs_flush(r, &e), e);
    assert_refused(runs_forget_after(r, 0, 0, &e), e, ERR_BUSY, "");
    add(r, 0, 2, "loss", 1);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_ok(runs_flush(r, &e), e);
    assert_int_equal(count(r, "loss"), 2); /* step 1 was forgotten while it waited, step 2 is new */
    runs_close(r);
}

static void one_line(const struct error *e, const char *path)
{
    assert_says(e->text, path);
    assert_null(strchr(e->text, '\n'));
}

static void refused_both_ways(const char *path, enum error_code code)
{
    struct runs *r;
    struct error e;
    assert_int_equal(runs_open(&r, path, &e), -1);
    assert_null(r);
    assert_int_equal(e.code, code);
    one_line(&e, path);
    assert_int_equal(runs_open_reading(&r, path, &e), -1);
    assert_null(r);
    assert_int_equal(e.code, code);
    one_line(&e, path);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    struct runs *r;
    struct error e;
    assert_ok(io_write_all("text.sqlite", 0666, "these are not pages of a database, are they?", 44, &e), e);
    refused_both_ways("text.sqlite", ERR_DATA);
    execute("other.sqlite", "CREATE TABLE steps(a, b)");
    refused_both_ways("other.sqlite", ERR_DATA);
    execute("newer.sqlite", "CREATE TABLE steps(a); PRAGMA application_id=1717660792; PRAGMA user_version=2");
    refused_both_ways("newer.sqlite", ERR_BUSY);
    assert_int_equal(mkdir("folder.sqlite", 0777), 0);
    refused_both_ways("folder.sqlite", ERR_DATA);
    assert_int_equal(mkfifo("fifo.sqlite", 0666), 0);
    refused_both_ways("fifo.sqlite", ERR_DATA);
    assert_refused(runs_open_reading(&r, "missing.sqlite", &e), e, ERR_SYSTEM, "Z12");
    assert_refused(runs_open(&r, "nowhere/a.sqlite", &e), e, ERR_SYSTEM, "P05");
    assert_false(io_exists("missing.sqlite"));
    assert_ok(io_write_all("empty.sqlite", 0666, "", 0, &e), e);
    assert_refused(runs_open_reading(&r, "empty.sqlite", &e), e, ERR_DATA, "");
    runs_close(open_or_die("empty.sqlite")); /* a writer may begin there */
    runs_close(reading("empty.sqlite"));
    /* our mark on tables that are not ours: refused at use, not a crash */
    execute("marked.sqlite", "CREATE TABLE steps(a); PRAGMA application_id=1717660792");
    struct runs_curve c;
    assert_ok(runs_open_reading(&r, "marked.sqlite", &e), e);
    assert_refused(runs_curve(&c, r, "loss", &e), e, ERR_DATA, "");
    one_line(&e, "marked.sqlite");
    runs_close(r);
}

/* Any damage is refused or read as a sound file; never a crash or a hang. */
static void damage_is_survived(void **state)
{
    (void)state;
    struct runs *r = open_or_die("d.sqlite");
    struct error e;
    for (int64_t step = 0; step < 300; step++)
        add(r, 0, step, "loss", 1);
    runs_close(r);
    static char sound[1 << 16], bad[1 << 16];
    int fd, refused = 0;
    uint64_t n;
    assert_ok(io_open_regular(&fd, &n, "d.sqlite", &e), e);
    assert_true(n <= sizeof sound);
    assert_int_equal(io_read_full(fd, sound, n), n);
    io->close(fd);
    for (int round = 0; round < 150; round++) {
        memcpy(bad, sound, n);
        uint64_t cut = n;
        if (round < 50) /* ends early */
            cut = n * (uint64_t)round / 50;
        else /* or has a stretch overwritten */
            memset(bad + (n - 64) * (uint64_t)(round - 50) / 100, round & 1 ? 0xFF : 0, 64);
        assert_ok(io_write_all("bad.sqlite", 0666, bad, cut, &e), e);
        struct runs_curve c;
        int result = runs_open_reading(&r, "bad.sqlite", &e);
        if (result == 0) {
            result = runs_curve(&c, r, "loss", &e);
            if (result == 0)
                runs_curve_free(&c);
            runs_close(r);
        }
        if (result < 0)
            one_line(&e, "bad.sqlite");
        refused += result < 0;
    }
    assert_true(refused > 60);
}

/* In a child whose files may not grow: a system error, and the old rows stay. */
static void a_full_disk_is_a_system_error(void **state)
{
    (void)state;
    struct runs *r = open_or_die("full.sqlite");
    struct error e;
    add(r, 0, 0, "loss", 1);
    runs_close(r);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {64 << 10, 64 << 10};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        if (runs_open(&r, "full.sqlite", &e) < 0)
            _exit(1);
        for (int64_t step = 1; step < 10000; step++)
            if (runs_add_step(r, 0, step, "loss", 1, &e) < 0)
                _exit(2);
        int ok = runs_flush(r, &e) == -1 && e.code == ERR_SYSTEM && strstr(e.text, "full.sqlite");
        runs_close(r);
        _exit(ok ? 0 : 3);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    r = open_or_die("full.sqlite");
    assert_int_equal(count(r, "loss"), 1);
    runs_close(r);
}

static void lost_memory_is_an_error(void **state)
{
    (void)state;
    struct error e;
    int failures = 0, status = -1;
    for (int n = 0; n < 100 && status < 0; n++) {
        struct runs *r = NULL;
        struct runs_curve c = {0};
        mem_fail_at(n, 0);
        if (runs_open(&r, "m.sqlite", &e) == 0 && runs_add_step(r, 0, 1, "loss", 1, &e) == 0 &&
            runs_set_fact(r, "a", "b", &e) == 0 && runs_flush(r, &e) == 0)
            status = runs_curve(&c, r, "loss", &e);
        mem_fail_at(-1, 0);
        if (status < 0) {
            assert_int_equal(e.code, ERR_MEMORY);
            failures++;
        }
        runs_curve_free(&c);
        runs_close(r);
    }
    assert_in_range(failures, 8, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(validation_is_the_mean_of_foreground),
        cmocka_unit_test(a_resume_forgets_what_comes_again),
        cmocka_unit_test(a_kill_leaves_whole_flushes),
        cmocka_unit_test(a_reader_beside_a_writer),
        cmocka_unit_test(a_lock_delays_rows_but_loses_none),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(a_full_disk_is_a_system_error),
        cmocka_unit_test(lost_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
