/* test_methods.c - every method beside the same training in PyTorch.
 *
 * tools/golden_aua.py, golden_twin.py and golden_branches.py train in PyTorch, in double, with
 * the settings and cases that the tables of tests/golden name and falx's random numbers; here the real loop
 * does it in float32. Every term noted in every step must agree within 1e-4 (1 + |term|), and so must the
 * prototypes at the end; the norm of the gradient, too, but less closely. No step but the first of a phase
 * may allocate. FALX_TEST_MARGINS=1 in the environment prints the largest differences.
 */
#include <math.h>

#include "base/rng.h"
#include "methods.h"
#include "train/checkpoint.h"
#include "train/loss.h"

#include "golden/aua.h"
#include "golden/cct.h"
#include "golden/chaitanya.h"
#include "golden/dan.h"
#include "golden/dtc.h"
#include "golden/mc_net.h"
#include "golden/sassnet.h"
#include "golden/simcvd.h"
#include "golden/urpc.h"

static const struct {
    const struct golden_run *runs;
    size_t n;
} golden_tables[] = {
#define TABLE(runs)                                                                                          \
    {                                                                                                        \
        runs, sizeof runs / sizeof runs[0]                                                                   \
    }
    TABLE(golden_runs),         TABLE(golden_runs_cct),    TABLE(golden_runs_chaitanya),
    TABLE(golden_runs_dan),     TABLE(golden_runs_dtc),    TABLE(golden_runs_mc_net),
    TABLE(golden_runs_sassnet), TABLE(golden_runs_simcvd), TABLE(golden_runs_urpc),
};

/* ---- the cases of golden runs ---------------------------------------------------------------- */

static int golden_label(const int at[3], const int centre[3], int i, int classes)
{
    int square = 0;
    for (int a = 0; a < 3; a++)
        square += (at[a] - centre[a]) * (at[a] - centre[a]);
    if (square > 20 + 5 * (i % 4))
        return 0;
    return classes == 3 && at[2] > centre[2] ? 2 : 1;
}

/* The same lines as make_case() of tools/golden_aua.py. */
static void golden_case(struct case_store *s, int i, const struct golden_run *g)
{
    struct error e;
    int dims[3], centre[3];
    char name[16];
    for (int a = 0; a < 3; a++) {
        dims[a] = (int)g->set.patch[a] + 1 + (i + a) % 3 - (i % 4 == 3 ? 2 : 0);
        centre[a] = dims[a] / 2 + (i * (a + 2)) % 5 - 2;
    }
    snprintf(name, sizeof name, "case%d", i);
    struct stored_case *c = case_store_add(s, name, dims, i < g->labeled ? CASE_LABELED : CASE_UNLABELED, &e);
    assert_non_null(c);
    struct rng r = rng_start(77, (uint64_t)i, RNG_TEST, 0);
    for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
        int at[3] = {v / dims[2] / dims[1], v / dims[2] % dims[1], v % dims[2]};
        int label = golden_label(at, centre, i, g->classes);
        for (int t = 0; t < g->channels; t++)
            c->image[v * g->channels + t] = (rng_uniform(&r) - 0.5f) + 0.5f * (float)label;
        if (c->label)
            c->label[v] = (label_t)label;
        if (c->mask)
            c->mask[v] = (at[2] + 2 * at[1] + i) % 5 != 0;
    }
}

static void golden_cases(struct case_store *s, const struct golden_run *g)
{
    *s = (struct case_store){.channels = g->channels, .n_classes = g->classes, .has_mask = g->has_mask};
    for (int i = 0; i < g->labeled + g->unlabeled; i++)
        golden_case(s, i, g);
}

/* ---- comparing --------------------------------------------------------------------------------- */

/* |got - want| / (1 + |want|) at most. The gradient jumps where the sign of a unit differs between
 * float and double, of one voxel in a hundred thousand: up to 0.02 were seen for other seeds. */
static const double BAR = 1e-4, GRADIENT_BAR = 0.05;

