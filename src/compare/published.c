/* published.c - the numbers of the paper's tables (arXiv 2111.10989), for comparison with ours.
 *
 * Dice and Jaccard in percent, ASD and 95HD in voxels, as printed there. The Pancreas rows with 50 unlabelled
 * scans were quoted by the paper from the literature, on an earlier version of the data; most rows of LA from
 * SimCVD's benchmark. `mc-net` of the paper is what we call mc-net-plus: its rows have three decoders.
 */
#include <string.h>

#include "compare/compare.h"

static const struct compare_published published[] = {
    {"pancreas20", "supervised", 12, 0, {70.63, 56.72, 6.29, 22.54}},
    {"pancreas20", "supervised", 62, 0, {81.78, 69.65, 1.34, 5.13}},
    {"pancreas20", "mt", 12, 50, {75.85, 61.98, 3.40, 12.59}},
    {"pancreas20", "dan", 12, 50, {76.74, 63.29, 2.97, 11.13}},
    {"pancreas20", "entropy", 12, 50, {75.31, 61.73, 3.88, 11.72}},
    {"pancreas20", "ua-mt", 12, 50, {77.26, 63.82, 3.06, 11.90}},
    {"pancreas20", "cct", 12, 50, {76.58, 62.76, 3.69, 12.92}},
    {"pancreas20", "sassnet", 12, 50, {77.66, 64.08, 3.05, 10.93}},
    {"pancreas20", "dtc", 12, 50, {78.27, 64.75, 2.25, 8.36}},
    {"pancreas20", "urpc", 12, 48, {78.83, 66.01, 1.96, 6.92}},
    {"pancreas20", "mc-net-plus", 12, 48, {79.27, 66.24, 1.90, 7.07}},
    {"pancreas20", "aua", 12, 48, {79.81, 66.82, 1.64, 5.90}},
    {"pancreas20", "aua:stages=1:lambda-c=0", 12, 48, {76.13, 62.19, 2.25, 9.35}},
    {"pancreas20", "aua:stages=1", 12, 48, {77.15, 63.34, 2.04, 7.00}},
    {"pancreas20", "aua:lambda-r=0", 12, 48, {79.08, 65.91, 1.91, 6.69}},
    {"pancreas20", "aua:lambda-c=0.03", 12, 48, {79.26, 66.03, 1.84, 6.45}},
    {"pancreas20", "aua:lambda-c=0.05", 12, 48, {79.61, 66.49, 2.03, 7.53}},
    {"pancreas20", "aua:lambda-c=0.07", 12, 48, {79.45, 66.31, 2.04, 6.44}},
    {"pancreas20", "aua:lambda-c=0.09", 12, 48, {79.81, 66.82, 1.64, 5.90}},
    {"pancreas20", "aua:unlabeled=0.25", 12, 12, {76.77, 62.95, 1.76, 8.47}},
    {"pancreas20", "aua:unlabeled=0.5", 12, 24, {78.63, 65.37, 1.81, 6.79}},

    {"pancreas5", "supervised", 3, 0, {30.74, 18.84, 6.97, 26.45}},
    {"pancreas5", "supervised", 60, 0, {81.46, 69.18, 1.31, 5.09}},
    {"pancreas5", "mt", 3, 57, {31.09, 18.77, 28.14, 59.22}},
    {"pancreas5", "dan", 3, 57, {46.37, 30.84, 16.87, 42.89}},
    {"pancreas5", "entropy", 3, 57, {50.71, 35.13, 16.14, 42.45}},
    {"pancreas5", "ua-mt", 3, 57, {34.46, 21.24, 25.73, 57.40}},
    {"pancreas5", "cct", 3, 57, {43.89, 28.72, 20.81, 52.58}},
    {"pancreas5", "dtc", 3, 57, {48.47, 32.71, 17.03, 42.61}},
    {"pancreas5", "sassnet", 3, 57, {51.96, 36.03, 16.08, 45.36}},
    {"pancreas5", "mc-net-plus", 3, 57, {50.26, 35.41, 11.27, 30.05}},
    {"pancreas5", "urpc", 3, 57, {55.00, 39.23, 6.11, 22.40}},
    {"pancreas5", "aua", 3, 57, {56.18, 40.05, 12.47, 34.85}},

    {"colon5", "supervised", 5, 0, {34.07, 23.09, 10.12, 26.52}},
    {"colon5", "supervised", 100, 0, {62.31, 49.47, 2.14, 13.49}},
    {"colon5", "mt", 5, 95, {38.64, 26.38, 14.41, 33.08}},
    {"colon5", "dan", 5, 95, {34.02, 24.14, 14.21, 32.42}},
    {"colon5", "entropy", 5, 95, {38.62, 26.78, 18.02, 39.01}},
    {"colon5", "ua-mt", 5, 95, {40.61, 28.01, 15.31, 34.92}},
    {"colon5", "cct", 5, 95, {43.74, 30.64, 11.23, 26.21}},
    {"colon5", "sassnet", 5, 95, {41.64, 30.07, 11.93, 28.96}},
    {"colon5", "dtc", 5, 95, {43.29, 29.84, 10.62, 26.22}},
    {"colon5", "mc-net-plus", 5, 95, {38.71, 26.90, 12.19, 28.52}},
    {"colon5", "urpc", 5, 95, {46.43, 33.01, 9.31, 24.57}},
    {"colon5", "aua", 5, 95, {49.00, 35.15, 9.04, 22.32}},
    {"colon5", "aua:stages=1:lambda-c=0", 5, 95, {42.74, 30.20, 15.00, 35.43}},
    {"colon5", "aua:stages=1", 5, 95, {43.70, 30.92, 14.74, 33.34}},
    {"colon5", "aua:lambda-r=0", 5, 95, {46.75, 33.62, 12.39, 28.49}},

    {"la20", "supervised", 16, 0, {86.03, 76.06, 3.51, 14.26}},
    {"la20", "supervised", 80, 0, {91.14, 83.82, 1.52, 5.75}},
    {"la20", "mt", 16, 64, {88.42, 79.45, 2.73, 13.07}},
    {"la20", "dan", 16, 64, {87.52, 78.29, 2.42, 9.01}},
    {"la20", "entropy", 16, 64, {88.45, 79.51, 3.72, 14.14}},
    {"la20", "ua-mt", 16, 64, {88.88, 80.21, 2.26, 7.32}},
    {"la20", "ict", 16, 64, {89.02, 80.34, 1.97, 10.38}},
    {"la20", "sassnet", 16, 64, {89.27, 80.82, 3.13, 8.83}},
    {"la20", "dtc", 16, 64, {89.42, 80.98, 2.10, 7.32}},
    {"la20", "chaitanya", 16, 64, {89.94, 81.82, 2.66, 7.23}},
    {"la20", "simcvd", 16, 64, {90.85, 83.80, 1.86, 6.03}},
    {"la20", "mc-net-plus", 16, 64, {91.07, 83.67, 1.67, 5.84}},
    {"la20", "aua", 16, 64, {91.08, 83.67, 1.80, 5.60}},
};

const struct compare_published *compare_published_find(const char *table, const char *method, int64_t labeled)
{
    for (size_t i = 0; table && method && i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].table, table) == 0 && strcmp(published[i].method, method) == 0 &&
            published[i].labeled == labeled)
            return &published[i];
    return NULL;
}
