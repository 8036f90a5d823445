/* verb_info.c - `falx info FILE...`: what a file holds, as falx sees it. Describes anything decodable;
 * a file that is not gets its error line, and the others are still shown.
 */
#include <stdio.h>

#include "cli/config.h"
#include "volume/volume.h"

static void to_json(struct js_out *o, const char *path, const struct volume *v, const struct volume_stats *s)
{
    char orientation[4];
    geometry_orientation(orientation, &v->geometry);
    js_out_open(o, NULL, '{');
    js_out_text(o, "path", path);
    js_out_text(o, "format", v->format);
    js_out_text(o, "dtype", dtype_name(v->dtype));
    js_out_ints(o, "dims", v->dims, v->n_dims);
    js_out_reals(o, "spacing_mm", v->geometry.spacing_mm, 3);
    js_out_text(o, "orientation", orientation);
    js_out_bool(o, "orientation_known", v->geometry.known);
    js_out_open(o, "affine", '[');
    for (int row = 0; row < 3; row++)
        js_out_reals(o, NULL, v->geometry.affine[row], 4);
    js_out_close(o, ']');
    js_out_real(o, "scl_slope", v->slope);
    js_out_real(o, "scl_inter", v->inter);
    js_out_real(o, "min", s->min);
    js_out_real(o, "max", s->max);
    js_out_real(o, "mean", s->mean);
    js_out_int(o, "nan", s->n_odd);
    js_out_close(o, '}');
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
    if (s->n_odd)
        printf(", %lld NaN or infinite", (long long)s->n_odd);
    printf("\n");
}

int verb_info(struct config *c)
{
    int code = 0;
    struct js_out all = {0};
    struct volume_request r = config_request(c);
    r.describe = 1;
    js_out_open(&all, NULL, '[');
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
        if (c->json)
            to_json(&all, c->args[i], &v, &s);
        else
            print_plain(c->args[i], &v, &s);
        volume_free(&v);
    }
    js_out_close(&all, ']');
    if (c->json) {
        int printed = console_json(&all);
        return code ? code : printed;
    }
    mem_free(all.text);
    return code;
}
