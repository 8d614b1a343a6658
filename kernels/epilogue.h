/* What a kernel does with a finished sum as it stores it:
 *
 *     y = act((sum + bias[k]) * scale[k] + shift[k] + add)
 *
 * k is the last axis. Every part is optional. scale and shift are those of a batch norm that uses
 * its stored statistics: scale = norm_weight / sqrt(norm_var + eps), shift = norm_bias - norm_mean
 * * scale; so such a norm costs no pass over memory, and its tensors stay as they are stored. */
#ifndef DR_KERNELS_EPILOGUE_H
#define DR_KERNELS_EPILOGUE_H
struct dr_epilogue {
    const float *bias;                                           /* [k] or NULL */
    const float *norm_weight, *norm_bias, *norm_mean, *norm_var; /* [k]; all NULL: no norm */
    double eps;                                                  /* of the norm */
    const void *add; /* of y's shape and type, or NULL */
    int act;         /* by number, as kernels/cpu/activation.h */
};
#endif
