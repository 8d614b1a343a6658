/* Optimizers on CUDA: one launch updates up to DR_CUDA_WEIGHTS weights in place. The semantics are
 * those of kernels/cpu/sgd.h and adam.h; nothing is written while health[0] is not 0. */
#ifndef DR_KERNELS_CUDA_OPTIMIZER_H
#define DR_KERNELS_CUDA_OPTIMIZER_H

#include "kernels/cuda/stream.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dr_cuda_weight {
    int64_t n;
    const float *g;
    float *w;
    float *m, *v;  /* moments; of sgd m alone, which may be NULL */
    int64_t *step; /* adam's updates so far */
};
#define DR_CUDA_WEIGHTS 64 /* of one launch: they travel as arguments */
struct dr_cuda_weights {
    uint32_t n;
    struct dr_cuda_weight at[DR_CUDA_WEIGHTS];
};

struct dr_cuda_sgd {
    float momentum, decay;
    bool nesterov;
    const float *lr, *clip; /* device; clip may be NULL */
    const int64_t *health;  /* device */
};
int dr_cuda_sgd(const struct dr_cuda_sgd *a, const struct dr_cuda_weights *w, dr_stream s);

struct dr_cuda_adam {
    double beta1, beta2, eps, decay;
    bool decoupled; /* adamw */
    const float *lr, *clip;
    const int64_t *health;
};
/* Also advances the steps. scalars: DR_CUDA_ADAM_SCALARS floats a weight. */
#define DR_CUDA_ADAM_SCALARS 2
int dr_cuda_adam(const struct dr_cuda_adam *a, const struct dr_cuda_weights *w, float *scalars,
                 dr_stream s);

#ifdef __cplusplus
}
#endif
#endif
