/* kernels/epilogue.h on the device. */
#ifndef DR_KERNELS_CUDA_EPILOGUE_CUH
#define DR_KERNELS_CUDA_EPILOGUE_CUH
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/real.cuh"
#include "kernels/epilogue.h"

/* What every sum of column k meets: sum * scale + shift. Load it once for all rows of a column. */
struct dr_column {
    float scale, shift;
};
static __device__ __forceinline__ dr_column dr_column_of(const dr_epilogue &e, int64_t k) {
    dr_column c = {1.0f, e.bias ? e.bias[k] : 0.0f};
    if (e.norm_var) {
        c.scale = e.norm_weight[k] / sqrtf(e.norm_var[k] + (float)e.eps);
        c.shift = (c.shift - e.norm_mean[k]) * c.scale + e.norm_bias[k];
    }
    return c;
}
/* The value to store at index i of y (T: y's type). */
template <typename T>
static __device__ __forceinline__ float dr_finish(const dr_epilogue &e, dr_column c, float sum,
                                                  int64_t i) {
    float v = e.norm_var ? fmaf(sum, c.scale, c.shift) : sum + c.shift;
    if (e.add) {
        v += dr_load((const T *)e.add + i);
    }
    return dr_activate(v, e.act);
}
#endif
