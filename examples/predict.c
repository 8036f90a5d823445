/* predict.c - a trained run inside another program: what is in the scan, and how sure is the network?
 *
 *     cc predict.c $(pkg-config --cflags --libs falx) -o predict
 *     ./predict RUN SCAN.nii.gz MASK.nii.gz
 */
#include <falx.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct falx_error e;
    struct falx_run *run;
    struct falx_info info;
    struct falx_curve loss;
    if (argc != 4) {
        fprintf(stderr, "usage: predict RUN SCAN MASK\n");
        return 2;
    }
    if (falx_open(&run, argv[1], NULL, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return e.code;
    }
    falx_info(&info, run);
    printf("falx %s: %s, %d channels, %d classes, patch %d x %d x %d\n", falx_version(), info.method,
           info.channels, info.classes, info.patch[0], info.patch[1], info.patch[2]);
    if (falx_metric(&loss, run, "loss", &e) == 0 && loss.n > 0)
        printf("loss %.4f after %d steps\n", loss.value[loss.n - 1], loss.n);
    falx_curve_free(&loss);

    int code = 0;
    if (falx_predict_file(run, argv[2], argv[3], &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        code = e.code;
    } else {
        printf("%s written\n", argv[3]);
    }
    falx_close(run);
    return code;
}
