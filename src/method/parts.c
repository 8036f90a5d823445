/* parts.c - see parts.h. */
#include "method/parts.h"

struct net_definition part_definition(const struct trainer *t)
{
    struct net_definition d = {.define = vnet_define,
                               .channels = t->store->channels,
                               .classes = t->store->n_classes,
                               .filters = (int)t->set->filters,
                               .dropout = t->set->dropout};
    return d;
}

struct net_pass part_pass(const struct trainer *t, enum net_mode mode, int number)
{
    struct net_pass p = {.mode = mode,
                         .seed = (uint64_t)t->set->seed,
                         .step = t->draw,
                         .stream = RNG_DROPOUT + (uint32_t)number};
    return p;
}

void part_target(struct trainer *t, const char *model)
{
    t->target = (int)(trainer_find(t, model) - t->models);
}

void part_learn_labels(struct trainer *t, const char *model, struct loss_scratch *scratch)
{
    struct net *net = trainer_find(t, model)->net;
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    double ce, dice;
    net_forward(net, &t->image, &pass);
    struct tensor logits = net_value(net, "logits"), dlogits = net_grad(net, "logits");
    double loss = loss_ce_dice(scratch, &logits, &t->label, NULL, 1.0, &dlogits, &ce, &dice);
    net_backward(net);
    note(t, "loss", loss);
    note(t, "ce", ce);
    note(t, "dice", dice);
}

int part_make(struct trainer *t, struct tensor *x, int n, int c, enum value_type type, struct error *e)
{
    const struct tensor *image = &t->image;
    *x = (struct tensor){x->data, type, n, image->d, image->h, image->w, c};
    return part_alloc(t, x, e);
}

int part_alloc(struct trainer *t, struct tensor *x, struct error *e)
{
    if (x->data)
        return 0;
    x->data = t->dev->ops->alloc(t->dev, (size_t)tensor_count(x) * value_bytes(x->type));
    return x->data ? 0 : device_check(t->dev, e);
}

void part_free(struct trainer *t, struct tensor *x)
{
    t->dev->ops->free(t->dev, x->data);
    x->data = NULL;
}

void part_average_weights(struct trainer *t, const char *teacher, const char *student)
{
    ema_update(trainer_find(t, teacher)->params, trainer_find(t, student)->params, (int64_t)t->draw,
               t->set->ema_decay);
}

void part_average(struct trainer *t, const char *teacher, const char *student)
{
    struct params *to = trainer_find(t, teacher)->params;
    const struct params *from = trainer_find(t, student)->params;
    part_average_weights(t, teacher, student);
    to->dev->ops->copy(to->dev, to->value + to->trainable_count, from->value + from->trainable_count,
                       (size_t)params_buffer_count(from) * sizeof(float));
}
