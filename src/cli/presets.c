/* presets.c - named settings for training, written as config files: what a preset says, a file or a flag
 * can still change.
 *
 * paper-*     the released code of AUA with the constants of the paper for each data set; only the features
 *             of the contrast are each voxel's own (bcl-layout = official brings the scrambled ones back)
 * paper-text  every switch as the paper's text has it
 * auto        our best recipe: copy-paste between labelled and unlabelled scans under a mean teacher; what
 *             each choice is worth stands in docs/results/
 * la          our best recipe for the Left Atrium: AUA on patches that see most of a scan, mirrored along all
 *             axes, a schedule of twice 8,000 steps, one component, statistics of the scan
 */
#include <string.h>

#include "cli/config.h"

#define RELEASED                                                                                             \
    "method = aua\nsteps = 6000\nbatch = 4\nlabeled-batch = 2\ndropout = both\nnb-rule = official\n"         \
    "pcl-ignore-bg = true\nproto-ckpt = middle\nproto-update = true\nconsistency = 0.15\n"                   \
    "lambda-r = 0.1\nbcl-cap = 9000\nssn-rank = 8\nmc-samples = 6\n"

static const struct {
    const char *name, *text;
} presets[] = {
    {"paper-la", RELEASED "patch = 112,112,80\naugment = crop\nlambda-c = 0.09\ncov-mask = field\n"
                          "recipe = paper-la\nwindow-mode = constant\nstride = 18,18,4\n"},
    {"paper-pancreas20", RELEASED "patch = 96\naugment = crop\nlambda-c = 0.09\ncov-mask = inside\n"
                                  "recipe = paper-pancreas\nwindow-mode = constant\nstride = 16\n"},
    {"paper-pancreas5", RELEASED "patch = 96\naugment = crop\nlambda-c = 0.01\ncov-mask = inside\n"
                                 "recipe = paper-pancreas\nwindow-mode = constant\nstride = 16\n"},
    {"paper-colon5", RELEASED "patch = 96\naugment = paper\nlambda-c = 0.03\ncov-mask = inside\n"
                              "recipe = paper-colon\nwindow-mode = constant\nstride = 16\n"},
    {"paper-text", "method = aua\nsteps = 6000\ndropout = none\nged-metric = joint\nnb-rule = bg-ring\n"
                   "head-norm = true\npcl-cov = full\nbcl-reduce = sum\nrampup = continuous\n"
                   "sup-dice = false\nproto-ckpt = last\nproto-update = false\ncov-mask = none\n"},
    {"auto", "method = copy-paste\nsteps = 3200\nbatch = 4\nschedule = poly\n"
             "augment = mild\ndropout = bottleneck\noptimizer = adam\nlr = 0.001\ndice-share = 0.8\n"
             "pseudo-threshold = 0.8\npaste-weight = 1\ntta = true\n"},
    {"la", "method = aua\nsteps = 8000\nbatch = 4\nschedule = poly\naugment = mirror\n"
           "dropout = bottleneck\npatch = 160,128,80\nrecipe = la\nlargest = true\n"
           "adapt = true\n"},
};

const char *preset_text(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return presets[i].text;
    return NULL;
}
