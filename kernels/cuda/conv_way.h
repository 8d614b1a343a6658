/* The ways in which a device could compute a forward convolution: problem -> candidates -> cost
 * model -> choice. Plans ask for them and keep one, --tune measures them all, dr_cuda_conv_fprop is
 * told which to take. They depend on the shape, the type and the card, not on how many
 * multiprocessors a launch may use. No GPU is needed to ask. */
#ifndef DR_KERNELS_CUDA_CONV_WAY_H
#define DR_KERNELS_CUDA_CONV_WAY_H
#include "kernels/conv_shape.h"
#include "kernels/cuda/conv_table.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What is known of the card, and what is asked of it. */
struct dr_conv_card {
    int arch, sms; /* 10 * major + minor; multiprocessors */
    bool hopper;   /* kernels of wgmma and TMA can run */
    bool tf32;     /* operands of type fp32 are rounded to tf32 */
};

/* Numbers of ways, for launches. */
enum {
    DR_CONV_GENERIC,    /* conv.cu: right for every shape, on every card */
    DR_CONV_FIRST_TILE, /* row i of the tile table: + 2 * i, + 1 if tiles are consecutive outputs */
    DR_CONV_F32_TILE = 1000 /* fp32 on CUDA cores: row i of conv_f32_tile.h, which the generic
                               kernels would not take: + i */
};
enum dr_conv_pass { DR_CONV_FPROP, DR_CONV_DGRAD, DR_CONV_WGRAD };
enum { DR_CONV_WAYS = 48 };
struct dr_conv_way {
    int way;
    char name[64]; /* "im2win fp16 rs 128x128", the same for the same bits */
    const char *reason;
    int64_t workspace_bytes;
    double us; /* expected on this card */
};

/* Activations that need a function call would serialise the products of the tile table's kernels.
 */
static inline bool dr_cuda_conv_hopper_acts(int act) {
    return act <= 1 || act == 4;
}

/* Fills way[DR_CONV_WAYS] and returns how many there are, at least 1. The first is the cost model's
 * choice; the others follow by what it expects, the generic kernels last, or, in fp32 on CUDA
 * cores, first. `act`: of the epilogue. */
int dr_cuda_conv_ways(const struct dr_conv *c, enum dr_type t, int act,
                      const struct dr_conv_card *card, struct dr_conv_way *way);
/* The way that can store the largest of each 2 x 2 outputs alone; false unless it is the model's
 * choice for all outputs. Whether a plan can: boxes of whole windows, halves, relu. */
bool dr_cuda_conv_pool_way(const struct dr_conv *c, enum dr_type t, int act,
                           const struct dr_conv_card *card, struct dr_conv_way *way);
bool dr_cuda_conv_pools(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                        int act);
/* The one way that can read pixels, u8, and normalize them as it loads. False unless it is also the
 * model's choice for x as floats: another kernel would have to be faster by what that saves. */
bool dr_cuda_conv_u8_way(const struct dr_conv *c, enum dr_type t, int act,
                         const struct dr_conv_card *card, struct dr_conv_way *way);
/* The generic kernels of a pass: their name, and, roughly, what they take. */
struct dr_conv_way dr_cuda_conv_generic_way(const struct dr_conv *c, enum dr_type t,
                                            enum dr_conv_pass pass,
                                            const struct dr_conv_card *card);
/* Whether this program's kernels of wgmma and TMA can run on the current device, a Hopper. */
bool dr_cuda_conv_hopper_runs(void);
/* The same for the data gradient, dx = epilogue(dgrad(dy, w)), which is the transposed convolution.
 * Of stride 1 it is the forward convolution of dy with turned weights; the workspace begins with
 * these. The generic kernels come first where that is too much for little work. */
int dr_cuda_conv_back_ways(const struct dr_conv *c, enum dr_type t, int act,
                           const struct dr_conv_card *card, struct dr_conv_way *way);
/* That forward convolution, and the bytes that its weights take in the workspace. */
struct dr_conv dr_cuda_conv_turned_shape(const struct dr_conv *c);
int64_t dr_cuda_conv_turned_bytes(const struct dr_conv *c, enum dr_type t);
/* All that the choice depends on beside the card, as text: "fp16 128x28x28x128, 128 of 3x3". */
void dr_cuda_conv_problem(const struct dr_conv *c, enum dr_type t, enum dr_conv_pass pass, int act,
                          bool tf32, char *text, size_t n);
/* Hash of the ways that there are and of what the model knows of them: a measurement made with
 * other kernels is told by it. */
uint64_t dr_cuda_conv_ways_hash(void);
#ifdef __cplusplus
}
#endif
#endif
