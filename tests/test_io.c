/* test_io.c - atomic writes under failure and sudden death at every system call; the bounded cursor over
 * files that misbehave. The table of system calls is replaced, so nothing here depends on luck.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/io.h"
#include "base/source.h"
#include "test.h"

static char *folder;

static int setup(void **state)
{
    (void)state;
    return io_temp_folder(&folder, NULL);
}

static int teardown(void **state)
{
    (void)state;
    io = &io_posix;
    io_remove_tree(folder);
    mem_free(folder);
    return 0;
}

static void path_of(char out[300], const char *name)
{
    snprintf(out, 300, "%s/%s", folder, name);
}

/* ---- a table that fails, or kills the process, at one call ------------------------------------- */

static int calls, trap, trap_errno; /* trap_errno 0: SIGKILL */

static int trapped(void)
{
    if (calls++ != trap)
        return 0;
    if (trap_errno == 0)
        raise(SIGKILL);
    errno = trap_errno;
    return 1;
}

static int t_open(const char *p, int f, mode_t m)
{
    return trapped() ? -1 : io_posix.open(p, f, m);
}
static ssize_t t_read(int fd, void *o, size_t n)
{
    return trapped() ? -1 : io_posix.read(fd, o, n);
}
static ssize_t t_write(int fd, const void *b, size_t n)
{
    return trapped() ? -1 : io_posix.write(fd, b, n > 7 ? 7 : n); /* short writes, always */
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
static const struct io_ops traps = {t_open,   t_read, t_write, t_fsync, t_close,
                                    t_rename, unlink, mkdir,   lstat};

static const char old_text[] = "the old content of the file", new_text[] = "quite another content!";

static void assert_file_is(const char *path, const char *a, const char *b)
{
    char *text;
    struct error e;
    io = &io_posix;
    assert_ok(io_read_text(&text, NULL, path, 1000, &e), e);
    if (strcmp(text, a) != 0)
        assert_string_equal(text, b);
    mem_free(text);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    char path[300];
    struct error e;
    path_of(path, "a.txt");
    assert_ok(io_write_all(path, 0666, old_text, strlen(old_text), &e), e);
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT};
    for (size_t k = 0; k < 4; k++)
        for (trap = 0;; trap++) {
            calls = 0;
            trap_errno = errors[k];
            io = &traps;
            int result = io_write_all(path, 0666, new_text, strlen(new_text), &e);
            int done = calls;
            io = &io_posix;
            if (result == 0 && done <= trap)
                break; /* ran to the end without meeting the trap */
            struct io_listing l;
            assert_ok(io_list(&l, folder, &e), e);
            assert_int_equal(l.n, 1); /* no temporary file stays behind */
            io_listing_free(&l);
            assert_file_is(path, old_text, new_text);
            if (result < 0)
                assert_int_equal(e.code, ERR_SYSTEM);
            assert_ok(io_write_all(path, 0666, old_text, strlen(old_text), &e), e);
        }
    assert_true(trap >= 6);
}

static void sudden_death_leaves_a_whole_file(void **state)
{
    (void)state;
    char path[300];
    struct error e;
    path_of(path, "b.txt");
    int finished = 0;
    for (trap = 0; !finished; trap++) {
        assert_ok(io_write_all(path, 0666, old_text, strlen(old_text), &e), e);
        pid_t pid = fork();
        if (pid == 0) {
            calls = 0;
            trap_errno = 0;
            io = &traps;
            _exit(io_write_all(path, 0666, new_text, strlen(new_text), &e) < 0);
        }
        int status;
        waitpid(pid, &status, 0);
        finished = WIFEXITED(status);
        assert_file_is(path, old_text, new_text);
    }
    assert_true(trap >= 6);
    assert_file_is(path, new_text, new_text);
}

static void eintr_is_retried_and_eio_reported(void **state)
{
    (void)state;
    char path[300], out[64];
    struct error e;
    struct source *s;
    path_of(path, "c.txt");
    assert_ok(io_write_all(path, 0666, old_text, strlen(old_text), &e), e);
    for (trap = 1; trap < 3; trap++) {
        calls = 0;
        trap_errno = EINTR;
        io = &traps;
        assert_ok(source_open(&s, path, &e), e);
        assert_ok(source_read(s, out, strlen(old_text), &e), e);
        assert_memory_equal(out, old_text, strlen(old_text));
        source_close(s);
    }
    trap = 1;
    calls = 0;
    trap_errno = EIO;
    assert_refused(source_open(&s, path, &e), e, ERR_SYSTEM, "Z12");
}

