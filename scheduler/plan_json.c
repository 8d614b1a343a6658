/* The `plan` object of --json. */
#include "graph/op.h"
#include "scheduler/plan.h"
#include <jansson.h>

static json_t *nodes_json(const struct dr_plan *p) {
    json_t *list = json_array();
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &p->g->node.at[v];
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:b}", "name", n->name, "op",
                                              n->fused ? n->fused : n->op->name, "stage",
                                              (int)p->stage[v], "stream", (int)p->stream[v],
                                              "frozen", (int)n->frozen));
    }
    return list;
}

struct json_t *dr_plan_json(const struct dr_plan *p, bool nodes) {
    json_t *o = json_object();
    json_object_set_new(o, "policy", json_string(dr_policy_name(p->policy)));
    json_object_set_new(o, "stages", json_integer(p->n_stages));
    json_object_set_new(o, "streams", json_integer(p->n_streams));
    json_object_set_new(o, "waits", json_integer(p->wait.n));
    json_object_set_new(o, "planned_bytes", json_integer((json_int_t)p->slab_bytes));
    json_object_set_new(o, "lower_bound_bytes", json_integer((json_int_t)p->lower_bound_bytes));
    json_object_set_new(o, "no_reuse_bytes", json_integer((json_int_t)p->no_reuse_bytes));
    json_object_set_new(o, "bound_us", json_real(p->bound_us));
    json_object_set_new(o, "predicted_us", json_real(p->predicted_us));
    if (nodes) {
        json_object_set_new(o, "nodes", nodes_json(p));
    }
    return o;
}
