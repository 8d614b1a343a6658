/* gaussian_blur on the CPU: a sample is an item of work; a row of floats holds the sum over rows.
 */
#include "kernels/cpu/blur.h"
#include "kernels/resample.h"

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

static void along_row(const struct dr_blur *b, const float *row, const float *weight, void *y,
                      int64_t at) {
    for (int32_t x = 0; x < b->w; x++) {
        for (int32_t ch = 0; ch < b->c; ch++) {
            float sum = 0;
            for (int32_t k = 0; k < b->kw; k++)
                sum += weight[k] * row[dr_reflect(x + k - b->kw / 2, b->w) * b->c + ch];
            if (b->u8)
                ((uint8_t *)y)[at + x * b->c + ch] = dr_round_u8(sum);
            else
                ((float *)y)[at + x * b->c + ch] = sum;
        }
    }
}

static void blur_sample(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_blur *b = j->b;
    const double sigma = dr_blur_sigma(b, j->batch, (int64_t)i);
    const int64_t width = (int64_t)b->w * b->c, base = (int64_t)i * b->h * width;
    float down[DR_BLUR_MAX], across[DR_BLUR_MAX], *row = j->rows + (int64_t)i * width;
    weights(sigma, b->kh, down);
    weights(sigma, b->kw, across);
    for (int32_t y = 0; y < b->h; y++) {
        for (int32_t k = 0; k < b->kh; k++)
            add_row(j, base + dr_reflect(y + k - b->kh / 2, b->h) * width, (size_t)width, down[k],
                    k == 0, row);
        along_row(b, row, across, j->y, base + y * width);
    }
}

void dr_cpu_blur(struct dr_cpu *cpu, const struct dr_blur *b, const struct dr_batch *batch,
                 const void *x, void *workspace, void *y) {
    struct job j = {b, batch, x, workspace, y};
    const double ns = (double)b->kh * 0.3 + (double)b->kw;
    dr_cpu_for(cpu, blur_sample, &j, (size_t)b->n, ns * b->h * b->w * b->c + 500);
}
