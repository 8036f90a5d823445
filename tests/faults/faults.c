/* faults.c - the runner of the fault catalogue and the helpers of faults.h.
 *
 *   faults PROGRAM [ID...]     all ids, or those named
 *
 * Each test gets an empty scratch folder as its working directory. A refusal is judged as a user meets
 * it: exit code, the one line on stderr, the folder before and after, time and peak memory of the process.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"
#include "base/io.h"
#include "fact.h"
#include "faults.h"

enum { OUTPUT_MAX = 1 << 20, WORDS_MAX = 40, REFUSAL_MS = 100, REFUSAL_KIB = 64 << 10, TRIES = 5 };

/* The catalogue: every id from 01 to the number given must have a test. */
static const struct {
    char group;
    int n;
    const struct fault *tests;
} catalogue[] = {
    {'N', 40, faults_nifti}, {'Z', 12, faults_gzip},  {'R', 14, faults_nrrd},   {'H', 9, faults_hdf5},
    {'D', 9, faults_dicom},  {'C', 6, faults_config}, {'L', 14, faults_layout}, {'S', 11, faults_safetensors},
};

static char program[PATH_MAX], scratch[PATH_MAX - 16], capture[PATH_MAX];
static const struct fault *running;
static int n_checks, n_failures;
static char skip_reason[200];
static long baseline_kib; /* peak memory of a run that does nothing */

static struct {
    char *words[WORDS_MAX];
    int n_words;
    int exit_code;
    double ms;
    long peak_kib;
    uint64_t before, after;
    char out[OUTPUT_MAX], err[OUTPUT_MAX];
} last;

/* ---- judging ------------------------------------------------------------------------------------- */

void expect_that(int ok, const char *text, const char *file, int line)
{
    n_checks++;
    if (ok)
        return;
    n_failures++;
    printf("    %s:%d: not true: %s\n", file, line, text);
    printf("    command:");
    for (int i = 0; i < last.n_words; i++)
        printf(" %s", last.words[i]);
    printf("\n    exit %d, stderr: %.600s\n", last.exit_code, last.err);
}

#define judge(cond, ...)                                                                                     \
    do {                                                                                                     \
        char judged[700];                                                                                    \
        snprintf(judged, sizeof judged, __VA_ARGS__);                                                        \
        expect_that((cond), judged, running->id, n_checks);                                                  \
    } while (0)

/* One printable line starting with `head`; control bytes would show a forged second line. */
static void judge_line(const char *head)
{
    size_t n = strlen(last.err);
    judge(n > 0 && last.err[n - 1] == '\n' && memchr(last.err, '\n', n) == last.err + n - 1,
          "exactly one line on stderr");
    judge(n <= 401, "line of %zu bytes, at most 400", n - 1);
    judge(strncmp(last.err, head, strlen(head)) == 0, "line starts with \"%s\"", head);
    int control = 0;
    for (size_t i = 0; i + 1 < n; i++)
        control |= (unsigned char)last.err[i] < 0x20 || last.err[i] == 0x7F;
    judge(!control, "no control bytes in the line");
}

static void judge_id(const char *id)
{
    char tail[16];
    snprintf(tail, sizeof tail, "[%s]\n", id);
    judge(text_ends_with(last.err, tail), "line ends in [%s]", id);
}

void expect_fact(const char *fact)
{
    judge(is_fact(fact), "\"%s\" is a fact, no wording", fact);
    judge(strstr(last.err, fact) != NULL, "line says \"%s\"", fact);
}

void expect_refusal_slow(int exit_code, const char *path, const char *fact)
{
    judge(last.exit_code == exit_code, "exit code %d, expected %d", last.exit_code, exit_code);
    judge_line("falx: error: ");
    judge(strstr(last.err, path) != NULL, "line names \"%s\"", path);
    expect_fact(fact);
    judge_id(running->id);
    judge(last.before == last.after, "nothing created or changed");
}

static void run_words(void);

void expect_refusal(int exit_code, const char *path, const char *fact)
{
    expect_refusal_slow(exit_code, path, fact);
    if (getenv("FALX_FAULTS_RELAXED"))
        return; /* sanitizers cost time and memory of their own */
    /* other work on the machine may delay a run: the quickest of a few counts */
    double quickest = last.ms;
    for (int i = 1; i < TRIES && quickest > REFUSAL_MS; i++) {
        run_words();
        quickest = last.ms < quickest ? last.ms : quickest;
    }
    judge(quickest <= REFUSAL_MS, "refused in %.0f ms, at most %d", quickest, REFUSAL_MS);
    long kib = last.peak_kib - baseline_kib;
    judge(kib <= REFUSAL_KIB, "refused with %ld KiB above baseline, at most %d", kib, REFUSAL_KIB);
}

