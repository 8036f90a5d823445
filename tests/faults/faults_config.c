/* faults_config.c - C01 to C06: command line and config files, as a user meets them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

/* The same fault in a config file and on the command line. */
static void refuse_both(const char *option, const char *value, const char *reason)
{
    char line[200], where[200];
    snprintf(line, sizeof line, "# a comment\n%s = %s\n", option + 2, value);
    snprintf(where, sizeof where, "run.cfg:2:%zu: ", strlen(option + 2) + 4);
    put_text("run.cfg", line);
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, where, reason);
    snprintf(line, sizeof line, "%s=%s", option, value);
    snprintf(where, sizeof where, "%s: ", option);
    run("check", "set", line, NULL);
    expect_refusal(2, where, reason);
}

static void c01(void)
{
    put_text("run.cfg", "batch = 4\n  bacth = 3\n");
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg:2:3: ", "\"bacth\"");
    expect_fact("\"batch\"");
    put_text("run.cfg", "batch = 4\n\nbatch_size = 3\n");
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg:3:1: ", "batch");
    refuse_both("--batch", "many", "\"many\"");
    refuse_both("--strict", "3", "true|false");
    refuse_both("--nan", "drop", "refuse|zero|min");
    run("check", "set", "--bacth", "3", NULL);
    expect_refusal(2, "--bacth: ", "--batch");
    put_folder("set");
    run("check", "set", "--label-map", "2=1,2=0", NULL);
    expect_refusal(2, "--label-map", "2");
    run("chekc", "set", NULL);
    expect_refusal(2, "chekc: ", "check");
    run("check", NULL);
    expect_refusal(2, "check: ", "DATASET");
    run(NULL, NULL);
    expect_refusal(2, "", "--help");
}

