/* checkpoint.c - reading, comparing, loading and writing checkpoints. What a checkpoint holds and
 * which of the two files is written: checkpoint.h.
 */
#include "train/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "net/model_file.h"

static const char *const file_names[2] = {"checkpoint-a.safetensors", "checkpoint-b.safetensors"};

/* ---- counters as text ------------------------------------------------------------------------ */

static const struct {
    const char *key;
    size_t offset;
} integers[] =
    {
        {"at.phase", offsetof(struct counters, phase)},
        {"at.step", offsetof(struct counters, step)},
        {"at.updates", offsetof(struct counters, updates)},
        {"at.validated", offsetof(struct counters, validated)},
        {"at.bad_row", offsetof(struct counters, bad_row)},
        {"at.rollbacks", offsetof(struct counters, rollbacks)},
        {"at.finished", offsetof(struct counters, finished)},
},
  reals[] = {
      {"at.dice", offsetof(struct counters, dice)},
      {"at.best", offsetof(struct counters, best)},
};
enum { N_INTEGERS = sizeof integers / sizeof integers[0], N_REALS = sizeof reals / sizeof reals[0] };

static int read_integer(int64_t *out, const struct st_file *f, const char *key, struct error *e)
{
    const char *text = st_metadata(f, key);
    if (!text)
        return fail(e, ERR_BUSY, "K01", "metadata lack %s", key);
    if (parse_int(out, text) < 0 || *out < -1)
        return fail(e, ERR_BUSY, "K01", "%s is \"%.40s\", expected a count", key, text);
    return 0;
}

static int read_real(double *out, const struct st_file *f, const char *key, struct error *e)
{
    const char *text = st_metadata(f, key);
    *out = NAN;
    if (text && (strcmp(text, "none") == 0 || parse_real(out, text) == 0))
        return 0;
    return fail(e, ERR_BUSY, "K01", "%s is \"%.40s\", expected a number or none", key, text ? text : "");
}