/* A file of which only half can be read although fstat promised it all. */
static ssize_t half_read(int fd, void *out, size_t n)
{
    return calls++ == 0 ? io_posix.read(fd, out, n < 10 ? n : 10) : 0;
}

static void a_shrinking_file_is_told(void **state)
{
    (void)state;
    char path[300];
    struct error e;
    struct source *s;
    path_of(path, "d.txt");
    assert_ok(io_write_all(path, 0666, old_text, strlen(old_text), &e), e);
    struct io_ops half = io_posix;
    half.read = half_read;
    io = &half;
    calls = 0;
    assert_refused(source_open(&s, path, &e), e, ERR_DATA, "Z10");
}

/* ---- the cursor over memory --------------------------------------------------------------------- */

static size_t gzip_of(unsigned char *out, size_t cap, const void *bytes, size_t n)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void plain_and_gzip_read_alike(void **state)
{
    (void)state;
    static unsigned char bytes[200000], packed[300000], out[200000];
    struct error e;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 7);
    size_t n = gzip_of(packed, sizeof packed, bytes, sizeof bytes);
    for (int gz = 0; gz < 2; gz++)
        for (size_t step = 1; step < 100000; step = step * 3 + 1) {
            struct source *s;
            assert_ok(source_open_memory(&s, gz ? packed : bytes, gz ? n : sizeof bytes, &e), e);
            assert_int_equal(source_is_compressed(s), gz);
            assert_int_equal(source_peek(s, out, 4096, &e), 4096);
            assert_memory_equal(out, bytes, 4096);
            size_t at = 0;
            while (at < sizeof bytes) {
                size_t part = sizeof bytes - at < step ? sizeof bytes - at : step;
                assert_ok(source_read(s, out + at, part, &e), e);
                at += part;
            }
            assert_memory_equal(out, bytes, sizeof bytes);
            assert_int_equal(source_finish(s, &e), 0);
            assert_int_equal(source_read(s, out, 1, &e), -1);
            source_close(s);
        }
}

static void a_claim_is_held_against_the_file(void **state)
{
    (void)state;
    unsigned char packed[200];
    struct error e;
    struct source *s;
    size_t n = gzip_of(packed, sizeof packed, old_text, strlen(old_text));
    assert_ok(source_open_memory(&s, packed, n, &e), e);
    assert_ok(source_can_hold(s, 1000, "N11", &e), e);
    assert_refused(source_can_hold(s, (uint64_t)1 << 40, "N11", &e), e, ERR_DATA, "Z06");
    source_close(s);
    assert_ok(source_open_memory(&s, old_text, 20, &e), e);
    assert_ok(source_can_hold(s, 20, "N11", &e), e);
    assert_refused(source_can_hold(s, 21, "N11", &e), e, ERR_DATA, "N11");
    assert_ok(source_seek_from_end(s, 5, &e), e);
    assert_int_equal(source_offset(s), 15);
    source_close(s);
}

static void text_files_are_bounded(void **state)
{
    (void)state;
    char path[300], *text;
    struct error e;
    path_of(path, "t.txt");
    assert_ok(io_write_all(path, 0666, "\xEF\xBB\xBFhello", 8, &e), e);
    assert_ok(io_read_text(&text, NULL, path, 100, &e), e);
    assert_string_equal(text, "hello");
    mem_free(text);
    assert_refused(io_read_text(&text, NULL, path, 7, &e), e, ERR_DATA, "C06");
    assert_ok(io_write_all(path, 0666, "a\0b", 3, &e), e);
    assert_refused(io_read_text(&text, NULL, path, 100, &e), e, ERR_DATA, "C04");
}

/* ---- folders to work in ------------------------------------------------------------------------------ */

