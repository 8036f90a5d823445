/* test_picture.c - sheets: colours, sides of the body, proportions; PNG files read back by libpng.
 */
#include "test.h"

#include <errno.h>
#include <math.h>
#include <png.h>

#include "score/letters.h"
#include "score/picture.h"

enum { N = 20, VOXELS = N * N * N };

static label_t truth[VOXELS], prediction[VOXELS];
static struct geometry geometry;

static void fill(label_t *v, const int lo[3], const int hi[3], label_t class)
{
    for (int z = lo[2]; z < hi[2]; z++)
        for (int y = lo[1]; y < hi[1]; y++)
            for (int x = lo[0]; x < hi[0]; x++)
                v[x + N * (y + N * z)] = class;
}

static struct sheet start(const double spacing[3])
{
    struct sheet s = {.dims = {N, N, N}, .geometry = &geometry, .truth = truth, .n_slices = 3};
    geometry_identity(&geometry, spacing);
    memset(truth, 0, sizeof truth);
    memset(prediction, 0, sizeof prediction);
    return s;
}

/* Extent of the pixels of about this colour below the head line; returns their number. */
static int find_colour(int box[4], const struct picture *p, int r, int g, int b)
{
    int n = 0;
    for (int y = 34; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            const uint8_t *c = p->rgb + 3 * (y * p->width + x);
            if (abs(c[0] - r) > 8 || abs(c[1] - g) > 8 || abs(c[2] - b) > 8)
                continue;
            if (n == 0) {
                box[0] = box[1] = x;
                box[2] = box[3] = y;
            }
            box[0] = x < box[0] ? x : box[0];
            box[1] = x > box[1] ? x : box[1];
            box[2] = y < box[2] ? y : box[2];
            box[3] = y > box[3] ? y : box[3];
            n++;
        }
    return n;
}

enum { RED = 0xf03e3e, GREEN = 0x40ce60, BLUE = 0x4c80ff };

static int count(int box[4], const struct picture *p, int colour)
{
    return find_colour(box, p, colour >> 16, colour >> 8 & 255, colour & 255);
}

/* In RAS the patient's left has the small x and is shown on the right; front (large y) is up. */
static void sides_of_the_body(void **state)
{
    struct sheet s = start((double[]){1, 1, 1});
    struct picture p = {0};
    struct error e;
    int agreed[4], missed[4], extra[4];
    (void)state;
    s.prediction = prediction;
    s.n_slices = 1;
    fill(truth, (int[]){8, 8, 4}, (int[]){12, 12, 16}, 1);
    fill(prediction, (int[]){8, 8, 4}, (int[]){12, 12, 16}, 1);
    fill(truth, (int[]){2, 8, 4}, (int[]){6, 12, 16}, 1);        /* missed: low x */
    fill(prediction, (int[]){8, 14, 4}, (int[]){12, 18, 16}, 1); /* too much: high y, the front */
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
    p.height = 34 + 232; /* the axial row only */
    assert_true(count(agreed, &p, RED) > 20);
    assert_true(count(missed, &p, GREEN) > 20);
    assert_true(count(extra, &p, BLUE) > 20);
    assert_true(missed[0] > agreed[1]); /* right of it */
    assert_true(extra[3] < agreed[2]);  /* above it */
    picture_free(&p);
}

/* A box of 8 x 8 x 4 voxels of 1 x 1 x 2 mm is a cube: square in every plane. */
static void proportions_follow_the_spacing(void **state)
{
    struct sheet s = start((double[]){1, 1, 2});
    struct picture p = {0};
    struct error e;
    (void)state;
    s.prediction = truth;
    s.n_slices = 1;
    fill(truth, (int[]){6, 6, 8}, (int[]){14, 14, 12}, 1);
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
    for (int row = 0; row < 3; row++) {
        struct picture part = {p.width, 34 + 232, p.rgb + 3 * p.width * row * (232 + 6)};
        int box[4];
        assert_true(count(box, &part, RED) > 100);
        int wide = box[1] - box[0], high = box[3] - box[2];
        assert_true(abs(wide - high) <= 2);
        assert_true(wide > 232 / 2 && wide < 232 * 3 / 4); /* the object takes two thirds */
    }
    picture_free(&p);
}

