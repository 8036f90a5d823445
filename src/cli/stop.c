/* stop.c - signals: a request to stop is heard by one thread of its own, which may lock and allocate.
 *
 * As a rule the process ends there, with nothing half-done left behind. Between stop_polling(1) and
 * stop_polling(0) the request is only noted: the verb asks stop_requested() at its next good moment,
 * saves and returns ERR_STOPPED. A second signal ends the process at once, with 128 + its number.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/config.h"

static const char *stop_advice = ""; /* what the user can do after a stop */
static int stop_code;                /* exit code of a stop; 0 = 128 + signal */
static atomic_int polling, requested;

int stop_requested(void)
{
    return atomic_load(&requested);
}

int stop_asked(void *unused)
{
    (void)unused;
    return stop_requested();
}

void stop_polling(int on)
{
    atomic_store(&polling, on);
}

static void end_process(int which)
{
    struct error e;
    io_remove_temporaries();
    fail(&e, ERR_STOPPED, "P11", "stopped by signal %d%s", which, stop_advice);
    complain(&e);
    _exit(stop_code ? stop_code : 128 + which);
}

static void *wait_for_stop(void *arg)
{
    sigset_t *signals = arg;
    int which;
    if (sigwait(signals, &which) != 0)
        return NULL;
    atomic_store(&requested, 1);
    if (!atomic_load(&polling)) {
        signal(which, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, signals, NULL);
        end_process(which);
    }
    if (sigwait(signals, &which) == 0) {
        io_remove_temporaries();
        _exit(128 + which);
    }
    return NULL;
}

void stop_watch(enum verb verb)
{
    static sigset_t signals;
    struct sigaction hangup;
    pthread_t thread;
    int repeats = verb == VERB_PREPARE || verb == VERB_COMPARE;
    if (repeats || verb == VERB_TRAIN || verb == VERB_PREDICT || verb == VERB_PSEUDO) {
        stop_advice = repeats ? "; run the same command again to go on" : "; --resume goes on";
        stop_code = ERR_STOPPED;
        signal(SIGPIPE, SIG_IGN); /* a log piped to `head` must not end what leaves files [P12] */
    }
    signal(SIGXFSZ, SIG_IGN); /* a write past `ulimit -f` fails like one on a full disk [P15] */
    signal(SIGCHLD, SIG_DFL); /* where a parent ignores it, a child would end without a trace */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) < 0 || hangup.sa_handler != SIG_IGN) /* not under nohup */
        sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (pthread_create(&thread, NULL, wait_for_stop, &signals) != 0)
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* then the default: die at once */
    else
        pthread_detach(thread);
}
