/* turn.c - voxels between the order of files (first axis fastest) and that of networks (last axis fastest).
 *
 * Planes are turned in tiles, so that both sides stay in the first-level cache.
 */
#include <string.h>

#include "volume/volume.h"

enum { TILE = 16 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

enum direction { TO_ROWS, FROM_ROWS };

static inline void turn(char *rows, size_t step, char *voxels, size_t each, const int n[3],
                        enum direction direction)
{
    for (int j = 0; j < n[1]; j++)
        for (int i0 = 0; i0 < n[0]; i0 += TILE)
            for (int k0 = 0; k0 < n[2]; k0 += TILE)
                for (int i = i0; i < least(i0 + TILE, n[0]); i++)
                    for (int k = k0; k < least(k0 + TILE, n[2]); k++) {
                        char *row = rows + (size_t)(((int64_t)i * n[1] + j) * n[2] + k) * step;
                        char *voxel = voxels + (size_t)(i + n[0] * (j + (int64_t)n[1] * k)) * each;
                        if (direction == TO_ROWS)
                            memcpy(row, voxel, each);
                        else
                            memcpy(voxel, row, each);
                    }
}

/* One call per item size, so that copies are single instructions. */
static void turn_items(char *rows, size_t step, char *voxels, size_t each, const int n[3],
                       enum direction direction)
{
    if (each == 1)
        turn(rows, step, voxels, 1, n, direction);
    else if (each == 2)
        turn(rows, step, voxels, 2, n, direction);
    else if (each == 4)
        turn(rows, step, voxels, 4, n, direction);
    else
        turn(rows, step, voxels, each, n, direction);
}

void voxels_to_rows(void *rows, size_t step, const void *voxels, size_t each, const int dims[3])
{
    turn_items(rows, step, (char *)voxels, each, dims, TO_ROWS);
}

void voxels_from_rows(void *voxels, const void *rows, size_t step, size_t each, const int dims[3])
{
    turn_items((char *)rows, step, voxels, each, dims, FROM_ROWS);
}
