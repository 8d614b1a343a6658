/* Convolution by its definition (kernels/cpu/conv.h): naive loops in double, the reference for the
 * kernels of every device. */
#ifndef DR_KERNELS_CPU_CONV_REF_H
#define DR_KERNELS_CPU_CONV_REF_H
#include "kernels/conv_shape.h"
void dr_conv_ref_fprop(const struct dr_conv *s, const float *x, const float *w, const float *bias,
                       double *y); /* bias may be NULL; no activation */
void dr_conv_ref_dgrad(const struct dr_conv *s, const float *dy, const float *w, double *dx);
void dr_conv_ref_wgrad(const struct dr_conv *s, const float *x, const float *dy, double *dw);
#endif
