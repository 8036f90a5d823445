/* memory.c - the one allocator, with checked sizes and a switch that lets tests fail any allocation. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static atomic_int_fast64_t n_allocations;
static atomic_int_fast64_t fail_at = -1; /* number of the allocation that fails; -1 = none */
static atomic_int fail_forever;

int size_mul(size_t *out, size_t a, size_t b)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return -1;
    *out = product;
    return 0;
}

int size_add(size_t *out, size_t a, size_t b)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return -1;
    *out = sum;
    return 0;
}

void mem_fail_at(int64_t n, int forever)
{
    atomic_store(&n_allocations, 0);
    atomic_store(&fail_forever, forever);
    atomic_store(&fail_at, n);
}

int64_t mem_count(void)
{
    return atomic_load(&n_allocations);
}

static int must_fail(void)
{
    int64_t n = atomic_fetch_add(&n_allocations, 1), at = atomic_load(&fail_at);
    return at >= 0 && (n == at || (n > at && atomic_load(&fail_forever)));
}

static void *refuse(struct error *e, size_t count, size_t each)
{
    fail(e, ERR_MEMORY, NULL, "out of memory: %zu x %zu bytes wanted", count, each);
    return NULL;
}

void *mem_alloc(struct error *e, size_t count, size_t each)
{
    size_t bytes;
    if (size_mul(&bytes, count, each) < 0 || bytes > PTRDIFF_MAX || must_fail())
        return refuse(e, count, each);
    void *p = calloc(bytes ? bytes : 1, 1);
    return p ? p : refuse(e, count, each);
}

void *mem_resize(struct error *e, void *old, size_t count, size_t each)
{
    size_t bytes;
    if (size_mul(&bytes, count, each) < 0 || bytes > PTRDIFF_MAX || must_fail())
        return refuse(e, count, each);
    void *p = realloc(old, bytes ? bytes : 1);
    return p ? p : refuse(e, count, each);
}

char *mem_string(struct error *e, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = mem_alloc(e, n, 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *mem_format(struct error *e, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = n < 0 ? refuse(e, 0, 1) : mem_alloc(e, (size_t)n + 1, 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

void mem_free(void *p)
{
    free(p);
}
