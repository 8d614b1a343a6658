/* Crops, resizing, rotation: see kernels/resample.h and turn.h for what they compute. */
#ifndef DR_KERNELS_CPU_GEOMETRY_H
#define DR_KERNELS_CPU_GEOMETRY_H
#include "kernels/cpu/cpu.h"
#include "kernels/resample.h"
#include "kernels/turn.h"

/* One plane. batch: NULL where the windows are fixed. workspace: dr_cpu_resample_bytes for a plane
 * that is interpolated. */
struct dr_column {
    struct dr_taps taps;
    float sum;
};
static inline int64_t dr_cpu_resample_bytes(int64_t n, int64_t w, int64_t channels, int64_t wo) {
    return n * (wo * (int64_t)sizeof(struct dr_column) + w * channels * (int64_t)sizeof(float));
}
void dr_cpu_resample(struct dr_cpu *cpu, const struct dr_resample *r, const struct dr_batch *batch,
                     const struct dr_plane *plane, void *workspace);
void dr_cpu_turn(struct dr_cpu *cpu, const struct dr_turn *t, const struct dr_batch *batch,
                 const struct dr_plane *plane);
#endif
