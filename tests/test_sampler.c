/* Tests of sampler.h: same bytes whatever the threads and the way to a step, the two streams, the
 * fallbacks, and no allocation once it runs. */
#include "test.h"

#include "base/rng.h"
#include "sample/sampler.h"

enum { STEPS = 24 };

/* ---- stores and options ---------------------------------------------------------------------- */

/* Cases of different shapes, two channels, labels 0..2; channel 0 holds the case's number + 1. */
static struct case_store new_store(int n_labeled, int n_unlabeled)
{
    struct case_store s = {.channels = 2, .has_mask = 1};
    struct error e;
    for (int i = 0; i < n_labeled + n_unlabeled; i++) {
        int dims[3] = {14 + i % 3, 18 - i % 4, 10 + i % 5};
        char name[16];
        snprintf(name, sizeof name, "case%d", i);
        struct stored_case *c =
            case_store_add(&s, name, dims, i < n_labeled ? CASE_LABELED : CASE_UNLABELED, &e);
        assert_non_null(c);
        struct rng r = rng_start(1, (uint64_t)i, RNG_TEST, 0);
        for (int v = 0; v < dims[0] * dims[1] * dims[2]; v++) {
            c->image[2 * v] = (float)(i + 1);
            c->image[2 * v + 1] = rng_normal(&r);
            if (c->label)
                c->label[v] = (label_t)rng_below(&r, 3);
            c->mask[v] = 1;
        }
    }
    return s;
}

static struct sampler_options new_options(int labeled, int unlabeled, int threads)
{
    struct sampler_options o = {.n_labeled = labeled,
                                .n_unlabeled = unlabeled,
                                .patch = {12, 12, 8},
                                .seed = 1337,
                                .threads = threads,
                                .depth = 3};
    o.augment[SAMPLER_LABELED] = augment_full;
    o.augment[SAMPLER_UNLABELED] = augment_paper;
    struct augment_range *r[] = {&o.augment[0].scale, &o.augment[0].rotate,   &o.augment[0].elastic,
                                 &o.augment[0].noise, &o.augment[0].blur,     &o.augment[0].brightness,
                                 &o.augment[0].shift, &o.augment[0].contrast, &o.augment[0].zoom,
                                 &o.augment[0].gamma};
    for (size_t i = 0; i < sizeof r / sizeof r[0]; i++)
        r[i]->p = 0.5f;
    o.augment[0].elastic_spacing = 5;
    o.augment[0].shift.hi = 0.5f;
    return o;
}

static struct sampler *new_sampler(const struct case_store *s, const struct sampler_options *o)
{
    struct sampler *out = NULL;
    struct error e = {0};
    assert_ok(sampler_new(&out, s, o, &e), e);
    return out;
}

/* The batch of any step. */
static const struct batch *sampler_at(struct sampler *s, uint64_t step)
{
    sampler_seek(s, step);
    return sampler_next(s);
}

/* Everything a batch holds. */
static uint64_t hash_batch(const struct batch *b)
{
    size_t n = (size_t)b->n * (size_t)b->dims[0] * (size_t)b->dims[1] * (size_t)b->dims[2];
    uint64_t h = hash_bytes(&b->step, sizeof b->step, 1);
    h = hash_bytes(b->image, n * (size_t)b->channels * sizeof(float), h);
    h = hash_bytes(b->label, n * sizeof(label_t), h);
    if (b->mask)
        h = hash_bytes(b->mask, n, h);
    return hash_bytes(b->sample, (size_t)b->n * sizeof *b->sample, h);
}

/* ---- same bytes ------------------------------------------------------------------------------ */

static void record(uint64_t hash[STEPS], const struct case_store *s, int threads, int depth)
{
    struct sampler_options o = new_options(2, 2, threads);
    o.depth = depth;
    struct sampler *p = new_sampler(s, &o);
    for (int t = 0; t < STEPS; t++) {
        const struct batch *b = sampler_next(p);
        assert_int_equal(b->step, t);
        hash[t] = hash_batch(b);
    }
    sampler_free(p);
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    uint64_t want[STEPS], got[STEPS];
    record(want, &s, 0, 2);
    for (int t = 1; t < STEPS; t++)
        assert_true(want[t] != want[t - 1]);
    const int threads[] = {1, 2, 4}, depth[] = {2, 3, 8};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            record(got, &s, threads[i], depth[j]);
            assert_memory_equal(got, want, sizeof want);
        }
    case_store_free(&s);
}

