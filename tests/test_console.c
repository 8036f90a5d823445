/* test_console.c - what the program says: messages, progress, and what doctor knows. */
#include "test.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>

#include "cli/config.h"

static void progress_tells_rate_and_rest(void **state)
{
    (void)state;
    char text[100];
    assert_string_equal(progress_text(text, sizeof text, "check", 20, 0, 80, 10),
                        "check  20/80  25%  2/s  ETA 0:30");
    assert_string_equal(progress_text(text, sizeof text, "prepare", 1, 0, 80, 60),
                        "prepare  1/80  1%  60 s each  ETA 1:19:00");
    assert_string_equal(progress_text(text, sizeof text, "x", 0, 0, 80, 3), "x  0/80  0%  0/s  ETA -");
    assert_string_equal(progress_text(text, sizeof text, "aua", 260, 250, 300, 5),
                        "aua  260/300  86%  2/s  ETA 0:20"); /* resumed at 250 */
    assert_string_equal(progress_text(text, sizeof text, "aua", 250, 250, 300, 5),
                        "aua  250/300  83%  0/s  ETA -");
    assert_string_equal(progress_text(text, sizeof text, "x", 8, 0, 8, 75),
                        "x  8/8  100%  9.38 s each  in 1:15");
    assert_string_equal(progress_text(text, sizeof text, "x", 0, 0, 0, 0), "x  0/0  0%  0/s  in 0:00");
}

/* stderr of what happens between these two, read back. */
static int saved_stderr;
static FILE *captured;

static void capture_begin(void)
{
    captured = tmpfile();
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

static size_t capture_end(char *out, size_t cap)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(captured);
    size_t n = fread(out, 1, cap - 1, captured);
    out[n] = '\0';
    fclose(captured);
    return n;
}

static void messages_are_single_lines(void **state)
{
    (void)state;
    struct config c = {.quiet = 1};
    struct error e;
    char text[2000], path[PATH_MAX];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    fail(&e, ERR_DATA, "N07", "dim[0]=9, allowed 1..7");
    fail_in(&e, path);
    capture_begin();
    int code = complain(&e);
    report_line(console_report(&c), REPORT_NOTE, NULL, NULL, "not shown");
    report_line(console_report(&c), REPORT_WARNING, "a.nii", "N12", "3 bytes more");
    report_line(console_report(&c), REPORT_PROBLEM, "a.nii", "L02", "shapes");
    c.quiet = 0;
    report_line(console_report(&c), REPORT_NOTE, NULL, NULL, "shown");
    struct progress *p = progress_begin(&c, "short", 10);
    progress_at(p, 5);
    progress_end(p); /* under five seconds and no terminal: nothing */
    capture_end(text, sizeof text);
    assert_int_equal(code, 3);
    char *second = strchr(text, '\n');
    assert_true(second - text <= 400);
    assert_non_null(strstr(text, "p: dim[0]=9, allowed 1..7 [N07]\n"));
    assert_string_equal(second + 1, "falx: warning: a.nii: 3 bytes more [N12]\n"
                                    "falx: error: a.nii: shapes [L02]\nfalx: note: shown\n");
}

/* On a terminal the line is redrawn in place and a message wipes it first. */
static void progress_on_a_terminal(void **state)
{
    (void)state;
    struct config c = {.quiet = 0};
    char text[2000];
    int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        skip();
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    dup2(terminal, STDERR_FILENO);
    struct progress *p = progress_begin(&c, "check", 4);
    usleep(120000); /* sooner it would not be drawn */
    progress_at(p, 2);
    report_line(console_report(&c), REPORT_WARNING, NULL, NULL, "odd");
    progress_end(p);
    dup2(saved, STDERR_FILENO);
    close(saved);
    size_t n = 0;
    struct pollfd there = {.fd = master, .events = POLLIN};
    while (poll(&there, 1, 500) > 0 && n < sizeof text - 1) { /* in as many pieces as the system likes */
        ssize_t got = read(master, text + n, sizeof text - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = '\0';
    close(terminal);
    close(master);
    assert_true(text_starts_with(text, "\r\033[Kcheck  2/4  50%  "));
    assert_non_null(strstr(text, "ETA 0:0"));
    assert_non_null(strstr(text, "\r\033[Kfalx: warning: odd\r\n\r\033[Kcheck  2/4"));
}

static void doctor_knows_the_machine(void **state)
{
    (void)state;
    struct config c;
    struct error e = {.code = ERR_NONE};
    char *words[] = {(char[]){"doctor"}, (char[]){"--json"}, (char[]){"-j3"}, (char[]){"--selftest"}};
    assert_ok(config_parse(&c, VERB_DOCTOR, 4, words, &e), e);
    FILE *file = tmpfile();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    int code = verb_doctor(&c);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(file);
    json_t *facts = json_loadf(file, JSON_REJECT_DUPLICATES, NULL);
    int cores = 0, threads = 0, writable = 0;
    const char *zlib = NULL;
    json_int_t memory = 0, voxels = 0;
    assert_int_equal(code, 0);
    assert_int_equal(json_unpack(facts, "{s:{s:i}, s:{s:I}, s:{s:s}, s:{s:b}, s:{s:I}, s:{s:i}}", "cpu",
                                 "cores_usable", &cores, "memory", "total_bytes", &memory, "libraries",
                                 "zlib", &zlib, "temporary", "writable", &writable, "limits", "limit-voxels",
                                 &voxels, "uses", "threads", &threads),
                     0);
    assert_true(cores >= 1 && cores <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(memory > 1 << 20 && *zlib == '1' && writable);
    assert_true((uint64_t)voxels == volume_default_limits.voxels);
    assert_int_equal(threads, 3);
    json_decref(facts);
    fclose(file);
    config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_tells_rate_and_rest),
        cmocka_unit_test(messages_are_single_lines),
        cmocka_unit_test(progress_on_a_terminal),
        cmocka_unit_test(doctor_knows_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
