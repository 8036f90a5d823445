/* fuzz_list.c - any bytes as a list file, and as a label map.
 *
 * An accepted list holds no empty name, none twice, and none that leads out of the data set; what it holds
 * reads back as the same list.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/layouts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must_hold(int condition)
{
    if (!condition)
        abort();
}

/* The bytes as io_read_text would give them: without NUL, ended by one. */
static char *text_of(const uint8_t *bytes, size_t n)
{
    char *text = mem_alloc(NULL, n + 1, 1);
    for (size_t i = 0; i < n; i++)
        text[i] = bytes[i] ? (char)bytes[i] : '\n';
    return text;
}

static char *written(const struct list *l)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (int i = 0; i < l->n; i++)
        fprintf(f, "%s\n", l->name[i]);
    fclose(f);
    char *copy = mem_string(NULL, text);
    free(text);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct list first, again;
    struct error e = {0};
    int(*map)[2], pairs;
    char *text = text_of(bytes, n);
    if (label_map_parse(&map, &pairs, text, &e) == 0) {
        for (int i = 0; i < pairs; i++)
            must_hold(map[i][0] >= 0 && map[i][0] <= 65535 && map[i][1] >= 0 && map[i][1] <= 65535);
        mem_free(map);
    }
    if (list_parse(&first, text, 0, &e) < 0) {
        must_hold(e.code == ERR_DATA && *e.id);
        return 0;
    }
    for (int i = 0; i < first.n; i++)
        must_hold(first.name[i][0] && first.name[i][0] != '/' && strcmp(first.name[i], "..") != 0);
    must_hold(list_parse(&again, written(&first), 0, &e) == 0);
    must_hold(again.n == first.n);
    for (int i = 0; i < first.n; i++)
        must_hold(strcmp(first.name[i], again.name[i]) == 0);
    list_free(&first);
    list_free(&again);
    return 0;
}
