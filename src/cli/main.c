/* main.c - the front door: which verb, which exit code.
 *
 * Exit codes are the values of enum error_code: 0 done, 1 a bug of ours, 2 command line or config,
 * 3 input refused, 4 system, 5 memory, and so on (base.h). Errors are one line on stderr; stdout carries
 * results only, and a result that could not be written (disk full) is an error too.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/options.h"

static int (*const verb_functions[VERB_COUNT])(struct config *c) = {
    [VERB_INFO] = verb_info,       [VERB_CHECK] = verb_check,     [VERB_CONVERT] = verb_convert,
    [VERB_PHANTOM] = verb_phantom, [VERB_PREPARE] = verb_prepare, [VERB_EVAL] = verb_eval,
    [VERB_BENCH] = verb_bench,     [VERB_DOCTOR] = verb_doctor,   [VERB_TRAIN] = verb_train,
    [VERB_PREDICT] = verb_predict, [VERB_PSEUDO] = verb_pseudo,   [VERB_REPORT] = verb_report,
    [VERB_COMPARE] = verb_compare,
};

static void print_overview(FILE *to)
{
    fprintf(to,
            "falx %s - semi-supervised 3D medical image segmentation\n\n"
            "usage: falx VERB [options] ...\n\n",
            FALX_VERSION);
    for (int v = 0; v < VERB_COUNT; v++)
        fprintf(to, "  %-8s %-18s %s\n", verbs[v].name, verbs[v].args, verbs[v].about);
    fprintf(to, "\n  falx VERB --help    options of a verb\n"
                "  falx --version      version\n"
                "  falx --limits       limits on input\n"
                "\nExit codes: 0 done, 1 internal error, 2 command line or config, 3 invalid input,\n"
                "4 system (disk, permission), 5 memory, 6 device, 7 NaN or divergence,\n"
                "9 locked folder or checkpoint, 10 interrupted (continue with --resume).\n");
}

static int find_verb(enum verb *out, const char *name, struct error *e)
{
    int best = -1, best_distance = 0, distance;
    for (int v = 0; v < VERB_COUNT; v++) {
        if (strcmp(name, verbs[v].name) == 0) {
            *out = (enum verb)v;
            return 0;
        }
        if (word_is_near(name, verbs[v].name, &distance) && (best < 0 || distance < best_distance)) {
            best = v;
            best_distance = distance;
        }
    }
    fail(e, ERR_CONFIG, "C01", "unknown verb%s%s%s", best < 0 ? ", see falx --help" : "; did you mean ",
         best < 0 ? "" : verbs[best].name, best < 0 ? "" : "?");
    return fail_in(e, name);
}

enum { STACK_USED = 832 << 10, PAGE = 4096 };

static __attribute__((noinline)) void touch_stack(void)
{
    volatile char room[STACK_USED];
    for (int at = STACK_USED - 1; at > 0; at -= PAGE)
        room[at] = 0;
    (void)room[0];
}

/* Where address space is limited (`ulimit -v`), a stack that grows in the midst of the work may find none
 * left, which no call reports: a crash. So it grows now, if there is as much [P17]. */
static int grow_stack(struct error *e)
{
    void *as_much = mem_alloc(e, STACK_USED, 1);
    mem_free(as_much);
    if (!as_much)
        return -1;
    touch_stack();
    return 0;
}

/* The voxel loops of many classes and samples keep up to 780 KiB of arrays on the stack of every thread;
 * where `ulimit -s` gives less than a megabyte, main's is raised and other threads get theirs by
 * attribute [P15]. */
static int ensure_stack(struct error *e)
{
    enum { NEEDED = 1 << 20 };
    struct rlimit limit;
    pthread_attr_t attr;
    if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur >= NEEDED)
        return 0;
    limit.rlim_cur = NEEDED;
    limit.rlim_max = limit.rlim_max < NEEDED ? NEEDED : limit.rlim_max;
    if (setrlimit(RLIMIT_STACK, &limit) < 0)
        return fail(e, ERR_SYSTEM, "P15", "a stack of at least 1 MiB is needed (ulimit -s)");
    if (pthread_attr_init(&attr) == 0) {
        if (pthread_attr_setstacksize(&attr, NEEDED) == 0)
            pthread_setattr_default_np(&attr);
        pthread_attr_destroy(&attr);
    }
    return 0;
}

static int run_verb(const char *name, int argc, char **argv)
{
    struct error e = {.code = ERR_NONE};
    struct config c;
    enum verb verb = VERB_COUNT;
    if (find_verb(&verb, name, &e) < 0 || config_parse(&c, verb, argc, argv, &e) < 0)
        return complain(&e);
    int code = 0;
    if (c.help)
        config_print_help(verb, stdout);
    else if (c.print_config)
        config_print(&c, stdout);
    else if (c.show_limits)
        limits_print(&c, stdout);
    else {
        if (c.seed_drawn)
            report_line(console_report(&c), REPORT_NOTE, NULL, NULL, "seed %lld drawn",
                        (long long)c.set.seed);
        int computes = verb == VERB_TRAIN || verb == VERB_PREDICT || verb == VERB_PSEUDO ||
                       verb == VERB_BENCH || verb == VERB_COMPARE;
        stop_watch(verb);
        int ready = !computes || (ensure_stack(&e) == 0 && grow_stack(&e) == 0);
        code = ready ? verb_functions[verb](&c) : complain(&e);
    }
    config_free(&c);
    return code;
}

static int run(int argc, char **argv)
{
    struct error e;
    const char *word = argc > 1 ? argv[1] : "";
    int asks_help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    if (asks_help && argc > 2) { /* falx help VERB */
        char *help[] = {argv[2], (char[]){"--help"}, NULL};
        return run_verb(argv[2], 2, help);
    }
    if (asks_help) {
        print_overview(stdout);
    } else if (strcmp(word, "--version") == 0) {
        printf("falx %s\n", FALX_VERSION);
    } else if (strcmp(word, "--limits") == 0) {
        limits_print(NULL, stdout);
    } else if (argc < 2 || *word == '-') {
        fail(&e, ERR_CONFIG, "C01",
             *word ? "unknown option %s, see falx --help" : "no verb given%s, see falx --help", word);
        return complain(&e);
    } else {
        return run_verb(word, argc - 1, argv + 1);
    }
    return 0;
}

/* Started with a closed stdin, stdout or stderr, messages would end up in an output file. The stand-in
 * cannot be written, so that a lost result is noticed. */
static void open_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_NAME, "falx"); /* in a bundle top would show the name of its loader */
    open_standard_files();
    float_mode_begin(NULL);
    int code = run(argc, argv);
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        struct error e;
        fail_errno(&e, errno ? errno : EIO, "cannot write to stdout");
        return code ? code : complain(&e);
    }
    return code;
}
