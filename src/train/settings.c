/* settings.c - the settings of a run as a list of words, for checkpoints to compare. Every member
 * of struct settings has a row here; a test finds those that were forgotten.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "predict/predict.h"
#include "train/checkpoint.h"

enum kind { TEXT, INTEGER, CHOICE, REAL };

/* clang-format off */
#define LATER_ROW(kind, name, before) {#name, kind, offsetof(struct settings, name), NULL, before}
#define LATER_WORD(name, choice, before)                                                            \
    {#name, CHOICE, offsetof(struct settings, name), choice##_WORDS, before}
#define ROW(kind, name) LATER_ROW(kind, name, NULL)
#define WORD(name, choice) LATER_WORD(name, choice, NULL)
static const struct {
    const char *key;
    enum kind kind;
    size_t offset;
    const char *words;
    const char *before; /* what files mean that are older than the setting; NULL: all have it */
} rows[] = {
    ROW(TEXT, method), ROW(INTEGER, seed), ROW(INTEGER, steps), ROW(INTEGER, patch[0]),
    ROW(INTEGER, patch[1]), ROW(INTEGER, patch[2]), ROW(INTEGER, batch), ROW(INTEGER, labeled_batch),
    ROW(INTEGER, filters), WORD(dropout, DROPOUT), WORD(augment, AUGMENT),
    LATER_WORD(sides, SIDES, "exchange"), /* data with sides is told by its hash */
    LATER_ROW(REAL, focus, "0"), ROW(REAL, dice_share), WORD(optimizer, OPTIMIZER), WORD(schedule, SCHEDULE),
    ROW(REAL, lr), ROW(REAL, momentum), ROW(REAL, weight_decay), ROW(REAL, clip), ROW(REAL, ema_decay),
    ROW(INTEGER, val_every), LATER_ROW(INTEGER, stride[0], "0"), LATER_ROW(INTEGER, stride[1], "0"),
    LATER_ROW(INTEGER, stride[2], "0"), LATER_WORD(window_mode, WINDOW_MODE, "gaussian"),
    ROW(REAL, consistency), ROW(REAL, teacher_noise), WORD(ramp, RAMP),
    LATER_ROW(INTEGER, rampup_length, "0"), WORD(sup_dice, SWITCH),
    ROW(INTEGER, ssn_rank), ROW(INTEGER, mc_samples), WORD(cov_mask, COV_MASK),
    WORD(ged_metric, GED_METRIC), WORD(head_norm, SWITCH), WORD(nb_rule, NB_RULE),
    LATER_WORD(mc_reduce, LOSS_REDUCE, "mean"), LATER_WORD(ged_reduce, LOSS_REDUCE, "mean"),
    LATER_WORD(pcl_form, PCL_FORM, "released"),
    WORD(bcl_layout, BCL_LAYOUT), WORD(bcl_reduce, BCL_REDUCE), ROW(INTEGER, bcl_cap),
    ROW(REAL, lambda_c), ROW(REAL, bcl_tau), WORD(proto_ckpt, PROTO_CKPT), WORD(proto_update, SWITCH),
    ROW(REAL, lambda_r), ROW(REAL, pcl_tau), WORD(pcl_ignore_bg, SWITCH), WORD(pcl_cov, PCL_COV),
    ROW(REAL, pseudo_weight), ROW(REAL, pseudo_threshold), WORD(stage2_init, STAGE2_INIT),
    WORD(stage2_cov, SWITCH), WORD(stage2_paste, SWITCH), ROW(REAL, stage2_share), ROW(INTEGER, stages),
    ROW(REAL, paste_warmup), ROW(REAL, paste_size), ROW(REAL, paste_weight),
};
/* clang-format on */
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

const char *facts_before(const char *key)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(key, rows[i].key) == 0)
            return rows[i].before;
    return NULL;
}

void facts_settings(struct checkpoint_facts *f, const struct settings *s)
{
    char word[40];
    for (int i = 0; i < N_ROWS; i++) {
        const void *at = (const char *)s + rows[i].offset;
        switch (rows[i].kind) {
        case TEXT: facts_add(f, rows[i].key, "%s", *(char *const *)at); break;
        case INTEGER: facts_add(f, rows[i].key, "%" PRId64, *(const int64_t *)at); break;
        case CHOICE:
            facts_add(f, rows[i].key, "%s", text_choice(word, sizeof word, rows[i].words, *(const int *)at));
            break;
        case REAL: facts_add(f, rows[i].key, "%.17g", *(const double *)at); break;
        }
    }
}
