/* The kernels of conv_wl.cuh for tf32. */
#include "kernels/cuda/conv_wl.cuh"

extern "C" int dr_conv_wl_tf32(const struct dr_wl *p, int pixels, int shared_bytes, int blocks,
                               dr_stream s) {
    return dr::wl::launch_tile<dr::ptx::tf32>(p, pixels, shared_bytes, blocks, s);
}