/* What is left out changes nothing of what is there. */
static void test_without_images_or_labels(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    struct sampler_options o = new_options(2, 2, 0);
    struct sampler *all = new_sampler(&s, &o), *part[4] = {NULL};
    size_t n = 4 * 12 * 12 * 8;
    for (int i = 1; i < 4; i++) {
        o.without = i;
        part[i] = new_sampler(&s, &o);
        assert_true(sampler_bytes(part[i]) < sampler_bytes(all));
    }
    for (int t = 0; t < STEPS; t++) {
        const struct batch *whole = sampler_next(all);
        for (int i = 1; i < 4; i++) {
            const struct batch *b = sampler_next(part[i]);
            assert_true(!b->image == !!(i & SAMPLER_NO_IMAGE) && !b->label == !!(i & SAMPLER_NO_LABEL));
            assert_memory_equal(b->sample, whole->sample, 4 * sizeof *b->sample);
            if (b->image)
                assert_memory_equal(b->image, whole->image, n * (size_t)b->channels * sizeof(float));
            if (b->label)
                assert_memory_equal(b->label, whole->label, n * sizeof(label_t));
        }
    }
    sampler_free(all);
    for (int i = 1; i < 4; i++)
        sampler_free(part[i]);
    case_store_free(&s);
}

static void test_restart_at_any_step(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    uint64_t want[STEPS];
    record(want, &s, 2, 3);
    for (int t = 0; t < STEPS; t++) { /* a new process each time, as far as the sampler can tell */
        struct sampler_options o = new_options(2, 2, t % 3);
        struct sampler *p = new_sampler(&s, &o);
        sampler_seek(p, (uint64_t)t);
        for (int u = t; u < STEPS && u < t + 3; u++)
            assert_true(hash_batch(sampler_next(p)) == want[u]);
        sampler_free(p);
    }
    case_store_free(&s);
}

/* The next batch can be had early, while the last one is still in use. */
static void test_peek(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    uint64_t want[STEPS];
    record(want, &s, 2, 3);
    for (int threads = 0; threads < 3; threads++) {
        struct sampler_options o = new_options(2, 2, threads);
        o.depth = 2;
        struct sampler *p = new_sampler(&s, &o);
        assert_true(hash_batch(sampler_peek(p)) == want[0]);
        for (int t = 0; t + 1 < STEPS; t++) {
            const struct batch *now = sampler_next(p), *then = sampler_peek(p);
            assert_true(hash_batch(then) == want[t + 1]);
            assert_true(hash_batch(now) == want[t]);
            assert_ptr_equal(then, sampler_peek(p));
        }
        sampler_seek(p, 1);
        assert_true(hash_batch(sampler_peek(p)) == want[1]);
        assert_true(hash_batch(sampler_next(p)) == want[1]);
        sampler_free(p);
    }
    case_store_free(&s);
}

static void test_seek_anywhere(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    uint64_t want[STEPS];
    record(want, &s, 0, 2);
    for (int threads = 0; threads <= 4; threads += 2) {
        struct sampler_options o = new_options(2, 2, threads);
        struct sampler *p = new_sampler(&s, &o);
        struct rng r = rng_start(3, 3, RNG_TEST, (uint64_t)threads);
        for (int i = 0; i < 100; i++) {
            uint32_t t = rng_below(&r, STEPS);
            assert_true(hash_batch(sampler_at(p, t)) == want[t]);
            if (t + 1 < STEPS && rng_below(&r, 2))
                assert_true(hash_batch(sampler_next(p)) == want[t + 1]);
            if (rng_below(&r, 4) == 0)
                sampler_seek(p, 5); /* twice in a row, without reading */
        }
        const struct batch *far = sampler_at(p, (uint64_t)1 << 40); /* beyond 32 bits */
        assert_true(far->step == (uint64_t)1 << 40);
        assert_true(hash_batch(sampler_at(p, 0)) == want[0]);
        sampler_free(p);
    }
    case_store_free(&s);
}

static void test_seed_matters(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    struct sampler_options o = new_options(2, 2, 0);
    struct sampler *a = new_sampler(&s, &o);
    o.seed++;
    struct sampler *b = new_sampler(&s, &o);
    for (int t = 0; t < 5; t++)
        assert_true(hash_batch(sampler_next(a)) != hash_batch(sampler_next(b)));
    sampler_free(a);
    sampler_free(b);
    case_store_free(&s);
}

