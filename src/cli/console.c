/* console.c - what the program says on stderr: errors, warnings and the progress line.
 *
 * Every message is one line written by one call, so that lines of threads never mix. On a terminal
 * the progress line is the last one and is redrawn in place with \r; a message first wipes it. When
 * stderr is a file or a pipe nothing is redrawn: a plain line now and then tells a log reader that
 * work goes on, and short jobs say nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/config.h"

enum { LINE_MAX_BYTES = 400 }; /* the contract's limit for a message */

/* Seconds between progress lines: smooth for the eye; rare enough for a log. */
static const double redraw_seconds = 0.1, log_seconds = 5;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int line_is_drawn; /* a progress line without line end stands on the terminal */

static void write_all(const char *bytes, size_t n)
{
    while (n) {
        ssize_t done = write(STDERR_FILENO, bytes, n);
        if (done <= 0)
            return; /* nobody can be told that stderr is gone */
        bytes += done;
        n -= (size_t)done;
    }
}

static const char wipe[] = "\r\033[K"; /* to column 1, erase to the end of the line */

static void say(const char *kind, const char *text)
{
    char line[LINE_MAX_BYTES + 1], out[sizeof line + sizeof wipe];
    snprintf(line, sizeof line, "falx: %s: %s", kind, text);
    pthread_mutex_lock(&lock);
    int n = snprintf(out, sizeof out, "%s%.*s\n", line_is_drawn ? wipe : "", LINE_MAX_BYTES - 1, line);
    line_is_drawn = 0;
    write_all(out, (size_t)n);
    pthread_mutex_unlock(&lock);
}

int complain(const struct error *e)
{
    char text[sizeof e->text + sizeof e->id + 4];
    snprintf(text, sizeof text, "%s%s%s%s", e->text, *e->id ? " [" : "", e->id, *e->id ? "]" : "");
    say("error", text);
    return e->code ? (int)e->code : ERR_INTERNAL;
}

int console_json(struct js_out *o)
{
    char *text;
    struct error e;
    if (js_out_take(&text, o, &e) < 0)
        return complain(&e);
    int failed = fputs(text, stdout) < 0 || fflush(stdout) != 0;
    mem_free(text);
    if (!failed)
        return 0;
    fail_errno(&e, errno, "cannot write to stdout");
    return complain(&e);
}

/* ---- report ------------------------------------------------------------------------------ */

struct console {
    struct report report; /* first: the listener is found from it */
    int quiet;
};

static void print_line(struct report *r, enum report_kind kind, const char *text)
{
    static const char *const name[] = {
        [REPORT_NOTE] = "note", [REPORT_WARNING] = "warning", [REPORT_PROBLEM] = "error"};
    if (kind != REPORT_NOTE || !((struct console *)r)->quiet)
        say(name[kind], text);
}

struct report *console_report(const struct config *c)
{
    static struct console console;
    console.report.line = print_line;
    console.quiet = c->quiet;
    return &console.report;
}

/* ---- progress ---------------------------------------------------------------------------- */

struct progress {
    char label[64];
    int64_t total, done, skipped, drawn; /* drawn: what the last line told */
    double start, shown;                 /* by clock_seconds() */
    int terminal, n_shown;
};

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 75 -> "1:15", 3675 -> "1:01:15" */
static void clock_text(char *out, size_t cap, double seconds)
{
    int64_t s = seconds < 3.6e8 ? (int64_t)(seconds + 0.5) : 359999999;
    if (s >= 3600)
        snprintf(out, cap, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(out, cap, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

char *progress_text(char *out, size_t cap, const char *label, int64_t done, int64_t skipped, int64_t total,
                    double seconds)
{
    double rate = seconds > 0 && done > skipped ? (double)(done - skipped) / seconds : 0;
    int percent = total > 0 ? (int)(100 * (double)done / (double)total) : 0;
    char eta[32] = "-";
    if (done >= total)
        clock_text(eta, sizeof eta, seconds);
    else if (rate > 0)
        clock_text(eta, sizeof eta, (double)(total - done) / rate);
    /* A slow job is told in seconds an item: 0.05/s means little. */
    int slow = rate > 0 && rate < 1;
    snprintf(out, cap, "%s  %" PRId64 "/%" PRId64 "  %d%%  %.3g%s  %s %s", label, done, total, percent,
             slow ? 1 / rate : rate, slow ? " s each" : "/s", done >= total ? "in" : "ETA", eta);
    return out;
}

struct progress *progress_begin(const struct config *c, const char *label, int64_t total)
{
    struct progress *p = c->quiet ? NULL : mem_alloc(NULL, 1, sizeof *p);
    if (!p)
        return NULL; /* no memory, no progress line */
    text_escape(p->label, sizeof p->label, label);
    p->total = total;
    p->start = p->shown = clock_seconds();
    p->terminal = isatty(STDERR_FILENO);
    return p;
}

/* The lock is held. A line wider than the terminal would not be wiped by \r. */
static void draw(struct progress *p, double at)
{
    char text[200], out[240];
    progress_text(text, sizeof text, p->label, p->done, p->skipped, p->total, at - p->start);
    int n;
    if (p->terminal) {
        struct winsize w;
        int known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1;
        n = snprintf(out, sizeof out, "%s%.*s", wipe, known ? w.ws_col - 1 : 79, text);
    } else {
        n = snprintf(out, sizeof out, "falx: %s\n", text);
    }
    line_is_drawn = p->terminal;
    p->shown = at;
    p->drawn = p->done;
    p->n_shown++;
    write_all(out, (size_t)n);
}

void progress_at(struct progress *p, int64_t done)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    double at = clock_seconds();
    p->done = done > p->done ? done : p->done; /* threads may report out of order */
    if (at - p->shown >= (p->terminal ? redraw_seconds : log_seconds))
        draw(p, at);
    pthread_mutex_unlock(&lock);
}

void progress_total(struct progress *p, int64_t total)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    p->total = total;
    pthread_mutex_unlock(&lock);
}

void progress_skip(struct progress *p, int64_t count)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    p->skipped += count;
    pthread_mutex_unlock(&lock);
}

void progress_label(struct progress *p, const char *label)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    text_escape(p->label, sizeof p->label, label);
    pthread_mutex_unlock(&lock);
}

/* A job long enough to have been shown leaves one final line. */
void progress_end(struct progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    if (p->n_shown) {
        if (p->terminal || p->drawn < p->total) /* the end may have been told already */
            draw(p, clock_seconds());
        if (p->terminal)
            write_all("\n", 1);
    }
    line_is_drawn = 0;
    pthread_mutex_unlock(&lock);
    mem_free(p);
}

void progress_count(void *progress, int64_t done)
{
    progress_at(progress, done);
}

void progress_pass(void *passes, const char *name, int64_t done, int64_t total)
{
    struct progress_passes *p = passes;
    if (p->name != name) {
        progress_end(p->line);
        p->line = progress_begin(p->config, name, total);
        p->name = name;
    }
    progress_at(p->line, done);
}
