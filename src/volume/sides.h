/* sides.h - classes that are the left and the right one of a pair, such as kidneys.
 *
 * A mirrored scan shows a body whose left kidney lies on the right. It is the scan of another body, as bodies
 * are alike on both sides, if the two classes are exchanged with it: in the labels of mirrored patches, and
 * in what a network says of mirrored windows. Left alone, they would be mixed up.
 */
#ifndef FALX_SIDES_H
#define FALX_SIDES_H

#include <stdint.h>

enum { SIDES_CLASSES = 256 };

struct sides {
    int axes; /* bit a: reversing axis a exchanges the classes, reversing two of them does not; 0: none to */
    uint8_t other[SIDES_CLASSES]; /* what each class is in a mirror image; itself if it has no other */
};

/* 1 if an image reversed along these axes has the classes exchanged. */
static inline int sides_are_exchanged(const struct sides *s, const int reversed[3])
{
    int all = reversed[0] | reversed[1] << 1 | reversed[2] << 2;
    return __builtin_parity((unsigned)(all & s->axes));
}

#endif
