/* Sizes of pools; see pool.h. */
#include "ops/pool.h"

/* `same`: the output is as large as the input, an odd rest goes to the bottom and right. */
static bool settle_padding(struct dr_infer *c, struct dr_pool_attrs *a) {
    struct dr_padding *p = &a->padding;
    if (p->mode == DR_PAD_SAME) {
        if (a->stride[0] != 1 || a->stride[1] != 1)
            return dr_infer_wrong(c, "padding",
                                  "padding 'same' needs a stride of 1; write the number");
        p->mode = DR_PAD_EXPLICIT;
        p->top = (a->kernel[0] - 1) / 2, p->bottom = a->kernel[0] - 1 - p->top;
        p->left = (a->kernel[1] - 1) / 2, p->right = a->kernel[1] - 1 - p->left;
    }
    const int64_t tall = a->kernel[0] / 2, wide = a->kernel[1] / 2;
    if (p->top > tall || p->bottom > tall || p->left > wide || p->right > wide)
        return dr_infer_wrong(c, "padding",
                              "padding [top %lld, left %lld, bottom %lld, right %lld] must be at "
                              "most half the kernel %lldx%lld",
                              (long long)p->top, (long long)p->left, (long long)p->bottom,
                              (long long)p->right, (long long)a->kernel[0],
                              (long long)a->kernel[1]);
    return true;
}

/* How many windows there are along an axis; below 1: none fits. Rounded up, the last one must still
 * start inside the image or the padding before it (torch's pooling_output_shape). */
static int64_t windows(int64_t padded, int64_t start, int64_t kernel, int64_t stride, bool ceil) {
    const int64_t room = padded - kernel + (ceil ? stride - 1 : 0);
    if (room < 0)
        return 0;
    const int64_t n = room / stride + 1;
    return ceil && (n - 1) * stride >= start ? n - 1 : n;
}

bool dr_pool_infer(struct dr_infer *c) {
    struct dr_pool_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]"))
        return false;
    for (int i = 0; i < 2; i++)
        a->stride[i] = a->stride[i] ? a->stride[i] : a->kernel[i];
    if (!settle_padding(c, a))
        return false;
    const struct dr_padding *p = &a->padding;
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    const int64_t h = s.dim[1] + p->top + p->bottom, w = s.dim[2] + p->left + p->right;
    s.dim[1] = windows(h, s.dim[1] + p->top, a->kernel[0], a->stride[0], a->ceil_mode);
    s.dim[2] = windows(w, s.dim[2] + p->left, a->kernel[1], a->stride[1], a->ceil_mode);
    if (s.dim[1] < 1 || s.dim[2] < 1)
        return dr_infer_wrong(c, "kernel", "kernel %lldx%lld > padded input %lldx%lld",
                              (long long)a->kernel[0], (long long)a->kernel[1], (long long)h,
                              (long long)w);
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}

struct dr_pool dr_pool_of(const struct dr_pool_attrs *a, const struct dr_shape *x,
                          const struct dr_shape *y) {
    return (struct dr_pool){
        .n = x->dim[0],
        .h = x->dim[1],
        .w = x->dim[2],
        .c = x->dim[3],
        .ho = y->dim[1],
        .wo = y->dim[2],
        .kh = a->kernel[0],
        .kw = a->kernel[1],
        .sh = a->stride[0],
        .sw = a->stride[1],
        .pt = a->padding.top,
        .pl = a->padding.left,
        .pb = a->padding.bottom,
        .pr = a->padding.right,
    };
}
