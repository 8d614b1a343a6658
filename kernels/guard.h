/* What a step's guard decides, one definition for host and device. */
#ifndef DR_KERNELS_GUARD_H
#define DR_KERNELS_GUARD_H
#include "kernels/maps.h"
#include <stdbool.h>

/* health[0]: updates write nothing while it is not 0. */
enum {
    DR_HEALTH_GOOD,
    DR_HEALTH_BAD /* from that step on */,
    DR_HEALTH_SKIP /* this step alone */
};

/* Loss scaling's constants and state. */
struct dr_scaler {
    double growth, backoff;
    int64_t interval;
};
#define DR_LEAST_SCALE 1.0 /* below it the loss itself, not its scale, is at fault */

/* torch.amp.GradScaler.update after a step whose gradients and loss were finite, or not. The step
 * that would take the scale below its least value is bad, and leaves the scale as it was. */
DR_MAP_FN void dr_scaler_update(const struct dr_scaler *s, bool finite, int64_t step,
                                int64_t *health, float *scale, int64_t *good) {
    if (health[0] == DR_HEALTH_BAD) {
        return;
    }
    if (finite) {
        const float larger = (float)(*scale * s->growth);
        health[0] = DR_HEALTH_GOOD;
        health[1] = 0;
        *good += 1;
        if (*good == s->interval) {
            *scale = isfinite(larger) ? larger : *scale;
            *good = 0;
        }
        return;
    }
    const bool stop = *scale * s->backoff < DR_LEAST_SCALE;
    health[0] = stop ? DR_HEALTH_BAD : DR_HEALTH_SKIP;
    health[1] = step;
    if (!stop) {
        *scale = (float)(*scale * s->backoff);
        *good = 0;
    }
}

/* What updates multiply gradients by: torch.nn.utils.clip_grad_norm_'s max_norm / (norm + 1e-6), at
 * most 1, and exactly 1 up to max_norm, where that quotient would be 1 - 1e-6 / max_norm. squares:
 * of all gradients, in double: finite if and only if all of them are. scale: what the gradients
 * were multiplied by, whose inverse is part of the factor; NaN where one is not finite. NULL: they
 * were not. */
DR_MAP_FN float dr_clip_factor(double squares, double max_norm, const float *scale) {
    const double by = scale ? (double)*scale : 1.0, norm = sqrt(squares) / by;
    if (scale && !isfinite(squares)) {
        return NAN;
    }
    return (float)((norm <= max_norm ? 1.0 : max_norm / (norm + 1e-6)) / by);
}
#endif
