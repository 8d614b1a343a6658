/* --tune: the problems of a session's plans, measured. See tune.h. */
#include "scheduler/tune.h"

#include "scheduler/session.h"

#include <jansson.h>
#include <string.h>

/* ---- the problems ---- */

static void collect(struct dr_arena *a, const struct dr_graph *g, struct dr_map *seen,
                    struct dr_tuning *t) {
    for (uint32_t v = 0; v < g->node.n; v++) {
        const struct dr_node *n = &g->node.at[v];
        struct dr_choice way[DR_WAYS] = {0};
        const uint32_t ways = n->op->ways ? n->op->ways(g, n, way) : 0;
        if (ways < 2) {
            continue;
        }
        const uint32_t known = dr_map_get(seen, way[0].problem);
        if (known != DR_NONE) {
            t->problem.at[known].n_nodes++;
            continue;
        }
        dr_map_put(seen, way[0].problem, t->problem.n);
        struct dr_tune_problem *p = dr_push(a, &t->problem);
        *p = (struct dr_tune_problem){.g = g, .node = v, .n_nodes = 1, .n = ways};
        memcpy(p->way, way, ways * sizeof *way);
    }
}

static void judge(struct dr_tune_problem *p) {
    p->best = 0;
    for (uint32_t i = 1; i < p->n; i++) {
        if (p->us[i] < p->us[p->best]) {
            p->best = i;
        }
    }
    p->better = p->us[p->best] < (1 - DR_TUNE_GAIN) * p->us[0];
}

/* What the file held, of other problems, and what was found better now. */
static const struct dr_tuned *merge(struct dr_session *s, const struct dr_map *seen,
                                    const struct dr_tuning *t) {
    struct dr_tuned *to = DR_NEW(s->arena, struct dr_tuned);
    to->path = dr_tuned_path(s->arena, s->dev.card);
    for (uint32_t i = 0; s->dev.tuned && i < s->dev.tuned->row.n; i++) {
        const struct dr_tuned_row *row = &s->dev.tuned->row.at[i];
        if (dr_map_get(seen, row->problem) == DR_NONE) {
            *dr_push(s->arena, &to->row) = *row;
        }
    }
    for (uint32_t i = 0; i < t->problem.n; i++) {
        const struct dr_tune_problem *p = &t->problem.at[i];
        if (p->better) {
            *dr_push(s->arena, &to->row) =
                (struct dr_tuned_row){p->way[0].problem, p->way[p->best].kernel, p->us[p->best]};
        }
    }
    return to;
}

bool dr_tune(struct dr_session *s, const volatile sig_atomic_t *stop, struct dr_tuning *t) {
    struct dr_map *const seen = dr_map_create(s->arena);
    *t = (struct dr_tuning){0};
    collect(s->arena, s->main.graph, seen, t);
    if (s->with_eval) {
        collect(s->arena, s->eval.graph, seen, t);
    }
    for (uint32_t i = 0; i < t->problem.n; i++) {
        struct dr_tune_problem *p = &t->problem.at[i];
        if (stop && *stop) {
            return dr_session_fail(s, DR_INTERRUPTED, "interrupted; nothing was written");
        }
        const struct dr_status status =
            s->ops->measure(s->device, p->g, p->node, p->way, p->n, p->us);
        if (!dr_session_check(s, status)) {
            return false;
        }
        judge(p);
    }
    t->tuned = merge(s, seen, t);
    if (!t->tuned->path) {
        return dr_session_fail(s, DR_FAILED,
                               "neither XDG_CACHE_HOME nor HOME says where to keep measurements");
    }
    const int error = t->problem.n ? dr_tuned_write(t->tuned, s->dev.card) : 0;
    return !error || dr_session_fail(s, DR_FAILED, "cannot write %.150s: %.60s", t->tuned->path,
                                     strerror(error));
}

/* ---- saying ---- */

static int longest(const struct dr_tuning *t, bool problem) {
    size_t most = 0;
    for (uint32_t i = 0; i < t->problem.n; i++) {
        const struct dr_tune_problem *p = &t->problem.at[i];
        const size_t n = strlen(problem ? p->way[0].problem : p->way[0].kernel);
        most = n > most ? n : most;
    }
    return (int)most;
}

void dr_tune_text(const struct dr_tuning *t, bool verbose, struct dr_text *text) {
    const int wide = longest(t, true), kernel = longest(t, false);
    uint32_t better = 0;
    if (t->problem.n == 0) {
        dr_text_add(text, "nothing to tune: each node of this model has one kernel on this card\n");
        return;
    }
    dr_text_add(text, "  %-*s  %-*s %9s  best\n", wide, "problem", kernel, "model's choice", "us");
    for (uint32_t i = 0; i < t->problem.n; i++) {
        const struct dr_tune_problem *p = &t->problem.at[i];
        dr_text_add(text, "  %-*s  %-*s %9.2f  ", wide, p->way[0].problem, kernel, p->way[0].kernel,
                    p->us[0]);
        if (p->better) {
            dr_text_add(text, "%s %.2f, %.1f %% faster\n", p->way[p->best].kernel, p->us[p->best],
                        100 * (p->us[0] / p->us[p->best] - 1));
        } else {
            dr_text_add(text, "the same\n");
        }
        for (uint32_t k = 0; verbose && k < p->n; k++) {
            dr_text_add(text, "      %-40s %9.2f, expected %.2f\n", p->way[k].kernel, p->us[k],
                        p->way[k].us);
        }
        better += p->better;
    }
    dr_text_add(text, "%u of %u problems have a faster kernel; %u in %s\n", better, t->problem.n,
                t->tuned->row.n, t->tuned->path);
}

struct json_t *dr_tune_json(const struct dr_tuning *t) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < t->problem.n; i++) {
        const struct dr_tune_problem *p = &t->problem.at[i];
        json_t *const ways = json_object();
        for (uint32_t k = 0; k < p->n; k++) {
            json_object_set_new(ways, p->way[k].kernel, json_real(p->us[k]));
        }
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:s, s:s, s:o}", "problem", p->way[0].problem,
                                        "nodes", (int)p->n_nodes, "model", p->way[0].kernel, "kept",
                                        p->way[p->better ? p->best : 0].kernel, "us", ways));
    }
    return list;
}
