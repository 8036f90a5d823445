/* child.c - start, listen to and end a limited program. See child.h for the picture.
 *
 * Two clocks guard a child. RLIMIT_CPU counts its own seconds and ends it with SIGXCPU, so a busy
 * machine does not shorten its time. The deadline counts ours: every wait in this file is a poll()
 * or a short sleep that ends there, and then the whole process group gets SIGKILL. So no call here
 * blocks for longer than the deadline, whatever the program does.
 */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

/* Sanitized helpers reserve terabytes of address space for their shadow: no limit on it there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

struct child {
    pid_t pid;
    int pipe;         /* read end of its stdout, -1 once closed */
    int64_t start_ms; /* CLOCK_MONOTONIC */
    int64_t deadline_ms;
    uint64_t output_left; /* bytes it may still say */
    enum child_fate fate; /* CHILD_EXITED until the deadline or the cap is hit */
};

static int64_t clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- limits ---------------------------------------------------------------------------------- */

void child_limits_format(char out[160], const struct child_limits *l)
{
    unsigned most = l->cpu_seconds_most > l->cpu_seconds ? l->cpu_seconds_most : l->cpu_seconds;
    snprintf(out, 160, "%llu,%llu,%u,%u,%u", (unsigned long long)l->memory_bytes,
             (unsigned long long)l->file_bytes, l->cpu_seconds, most, l->open_files);
}

unsigned child_seconds(uint64_t bytes, uint64_t rate)
{
    return bytes / rate < 3600 ? (unsigned)(bytes / rate) : 3600;
}

static int limit(int resource, unsigned long long soft, unsigned long long hard)
{
    struct rlimit r, now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return -1;
    r.rlim_max = hard < now.rlim_max ? (rlim_t)hard : now.rlim_max; /* only goes down */
    r.rlim_cur = soft < r.rlim_max ? (rlim_t)soft : r.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &r);
}

int child_limits_apply(const char *word)
{
    unsigned long long memory, file;
    unsigned cpu, most, files;
    char rest;
    /* one second between soft and hard CPU limit: at the hard one the kernel sends SIGKILL, which
     * would not tell why */
    if (sscanf(word, "%llu,%llu,%u,%u,%u%c", &memory, &file, &cpu, &most, &files, &rest) != 5)
        return -1;
    if (limit(RLIMIT_CORE, 0, 0) < 0 || limit(RLIMIT_FSIZE, file, file) < 0 ||
        limit(RLIMIT_NOFILE, files, files) < 0 || limit(RLIMIT_CPU, cpu, most + 1ULL) < 0)
        return -1;
    /* last, because from here on even our own libraries may find no memory */
    return memory > 0 ? limit(RLIMIT_AS, memory, memory) : 0;
}

/* ---- finding programs ------------------------------------------------------------------------ */

static int candidate(char **out, const char *folder, const char *name, struct error *e)
{
    char *path = path_join(e, folder, name);
    if (!path)
        return -1;
    if (access(path, X_OK) == 0) {
        *out = path;
        return 1;
    }
    mem_free(path);
    return 0;
}

int child_find_helper(char **out, const char *name, struct error *e)
{
    char exe[4096];
    char *folder = NULL, *libexec = NULL;
    int found = 0;
    const char *chosen = getenv("FALX_HELPERS");
    if (chosen && *chosen)
        found = candidate(out, chosen, name, e);
    ssize_t n = found ? 0 : readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (found == 0 && n > 0) {
        exe[n] = 0;
        folder = path_folder(e, exe);
        libexec = folder ? path_join(e, folder, "../libexec/falx") : NULL;
        found = libexec ? candidate(out, folder, name, e) : -1;
        if (found == 0)
            found = candidate(out, libexec, name, e);
    }
    mem_free(folder);
    mem_free(libexec);
    if (found < 0)
        return -1;
    if (found == 0)
        return fail(e, ERR_SYSTEM, NULL, "helper program %s not found beside falx", name);
    return 0;
}

int child_find_self(char **out, struct error *e)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return fail_errno(e, errno, "/proc/self/exe");
    exe[n] = '\0';
    const char *name = path_name(exe);
    if (text_starts_with(name, "ld-linux"))
        *out = mem_format(e, "%.*s../bin/falx", (int)(name - exe), exe);
    else
        *out = mem_string(e, exe);
    return *out ? 0 : -1;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* What the program needs to be found and to decode, and nothing that could change its answer. */
static int make_environment(char *env[8], const char *home, struct error *e)
{
    const char *path = getenv("PATH"), *lib = getenv("LD_LIBRARY_PATH");
    int n = 0;
    memset(env, 0, 8 * sizeof *env);
    env[n++] = mem_format(e, "PATH=%s", path ? path : "/usr/local/bin:/usr/bin:/bin");
    env[n++] = mem_format(e, "HOME=%s", home ? home : "/");
    env[n++] = mem_format(e, "TMPDIR=%s", home ? home : "/tmp");
    env[n++] = mem_string(e, "LC_ALL=C");
    env[n++] = mem_string(e, "TZ=UTC");
    env[n++] = mem_string(e, "HDF5_USE_FILE_LOCKING=FALSE"); /* read-only and network folders */
    if (lib)
        env[n++] = mem_format(e, "LD_LIBRARY_PATH=%s", lib);
    for (int i = 0; i < n; i++)
        if (!env[i])
            return -1;
    return 0;
}

