/* What a segmentation is judged by, from logits x [rows, k] and classes. Rows that count: see
 * softmax.h; predictions: predict.h. A class that does not exist is never predicted. */
#ifndef DR_KERNELS_CPU_CONFUSION_H
#define DR_KERNELS_CPU_CONFUSION_H
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/sums.h"
#include "kernels/predict.h"

static inline int64_t dr_cpu_confusion_bytes(int64_t rows, int64_t k) {
    return dr_cpu_chunks(rows) * 3 * dr_predicted_classes(k) * (int64_t)sizeof(double);
}
/* out[0] = rows whose prediction is their class, out[1] = rows that count. */
void dr_cpu_pixel_accuracy(struct dr_cpu *cpu, const struct dr_cpu_classes *c, const float *x,
                           void *workspace, double *out);
/* out [3, classes]: rows predicted rightly as the class, rows predicted as it, rows of it. */
void dr_cpu_confusion(struct dr_cpu *cpu, const struct dr_cpu_classes *c, const float *x,
                      void *workspace, double *out);
#endif
