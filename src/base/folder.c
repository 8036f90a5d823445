/* folder.c - a folder that one falx works in: locked, signed, and left without a trace if nothing came of it.
 *
 *     io_missing -> io_make_folders -> io_lock_folder -> io_sign_folder
 *     ... work ...
 *     io_unsign_folder -> [io_remove_empty] -> io_unlock_folder
 *
 * The lock is the kernel's (flock on the folder itself) and ends with its process, however that dies. The
 * signature, a file "running", only lets the message to a second falx name the first: a stale one, left by a
 * process that was killed, locks nobody out [P08, P09].
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

static const char signature[] = "running";

/* The first line of the signature, or "". */
static void read_signature(char *out, size_t cap, const char *folder)
{
    char *path = path_join(NULL, folder, signature);
    int fd = path ? io->open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
    ssize_t n = fd >= 0 ? io_read_full(fd, out, cap - 1) : 0;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (fd >= 0)
        io->close(fd);
    mem_free(path);
}

int io_lock_folder(int *lock, const char *folder, struct error *e)
{
    char who[160];
    *lock = io->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (*lock < 0) {
        fail_errno(e, errno, "cannot open folder");
        return fail_in(e, folder);
    }
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* some network file systems have no locks: work on without one */
    io->close(*lock);
    *lock = -1;
    read_signature(who, sizeof who, folder);
    fail(e, ERR_BUSY, "P08", "another falx is working in this folder%s%s", *who ? ": " : "", who);
    return fail_in(e, folder);
}

void io_unlock_folder(int lock)
{
    if (lock >= 0)
        io->close(lock);
}

int io_check_locked(int lock, const char *folder, struct error *e)
{
    struct stat held, named;
    if (fstat(lock, &held) == 0 && stat(folder, &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino)
        return 0;
    fail(e, ERR_SYSTEM, "P07", "the folder was removed or renamed while falx was working in it");
    return fail_in(e, folder);
}

/* "pid 4711 on HOST since 2031-05-01 12:00:03 UTC" */
static int signature_text(char *out, size_t cap)
{
    char host[65] = "", since[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gethostname(host, sizeof host - 1) < 0)
        strcpy(host, "?");
    if (!gmtime_r(&now, &utc) || strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &utc) == 0)
        strcpy(since, "?");
    return snprintf(out, cap, "pid %ld on %s since %s\n", (long)getpid(), host, since);
}

void io_sign_folder(const char *folder)
{
    char text[160], *path = path_join(NULL, folder, signature);
    if (!path)
        return;
    io->unlink(path); /* whatever an earlier one left: it is dead, the lock is ours */
    int n = signature_text(text, sizeof text);
    int fd = io->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        int whole = io->write(fd, text, (size_t)n) == n;
        io->close(fd);
        if (!whole || io_temporary_add(path, NULL) < 0)
            io->unlink(path);
    }
    mem_free(path);
}

void io_unsign_folder(const char *folder)
{
    char *path = path_join(NULL, folder, signature);
    if (!path)
        return;
    io->unlink(path);
    io_temporary_drop(path);
    mem_free(path);
}

int io_sweep(const char *folder, struct error *e)
{
    struct io_listing l;
    if (io_list(&l, folder, e) < 0)
        return -1;
    for (int i = 0; i < l.n; i++) {
        char *path = io_is_unfinished(l.entry[i].name) ? path_join(NULL, folder, l.entry[i].name) : NULL;
        if (path)
            io->unlink(path);
        mem_free(path);
    }
    io_listing_free(&l);
    return 0;
}

/* ---- made for nothing --------------------------------------------------------------------------- */

/* Does the path have a component that ends before byte n? */
static int ends_at(const char *path, size_t n)
{
    return n > 0 && path[n - 1] != '/' && (path[n] == '/' || path[n] == '\0');
}

size_t io_missing(const char *path)
{
    char *part = mem_string(NULL, path);
    size_t length = strlen(path), found = 0;
    for (size_t n = 1; part && n <= length && !found; n++) {
        if (!ends_at(path, n))
            continue;
        part[n] = '\0';
        if (!io_exists(part))
            found = n;
        part[n] = path[n];
    }
    mem_free(part);
    return found;
}

void io_remove_empty(const char *path, size_t from)
{
    char *part = mem_string(NULL, path);
    for (size_t n = strlen(path); part && from > 0 && n >= from; n--) {
        if (!ends_at(path, n))
            continue;
        part[n] = '\0';
        if (rmdir(part) < 0)
            break;
    }
    mem_free(part);
}