static int spawn(pid_t *pid, char *const argv[], char *const env[], int out_fd)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int err = posix_spawn_file_actions_init(&files);
    if (err)
        return err;
    err = posix_spawnattr_init(&attr);
    if (err) {
        posix_spawn_file_actions_destroy(&files);
        return err;
    }
    sigemptyset(&none);
    sigfillset(&all);
    /* a pipe end numbered 0 or 2 would be lost to the two opens: it is copied to 1 first */
    err = posix_spawn_file_actions_adddup2(&files, out_fd, 1);
    if (!err)
        err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!err)
        err = posix_spawnattr_setpgroup(&attr, 0);
    if (!err)
        err = posix_spawnattr_setsigmask(&attr, &none);
    if (!err)
        err = posix_spawnattr_setsigdefault(&attr, &all);
    if (!err)
        err = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF);
    if (!err)
        err = posix_spawn(pid, argv[0], &files, &attr, argv, env);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return err;
}

/* falx-limit WORD argv... ; the pieces are borrowed from `limiter`, `word` and argv. */
static int spawn_limited(struct child *c, char *const argv[], const char *home,
                         const struct child_limits *limits, struct error *e)
{
    char word[160], *limiter = NULL, *env[8] = {NULL}, **args = NULL;
    size_t n = 0;
    int fd[2] = {-1, -1}, rc = -1;
    struct child_limits l = *limits;
    if (SANITIZED)
        l.memory_bytes = 0;
    child_limits_format(word, &l);
    while (argv[n])
        n++;
    args = mem_alloc(e, n + 3, sizeof *args);
    if (!args || child_find_helper(&limiter, "falx-limit", e) < 0 || make_environment(env, home, e) < 0)
        goto out;
    args[0] = limiter;
    args[1] = word;
    memcpy(args + 2, argv, n * sizeof *args);
    if (pipe2(fd, O_CLOEXEC) < 0) {
        fail_errno(e, errno, "pipe");
        goto out;
    }
    int err = spawn(&c->pid, args, env, fd[1]);
    if (err) {
        io->close(fd[0]);
        fail_errno(e, err, limiter);
    } else {
        c->pipe = fd[0];
        rc = 0;
    }
    io->close(fd[1]);
out:
    for (int i = 0; i < 8; i++)
        mem_free(env[i]);
    mem_free(args);
    mem_free(limiter);
    return rc;
}

int child_start(struct child **out, char *const argv[], const char *home, const struct child_limits *limits,
                struct error *e)
{
    struct child *c = mem_alloc(e, 1, sizeof *c);
    if (!c)
        return -1;
    c->pipe = -1;
    c->fate = CHILD_EXITED;
    c->start_ms = clock_ms();
    child_extend(c, limits->wall_ms, limits->output_bytes);
    if (spawn_limited(c, argv, home, limits, e) < 0) {
        mem_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

/* ---- listening ------------------------------------------------------------------------------- */

void child_extend(struct child *c, unsigned wall_ms, uint64_t output_bytes)
{
    c->deadline_ms = c->start_ms + wall_ms;
    c->output_left = output_bytes;
}

/* 1 if bytes or the end of the pipe are there, 0 if the deadline came first. */
static int wait_for_output(struct child *c)
{
    for (;;) {
        int64_t left = c->deadline_ms - clock_ms();
        if (left <= 0) {
            c->fate = CHILD_OUT_OF_TIME;
            return 0;
        }
        struct pollfd p = {c->pipe, POLLIN, 0};
        int n = poll(&p, 1, left > 60000 ? 60000 : (int)left);
        if (n > 0)
            return 1;
    }
}

int64_t child_read(struct child *c, void *out, size_t n, struct error *e)
{
    size_t got = 0;
    while (got < n && c->fate == CHILD_EXITED && wait_for_output(c)) {
        if (c->output_left == 0) { /* only the end of the pipe is welcome now */
            char more;
            ssize_t k = io->read(c->pipe, &more, 1);
            if (k > 0)
                c->fate = CHILD_TOO_LOUD;
            break;
        }
        size_t want = n - got < c->output_left ? n - got : (size_t)c->output_left;
        ssize_t k = io->read(c->pipe, (char *)out + got, want);
        if (k == 0)
            break;
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return fail_errno(e, errno, "pipe");
        got += (size_t)k;
        c->output_left -= (uint64_t)k;
    }
    return (int64_t)got;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Waits for the process until the deadline, or not at all if `now`; then its whole group is killed
 * and the process reaped, in this order, so that its number cannot belong to anyone else yet. */
static int end_process(struct child *c, int now)
{
    const struct timespec nap = {0, 500000}; /* 0.5 ms: small beside the start of a process */
    int status = 0;
    while (!now) {
        siginfo_t info = {0};
        int rc = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
        if ((rc == 0 && info.si_pid == c->pid) || (rc < 0 && errno != EINTR))
            break;
        if (clock_ms() >= c->deadline_ms) {
            c->fate = CHILD_OUT_OF_TIME;
            break;
        }
        nanosleep(&nap, NULL);
    }
    kill(-c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (c->pipe >= 0)
        io->close(c->pipe);
    return status;
}

void child_finish(struct child_end *end, struct child *c)
{
    char waste[4096];
    while (child_read(c, waste, sizeof waste, NULL) == (int64_t)sizeof waste)
        ;
    int status = end_process(c, c->fate != CHILD_EXITED);
    end->fate = c->fate;
    end->code = 0;
    if (c->fate == CHILD_EXITED && WIFSIGNALED(status)) {
        end->code = WTERMSIG(status);
        end->fate = end->code == SIGXCPU ? CHILD_OUT_OF_CPU : CHILD_SIGNALLED;
    } else if (c->fate == CHILD_EXITED) {
        end->code = WEXITSTATUS(status);
    }
    mem_free(c);
}

void child_kill(struct child *c)
{
    if (!c)
        return;
    end_process(c, 1);
    mem_free(c);
}
