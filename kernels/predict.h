/* The class that logits name, one definition for host and device. */
#ifndef DR_KERNELS_PREDICT_H
#define DR_KERNELS_PREDICT_H
#include "kernels/maps.h"

/* How many classes k logits tell apart: one logit tells 1 from 0. */
DR_MAP_FN int64_t dr_predicted_classes(int64_t k) {
    return k == 1 ? 2 : k;
}
/* The index of the largest, the lowest of equals; of one logit, whether it is above 0. -1 where a
 * NaN stands among them: it names nothing. */
DR_MAP_FN int64_t dr_predict(const float *x, int64_t k) {
    int64_t best = 0;
    for (int64_t j = 0; j < k; j++) {
        if (x[j] != x[j]) {
            return -1;
        }
        best = x[j] > x[best] ? j : best;
    }
    return k == 1 ? x[0] > 0.0f : best;
}
#endif
