/* cuBLASLt, loaded when a CUDA device is first used: it is some 600 MB, and no command line or CPU
 * run should pay for it, or fail where it is missing. */
#ifndef DR_KERNELS_CUDA_LT_H
#define DR_KERNELS_CUDA_LT_H
#include <cublasLt.h>

/* The functions that kernels/cuda/linear.c calls. */
struct dr_lt {
    __typeof__(&cublasLtCreate) create;
    __typeof__(&cublasLtDestroy) destroy;
    __typeof__(&cublasLtMatmulDescInit_internal) matmul_desc_init;
    __typeof__(&cublasLtMatmulDescSetAttribute) matmul_desc_set;
    __typeof__(&cublasLtMatrixLayoutInit_internal) layout_init;
    __typeof__(&cublasLtMatrixLayoutSetAttribute) layout_set;
    __typeof__(&cublasLtMatmulPreferenceInit_internal) preference_init;
    __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    __typeof__(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    __typeof__(&cublasLtMatmul) matmul;
};
/* NULL where the library, or one of these functions, is not to be had; dr_lt_why() then says why.
 * Any thread; loads once. */
const struct dr_lt *dr_lt(void);
const char *dr_lt_why(void);
#endif
