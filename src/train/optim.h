/* optim.h - what happens to weights after the gradient: clipping, SGD or Adam, schedules, ramps,
 * EMA. Every rule is a pure function of the step, so that resuming needs only the moments.
 */
#ifndef FALX_OPTIM_H
#define FALX_OPTIM_H

#include "net/params.h"

enum optim_kind { OPTIM_SGD, OPTIM_ADAM };
enum optim_schedule {
    SCHEDULE_STEP, /* x0.1 after 5/12 and 10/12 of the steps (2,500 and 5,000 of 6,000) */
    SCHEDULE_POLY, /* (1 - t/T)^0.9 */
    SCHEDULE_CONSTANT
};

struct optim_options {
    enum optim_kind kind;
    enum optim_schedule schedule;
    double lr, momentum, weight_decay; /* 0.01, 0.9, 1e-4 */
    double beta2, epsilon;             /* Adam: 0.999, 1e-8; momentum is beta1 */
    double clip;                       /* gradient norm; 0 = no clipping */
};

struct optim {
    struct optim_options o;
    struct params *params; /* borrowed */
    float *moment[2];      /* (trainable_count) device, zeros at first; the second for Adam only */
    int64_t updates;       /* steps applied */
};

int optim_new(struct optim **out, struct params *p, const struct optim_options *o, struct error *e);
void optim_free(struct optim *m);
/* t: position in the schedule, 0 .. total; without a time limit the 0-based step. */
double optim_rate(const struct optim_options *o, double t, double total);
/* Euclidean norm of the touched gradients, summed in fixed order; not finite if any of them is not
 * or is beyond 1.8e19 (its square is no float any more). */
double optim_grad_norm(struct params *p);
/* What to multiply gradients of this norm with so that it is at most `clip`; 0 = no limit. */
double optim_clip(double norm, double clip);
/* One update with this rate, the gradient multiplied by `factor` (clipping); parameters not touched
 * stay, weight decay included. One pass, after which nothing is touched: the state
 * params_zero_grad() makes. */
void optim_step(struct optim *m, double rate, double factor);

/* r(c, R) = exp(-5 (1 - clip(c,0,R)/R)^2), 1 if R = 0. */
double ramp_sigmoid(double c, double R);
enum { RAMP_STAIR = 150 }; /* steps, as published */
/* w(t) = top * r(floor(t/150), max(1, T/150)); continuous: r(t, T). T: steps until the full weight. */
double ramp_weight(double top, double t, double total, int continuous);

/* teacher = a*teacher + (1-a)*student over parameters, not buffers; a = min(1 - 1/(t+1), decay). */
void ema_update(struct params *teacher, const struct params *student, int64_t t, double decay);

#endif
