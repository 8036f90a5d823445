/* geometry.c - affine maps between voxel indices and patient millimetres (RAS). See volume.h. */
#include <math.h>
#include <string.h>

#include "volume/volume.h"

void geometry_identity(struct geometry *g, const double spacing_mm[3])
{
    memset(g, 0, sizeof *g);
    for (int a = 0; a < 3; a++) {
        g->spacing_mm[a] = spacing_mm ? spacing_mm[a] : 1.0;
        g->affine[a][a] = g->spacing_mm[a];
    }
}

void geometry_from_affine(struct geometry *g, const double affine[3][4])
{
    memset(g, 0, sizeof *g);
    memcpy(g->affine, affine, sizeof g->affine);
    for (int a = 0; a < 3; a++)
        g->spacing_mm[a] =
            sqrt(affine[0][a] * affine[0][a] + affine[1][a] * affine[1][a] + affine[2][a] * affine[2][a]);
    g->known = 1;
}

void geometry_axes(int axis[3], int sign[3], const struct geometry *g)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    double best = -1.0;
    for (int p = 0; p < 6; p++) {
        double score = 0.0;
        for (int a = 0; a < 3; a++) {
            double length = g->spacing_mm[a] > 0.0 ? g->spacing_mm[a] : 1.0;
            double share = fabs(g->affine[order[p][a]][a]) / length;
            score += isnan(share) ? 1.0 : share; /* of a step without a length its direction is left */
        }
        if (score > best + 1e-9) { /* ties keep the first: axes as they are */
            best = score;
            memcpy(axis, order[p], sizeof order[p]);
        }
    }
    for (int a = 0; a < 3; a++)
        sign[a] = g->affine[axis[a]][a] < 0.0 ? -1 : 1;
}

void geometry_orientation(char out[4], const struct geometry *g)
{
    int axis[3], sign[3];
    geometry_axes(axis, sign, g);
    for (int a = 0; a < 3; a++)
        out[a] = sign[a] > 0 ? "RAS"[axis[a]] : "LPI"[axis[a]];
    out[3] = '\0';
}

double geometry_distance_mm(const struct geometry *a, const struct geometry *b, const int64_t dims[3])
{
    double worst = 0.0;
    for (int corner = 0; corner < 8; corner++) {
        double squared = 0.0;
        for (int row = 0; row < 3; row++) {
            double d = a->affine[row][3] - b->affine[row][3];
            for (int c = 0; c < 3; c++)
                if (corner >> c & 1)
                    d += (a->affine[row][c] - b->affine[row][c]) * (double)(dims[c] - 1);
            squared += d * d;
        }
        double distance = sqrt(squared);
        if (!(distance <= worst))
            worst = distance;
    }
    return worst;
}

int affine_invert(double out[3][4], const double in[3][4])
{
    double cofactor[3][3], scale = 0.0;
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) {
            int r1 = (r + 1) % 3, r2 = (r + 2) % 3, c1 = (c + 1) % 3, c2 = (c + 2) % 3;
            cofactor[r][c] = in[r1][c1] * in[r2][c2] - in[r1][c2] * in[r2][c1];
            scale = fmax(scale, fabs(in[r][c]));
        }
    double det = in[0][0] * cofactor[0][0] + in[0][1] * cofactor[0][1] + in[0][2] * cofactor[0][2];
    /* Columns shorter than a millionth of the largest entry count as singular. */
    if (!isfinite(det) || !isfinite(scale) || fabs(det) <= 1e-12 * scale * scale * scale)
        return -1;
    double result[3][4];
    for (int r = 0; r < 3; r++) {
        for (int c = 0; c < 3; c++)
            result[r][c] = cofactor[c][r] / det;
        result[r][3] = -(result[r][0] * in[0][3] + result[r][1] * in[1][3] + result[r][2] * in[2][3]);
        if (!isfinite(result[r][3]))
            return -1;
    }
    memcpy(out, result, sizeof result);
    return 0;
}

void affine_multiply(double out[3][4], const double a[3][4], const double b[3][4])
{
    double result[3][4];
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 4; c++) {
            result[r][c] = c == 3 ? a[r][3] : 0.0;
            for (int k = 0; k < 3; k++)
                result[r][c] += a[r][k] * b[k][c];
        }
    memcpy(out, result, sizeof result);
}

double affine_shear(const double m[3][4])
{
    double worst = 0.0;
    for (int a = 0; a < 3; a++) {
        int b = (a + 1) % 3;
        double dot = 0.0, aa = 0.0, bb = 0.0;
        for (int row = 0; row < 3; row++) {
            dot += m[row][a] * m[row][b];
            aa += m[row][a] * m[row][a];
            bb += m[row][b] * m[row][b];
        }
        worst = fmax(worst, fabs(dot) / sqrt(aa * bb));
    }
    return worst;
}
