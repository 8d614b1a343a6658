/* Labels as a share for each class, what mixup and cutmix make of class numbers: cross-entropy is
 * the sum of share * -log p over the classes, its mean over rows (torch.nn.CrossEntropyLoss of
 * probabilities). */
#ifndef DR_KERNELS_SOFT_LABELS_H
#define DR_KERNELS_SOFT_LABELS_H
#include <stdint.h>
struct dr_soft_labels {
    const float *target; /* [rows, k] */
    int64_t rows, k, rows_per_sample;
    double smoothing; /* share of each target that is spread over all classes */
};
#endif
