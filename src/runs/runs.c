/* runs.c - the SQLite file of a run; see runs.h. The only library file that knows sqlite3.
 *
 *     runs_add_* --> rows and facts in memory --> runs_flush: one transaction --> the file
 *
 * One file, no write-ahead log: a copy of the folder is a whole copy. SQLite's rollback journal
 * makes a flush all or nothing, and whoever opens the file next, falx or not, repairs what a kill
 * left.
 *
 * Someone who reads for long makes SQLite refuse a commit. Training must not stop for that: the
 * rows stay in memory and go out with the next flush.
 *
 * The file may come from anywhere: its schema is not trusted (no functions from triggers or views),
 * the pages are checked at opening, and it must carry falx's mark (application_id) and a known
 * version.
 */
#include "runs/runs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

enum {
    MARK = 0x66616C78, /* "falx", PRAGMA application_id */
    VERSION = 1,       /* PRAGMA user_version */
    BUSY_MS = 2000,    /* how long a flush waits for a reader */
    NAME_MAX_BYTES = 31,
    PENDING_MAX = 1 << 20 /* rows that may wait: a day of steps, some 60 MB */
};

struct row {
    int is_validation; /* name and value of a step, or class and Dice */
    int phase, class_index;
    int64_t step;
    char name[NAME_MAX_BYTES + 1];
    double value;
};

struct fact {
    char *key, *value;
};

struct runs {
    sqlite3 *db;
    char *path;
    struct row *rows;
    int n_rows, room;
    struct fact *facts;
    int n_facts;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static enum error_code code_of(int sqlite_code)
{
    switch (sqlite_code & 0xFF) {
    case SQLITE_NOMEM: return ERR_MEMORY;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR: /* a table or column is not as we make them */
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT: return ERR_DATA;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ERR_BUSY;
    default: /* FULL, IOERR, READONLY, CANTOPEN, PERM, AUTH */ return ERR_SYSTEM;
    }
}

static int failed(const struct runs *r, const char *what, struct error *e)
{
    int code = sqlite3_extended_errcode(r->db);
    int kind = code & 0xFF;
    const char *id = kind == SQLITE_FULL                               ? "P04"
                     : kind == SQLITE_NOTADB || kind == SQLITE_CORRUPT ? RUNS_DAMAGED
                     : code_of(code) == ERR_SYSTEM                     ? "P05"
                                                                       : NULL;
    fail(e, code_of(code), id, "%s: %s", what, sqlite3_errmsg(r->db));
    return fail_in(e, r->path);
}

static int is_busy(const struct runs *r)
{
    int code = sqlite3_errcode(r->db) & 0xFF;
    return code == SQLITE_BUSY || code == SQLITE_LOCKED;
}

/* ---- statements ------------------------------------------------------------------------------ */

static int execute(struct runs *r, const char *sql, struct error *e)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(r, "cannot write metrics", e);
}

static sqlite3_stmt *prepare(struct runs *r, const char *sql, struct error *e)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
        failed(r, "cannot read metrics", e);
    return s;
}

