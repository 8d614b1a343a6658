/* Batch normalization over the rows of x [rows, c] (NHWC: rows = N*H*W), fp32 with statistics in
 * double. Every sum runs in a fixed order (sums.h).
 *
 * mean and var [c] are the statistics to normalize by: the batch's (var biased) or stored ones. */
#ifndef DR_KERNELS_CPU_NORM_H
#define DR_KERNELS_CPU_NORM_H
#include "kernels/cpu/cpu.h"
#include <stdint.h>

/* Enough workspace for each function below. */
int64_t dr_cpu_norm_bytes(int64_t rows, int64_t c);
/* Means and biased variances of the columns. */
void dr_cpu_norm_stats(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, void *workspace,
                       float *mean, float *var);
/* y = act((x - mean) / sqrt(var + eps) * gamma + beta + add); add [rows, c] or NULL. */
void dr_cpu_norm_apply(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x,
                       const float *mean, const float *var, const float *gamma, const float *beta,
                       double eps, const float *add, int act, void *workspace, float *y);
/* dgamma = sum dy * (x - mean) / sqrt(var + eps), dbeta = sum dy. */
void dr_cpu_norm_wgrad(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, const float *dy,
                       const float *mean, const float *var, double eps, void *workspace,
                       float *dgamma, float *dbeta);
/* The gradient by x. dgamma and dbeta (of dr_cpu_norm_wgrad) carry what goes through the batch's
 * statistics; NULL: the statistics are stored ones, dx = dy * gamma / sqrt(var + eps), and x and
 * mean are not read. */
void dr_cpu_norm_dgrad(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, const float *dy,
                       const float *mean, const float *var, const float *gamma, const float *dgamma,
                       const float *dbeta, double eps, void *workspace, float *dx);
#endif
