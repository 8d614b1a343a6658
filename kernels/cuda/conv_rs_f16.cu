/* The kernels of conv_rs.cuh for fp16. */
#include "kernels/cuda/conv_rs.cuh"

extern "C" int dr_conv_rs_f16(const struct dr_rs *p, const struct dr_conv_tile *tile,
                              int shared_bytes, int blocks, dr_stream s) {
    return dr::rs::launch_tile<dr::ptx::f16>(p, tile, shared_bytes, blocks, s);
}
