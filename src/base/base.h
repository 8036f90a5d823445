/* base.h - what every other file stands on: errors, checked sizes, memory, strict numbers.
 *
 * Three rules hold everywhere above this file:
 *   - a function that can fail returns 0 or -1 and fills the caller's `struct error`;
 *   - a size that comes from a file or an option is multiplied with size_mul() and allocated with
 *     mem_alloc(), never with bare `*` and malloc();
 *   - nothing below src/cli prints or exits.
 */
#ifndef FALX_BASE_H
#define FALX_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF(fmt, args)
#endif
#if defined(__cplusplus) /* the CUDA sources read this file, too */
#define _Noreturn [[noreturn]]
#endif

/* ---- errors ------------------------------------------------------------------------------- */

/* The values are the exit codes of the program. */
enum error_code {
    ERR_NONE = 0,
    ERR_INTERNAL = 1, /* a bug of ours */
    ERR_CONFIG = 2,   /* command line or configuration */
    ERR_DATA = 3,     /* input data refused */
    ERR_SYSTEM = 4,   /* no space, read-only, permission, I/O error */
    ERR_MEMORY = 5,   /* host memory */
    ERR_DEVICE = 6,   /* accelerator absent, full or lost */
    ERR_NUMERIC = 7,  /* divergence not cured by retries */
    ERR_RANK = 8,     /* another rank died or disagrees */
    ERR_BUSY = 9,     /* run folder busy, or checkpoint incompatible */
    ERR_STOPPED = 10  /* stopped on request, resumable */
};

/* Owned by the caller, fixed size: reporting that memory is gone needs no memory. */
struct error {
    enum error_code code;
    char id[8];     /* fault catalogue id such as "N07", or "" */
    char text[360]; /* one line without line end; printable UTF-8 only */
};

/* Fills *e (e may be NULL) and returns -1. Control and non-UTF-8 bytes of the text are escaped as
 * \xNN, so that no file name can forge a second line. `id` may be NULL. */
int fail(struct error *e, enum error_code code, const char *id, const char *fmt, ...) PRINTF(4, 5);

/* Puts "path: " in front of the text of *e (a long path loses its beginning) and returns -1. */
int fail_in(struct error *e, const char *path);

/* fail() with the meaning of errno behind the text; code and id follow from errno_value. */
int fail_errno(struct error *e, int errno_value, const char *what);

/* A broken invariant: prints and aborts. For bugs of ours only, never for bad input. */
#define CHECK(cond) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__))
_Noreturn void check_failed(const char *cond, const char *file, int line);

/* ---- warnings and progress that a library user may listen to --------------------------------- */

enum report_kind { REPORT_NOTE, REPORT_WARNING, REPORT_PROBLEM };

struct report_hold;

/* The listener. A NULL `struct report *` is legal everywhere and means nobody listens. */
struct report {
    void (*line)(struct report *r, enum report_kind kind, const char *text);
    int n_warnings; /* counted by report_line */
    int n_problems;
    struct report_hold *hold; /* NULL, or where lines wait instead of going out */
};

/* Text is "path: message [id]"; path and id may be NULL. One thread at a time. */
void report_line(struct report *r, enum report_kind kind, const char *path, const char *id, const char *fmt,
                 ...) PRINTF(5, 6);

/* Keeps lines until it is known whether they matter: of a file that is refused only the refusal is
 * told. Up to 8; more are dropped. */
enum { PATH_SHOWN = 200 }; /* bytes of a path that fit into a line with room for the reason */
struct report_hold {
    struct report report; /* what to pass on as the listener */
    const char *path;     /* of lines that come without one; NULL at first */
    int n;
    struct {
        enum report_kind kind;
        char path[PATH_SHOWN + 1]; /* "" if there is none */
        struct error line;         /* id and text */
    } held[8];
};
void report_hold(struct report_hold *h);
/* Hands the lines to `to`, which may be NULL or a hold, too. */
void report_release(struct report_hold *h, struct report *to);
/* -1 with the first held warning that has an id as the error; 0 if there is none. */
int report_refuse(const struct report_hold *h, struct error *e);

/* ---- sizes and memory -------------------------------------------------------------------------- */

/* *out = a * b; returns -1 (and leaves *out alone) if that overflows. */
int size_mul(size_t *out, size_t a, size_t b);
int size_add(size_t *out, size_t a, size_t b);

/* The one allocator. Memory comes zeroed, aligned for any type; release with mem_free (NULL is fine).
 * On failure NULL is returned and *e says how many bytes were wanted. count*each == 0 gives a valid
 * pointer. */
void *mem_alloc(struct error *e, size_t count, size_t each);
/* Grows or shrinks; new bytes are NOT zeroed. On failure NULL is returned and `old` stays valid. */
void *mem_resize(struct error *e, void *old, size_t count, size_t each);
char *mem_string(struct error *e, const char *text);
char *mem_format(struct error *e, const char *fmt, ...) PRINTF(2, 3);
void mem_free(void *p);

/* Tests: let allocation number n (0 = the next one) and, if `forever`, all after it fail. n < 0 ends
 * that. */
void mem_fail_at(int64_t n, int forever);
int64_t mem_count(void); /* allocations since the last mem_fail_at */

/* ---- text -------------------------------------------------------------------------------------- */

/* Copies `in` to out[cap], with control and non-UTF-8 bytes as \xNN; cut if too long. Returns out. */
char *text_escape(char *out, size_t cap, const char *in);
int text_ends_with(const char *text, const char *tail);        /* 1 or 0 */
int text_ends_with_nocase(const char *text, const char *tail); /* ASCII letters only */
int text_starts_with(const char *text, const char *head);
/* Word `number` of "a|b|c" to out[cap], or the number if there are fewer. Returns out. */
char *text_choice(char *out, size_t cap, const char *choices, int number);
/* The word of a list with commas that begins at *at to out[cap], cut if too long; *at moves to the next word,
 * or to NULL. Returns the bytes of the whole word: "a,,b" are three words, "" is one. */
size_t text_next(char *out, size_t cap, const char **at);
/* Distance in edits between two words, for "did you mean"; at most 64 characters are looked at. */
int text_distance(const char *a, const char *b);
/* The last component of a path (borrowed), and the path without it ("." if there is none). */
const char *path_name(const char *path);
char *path_folder(struct error *e, const char *path);
char *path_join(struct error *e, const char *folder, const char *name);
/* 1 if `name` is one plain component: not empty, no '/', not "." or "..", no NUL. */
int path_is_plain(const char *name);

/* Strict numbers: the whole text must be one number in C notation, decimal, finite, in range of the
 * type; no hex, no blanks, no trailing text, whatever the locale. Return 0 or -1. */
int parse_int(int64_t *out, const char *text);
int parse_real(double *out, const char *text);
/* The way back, with 17 digits: parse_real() then gives the same bits. Returns out. */
char *text_real(char out[32], double value);

/* FNV-1a by words of 8 bytes; not cryptographic. */
uint64_t hash_bytes(const void *bytes, size_t n, uint64_t start);

#endif
