/* gaussian_blur on the CPU: a sample is an item of work; a row of floats holds the sum over
 * rows, another that along it.
 */
#include "kernels/cpu/blur.h"
#include "kernels/resample.h"
#include <string.h>

struct job {
    const struct dr_blur *b;
    const struct dr_batch *batch;
    const void *x;
    float *rows;
    void *y;
};

static void weights(double sigma, int32_t k, float *weight) {
    const double sum = dr_blur_sum(sigma, k);
    for (int32_t i = 0; i < k; i++)
        weight[i] = (float)(dr_blur_weight(sigma, k, i) / sum);
}

static void add_row(const struct job *j, int64_t at, size_t n, float weight, bool first,
                    float *restrict row) {
    if (j->b->u8) {
        const uint8_t *x = (const uint8_t *)j->x + at;
        for (size_t i = 0; i < n; i++)
            row[i] = (first ? 0.0f : row[i]) + weight * (float)x[i];
    } else {
        const float *x = (const float *)j->x + at;
        for (size_t i = 0; i < n; i++)
            row[i] = (first ? 0.0f : row[i]) + weight * x[i];
    }
}

/* Along the row, which has kw / 2 pixels more on either side: reflected here. */
static void along_row(const struct dr_blur *b, float *row, const float *weight,
                      float *restrict sum) {
    const int64_t c = b->c, n = b->w * c, reach = b->kw / 2;
    for (int32_t x = 1; x <= reach; x++) {
        memcpy(row + (reach - x) * c, row + (reach + x) * c, (size_t)c * sizeof *row);
        memcpy(row + (reach + b->w - 1 + x) * c, row + (reach + b->w - 1 - x) * c,
               (size_t)c * sizeof *row);
    }
    for (int32_t k = 0; k < b->kw; k++) {
        const float w = weight[k], *from = row + k * c;
        for (int64_t i = 0; i < n; i++)
            sum[i] = (k ? sum[i] : 0.0f) + w * from[i];
    }
}

static void store_row(const struct dr_blur *b, const float *row, void *y, int64_t at) {
    const int64_t n = (int64_t)b->w * b->c;
    if (!b->u8) {
        memcpy((float *)y + at, row, (size_t)n * sizeof *row);
        return;
    }
    uint8_t *to = (uint8_t *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = dr_round_u8(row[i]);
}

static void blur_sample(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_blur *b = j->b;
    const double sigma = dr_blur_sigma(b, j->batch, (int64_t)i);
    const int64_t width = (int64_t)b->w * b->c, base = (int64_t)i * b->h * width;
    const int64_t reach = (int64_t)(b->kw / 2) * b->c;
    float down[DR_BLUR_MAX], across[DR_BLUR_MAX];
    float *row = j->rows + (int64_t)i * (2 * width + 2 * reach), *sum = row + width + 2 * reach;
    weights(sigma, b->kh, down);
    weights(sigma, b->kw, across);
    for (int32_t y = 0; y < b->h; y++) {
        for (int32_t k = 0; k < b->kh; k++)
            add_row(j, base + dr_reflect(y + k - b->kh / 2, b->h) * width, (size_t)width, down[k],
                    k == 0, row + reach);
        along_row(b, row, across, sum);
        store_row(b, sum, j->y, base + y * width);
    }
}

void dr_cpu_blur(struct dr_cpu *cpu, const struct dr_blur *b, const struct dr_batch *batch,
                 const void *x, void *workspace, void *y) {
    struct job j = {b, batch, x, workspace, y};
    const double ns = (double)b->kh * 0.3 + (double)b->kw;
    dr_cpu_for(cpu, blur_sample, &j, (size_t)b->n, ns * b->h * b->w * b->c + 500);
}
