/* settings.c - the settings of a run as a list of words, for checkpoints to compare. Every member
 * of struct settings has a row here; a test finds those that were forgotten.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/checkpoint.h"

enum kind { TEXT, INTEGER, CHOICE, REAL };

#define ROW(kind, name) {#name, kind, offsetof(struct settings, name)}
static const struct { const char *key; enum kind kind; size_t offset; } rows[] = {
    ROW(TEXT, method), ROW(INTEGER, seed), ROW(INTEGER, steps), ROW(INTEGER, patch[0]),
    ROW(INTEGER, patch[1]), ROW(INTEGER, patch[2]), ROW(INTEGER, batch),
    ROW(INTEGER, labeled_batch), ROW(INTEGER, filters), ROW(CHOICE, dropout), ROW(CHOICE, augment),
    ROW(REAL, dice_share),
    ROW(CHOICE, optimizer), ROW(CHOICE, schedule), ROW(REAL, lr), ROW(REAL, momentum),
    ROW(REAL, weight_decay),
    ROW(REAL, clip),
    ROW(REAL, ema_decay), ROW(INTEGER, val_every), ROW(REAL, consistency), ROW(REAL, teacher_noise),
    ROW(CHOICE, ramp), ROW(CHOICE, sup_dice), ROW(INTEGER, ssn_rank), ROW(INTEGER, mc_samples),
    ROW(CHOICE, cov_mask), ROW(CHOICE, ged_metric), ROW(CHOICE, head_norm), ROW(CHOICE, nb_rule),
    ROW(CHOICE, bcl_layout), ROW(CHOICE, bcl_reduce), ROW(INTEGER, bcl_cap), ROW(REAL, lambda_c),
    ROW(REAL, bcl_tau), ROW(CHOICE, proto_ckpt), ROW(CHOICE, proto_update), ROW(REAL, lambda_r),
    ROW(REAL, pcl_tau), ROW(CHOICE, pcl_ignore_bg), ROW(CHOICE, pcl_cov), ROW(REAL, pseudo_weight),
    ROW(REAL, pseudo_threshold), ROW(CHOICE, stage2_init), ROW(CHOICE, stage2_cov),
    ROW(CHOICE, stage2_paste), ROW(REAL, stage2_share),
    ROW(INTEGER, stages),
    ROW(REAL, paste_warmup), ROW(REAL, paste_size), ROW(REAL, paste_weight),
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

void facts_add(struct checkpoint_facts *f, const char *key, const char *fmt, ...)
{
    CHECK(f->n < FACTS_MAX);
    va_list args;
    va_start(args, fmt);
    snprintf(f->fact[f->n].key, sizeof f->fact[0].key, "run.%s", key);
    vsnprintf(f->fact[f->n].value, sizeof f->fact[0].value, fmt, args);
    va_end(args);
    f->n++;
}

void facts_settings(struct checkpoint_facts *f, const struct settings *s)
{
    for (int i = 0; i < N_ROWS; i++) {
        const void *at = (const char *)s + rows[i].offset;
        switch (rows[i].kind) {
        case TEXT:
            facts_add(f, rows[i].key, "%s", *(char *const *)at);
            break;
        case INTEGER:
            facts_add(f, rows[i].key, "%" PRId64, *(const int64_t *)at);
            break;
        case CHOICE:
            facts_add(f, rows[i].key, "%d", *(const int *)at);
            break;
        case REAL:
            facts_add(f, rows[i].key, "%.17g", *(const double *)at);
            break;
        }
    }
}