void expect_warning(const char *id, const char *fact)
{
    judge(last.exit_code == 0, "exit code %d, expected 0", last.exit_code);
    judge_line("falx: warning: ");
    expect_fact(fact);
    if (id)
        judge_id(id);
}

void expect_accepted(const char *fact)
{
    if (fact) {
        expect_warning(running->id, fact);
    } else {
        judge(last.exit_code == 0, "exit code %d, expected 0", last.exit_code);
        judge(last.err[0] == '\0', "nothing on stderr");
    }
}

void expect_output(const char *text)
{
    judge(is_fact(text), "\"%s\" is a fact, no wording", text);
    judge(strstr(last.out, text) != NULL, "output contains \"%s\"", text);
}

const char *last_stdout(void)
{
    return last.out;
}
const char *last_stderr(void)
{
    return last.err;
}
int last_exit(void)
{
    return last.exit_code;
}

void skip(const char *reason)
{
    snprintf(skip_reason, sizeof skip_reason, "%s", reason);
}

/* ---- running the program --------------------------------------------------------------------------- */

static uint64_t hash_file(const char *path, uint64_t h)
{
    FILE *f = fopen(path, "rb");
    char block[1 << 16];
    size_t n;
    while (f && (n = fread(block, 1, sizeof block, f)) > 0)
        h = hash_bytes(block, n, h);
    if (f)
        fclose(f);
    return h;
}

/* Names, kinds and bytes of everything below the folder. */
static uint64_t hash_tree(const char *path)
{
    struct io_listing l;
    uint64_t h = 1;
    if (io_list(&l, path, NULL) < 0)
        return 0;
    for (int i = 0; i < l.n; i++) {
        char inside[PATH_MAX];
        struct stat st;
        snprintf(inside, sizeof inside, "%s/%s", path, l.entry[i].name);
        h = hash_bytes(l.entry[i].name, strlen(l.entry[i].name), h);
        if (lstat(inside, &st) < 0)
            continue;
        h = hash_bytes(&st.st_mode, sizeof st.st_mode, h);
        if (S_ISDIR(st.st_mode))
            h ^= hash_tree(inside) * 31;
        else if (S_ISREG(st.st_mode) && st.st_size < (64 << 20))
            h = hash_file(inside, h);
        else
            h = hash_bytes(&st.st_size, sizeof st.st_size, h);
    }
    io_listing_free(&l);
    return h;
}

static void read_capture(char *out, const char *name)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/%s", capture, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(out, 1, OUTPUT_MAX - 1, f) : 0;
    out[n] = '\0';
    if (f)
        fclose(f);
}

/* Removed before each run: a test may run the program as another user. */
static void forget_capture(const char *name)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/%s", capture, name);
    unlink(path);
}

static void child(void)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/out", capture);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    snprintf(path, sizeof path, "%s/err", capture);
    int err = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv(program, last.words);
    _exit(127);
}

static void run_words(void)
{
    struct timespec a, b;
    struct rusage usage;
    int status = 0;
    forget_capture("out");
    forget_capture("err");
    last.before = hash_tree(".");
    clock_gettime(CLOCK_MONOTONIC, &a);
    pid_t pid = fork();
    if (pid == 0)
        child();
    wait4(pid, &status, 0, &usage);
    clock_gettime(CLOCK_MONOTONIC, &b);
    last.ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
    last.peak_kib = usage.ru_maxrss;
    last.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    last.after = hash_tree(".");
    read_capture(last.out, "out");
    read_capture(last.err, "err");
}

void run(const char *first, ...)
{
    for (int i = 0; i < last.n_words; i++)
        free(last.words[i]);
    last.n_words = 0;
    last.words[last.n_words++] = strdup("falx");
    va_list args;
    va_start(args, first);
    for (const char *w = first; w && last.n_words < WORDS_MAX - 1; w = va_arg(args, const char *))
        last.words[last.n_words++] = strdup(w);
    va_end(args);
    last.words[last.n_words] = NULL;
    run_words();
}

/* ---- making files ----------------------------------------------------------------------------------- */

void put_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        perror(name);
        exit(1);
    }
}

void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