static void a_second_process_is_told_who_is_first(void **state) /* P08, P09 */
{
    (void)state;
    int first, second;
    char path[300], who[40];
    struct error e;
    path_of(path, "running");
    assert_ok(io_write_all(path, 0666, "pid 1 on nowhere", 16, &e), e); /* of the dead: locks nobody out */
    assert_ok(io_lock_folder(&first, folder, &e), e);
    io_sign_folder(folder);
    assert_refused(io_lock_folder(&second, folder, &e), e, ERR_BUSY, "P08");
    assert_int_equal(second, -1);
    snprintf(who, sizeof who, "%ld", (long)getpid());
    assert_says(e.text, who);
    assert_true(text_starts_with(e.text, folder) && text_ends_with(e.text, " UTC"));
    io_unsign_folder(folder);
    assert_false(io_exists(path));
    assert_refused(io_lock_folder(&second, folder, &e), e, ERR_BUSY, "P08");
    assert_says(e.text, folder);
    io_unlock_folder(first);
    assert_ok(io_lock_folder(&second, folder, &e), e);
    io_unlock_folder(second);
}

static void the_lock_dies_with_its_holder(void **state) /* P08 */
{
    (void)state;
    int lock, told[2];
    char byte;
    struct error e;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        io_lock_folder(&lock, folder, &e);
        io_sign_folder(folder);
        if (write(told[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    assert_refused(io_lock_folder(&lock, folder, &e), e, ERR_BUSY, "P08");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_ok(io_lock_folder(&lock, folder, &e), e);
    io_unlock_folder(lock);
    close(told[0]);
    close(told[1]);
}

static void a_locked_folder_is_known_again(void **state) /* P07 */
{
    (void)state;
    int lock;
    char a[300], b[300];
    struct error e;
    path_of(a, "a");
    path_of(b, "b");
    assert_ok(io_make_folders(a, &e), e);
    assert_ok(io_lock_folder(&lock, a, &e), e);
    assert_ok(io_check_locked(lock, a, &e), e);
    assert_int_equal(rename(a, b), 0);
    assert_refused(io_check_locked(lock, a, &e), e, ERR_SYSTEM, "P07");
    assert_ok(io_check_locked(lock, b, &e), e);
    assert_ok(io_make_folders(a, &e), e); /* another one of that name */
    assert_refused(io_check_locked(lock, a, &e), e, ERR_SYSTEM, "P07", a);
    io_unlock_folder(lock);
}

static void folders_made_for_nothing_go(void **state)
{
    (void)state;
    char path[300];
    struct error e;
    static const char *const spellings[] = {"x/y/z", "x/y/z/", "x//y/z//"};
    for (int i = 0; i < 3; i++) {
        path_of(path, spellings[i]);
        size_t from = io_missing(path);
        assert_int_equal(from, strlen(folder) + 2);
        assert_ok(io_make_folders(path, &e), e);
        assert_int_equal(io_missing(path), 0);
        io_remove_empty(path, 0); /* all of it was there before */
        assert_true(io_is_folder(path));
        io_remove_empty(path, from);
        path_of(path, "x");
        assert_false(io_exists(path));
        assert_true(io_is_folder(folder));
    }
    path_of(path, "x/y");
    assert_ok(io_make_folders(path, &e), e);
    path_of(path, "x/file");
    assert_ok(io_write_all(path, 0666, "a", 1, &e), e);
    path_of(path, "x/y");
    io_remove_empty(path, strlen(folder) + 2); /* stops at the one that holds something */
    assert_false(io_exists(path));
    path_of(path, "x/file");
    assert_true(io_exists(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_process_is_told_who_is_first, setup, teardown),
        cmocka_unit_test_setup_teardown(the_lock_dies_with_its_holder, setup, teardown),
        cmocka_unit_test_setup_teardown(a_locked_folder_is_known_again, setup, teardown),
        cmocka_unit_test_setup_teardown(folders_made_for_nothing_go, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_the_old_file, setup, teardown),
        cmocka_unit_test_setup_teardown(sudden_death_leaves_a_whole_file, setup, teardown),
        cmocka_unit_test_setup_teardown(eintr_is_retried_and_eio_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shrinking_file_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_and_gzip_read_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(a_claim_is_held_against_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(text_files_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
