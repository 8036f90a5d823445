/* picture.c - pictures in memory and as PNG files; the only file that knows libpng. See picture.h.
 *
 * libpng reports trouble by a jump. The jump stays inside encode(): the callbacks raise it,
 * encode() catches it, and everything outside sees an ordinary -1.
 */
#include <png.h>
#include <setjmp.h>
#include <string.h>

#include "base/io.h"
#include "score/picture.h"

int picture_new(struct picture *out, int width, int height, struct error *e)
{
    CHECK(width > 0 && height > 0 && width <= 32768 && height <= 32768);
    out->width = width;
    out->height = height;
    out->rgb = mem_alloc(e, (size_t)width * (size_t)height, 3);
    return out->rgb ? 0 : -1;
}

void picture_free(struct picture *p)
{
    mem_free(p->rgb);
    memset(p, 0, sizeof *p);
}

struct sink {
    struct io_file *file;
    const char *path;
    struct error *e; /* filled by the first failure, with the path */
    int failed;
};

static void on_bytes(png_structp png, png_bytep bytes, size_t n)
{
    struct sink *s = png_get_io_ptr(png);
    if (io_append(s->file, bytes, n, s->e) < 0) {
        s->failed = 1;
        png_error(png, "write");
    }
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void on_error(png_structp png, png_const_charp text)
{
    struct sink *s = png_get_error_ptr(png);
    if (!s->failed) {
        fail(s->e, ERR_SYSTEM, NULL, "PNG: %s", text);
        fail_in(s->e, s->path);
    }
    s->failed = 1;
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static int encode(const struct picture *p, struct sink *s)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, s, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        fail(s->e, ERR_MEMORY, NULL, "no memory to write a PNG");
        return fail_in(s->e, s->path);
    }
    if (setjmp(png_jmpbuf(png)) == 0) {
        png_set_write_fn(png, s, on_bytes, on_flush);
        png_set_IHDR(png, info, (png_uint_32)p->width, (png_uint_32)p->height, 8, PNG_COLOR_TYPE_RGB,
                     PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (int y = 0; y < p->height; y++)
            png_write_row(png, p->rgb + (size_t)y * (size_t)p->width * 3);
        png_write_end(png, NULL);
    }
    png_destroy_write_struct(&png, &info);
    return s->failed ? -1 : 0;
}

int picture_write(const struct picture *p, const char *path, struct error *e)
{
    struct sink s = {.path = path, .e = e};
    if (io_create(&s.file, path, 0666, e) < 0)
        return -1;
    if (encode(p, &s) < 0) {
        io_abandon(s.file);
        return -1;
    }
    return io_commit(s.file, e);
}
