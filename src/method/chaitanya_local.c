/* chaitanya_local.c - the second phase of chaitanya: the decoder's first blocks learn to tell places of a
 * patch apart, in whatever light. See chaitanya.c.
 */
#include <string.h>

#include "method/chaitanya.h"

enum { REGIONS = 27 + 8, NEAR = 5 }; /* grid and quarter points; neighbours that one is told from */

/* Where regions of 3x3x3 have their middle on a map, each once: the corners, the middles between them, and
 * the quarter points. Returns how many. */
static int regions_on(int place[REGIONS][3], const struct tensor *map)
{
    const int extent[3] = {map->d, map->h, map->w};
    int n = 0;
    for (int k = 0; k < REGIONS; k++) {
        int known = 0, q = k - 27, digit[3] = {k / 9, k / 3 % 3, k % 3}, bit[3] = {q / 4, q / 2 % 2, q % 2};
        for (int a = 0; a < 3; a++) {
            int e = extent[a], grid[3] = {1, e / 2, e - 2}, quarter[2] = {e / 4, e - 1 - e / 4};
            place[n][a] = k < 27 ? grid[digit[a]] : quarter[bit[a]];
        }
        for (int i = 0; i < n; i++)
            known |= memcmp(place[i], place[n], sizeof place[n]) == 0;
        n += !known;
    }
    return n;
}

/* near[r][q] = 1 for the NEAR regions next to r, the earlier ones of those as far away. */
static void find_near(uint8_t near[REGIONS][REGIONS], int place[REGIONS][3], int n)
{
    CHECK(n > NEAR);
    memset(near, 0, REGIONS * REGIONS);
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < NEAR; k++) {
            int best = -1, least = 0;
            for (int q = 0; q < n; q++) {
                int far = 0;
                for (int a = 0; a < 3; a++)
                    far += (place[q][a] - place[r][a]) * (place[q][a] - place[r][a]);
                if (q != r && !near[r][q] && (best < 0 || far < least))
                    best = q, least = far;
            }
            near[r][best] = 1;
        }
    }
}

/* Rows are (crop, view, region): a region is like itself in the other view, and unlike its neighbours in
 * both; other crops are not looked at. */
static void local_relations(uint8_t *kind, int items, int n, uint8_t near[REGIONS][REGIONS])
{
    int rows = items * n;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < rows; j++) {
            int r = i % n, q = j % n, same = i / n / 2 == j / n / 2;
            int like = same && r == q && i != j, unlike = same && near[r][q];
            kind[(int64_t)i * rows + j] = like ? RELATION_LIKE : unlike ? RELATION_UNLIKE : RELATION_NONE;
        }
    }
}

/* Voxels of the regions, counted through the batch. */
static int upload_places(struct trainer *t, const struct tensor *map, int place[REGIONS][3], int n,
                         struct error *e)
{
    struct chaitanya *m = t->method_state;
    size_t count = (size_t)map->n * (size_t)n;
    int64_t *at = mem_alloc(e, count, sizeof *at);
    m->at = t->dev->ops->alloc(t->dev, count * sizeof *at);
    m->count = mem_alloc(e, (size_t)map->n, sizeof *m->count);
    int result = at && m->count ? device_check(t->dev, e) : -1;
    for (int i = 0; result == 0 && i < map->n; i++) {
        m->count[i] = n;
        for (int r = 0; r < n; r++)
            at[i * n + r] =
                (((int64_t)i * map->d + place[r][0]) * map->h + place[r][1]) * map->w + place[r][2];
    }
    if (result == 0)
        t->dev->ops->upload(t->dev, m->at, at, count * sizeof *at);
    mem_free(at);
    return result;
}

int local_begin(struct trainer *t, struct error *e)
{
    struct chaitanya *m = t->method_state;
    struct model *model = chaitanya_begin(t, chaitanya_local_define, e);
    int place[REGIONS][3];
    uint8_t near[REGIONS][REGIONS];
    if (!model)
        return -1;
    struct tensor map = net_value(model->net, "regions");
    int n = regions_on(place, &map), rows = map.n * n;
    find_near(near, place, n);
    uint8_t *kind = mem_alloc(e, (size_t)rows, (size_t)rows);
    if (!kind)
        return -1;
    local_relations(kind, map.n, n, near);
    int result = relations_new(&m->related, t->dev, kind, rows, map.c, e);
    mem_free(kind);
    m->rows = m->drows = (struct tensor){.type = VALUE_F32, .n = map.n, .d = 1, .h = 1, .w = n, .c = map.c};
    if (result < 0 || part_alloc(t, &m->rows, e) < 0 || part_alloc(t, &m->drows, e) < 0)
        return -1;
    return upload_places(t, &map, place, n, e);
}

void local_gradients(struct trainer *t)
{
    struct chaitanya *m = t->method_state;
    struct net *net = trainer_find(t, "model")->net;
    struct net_pass pass = part_pass(t, NET_TRAIN, 0);
    int rows = m->rows.n * m->rows.w;
    double value;
    net_forward(net, &t->image, &pass);
    struct tensor map = net_value(net, "regions");
    gather_rows(t->dev, m->rows.data, &map, m->at, rows);
    t->dev->ops->zero(t->dev, m->drows.data, (size_t)tensor_count(&m->drows) * sizeof(float));
    ask_relations(m->scratch, m->related, m->rows.data, CHAITANYA_TAU, 1.0, m->drows.data, &value);
    loss_settle(m->scratch);
    struct net_rows back = {
        .at = m->at, .rows = m->drows.data, .count = m->count, .items = m->rows.n, .most = m->rows.w};
    net_grad_rows(net, "regions", &back);
    net_backward(net);
    note(t, "loss", value);
}