static void classes_have_colours(void **state)
{
    static float image[VOXELS];
    struct sheet s = start((double[]){1, 1, 1});
    struct picture p = {0};
    struct error e;
    int box[4];
    (void)state;
    for (int i = 0; i < VOXELS; i++)
        image[i] = (float)(i % N);
    s.image = image;
    s.title = "classes 1-3";
    fill(truth, (int[]){2, 2, 2}, (int[]){8, 18, 18}, 1);
    fill(truth, (int[]){8, 2, 2}, (int[]){18, 18, 18}, 2);
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
    assert_true(find_colour(box, &p, 240, 82, 82) > 50);
    assert_true(find_colour(box, &p, 72, 149, 255) > 50);
    assert_int_equal(find_colour(box, &p, 252, 196, 64), 0);
    picture_free(&p);
}

/* Hot voxels are light, cold ones show the ground; the masks are lines in white and cyan. */
static void maps_are_drawn(void **state)
{
    static float map[VOXELS];
    struct sheet s = start((double[]){1, 1, 1});
    struct picture p = {0};
    struct error e;
    int box[4];
    (void)state;
    s.prediction = prediction;
    s.heat = map;
    s.heat_name = "std";
    fill(truth, (int[]){4, 4, 4}, (int[]){12, 12, 12}, 1);
    fill(prediction, (int[]){6, 6, 6}, (int[]){16, 16, 16}, 1);
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0); /* nothing hot */
    assert_int_equal(find_colour(box, &p, 231, 226, 149), 0);
    assert_true(find_colour(box, &p, 255, 255, 255) > 200);
    assert_true(find_colour(box, &p, 64, 224, 240) > 200);
    picture_free(&p);
    for (int i = 0; i < VOXELS; i++)
        map[i] = i % N < 5 ? NAN : i % N < 10 ? 0.25F : 0;
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
    assert_true(find_colour(box, &p, 231, 226, 149) > 200); /* nine tenths of the hottest colour */
    picture_free(&p);
}

static void odd_volumes_are_drawn(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {N, 1, 1}, {1, N, 2}, {3, 1, N}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sheet s = start((double[]){0.1, 5, 1});
        struct picture p = {0};
        struct error e;
        memcpy(s.dims, shapes[i], sizeof s.dims);
        s.prediction = prediction; /* nothing in either mask */
        s.n_slices = 0;
        assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
        assert_true(p.width > 1000 && p.height > 100);
        picture_free(&p);
    }
}

static void png_reads_back(void **state)
{
    struct sheet s = start((double[]){1, 1, 1});
    struct picture p = {0};
    struct error e;
    png_image back = {.version = PNG_IMAGE_VERSION};
    static uint8_t rgb[1 << 22];
    char *folder, *path;
    (void)state;
    s.title = "A sheet: 100% (ok)";
    fill(truth, (int[]){6, 6, 6}, (int[]){14, 14, 14}, 1);
    assert_int_equal(io_temp_folder(&folder, &e), 0);
    path = path_join(&e, folder, "a.png");
    assert_int_equal(picture_draw_sheet(&p, &s, &e), 0);
    assert_int_equal(picture_write(&p, path, &e), 0);
    assert_true(png_image_begin_read_from_file(&back, path));
    back.format = PNG_FORMAT_RGB;
    assert_int_equal(back.width, p.width);
    assert_int_equal(back.height, p.height);
    assert_true(PNG_IMAGE_SIZE(back) <= sizeof rgb);
    assert_true(png_image_finish_read(&back, NULL, rgb, 0, NULL));
    assert_memory_equal(rgb, p.rgb, PNG_IMAGE_SIZE(back));
    mem_free(path);
    io_remove_tree(folder);
    mem_free(folder);
    picture_free(&p);
}

