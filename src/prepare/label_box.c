/* label_box.c - see label_box.h. */
#include <string.h>

#include "prepare/label_box.h"

/* The recipe's name without "paper-": ours, which looks at no label. */
static const char *our_recipe(const struct recipe *r)
{
    return r->name + (text_starts_with(r->name, "paper-") ? strlen("paper-") : 0);
}

int label_box_check(const struct recipe *r, const struct data_case *c, struct error *e)
{
    if (!recipe_needs_label(r) || c->label || c->hidden_label)
        return 0;
    fail(e, ERR_DATA, "L01",
         "no label, but recipe %s crops around the true label; --crop fair or recipe '%s' does not", r->name,
         our_recipe(r));
    return fail_in(e, c->images[0]);
}

int label_box_read(struct box *out, const struct recipe *r, const struct dataset *d,
                   const struct data_case *c, const struct volume *image,
                   const struct volume_request *request, struct pool *pool, struct error *e)
{
    struct data_case shown = *c; /* borrows */
    struct volume label = {0};
    shown.label = c->label ? c->label : c->hidden_label;
    int result = label_box_check(r, c, e);
    if (result == 0)
        result = dataset_load_label(&label, d, &shown, request, e);
    if (result == 0)
        result = dataset_match_label(d, &shown, image, &label, e);
    if (result == 0 && (result = prepare_label_box(out, r, &label, &image->geometry, pool, e)) < 0)
        fail_in(e, shown.label);
    volume_free(&label);
    return result;
}
