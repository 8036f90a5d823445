/* verb_doctor.c - `falx doctor`: what this machine has and what falx will use.
 *
 * The facts are gathered into one JSON text; --json prints it, the plain form reads it back and walks it.
 * So the two can never tell different stories. Nothing here changes the machine except a folder made in
 * the temporary place and removed again.
 */
#include <fcntl.h>
#include <limits.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "base/child.h"
#include "base/io.h"
#include "base/json.h"
#include "base/pool.h"
#include "cli/config.h"
#include "device/device.h"
#include "net/selftest.h"

/* The first bytes of a file of /proc or /sys, whose length is not known beforehand; "" if it cannot
 * be read. */
static void read_head(char *out, size_t cap, const char *path)
{
    uint64_t bytes;
    int fd;
    out[0] = '\0';
    if (io_open_regular(&fd, &bytes, path, NULL) < 0)
        return;
    ssize_t n = io_read_full(fd, out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    io->close(fd);
}

/* "key<blanks>: value" of the first line that starts with key, or "". */
static void field(char *out, size_t cap, const char *text, const char *key)
{
    out[0] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        const char *colon = strchr(line, ':');
        if (!text_starts_with(line, key) || !colon)
            continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        snprintf(out, cap, "%.*s", (int)strcspn(value, "\n"), value);
        return;
    }
}

static int has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return 1;
    return 0;
}

static void cpu_facts(struct js_out *o)
{
    static char text[16384]; /* the first processor of /proc/cpuinfo */
    static char flags[8192];
    static const char *const sets[] = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"};
    char model[128];
    read_head(text, sizeof text, "/proc/cpuinfo");
    field(model, sizeof model, text, "model name");
    field(flags, sizeof flags, text, "flags");
    js_out_text(o, "model", *model ? model : "unknown");
    js_out_int(o, "cores_usable", pool_usable_cores());
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        js_out_bool(o, sets[i], has_word(flags, sets[i]));
}

/* The least of the machine's memory and the limits of control group and process. */
void machine_memory(int64_t *total_bytes, int64_t *available_bytes)
{
    char text[4096], value[64];
    int64_t page = sysconf(_SC_PAGESIZE), total = sysconf(_SC_PHYS_PAGES) * page, limit;
    int64_t free_kib = 0;
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < (rlim_t)total) /* `ulimit -v` */
        total = (int64_t)space.rlim_cur;
    read_head(text, sizeof text, "/sys/fs/cgroup/memory.max");
    text[strcspn(text, "\n")] = '\0';
    if (parse_int(&limit, text) == 0 && limit < total)
        total = limit;
    read_head(text, sizeof text, "/proc/meminfo");
    field(value, sizeof value, text, "MemAvailable");
    value[strcspn(value, " ")] = '\0';
    if (parse_int(&free_kib, value) < 0 || free_kib > total / 1024)
        free_kib = total / 1024;
    *total_bytes = total;
    *available_bytes = free_kib * 1024;
}

static void memory_facts(struct js_out *o)
{
    int64_t total, available;
    machine_memory(&total, &available);
    js_out_int(o, "total_bytes", total);
    js_out_int(o, "available_bytes", available);
}

/* A program of that name in PATH, as execvp would find it (mem_free), or NULL. */
static char *find_in_path(const char *name)
{
    const char *at = getenv("PATH");
    while (at && *at) {
        int n = (int)strcspn(at, ":");
        char *path = mem_format(NULL, "%.*s/%s", n, at, name);
        if (path && access(path, X_OK) == 0 && !io_is_folder(path))
            return path;
        mem_free(path);
        at += n + (at[n] == ':');
    }
    return NULL;
}

static void helper_facts(struct js_out *o)
{
    static const char *const ours[] = {"falx-limit", "falx-hdf5"};
    char *dicom = NULL;
    for (int i = 0; i < 2; i++) {
        char *path = NULL;
        js_out_text(o, ours[i], child_find_helper(&path, ours[i], NULL) == 0 ? path : NULL);
        mem_free(path);
    }
    if (child_find_helper(&dicom, "dcm2niix", NULL) < 0) /* as dicom.c does */
        dicom = find_in_path("dcm2niix");
    js_out_text(o, "dcm2niix", dicom);
    mem_free(dicom);
}

static void temporary_facts(struct js_out *o)
{
    char *made = NULL;
    struct error e = {.code = ERR_NONE};
    const char *wanted = getenv("TMPDIR");
    int works = io_temp_folder(&made, &e) == 0;
    if (works)
        io_remove_tree(made);
    mem_free(made);
    js_out_text(o, "folder", wanted && *wanted ? wanted : "/tmp");
    js_out_bool(o, "writable", works);
    if (!works)
        js_out_text(o, "reason", e.text);
}

