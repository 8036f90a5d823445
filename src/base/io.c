/* io.c - files: opened with suspicion, written whole or not at all. See io.h.
 *
 * A failed fsync is never retried: the kernel may have dropped the dirty pages, and a second call would
 * report success over lost data.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

static int posix_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

const struct io_ops io_posix = {posix_open, read, write, fsync, close, rename, unlink, mkdir, lstat};
const struct io_ops *io = &io_posix;

/* ---- what must not outlive us ------------------------------------------------------------------ */

/* Unfinished files and temporary folders of this process. The lock is also held around each rename, so
 * that io_remove_temporaries() never takes away a file that is about to be finished. */
static pthread_mutex_t temporaries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct temporary {
    struct temporary *next;
    char path[];
} * temporaries;

int io_temporary_add(const char *path, struct error *e)
{
    struct temporary *t = mem_alloc(e, 1, sizeof *t + strlen(path) + 1);
    if (!t)
        return -1;
    strcpy(t->path, path);
    pthread_mutex_lock(&temporaries_lock);
    t->next = temporaries;
    temporaries = t;
    pthread_mutex_unlock(&temporaries_lock);
    return 0;
}

void io_temporary_drop(const char *path)
{
    pthread_mutex_lock(&temporaries_lock);
    struct temporary **at = &temporaries, *found;
    while (*at && strcmp((*at)->path, path) != 0)
        at = &(*at)->next;
    if ((found = *at))
        *at = found->next;
    pthread_mutex_unlock(&temporaries_lock);
    mem_free(found);
}

static void remove_below(const char *path);

void io_remove_temporaries(void)
{
    pthread_mutex_lock(&temporaries_lock); /* and never unlocked */
    for (struct temporary *t = temporaries; t; t = t->next)
        remove_below(t->path);
}

/* ---- writing ---------------------------------------------------------------------------------- */

struct io_file {
    int fd;
    char *path; /* final name */
    char *temp; /* ".falx-PID-N.tmp" in the same folder */
};

static void file_free(struct io_file *f)
{
    if (f->temp)
        io_temporary_drop(f->temp);
    mem_free(f->path);
    mem_free(f->temp);
    mem_free(f);
}

static char *temp_name(struct error *e, const char *path)
{
    static atomic_uint counter;
    char *folder = path_folder(e, path);
    char *temp = NULL;
    if (folder)
        temp = mem_format(e, "%s/.falx-%ld-%u.tmp", folder, (long)getpid(), atomic_fetch_add(&counter, 1));
    mem_free(folder);
    return temp;
}

int io_is_unfinished(const char *name)
{
    return text_starts_with(name, ".falx-") && text_ends_with(name, ".tmp");
}

