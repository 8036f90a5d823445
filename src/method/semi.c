/* semi.c - what methods share that add one term to the loss of labels: a student, an averaged teacher who
 * stays in training mode, the label loss, the growing weight of the term. See parts.h.
 *
 * As published (Tarvainen and Valpola, 2017; Yu et al., 2019): the teacher's weights are an average of the
 * student's with decay min(1 - 1/(t+1), --ema-decay), its batch norm uses the batch it sees, its dropout is
 * on, and the student is what is tested.
 */
#include <string.h>

#include "method/parts.h"

static int check(const struct settings *s, int multiple, const char *wanted, struct error *e)
{
    int64_t u = s->batch - s->labeled_batch;
    if (u > 0 && u % multiple == 0)
        return 0;
    return fail(e, ERR_CONFIG, "C03", "--labeled-batch %lld of %lld: %s needs %s unlabelled patches",
                (long long)s->labeled_batch, (long long)s->batch, s->method, wanted);
}

int semi_check(const struct settings *s, struct error *e)
{
    return check(s, 1, "1 or more", e);
}

int semi_check_pairs(const struct settings *s, struct error *e)
{
    return check(s, 2, "2, 4, ...", e);
}

int semi_begin(struct trainer *t, struct semi *s, const struct semi_shape *shape, struct error *e)
{
    struct net_definition def = part_definition(t);
    struct loss_options o = {.classes = t->store->n_classes,
                             .dice_share = shape->dice_alone ? 1.0 : t->set->dice_share,
                             .dice_background = shape->dice_background};
    def.define = shape->define ? shape->define : def.define;
    if (!trainer_model(t, "student", &def, shape->student, NET_TRAINING, 1, e))
        return -1;
    if (shape->teacher && !trainer_model(t, "teacher", &def, shape->teacher, NET_FORWARD_ONLY, 0, e))
        return -1;
    part_target(t, "student");
    return loss_scratch_new(&s->scratch, t->dev, &o, e);
}

void semi_done(struct semi *s)
{
    loss_scratch_free(s->scratch);
    memset(s, 0, sizeof *s);
}

double semi_weight_at(const struct trainer *t, double position)
{
    const struct settings *s = t->set;
    int64_t length = s->rampup_length > 0 ? s->rampup_length : t->nominal;
    return ramp_weight(s->consistency, position, (double)length, s->ramp == RAMP_CONTINUOUS);
}

double semi_weight(const struct trainer *t)
{
    return semi_weight_at(t, t->position);
}

void semi_student(struct trainer *t, struct semi *s, const struct tensor *image)
{
    struct net *net = trainer_find(t, "student")->net;
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    net_forward(net, image, &pass);
    s->logits = net_value(net, "logits");
    s->dlogits = net_grad(net, "logits");
    struct tensor z = tensor_items(&s->logits, 0, t->n_labeled);
    struct tensor dz = tensor_items(&s->dlogits, 0, t->n_labeled);
    struct tensor label = tensor_items(&t->label, 0, t->n_labeled);
    ask_ce_dice(s->scratch, &z, &label, NULL, 1.0, &dz, &s->supervised, &s->ce, &s->dice);
}

struct tensor semi_teacher(struct trainer *t, struct net *net, const struct tensor *image, int number)
{
    struct net_pass pass = part_pass(t, NET_TRAIN, number);
    net_forward(net, image, &pass);
    return net_value(net, "logits");
}

struct tensor semi_tested(struct trainer *t, const char *output)
{
    struct net *net = trainer_find(t, "student")->net;
    struct net_pass pass = part_pass(t, NET_EVAL, 0);
    net_forward(net, &t->image, &pass);
    return net_value(net, output);
}

void semi_noise(struct trainer *t, const struct tensor *out, const struct tensor *in, int number)
{
    add_noise(t->dev, out, in, t->set->teacher_noise, (uint64_t)t->set->seed, t->draw,
              RNG_INPUT_NOISE + (uint32_t)number);
}

void semi_learn(struct trainer *t, struct semi *s, const char *name, const double *term, double weight)
{
    loss_settle(s->scratch);
    net_backward(trainer_find(t, "student")->net);
    note(t, "loss", s->supervised + weight * *term);
    note(t, "supervised", s->supervised);
    note(t, "ce", s->ce);
    note(t, "dice", s->dice);
    note(t, name, *term);
    note(t, "weight", weight);
}

void semi_after(struct trainer *t)
{
    part_average_weights(t, "teacher", "student");
}
