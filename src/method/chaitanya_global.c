/* chaitanya_global.c - the first phase of chaitanya: the encoder learns to describe crops by the part of the
 * scan that they are from. See chaitanya.c.
 */
#include "method/chaitanya.h"

/* Items are (case, piece, view); cases 0 and 1, 2 and 3, ... are partners. */
static int global_relation(int i, int j)
{
    int piece = i / 2 % PHASE_PIECES == j / 2 % PHASE_PIECES, view = i % 2 == j % 2;
    int a = i / 2 / PHASE_PIECES, b = j / 2 / PHASE_PIECES;
    if (!piece)
        return RELATION_UNLIKE;
    return (a == b && !view) || (a == (b ^ 1) && view) ? RELATION_LIKE : RELATION_NONE;
}

int global_begin(struct trainer *t, struct error *e)
{
    struct chaitanya *m = t->method_state;
    struct model *model = chaitanya_begin(t, chaitanya_global_define, e);
    int n = t->image.n, hidden = 64 * (int)t->set->filters;
    uint8_t *kind = mem_alloc(e, (size_t)n * (size_t)n, 1);
    int result = model && kind ? 0 : -1;
    for (int i = 0; result == 0 && i < n * n; i++)
        kind[i] = (uint8_t)global_relation(i / n, i % n);
    if (result == 0)
        result = relations_new(&m->related, t->dev, kind, n, hidden / 8, e);
    mem_free(kind);
    if (result < 0)
        return -1;
    struct net_definition def = part_definition(t);
    struct net_shape shape = {.n = 1, .d = 1, .h = 1, .w = n, .use = NET_TRAINING, .input_grad = 1};
    def.define = chaitanya_describe_define;
    m->mean = m->positive = m->dmean =
        (struct tensor){.type = VALUE_F32, .n = 1, .d = 1, .h = 1, .w = n, .c = hidden};
    struct tensor *all[] = {&m->mean, &m->positive, &m->dmean};
    for (int i = 0; i < 3; i++)
        if (part_alloc(t, all[i], e) < 0)
            return -1;
    return net_new(&m->describe, model->params, &def, &shape, e);
}

void global_gradients(struct trainer *t)
{
    struct chaitanya *m = t->method_state;
    struct net *net = trainer_find(t, "model")->net;
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    double value;
    net_forward(net, &t->image, &pass);
    struct tensor hidden = net_value(net, "hidden");
    int64_t voxels = tensor_voxels(&hidden) / hidden.n, means = tensor_count(&m->mean);
    RUN(t->dev, pool, means, .x = hidden.data, .mean = m->mean.data, .voxels = voxels, .columns = 1,
        .c = hidden.c, .slope = 1);
    RUN(t->dev, pool, means, .x = m->mean.data, .mean = m->positive.data, .voxels = 1, .columns = 1,
        .c = hidden.c);
    net_forward(m->describe, &m->positive, &pass);
    struct tensor rows = net_value(m->describe, "rows"), drows = net_grad(m->describe, "rows");
    ask_relations(m->scratch, m->related, rows.data, CHAITANYA_TAU, 1.0, drows.data, &value);
    net_backward(m->describe);
    struct tensor dpositive = net_input_grad(m->describe), dhidden = net_grad_to_set(net, "hidden");
    RUN(t->dev, pool_grad, means, .x = m->mean.data, .dmean = dpositive.data, .g = m->dmean.data, .voxels = 1,
        .columns = 1, .c = hidden.c);
    RUN(t->dev, pool_grad, tensor_count(&dhidden), .x = hidden.data, .dmean = m->dmean.data,
        .g = dhidden.data, .voxels = voxels, .columns = 1, .c = hidden.c, .slope = 1);
    loss_settle(m->scratch);
    net_backward(net);
    note(t, "loss", value);
}