int checkpoint_counters(struct counters *out, const struct st_file *f, struct error *e)
{
    for (int i = 0; i < N_INTEGERS; i++)
        if (read_integer((int64_t *)(void *)((char *)out + integers[i].offset), f, integers[i].key, e) < 0)
            return -1;
    for (int i = 0; i < N_REALS; i++)
        if (read_real((double *)(void *)((char *)out + reals[i].offset), f, reals[i].key, e) < 0)
            return -1;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A link may not lead out of the run folder [K07]. */
static int contained(const char *run, const char *path, struct error *e)
{
    char real[PATH_MAX], root[PATH_MAX];
    if (!realpath(path, real) || !realpath(run, root))
        return 0; /* reading it tells what is wrong */
    size_t n = strlen(root);
    if (strncmp(real, root, n) == 0 && real[n] == '/')
        return 0;
    return fail(e, ERR_BUSY, "K07", "a link out of the run folder");
}

struct generation {
    struct st_file file;
    int64_t serial, is_anchor;
    struct error why; /* code ERR_NONE: good */
};

/* Fills g->why unless the file is sound. Only what says nothing about the file is returned as -1:
 * memory gone, a newer format [K04], a link to elsewhere [K07]. */
static int generation_read(struct generation *g, const char *run, const char *path, struct error *e)
{
    struct st_limits limits = {.require_checksum = 1};
    struct counters at;
    g->why = (struct error){.code = ERR_NONE};
    if (contained(run, path, &g->why) == 0 && st_read(&g->file, path, &limits, &g->why) == 0 &&
        read_integer(&g->serial, &g->file, "at.serial", &g->why) == 0 &&
        read_integer(&g->is_anchor, &g->file, "at.anchor", &g->why) == 0 &&
        checkpoint_counters(&at, &g->file, &g->why) == 0)
        return 0;
    st_free(&g->file);
    if (g->why.code != ERR_MEMORY && strcmp(g->why.id, "K04") != 0 && strcmp(g->why.id, "K07") != 0)
        return 0;
    *e = g->why;
    return strstr(e->text, path) ? -1 : fail_in(e, path);
}

/* The reason without the path that a reader may have put in front. */
static const char *reason(const struct generation *g)
{
    const char *at = strstr(g->why.text, ".safetensors: ");
    return at ? at + strlen(".safetensors: ") : g->why.text;
}

/* Both files as they are: present[i] and g[i]. */
static int read_both(struct generation g[2], int present[2], const char *run, struct error *e)
{
    for (int i = 0; i < 2; i++) {
        char *path = path_join(e, run, file_names[i]);
        present[i] = path ? io_find(path, e) : -1;
        int result = present[i] == 1 ? generation_read(&g[i], run, path, e) : present[i];
        mem_free(path);
        if (result < 0)
            return -1;
    }
    return 0;
}

int checkpoint_open(struct st_file *out, struct checkpoint_files *files, const char *run, struct report *r,
                    struct error *e)
{
    struct generation g[2] = {{.serial = -1}, {.serial = -1}};
    int present[2], good[2], result = -1;
    *files = (struct checkpoint_files){.run = run, .newest = -1, .anchor = -1};
    if (read_both(g, present, run, e) < 0)
        goto out;
    for (int i = 0; i < 2; i++)
        good[i] = present[i] && g[i].why.code == ERR_NONE;
    result = good[0] || good[1];
    if (!result && (present[0] || present[1])) {
        int first = present[0] ? 0 : 1;
        result =
            fail(e, ERR_BUSY, "K03", "no good checkpoint: %s: %.120s; %s: %.120s", file_names[first],
                 reason(&g[first]), file_names[!first], present[!first] ? reason(&g[!first]) : "not there");
        fail_in(e, run);
    }
    if (result <= 0)
        goto out;
    int use = !good[0] || (good[1] && g[1].serial > g[0].serial), other = !use;
    if (present[other] && !good[other])
        report_line(r, REPORT_WARNING, run, "K01", "%s is damaged (%.160s); going on from %s",
                    file_names[other], reason(&g[other]), file_names[use]);
    files->serial = g[use].serial;
    files->newest = use;
    files->anchor = g[use].is_anchor ? use : good[other] && g[other].is_anchor ? other : -1;
    *out = g[use].file;
    g[use].file = (struct st_file){.n_tensors = 0};
out:
    st_free(&g[0].file);
    st_free(&g[1].file);
    return result;
}

int checkpoint_open_anchor(struct st_file *out, const struct checkpoint_files *files, struct error *e)
{
    struct st_limits limits = {.require_checksum = 1};
    if (files->anchor < 0)
        return fail(e, ERR_NUMERIC, "M01", "no checkpoint to go back to");
    char *path = path_join(e, files->run, file_names[files->anchor]);
    int result = path ? st_read(out, path, &limits, e) : -1;
    mem_free(path);
    return result;
}

/* An option is written with hyphens. */
static int is_key(const char *word, const char *key)
{
    for (; *key && (*word == '-' ? '_' : *word) == *key; word++)
        key++;
    return *key == '\0' && *word == '\0';
}

int override_has(const char *list, const char *key)
{
    char word[41];
    for (const char *at = list; at;)
        if (text_next(word, sizeof word, &at) && is_key(word, key))
            return 1;
    return 0;
}

/* A misspelt key would be no key. */
static int check_keys(const char *list, const struct checkpoint_facts *now, struct error *e)
{
    char word[41];
    for (const char *at = list; at && *at;) {
        int known = 0;
        text_next(word, sizeof word, &at);
        for (int i = 0; i < now->n; i++)
            known |= is_key(word, now->fact[i].key + strlen("run."));
        if (known)
            continue;
        fail(e, ERR_CONFIG, "C02",
             "\"%s\", allowed settings, data, classes, channels, precision, "
             "device and version",
             word);
        return fail_in(e, "--override");
    }
    return 0;
}

int checkpoint_same(const struct st_file *f, const struct checkpoint_facts *now, const char *override,
                    struct error *e)
{
    if (check_keys(override, now, e) < 0)
        return -1;
    for (int i = 0; i < now->n; i++) {
        const char *key = now->fact[i].key + strlen("run."), *was = st_metadata(f, now->fact[i].key);
        was = was ? was : facts_before(key);
        if ((was && strcmp(was, now->fact[i].value) == 0) || override_has(override, key))
            continue;
        if (strcmp(key, "data") == 0) /* hashes would say nothing */
            return fail(e, ERR_BUSY, "K05",
                        "scans or labels were changed, added or taken away since the "
                        "checkpoint was made; --override data goes on with those of now");
        return fail(e, ERR_BUSY, "K05", "the checkpoint was made with %s = %.72s, this run has %.72s", key,
                    was ? was : "(none)", now->fact[i].value);
    }
    return 0;
}

/* ---- putting numbers back -------------------------------------------------------------------- */

/* The tensor of this name with exactly so many bytes. */
static const struct st_tensor *need(const struct st_file *f, const char *name, enum st_dtype dtype,
                                    size_t bytes, struct error *e)
{
    const struct st_tensor *x = st_find(f, name);
    if (x && x->dtype == dtype && x->bytes == bytes)
        return x;
    if (x)
        fail(e, ERR_BUSY, "S10", "checkpoint: %s has %zu bytes, expected %zu", name, x->bytes, bytes);
    else
        fail(e, ERR_BUSY, "S10", "checkpoint: %s is missing", name);
    return NULL;
}

/* NAME of "model.NAME/..." is a model of ours, of "state/NAME" a state of ours. */
static int is_known(struct trainer *t, const char *tensor)
{
    char name[64];
    for (int i = 0; i < t->n_states; i++) {
        snprintf(name, sizeof name, "state/%s", t->states[i].name);
        if (strcmp(name, tensor) == 0)
            return 1;
    }
    const char *dot = strchr(tensor, '.'), *end = strchr(tensor, '/');
    if (!dot || !end || end < dot ||
        !(text_starts_with(tensor, "model.") || text_starts_with(tensor, "optim.")))
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)(end - dot - 1), dot + 1);
    struct model *m = trainer_find(t, name);
    return m && (*tensor == 'm' || m->optim);
}

