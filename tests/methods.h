/* methods.h - what the tests of whole trainings share: one thread of float32, and a run folder. */
#ifndef FALX_METHODS_TEST_H
#define FALX_METHODS_TEST_H

#include "test.h"
#include "train/train.h"

static struct device *dev;

static int open_device(void **state)
{
    struct device_options o = {.name = "cpu", .precision = PRECISION_F32, .threads = 1};
    return test_folder_make(state) < 0 ? -1 : device_open(&dev, &o, NULL);
}

static int close_device(void **state)
{
    device_close(dev);
    return test_folder_remove(state);
}

static void fresh_run(void)
{
    io_remove_tree("run");
    assert_int_equal(io->mkdir("run", 0777), 0);
}

#endif
