/* faults_safetensors.c - S01 to S11: model files. A run folder is sound but for its model, and
 * `falx predict` must say so. Headers are put together here, byte by byte; the models of S09 and
 * S10 come from the library and are damaged before they are written, so that their checksums hold.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "faults.h"
#include "net/model_file.h"
#include "predict/run_folder.h"

#define MODEL "run/model.safetensors"

static const struct net_definition small = {
    .define = vnet_define, .channels = 1, .classes = 2, .filters = 1, .dropout = NET_DROPOUT_NONE};

static void put_run(void)
{
    struct run_facts facts = {.channels = 1, .classes = 2, .patch = {16, 16, 16}};
    struct js_out o = {0};
    struct error e;
    char *text = NULL;
    static struct nifti1 scan;
    snprintf(facts.method, sizeof facts.method, "supervised");
    expect(recipe_named(&facts.recipe, "none", 1, NAN_REFUSE, &e) == 0);
    js_out_open(&o, NULL, '{');
    run_facts_to_json(&o, &facts);
    js_out_close(&o, '}');
    expect(js_out_take(&text, &o, &e) == 0);
    put_folder("run");
    put_text("run/run.json", text);
    mem_free(text);
    nifti_good(&scan);
    nifti_put("scan.nii", &scan);
}

static void predict(void)
{
    run("predict", "run", "-i", "scan.nii", "-o", "mask.nii", NULL);
}

/* A length (that of the header if 0), a header and so many bytes of data. */
static void put_model(uint64_t length, const char *header, size_t data)
{
    static unsigned char bytes[1 << 16];
    uint64_t n = strlen(header);
    length = length ? length : n;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, n);
    put_run();
    put_file(MODEL, bytes, 8 + n + data);
}

static void refused(const char *header, size_t data, const char *reason)
{
    put_model(0, header, data);
    predict();
    expect_refusal(3, MODEL, reason);
}

static void s01(void)
{
    static const struct {
        uint64_t length;
        const char *reason;
    } lies[] = {
        {100000000000, "100000000000 bytes"},
        {3, "3 bytes"},
        {UINT64_MAX, "18446744073709551615 bytes"},
    };
    put_run();
    put_file(MODEL, "\1\2\3", 3);
    predict();
    expect_refusal(3, MODEL, "3 bytes");
    put_file(MODEL, "\0\0\0\0\0\0\0\0{}", 10);
    predict();
    expect_refusal(3, MODEL, "0 bytes");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_model(lies[i].length, "{}", 0);
        predict();
        expect_refusal(3, MODEL, lies[i].reason);
    }
    put_model(20000000, "{}", 0); /* within a file that could hold it: the limit of headers */
    expect(truncate(MODEL, 3000000000) == 0);
    predict();
    expect_refusal(3, MODEL, "4194304");
}

static void s02(void)
{
    static char deep[10001];
    memset(deep, '[', 10000);
    memcpy(deep, "{\"a\":", 5);
    refused(" {}", 0, "'{'");
    refused("[1]", 0, "'{'");
    refused("{\"a\":}", 0, "JSON");
    refused("{\"\xFF\":1}", 0, "JSON");
    refused("{\"a\":NaN}", 0, "JSON");
    refused("{\"a\":-Infinity}", 0, "JSON");
    refused("{\"a\":1e999}", 0, "JSON");
    refused(deep, 0, "3");
}

static void s03(void)
{
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "key");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "key");
    refused("{\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"e\\u0301\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "ASCII");
}

static void s04(void)
{
    refused("{\"__metadata__\":{\"a\":1}}", 0, "string");
    refused("{\"__metadata__\":{\"a\":[]}}", 0, "string");
    refused("{\"__metadata__\":\"a\"}", 0, "object");
    enum { BIG = 2 << 20 };
    char *big = malloc(8 + BIG);
    uint64_t n = BIG;
    memset(big, 'x', 8 + BIG);
    memcpy(big, &n, 8);
    memcpy(big + 8, "{\"__metadata__\":{\"a\":\"", 22);
    memcpy(big + 8 + BIG - 3, "\"}}", 3);
    put_file(MODEL, big, 8 + BIG);
    predict();
    expect_refusal(3, MODEL, "names");
    n = 1 << 30; /* a gigabyte is refused by its length alone */
    memcpy(big, &n, 8);
    put_file(MODEL, big, 100);
    expect(truncate(MODEL, 8 + (1 << 30)) == 0);
    predict();
    expect(last_exit() == 3);
    expect_fact("1073741824 bytes");
    free(big);
}

static void shaped(const char *shape, const char *reason)
{
    char header[200];
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]}}", shape);
    refused(header, 4, reason);
}

static void s05(void)
{
    shaped("[4294967296,4294967296]", "overflows");
    shaped("[4611686018427387905,4]", "overflows");
    shaped("[-1]", "dimension -1");
    shaped("[0.5]", "integer");
    shaped("[1e0]", "integer");
    shaped("[18446744073709551617]", "integer");
    put_model(0, "{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],\"data_offsets\":[0,4]}}", 4);
    predict(); /* not rounded to a double: the last digit is told, as a range that does not fit */
    expect(last_exit() == 3);
    expect_fact("9007199254740993");
}