/* The device, to be closed, or why there is none, and NULL. */
static struct device *device_facts(struct js_out *o, const struct device_options *wanted, struct error *e)
{
    struct device *dev;
    int found = device_open(&dev, wanted, e) == 0;
    js_out_text(o, found ? "device" : "reason", found ? dev->describe : e->text);
    return found ? dev : NULL;
}

static void gpu_facts(struct js_out *o)
{
    struct error e = {0};
    device_close(device_facts(o, &(struct device_options){.name = "cuda", .threads = 1}, &e));
}

/* *e: what the self-test found wrong. */
static void used_facts(struct js_out *o, const struct config *c, struct error *e)
{
    struct device_options wanted = {
        .name = c->device, .precision = (enum precision)c->precision, .threads = (int)c->threads};
    struct selftest found;
    char text[96];
    js_out_int(o, "threads", c->threads ? c->threads : pool_usable_cores());
    struct device *dev = device_facts(o, &wanted, e);
    if (!c->selftest)
        e->code = ERR_NONE;
    else if (dev) {
        int passed = selftest_run(&found, dev, e) == 0;
        if (passed)
            snprintf(text, sizeof text, "passed: off by %.1e, gradients by %.1e (mean square)",
                     found.values.mean_square, found.gradients.mean_square);
        js_out_text(o, "selftest", passed ? text : "failed");
    }
    device_close(dev);
}

static void library_facts(struct js_out *o)
{
    js_out_text(o, "zlib", zlibVersion());
    js_out_text(o, "libpng", png_get_libpng_ver(NULL));
    js_out_text(o, "jansson", js_library_version());
}

static void all_facts(struct js_out *o, const struct config *c, struct error *e)
{
    static const struct {
        const char *name;
        void (*facts)(struct js_out *o);
    } groups[] = {
        {"cpu", cpu_facts},        {"memory", memory_facts},       {"libraries", library_facts},
        {"helpers", helper_facts}, {"temporary", temporary_facts}, {"gpu", gpu_facts},
    };
    struct limit l;
    js_out_open(o, NULL, '{');
    js_out_text(o, "falx", FALX_VERSION);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        js_out_open(o, groups[i].name, '{');
        groups[i].facts(o);
        js_out_close(o, '}');
    }
    js_out_open(o, "limits", '{');
    for (int i = 0; limit_at(&l, i, c); i++)
        js_out_int(o, l.name, l.value);
    js_out_close(o, '}');
    js_out_open(o, "uses", '{');
    used_facts(o, c, e);
    js_out_close(o, '}');
    js_out_close(o, '}');
}

static void print_fact(const char *key, const struct js *value)
{
    int64_t number;
    int yes, is_bytes = text_ends_with(key, "_bytes"), length = (int)strlen(key) - (is_bytes ? 6 : 0);
    printf("%-17.*s ", length, key);
    if (js_text(value))
        printf("%s\n", js_text(value));
    else if (js_is_bool(&yes, value))
        printf("%s\n", yes ? "yes" : "no");
    else if (js_int(&number, value) < 0)
        printf("not found\n");
    else if (is_bytes)
        printf("%.1f GiB\n", (double)number / (1 << 30));
    else
        printf("%lld\n", (long long)number);
}

static void print_facts(const struct js *facts)
{
    const char *section, *key;
    const struct js *group, *value;
    for (void *at = NULL; js_next(&at, &section, &group, facts);) {
        if (js_text(group))
            printf("%-10s %s\n", section, js_text(group));
        const char *title = section;
        for (void *in = NULL; js_next(&in, &key, &value, group); title = "") {
            printf("%-10s ", title);
            print_fact(key, value);
        }
    }
}

static int print_all(struct js_out *o, struct error *e)
{
    struct js *facts;
    char *text;
    if (js_out_take(&text, o, e) < 0)
        return -1;
    int result = js_parse(&facts, text, strlen(text), e);
    mem_free(text);
    if (result < 0)
        return -1;
    print_facts(facts);
    js_free(facts);
    return 0;
}

int verb_doctor(struct config *c)
{
    struct js_out o = {0};
    struct error e = {.code = ERR_NONE}, wrong = e;
    all_facts(&o, c, &wrong);
    int status = c->json ? console_json(&o) : print_all(&o, &e) < 0 ? complain(&e) : 0;
    return status || !wrong.code ? status : complain(&wrong);
}
