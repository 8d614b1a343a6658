/* What the tests of augmentation ops share: operands and attributes that are refused. */
#ifndef DR_TESTS_TEST_AUGMENT_H
#define DR_TESTS_TEST_AUGMENT_H
#include "tests/fake_harness.h"

#include <criterion/criterion.h>
#include <string.h>

struct rig_refused {
    const char *op, *yaml;
    enum dr_dtype type; /* of the operand 'v' */
    struct dr_shape s;
    enum dr_meaning meaning;
    const char *text; /* what is said */
};
/* `beside`: an f32 image [N, 3, 3, 1] is the first operand, 'v' the second. */
static inline void rig_refuses(const struct rig_refused *t, size_t n, bool beside) {
    for (size_t k = 0; k < n; k++) {
        const int64_t batch = t[k].s.dim[0];
        struct rig r = rig_create(batch);
        uint32_t in[2] = {0}, n_in = 0;
        if (beside)
            in[n_in++] = rig_floats(&r, "x", DR_SHAPE(batch, 3, 3, 1), NULL);
        in[n_in++] = rig_input(&r, "v", t[k].type, t[k].s, t[k].meaning, NULL);
        cr_expect_eq(rig_op(&r, "op", t[k].op, t[k].yaml, in, n_in), DR_NONE, "%s %s", t[k].op,
                     t[k].yaml);
        cr_expect(strstr(rig_text(&r), t[k].text), "%s %s: '%s' is not in '%s'", t[k].op, t[k].yaml,
                  t[k].text, rig_text(&r));
        rig_free(&r);
    }
}
#endif