static void c02(void)
{
    static const char *const whole[] = {"0x10", "12abc", "nan", "1e999", "1.5", "1,5", "99999999999999999999",
                                        "-1",   "1025"};
    static const char *const real[] = {"0x1p-1", "0.5abc", "nan", "inf", "1e999", "0,5"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        refuse_both("--threads", whole[i], "0..1024");
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        refuse_both("--ema-decay", real[i], real[i]);
    refuse_both("--labeled", "1.5", "1..");
    setenv("LC_ALL", "de_DE.UTF-8", 1); /* a decimal comma must not creep in */
    refuse_both("--ema-decay", "0,9", "0,9");
    run("check", "set", "--ema-decay", "0.25", "--print-config", NULL);
    expect_accepted(NULL);
    expect_output("ema-decay = 0.25\n");
    unsetenv("LC_ALL");
}

/* A data set of one labelled case of 4 x 3 x 2 voxels and one without a label. */
static void put_small_set(void)
{
    struct nifti1 f;
    put_folder("set/images");
    put_folder("set/labels");
    nifti_good(&f);
    nifti_put("set/images/a.nii", &f);
    set_i16(&f, 352, 77);
    nifti_put("set/images/b.nii", &f);
    nifti_good_label(&f);
    nifti_put("set/labels/a.nii", &f);
}

static void c03(void)
{
    refuse_both("--patch", "0", "16");
    refuse_both("--patch", "17", "16");
    refuse_both("--patch", "112,112,81", "16");
    refuse_both("--patch", "-16", "16");
    refuse_both("--batch", "0", "1..4096");
    refuse_both("--labeled-batch", "0", "1..4096");
    refuse_both("--labeled", "0", "1..");
    refuse_both("--ema-decay", "1", "\"1\"");
    refuse_both("--ema-decay", "-0.5", "-0.5");
    run("check", "set", "--batch", "4", "--labeled-batch", "5", NULL);
    expect_refusal(2, "--labeled-batch: ", "1..4");
    /* A patch larger than the volume is no fault: the volume is padded, and check says so. */
    put_small_set();
    put_text("empty.list", "\n");
    run("check", "set", "--labeled", "empty.list", NULL);
    expect_refusal(2, "empty.list", "");
    run("phantom", "out", "--labeled", "0", NULL);
    expect_refusal(2, "--labeled", "1..10000");
    run("phantom", "out", "--cases", "2", "--labeled", "3", NULL);
    expect_refusal(2, "--labeled", "1..2 (--cases)");
    run("check", "set", "--patch", "32", NULL);
    expect(last_exit() == 0);
    expect_fact("patch");
}

static void c04(void)
{
    struct nifti1 f;
    char longest[PATH_MAX + 1], line[PATH_MAX + 20];
    nifti_good(&f);
    /* Read under exactly these names, and nothing is run. */
    static const char *const names[] = {
        "~",       "$HOME.nii",    "$(touch ran).nii", "`touch ran`.nii", "a;touch ran;.nii",
        "b c.nii", "\xff\xfe.nii", "%s%n.nii"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        nifti_put(names[i], &f);
        run("info", names[i], NULL);
        expect_accepted(NULL);
        expect(access("ran", F_OK) < 0);
    }
    run("info", "~/none.nii", NULL);
    expect(last_exit() != 0);
    expect_fact("error: ~/none.nii: ");
    run("info", "no\xff\nfalx: error: forged.nii", NULL);
    expect(strstr(last_stderr(), "no\\xFF\\x0Afalx") && !strstr(last_stderr(), "\nfalx"));
    memset(longest, 'a', PATH_MAX);
    longest[PATH_MAX] = '\0';
    run("info", longest, NULL);
    expect_refusal(2, "aaaa", "4096");
    run("prepare", "set", "-o", longest, NULL);
    expect_refusal(2, "--output: ", "4096");
    run("info", "", NULL);
    expect_refusal(2, "argument: ", "1..4095");
    snprintf(line, sizeof line, "output = %s\n", longest);
    put_text("run.cfg", line);
    run("prepare", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg:1:10: ", "4096");
    put_file("run.cfg", "output = a\0b\n", 13);
    run("prepare", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg: ", "10");
}

static int file_contains(const char *path, const char *text)
{
    char bytes[1 << 14];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes - 1, f) : 0;
    if (f)
        fclose(f);
    bytes[n] = '\0';
    return strstr(bytes, text) != NULL;
}

/* Without a seed the default is 1337, so that results repeat; `random` draws one, says and keeps
 * it. */
static void c05(void)
{
    char first[64], *end;
    run("phantom", "out", "--print-config", NULL);
    expect_accepted(NULL);
    expect_output("\nseed = 1337\n");
    for (int i = 0; i < 2; i++) {
        run("phantom", "out", "--seed", "random", "--print-config", NULL);
        expect_accepted(NULL);
        const char *at = strstr(last_stdout(), "\nseed = ");
        expect(at != NULL);
        long long seed = at ? strtoll(at + 8, &end, 10) : -1;
        expect(at && seed >= 0 && *end == '\n');
        if (i == 0)
            snprintf(first, sizeof first, "\nseed = %lld\n", seed);
        else
            expect(strstr(last_stdout(), first) == NULL); /* equal once in 2^32 */
    }
    run("phantom", "out", "--seed", "random", "--cases", "1", "--test", "0", "--size", "16", NULL);
    expect(last_exit() == 0);
    const char *note = strstr(last_stderr(), "falx: note: seed ");
    expect(note && strstr(note, " drawn\n"));
    snprintf(first, sizeof first, "\"seed\": %lld", note ? strtoll(note + 17, NULL, 10) : -1);
    expect(file_contains("out/phantom.json", first));
    run("phantom", "other", "--seed", "soon", NULL);
    expect(last_exit() == 2);
    expect_fact("\"soon\"");
}

static void c06(void)
{
    put_text("run.cfg", "\xEF\xBB\xBF# dos\r\nbatch = 6\r\n\r\nmember = \"x y\"\r\n");
    run("check", "set", "--config", "run.cfg", "--print-config", NULL);
    expect_accepted(NULL);
    expect_output("batch = 6\n");
    expect_output("member = x y\n");
    put_text("run.cfg", "include run.cfg\n");
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg:1:1: ", "include");
    put_text("run.cfg", "config = run.cfg\n");
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg:1:1: ", "config");
    put_text("run.cfg", "");
    expect(truncate("run.cfg", 1 << 30) == 0);
    run("check", "set", "--config", "run.cfg", NULL);
    expect_refusal(2, "run.cfg: ", "1073741824 bytes");
}

const struct fault faults_config[] = {
    {"C01", "unknown or duplicate key, wrong type", c01},
    {"C02", "numbers: range, NaN, hex, trailing text, comma", c02},
    {"C03", "patch, batch, labelled count, EMA decay", c03},
    {"C04", "paths are literal, never through a shell", c04},
    {"C05", "seed: 1337 unless chosen or drawn", c05},
    {"C06", "BOM and CRLF; huge files and includes refused", c06},
    {NULL, NULL, NULL},
};