struct comparison {
    const struct golden_run *run;
    int compared, bad;
    struct margin {
        char name[24];
        double most;
    } margin[24];
    int n_margins;
};

static void compare(struct comparison *c, const char *what, const char *name, double got, double want)
{
    double off = fabs(got - want) / (1 + fabs(want));
    int k = 0;
    while (k < c->n_margins && strcmp(c->margin[k].name, name) != 0)
        k++;
    if (k == c->n_margins)
        snprintf(c->margin[c->n_margins++].name, sizeof c->margin[0].name, "%s", name);
    c->margin[k].most = !(off <= c->margin[k].most) ? off : c->margin[k].most;
    c->compared++;
    if (off <= (strcmp(name, "gradient") == 0 ? GRADIENT_BAR : BAR))
        return;
    if (c->bad++ < 10)
        print_error("%s, %s: %s is %.9g, not %.9g\n", c->run->name, what, name, got, want);
}

static const struct golden_note *golden_find(const struct golden_run *g, int phase, int64_t step,
                                             const char *name)
{
    for (int i = 0; i < g->n_notes; i++)
        if (g->notes[i].phase == phase && g->notes[i].step == step && strcmp(g->notes[i].name, name) == 0)
            return &g->notes[i];
    return NULL;
}

static void on_golden_step(void *arg, const struct train_step *s)
{
    struct comparison *c = arg;
    char what[64];
    snprintf(what, sizeof what, "%s step %d", s->phase, (int)s->step);
    if (s->step > 1 && mem_count() > 0)
        test_fail("%s, %s allocates", c->run->name, what);
    for (int i = 0; i < s->n_notes; i++) {
        const char *name = s->notes[i].name;
        const struct golden_note *want = golden_find(c->run, s->phase_number, s->step - 1, name);
        if (!want)
            test_fail("%s, %s: no golden %s", c->run->name, what, name);
        compare(c, what, name, s->notes[i].value, want->value);
    }
    mem_fail_at(-1, 0); /* counts from here */
}

/* Counts, means, then covariances: by row if they are full, else their diagonals. */
static void compare_prototypes(struct comparison *c, const double *want)
{
    static struct prototypes p;
    struct error e;
    struct st_file f;
    struct checkpoint_files files;
    assert_int_equal(checkpoint_open(&f, &files, "run", NULL, &e), 1);
    const struct st_tensor *t = st_find(&f, "state/prototypes");
    assert_non_null(t);
    assert_int_equal(t->bytes, sizeof p);
    memcpy(&p, t->data, sizeof p);
    st_free(&f);
    assert_int_equal(p.classes, c->run->classes);
    for (int k = 0; k < p.classes; k++)
        compare(c, "prototypes", "proto count", p.count[k], *want++);
    for (int k = 0; k < p.classes; k++)
        for (int a = 0; a < PROTO_DIMS; a++)
            compare(c, "prototypes", "proto mean", p.mean[k][a], *want++);
    for (int k = 0; k < p.classes; k++)
        for (int a = 0; a < PROTO_DIMS; a++)
            for (int b = p.full ? 0 : a; b < (p.full ? PROTO_DIMS : a + 1); b++)
                compare(c, "prototypes", "proto covariance", p.cov[k][a][b], *want++);
}

static void golden_run(const char *name)
{
    struct comparison c = {.run = NULL};
    struct case_store store;
    struct train_result r;
    struct error e;
    for (size_t k = 0; k < sizeof golden_tables / sizeof golden_tables[0]; k++)
        for (size_t i = 0; i < golden_tables[k].n; i++)
            if (strcmp(golden_tables[k].runs[i].name, name) == 0)
                c.run = &golden_tables[k].runs[i];
    assert_non_null(c.run);
    golden_cases(&store, c.run);
    fresh_run();
    struct train_options o = {.run = "run",
                              .settings = &c.run->set,
                              .store = &store,
                              .dev = dev,
                              .listen = {.arg = &c, .step = on_golden_step}};
    assert_ok(train_run(&r, &o, &e), e);
    assert_int_equal(c.compared, c.run->n_notes);
    if (c.run->prototypes)
        compare_prototypes(&c, c.run->prototypes);
    for (int k = 0; getenv("FALX_TEST_MARGINS") && k < c.n_margins; k++)
        print_message("%-16s %-18s %.1e\n", name, c.margin[k].name, c.margin[k].most);
    case_store_free(&store);
    if (c.bad)
        test_fail("%s: %d of %d numbers are off", name, c.bad, c.compared);
    test_tally("goldens", 1);
}