static ssize_t full_write(int fd, const void *bytes, size_t n)
{
    (void)fd;
    (void)bytes;
    (void)n;
    errno = ENOSPC;
    return -1;
}

static void write_failure_leaves_nothing(void **state)
{
    struct picture p = {0};
    struct error e;
    struct io_ops full = io_posix;
    (void)state;
    full.write = full_write;
    assert_int_equal(picture_new(&p, 8, 8, &e), 0);
    assert_int_equal(picture_write(&p, "/nonexistent-folder/a.png", &e), -1);
    assert_int_equal(e.code, ERR_SYSTEM);
    io = &full;
    assert_int_equal(picture_write(&p, "/tmp/falx-full.png", &e), -1);
    io = &io_posix;
    assert_error(e, ERR_SYSTEM, "Z12", "/tmp/falx-full.png: ");
    assert_false(io_exists("/tmp/falx-full.png"));
    picture_free(&p);
}

static void letters_stay_inside(void **state)
{
    struct picture p = {0};
    struct error e;
    const uint8_t white[3] = {255, 255, 255};
    int box[4], n;
    (void)state;
    assert_int_equal(picture_new(&p, 60, 60, &e), 0);
    letters_draw(&p, -3, 40, 2, white, "LONGER THAN THE PICTURE");
    letters_draw(&p, 50, 57, 3, white, "~?Z");
    n = find_colour(box, &p, 255, 255, 255);
    assert_true(n > 50);
    picture_free(&p);
}

/* Three methods beside the truth: right, empty, twice as much. The same slice at the same place in each. */
static void columns_compare_methods(void **state)
{
    static const int lo[3] = {6, 6, 6}, hi[3] = {12, 12, 12}, more[3] = {18, 12, 12};
    static const double mm[3] = {1, 1, 1};
    static const char *const names[3] = {"right", "nothing", "a name much too long for its column"};
    static label_t none[VOXELS], twice[VOXELS];
    const label_t *masks[3] = {truth, none, twice};
    struct picture p = {0};
    struct error e;
    int red[4], green[4], blue[4], alone[4];
    (void)state;
    start(mm);
    fill(truth, lo, hi, 1);
    fill(twice, lo, more, 1);
    struct columns c = {.dims = {N, N, N},
                        .geometry = &geometry,
                        .truth = truth,
                        .title = "case",
                        .n = 3,
                        .names = names,
                        .masks = masks};
    assert_int_equal(picture_draw_columns(&p, &c, &e), 0);
    int step = (p.width - 2 * 14 + 6) / 4;                  /* from column to column */
    assert_true(find_colour(red, &p, 240, 62, 62) > 100);   /* agreed: columns 1 and 3, outlined */
    assert_true(find_colour(green, &p, 64, 206, 96) > 100); /* missed: column 2 */
    assert_true(find_colour(blue, &p, 76, 128, 255) > 100); /* too much: column 3 */
    assert_true(red[0] / step == 1 && red[1] / step == 3);
    assert_true(green[0] / step == 2 && green[1] / step == 2);
    assert_true(blue[0] / step == 3 && blue[1] / step == 3);
    assert_int_equal(green[0] - step, red[0]); /* the same place */
    assert_int_equal(green[2], red[2]);
    assert_true(find_colour(alone, &p, 240, 82, 82) > 100 && alone[1] / step == 0); /* class 1 */
    picture_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sides_of_the_body),       cmocka_unit_test(proportions_follow_the_spacing),
        cmocka_unit_test(classes_have_colours),    cmocka_unit_test(odd_volumes_are_drawn),
        cmocka_unit_test(png_reads_back),          cmocka_unit_test(write_failure_leaves_nothing),
        cmocka_unit_test(letters_stay_inside),     cmocka_unit_test(maps_are_drawn),
        cmocka_unit_test(columns_compare_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
