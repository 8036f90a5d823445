/* trainer.c - the models, states and notes of a training: what the functions of a method call.
 *
 * A model keeps its place in trainer.models as long as it lives, so pointers to it stay good; a
 * dropped one leaves an unnamed place behind, which the next new model takes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "net/model_file.h"
#include "train/train_int.h"

/* ---- models ---------------------------------------------------------------------------------- */

static void model_clear(struct trainer *t, struct model *m)
{
    int place = (int)(m - t->models);
    t->dev->ops->free(t->dev, t->own->buffers[place]);
    t->own->buffers[place] = NULL;
    net_free(m->net);
    optim_free(m->optim);
    params_free(m->params);
    memset(m, 0, sizeof *m);
}

struct model *trainer_find(struct trainer *t, const char *name)
{
    for (int i = 0; i < t->n_models; i++)
        if (strcmp(t->models[i].name, name) == 0)
            return &t->models[i];
    return NULL;
}

static struct model *model_new(struct trainer *t, const char *name, const struct net_definition *def,
                               enum params_grad grad, struct error *e)
{
    int place = 0;
    while (place < t->n_models && t->models[place].name[0])
        place++;
    CHECK(place < TRAIN_MODELS && strlen(name) < sizeof t->models[0].name);
    struct model *m = &t->models[place];
    t->n_models = place == t->n_models ? place + 1 : t->n_models;
    m->def = m->tested = *def;
    if (params_new(&m->params, t->dev, def, grad, e) < 0)
        return NULL;
    strcpy(m->name, name);
    /* by name, not by place: a resumed run has dropped other models than one that was never stopped */
    if (!t->own->counts)
        params_init(m->params, (uint64_t)t->set->seed, hash_bytes(name, strlen(name), 0));
    return m;
}

int trainer_optim(struct trainer *t, struct model *m, const struct optim_options *o, struct error *e)
{
    struct params *p = m->params;
    CHECK(!m->optim);
    if (!p->grad)
        p->grad = t->dev->ops->alloc(t->dev, (size_t)p->trainable_count * sizeof(float));
    return device_check(t->dev, e) < 0 ? -1 : optim_new(&m->optim, p, o, e);
}

static int model_optim(struct trainer *t, struct model *m, struct error *e)
{
    const struct settings *s = t->set;
    struct optim_options o = {.kind = (enum optim_kind)s->optimizer,
                              .schedule = (enum optim_schedule)s->schedule,
                              .lr = s->lr,
                              .momentum = s->momentum,
                              .weight_decay = s->weight_decay,
                              .clip = s->clip,
                              .beta2 = 0.999,
                              .epsilon = 1e-8}; /* Adam's authors' */
    return trainer_optim(t, m, &o, e);
}

static int model_plan(struct trainer *t, struct model *m, int n, enum net_use use, struct error *e)
{
    const int64_t *p = t->set->patch;
    struct net_shape shape = {.n = n, .d = (int)p[0], .h = (int)p[1], .w = (int)p[2], .use = use};
    return net_new(&m->net, m->params, &m->def, &shape, e);
}

struct model *trainer_model(struct trainer *t, const char *name, const struct net_definition *def,
                            int n_items, enum net_use use, int with_optim, struct error *e)
{
    enum params_grad grad = with_optim || use == NET_TRAINING ? PARAMS_WITH_GRAD : PARAMS_NO_GRAD;
    struct model *m = trainer_find(t, name);
    if (!m && !(m = model_new(t, name, def, grad, e)))
        return NULL;
    CHECK(m->def.define == def->define && m->def.dropout == def->dropout); /* a plan is made from m->def */
    t->own->named[m - t->models] = 1;
    if (!with_optim) {
        optim_free(m->optim);
        m->optim = NULL;
    } else if (!m->optim && model_optim(t, m, e) < 0) {
        return NULL;
    }
    if (n_items > 0 && !m->net && model_plan(t, m, n_items, use, e) < 0)
        return NULL;
    return m;
}

void trainer_copy(struct trainer *t, struct model *to, const struct model *from)
{
    if (!t->own->counts) /* else neither has any */
        params_copy(to->params, from->params);
}

void trainer_drop_plan(struct trainer *t, const char *name)
{
    struct model *m = trainer_find(t, name);
    if (!m)
        return;
    net_free(m->net);
    m->net = NULL;
}

void trainer_drop_model(struct trainer *t, const char *name)
{
    struct model *m = trainer_find(t, name);
    if (m)
        model_clear(t, m);
}

void trainer_free_models(struct trainer *t)
{
    for (int i = 0; i < t->n_models; i++)
        model_clear(t, &t->models[i]);
    t->n_models = 0;
}