/* The record of a slot and the store are enough to make its patch again. */
static void test_provenance(void **state)
{
    (void)state;
    struct case_store s = new_store(4, 4);
    struct sampler_options o = new_options(2, 2, 2);
    struct sampler *p = new_sampler(&s, &o);
    struct augment_scratch *scratch;
    struct error e;
    enum { N = 12 * 12 * 8 };
    static float image[2 * N];
    static label_t label[N];
    static uint8_t mask[N];
    assert_int_equal(augment_scratch_new(&scratch, o.augment, SAMPLER_STREAMS, o.patch, 2, &e), 0);
    for (int t = 0; t < 10; t++) {
        const struct batch *b = sampler_next(p);
        for (int i = 0; i < b->n; i++) {
            const struct sample *from = &b->sample[i];
            struct patch again = {{12, 12, 8}, 2, image, label, mask};
            augment_apply(&again, &o.augment[from->stream], &from->draw, &s.cases[from->case_index], scratch);
            assert_memory_equal(image, b->image + (size_t)i * 2 * N, sizeof image);
            assert_memory_equal(label, b->label + (size_t)i * N, sizeof label);
            assert_memory_equal(mask, b->mask + (size_t)i * N, sizeof mask);
        }
    }
    augment_scratch_free(scratch);
    sampler_free(p);
    case_store_free(&s);
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct sampler_options plain_options(int labeled, int unlabeled)
{
    struct sampler_options o = new_options(labeled, unlabeled, 1);
    memset(o.augment, 0, sizeof o.augment); /* random crops only */
    return o;
}

/* Labelled cases: each once an epoch, groups of L, remainder dropped; epochs differ. */
static void test_labeled_epochs(void **state)
{
    (void)state;
    const int pool[] = {8, 5, 3}, groups[] = {4, 2, 1};
    for (int i = 0; i < 3; i++) {
        struct case_store s = new_store(pool[i], 6);
        struct sampler_options o = plain_options(2, 1);
        struct sampler *p = new_sampler(&s, &o);
        int same = 0, last[8] = {-1}, used[8] = {0};
        for (int epoch = 0; epoch < 200; epoch++) {
            int seen[8] = {0}, order[8], n = 0;
            for (int g = 0; g < groups[i]; g++) {
                const struct batch *b = sampler_next(p);
                for (int slot = 0; slot < 2; slot++) {
                    int c = b->sample[slot].case_index;
                    assert_in_range(c, 0, pool[i] - 1);
                    assert_int_equal(seen[c]++, 0);
                    assert_int_equal(b->sample[slot].has_label, 1);
                    used[c]++;
                    order[n++] = c;
                }
            }
            same += memcmp(order, last, (size_t)n * sizeof(int)) == 0;
            memcpy(last, order, (size_t)n * sizeof(int));
        }
        /* by chance equal epochs: 200 / 8!, 200 / 120, 200 / 6 = 33 +- 5.3 */
        assert_true(same <= (i == 0 ? 1 : i == 1 ? 9 : 60));
        for (int c = 0; c < pool[i]; c++) { /* what the dropped remainder leaves is spread evenly */
            int want = 200 * groups[i] * 2 / pool[i];
            assert_in_range(used[c], want - 32, want + 32);
        }
        sampler_free(p);
        case_store_free(&s);
    }
}

/* Unlabelled cases: a new stream of permutations each epoch, labels not there. */
static void test_unlabeled_stream(void **state)
{
    (void)state;
    enum { POOL = 3, GROUPS = 4, U = 2 };
    struct case_store s = new_store(8, POOL);
    struct sampler_options o = plain_options(2, U);
    struct sampler *p = new_sampler(&s, &o);
    int first[POOL] = {0}, repeated = 0;
    for (int epoch = 0; epoch < 300; epoch++) {
        int stream[GROUPS * U];
        for (int g = 0; g < GROUPS; g++) {
            const struct batch *b = sampler_next(p);
            for (int u = 0; u < U; u++) {
                const struct sample *from = &b->sample[2 + u];
                stream[g * U + u] = from->case_index - 8;
                assert_int_equal(from->has_label, 0);
                assert_int_equal(from->stream, SAMPLER_UNLABELED);
                for (int v = 0; v < 12 * 12 * 8; v++)
                    assert_int_equal(b->label[(2 + u) * 12 * 12 * 8 + v], 0);
            }
        }
        for (int start = 0; start + POOL <= GROUPS * U; start += POOL) {
            int seen = 0;
            for (int i = 0; i < POOL; i++)
                seen |= 1 << stream[start + i];
            assert_int_equal(seen, (1 << POOL) - 1);
        }
        first[stream[0]]++;
        repeated += memcmp(stream, stream + POOL, POOL * sizeof(int)) == 0;
    }
    assert_in_range(repeated, 24, 76); /* one in six by chance: 50 +- 4 deviations */
    for (int i = 0; i < POOL; i++)
        assert_in_range(first[i], 67, 133); /* 100 +- 4 deviations */
    sampler_free(p);
    case_store_free(&s);
}

/* Image and case agree: the constant channel names the case, padding is zero. */
static void test_batch_holds_its_case(void **state)
{
    (void)state;
    struct case_store s = new_store(4, 4);
    struct sampler_options o = plain_options(2, 2);
    struct sampler *p = new_sampler(&s, &o);
    enum { N = 12 * 12 * 8 };
    for (int t = 0; t < 20; t++) {
        const struct batch *b = sampler_next(p);
        assert_int_equal(b->n, 4);
        assert_int_equal(b->n_labeled, 2);
        for (int i = 0; i < b->n; i++) {
            int found = 0;
            for (size_t v = 0; v < N; v++) {
                float x = b->image[((size_t)i * N + v) * 2];
                int inside = b->mask[(size_t)i * N + v];
                assert_true(x == (inside ? (float)(b->sample[i].case_index + 1) : 0));
                found += inside;
            }
            assert_true(found > N / 2);
        }
    }
    sampler_free(p);
    case_store_free(&s);
}

/* Each stream has its own augmentation. */
static void test_streams_augment_apart(void **state)
{
    (void)state;
    struct case_store s = new_store(4, 4);
    struct sampler_options o = plain_options(2, 2);
    o.augment[SAMPLER_LABELED].rotflip = 1;
    o.augment[SAMPLER_UNLABELED].noise = (struct augment_range){1, 0.1f, 0.2f};
    struct sampler *p = new_sampler(&s, &o);
    for (int t = 0; t < 20; t++) {
        const struct batch *b = sampler_next(p);
        for (int i = 0; i < 4; i++) {
            const struct augment_draw *d = &b->sample[i].draw;
            assert_int_equal(d->turns >= 0, i < 2);
            assert_int_equal(d->noise_sd > 0, i >= 2);
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) { /* slots do not share random numbers */
                const struct augment_draw *a = &b->sample[i].draw, *c = &b->sample[j].draw;
                assert_true(memcmp(a, c, sizeof *a) != 0);
            }
    }
    sampler_free(p);
    case_store_free(&s);
}

/* ---- views ----------------------------------------------------------------------------------- */

static struct sampler_options view_options(int cases, int pieces, int threads)
{
    struct sampler_options o = {.n_unlabeled = cases * pieces * 2,
                                .patch = {12, 10, 4},
                                .seed = 5,
                                .views = 2,
                                .pieces = pieces,
                                .threads = threads,
                                .depth = 3};
    o.augment[0].crop = o.augment[1].crop = AUGMENT_CROP_WITHIN;
    return o;
}

/* Two views of one crop show the same, unless one of them is changed; all cases take their turn, none twice
 * in an epoch, which is three batches. */
static void test_views_share_a_crop(void **state)
{
    (void)state;
    struct case_store s = new_store(3, 4);
    struct sampler_options o = view_options(2, 1, 1);
    o.augment[0].rotflip = o.augment[1].rotflip = 1;
    struct sampler *same = new_sampler(&s, &o);
    o.augment[1].shift = (struct augment_range){1, 0.5f, 1};
    struct sampler *apart = new_sampler(&s, &o);
    const size_t n = 12 * 10 * 4 * 2;
    int seen = 0, in_epoch = 0;
    for (int t = 0; t < STEPS; t++) {
        in_epoch = t % 3 ? in_epoch : 0;
        const struct batch *b = sampler_next(same), *c = sampler_next(apart);
        assert_int_equal(b->n_labeled, 0);
        for (size_t i = 0; i < 4; i += 2) {
            const float *x = b->image + i * n, *y = c->image + (i + 1) * n;
            float shift = c->sample[i + 1].draw.shift;
            assert_memory_equal(x, x + n, n * sizeof *x);
            assert_memory_equal(x, c->image + i * n, n * sizeof *x);
            assert_true(shift >= 0.5f && c->sample[i].draw.shift == 0);
            for (size_t v = 0; v < n; v++)
                assert_true(y[v] == x[v] + shift);
            seen |= 1 << b->sample[i].case_index;
            assert_int_equal(in_epoch >> b->sample[i].case_index & 1, 0);
            in_epoch |= 1 << b->sample[i].case_index;
        }
    }
    assert_int_equal(seen, 127);
    sampler_free(same);
    sampler_free(apart);
    case_store_free(&s);
}

/* A case gives a crop of each part of its last axis, and a view that shows half of it stays inside. */
static void test_pieces_and_wandering(void **state)
{
    (void)state;
    enum { PIECES = 3, OFTEN = 400 };
    struct case_store s = new_store(1, 4);
    struct sampler_options o = view_options(2, PIECES, 0);
    o.augment[1].scale = (struct augment_range){1, 0.5f, 0.5f};
    o.augment[1].wander = 1;
    struct sampler *p = new_sampler(&s, &o);
    int least[3] = {99, 99, 99}, most[3] = {-99, -99, -99};
    for (int t = 0; t < OFTEN; t++) {
        const struct batch *b = sampler_next(p);
        for (int i = 0; i < b->n; i += 2) {
            const struct sample *one = &b->sample[i], *two = one + 1;
            int places = s.cases[one->case_index].dims[2] - 4 + 1, part = i / 2 % PIECES;
            assert_int_equal(one->case_index, b->sample[i - i % (2 * PIECES)].case_index);
            assert_int_equal(one->case_index, two->case_index);
            assert_in_range(one->draw.start[2], places * part / PIECES, places * (part + 1) / PIECES - 1);
            for (int a = 0; a < 3; a++) {
                int moved = two->draw.start[a] - one->draw.start[a], room = o.patch[a] / 4;
                assert_in_range(moved + room, 0, 2 * room);
                least[a] = moved < least[a] ? moved : least[a];
                most[a] = moved > most[a] ? moved : most[a];
            }
        }
    }
    for (int a = 0; a < 3; a++)
        assert_true(least[a] == -o.patch[a] / 4 && most[a] == o.patch[a] / 4);
    sampler_free(p);
    for (int threads = 0; threads < 3; threads++) {
        struct sampler_options q = o;
        q.threads = threads;
        struct sampler *r = new_sampler(&s, &q), *want = new_sampler(&s, &o);
        for (int t = 0; t < 5; t++)
            assert_true(hash_batch(sampler_next(r)) == hash_batch(sampler_next(want)));
        sampler_free(r);
        sampler_free(want);
    }
    case_store_free(&s);
}

static void test_views_that_do_not_fit(void **state)
{
    (void)state;
    struct case_store s = new_store(3, 3);
    struct sampler *p;
    struct error e;
    struct sampler_options wrong[] = {view_options(1, 1, 0), view_options(1, 1, 0), view_options(1, 3, 0),
                                      view_options(1, 1, 0), view_options(1, 1, 0)};
    wrong[0].n_labeled = 2;
    wrong[1].n_unlabeled = 3;
    wrong[2].views = 1;
    wrong[3].views = -2;
    wrong[4].pieces = 65;
    for (int i = 0; i < 5; i++)
        assert_refused(sampler_new(&p, &s, &wrong[i], &e), e, ERR_CONFIG, "C03");
    case_store_free(&s);
}

/* ---- fallbacks and failures ------------------------------------------------------------------ */

static void test_few_labeled(void **state)
{
    (void)state;
    struct report told = {.line = test_listen};
    struct case_store s = new_store(3, 4);
    struct sampler_options o = plain_options(7, 1);
    test_told[0] = '\0';
    o.report = &told;
    struct sampler *p = new_sampler(&s, &o);
    assert_reported(REPORT_NOTE, "L10", "3 labelled", "7 labelled");
    for (int t = 0; t < 50; t++) {
        const struct batch *b = sampler_next(p);
        for (int start = 0; start + 3 <= 7; start += 3) {
            int seen = 0;
            for (int i = 0; i < 3; i++)
                seen |= 1 << b->sample[start + i].case_index;
            assert_int_equal(seen, 7);
        }
    }
    sampler_free(p);
    case_store_free(&s);
}

static void test_no_unlabeled(void **state)
{
    (void)state;
    struct report told = {.line = test_listen};
    struct case_store s = new_store(6, 0);
    struct sampler_options o = plain_options(2, 2);
    test_told[0] = '\0';
    o.report = &told;
    struct sampler *p = new_sampler(&s, &o);
    assert_reported(REPORT_NOTE, "L10", "6 labelled");
    int differ = 0;
    for (int t = 0; t < 30; t++) {
        const struct batch *b = sampler_next(p);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(b->sample[i].has_label, 1);
            assert_int_equal(b->sample[i].stream, i < 2 ? SAMPLER_LABELED : SAMPLER_UNLABELED);
        }
        differ += b->sample[0].case_index != b->sample[2].case_index;
    }
    assert_true(differ > 10); /* the second stream is its own permutation */
    sampler_free(p);
    case_store_free(&s);
}

