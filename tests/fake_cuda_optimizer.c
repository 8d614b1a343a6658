/* Cases of the optimizers: one weight and groups, larger than what one launch takes too; with and
 * without clip; with health that is bad, where nothing may be written. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <string.h>

#define MOST 70 /* a launch takes 64 */

/* Weights of `size` elements in turn. fresh: no update was made yet. */
static void update(struct lab *l, const char *op, const char *yaml, const int64_t *size,
                   size_t n_sizes, uint32_t n, bool clip, bool bad, bool fresh) {
    if (lab_skip(l, op, op)) {
        return;
    }
    struct lab_case c = lab_case(l, 1);
    uint32_t in[2 * MOST + 3];
    DR_ASSERT(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_shape s = DR_SHAPE(size[i % n_sizes]);
        in[i] = rig_state(&c.r, dr_printf(c.r.g->arena, "w%u", i), DR_WEIGHT, DR_F32, s, NULL);
        rig_set(&c.r, in[i], NULL);
        for (int64_t k = 0; k < s.dim[0]; k++) {
            rig_f32(&c.r, in[i])[k] = lab_uniform(l);
        }
        in[n + i] = lab_floats(&c, dr_printf(c.r.g->arena, "g%u", i), s, NULL);
    }
    const struct dr_shape scalar = {0};
    in[2 * n] = lab_floats(&c, "lr", scalar, (const float[]){0.1F});
    in[2 * n + 1] = rig_state(&c.r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2),
                              (const int64_t[]){bad, bad ? 5 : 0});
    in[2 * n + 2] = lab_floats(&c, "clip", scalar, (const float[]){0.3F});
    const uint32_t node = lab_node(&c, op, yaml, DR_ACT_NONE, in, 2 * n + (clip ? 3 : 2));
    for (uint32_t v = 0; fresh && node != DR_NONE && v < c.r.g->value.n; v++) {
        if (c.r.g->value.at[v].cls == DR_MOMENT && c.r.g->value.at[v].kind == DR_STATE) {
            memset(c.r.at[v], 0, (size_t)c.r.g->value.at[v].bytes);
        }
    }
    lab_check(&c);
}

void lab_optimizer_cases(struct lab *l) {
    static const int64_t size[] = {1, 255, 1000, 1024, 1025, 5000, 7, 600001};
    static const struct {
        const char *op, *attrs;
    } row[] = {
        {"sgd", "{}"},
        {"sgd", "{momentum: 0.9}"},
        {"sgd", "{momentum: 0.9, nesterov: yes, weight_decay: 0.01}"},
        {"sgd", "{weight_decay: 0.5}"},
        {"adam", "{}"},
        {"adam", "{betas: [0, 0.5], eps: 1e-3, weight_decay: 0.2}"},
        {"adam", "{weight_decay: 0.01}"},
        {"adamw", "{}"},
        {"adamw", "{weight_decay: 0, betas: [0.8, 0.99]}"},
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        for (uint32_t k = 0; k < 8; k++) {
            const bool clip = k & 1, bad = k & 2, fresh = k & 4;
            for (size_t s = 0; s < DR_COUNT(size); s++) {
                update(l, row[i].op, row[i].attrs, &size[s], 1, 1, clip, bad, fresh);
            }
            update(l, row[i].op, row[i].attrs, size, 7, 3, clip, bad, fresh);
            update(l, row[i].op, row[i].attrs, size, 8, 9, clip, bad, fresh);
            update(l, row[i].op, row[i].attrs, size, 7, 64, clip, bad, fresh);
            update(l, row[i].op, row[i].attrs, size, 5, 70, clip, bad, fresh);
        }
    }
}
