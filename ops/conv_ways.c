/* See conv_ways.h. */
#include "ops/conv_ways.h"

static struct dr_conv_card card_of(const struct dr_graph *g) {
    return (struct dr_conv_card){
        .arch = g->device.arch, .sms = g->device.sms, .hopper = g->device.hopper, .tf32 = g->tf32};
}

struct dr_choice dr_conv_choice(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                                enum dr_conv_pass pass, bool cuda, int64_t workspace_bytes) {
    const struct dr_conv_card card = card_of(g);
    if (!cuda) {
        return (struct dr_choice){.workspace_bytes = workspace_bytes, .kernel = "im2win"};
    }
    const struct dr_conv_way w = dr_cuda_conv_generic_way(c, t, pass, &card);
    return (struct dr_choice){
        .workspace_bytes = workspace_bytes, .kernel = dr_strdup(g->arena, w.name), .us = w.us};
}

static struct dr_choice choice_of(const struct dr_graph *g, const struct dr_conv_way *w,
                                  const char *problem) {
    return (struct dr_choice){.workspace_bytes = w->workspace_bytes,
                              .kernel = dr_strdup(g->arena, w->name),
                              .way = w->way,
                              .us = w->us,
                              .problem = problem,
                              .reason = w->reason};
}

uint32_t dr_conv_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                      enum dr_conv_pass pass, int act, struct dr_choice *way) {
    struct dr_conv_way w[DR_CONV_WAYS];
    const struct dr_conv_card card = card_of(g);
    char text[200];
    _Static_assert((int)DR_CONV_WAYS <= (int)DR_WAYS, "a node has room for them");
    const int n =
        (pass == DR_CONV_DGRAD ? dr_cuda_conv_back_ways : dr_cuda_conv_ways)(c, t, act, &card, w);
    dr_cuda_conv_problem(c, t, pass, act, g->tf32, text, sizeof text);
    const char *const problem = dr_strdup(g->arena, text);
    for (int i = 0; i < n; i++) {
        way[i] = choice_of(g, &w[i], problem);
    }
    return (uint32_t)n;
}

static uint32_t one_way(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t, int act,
                        const struct dr_conv_way *w, const char *what, struct dr_choice *way) {
    char text[200];
    dr_cuda_conv_problem(c, t, DR_CONV_FPROP, act, g->tf32, text, sizeof text);
    way[0] = choice_of(g, w, dr_printf(g->arena, "%s%s", text, what));
    return 1;
}
uint32_t dr_conv_u8_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t, int act,
                         struct dr_choice *way) {
    const struct dr_conv_card card = card_of(g);
    struct dr_conv_way w;
    return dr_cuda_conv_u8_way(c, t, act, &card, &w) ? one_way(g, c, t, act, &w, " of u8", way) : 0;
}
uint32_t dr_conv_pool_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                           int act, struct dr_choice *way) {
    const struct dr_conv_card card = card_of(g);
    struct dr_conv_way w;
    return dr_cuda_conv_pool_way(c, t, act, &card, &w) ? one_way(g, c, t, act, &w, ", pooled", way)
                                                       : 0;
}