void put_folder(const char *name)
{
    struct error e;
    if (io_make_folders(name, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
}

void put_gzip(const char *name, const void *bytes, size_t n)
{
    gzFile f = gzopen(name, "wb6");
    if (!f || gzwrite(f, bytes, (unsigned)n) != (int)n || gzclose(f) != Z_OK) {
        perror(name);
        exit(1);
    }
}

void set_i16(struct nifti1 *f, size_t offset, int16_t v)
{
    memcpy(f->byte + offset, &v, 2);
}
void set_i32(struct nifti1 *f, size_t offset, int32_t v)
{
    memcpy(f->byte + offset, &v, 4);
}
void set_f32(struct nifti1 *f, size_t offset, float v)
{
    memcpy(f->byte + offset, &v, 4);
}

static void nifti_header_common(struct nifti1 *f, int16_t datatype, int16_t bits)
{
    static const int16_t dims[8] = {3, 4, 3, 2, 1, 1, 1, 1};
    static const float spacing[8] = {1, 1, 2, 3, 1, 1, 1, 1};
    memset(f, 0, sizeof *f);
    set_i32(f, 0, 348);
    for (size_t i = 0; i < 8; i++) {
        set_i16(f, 40 + 2 * i, dims[i]);
        set_f32(f, 76 + 4 * i, spacing[i]);
    }
    set_i16(f, 70, datatype);
    set_i16(f, 72, bits);
    set_f32(f, 108, 352.0f);
    set_f32(f, 112, 1.0f);
    f->byte[123] = 2; /* millimetres */
    set_i16(f, 254, 1);
    set_f32(f, 280, 1.0f);
    set_f32(f, 300, 2.0f);
    set_f32(f, 320, 3.0f);
    memcpy(f->byte + 344, "n+1", 4);
}

void nifti_good(struct nifti1 *f)
{
    nifti_header_common(f, 4, 16);
    for (int i = 0; i < 24; i++)
        set_i16(f, 352 + 2 * (size_t)i, (int16_t)(10 * i + (i * i) % 7));
    f->n = 352 + 48;
}

void nifti_good_label(struct nifti1 *f)
{
    nifti_header_common(f, 2, 8);
    for (int i = 0; i < 24; i++)
        f->byte[352 + i] = i % 3 == 1;
    f->n = 352 + 24;
}

void nifti_put(const char *name, const struct nifti1 *f)
{
    put_file(name, f->byte, f->n);
}
void nifti_put_gz(const char *name, const struct nifti1 *f)
{
    put_gzip(name, f->byte, f->n);
}

/* ---- the catalogue ------------------------------------------------------------------------------------ */

enum verdict { PASSED, FAILED, SKIPPED };

static enum verdict run_fault(const struct fault *f)
{
    char cleaner[PATH_MAX];
    snprintf(cleaner, sizeof cleaner, "%s/work", scratch);
    put_folder(cleaner);
    if (chdir(cleaner) < 0) {
        perror(cleaner);
        exit(1);
    }
    running = f;
    n_checks = n_failures = 0;
    skip_reason[0] = '\0';
    f->test();
    if (chdir("/") < 0)
        exit(1);
    io_remove_tree(cleaner);
    enum verdict v = n_failures ? FAILED : n_checks == 0 && skip_reason[0] ? SKIPPED : PASSED;
    if (v == PASSED && n_checks == 0) {
        printf("    %s checks nothing\n", f->id);
        v = FAILED;
    }
    printf("%s %-7s %s (%d checks)%s%s\n", f->id,
           v == PASSED   ? "ok"
           : v == FAILED ? "FAILED"
                         : "skipped",
           f->about, n_checks, skip_reason[0] ? ": " : "", skip_reason);
    fflush(stdout);
    return v;
}

static int wanted(const char *id, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], id) == 0)
            return 1;
    return argc <= 2;
}

/* Runs one group; an id of the catalogue without a test counts as failed. */
static void run_group(int counts[3], char group, int n, const struct fault *tests, int argc, char **argv)
{
    for (int number = 1; number <= n; number++) {
        char id[16];
        int found = 0;
        snprintf(id, sizeof id, "%c%02d", group, number);
        if (!wanted(id, argc, argv))
            continue;
        for (const struct fault *f = tests; f->id; f++)
            if (strcmp(f->id, id) == 0) {
                counts[run_fault(f)]++;
                found = 1;
            }
        if (!found) {
            printf("%s FAILED  no test for this id\n", id);
            counts[FAILED]++;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || !realpath(argv[1], program)) {
        fprintf(stderr, "usage: faults PROGRAM [ID...]\n");
        return 2;
    }
    char *folder;
    if (io_temp_folder(&folder, NULL) < 0)
        return 1;
    snprintf(scratch, sizeof scratch, "%s", folder);
    snprintf(capture, sizeof capture, "%s/capture", folder);
    put_folder(capture);
    if (chmod(scratch, 0755) < 0 || chmod(capture, 0777) < 0 || chdir("/") < 0 || chdir(capture) < 0)
        return 1;
    run("--version", NULL);
    baseline_kib = last.peak_kib;
    int counts[3] = {0, 0, 0};
    for (size_t i = 0; i < sizeof catalogue / sizeof catalogue[0]; i++)
        run_group(counts, catalogue[i].group, catalogue[i].n, catalogue[i].tests, argc, argv);
    io_remove_tree(folder);
    mem_free(folder);
    printf("faults: %d passed, %d failed, %d skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
    return counts[FAILED] ? 1 : 0;
}
