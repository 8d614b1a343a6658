/* What the modes say: the object of --json, the summary and the layer table of --check. */
#include "scheduler/cli.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- JSON ---- */

/* JSON has no NaN or infinity: null. */
static json_t *number(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *numbers(const struct dr_number *n, uint32_t count) {
    json_t *j = json_object();
    for (uint32_t i = 0; i < count; i++)
        json_object_set_new(j, n[i].name, number(n[i].mean));
    return j;
}

static json_t *losses(const struct dr_tally *t) {
    json_t *j = numbers(t->loss, t->n_losses);
    if (t->n_losses)
        json_object_set_new(j, "total", number(t->total_mean));
    return j;
}

static void add_run(json_t *j, const struct dr_session *s, const struct dr_results *r) {
    const double rate = r->seconds > 0 ? (double)(r->steps - r->first) / r->seconds : 0;
    json_object_set_new(j, "steps", json_integer(r->steps));
    json_object_set_new(j, "seconds", number(r->seconds));
    json_object_set_new(j, "steps_per_s", number(rate));
    json_object_set_new(j, "images_per_s", number(rate * (double)s->main.graph->batch));
    if (r->loss_scale > 0) {
        json_object_set_new(j, "loss_scale", number(r->loss_scale));
        json_object_set_new(j, "skipped_steps", json_integer(r->skipped));
    }
    json_object_set_new(j, "losses",
                        losses(s->mode == DR_MODE_TRAIN || !r->evaluated ? &r->train : &r->eval));
    json_object_set_new(j, "metrics",
                        numbers(r->eval.metric, r->evaluated ? r->eval.n_metrics : 0));
}

static void add_bench(json_t *j, const struct dr_bench *b) {
    json_object_set_new(j, "steps", json_integer(b->steps));
    json_object_set_new(j, "seconds", number(b->seconds));
    json_object_set_new(j, "steps_per_s", number(b->steps_per_s));
    json_object_set_new(j, "images_per_s", number(b->images_per_s));
    json_object_set_new(j, "median", number(b->median_s));
    json_object_set_new(j, "p5", number(b->p5_s));
    json_object_set_new(j, "p95", number(b->p95_s));
    json_object_set_new(j, "host_us_per_step", number(b->host_us));
}

static void add_trace(json_t *j, const struct dr_trace *t) {
    struct dr_trace_summary s;
    dr_trace_summarise(t, &s);
    json_object_set_new(
        j, "trace",
        json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "records", (json_int_t)dr_trace_records(t),
                  "dropped", (json_int_t)dr_trace_dropped(t), "blocks", (json_int_t)s.blocks,
                  "busy_s", number(s.busy_s), "idle", number(s.idle), "gap_us", number(s.gap_us)));
}

/* What the device has given, to the plan and to what executes it; on a CPU to the process. */
static uint64_t memory_used(const struct dr_session *s) {
    return s->device ? s->ops->memory_used(s->device) : 0;
}

struct json_t *dr_report_json(const struct dr_session *s, const struct dr_results *r,
                              const struct dr_bench *b, bool nodes) {
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:s}", "model", s->model->name, "version",
                          DR_VERSION, "seed", (json_int_t)s->model->seed, "device", s->dev.name,
                          "precision", dr_report_precision(s));
    if (!j)
        return NULL;
    if (r)
        add_run(j, s, r);
    if (b)
        add_bench(j, b);
    if (r || b)
        json_object_set_new(j, "memory_used_bytes", json_integer((json_int_t)memory_used(s)));
    if (s->trace && (r || b))
        add_trace(j, s->trace);
    json_object_set_new(j, "plan", dr_plan_json(s->main.plan, nodes));
    return j;
}

const char *dr_report_precision(const struct dr_session *s) {
    const bool tensor_cores = s->dev.tf32_flops_per_s > 0;
    const enum dr_dtype half = s->main.graph ? s->main.graph->half : dr_half_of(s->model, &s->dev);
    if (half != DR_F32)
        return half == DR_F16 ? "fp16" : "bf16";
    return s->model->precision != DR_PRECISION_FP32 && tensor_cores ? "tf32" : "fp32";
}

/* ---- text ---- */

void dr_report_numbers(const struct dr_tally *t, bool last, struct dr_text *out) {
    const char *comma = "";
    if (t->n_losses > 1) {
        dr_text_add(out, "loss %.6g", last ? t->total_last : t->total_mean);
        comma = ", ";
    }
    for (uint32_t i = 0; i < t->n_losses; i++, comma = ", ")
        dr_text_add(out, "%s%s %.6g", comma, t->loss[i].name,
                    last ? t->loss[i].last : t->loss[i].mean);
    for (uint32_t i = 0; i < t->n_metrics; i++, comma = ", ")
        dr_text_add(out, "%s%s %.6g", comma, t->metric[i].name, t->metric[i].mean);
}

void dr_report_memory(const struct dr_session *s, struct dr_text *t) {
    const struct dr_plan *p = s->main.plan;
    dr_text_add(t, "planned %s, in use %s, bound %s", dr_bytes_text(t->arena, p->slab_bytes),
                dr_bytes_text(t->arena, memory_used(s)),
                dr_bytes_text(t->arena, p->lower_bound_bytes));
}

