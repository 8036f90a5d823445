/* json.c - see json.h. The only file that knows jansson.
 *
 * jansson limits nesting only at a depth that costs it much stack, so a scan over the text comes first:
 * it counts brackets outside strings and is exact for text that jansson would accept.
 */
#include "base/json.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/io.h"

static const json_t *value_of(const struct js *v)
{
    return (const json_t *)v;
}

static int check_depth(const char *text, size_t bytes, struct error *e)
{
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            if (++depth > JS_MAX_DEPTH)
                return fail(e, ERR_DATA, "C06", "JSON nested deeper than %d", JS_MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

int js_parse(struct js **out, const char *text, size_t bytes, struct error *e)
{
    *out = NULL;
    if (bytes > JS_MAX_BYTES)
        return fail(e, ERR_DATA, "C06", "%zu bytes of JSON, limit %d", bytes, JS_MAX_BYTES);
    if (check_depth(text, bytes, e) < 0)
        return -1;
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!root && !*why.text) /* jansson has no word for it */
        return fail(e, ERR_MEMORY, NULL, "no memory for %zu bytes of JSON", bytes);
    if (!root)
        return fail(e, ERR_DATA, "C06", "no valid JSON, line %d column %d: %.120s", why.line, why.column,
                    why.text);
    *out = (struct js *)root;
    return 0;
}

int js_read_file(struct js **out, const char *path, struct error *e)
{
    *out = NULL;
    char *text;
    size_t bytes;
    if (io_read_text(&text, &bytes, path, JS_MAX_BYTES, e) < 0)
        return -1;
    int result = js_parse(out, text, bytes, e);
    mem_free(text);
    return result < 0 ? fail_in(e, path) : 0;
}

void js_free(struct js *document)
{
    json_decref((json_t *)document);
}

const struct js *js_get(const struct js *object, const char *key)
{
    return (const struct js *)json_object_get(value_of(object), key);
}

int js_is_object(const struct js *v)
{
    return json_is_object(value_of(v)) ? 1 : 0;
}

int js_is_array(const struct js *v)
{
    return json_is_array(value_of(v)) ? 1 : 0;
}

int js_is_bool(int *out, const struct js *v)
{
    if (!json_is_boolean(value_of(v)))
        return 0;
    *out = json_is_true(value_of(v));
    return 1;
}

int js_count(const struct js *v)
{
    size_t n = js_is_array(v) ? json_array_size(value_of(v)) : json_object_size(value_of(v));
    return n > INT_MAX ? INT_MAX : (int)n;
}

const struct js *js_at(const struct js *array, int i)
{
    return i < 0 ? NULL : (const struct js *)json_array_get(value_of(array), (size_t)i);
}

const char *js_text(const struct js *v)
{
    return json_string_value(value_of(v));
}

int js_int(int64_t *out, const struct js *v)
{
    if (!json_is_integer(value_of(v)))
        return -1;
    *out = json_integer_value(value_of(v));
    return 0;
}

int js_real(double *out, const struct js *v)
{
    if (!json_is_number(value_of(v)))
        return -1;
    *out = json_number_value(value_of(v));
    return 0;
}

double js_number(const struct js *v)
{
    double x;
    return js_real(&x, v) < 0 ? NAN : x;
}

int js_next(void **place, const char **key, const struct js **value, const struct js *object)
{
    if (!js_is_object(object))
        return 0;
    json_t *o = (json_t *)(uintptr_t)value_of(object); /* jansson's iterators want no const */
    *place = *place ? json_object_iter_next(o, *place) : json_object_iter(o);
    if (!*place)
        return 0;
    *key = json_object_iter_key(*place);
    *value = (const struct js *)json_object_iter_value(*place);
    return 1;
}

/* text with every byte that is not UTF-8 made readable; a string value of jansson, or NULL. */
static json_t *escaped_string(const char *text, struct error *e)
{
    size_t cap, n = strlen(text);
    if (size_mul(&cap, n, 4) < 0 || size_add(&cap, cap, 1) < 0) /* \xNN: 4 bytes for one */
        return NULL;
    char *plain = mem_alloc(e, cap, 1);
    json_t *string = plain ? json_string(text_escape(plain, cap, text)) : NULL;
    mem_free(plain);
    return string;
}

char *js_quote(const char *text, struct error *e)
{
    json_t *string = json_string(text); /* NULL if it is not UTF-8 */
    if (!string)
        string = escaped_string(text, e);
    size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII;
    size_t n = string ? json_dumpb(string, NULL, 0, flags) : 0; /* 0 without memory: there are two quotes */
    char *quoted = n ? mem_alloc(e, n + 1, 1) : NULL;
    if (!quoted || json_dumpb(string, quoted, n, flags) != n) {
        fail(e, ERR_MEMORY, NULL, "no memory for a text of %zu bytes", strlen(text));
        mem_free(quoted);
        quoted = NULL;
    }
    json_decref(string);
    return quoted;
}

const char *js_library_version(void)
{
    return jansson_version_str();
}
