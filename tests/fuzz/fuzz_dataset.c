/* fuzz_dataset.c - any bytes as dataset.json, as a datalist and as prepared.json.
 *
 * The files that the json names do not exist; what is tested is everything up to the list of cases. A set
 * that opens must keep its promises: names, at least one image a case, classes with names.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/layouts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must_hold(int condition)
{
    if (!condition)
        abort();
}

static void look_at(const struct dataset *d)
{
    for (int i = 0; i < d->n_cases; i++) {
        const struct data_case *c = &d->cases[i];
        must_hold(c->name && c->n_images >= 1);
        for (int k = 0; k < c->n_images; k++)
            must_hold(text_starts_with(c->images[k], d->root)); /* nothing leads out */
    }
    for (int k = 0; k < d->n_classes; k++)
        must_hold(d->class_names[k] != NULL);
}

static void try_json(const struct js *root, const char *file)
{
    struct dataset d = {0};
    struct dataset_options o = {.seed = 1};
    struct opening w = {.d = &d, .o = &o, .json = file};
    struct error e = {0};
    d.root = mem_string(NULL, "/nonexistent/set");
    w.real_root = mem_string(NULL, "/nonexistent/set");
    if (layout_from_json(&w, root, &e) == 0)
        look_at(&d);
    else
        must_hold((e.code == ERR_DATA || e.code == ERR_SYSTEM || e.code == ERR_MEMORY) && *e.text);
    mem_free(w.real_root);
    dataset_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct js *root;
    struct error e = {0};
    char *copy = malloc(n ? n : 1); /* exactly n bytes: one too far is seen */
    if (n)
        memcpy(copy, bytes, n);
    if (js_parse(&root, copy, n, &e) == 0) {
        try_json(root, NULL);
        try_json(root, "list.json");
        js_free(root);
    } else {
        must_hold(e.code == ERR_DATA && *e.text);
    }
    free(copy);
    return 0;
}
