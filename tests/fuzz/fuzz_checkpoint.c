/* fuzz_checkpoint.c - any bytes as a checkpoint of a small training.
 *
 * Whatever they hold, reading ends in the same way twice, a refusal is one printable line with an
 * id, and what is accepted leaves finite numbers in models. Checksums are not asked for, so that
 * the fuzzer gets past them.
 */
#include <math.h>

#include "fuzz.h"
#include "train/train_int.h"

static struct device *dev;
static struct train_private own;
static struct trainer t;
static struct checkpoint_facts facts;
static unsigned char state_bytes[5];

static void define(struct builder *b, const struct net_definition *self)
{
    int x = net_input(b, self->channels);
    x = net_norm_relu(b, net_conv(b, x, CONV_1, 2, "a"), "n");
    net_output(b, net_conv(b, x, CONV_1, self->classes, "b"), "logits");
}

static void make_trainer(void)
{
    static const struct net_definition def = {.define = define, .channels = 1, .classes = 2, .filters = 1};
    static char method[] = "tiny";
    static struct settings set = {.method = method, .lr = 0.01};
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    struct error e;
    FUZZ_CHECK(device_open(&dev, &o, &e) == 0);
    t = (struct trainer){.own = &own, .dev = dev, .set = &set};
    FUZZ_CHECK(trainer_model(&t, "student", &def, 0, NET_TRAINING, 1, &e));
    FUZZ_CHECK(trainer_model(&t, "teacher", &def, 0, NET_FORWARD_ONLY, 0, &e));
    FUZZ_CHECK(trainer_state(&t, "bytes", state_bytes, sizeof state_bytes, &e) == 0);
    facts_settings(&facts, &set);
}

/* How far the bytes get: 0 refused as a file, 1 counters, 2 another run, 3 other models, 4 all. */
static int look(const uint8_t *bytes, size_t n, struct error *e)
{
    struct st_file f = {.n_tensors = 0};
    struct st_limits limits = {.bytes = 1 << 20};
    struct counters at;
    int reached = 0;
    if (st_parse(&f, bytes, n, &limits, e) < 0)
        return 0;
    if (checkpoint_counters(&at, &f, e) < 0)
        reached = 1;
    else if (checkpoint_same(&f, &facts, "lr,seed", e) < 0)
        reached = 2;
    else
        reached = checkpoint_load(&t, &f, e) < 0 ? 3 : 4;
    st_free(&f);
    return reached;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct error e, again;
    if (!dev)
        make_trainer();
    int reached = look(bytes, n, &e);
    FUZZ_CHECK(look(bytes, n, &again) == reached);
    if (reached < 4) {
        FUZZ_CHECK(*e.text && *e.id && strcmp(e.text, again.text) == 0);
        for (const char *p = e.text; *p; p++)
            FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7F);
        return 0;
    }
    for (int i = 0; i < t.n_models; i++)
        for (int64_t k = 0; k < t.models[i].params->count; k++)
            FUZZ_CHECK(isfinite(t.models[i].params->value[k]));
    return 0;
}
