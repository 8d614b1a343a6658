/* How a kernel's activations (and the weights it multiplies them with) are stored. Sums, biases,
 * statistics and weight gradients are fp32 whatever this says. */
#ifndef DR_KERNELS_DTYPE_H
#define DR_KERNELS_DTYPE_H
enum dr_type { DR_TYPE_F32, DR_TYPE_F16, DR_TYPE_BF16 };
static inline int dr_type_bytes(enum dr_type t) {
    return t == DR_TYPE_F32 ? 4 : 2;
}
#endif
