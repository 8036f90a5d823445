/* verb_info.c - `falx info FILE...`: what a file holds, as falx sees it. Describes anything decodable;
 * a file that is not gets its error line, and the others are still shown.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "cli/config.h"
#include "volume/volume.h"

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *to_json(const char *path, const struct volume *v, const struct volume_stats *s)
{
    char orientation[4], shown[4096];
    geometry_orientation(orientation, &v->geometry);
    json_t *dims = json_array(), *spacing = json_array(), *affine = json_array();
    for (int a = 0; a < v->n_dims; a++)
        json_array_append_new(dims, json_integer(v->dims[a]));
    for (int row = 0; row < 3; row++) {
        json_t *line = json_array();
        for (int col = 0; col < 4; col++)
            json_array_append_new(line, number(v->geometry.affine[row][col]));
        json_array_append_new(affine, line);
        json_array_append_new(spacing, number(v->geometry.spacing_mm[row]));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:b, s:o, s:o, s:o, s:o, s:I, s:f, s:f}", "path",
                     text_escape(shown, sizeof shown, path), "format", v->format, "dtype",
                     dtype_name(v->dtype), "dims", dims, "spacing_mm", spacing, "orientation",
                     orientation, "orientation_known", v->geometry.known, "affine", affine, "min",
                     number(s->min), "max", number(s->max), "mean", number(s->mean), "nan",
                     (json_int_t)s->n_nan, "scl_slope", v->slope, "scl_inter", v->inter);
}

static void print_plain(const char *path, const struct volume *v, const struct volume_stats *s)
{
    char orientation[4], shown[4096];
    const struct geometry *g = &v->geometry;
    geometry_orientation(orientation, g);
    printf("%s\n  %s, %s, ", text_escape(shown, sizeof shown, path), v->format, dtype_name(v->dtype));
    for (int a = 0; a < v->n_dims; a++)
        printf("%s%lld", a ? " x " : "", (long long)v->dims[a]);
    printf(" voxels\n  spacing %g x %g x %g mm, orientation %s%s\n", g->spacing_mm[0], g->spacing_mm[1],
           g->spacing_mm[2], orientation, g->known ? "" : " (not stated by the file)");
    for (int row = 0; row < 3; row++)
        printf("  %s %10.4g %10.4g %10.4g %10.4g\n", row ? "      " : "affine", g->affine[row][0],
               g->affine[row][1], g->affine[row][2], g->affine[row][3]);
    printf("  values %g to %g, mean %g", s->min, s->max, s->mean);
    if (s->n_nan)
        printf(", %lld NaN", (long long)s->n_nan);
    printf("\n");
}

int verb_info(struct config *c)
{
    int code = 0;
    json_t *all = c->json ? json_array() : NULL;
    struct volume_request r = config_request(c);
    r.describe = 1;
    for (int i = 0; i < c->n_args; i++) {
        struct error e;
        struct volume v;
        struct volume_stats s;
        if (volume_read(&v, c->args[i], &r, &e) < 0) {
            int this_code = complain(&e);
            code = code ? code : this_code;
            continue;
        }
        volume_measure(&s, &v);
        if (all)
            json_array_append_new(all, to_json(c->args[i], &v, &s));
        else
            print_plain(c->args[i], &v, &s);
        volume_free(&v);
    }
    if (all) {
        json_dumpf(all, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(all);
    }
    return code;
}
