/* One forward convolution by cuDNN's backend API, for conv12.cu: the fastest of every plan. */
#ifndef DR_TESTS_BENCH_CONV12_CUDNN_H
#define DR_TESTS_BENCH_CONV12_CUDNN_H
#include "kernels/conv_shape.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif
struct conv12_cudnn;
/* x, w, y as kernels/cuda/conv.h has them, NHWC. fp32 without tf32: engines that say they round
 * their operands, or use Tensor cores, are left out. Exits when cuDNN fails. */
struct conv12_cudnn *conv12_cudnn_open(const struct dr_conv *c, enum dr_type t, bool tf32,
                                       dr_stream s);
/* Times every plan and keeps the fastest; how many there were, 0: it cannot be run. */
int conv12_cudnn_best(struct conv12_cudnn *p, const void *x, const void *w, void *y);
void conv12_cudnn_run(struct conv12_cudnn *p, const void *x, const void *w, void *y);
int64_t conv12_cudnn_workspace(const struct conv12_cudnn *p); /* bytes, of the fastest */
size_t conv12_cudnn_version(void);
void conv12_cudnn_close(struct conv12_cudnn *p);
#ifdef __cplusplus
}
#endif
#endif
