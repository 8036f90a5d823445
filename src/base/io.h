/* io.h - the only door to the file system.
 *
 * Reading: see source.h. Writing: a file appears under its name whole and synced, or not at all:
 *
 *     io_create -> io_append ... -> io_commit       temp file, fsync, rename, fsync of the folder
 *                               \-> io_abandon      temp file removed, old file untouched
 *
 * `io` is the table of system calls in use. Tests replace it before any thread starts, to fail or to
 * kill at the n-th call.
 */
#ifndef FALX_IO_H
#define FALX_IO_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

struct io_ops { /* as the POSIX calls of the same name: -1 and errno on failure */
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*read)(int fd, void *out, size_t n);
    ssize_t (*write)(int fd, const void *bytes, size_t n);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    int (*lstat)(const char *path, struct stat *out);
};
extern const struct io_ops io_posix;
extern const struct io_ops *io;

struct io_file; /* a file being written */

/* mode is that of the finished file, before umask (0666 as a rule, 0600 for private ones). */
int io_create(struct io_file **out, const char *path, mode_t mode, struct error *e);
int io_append(struct io_file *f, const void *bytes, size_t n, struct error *e);
/* The same as one gzip stream of all parts, one after the other; equal input gives equal bytes. */
struct io_part {
    const void *bytes;
    size_t n;
};
int io_append_gzip(struct io_file *f, const struct io_part *parts, int n_parts, struct error *e);
int io_commit(struct io_file *f, struct error *e); /* frees f, also on failure */
void io_abandon(struct io_file *f);                /* NULL is fine */

/* All of the above in one call. */
int io_write_all(const char *path, mode_t mode, const void *bytes, size_t n, struct error *e);

/* Before hours of work: can a file be written here later? Not over a folder or device, over an existing
 * file only if `force`, and the folder must exist and be writable. */
int io_check_output(const char *path, int force, struct error *e);

/* Opens a regular file for reading and gives its length. FIFOs, devices, folders, sockets, dangling
 * links and loops are refused without blocking [Z11]; permission and I/O errors are ERR_SYSTEM [Z12]. */
int io_open_regular(int *fd, uint64_t *bytes, const char *path, struct error *e);
/* Reads up to n bytes, retrying EINTR; fewer only at the end of the file. -1 on error. */
ssize_t io_read_full(int fd, void *out, size_t n);

/* Whole text file of at most `limit` bytes, NUL-terminated copy in *out (mem_free). A BOM is dropped;
 * NUL bytes are refused. `bytes` may be NULL. */
int io_read_text(char **out, size_t *bytes, const char *path, size_t limit, struct error *e);

struct io_entry {
    char *name;
    int is_folder; /* after following links */
};
struct io_listing {
    struct io_entry *entry; /* sorted by name, bytewise; "." and ".." left out */
    int n;
};
int io_list(struct io_listing *out, const char *folder, struct error *e);
void io_listing_free(struct io_listing *l);

int io_make_folders(const char *path, struct error *e); /* like mkdir -p */
int io_exists(const char *path);                        /* 1 if a file, folder or link is there */
/* The same where a wrong "no" does harm: -1 if it cannot be told (no permission, an I/O error). */
int io_find(const char *path, struct error *e);
int io_is_folder(const char *path);
int io_is_same(const char *a, const char *b); /* 1 if both are there and one, links followed */
/* A private folder below $TMPDIR or /tmp, and its removal with everything inside. */
int io_temp_folder(char **out, struct error *e);
void io_remove_tree(const char *path);
/* Before an exit from outside (a signal): removes every unfinished file and temporary folder. Writers in
 * other threads are stopped for good, so nothing new appears afterwards. */
void io_remove_temporaries(void);

/* Is this the name of a file that was being written? And the removal of all those in a folder, for what was
 * writing them died: only where nobody else writes now. */
int io_is_unfinished(const char *name);
int io_sweep(const char *folder, struct error *e);

/* A path that io_remove_temporaries() takes away, until it is dropped. */
int io_temporary_add(const char *path, struct error *e);
void io_temporary_drop(const char *path);

/* Makes the caller the only falx that works in a folder. If another does: ERR_BUSY with its signature, if it
 * left one [P08]. The lock ends with io_unlock_folder or the process, however it dies. */
int io_lock_folder(int *lock, const char *folder, struct error *e);
void io_unlock_folder(int lock);
/* -1 if the path no longer names the folder that is locked [P07]. */
int io_check_locked(int lock, const char *folder, struct error *e);
/* A file "running" in a locked folder says which process on which host works there since when. Only for
 * people: that it cannot be written is no error. */
void io_sign_folder(const char *folder);
void io_unsign_folder(const char *folder);

/* Length of the shortest beginning of a path that does not exist yet, 0 if all of it does; and, after
 * io_make_folders, the removal of those folders as far as they are empty. */
size_t io_missing(const char *path);
void io_remove_empty(const char *path, size_t from);

#endif
