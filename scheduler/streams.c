/* streams: which stream each node runs on, and the order of nodes.
 *
 * Before: stages and depths. After: policy, reason, n_streams, stream[], order[]. Every stream runs
 * its nodes in `order`, a topological order of one slot, so any assignment is correct; policies
 * differ in what can run at once. No policy depends on anything measured: `auto` is `stage` until
 * something was. */
#include "scheduler/streams.h"

#define LIST_STREAMS 4u /* `list` without `streams:`: more branches seldom pay */

static void stage_streams(struct dr_plan *p, uint32_t cap) {
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->stream[v] = p->stage[v] < cap ? p->stage[v] : (uint8_t)(cap - 1);
    }
}

/* A device with a copy engine copies in order anyway; on one stream, what follows the last copy of
 * a step knows that the step's slot of the input ring is free. */
static void one_copy_stream(struct dr_plan *p) {
    uint32_t first = DR_NONE;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        if (p->g->node.at[v].role == DR_ROLE_DATA) {
            first = first == DR_NONE ? v : first;
            p->stream[v] = p->stream[first];
        }
    }
}

/* Numbers the streams in use from 0, in the order of their first node. */
static void number_streams(struct dr_plan *p) {
    uint8_t to[DR_MAX_STREAMS];
    bool used[DR_MAX_STREAMS] = {false};
    p->n_streams = 0;
    for (uint32_t s = 0; s < p->n_nodes; s++) {
        used[p->stream[s]] = true;
    }
    for (uint32_t s = 0; s < DR_MAX_STREAMS; s++) {
        to[s] = (uint8_t)p->n_streams;
        p->n_streams += used[s];
    }
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->stream[v] = to[p->stream[v]];
    }
    p->n_streams = p->n_streams ? p->n_streams : 1;
}

static const char *why_stage(struct dr_plan *p, const struct dr_plan_wish *w, uint32_t cap) {
    if (w->policy == DR_POLICY_MATCHING) {
        return dr_printf(p->arena, "matching is for at most %u nodes: one stream a stage instead",
                         DR_MATCHING_MAX_NODES);
    }
    const char *why = w->policy == DR_POLICY_AUTO ? "nothing was measured" : "asked for";
    if (p->n_stages > cap) {
        return dr_printf(p->arena, "%s; %u stages on %u stream%s", why, p->n_stages, cap,
                         cap == 1 ? "" : "s");
    }
    return dr_printf(p->arena, "%s; one stream a stage", why);
}

bool dr_plan_streams(struct dr_plan *p, const struct dr_plan_wish *w,
                     const struct dr_device_info *dev) {
    struct dr_arena *a = dr_arena_create();
    uint32_t cap = w->streams == DR_AUTO ? DR_MAX_STREAMS : (uint32_t)w->streams;
    cap = cap < 1 ? 1 : cap > DR_MAX_STREAMS ? DR_MAX_STREAMS : cap;
    p->stream = DR_NEW_N(p->arena, uint8_t, p->n_nodes + 1);
    p->order = DR_NEW_N(p->arena, uint32_t, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->order[v] = v; /* program order */
    }
    p->policy = w->policy == DR_POLICY_AUTO ? DR_POLICY_STAGE : w->policy;
    if (p->policy == DR_POLICY_MATCHING && p->n_nodes > DR_MATCHING_MAX_NODES) {
        p->policy = DR_POLICY_STAGE;
    }
    struct dr_slot_dag dag;
    switch (p->policy) {
    case DR_POLICY_SEQUENTIAL:
        p->reason = "asked for; one stream";
        break;
    case DR_POLICY_MATCHING: {
        dag = dr_slot_dag_make(p, a);
        uint32_t chains = dr_streams_matching(p, &dag, cap, a);
        p->reason = chains > cap
                        ? dr_printf(p->arena, "asked for; %u chains on %u streams", chains, cap)
                        : "asked for; one stream a chain";
        break;
    }
    case DR_POLICY_LIST:
        cap = w->streams == DR_AUTO ? LIST_STREAMS : cap;
        dag = dr_slot_dag_make(p, a);
        dr_streams_list(p, &dag, cap, dev, a);
        p->reason = dr_printf(p->arena, "asked for; at most %u stream%s", cap, cap == 1 ? "" : "s");
        break;
    default:
        stage_streams(p, cap);
        p->reason = why_stage(p, w, cap);
        break;
    }
    if (dev->copies_ahead) {
        one_copy_stream(p);
    }
    number_streams(p);
    dr_arena_destroy(a);
    return true;
}
