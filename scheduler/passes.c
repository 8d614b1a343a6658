/* The pass array. Passes over the graph come first; those over the plan annotate it. */
#include "scheduler/passes.h"

#include <string.h>

typedef bool pass_fn(struct dr_compile *c);
typedef void dump_fn(const struct dr_compile *c);

enum dr_dtype dr_half_of(const struct dr_model *m, const struct dr_device_info *dev) {
    if (m->precision == DR_PRECISION_FP16 && dev->fp16)
        return DR_F16;
    return m->precision == DR_PRECISION_BF16 && dev->bf16 ? DR_BF16 : DR_F32;
}

/* ---- passes ---- */

static bool next_graph(struct dr_compile *c, struct dr_graph *g) {
    c->graph = g;
    return g != NULL;
}

static bool load(struct dr_compile *c) {
    struct dr_graph *g = dr_pass_load(c->model, c->mode, c->total_steps);
    if (g) {
        g->half = dr_half_of(c->model, c->dev);
        g->device = c->dev->caps;
    }
    if (g && g->half == DR_F16 && c->mode == DR_MODE_TRAIN) /* GradScaler's defaults */
        g->scaling = (struct dr_loss_scaling){65536, 2, 0.5, 2000};
    return next_graph(c, g);
}

static bool shapes(struct dr_compile *c) {
    return next_graph(c, dr_pass_shapes(c->graph));
}

static bool frozen(struct dr_compile *c) {
    return next_graph(c, dr_pass_frozen(c->graph));
}

static bool gradients(struct dr_compile *c) {
    return next_graph(c, dr_pass_gradients(c->graph, c->model->ops));
}

static bool precision(struct dr_compile *c) {
    return next_graph(c, dr_pass_precision(c->graph, c->model->ops));
}

static bool fuse(struct dr_compile *c) {
    return next_graph(c, dr_pass_fuse(c->graph, c->model->ops));
}

static bool choose(struct dr_compile *c) {
    c->plan = dr_plan_begin(c->arena, c->graph, &c->wish);
    dr_plan_choose(c->plan, c->dev);
    return true;
}

static bool stages(struct dr_compile *c) {
    return dr_plan_stages(c->plan, &c->wish, c->dev);
}

static bool streams(struct dr_compile *c) {
    return dr_plan_streams(c->plan, &c->wish, c->dev);
}

static bool order(struct dr_compile *c) {
    dr_plan_waits(c->plan);
    return true;
}

static bool memory(struct dr_compile *c) {
    c->too_large = !dr_plan_memory(c->plan, &c->wish) || !dr_plan_fits(c->plan, c->dev);
    return !c->too_large;
}

static bool proof(struct dr_compile *c) {
    const struct dr_race r = dr_plan_prove(c->plan, DR_NONE, c->arena);
    return !r.found || dr_error(c->graph->diag, (struct dr_mark){0}, "internal: %s", r.text);
}

static bool plan(struct dr_compile *c) {
    dr_plan_bound(c->plan, c->dev);
    return true;
}

/* ---- dumps ---- */

static void dump_graph(const struct dr_compile *c) {
    dr_graph_dump(c->graph, c->dump);
}

static void dump_choose(const struct dr_compile *c) {
    for (uint32_t v = 0; v < c->plan->n_nodes; v++)
        dr_text_add(c->dump, "%-40s %-24s %lld bytes of workspace, %g FLOP, %g bytes\n",
                    c->graph->node.at[v].name,
                    c->plan->choice[v].kernel ? c->plan->choice[v].kernel : "-",
                    (long long)c->plan->choice[v].workspace_bytes, c->plan->cost[v].flops,
                    c->plan->cost[v].bytes);
}

static void dump_stages(const struct dr_compile *c) {
    dr_text_add(c->dump, "%u stages, %u steps unrolled\n", c->plan->n_stages, c->plan->unroll);
    for (uint32_t v = 0; v < c->plan->n_nodes; v++)
        dr_text_add(c->dump, "%-40s stage %u\n", c->graph->node.at[v].name, c->plan->stage[v]);
}

