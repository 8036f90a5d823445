/* verb_doctor.c - `falx doctor`: what this machine has and what falx will use.
 *
 * The facts are gathered into one JSON object; --json prints it, the plain form walks it. So the
 * two can never tell different stories. Nothing here changes the machine except a folder made in
 * the temporary place and removed again.
 */
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <png.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/child.h"
#include "base/io.h"
#include "cli/config.h"

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

static json_t *cpu_facts(void)
{
    static char text[16384]; /* the first processor of /proc/cpuinfo */
    static char flags[8192];
    char model[128], shown[256];
    read_head(text, sizeof text, "/proc/cpuinfo");
    field(model, sizeof model, text, "model name");
    field(flags, sizeof flags, text, "flags");
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return json_pack("{s:s, s:i, s:b, s:b, s:b}", "model",
                     *model ? text_escape(shown, sizeof shown, model) : "unknown", "cores_usable",
                     cores, "avx2", has_word(flags, "avx2"), "avx512f", has_word(flags, "avx512f"),
                     "amx_bf16", has_word(flags, "amx_bf16"));
}

/* The least of the machine's memory and the control group's limit. */
static json_t *memory_facts(void)
{
    char text[4096], value[64];
    int64_t page = sysconf(_SC_PAGESIZE), total = sysconf(_SC_PHYS_PAGES) * page, limit;
    int64_t free_kib = 0;
    read_head(text, sizeof text, "/sys/fs/cgroup/memory.max");
    text[strcspn(text, "\n")] = '\0';
    if (parse_int(&limit, text) == 0 && limit < total)
        total = limit;
    read_head(text, sizeof text, "/proc/meminfo");
    field(value, sizeof value, text, "MemAvailable");
    value[strcspn(value, " ")] = '\0';
    if (parse_int(&free_kib, value) < 0 || free_kib > total / 1024)
        free_kib = total / 1024;
    return json_pack("{s:I, s:I}", "total_bytes", (json_int_t)total, "available_bytes",
                     (json_int_t)free_kib * 1024);
}

static json_t *library_facts(void)
{
    return json_pack("{s:s, s:s, s:s}", "zlib", zlibVersion(), "libpng", png_get_libpng_ver(NULL),
                     "jansson", jansson_version_str());
}

/* The path as JSON text, or null. */
static json_t *path_fact(const char *path)
{
    char shown[2 * PATH_MAX];
    return path ? json_string(text_escape(shown, sizeof shown, path)) : json_null();
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

static json_t *helper_facts(void)
{
    char *hdf5 = NULL, *limit = NULL, *dicom = find_in_path("dcm2niix");
    if (child_find_helper(&hdf5, "falx-hdf5", NULL) < 0)
        hdf5 = NULL;
    if (child_find_helper(&limit, "falx-limit", NULL) < 0)
        limit = NULL;
    json_t *facts = json_pack("{s:o, s:o, s:o}", "falx-limit", path_fact(limit), "falx-hdf5",
                              path_fact(hdf5), "dcm2niix", path_fact(dicom));
    mem_free(hdf5);
    mem_free(limit);
    mem_free(dicom);
    return facts;
}

static json_t *temp_facts(void)
{
    char *made = NULL, *folder = NULL;
    struct error e = {.code = ERR_NONE};
    int works = io_temp_folder(&made, &e) == 0;
    const char *wanted = getenv("TMPDIR");
    if (works) {
        folder = path_folder(NULL, made);
        io_remove_tree(made);
        mem_free(made);
    }
    const char *shown = folder ? folder : wanted && *wanted ? wanted : "/tmp";
    json_t *facts = json_pack("{s:o, s:b, s:s*}", "folder", path_fact(shown), "writable", works,
                              "reason", works ? NULL : e.text);
    mem_free(folder);
    return facts;
}

static json_t *limit_facts(const struct config *c)
{
    json_t *facts = json_object();
    struct limit l;
    for (int i = 0; limit_at(&l, i, c); i++)
        json_object_set_new(facts, l.name, json_integer(l.value));
    return facts;
}

/* What follows from the facts for this run. */
static json_t *use_facts(const struct config *c, const json_t *cpu)
{
    json_int_t cores = json_integer_value(json_object_get(cpu, "cores_usable"));
    return json_pack("{s:I, s:s}", "threads", c->threads ? (json_int_t)c->threads : cores, "device",
                     "cpu");
}

static void print_fact(const char *key, const json_t *value)
{
    int is_bytes = text_ends_with(key, "_bytes"), length = (int)strlen(key) - (is_bytes ? 6 : 0);
    printf("%-17.*s ", length, key);
    if (is_bytes)
        printf("%.1f GiB\n", (double)json_integer_value(value) / (1 << 30));
    else if (json_is_integer(value))
        printf("%lld\n", (long long)json_integer_value(value));
    else if (json_is_string(value))
        printf("%s\n", json_string_value(value));
    else
        printf("%s\n", json_is_true(value) ? "yes" : json_is_null(value) ? "not found" : "no");
}

static void print_facts(json_t *facts)
{
    const char *section, *key;
    json_t *group, *value;
    json_object_foreach (facts, section, group) {
        if (json_is_string(group))
            printf("%-10s %s\n", section, json_string_value(group));
        const char *title = section;
        json_object_foreach (group, key, value) {
            printf("%-10s ", title);
            print_fact(key, value);
            title = "";
        }
    }
}

int verb_doctor(struct config *c)
{
    json_t *cpu = cpu_facts();
    json_t *facts = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "falx", FALX_VERSION,
                              "cpu", cpu, "memory", memory_facts(), "libraries", library_facts(),
                              "helpers", helper_facts(), "temporary", temp_facts(), "limits",
                              limit_facts(c), "uses", use_facts(c, cpu));
    if (!facts) {
        struct error e;
        fail(&e, ERR_MEMORY, NULL, "doctor: no memory");
        return complain(&e);
    }
    if (c->json) {
        json_dumpf(facts, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        print_facts(facts);
    }
    json_decref(facts);
    return 0;
}
