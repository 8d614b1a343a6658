/* fp32 convolutions on the CPU, all by im2win (kernels/README.md): forward, data gradient, weight
 * gradient, with groups, stride, dilation and four pads.
 *
 * Definition: cross-correlation over x with zeros around it, y = epilogue(sum w * x). What lies
 * outside an image counts as 0 and is multiplied like any other value: a padded tap adds 0 * w
 * (NaN where w is not finite) and, in wgrad, 0 * dy; in dgrad an output position outside y adds
 * 0 * w. A tap that the stride skips adds nothing.
 *
 * Outputs are overwritten. Nothing allocates: `workspace` has the bytes that the function of the
 * same name says, is 64-byte aligned, and need not be initialised. Sums run in an order that
 * depends on the shape and the tile set only, never on threads. */
#ifndef DR_KERNELS_CPU_CONV_H
#define DR_KERNELS_CPU_CONV_H
#include "kernels/conv_shape.h"
#include "kernels/cpu/cpu.h"
#include "kernels/epilogue.h"

/* The register tiles of one instruction set (kernels/cpu/im2win_tile.h). */
struct dr_tiles;
const struct dr_tiles *dr_tiles(void);               /* the best that this machine runs */
const struct dr_tiles *dr_tiles_at(unsigned i);      /* all that it runs, NULL past the last */
const char *dr_tiles_name(const struct dr_tiles *t); /* "avx512 12x32" */

/* Bytes; the same on every machine, so that plans are too. INT64_MAX: not to be had. */
int64_t dr_conv_fprop_workspace(const struct dr_conv *s);
int64_t dr_conv_dgrad_workspace(const struct dr_conv *s);
int64_t dr_conv_wgrad_workspace(const struct dr_conv *s);

void dr_conv_fprop(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *x, // [n, h, w, c]
                   const float *w, // [k, kh, kw, c / groups]
                   const struct dr_epilogue *e,
                   float *y, // [n, ho, wo, k]
                   void *workspace);
void dr_conv_dgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *dy, const float *w, float *dx, void *workspace);
/* The transposed convolution: the data gradient, dx = epilogue(dgrad(dy, w)); its columns are x's
 * channels. Its workspace is dgrad's. */
void dr_conv_transpose(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                       const float *dy, const float *w, const struct dr_epilogue *e, float *dx,
                       void *workspace);
void dr_conv_wgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *x, const float *dy, float *dw, void *workspace);
#endif
