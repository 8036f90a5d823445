/* child.h - another program run under limits, its output read through a bounded pipe.
 *
 * Parsers that cannot be trusted with a stranger's file (libhdf5, dcm2niix) run as programs of
 * their own. Whatever they do, crash, hang, eat memory or pour out bytes, the caller gets an error
 * and goes on:
 *
 *     falx --posix_spawn--> falx-limit LIMITS program ... --execvp--> program
 *                               sets the limits            stdout -> pipe -> child_read
 *
 * A spawned program cannot be given resource limits from outside before it starts, so the helper
 * falx-limit sets them on itself and then becomes the program. stdin and stderr are /dev/null, the
 * environment is a short fixed list, and the program dies with its parent.
 */
#ifndef FALX_CHILD_H
#define FALX_CHILD_H

#include "base/base.h"

struct child_limits {
    uint64_t memory_bytes;     /* address space; 0 = unlimited */
    uint64_t file_bytes;       /* longest file it may write; 0 = none at all */
    uint64_t output_bytes;     /* read from its stdout in all; more is a failure */
    unsigned cpu_seconds;      /* SIGXCPU after these; it may raise them up to cpu_seconds_most */
    unsigned cpu_seconds_most; /* 0 = cpu_seconds */
    unsigned open_files;
    unsigned wall_ms; /* after these its process group is killed */
};

/* Seconds to allow for so many bytes at a rate of bytes a second: an hour at most. */
unsigned child_seconds(uint64_t bytes, uint64_t rate);

/* How it ended. */
enum child_fate { CHILD_EXITED, CHILD_SIGNALLED, CHILD_OUT_OF_CPU, CHILD_OUT_OF_TIME, CHILD_TOO_LOUD };
struct child_end {
    enum child_fate fate;
    int code; /* exit status of CHILD_EXITED, signal number of CHILD_SIGNALLED */
};
enum { CHILD_NOT_FOUND = 127 }; /* exit status of falx-limit if the program cannot be started */

struct child;

/* Starts argv[0] (NULL-terminated argv; a name without '/' is looked up in PATH). `home` becomes
 * the program's HOME and TMPDIR; NULL = "/". */
int child_start(struct child **out, char *const argv[], const char *home, const struct child_limits *limits,
                struct error *e);
/* Moves the deadline to wall_ms after the start and sets the output cap. */
void child_extend(struct child *c, unsigned wall_ms, uint64_t output_bytes);
/* Up to n bytes of its stdout, waiting for them; fewer only if it closed stdout, ran out of time or
 * said too much. -1 on an error of our own. */
int64_t child_read(struct child *c, void *out, size_t n, struct error *e);
/* Discards remaining output, waits for the end within the deadline, reports it and frees c. */
void child_finish(struct child_end *end, struct child *c);
/* Kills its process group, reaps and frees it; NULL is fine. */
void child_kill(struct child *c);

/* The path of a helper program that belongs to falx: $FALX_HELPERS if set, then the folder of the
 * running program, then ../libexec/falx beside it. */
int child_find_helper(char **out, const char *name, struct error *e);

/* The path that starts the running program again; in a bundle, where its own file is the loader, that of the
 * launcher. */
int child_find_self(char **out, struct error *e);

/* The limits as one word for falx-limit, and back: applies the word to this process. */
void child_limits_format(char out[160], const struct child_limits *limits);
int child_limits_apply(const char *word);

#endif