/* The one number a pragma answers. */
static int ask(int64_t *out, struct runs *r, const char *sql, struct error *e)
{
    sqlite3_stmt *s = prepare(r, sql, e);
    if (!s)
        return -1;
    int ok = sqlite3_step(s) == SQLITE_ROW;
    *out = ok ? sqlite3_column_int64(s, 0) : 0;
    int result = ok ? 0 : failed(r, "cannot read metrics", e);
    sqlite3_finalize(s);
    return result;
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char schema[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS steps(phase INTEGER, step INTEGER, name TEXT, value REAL,"
    " PRIMARY KEY(phase, step, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS validation(phase INTEGER, step INTEGER, class INTEGER, dice REAL,"
    " PRIMARY KEY(phase, step, class)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS facts(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;"
    "PRAGMA application_id = 1717660792;" /* MARK */
    "PRAGMA user_version = 1;"            /* VERSION */
    "COMMIT;";

static int check_pages(struct runs *r, struct error *e)
{
    sqlite3_stmt *s = prepare(r, "PRAGMA quick_check(1)", e);
    if (!s)
        return -1;
    int result = 0;
    if (sqlite3_step(s) != SQLITE_ROW) {
        result = failed(r, "cannot read metrics", e);
    } else {
        const char *answer = (const char *)sqlite3_column_text(s, 0);
        if (!answer || strcmp(answer, "ok") != 0) {
            fail(e, ERR_DATA, RUNS_DAMAGED, "damaged, expected the metrics of a falx run");
            result = fail_in(e, r->path);
        }
    }
    sqlite3_finalize(s);
    return result;
}

/* Sets *empty if nothing was ever written; refuses what is not ours. */
static int check_mark(struct runs *r, int *empty, struct error *e)
{
    int64_t mark, version, tables;
    if (ask(&mark, r, "PRAGMA application_id", e) < 0 || ask(&version, r, "PRAGMA user_version", e) < 0 ||
        ask(&tables, r, "SELECT count(*) FROM sqlite_schema", e) < 0)
        return -1;
    *empty = tables == 0 && mark == 0;
    if (*empty)
        return 0;
    if (mark != MARK) {
        fail(e, ERR_DATA, NULL, "a database, but not the metrics of a falx run");
        return fail_in(e, r->path);
    }
    if (version > VERSION) {
        fail(e, ERR_BUSY, "K04", "metrics of version %" PRId64 "; this falx reads up to %d", version,
             VERSION);
        return fail_in(e, r->path);
    }
    return check_pages(r, e);
}

/* A folder, FIFO or device is refused before SQLite sees it. */
static int check_kind(const char *path, struct error *e)
{
    int fd;
    uint64_t bytes;
    if (io_open_regular(&fd, &bytes, path, e) < 0)
        return fail_in(e, path);
    io->close(fd);
    return 0;
}

static int configure(struct runs *r, struct error *e)
{
    sqlite3_extended_result_codes(r->db, 1);
    sqlite3_busy_timeout(r->db, BUSY_MS);
    if (sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
        sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) != SQLITE_OK ||
        sqlite3_db_config(r->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL) != SQLITE_OK ||
        sqlite3_db_config(r->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL) != SQLITE_OK)
        return failed(r, "cannot set up SQLite", e);
    return execute(r, "PRAGMA cell_size_check = ON", e);
}

static void drop_pending(struct runs *r)
{
    for (int i = 0; i < r->n_facts; i++) {
        mem_free(r->facts[i].key);
        mem_free(r->facts[i].value);
    }
    r->n_rows = r->n_facts = 0;
}

static void release(struct runs *r)
{
    drop_pending(r);
    sqlite3_close(r->db);
    mem_free(r->facts);
    mem_free(r->rows);
    mem_free(r->path);
    mem_free(r);
}

static int open_file(struct runs **out, const char *path, int flags, int *empty, struct error *e)
{
    *out = NULL;
    if (((flags & SQLITE_OPEN_CREATE) == 0 || io_exists(path)) && check_kind(path, e) < 0)
        return -1;
    struct runs *r = mem_alloc(e, 1, sizeof *r);
    if (!r)
        return -1;
    r->path = mem_string(e, path);
    if (!r->path)
        goto give_up;
    if (sqlite3_open_v2(path, &r->db, flags | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK) {
        failed(r, "cannot open metrics", e);
        goto give_up;
    }
    if (configure(r, e) < 0 || check_mark(r, empty, e) < 0)
        goto give_up;
    *out = r;
    return 0;
give_up:
    release(r);
    return -1;
}

int runs_open(struct runs **out, const char *path, struct error *e)
{
    int empty;
    if (open_file(out, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &empty, e) < 0)
        return -1;
    /* The schema is written every time: that shows now whether the file can be, and ends with the
     * removal of a journal that a killed process left. */
    if (execute(*out, "PRAGMA journal_mode = DELETE", e) == 0 && execute(*out, schema, e) == 0)
        return 0;
    release(*out);
    *out = NULL;
    return -1;
}

/* Its journal goes with it: SQLite would roll it back into the file that takes its place. */
int runs_put_aside(const char *path, struct error *e)
{
    static const char *const part[] = {"", "-journal"};
    int result = 0;
    for (int i = 0; i < 2 && result == 0; i++) {
        char *from = mem_format(e, "%s%s", path, part[i]);
        char *to = mem_format(e, "%s.damaged%s", path, part[i]);
        result = from && to ? 0 : -1;
        if (result == 0 && io_exists(from) && io->rename(from, to) < 0) {
            fail_errno(e, errno, "cannot rename");
            result = fail_in(e, from);
        }
        mem_free(from);
        mem_free(to);
    }
    return result;
}

int runs_open_reading(struct runs **out, const char *path, struct error *e)
{
    int empty;
    /* READWRITE, so that what a killed writer left can be rolled back; query_only forbids the rest. */
    if (open_file(out, path, SQLITE_OPEN_READWRITE, &empty, e) < 0)
        return -1;
    if (empty) {
        fail(e, ERR_DATA, NULL, "holds no metrics yet");
        fail_in(e, path);
    } else if (execute(*out, "PRAGMA query_only = ON", e) == 0) {
        return 0;
    }
    release(*out);
    *out = NULL;
    return -1;
}

void runs_close(struct runs *r)
{
    if (!r)
        return;
    runs_flush(r, NULL);
    release(r);
}

/* ---- writing --------------------------------------------------------------------------------- */

static struct row *next_row(struct runs *r, struct error *e)
{
    if (r->n_rows == PENDING_MAX) {
        fail(e, ERR_BUSY, "P10", "another program has kept the metrics locked for %d rows", PENDING_MAX);
        fail_in(e, r->path);
        return NULL;
    }
    if (r->n_rows == r->room) {
        int room = r->room ? 2 * r->room : 256;
        struct row *more = mem_resize(e, r->rows, (size_t)room, sizeof *more);
        if (!more)
            return NULL;
        r->rows = more;
        r->room = room;
    }
    return &r->rows[r->n_rows++];
}

int runs_add_step(struct runs *r, int phase, int64_t step, const char *name, double value, struct error *e)
{
    CHECK(strlen(name) <= NAME_MAX_BYTES);
    struct row *row = next_row(r, e);
    if (!row)
        return -1;
    *row = (struct row){.phase = phase, .step = step, .value = value};
    strcpy(row->name, name);
    return 0;
}

int runs_add_validation(struct runs *r, int phase, int64_t step, int class_index, double dice,
                        struct error *e)
{
    struct row *row = next_row(r, e);
    if (!row)
        return -1;
    *row = (struct row){
        .is_validation = 1, .phase = phase, .step = step, .class_index = class_index, .value = dice};
    return 0;
}

int runs_set_fact(struct runs *r, const char *key, const char *value, struct error *e)
{
    struct fact *more = mem_resize(e, r->facts, (size_t)r->n_facts + 1, sizeof *more);
    if (!more)
        return -1;
    r->facts = more;
    struct fact f = {mem_string(e, key), mem_string(e, value)};
    if (!f.key || !f.value) {
        mem_free(f.key);
        mem_free(f.value);
        return -1;
    }
    r->facts[r->n_facts++] = f;
    return 0;
}

/* Runs a bound statement to its end and makes it ready for the next row. */
static int finish_row(struct runs *r, sqlite3_stmt *s, struct error *e)
{
    int ok = sqlite3_step(s) == SQLITE_DONE;
    int result = ok ? 0 : failed(r, "cannot write metrics", e);
    sqlite3_reset(s);
    return result;
}

static int put_rows(struct runs *r, int is_validation, const char *sql, struct error *e)
{
    sqlite3_stmt *s = prepare(r, sql, e);
    int result = s ? 0 : -1;
    for (int i = 0; result == 0 && i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];
        if (row->is_validation != is_validation)
            continue;
        sqlite3_bind_int(s, 1, row->phase);
        sqlite3_bind_int64(s, 2, row->step);
        if (is_validation)
            sqlite3_bind_int(s, 3, row->class_index);
        else
            sqlite3_bind_text(s, 3, row->name, -1, SQLITE_STATIC);
        sqlite3_bind_double(s, 4, row->value); /* NaN becomes NULL */
        result = finish_row(r, s, e);
    }
    sqlite3_finalize(s);
    return result;
}

static int put_facts(struct runs *r, struct error *e)
{
    sqlite3_stmt *s = prepare(r, "INSERT OR REPLACE INTO facts VALUES(?, ?)", e);
    int result = s ? 0 : -1;
    for (int i = 0; result == 0 && i < r->n_facts; i++) {
        sqlite3_bind_text(s, 1, r->facts[i].key, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, r->facts[i].value, -1, SQLITE_STATIC);
        result = finish_row(r, s, e);
    }
    sqlite3_finalize(s);
    return result;
}

static int put_all(struct runs *r, struct error *e)
{
    if (put_rows(r, 0, "INSERT OR REPLACE INTO steps VALUES(?, ?, ?, ?)", e) < 0 ||
        put_rows(r, 1, "INSERT OR REPLACE INTO validation VALUES(?, ?, ?, ?)", e) < 0)
        return -1;
    return put_facts(r, e);
}

int runs_flush(struct runs *r, struct error *e)
{
    if (r->n_rows == 0 && r->n_facts == 0)
        return 0;
    if (execute(r, "BEGIN IMMEDIATE", e) == 0) {
        if (put_all(r, e) == 0 && execute(r, "COMMIT", e) == 0) {
            drop_pending(r);
            return 0;
        }
        int busy = is_busy(r);
        sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
        return busy ? 0 : -1;
    }
    return is_busy(r) ? 0 : -1;
}

int runs_forget_after(struct runs *r, int phase, int64_t step, struct error *e)
{
    char sql[300];
    int kept = 0;
    for (int i = 0; i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];
        if (row->phase < phase || (row->phase == phase && row->step <= step))
            r->rows[kept++] = *row;
    }
    r->n_rows = kept;
    snprintf(sql, sizeof sql,
             "BEGIN IMMEDIATE;"
             "DELETE FROM steps WHERE (phase, step) > (%d, %" PRId64 ");"
             "DELETE FROM validation WHERE (phase, step) > (%d, %" PRId64 ");"
             "COMMIT;",
             phase, step, phase, step);
    if (execute(r, sql, e) == 0)
        return 0;
    if (!sqlite3_get_autocommit(r->db))
        sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

int runs_fact(char **out, struct runs *r, const char *key, struct error *e)
{
    *out = NULL;
    sqlite3_stmt *s = prepare(r, "SELECT value FROM facts WHERE key = ?", e);
    if (!s)
        return -1;
    sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
    int step = sqlite3_step(s), result = 0;
    const char *text = step == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (text && !(*out = mem_string(e, text)))
        result = -1;
    else if (step != SQLITE_ROW && step != SQLITE_DONE)
        result = failed(r, "cannot read metrics", e);
    sqlite3_finalize(s);
    return result;
}

int runs_names(char ***names, int *n, struct runs *r, struct error *e)
{
    char **list = NULL;
    int count = 0, step;
    *names = NULL;
    *n = 0;
    sqlite3_stmt *s = prepare(r, "SELECT DISTINCT name FROM steps ORDER BY name", e);
    if (!s)
        return -1;
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(s, 0);
        char **more = mem_resize(e, list, (size_t)count + 1, sizeof *more);
        if (more)
            list = more;
        char *copy = more ? mem_string(e, text ? text : "") : NULL;
        if (!copy)
            goto give_up;
        list[count++] = copy;
    }
    if (step != SQLITE_DONE) {
        failed(r, "cannot read metrics", e);
        goto give_up;
    }
    sqlite3_finalize(s);
    *names = list;
    *n = count;
    return 0;
give_up:
    sqlite3_finalize(s);
    while (count > 0)
        mem_free(list[--count]);
    mem_free(list);
    return -1;
}

static int curve_grow(struct runs_curve *c, struct error *e)
{
    if (c->n & (c->n - 1)) /* room for a power of two */
        return 0;
    size_t room = c->n ? 2 * (size_t)c->n : 1;
    int *phase = mem_resize(e, c->phase, room, sizeof *phase);
    c->phase = phase ? phase : c->phase;
    int64_t *step = phase ? mem_resize(e, c->step, room, sizeof *step) : NULL;
    c->step = step ? step : c->step;
    double *value = step ? mem_resize(e, c->value, room, sizeof *value) : NULL;
    c->value = value ? value : c->value;
    return value ? 0 : -1;
}

/* Rows of (phase, step, value); NULL is NaN. Ends the statement. */
static int read_curve(struct runs_curve *out, struct runs *r, sqlite3_stmt *s, struct error *e)
{
    int step, result = 0;
    memset(out, 0, sizeof *out);
    while (result == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        result = curve_grow(out, e);
        if (result < 0)
            break;
        out->phase[out->n] = sqlite3_column_int(s, 0);
        out->step[out->n] = sqlite3_column_int64(s, 1);
        out->value[out->n++] = sqlite3_column_type(s, 2) == SQLITE_NULL ? NAN : sqlite3_column_double(s, 2);
    }
    if (result == 0 && step != SQLITE_DONE)
        result = failed(r, "cannot read metrics", e);
    sqlite3_finalize(s);
    if (result < 0)
        runs_curve_free(out);
    return result;
}

int runs_curve(struct runs_curve *out, struct runs *r, const char *name, struct error *e)
{
    memset(out, 0, sizeof *out);
    sqlite3_stmt *s =
        prepare(r, "SELECT phase, step, value FROM steps WHERE name = ? ORDER BY phase, step", e);
    if (!s)
        return -1;
    sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    return read_curve(out, r, s, e);
}

int runs_validation(struct runs_curve *out, struct runs *r, struct error *e)
{
    memset(out, 0, sizeof *out);
    sqlite3_stmt *s = prepare(r,
                              "SELECT phase, step, avg(dice) FROM validation WHERE class > 0"
                              " GROUP BY phase, step ORDER BY phase, step",
                              e);
    return s ? read_curve(out, r, s, e) : -1;
}

void runs_curve_free(struct runs_curve *c)
{
    mem_free(c->phase);
    mem_free(c->step);
    mem_free(c->value);
    memset(c, 0, sizeof *c);
}