/* L = 0: the unlabelled cases set the epoch. U = 0: labelled slots only. */
static void test_single_stream(void **state)
{
    (void)state;
    struct case_store s = new_store(4, 6);
    struct sampler_options o = plain_options(0, 3);
    struct sampler *p = new_sampler(&s, &o);
    int seen[10] = {0};
    for (int t = 0; t < 2; t++) {
        const struct batch *b = sampler_next(p);
        for (int i = 0; i < 3; i++)
            assert_int_equal(seen[b->sample[i].case_index]++, 0);
    }
    for (int c = 4; c < 10; c++)
        assert_int_equal(seen[c], 1);
    sampler_free(p);
    o = plain_options(4, 0);
    p = new_sampler(&s, &o);
    assert_int_equal(sampler_next(p)->n, 4);
    sampler_free(p);
    case_store_free(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    struct case_store s = new_store(3, 3), none = new_store(0, 3);
    struct sampler_options good = plain_options(2, 2), bad[6];
    struct sampler *p = NULL;
    struct error e;
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].n_labeled = bad[0].n_unlabeled = 0;
    bad[1].n_unlabeled = -1;
    bad[2].patch[1] = 0;
    bad[3].depth = 1;
    bad[4].threads = -1;
    bad[5].augment[1].blur = (struct augment_range){0.5f, 0, 99};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(sampler_new(&p, &s, &bad[i], &e), -1);
        assert_int_equal(e.code, ERR_CONFIG);
    }
    assert_refused(sampler_new(&p, &none, &good, &e), e, ERR_DATA, "L10");
    case_store_free(&s);
    case_store_free(&none);
}