int trainer_settle(struct trainer *t, struct error *e)
{
    for (int i = 0; i < t->n_models; i++) {
        struct model *m = &t->models[i];
        if (m->name[0] && !t->own->named[i])
            model_clear(t, m);
        if (!m->name[0] || t->own->buffers[i] || params_buffer_count(m->params) == 0)
            continue;
        t->own->buffers[i] =
            t->dev->ops->alloc(t->dev, (size_t)params_buffer_count(m->params) * sizeof(float));
    }
    CHECK(t->target >= 0 && t->target < t->n_models && t->models[t->target].name[0]);
    return device_check(t->dev, e);
}

/* ---- around a step --------------------------------------------------------------------------- */

void trainer_keep(struct trainer *t)
{
    for (int i = 0; i < t->n_states; i++)
        memcpy(t->states[i].kept, t->states[i].data, t->states[i].bytes);
    for (int i = 0; i < t->n_models; i++) {
        const struct params *p = t->models[i].params;
        if (!p || !t->own->buffers[i])
            continue;
        t->dev->ops->copy(t->dev, t->own->buffers[i], p->value + p->trainable_count,
                          (size_t)params_buffer_count(p) * sizeof(float));
        t->own->batches[i] = p->batches;
    }
}

void trainer_restore(struct trainer *t)
{
    for (int i = 0; i < t->n_states; i++)
        memcpy(t->states[i].data, t->states[i].kept, t->states[i].bytes);
    for (int i = 0; i < t->n_models; i++) {
        struct params *p = t->models[i].params;
        if (!p || !t->own->buffers[i])
            continue;
        t->dev->ops->copy(t->dev, p->value + p->trainable_count, t->own->buffers[i],
                          (size_t)params_buffer_count(p) * sizeof(float));
        p->batches = t->own->batches[i];
        p->version++;
    }
}

void trainer_zero_grads(struct trainer *t)
{
    for (int i = 0; i < t->n_models; i++) {
        struct params *p = t->models[i].params;
        if (p && p->grad && memchr(p->touched, 1, (size_t)p->n_trainable))
            params_zero_grad(p);
    }
}

const char *trainer_bad_gradient(struct trainer *t, const struct model *m)
{
    const struct params *p = m->params;
    enum { CHUNK = 4096 };
    float chunk[CHUNK];
    for (int k = 0; k < p->n_trainable; k++) {
        const struct param *q = &p->list[k];
        for (int64_t at = 0; p->touched[k] && at < q->count; at += CHUNK) {
            int64_t n = q->count - at < CHUNK ? q->count - at : CHUNK;
            t->dev->ops->download(t->dev, chunk, p->grad + q->offset + at, (size_t)n * sizeof *chunk);
            for (int64_t i = 0; i < n; i++)
                if (!isfinite(chunk[i]))
                    return q->name;
        }
    }
    return NULL;
}

/* ---- states, notes, files -------------------------------------------------------------------- */

int trainer_state(struct trainer *t, const char *name, void *data, size_t bytes, struct error *e)
{
    if (t->n_states == TRAIN_STATES)
        return fail(e, ERR_INTERNAL, NULL, "more than %d states", TRAIN_STATES);
    struct state_array *s = &t->states[t->n_states];
    *s = (struct state_array){.data = data, .bytes = bytes, .kept = mem_alloc(e, bytes, 1)};
    snprintf(s->name, sizeof s->name, "%s", name);
    t->n_states += s->kept != NULL;
    return s->kept ? 0 : -1;
}

void trainer_free_states(struct trainer *t)
{
    while (t->n_states > 0)
        mem_free(t->states[--t->n_states].kept);
}

/* A name noted twice in a step keeps the later value; numbers without a place are let go. */
void note(struct trainer *t, const char *name, double value)
{
    int i = 0;
    while (i < t->n_notes && strcmp(t->notes[i].name, name) != 0)
        i++;
    if (i == TRAIN_NOTES)
        return;
    if (i == t->n_notes)
        snprintf(t->notes[t->n_notes++].name, sizeof t->notes[0].name, "%s", name);
    t->notes[i].value = value;
}

int trainer_check_folder(const struct trainer *t, struct error *e)
{
    const struct train_options *o = t->own->o;
    return o->lock > 0 ? io_check_locked(o->lock, o->run, e) : 0;
}

/* model_write refuses weights that are not finite [M04]. */
int trainer_publish(struct trainer *t, const char *model, const char *file, struct error *e)
{
    struct model *m = trainer_find(t, model);
    CHECK(m);
    if (t->own->o->dry)
        return 0;
    if (trainer_check_folder(t, e) < 0)
        return -1;
    struct params *part = NULL;
    char *path = path_join(e, t->own->o->run, file);
    int result = path ? 0 : -1, whole = m->tested.define == m->def.define;
    if (result == 0 && !whole)
        result = params_part(&part, m->params, &m->tested, e);
    if (result == 0)
        result = model_write(path, whole ? m->params : part, &m->tested, e);
    params_free(part);
    mem_free(path);
    return result;
}
