/* presets.c - named settings for training, as texts of config files; a file or a flag can still change them.
 *
 *     default  ->  published settings of the method  ->  protocol  ->  own  ->  config file  ->  command line
 *
 * published   1: the method has the settings of its authors (struct method), whichever method it is
 * protocol    what all methods share: data, patch, augmentation, windows; of our recipes the optimiser, too
 * own         constants of the preset's method; another method does not get them
 *
 * paper-*     the comparison of the AUA paper on a data set: docs/presets has a page of each. Only the
 *             features of the contrast are each voxel's own (bcl-layout = official: scrambled as released)
 * paper-text  AUA with every switch as the paper's text has it
 * published   nothing but the settings of the method's authors
 * auto        our recipe for few labels: copy-paste between labelled and unlabelled scans with an EMA teacher
 * la          our best recipe for the Left Atrium: AUA on patches that see most of a scan, mirrored along all
 *             axes, a schedule of twice 8,000 steps, one component, statistics of the scan
 */
#include <string.h>

#include "cli/config.h"

/* "Implementation Details" of the paper: windows of the patch's size, their plain mean; nothing after it. */
#define PAPER_TEST "window-mode = constant\ntta = false\nlargest = false\nadapt = false\n"
#define PAPER_LA PAPER_TEST "recipe = paper-la\npatch = 112,112,80\naugment = crop\nstride = 18,18,4\n"
#define PAPER_PANCREAS PAPER_TEST "recipe = paper-pancreas\npatch = 96\naugment = crop\nstride = 16\n"
#define PAPER_COLON PAPER_TEST "recipe = paper-colon\npatch = 96\naugment = paper\nstride = 16\n"

static const struct preset presets[] = {
    {"paper-la", 1, "aua", PAPER_LA, "lambda-c = 0.09\ncov-mask = field\n"},
    {"paper-pancreas20", 1, "aua", PAPER_PANCREAS, "lambda-c = 0.09\ncov-mask = inside\n"},
    {"paper-pancreas5", 1, "aua", PAPER_PANCREAS, "lambda-c = 0.01\ncov-mask = inside\n"},
    {"paper-colon5", 1, "aua", PAPER_COLON, "lambda-c = 0.03\ncov-mask = inside\n"},
    {"paper-text", 0, "aua", "",
     "steps = 6000\ndropout = none\nged-metric = joint\nnb-rule = bg-ring\n"
     "mc-reduce = sum\nged-reduce = sum\npcl-form = paper\n"
     "head-norm = true\npcl-cov = full\nbcl-reduce = sum\nrampup = continuous\n"
     "sup-dice = false\nproto-ckpt = last\nproto-update = false\ncov-mask = none\n"},
    {"published", 1, "aua", "", ""},
    {"auto", 0, "copy-paste",
     "steps = 3200\nbatch = 4\nschedule = poly\naugment = mild\ndropout = bottleneck\n"
     "optimizer = adam\nlr = 0.001\ndice-share = 0.8\ntta = true\n",
     "pseudo-threshold = 0.8\npaste-weight = 1\n"},
    {"la", 0, "aua",
     "steps = 8000\nbatch = 4\nschedule = poly\naugment = mirror\ndropout = bottleneck\n"
     "patch = 160,128,80\nrecipe = la\nlargest = true\nadapt = true\n",
     ""},
};

const struct preset *preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}