static void test_nothing_allocated_in_use(void **state)
{
    (void)state;
    struct case_store s = new_store(5, 7);
    struct sampler_options o = new_options(2, 2, 2);
    struct sampler *p = new_sampler(&s, &o);
    mem_fail_at(-1, 0);
    int64_t before = mem_count();
    for (int t = 0; t < 30; t++)
        (void)sampler_next(p);
    sampler_seek(p, 3);
    (void)sampler_next(p);
    assert_int_equal(mem_count() - before, 0);
    sampler_free(p);
    case_store_free(&s);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct case_store s = new_store(3, 3);
    struct sampler_options o = new_options(2, 2, 2);
    struct sampler *p = NULL;
    struct error e;
    int n = 0, result = -1;
    for (; result < 0; n++) {
        mem_fail_at(n, 0);
        result = sampler_new(&p, &s, &o, &e);
        mem_fail_at(-1, 0);
        if (result < 0)
            assert_int_equal(e.code, ERR_MEMORY);
    }
    assert_true(n > 15);
    sampler_free(p);
    case_store_free(&s);
}

/* Freed at once, while threads are in the middle of the first batches. */
static void test_shutdown(void **state)
{
    (void)state;
    struct case_store s = new_store(3, 3);
    struct sampler_options o = new_options(2, 2, 4);
    for (int i = 0; i < 50; i++) {
        struct sampler *p = new_sampler(&s, &o);
        for (int t = 0; t < i % 3; t++)
            (void)sampler_next(p);
        sampler_free(p);
    }
    sampler_free(NULL);
    case_store_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_without_images_or_labels),
        cmocka_unit_test(test_restart_at_any_step),
        cmocka_unit_test(test_peek),
        cmocka_unit_test(test_seek_anywhere),
        cmocka_unit_test(test_seed_matters),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_labeled_epochs),
        cmocka_unit_test(test_unlabeled_stream),
        cmocka_unit_test(test_batch_holds_its_case),
        cmocka_unit_test(test_views_share_a_crop),
        cmocka_unit_test(test_pieces_and_wandering),
        cmocka_unit_test(test_views_that_do_not_fit),
        cmocka_unit_test(test_streams_augment_apart),
        cmocka_unit_test(test_few_labeled),
        cmocka_unit_test(test_no_unlabeled),
        cmocka_unit_test(test_single_stream),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing_allocated_in_use),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