static void dump_streams(const struct dr_compile *c) {
    dr_text_add(c->dump, "%u streams\n", c->plan->n_streams);
    for (uint32_t v = 0; v < c->plan->n_nodes; v++)
        dr_text_add(c->dump, "%-40s stage %u stream %u\n", c->graph->node.at[v].name,
                    c->plan->stage[v], c->plan->stream[v]);
}

static void dump_order(const struct dr_compile *c) {
    static const char *const why[] = {"data", "reuse", "state"};
    const struct dr_plan *p = c->plan;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const uint32_t v = p->order[i];
        dr_text_add(c->dump, "%4u %-40s stream %u\n", i, c->graph->node.at[v].name, p->stream[v]);
        for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++)
            dr_text_add(c->dump, "       waits for %s, %u slots back (%s, '%s')\n",
                        c->graph->node.at[p->wait.at[w].from].name, p->wait.at[w].slots,
                        why[p->wait.at[w].why], c->graph->value.at[p->wait.at[w].value].name);
    }
}

static void dump_memory(const struct dr_compile *c) {
    for (uint32_t i = 0; i < c->graph->value.n; i++) {
        const struct dr_buffer *b = &c->plan->buffer[i];
        dr_text_add(c->dump, "%-40s offset %llu, %lld bytes, %u buffer%s%s\n",
                    c->graph->value.at[i].name, (unsigned long long)b->offset,
                    (long long)c->graph->value.at[i].bytes, b->depth, b->depth == 1 ? "" : "s",
                    b->shared ? ", shared" : "");
    }
}

static void dump_proof(const struct dr_compile *c) {
    dr_text_add(c->dump, "no race: %u nodes, %u streams, %u waits\n", c->plan->n_nodes,
                c->plan->n_streams, c->plan->wait.n);
}

static void dump_plan(const struct dr_compile *c) {
    dr_plan_text(c->plan, c->dev, 1, c->dump);
}

/* ---- the array ---- */

static const struct {
    const char *name;
    pass_fn *run;
    dump_fn *dump;
} passes[] = {
    {"load", load, dump_graph},
    {"shapes", shapes, dump_graph},
    {"frozen", frozen, dump_graph},
    {"gradients", gradients, dump_graph},
    {"precision", precision, dump_graph},
    {"fuse", fuse, dump_graph},
    {"choose", choose, dump_choose},
    {"stages", stages, dump_stages},
    {"streams", streams, dump_streams},
    {"order", order, dump_order},
    {"memory", memory, dump_memory},
    {"proof", proof, dump_proof},
    {"plan", plan, dump_plan},
};
enum { PASSES = sizeof passes / sizeof *passes };

uint32_t dr_pass_names(const char *const **names) {
    static const char *all[PASSES];
    for (uint32_t i = 0; i < PASSES; i++)
        all[i] = passes[i].name;
    *names = all;
    return PASSES;
}

bool dr_compile(struct dr_compile *c) {
    c->too_large = false;
    for (uint32_t i = 0; i < PASSES; i++) {
        if (!passes[i].run(c))
            return false;
#ifndef NDEBUG
        const char *why;
        if (!dr_graph_verify(c->graph, &why))
            return dr_error(c->model->diag, (struct dr_mark){0}, "internal: after pass %s: %s",
                            passes[i].name, why);
#endif
        if (c->dump_after && !strcmp(c->dump_after, passes[i].name)) {
            passes[i].dump(c);
            return true;
        }
    }
    return true;
}

struct dr_plan_wish dr_plan_wish_of(const struct dr_model *m) {
    return (struct dr_plan_wish){
        .pipeline = m->schedule.pipeline,
        .streams = m->schedule.streams,
        .policy = m->schedule.policy,
        .graph = m->schedule.graph,
    };
}
