/* Cases of the ops that are one function of kernels/maps.h. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>

void lab_map_cases(struct lab *l) {
    static const struct {
        const char *op, *yaml;
        bool positive; /* where it is defined */
    } map[] = {
        {"sub", "{}", false},
        {"mul", "{}", false},
        {"div", "{}", true},
        {"abs", "{}", false},
        {"sqrt", "{}", true},
        {"clamp", "{min: -0.5, max: 0.25}", false},
        {"clamp", "{min: 1}", false},
        {"clamp", "{max: -1}", false},
        {"sigmoid", "{}", false},
        {"leaky_relu", "{}", false},
        {"leaky_relu", "{negative_slope: 0.25}", false},
        {"leaky_relu", "{negative_slope: -2}", false},
        {"silu", "{}", false},
        {"gelu", "{}", false},
        {"gelu", "{approximate: tanh}", false},
    };
    static const int64_t size[] = {1, 255, 256, 257, 2048 * 256 + 3};
    for (size_t i = 0; i < DR_COUNT(map) * DR_COUNT(size) * 2; i++) {
        const size_t m = i / 2 / DR_COUNT(size);
        const int64_t n = size[i / 2 % DR_COUNT(size)];
        const bool odd = i % 2;
        if (lab_skip(l, map[m].op, m == 0 ? "neg" : map[m].op)) { /* in the gradient of sub */
            continue;
        }
        struct lab_case c = lab_case(l, n);
        uint32_t in[2];
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "b" : "a";
            in[k] = odd ? lab_odd_floats(&c, name, DR_SHAPE(n, 1))
                        : lab_floats(&c, name, DR_SHAPE(n, 1), NULL);
            for (int64_t j = 0; j < n && !odd; j++) {
                float *x = &rig_f32(&c.r, in[k])[j];
                *x = map[m].positive ? fabsf(*x) + 0.1f : *x * 4;
                *x = n == 1 ? 1.5f : *x; /* far from where a gradient is 0 */
            }
        }
        const uint32_t n_in = dr_op_find(dr_ops(), map[m].op)->min_in;
        lab_grads(&c, lab_node(&c, map[m].op, map[m].yaml, DR_ACT_NONE, in, n_in));
        lab_check(&c);
    }
}
