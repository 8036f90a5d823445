/* fuzz_time_plan.c - any bytes as RUN/time-plan.json.
 *
 * A refusal has an id and the name of the file. The schedule of an accepted plan is finite, never falls, and
 * ends at the nominal steps.
 */
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "train/time_plan.h"

enum { NOMINAL = 6000 };

static void check_schedule(const struct time_plan *p, int phase)
{
    int64_t steps = time_plan_steps(p, phase, NOMINAL);
    double before = 0.0;
    for (int i = 0; i < p->n; i++) {
        if (p->list[i].phase != phase)
            continue;
        struct time_place at = time_plan_place(p, phase, p->list[i].step, NOMINAL);
        FUZZ_CHECK(isfinite(at.position) && at.position >= before && at.next >= at.position);
        before = at.position;
    }
    FUZZ_CHECK(time_plan_place(p, phase, steps, NOMINAL).position == NOMINAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct time_plan plan;
    struct error e = {.code = ERR_NONE};
    char path[40];
    int fd = memfd_create("plan", 0);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int result = time_plan_read(&plan, path, "aua", NOMINAL, &e);
    close(fd);
    if (result < 0)
        FUZZ_CHECK(*e.id && strstr(e.text, path));
    for (int phase = 0; phase < TIME_PHASES && result == 0; phase++)
        check_schedule(&plan, phase);
    return 0;
}
