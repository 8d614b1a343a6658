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
/* Without the activation: what a sum of the column becomes, given its element of `add`. */
static __device__ __forceinline__ float dr_finish_sum(const dr_epilogue &e, dr_column c, float sum,
                                                      float add) {
    const float v = e.norm_var ? fmaf(sum, c.scale, c.shift) : sum + c.shift;
    return e.add ? v + add : v;
}
/* The value to store at index i of y (T: y's type). */
template <typename T>
static __device__ __forceinline__ float dr_finish(const dr_epilogue &e, dr_column c, float sum,
                                                  int64_t i) {
    const float add = e.add ? dr_load((const T *)e.add + i) : 0.0f;
    return dr_activate(dr_finish_sum(e, c, sum, add), e.act);
}
/* dr_activate, for kernels that store many elements a thread: the rare and long functions are
 * called, or their code would be there once an element. */
static __device__ __noinline__ float dr_activate_long(float v, int act) {
    return dr_activate(v, act);
}
static __device__ __forceinline__ float dr_activate_short(float v, int act) {
    return act > 1 ? dr_activate_long(v, act) : act == 1 && v <= 0.0f ? 0.0f : v;
}
#endif
