/* test_time_plan.c - a training that must end in time, by a clock made up here: whatever its machine does
 * in the middle, it ends within the limit, and its recorded decisions give the same bits again.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training.h"

static struct case_store cases, held_out;
static struct settings set;
static struct report listener = {.line = test_listen};

/* ---- the clock ------------------------------------------------------------------------------- */

/* Seconds of a step of each phase, before and after `turn`; of a window in validation. */
static struct {
    double now, cost[3], turn, factor, window, last_step;
    int64_t steps[3]; /* done in each phase */
    int kill_at;      /* this process dies after so many steps; 0: never */
    int n;
} fake;

static double fake_clock(void *arg)
{
    (void)arg;
    return fake.now;
}

static void fake_step(void *arg, const struct train_step *s)
{
    (void)arg;
    fake.now += fake.cost[s->phase_number] * (fake.now >= fake.turn ? fake.factor : 1.0);
    fake.steps[s->phase_number] = s->step;
    fake.last_step = fake.now;
    assert_true(s->steps >= s->step && s->total >= s->done);
    if (++fake.n == fake.kill_at)
        raise(SIGKILL);
}

/* Asked at the top of steps, too, where nothing is timed. */
static int fake_stop(void *arg)
{
    (void)arg;
    fake.now += fake.window;
    return 0;
}

static void set_clock(double first, double walk, double second)
{
    memset(&fake, 0, sizeof fake);
    fake.now = 1000.0;
    fake.turn = INFINITY;
    fake.factor = 1.0;
    fake.cost[0] = first;
    fake.cost[1] = walk;
    fake.cost[2] = second;
}