int io_create(struct io_file **out, const char *path, mode_t mode, struct error *e)
{
    *out = NULL;
    struct io_file *f = mem_alloc(e, 1, sizeof *f);
    if (!f)
        return -1;
    f->path = mem_string(e, path);
    f->temp = f->path ? temp_name(e, path) : NULL;
    if (!f->temp || io_temporary_add(f->temp, e) < 0) {
        file_free(f);
        return -1;
    }
    f->fd = io->open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (f->fd < 0) {
        fail_errno(e, errno, "cannot create file");
        fail_in(e, path);
        file_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

int io_append(struct io_file *f, const void *bytes, size_t n, struct error *e)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = io->write(f->fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            fail_errno(e, done < 0 ? errno : ENOSPC, "cannot write");
            return fail_in(e, f->path);
        }
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Makes a rename durable. Folders that cannot be synced (some network file systems) are let be. */
static int sync_folder(const char *path, struct error *e)
{
    char *folder = path_folder(e, path);
    if (!folder)
        return -1;
    int result = 0, fd = io->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd >= 0) {
        if (io->fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP)
            result = fail_errno(e, errno, "cannot sync folder");
        io->close(fd);
    }
    mem_free(folder);
    return result;
}

int io_commit(struct io_file *f, struct error *e)
{
    const char *failed = NULL;
    if (io->fsync(f->fd) < 0)
        failed = "cannot sync";
    int error = errno;
    if (io->close(f->fd) < 0 && !failed) {
        failed = "cannot close";
        error = errno;
    }
    f->fd = -1;
    pthread_mutex_lock(&temporaries_lock);
    if (!failed && io->rename(f->temp, f->path) < 0) {
        failed = "cannot rename into place";
        error = errno;
    }
    pthread_mutex_unlock(&temporaries_lock);
    int result = 0;
    if (failed) {
        io->unlink(f->temp);
        fail_errno(e, error, failed);
        result = fail_in(e, f->path);
    } else if (sync_folder(f->path, e) < 0) {
        result = fail_in(e, f->path);
    }
    file_free(f);
    return result;
}

void io_abandon(struct io_file *f)
{
    if (!f)
        return;
    io->close(f->fd);
    io->unlink(f->temp);
    file_free(f);
}

int io_write_all(const char *path, mode_t mode, const void *bytes, size_t n, struct error *e)
{
    struct io_file *f;
    if (io_create(&f, path, mode, e) < 0)
        return -1;
    if (io_append(f, bytes, n, e) < 0) {
        io_abandon(f);
        return -1;
    }
    return io_commit(f, e);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a folder"
           : S_ISFIFO(mode)                 ? "a FIFO"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "not a regular file";
}

static int output_refused(const char *path, int force, struct error *e)
{
    struct stat st;
    if (lstat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
            return fail(e, ERR_CONFIG, "O01", "%s, expected the name of a file to write",
                        kind_of(st.st_mode));
        if (!force)
            return fail(e, ERR_CONFIG, "O01", "exists; use --force to replace it");
    }
    char *folder = path_folder(e, path);
    int result = folder ? 0 : -1;
    if (folder && access(folder, W_OK | X_OK) < 0)
        result = fail_errno(e, errno, "cannot write in its folder");
    mem_free(folder);
    return result;
}

int io_check_output(const char *path, int force, struct error *e)
{
    return output_refused(path, force, e) < 0 ? fail_in(e, path) : 0;
}

/* ---- reading ---------------------------------------------------------------------------------- */

int io_open_regular(int *fd, uint64_t *bytes, const char *path, struct error *e)
{
    /* O_NONBLOCK: opening a FIFO returns at once; it changes nothing for regular files. */
    *fd = io->open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (*fd < 0) {
        int error = errno;
        if (error == ENXIO || error == ELOOP ||
            (error == ENOENT && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0))
            return fail(e, ERR_DATA, "Z11", "not a regular file (%s)",
                        error == ENXIO   ? "socket or device"
                        : error == ELOOP ? "link loop"
                                         : "dangling link");
        return fail_errno(e, error, "cannot open");
    }
    struct stat st = {.st_mode = 0};
    if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        io->close(*fd);
        return fail(e, ERR_DATA, "Z11", "%s, expected a regular file", kind_of(st.st_mode));
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

ssize_t io_read_full(int fd, void *out, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = io->read(fd, (char *)out + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Drops a byte order mark and refuses NUL bytes. */
static int clean_text(char *text, size_t *n, struct error *e)
{
    if (*n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        memmove(text, text + 3, *n - 3);
        *n -= 3;
        text[*n] = '\0';
    }
    const char *nul = memchr(text, '\0', *n);
    if (nul)
        return fail(e, ERR_DATA, "C04", "NUL byte at offset %td, expected text", nul - text);
    return 0;
}

int io_read_text(char **out, size_t *bytes, const char *path, size_t limit, struct error *e)
{
    *out = NULL;
    int fd;
    uint64_t claimed;
    if (io_open_regular(&fd, &claimed, path, e) < 0)
        return fail_in(e, path);
    char *text = NULL;
    int result = -1;
    if (claimed > limit) {
        fail(e, ERR_DATA, "C06", "%llu bytes, limit %zu", (unsigned long long)claimed, limit);
        goto out;
    }
    text = mem_alloc(e, (size_t)claimed + 1, 1);
    if (!text)
        goto out;
    ssize_t got = io_read_full(fd, text, (size_t)claimed);
    if (got < 0) {
        fail_errno(e, errno, "cannot read");
        goto out;
    }
    size_t n = (size_t)got;
    if (clean_text(text, &n, e) < 0)
        goto out;
    if (bytes)
        *bytes = n;
    *out = text;
    result = 0;
out:
    io->close(fd);
    if (result < 0) {
        mem_free(text);
        fail_in(e, path);
    }
    return result;
}

/* ---- folders ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct io_entry *)a)->name, ((const struct io_entry *)b)->name);
}

static int entry_is_folder(int folder_fd, const struct dirent *d)
{
    if (d->d_type == DT_DIR)
        return 1;
    if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
        return 0;
    struct stat st;
    return fstatat(folder_fd, d->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int listing_add(struct io_listing *l, int *room, const char *name, int is_folder, struct error *e)
{
    if (l->n == *room) {
        int more = *room ? 2 * *room : 64;
        struct io_entry *grown = mem_resize(e, l->entry, (size_t)more, sizeof *grown);
        if (!grown)
            return -1;
        l->entry = grown;
        *room = more;
    }
    char *copy = mem_string(e, name);
    if (!copy)
        return -1;
    l->entry[l->n++] = (struct io_entry){copy, is_folder};
    return 0;
}

int io_list(struct io_listing *out, const char *folder, struct error *e)
{
    *out = (struct io_listing){NULL, 0};
    DIR *d = opendir(folder);
    if (!d) {
        fail_errno(e, errno, "cannot list folder");
        return fail_in(e, folder);
    }
    int room = 0, result = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(d);
        if (!entry) {
            if (errno)
                result = fail_errno(e, errno, "cannot list folder");
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        result = listing_add(out, &room, entry->d_name, entry_is_folder(dirfd(d), entry), e);
        if (result < 0)
            break;
    }
    closedir(d);
    if (result < 0) {
        io_listing_free(out);
        return fail_in(e, folder);
    }
    if (out->n > 1)
        qsort(out->entry, (size_t)out->n, sizeof *out->entry, by_name);
    return 0;
}

void io_listing_free(struct io_listing *l)
{
    for (int i = 0; i < l->n; i++)
        mem_free(l->entry[i].name);
    mem_free(l->entry);
    *l = (struct io_listing){NULL, 0};
}

int io_make_folders(const char *path, struct error *e)
{
    char *copy = mem_string(e, path);
    if (!copy)
        return -1;
    int result = 0;
    for (char *p = copy + 1; result == 0; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (io->mkdir(copy, 0777) < 0 && errno != EEXIST) {
            fail_errno(e, errno, "cannot make folder");
            result = fail_in(e, copy);
        }
        *p = c;
        if (c == '\0')
            break;
    }
    if (result == 0 && !io_is_folder(path)) {
        fail(e, ERR_SYSTEM, NULL, "exists and is not a folder");
        result = fail_in(e, path);
    }
    mem_free(copy);
    return result;
}

int io_find(const char *path, struct error *e)
{
    struct stat st;
    if (io->lstat(path, &st) == 0)
        return 1;
    if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG)
        return 0;
    fail_errno(e, errno, "cannot see whether it is there");
    return fail_in(e, path);
}

int io_exists(const char *path)
{
    return io_find(path, NULL) == 1;
}

int io_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int io_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int io_temp_folder(char **out, struct error *e)
{
    const char *base = getenv("TMPDIR");
    *out = mem_format(e, "%s/falx-XXXXXX", base && *base ? base : "/tmp");
    if (!*out)
        return -1;
    if (!mkdtemp(*out)) {
        fail_errno(e, errno, "cannot make a temporary folder");
        fail_in(e, *out);
        mem_free(*out);
        *out = NULL;
        return -1;
    }
    if (io_temporary_add(*out, e) == 0)
        return 0;
    rmdir(*out);
    mem_free(*out);
    *out = NULL;
    return -1;
}

/* A folder with all inside it, or anything else; links are removed, not followed. */
static void remove_below(const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        struct io_listing l;
        if (io_list(&l, path, NULL) == 0) {
            for (int i = 0; i < l.n; i++) {
                char *inside = path_join(NULL, path, l.entry[i].name);
                if (inside)
                    remove_below(inside);
                mem_free(inside);
            }
            io_listing_free(&l);
        }
        rmdir(path);
    } else {
        io->unlink(path);
    }
}

void io_remove_tree(const char *path)
{
    if (!path)
        return;
    remove_below(path);
    io_temporary_drop(path);
}
