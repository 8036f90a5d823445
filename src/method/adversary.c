/* adversary.c - what methods with a critic share. See parts.h.
 *
 * As published (Zhang et al., 2017; Xue et al., 2020): the critic is trained by Adam at a constant rate of
 * 1e-4 whatever the student's schedule is, on maps of the student as it is tested.
 */
#include <string.h>

#include "method/parts.h"

int adversary_check(const struct settings *s, struct error *e)
{
    enum { MOST = 255 }; /* one more, and conv4, from 16 to 32 times as many channels, has 2^31 weights */
    if (semi_check(s, e) < 0)
        return -1;
    if (s->filters <= MOST)
        return 0;
    return fail(e, ERR_CONFIG, "C03",
                "--filters %lld: %s allows up to %d, for its critic has up to 32 times "
                "as many channels",
                (long long)s->filters, s->method, MOST);
}

static int upload_truth(struct trainer *t, struct adversary *a, struct error *e)
{
    int n = t->n_labeled + t->n_unlabeled;
    struct tensor row = {.type = VALUE_U8, .n = n, .d = 1, .h = 1, .w = 1, .c = 1};
    uint8_t *bytes = mem_alloc(e, (size_t)n, 1);
    a->truth = a->known = row;
    if (!bytes || part_alloc(t, &a->truth, e) < 0 || part_alloc(t, &a->known, e) < 0) {
        mem_free(bytes);
        return -1;
    }
    memset(bytes, 1, (size_t)n);
    t->dev->ops->upload(t->dev, a->known.data, bytes, (size_t)n);
    memset(bytes + t->n_labeled, 0, (size_t)t->n_unlabeled);
    t->dev->ops->upload(t->dev, a->truth.data, bytes, (size_t)n);
    mem_free(bytes);
    return 0;
}

int adversary_begin(struct trainer *t, struct adversary *a, int channels, struct error *e)
{
    int n = t->n_labeled + t->n_unlabeled, image = t->store->channels, filters = (int)t->set->filters;
    struct net_definition def = {
        .define = critic_define, .channels = image, .classes = channels, .filters = filters};
    struct optim_options adam = {.kind = OPTIM_ADAM,
                                 .schedule = SCHEDULE_CONSTANT,
                                 .lr = 1e-4,
                                 .momentum = 0.9,
                                 .beta2 = 0.99,
                                 .epsilon = 1e-8};
    struct net_shape shape = {.n = n, .d = t->image.d, .h = t->image.h, .w = t->image.w};
    struct loss_options o = {.classes = 2};
    struct model *m = trainer_model(t, "critic", &def, 0, NET_TRAINING, 0, e);
    if (!m || trainer_optim(t, m, &adam, e) < 0 || loss_scratch_new(&a->scratch, t->dev, &o, e) < 0)
        return -1;
    if (part_make(t, &a->map, n, channels, VALUE_F32, e) < 0 ||
        part_make(t, &a->dmap, t->n_unlabeled, channels, VALUE_F32, e) < 0 || upload_truth(t, a, e) < 0)
        return -1;
    return strided_new(&a->critic, m->params, &critic_spec, &shape, channels, image, filters, e);
}

void adversary_done(struct trainer *t, struct adversary *a)
{
    struct tensor *all[] = {&a->map, &a->dmap, &a->truth, &a->known};
    strided_free(a->critic);
    loss_scratch_free(a->scratch);
    for (int i = 0; i < 4; i++)
        part_free(t, all[i]);
    memset(a, 0, sizeof *a);
}

struct tensor adversary_fool(struct trainer *t, struct adversary *a, double weight, double *value)
{
    int l = t->n_labeled, u = t->n_unlabeled;
    struct net_pass pass = part_pass(t, NET_EVAL, 1);
    struct tensor map = tensor_items(&a->map, l, u), image = tensor_items(&t->image, l, u);
    struct tensor known = tensor_items(&a->known, l, u), verdict, dverdict;
    verdict = strided_forward(a->critic, &map, &image, &pass);
    dverdict = strided_grad(a->critic);
    ask_ce_dice(a->scratch, &verdict, &known, NULL, weight, &dverdict, value, NULL, NULL);
    loss_settle(a->scratch);
    strided_backward(a->critic, STRIDED_MAP, &a->dmap);
    return a->dmap;
}

void adversary_learn(struct trainer *t, struct adversary *a)
{
    struct net_pass pass = part_pass(t, NET_TRAIN, 1);
    struct tensor verdict = strided_forward(a->critic, &a->map, &t->image, &pass);
    struct tensor dverdict = strided_grad(a->critic);
    double value;
    ask_ce_dice(a->scratch, &verdict, &a->truth, NULL, 1.0, &dverdict, &value, NULL, NULL);
    loss_settle(a->scratch);
    strided_backward(a->critic, STRIDED_WEIGHTS, NULL);
    note(t, "critic", value);
}
