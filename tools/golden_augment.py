#!/usr/bin/env python3
"""Makes tests/golden/augment.h: RotFlip and the crops as numpy does them.

The case is an array of 7 x 5 x 3 voxels holding 1, 2, 3, ... in C order, so every voxel can be told
apart and padding is 0. Usage: python3 tools/golden_augment.py > tests/golden/augment.h
"""
import numpy as np

DIMS = (7, 5, 3)
CASE = np.arange(1, 1 + int(np.prod(DIMS)), dtype=np.uint16).reshape(DIMS)


def rotflip(x, turns, flip):
    if turns < 0:
        return x
    return np.flip(np.rot90(x, turns), axis=flip)


def pads(shape, out):
    if not any(n <= o for n, o in zip(shape, out)):
        return [0, 0, 0]
    return [max((o - n) // 2 + 3, 0) for n, o in zip(shape, out)]


def crop(x, out, start):
    p = pads(x.shape, out)
    x = np.pad(x, [(a, a) for a in p], mode="constant", constant_values=0)
    s = tuple(slice(a, a + o) for a, o in zip(start, out))
    assert all(a + o <= n for a, o, n in zip(start, out, x.shape))
    return x[s], p


def centre(shape, out):
    p = pads(shape, out)
    return [int(round((n + 2 * a - o) / 2.0)) for n, a, o in zip(shape, p, out)]


def numbers(values):
    return ", ".join(str(int(v)) for v in values)


def main():
    print("/* Made by tools/golden_augment.py with numpy %s: do not edit. */" % np.__version__)
    print("static const struct golden_patch {")
    print("    int turns, flip, out[3], start[3], pad[3];")
    print("    int value[200];")
    print("} golden_patches[] = {")
    rows = []
    for turns in range(4):
        for flip in range(2):
            whole = rotflip(CASE, turns, flip)
            rows.append((turns, flip, whole.shape, (0, 0, 0), whole, [0, 0, 0]))
    for turns, flip in [(-1, -1), (0, 1), (1, 0), (2, 1), (3, 0), (3, 1)]:
        x = rotflip(CASE, turns, flip)
        for out in [(4, 4, 2), (5, 5, 2), (4, 6, 4), (8, 3, 5)]:
            room = [n + 2 * p - o for n, p, o in zip(x.shape, pads(x.shape, out), out)]
            for start in [[0, 0, 0], [r - 1 for r in room], [r // 2 for r in room]]:
                y, p = crop(x, out, start)
                rows.append((turns, flip, out, start, y, p))
    for turns, flip, out, start, y, p in rows:
        print("    {%d, %d, {%s}, {%s}, {%s}," % (turns, flip, numbers(out), numbers(start), numbers(p)))
        text = numbers(y.ravel())
        words, line = text.split(", "), "     {"
        for i, w in enumerate(words):
            piece = w + (", " if i + 1 < len(words) else "}},")
            if len(line) + len(piece) > 98:
                print(line.rstrip())
                line = "      "
            line += piece
        print(line)
    print("};")
    print("/* CenterCrop of a case with n voxels along each axis to 96: where it starts. */")
    print("static const struct golden_centre {\n    int n, start;\n} golden_centres[] = {")
    for n in range(90, 110):
        print("    {%d, %d}," % (n, centre((n, n, n), (96, 96, 96))[0]))
    print("};")


main()