static int setup(void **state)
{
    (void)state;
    set = tiny_settings();
    set.steps = 400;
    io = &quick;
    set_clock(1.0, 0.5, 2.0);
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* From now on, for what is left of plan->limit. */
static int train(const char *run, int resume, struct time_plan *plan, int fill, struct error *e)
{
    struct device *dev = tiny_device(1, PRECISION_F32);
    struct train_options o = tiny_options(&set, &cases, dev, run);
    struct train_result r;
    o.listen = (struct train_listener){.step = fake_step, .stop = fake_stop};
    o.report = &listener;
    o.resume = resume;
    o.checkpoint_every = 0;
    o.val = held_out.n_cases ? &held_out : NULL;
    if (plan)
        o.time = (struct train_time){
            .plan = plan, .deadline = fake.now + plan->limit - plan->used, .fill = fill, .clock = fake_clock};
    *test_told = '\0';
    int result = train_run(&r, &o, e);
    device_close(dev);
    return result;
}

static void must_train(const char *run, struct time_plan *plan, int fill)
{
    struct error e;
    double begun = fake.now;
    fresh_folder(run);
    assert_ok(train(run, 0, plan, fill, &e), e);
    if (plan && plan->limit > 0 && fake.now - begun > 1.05 * plan->limit)
        test_fail("%.1f s of %.1f", fake.now - begun, plan->limit);
}

static struct time_plan limit_of(double seconds)
{
    return (struct time_plan){.limit = seconds, .phase_seconds = {1.0, 0.5, 2.0}};
}

/* The decisions that `run` has on disk, to be replayed. */
static void read_plan(struct time_plan *out, const char *run)
{
    struct error e;
    char path[64];
    snprintf(path, sizeof path, "%s/%s", run, TIME_PLAN_FILE);
    assert_ok(time_plan_read(out, path, "tiny", set.steps, &e), e);
}

static void must_replay(const char *run)
{
    struct time_plan plan;
    uint64_t want = result_of(run);
    read_plan(&plan, run);
    plan.limit = 0.0;
    must_train("again", &plan, 0);
    assert_true(result_of("again") == want);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* By hand: 100 nominal steps; 10 done, then 40 in all; 20 done, then 25 in all. */
static void places(void **state)
{
    (void)state;
    struct time_plan p = {.limit = 1.0};
    for (int step = 0; step <= 100; step++) {
        struct time_place at = time_plan_place(&p, 0, step, 100);
        assert_true(at.steps == 100 && at.position == step && at.next == (step < 100 ? step + 1 : 100));
    }
    time_plan_add(&p, 0, 10, 40);
    time_plan_add(&p, 0, 20, 25);
    time_plan_add(&p, 1, 0, 2);
    static const struct {
        int step;
        double position;
    } want[] = {{9, 9}, {10, 10}, {15, 25}, {20, 40}, {21, 52}, {24, 88}, {25, 100}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(fabs(time_plan_place(&p, 0, want[i].step, 100).position - want[i].position) < 1e-12);
    assert_true(time_plan_place(&p, 0, 9, 100).steps == 100 && time_plan_place(&p, 0, 10, 100).steps == 40);
    assert_true(time_plan_place(&p, 0, 9, 100).next == 10 && time_plan_place(&p, 1, 1, 50).position == 25);
    assert_true(time_plan_steps(&p, 0, 100) == 25 && time_plan_steps(&p, 2, 7) == 7);
    assert_true(!time_plan_is_past(&p, 0, 30) && !time_plan_is_past(&p, 1, 0) && time_plan_is_past(&p, 1, 1));
}

/* 400 nominal steps of 1 s, 100 of 0.5 s, 200 of 2 s: 850 s. */
static void phases_keep_their_ratio(void **state)
{
    (void)state;
    struct time_plan plan = limit_of(85.0);
    must_train("run", &plan, 0);
    assert_true(fake.now - 1000.0 > 0.9 * 85.0);
    assert_in_range(fake.steps[0], 36, 40);
    assert_in_range(fake.steps[1], 9, 10);
    assert_in_range(fake.steps[2], 18, 20);
    must_replay("run");
}

static void half_as_fast_in_the_middle(void **state)
{
    (void)state;
    for (int at = 20; at <= 95; at += 15) { /* per cent */
        set_clock(1.0, 0.5, 2.0);
        fake.turn = fake.now + at;
        fake.factor = 2.0;
        struct time_plan plan = limit_of(100.0);
        must_train("run", &plan, 0);
        assert_true(fake.now - 1000.0 > 0.85 * 100.0);
        assert_true(fake.steps[0] > 0 && fake.steps[1] > 0 && fake.steps[2] > 0);
    }
    must_replay("run");
}

static void three_times_as_fast(void **state)
{
    (void)state;
    fake.turn = fake.now + 30.0;
    fake.factor = 1.0 / 3.0;
    struct time_plan plan = limit_of(100.0);
    must_train("run", &plan, 0);
    assert_true(fake.now - 1000.0 > 0.9 * 100.0);
    assert_true(fake.steps[0] + fake.steps[1] + fake.steps[2] > 150);
    must_replay("run");
}

/* A trial that was wrong by far, or that did not come to the later phases. */
static void costs_of_phases_are_guesses(void **state)
{
    (void)state;
    static const double trials[][3] = {{0, 0, 0}, {1, 0, 0}, {10, 0.05, 0.2}, {0.5, 2, 8}};
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        set_clock(1.0, 0.5, 2.0);
        struct time_plan plan = {.limit = 90.0};
        memcpy(plan.phase_seconds, trials[i], sizeof trials[i]);
        must_train("run", &plan, 1);
        assert_true(fake.now - 1000.0 > 0.75 * 90.0);
    }
}

/* Time enough: the bits of a run without a limit. Without --steps: as many as fit. */
static void enough_time_changes_no_bit(void **state)
{
    (void)state;
    set.steps = 12;
    must_train("plain", NULL, 0);
    assert_false(io_exists("plain/" TIME_PLAN_FILE));
    struct time_plan plan = limit_of(1000.0), more = limit_of(100.0);
    must_train("run", &plan, 0);
    assert_true(result_of("run") == result_of("plain"));
    set_clock(1.0, 0.5, 2.0);
    must_train("run", &more, 1);
    assert_true(fake.steps[0] > 30 && fake.now - 1000.0 > 0.9 * 100.0);
    must_replay("run");
}

static void no_time_is_left(void **state)
{
    (void)state;
    struct time_plan plan = {.limit = 10.0, .used = 11.0};
    struct error e;
    fresh_folder("run");
    assert_ok(train("run", 0, &plan, 0, &e), e);
    assert_true(fake.steps[0] <= 2 && fake.steps[1] == 1 && fake.steps[2] == 1);
    assert_true(io_exists("run/model.safetensors"));
    assert_non_null(strstr(test_told, "--max-time"));
}

/* 12 windows of 1 s a validation: one at the end, or more often. */
static void validations_count(void **state)
{
    (void)state;
    for (int every = 0; every <= 40; every += 20) {
        set_clock(1.0, 0.5, 2.0);
        set.val_every = every;
        fake.window = 0.2;
        tiny_cases(&held_out, 3, 0, 77);
        struct time_plan plan = limit_of(120.0);
        must_train("run", &plan, 0);
        assert_true(fake.now - fake.last_step > 1.0 && fake.now - 1000.0 > 0.85 * 120.0);
        double wait = fake.window; /* a replay needs none */
        fake.window = 0.0;
        must_replay("run");
        fake.window = wait;
        case_store_free(&held_out);
    }
}

/* Killed after any step and resumed: time used counts, and the decisions of both give the same bits again. */
static void killed_and_resumed(void **state)
{
    (void)state;
    struct error e;
    for (int at = 1; at < 90; at += 11) {
        double begun = 1000.0;
        struct time_plan plan = limit_of(90.0), recorded = limit_of(90.0);
        set_clock(1.0, 0.5, 2.0);
        fake.kill_at = at;
        fresh_folder("run");
        pid_t pid = fork();
        if (pid == 0) {
            train("run", 0, &plan, 0, &e);
            _exit(0);
        }
        int status = 0;
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        fake.kill_at = 0;
        if (io_exists("run/" TIME_PLAN_FILE))
            read_plan(&recorded, "run");
        assert_true(recorded.limit == 90.0 && recorded.used <= 90.0);
        fake.now = begun + recorded.used;
        assert_ok(train("run", 1, &recorded, 0, &e), e);
        assert_true(fake.now - begun < 1.05 * 90.0);
        must_replay("run");
    }
}

/* A rollback repeats steps; decisions of the first time hold. */
static void rolled_back(void **state)
{
    (void)state;
    fault.kind = FAULT_LOSS;
    fault.from = 25;
    fault.until = 28;
    fault.cured = 1;
    struct time_plan plan = limit_of(120.0);
    must_train("run", &plan, 0);
    must_replay("run");
    memset(&fault, 0, sizeof fault);
}

static void bad_plans(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum error_code code;
        const char *id;
    } bad[] = {
        {"{\"method\": \"aua\", \"steps\": 400, \"max_time\": 1, \"used\": 0, \"decisions\": []}", ERR_BUSY,
         "K05"},
        {"{\"method\": \"tiny\", \"steps\": 6000, \"max_time\": 1, \"used\": 0, \"decisions\": []}", ERR_BUSY,
         "K05"},
        {"{\"method\": \"tiny\", \"max_time\": 1, \"used\": 0, \"decisions\": []}", ERR_DATA, "C01"},
        {"{\"method\": \"tiny\", \"steps\": 400, \"max_time\": -1, \"used\": 0, \"decisions\": []}", ERR_DATA,
         "C01"},
#define PLAN(list)                                                                                           \
    {"{\"method\": \"tiny\", \"steps\": 400, \"max_time\": 1, \"used\": 0, \"decisions\": [" list "]}",      \
     ERR_DATA, "C01"}
        PLAN("[0, 0]"),
        PLAN("[0, 5, 5]"),
        PLAN("[4, 0, 5]"),
        PLAN("[-1, 0, 5]"),
        PLAN("[0, 0, 1e3]"),
        PLAN("[0, 0, 5], [0, 0, 6]"),
        PLAN("[0, 0, 5], [0, 5, 6]"),
        PLAN("[1, 0, 5], [0, 1, 6]"),
    };
    struct time_plan plan;
    struct error e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *f = fopen("plan.json", "w");
        assert_non_null(f);
        fputs(bad[i].text, f);
        fclose(f);
        assert_refused(time_plan_read(&plan, "plan.json", "tiny", 400, &e), e, bad[i].code, bad[i].id);
        assert_non_null(strstr(e.text, "plan.json"));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(places),
        TEST(phases_keep_their_ratio),
        TEST(half_as_fast_in_the_middle),
        TEST(three_times_as_fast),
        TEST(costs_of_phases_are_guesses),
        TEST(enough_time_changes_no_bit),
        TEST(no_time_is_left),
        TEST(validations_count),
        TEST(killed_and_resumed),
        TEST(rolled_back),
        TEST(bad_plans),
    };
    tiny_cases(&cases, 4, 3, 5);
    int result = cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
    case_store_free(&cases);
    return result;
}
