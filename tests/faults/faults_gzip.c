/* faults_gzip.c - Z01 to Z12: compression and transport. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "faults.h"

static struct nifti1 f;

/* gzip bytes of n bytes in a static buffer. */
static unsigned char packed[1 << 20];

static size_t pack(const void *bytes, size_t n)
{
    z_stream z = {0};
    deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = packed;
    z.avail_out = sizeof packed;
    deflate(&z, Z_FINISH);
    deflateEnd(&z);
    return sizeof packed - z.avail_out;
}

static void refused(size_t n, const char *reason)
{
    put_file("bad.nii.gz", packed, n);
    run("info", "bad.nii.gz", NULL);
    expect_refusal(3, "bad.nii.gz", reason);
}

static void z01(void)
{
    nifti_good(&f);
    nifti_put("plain.nii.gz", &f);
    run("info", "plain.nii.gz", NULL);
    expect_accepted(".gz");
    expect_output("4 x 3 x 2 voxels");
}

static void z02(void)
{
    nifti_good(&f);
    nifti_put_gz("packed.nii", &f);
    run("info", "packed.nii", NULL);
    expect_accepted("gzip");
    expect_output("4 x 3 x 2 voxels");
}

static void z03(void)
{
    nifti_good(&f);
    for (size_t i = 360; i < sizeof f.byte; i++)
        f.byte[i] = (unsigned char)(i * 2654435761u >> 13);
    set_i16(&f, 42, 100);
    set_i16(&f, 44, 100);
    set_i16(&f, 46, 3);
    f.n = 352 + 60000;
    size_t n = pack(f.byte, f.n);
    for (size_t i = 1; i < 20; i++) {
        put_file("bad.nii.gz", packed, 18 + (n - 18) * i / 20);
        run("info", "bad.nii.gz", NULL);
        expect_refusal(3, "bad.nii.gz", "bytes");
    }
    for (size_t cut = 1; cut <= 8; cut++) /* inside the trailer */
        refused(n - cut, "bytes");
}

static void z04(void)
{
    nifti_good(&f);
    size_t n = pack(f.byte, f.n);
    packed[n - 8] ^= 1;
    refused(n, "data");
    packed[n - 8] ^= 1;
    packed[n - 1] ^= 1;
    refused(n, "length");
}

/* An honest header of 1 MB of voxels, followed by 10 GB of zeros as further members. */
static void z05(void)
{
    static unsigned char zeros[16 << 20];
    nifti_good(&f);
    set_i16(&f, 42, 1024);
    set_i16(&f, 44, 512);
    set_i16(&f, 46, 1);
    memset(f.byte + 352, 0, 48);
    FILE *out = fopen("bomb.nii.gz", "wb");
    expect(out != NULL);
    size_t n = pack(f.byte, 352);
    fwrite(packed, 1, n, out);
    n = pack(zeros, sizeof zeros);
    for (int i = 0; i < 640; i++)
        fwrite(packed, 1, n, out);
    fclose(out);
    run("info", "bomb.nii.gz", NULL);
    expect_warning("N12", "");
    run("info", "--strict", "bomb.nii.gz", NULL);
    expect(last_exit() == 3);
}

static void z06(void)
{
    nifti_good(&f);
    for (size_t i = 1; i <= 3; i++)
        set_i16(&f, 40 + 2 * i, 1000);
    refused(pack(f.byte, f.n), "bytes");
}

static void z07(void)
{
    nifti_good(&f);
    FILE *out = fopen("two.nii.gz", "wb");
    expect(out != NULL);
    fwrite(packed, 1, pack(f.byte, 200), out);
    fwrite(packed, 1, pack(f.byte + 200, f.n - 200), out);
    fclose(out);
    run("info", "two.nii.gz", NULL);
    expect_accepted(NULL);
    size_t n = pack(f.byte, f.n);
    memcpy(packed + n, "garbage", 7);
    put_file("tail.nii.gz", packed, n + 7);
    run("info", "tail.nii.gz", NULL);
    expect_accepted("gzip");
    n = pack("", 0);
    out = fopen("flood.nii.gz", "wb");
    expect(out != NULL);
    for (int i = 0; i < 1000000; i++)
        fwrite(packed, 1, n, out);
    fclose(out);
    run("info", "flood.nii.gz", NULL);
    expect_refusal(3, "flood.nii.gz", "10000");
}