#define GOLDEN(name)                                                                                         \
    static void golden_##name(void **state)                                                                  \
    {                                                                                                        \
        (void)state;                                                                                         \
        golden_run(#name);                                                                                   \
    }
GOLDEN(two_classes)
GOLDEN(three_classes)
GOLDEN(paper_text)
GOLDEN(paper_head)
GOLDEN(released)
GOLDEN(threshold)
GOLDEN(stage2_paste)
GOLDEN(paste)
GOLDEN(paste_threshold)
GOLDEN(supervised)
GOLDEN(mt_two)
GOLDEN(mt_three)
GOLDEN(entropy_two)
GOLDEN(entropy_three)
GOLDEN(ua_mt_two)
GOLDEN(ua_mt_three)
GOLDEN(ict_two)
GOLDEN(ict_three)
GOLDEN(dtc_two)
GOLDEN(dtc_three)
GOLDEN(dan_two)
GOLDEN(dan_three)
GOLDEN(sassnet_two)
GOLDEN(sassnet_three)
GOLDEN(simcvd_two)
GOLDEN(simcvd_three)
GOLDEN(mc_net_two)
GOLDEN(mc_net_three)
GOLDEN(mc_net_plus_two)
GOLDEN(mc_net_plus_three)
GOLDEN(cct_two)
GOLDEN(cct_three)
GOLDEN(urpc_two)
GOLDEN(urpc_three)
GOLDEN(chaitanya_two)
GOLDEN(chaitanya_three)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_two_classes),     cmocka_unit_test(golden_three_classes),
        cmocka_unit_test(golden_paper_text),      cmocka_unit_test(golden_paper_head),
        cmocka_unit_test(golden_released),        cmocka_unit_test(golden_threshold),
        cmocka_unit_test(golden_stage2_paste),    cmocka_unit_test(golden_paste),
        cmocka_unit_test(golden_paste_threshold), cmocka_unit_test(golden_supervised),
        cmocka_unit_test(golden_mt_two),          cmocka_unit_test(golden_mt_three),
        cmocka_unit_test(golden_entropy_two),     cmocka_unit_test(golden_entropy_three),
        cmocka_unit_test(golden_ua_mt_two),       cmocka_unit_test(golden_ua_mt_three),
        cmocka_unit_test(golden_ict_two),         cmocka_unit_test(golden_ict_three),
        cmocka_unit_test(golden_dtc_two),         cmocka_unit_test(golden_dtc_three),
        cmocka_unit_test(golden_dan_two),         cmocka_unit_test(golden_dan_three),
        cmocka_unit_test(golden_sassnet_two),     cmocka_unit_test(golden_sassnet_three),
        cmocka_unit_test(golden_simcvd_two),      cmocka_unit_test(golden_simcvd_three),
        cmocka_unit_test(golden_mc_net_two),      cmocka_unit_test(golden_mc_net_three),
        cmocka_unit_test(golden_mc_net_plus_two), cmocka_unit_test(golden_mc_net_plus_three),
        cmocka_unit_test(golden_cct_two),         cmocka_unit_test(golden_cct_three),
        cmocka_unit_test(golden_urpc_two),        cmocka_unit_test(golden_urpc_three),
        cmocka_unit_test(golden_chaitanya_two),   cmocka_unit_test(golden_chaitanya_three),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