static int load_model(struct model *m, const struct st_file *f, struct error *e)
{
    char name[64];
    int64_t updates;
    snprintf(name, sizeof name, "model.%s/", m->name);
    if (model_from_tensors(m->params, f, name, e) < 0)
        return -1;
    if (!m->optim)
        return 0;
    snprintf(name, sizeof name, "optim.%s.updates", m->name);
    if (read_integer(&updates, f, name, e) < 0)
        return -1;
    m->optim->updates = updates;
    for (int k = 0; k < 2 && m->optim->moment[k]; k++) {
        const struct params *p = m->params;
        snprintf(name, sizeof name, "optim.%s/moment.%d", m->name, k);
        const struct st_tensor *x = need(f, name, ST_F32, (size_t)p->trainable_count * sizeof(float), e);
        for (int i = 0; x && i < p->n_trainable; i++)
            if (param_upload(m->optim->moment[k], p, i, (const float *)x->data + p->list[i].offset, e) < 0)
                return -1;
        if (!x)
            return -1;
    }
    return 0;
}

int checkpoint_load(struct trainer *t, const struct st_file *f, struct error *e)
{
    for (int i = 0; i < f->n_tensors; i++)
        if (!is_known(t, f->tensors[i].name))
            return fail(e, ERR_BUSY, "S10", "checkpoint: %.80s belongs to nothing in this training",
                        f->tensors[i].name);
    for (int i = 0; i < t->n_models; i++)
        if (t->models[i].name[0] && load_model(&t->models[i], f, e) < 0)
            return -1;
    for (int i = 0; i < t->n_states; i++) {
        char name[64];
        snprintf(name, sizeof name, "state/%s", t->states[i].name);
        const struct st_tensor *x = need(f, name, ST_U8, t->states[i].bytes, e);
        if (!x)
            return -1;
        memcpy(t->states[i].data, x->data, x->bytes);
    }
    return device_check(t->dev, e);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A file being put together, and the memory behind its borrowed names and data. */
struct saver {
    struct st_file f;
    struct {
        struct model_copy copy;
        float *moment[2];
        char prefix[32], moment_name[2][48], updates_key[48], updates[24];
    } model[TRAIN_MODELS];
    char state_name[TRAIN_STATES][48];
    char integer[N_INTEGERS][24], real[N_REALS][32], serial[24];
};

static void saver_free(struct saver *s)
{
    if (!s)
        return;
    st_free(&s->f);
    for (int i = 0; i < TRAIN_MODELS; i++) {
        model_copy_free(&s->model[i].copy);
        mem_free(s->model[i].moment[0]);
        mem_free(s->model[i].moment[1]);
    }
    mem_free(s);
}

/* Weights are looked at by model_to_tensors; moments here [M04]. */
static int check_finite(const float *x, int64_t n, const char *name, struct error *e)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return fail(e, ERR_NUMERIC, "M04", "%s is not finite at %" PRId64 "; not written", name, i);
    return 0;
}