void dr_report_trace(const struct dr_session *s, const char *file, struct dr_text *t) {
    const struct dr_trace *trace = s->trace;
    const unsigned long long dropped = dr_trace_dropped(trace);
    struct dr_trace_summary x;
    dr_trace_summarise(trace, &x);
    dr_text_add(t, "trace: ");
    if (x.blocks) {
        dr_text_add(t, "%llu blocks, %s idle %.1f %%", (unsigned long long)x.blocks,
                    s->dev.cuda ? "GPU" : "CPU", x.idle * 100);
        if (isfinite(x.gap_us))
            dr_text_add(t, " (median gap between blocks %.1f us)", x.gap_us);
        dr_text_add(t, "; ");
    }
    dr_text_add(t, "%llu records in %s", (unsigned long long)dr_trace_records(trace), file);
    if (dropped)
        dr_text_add(t, ", %llu dropped", dropped);
}

struct parameters {
    int64_t trainable, frozen;
};

static struct parameters count_parameters(const struct dr_graph *g) {
    struct parameters n = {0};
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        int64_t elements;
        if (v->kind != DR_STATE || v->cls != DR_WEIGHT || !dr_shape_elements(&v->shape, &elements))
            continue;
        *(v->frozen ? &n.frozen : &n.trainable) += elements;
    }
    return n;
}

void dr_report_check(const struct dr_session *s, struct dr_text *t) {
    static const char *const modes[] = {"training", "evaluation", "inference"};
    const struct dr_plan *p = s->main.plan;
    const struct dr_graph *g = s->main.graph;
    const struct parameters n = count_parameters(g);
    double flops = 0;
    for (uint32_t i = 0; i < g->node.n; i++)
        flops += p->cost[i].flops;
    dr_text_add(t, "%s: %s plan, %u nodes, %lld trainable and %lld frozen parameters\n",
                s->model->name, modes[g->mode], g->node.n, (long long)n.trainable,
                (long long)n.frozen);
    dr_text_add(t, "  %.3g MFLOP a step of %lld samples\n", flops / 1e6, (long long)g->batch);
    dr_text_add(t, "  policy %s: %u stage%s, %u stream%s, %u wait%s\n", dr_policy_name(p->policy),
                p->n_stages, p->n_stages == 1 ? "" : "s", p->n_streams,
                p->n_streams == 1 ? "" : "s", p->wait.n, p->wait.n == 1 ? "" : "s");
    dr_text_add(t, "  memory %s (bound %s, without reuse %s); proved free of races\n",
                dr_bytes_text(t->arena, p->slab_bytes),
                dr_bytes_text(t->arena, p->lower_bound_bytes),
                dr_bytes_text(t->arena, p->no_reuse_bytes));
}

static bool is_cast(const struct dr_node *n) {
    return !strcmp(n->op->name, "cast");
}

/* What a node reads; of a cast's output: what that read. */
static const struct dr_value *behind_cast(const struct dr_graph *g, uint32_t value) {
    const struct dr_value *v = &g->value.at[value];
    const struct dr_node *n = v->producer == DR_NONE ? NULL : &g->node.at[v->producer];
    for (uint32_t i = 0; n && is_cast(n) && i < n->n_out; i++)
        if (n->out[i] == value)
            return &g->value.at[n->in[i]];
    return v;
}

static int64_t node_parameters(const struct dr_graph *g, const struct dr_node *n) {
    int64_t sum = 0, elements;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct dr_value *v = behind_cast(g, n->in[i]);
        if (v->kind == DR_STATE && v->cls == DR_WEIGHT && dr_shape_elements(&v->shape, &elements))
            sum += elements;
    }
    return sum;
}

void dr_report_layers(const struct dr_session *s, struct dr_text *t) {
    const struct dr_plan *p = s->main.plan;
    const struct dr_graph *g = s->main.graph;
    int width = 4;
    for (uint32_t i = 0; i < g->node.n; i++)
        if ((int)strlen(g->node.at[i].name) > width)
            width = (int)strlen(g->node.at[i].name);
    width = width > 48 ? 48 : width;
    dr_text_add(t, "  %-*s %-31s %-22s %10s %12s %5s %6s  kernel\n", width, "node", "op", "shape",
                "parameters", "FLOPs", "stage", "stream");
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const char *op = n->fused ? n->fused : n->op->name;
        const struct dr_value *v = n->n_out ? &g->value.at[n->out[0]] : NULL;
        const char *shape = v ? dr_shape_text(t->arena, &v->shape) : "";
        if (v && (v->dtype == DR_F16 || v->dtype == DR_BF16))
            shape = dr_printf(t->arena, "%s %s", dr_dtype_name(v->dtype), shape);
        const bool owns = (n->role == DR_ROLE_FORWARD || n->role == DR_ROLE_AUGMENT) && !is_cast(n);
        dr_text_add(t, "  %-*s %-31s %-22s %10lld %12.4g %5u %6u  %s", width, n->name, op, shape,
                    (long long)(owns ? node_parameters(g, n) : 0), p->cost[i].flops, p->stage[i],
                    p->stream[i], p->choice[i].kernel ? p->choice[i].kernel : "-");
        if (p->choice[i].us > 0)
            dr_text_add(t, ", %.1f us", p->choice[i].us);
        dr_text_add(t, "\n");
    }
}