static void spanned(const char *a, const char *b, size_t data, const char *reason)
{
    char header[300];
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":%s},"
             "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":%s}}",
             a, b);
    refused(header, data, reason);
}

static void s06(void)
{
    spanned("[2,0]", "[2,4]", 4, "2 to 0");
    spanned("[0,2]", "[1,3]", 4, "byte 1");
    spanned("[0,2]", "[3,5]", 5, "byte 3");
    spanned("[0,2]", "[2,4]", 3, "2 to 4");
    spanned("[0,2]", "[2,4]", 6, "2 bytes");
}

static void s07(void)
{
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
            1, "");
}

static void s08(void)
{
    refused("{\"a\":{\"dtype\":\"X7\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "type X7");
    refused("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "type F8_E4M3");
    refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "type F4");
}

/* A sound small model, changed by `damage`, as run/model.safetensors. */
static void put_damaged(void (*damage)(struct st_file *f, float *values, const struct params *p))
{
    struct device *dev = NULL;
    struct params *p = NULL;
    struct st_file f = {0};
    struct model_copy keep = {0};
    struct error e;
    put_run();
    expect(device_open(&dev, &(struct device_options){.name = "cpu", .threads = 1}, &e) == 0);
    expect(params_new(&p, dev, &small, PARAMS_NO_GRAD, &e) == 0);
    params_init(p, 1, 1);
    expect(model_to_tensors(&f, &keep, p, "", &e) == 0);
    damage(&f, keep.values, p);
    expect(st_write(MODEL, &f, &e) == 0);
    st_free(&f);
    model_copy_free(&keep);
    params_free(p);
    device_close(dev);
}

static struct st_tensor *tensor(struct st_file *f, const char *name)
{
    return (struct st_tensor *)(uintptr_t)st_find(f, name);
}

static void put_nan(struct st_file *f, float *values, const struct params *p)
{
    (void)f;
    values[params_find(p, "block_two.conv.3.weight")->offset + 5] = NAN;
}

static void put_inf(struct st_file *f, float *values, const struct params *p)
{
    (void)f;
    values[params_find(p, "block_one.conv.1.running_mean")->offset] = -INFINITY;
}

static void s09(void)
{
    put_damaged(put_nan);
    predict();
    expect_refusal(3, MODEL, "block_two.conv.3.weight[5]");
    put_damaged(put_inf);
    predict();
    expect_refusal(3, MODEL, "block_one.conv.1.running_mean[0]");
}

static void drop_four(struct st_file *f, float *values, const struct params *p)
{
    (void)values, (void)p;
    f->n_tensors -= 4;
}

static void rename_one(struct st_file *f, float *values, const struct params *p)
{
    (void)values, (void)p;
    tensor(f, "block_nine.conv.0.bias")->name = (char *)(uintptr_t) "stray";
}

static void reshape_one(struct st_file *f, float *values, const struct params *p)
{
    (void)values, (void)p;
    struct st_tensor *t = tensor(f, "block_four.conv.0.weight");
    t->dims[0] = 4;
    t->dims[1] = 16;
}

static void s10(void)
{
    put_damaged(drop_four);
    predict();
    expect_refusal(9, MODEL, "4 tensors");
    expect_fact(", ...");
    put_damaged(rename_one);
    predict();
    expect_refusal(9, MODEL, "block_nine.conv.0.bias");
    expect_fact("stray");
    put_damaged(reshape_one);
    predict();
    expect_refusal(9, MODEL, "block_four.conv.0.weight");
    expect_fact("4x16x3x3x3");
    expect_fact("8x8x3x3x3");
    put_model(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    predict();
    expect_refusal(9, MODEL, "V-Net");
}

static void s11(void)
{
    put_run();
    put_file(MODEL, "PK\x03\x04\0\0\x08\x08\0\0archive/data.pkl", 26);
    predict();
    expect_refusal(3, MODEL, "PyTorch");
    put_file(MODEL,
             "\x80\x02\x8a\nl\xfc\x9c"
             "F\xf9 j\xa8P\x19.",
             16);
    predict();
    expect_refusal(3, MODEL, "code");
    struct st_file f; /* and by name, whatever the content */
    struct error e;
    static const char *const names[] = {"m.pt", "m.pth", "m.ckpt", "m.pkl"};
    for (int i = 0; i < 4; i++) {
        put_file(names[i], "\2\0\0\0\0\0\0\0{}", 10);
        expect(st_read(&f, names[i], NULL, &e) < 0 && strcmp(e.id, "S11") == 0);
    }
}

const struct fault faults_safetensors[] = {
    {"S01", "length of the header", s01},
    {"S02", "header is not JSON", s02},
    {"S03", "one name twice", s03},
    {"S04", "metadata", s04},
    {"S05", "shapes that are no sizes", s05},
    {"S06", "offsets", s06},
    {"S07", "tensor without elements", s07},
    {"S08", "unknown types", s08},
    {"S09", "weights not finite", s09},
    {"S10", "another network", s10},
    {"S11", "pickle", s11},
    {NULL, NULL, NULL},
};