static int add_model(struct saver *s, int i, const struct model *m, struct error *e)
{
    snprintf(s->model[i].prefix, sizeof s->model[i].prefix, "model.%s/", m->name);
    if (model_to_tensors(&s->f, &s->model[i].copy, m->params, s->model[i].prefix, e) < 0)
        return fail_in(e, m->name);
    if (!m->optim)
        return 0;
    snprintf(s->model[i].updates_key, sizeof s->model[i].updates_key, "optim.%s.updates", m->name);
    snprintf(s->model[i].updates, sizeof s->model[i].updates, "%" PRId64, m->optim->updates);
    if (st_set(&s->f, s->model[i].updates_key, s->model[i].updates, e) < 0)
        return -1;
    for (int k = 0; k < 2 && m->optim->moment[k]; k++) {
        const struct params *p = m->params;
        int64_t count = p->trainable_count;
        char *name = s->model[i].moment_name[k];
        snprintf(name, sizeof s->model[i].moment_name[k], "optim.%s/moment.%d", m->name, k);
        float *x = s->model[i].moment[k] = mem_alloc(e, (size_t)count, sizeof *x);
        if (!x)
            return -1;
        for (int j = 0; j < p->n_trainable; j++)
            if (param_download(x + p->list[j].offset, p, m->optim->moment[k], j, e) < 0)
                return -1;
        if (check_finite(x, count, name, e) < 0 || st_add(&s->f, name, ST_F32, &count, 1, x, e) < 0)
            return -1;
    }
    return 0;
}

static int add_state(struct saver *s, int i, const struct state_array *a, struct error *e)
{
    int64_t bytes = (int64_t)a->bytes;
    snprintf(s->state_name[i], sizeof s->state_name[i], "state/%s", a->name);
    return st_add(&s->f, s->state_name[i], ST_U8, &bytes, 1, a->data, e);
}

static int add_counters(struct saver *s, const struct counters *at, struct error *e)
{
    for (int i = 0; i < N_INTEGERS; i++) {
        const void *x = (const char *)at + integers[i].offset;
        snprintf(s->integer[i], sizeof s->integer[i], "%" PRId64, *(const int64_t *)x);
        if (st_set(&s->f, integers[i].key, s->integer[i], e) < 0)
            return -1;
    }
    for (int i = 0; i < N_REALS; i++) {
        double x = *(const double *)(const void *)((const char *)at + reals[i].offset);
        if (isnan(x))
            strcpy(s->real[i], "none");
        else
            snprintf(s->real[i], sizeof s->real[i], "%.17g", x);
        if (st_set(&s->f, reals[i].key, s->real[i], e) < 0)
            return -1;
    }
    return 0;
}

static int saver_fill(struct saver *s, struct trainer *t, const struct counters *at,
                      const struct checkpoint_facts *facts, int64_t serial, int is_anchor, struct error *e)
{
    snprintf(s->serial, sizeof s->serial, "%" PRId64, serial);
    if (st_set(&s->f, "falx.format", "1", e) < 0 || st_set(&s->f, "at.serial", s->serial, e) < 0 ||
        st_set(&s->f, "at.anchor", is_anchor ? "1" : "0", e) < 0 || add_counters(s, at, e) < 0)
        return -1;
    for (int i = 0; i < facts->n; i++)
        if (st_set(&s->f, facts->fact[i].key, facts->fact[i].value, e) < 0)
            return -1;
    for (int i = 0; i < t->n_models; i++)
        if (t->models[i].name[0] && add_model(s, i, &t->models[i], e) < 0)
            return -1;
    for (int i = 0; i < t->n_states; i++)
        if (add_state(s, i, &t->states[i], e) < 0)
            return -1;
    return device_check(t->dev, e);
}

int checkpoint_save(struct checkpoint_files *files, struct trainer *t, const struct counters *at,
                    const struct checkpoint_facts *facts, int is_anchor, struct error *e)
{
    int to = files->anchor >= 0 ? !files->anchor : files->newest >= 0 ? !files->newest : 0, result = -1;
    char *path = path_join(e, files->run, file_names[to]);
    struct saver *s = mem_alloc(e, 1, sizeof *s);
    if (!path || !s || saver_fill(s, t, at, facts, files->serial + 1, is_anchor, e) < 0)
        goto out;
    result = st_write(path, &s->f, e);
    if (result < 0 && e->code == ERR_SYSTEM)
        result = st_write(path, &s->f, e);
    if (result < 0)
        goto out;
    files->serial++;
    files->newest = to;
    files->anchor = is_anchor ? to : files->anchor;
out:
    saver_free(s);
    mem_free(path);
    return result;
}