static void z08(void)
{
    static unsigned char long_name[4 << 20];
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name, "\x1F\x8B\x08\x08\0\0\0\0\0\x03", 10); /* FNAME that never ends */
    put_file("bad.nii.gz", long_name, sizeof long_name);
    run("info", "bad.nii.gz", NULL);
    expect_refusal(3, "bad.nii.gz", "header");
    nifti_good(&f);
    size_t n = pack(f.byte, f.n);
    packed[3] = 0xE0;
    refused(n, "flags");
    packed[3] = 0;
    packed[2] = 7;
    refused(n, "method");
}

static void z09(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *name;
    } other[] = {
        {"BZh91AY&SY\0\0", 12, "bzip2"},
        {"\xFD"
         "7zXZ\0\0\0",
         8, "xz"},
        {"\x28\xB5\x2F\xFD\0\0\0\0", 8, "zstd"},
    };
    for (size_t i = 0; i < 3; i++) {
        put_file("bad.nii.gz", other[i].bytes, other[i].n);
        run("info", "bad.nii.gz", NULL);
        expect_refusal(3, "bad.nii.gz", other[i].name);
    }
}

/* Cuts the file a moment after the program has begun to read its gigabyte (of holes). */
static void shrink_while_reading(int wait_us)
{
    nifti_put("bad.nii", &f);
    expect(truncate("bad.nii", 352 + 2000000000) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        usleep((useconds_t)wait_us);
        _exit(truncate("bad.nii", 1 << 20) == 0 ? 0 : 1);
    }
    run("info", "bad.nii", NULL);
    waitpid(pid, NULL, 0);
}

static void z10(void)
{
    nifti_good(&f);
    for (size_t i = 1; i <= 3; i++)
        set_i16(&f, 40 + 2 * i, 1000);
    int wait_us = 20000, met = 0;
    for (int i = 0; i < 20 && !met; i++) { /* cut too early or too late: try another moment */
        shrink_while_reading(wait_us);
        met = strstr(last_stderr(), "[Z10]") != NULL;
        wait_us = last_exit() == 0 ? wait_us / 2 : wait_us + wait_us / 3;
    }
    expect(met);
    expect(last_exit() == 3);
    expect_fact("bad.nii: ");
}

static void z11(void)
{
    expect(mkfifo("fifo.nii", 0666) == 0);
    run("info", "fifo.nii", NULL);
    expect_refusal(3, "fifo.nii", "FIFO");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket.nii"};
    expect(bind(s, (struct sockaddr *)&at, sizeof at) == 0);
    run("info", "socket.nii", NULL);
    expect_refusal(3, "socket.nii", "");
    close(s);
    run("info", "/dev/zero", NULL);
    expect_refusal(3, "/dev/zero", "device");
    expect(symlink("nowhere", "dangling.nii") == 0);
    run("info", "dangling.nii", NULL);
    expect_refusal(3, "dangling.nii", "link");
    expect(symlink("loop.nii", "loop.nii") == 0);
    run("info", "loop.nii", NULL);
    expect_refusal(3, "loop.nii", "loop");
    put_folder("pair");
    nifti_good(&f);
    memcpy(f.byte + 344, "ni1", 4);
    put_file("pair/a.hdr", f.byte, 348);
    put_folder("pair/a.img");
    run("info", "pair/a.hdr", NULL);
    expect(last_exit() == 3);
    expect_fact("a.img: ");
    expect_fact("[N36]");
}

static void z12(void)
{
    run("info", "missing.nii", NULL);
    expect_refusal(4, "missing.nii", "");
    nifti_good(&f);
    nifti_put("secret.nii", &f);
    expect(chmod("secret.nii", 0) == 0);
    if (getenv("FALX_FAULTS_RELAXED") || (geteuid() == 0 && seteuid(65534) < 0))
        return; /* the leak checker cannot work as another user */
    run("info", "secret.nii", NULL);
    expect(seteuid(getuid()) == 0);
    if (last_exit() == 127) /* the program itself lies where only root may look */
        return;
    expect_refusal_slow(4, "secret.nii", "");
}

const struct fault faults_gzip[] = {
    {"Z01", "plain content named .gz", z01},
    {"Z02", "gzip content named .nii", z02},
    {"Z03", "truncated stream", z03},
    {"Z04", "checksum or length wrong", z04},
    {"Z05", "bomb with an honest header", z05},
    {"Z06", "bomb with a lying header", z06},
    {"Z07", "members, garbage, flood", z07},
    {"Z08", "gzip header", z08},
    {"Z09", "other compressors", z09},
    {"Z10", "file shrinks while read", z10},
    {"Z11", "not a regular file", z11},
    {"Z12", "missing, forbidden", z12},
    {NULL, NULL, NULL},
};
