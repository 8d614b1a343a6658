/* proof: is the plan one at all, and which byte ranges do its operands touch? */
#include "scheduler/proof.h"
#include <stdlib.h>
#include <string.h>

/* ---- structure: is this a plan at all? ---- */
static bool broken(struct dr_race *race, uint32_t first, uint32_t second, const char *text) {
    *race = (struct dr_race){.found = true, .first = first, .second = second, .text = text};
    return false;
}

static const char *node_name(const struct dr_proof *c, uint32_t v) {
    return v < c->p->n_nodes ? c->g->node.at[v].name : "?";
}

static bool check_streams(const struct dr_proof *c, struct dr_race *race) {
    const struct dr_plan *p = c->p;
    uint32_t n = p->n_nodes, *position = DR_NEW_N(c->a, uint32_t, n + 1), listed = 0;
    memset(position, 0xff, n * sizeof *position);
    if (p->n_streams < 1 || p->n_streams > DR_MAX_STREAMS || p->unroll < 1) {
        return broken(race, DR_NONE, DR_NONE, "the plan has no streams or no slots");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (p->order[i] >= n || position[p->order[i]] != DR_NONE) {
            return broken(race, DR_NONE, DR_NONE, "the order is not one of all nodes");
        }
        position[p->order[i]] = i;
    }
    for (uint32_t s = 0; s < p->n_streams; s++) {
        for (uint32_t i = p->stream_first[s]; i < p->stream_first[s + 1]; i++, listed++) {
            uint32_t v = i < n ? p->stream_node[i] : DR_NONE;
            if (v >= n || p->stream[v] != s) {
                return broken(race, DR_NONE, v, "a stream lists a node that is not its own");
            }
            uint32_t u = i > p->stream_first[s] ? p->stream_node[i - 1] : DR_NONE;
            if (u != DR_NONE && position[u] >= position[v]) {
                return broken(race, u, v,
                              dr_printf(c->out,
                                        "stream %u runs '%s' before '%s', against the order", s,
                                        node_name(c, u), node_name(c, v)));
            }
        }
    }
    if (listed != n) {
        return broken(race, DR_NONE, DR_NONE, "the streams do not list every node once");
    }
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t i = p->wait_first[v]; i < p->wait_first[v + 1]; i++) {
            const struct dr_wait *w = &p->wait.at[i];
            if (w->to != v || w->from >= n || (w->slots == 0 && position[w->from] >= position[v])) {
                return broken(race, w->from, v,
                              dr_printf(c->out, "deadlock: '%s' waits for '%s', which comes later",
                                        node_name(c, v), node_name(c, w->from)));
            }
        }
    }
    return true;
}

/* The addresses lie in the slab and say what the buffer table says. */
static bool check_addresses(const struct dr_proof *c, struct dr_race *race) {
    const struct dr_plan *p = c->p;
    for (uint32_t phase = 0; phase < p->unroll; phase++) {
        const uint64_t *at = p->address + (size_t)phase * p->n_operands;
        for (uint32_t v = 0; v < p->n_nodes; v++) {
            const struct dr_node *n = &c->g->node.at[v];
            for (uint32_t i = 0; i < n->n_in + n->n_out; i++, at++) {
                uint32_t x = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
                const struct dr_buffer *b = &p->buffer[x];
                uint64_t bytes = (uint64_t)c->g->value.at[x].bytes;
                bool inside = *at <= p->slab_bytes && bytes <= p->slab_bytes - *at;
                bool tells = b->depth > 0 && p->unroll % b->depth == 0 &&
                             *at == b->offset + b->stride * ((phase + p->stage[v]) % b->depth);
                if (!inside || !tells || *at % DR_ALIGN != 0) {
                    return broken(race, v, v,
                                  dr_printf(c->out, "'%s' finds '%s' at %llu in phase %u: %s",
                                            n->name, c->g->value.at[x].name,
                                            (unsigned long long)*at, phase,
                                            !inside  ? "outside the slab"
                                            : !tells ? "not one of its buffers' addresses"
                                                     : "not aligned"));
                }
            }
        }
    }
    return true;
}

bool dr_proof_structure(struct dr_proof *c, struct dr_race *race) {
    return check_streams(c, race) && check_addresses(c, race);
}

/* ---- elementary ranges ---- */
static int by_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t edge_at(const struct dr_proof *c, uint64_t offset) {
    uint32_t low = 0, high = c->n_edge;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->edge[middle] < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct dr_proof_range range_of(const struct dr_proof *c, uint64_t offset, uint64_t bytes) {
    return (struct dr_proof_range){.from = edge_at(c, offset), .to = edge_at(c, offset + bytes)};
}

static uint64_t operand_bytes(const struct dr_graph *g, uint32_t v, uint32_t i) {
    const struct dr_node *n = &g->node.at[v];
    return (uint64_t)g->value.at[i < n->n_in ? n->in[i] : n->out[i - n->n_in]].bytes;
}

static void collect_edges(struct dr_proof *c) {
    const struct dr_plan *p = c->p;
    uint32_t n = 0;
    c->edge = DR_NEW_N(c->a, uint64_t, 2 * ((size_t)p->unroll * p->n_operands + p->n_nodes) + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        uint32_t operands = c->g->node.at[v].n_in + c->g->node.at[v].n_out;
        for (uint32_t i = 0; i < operands; i++) {
            uint64_t first = p->address[p->operand_first[v] + i];
            for (uint32_t phase = 0; phase < p->unroll; phase++) {
                uint64_t at = p->address[(size_t)phase * p->n_operands + p->operand_first[v] + i];
                if (phase == 0 || at != first) {
                    c->edge[n++] = at;
                    c->edge[n++] = at + operand_bytes(c->g, v, i);
                }
            }
        }
        if (p->choice[v].workspace_bytes > 0) {
            c->edge[n++] = p->workspace_offset[v];
            c->edge[n++] = p->workspace_offset[v] + (uint64_t)p->choice[v].workspace_bytes;
        }
    }
    if (n > 1) {
        qsort(c->edge, n, sizeof *c->edge, by_u64);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || c->edge[i] != c->edge[i - 1]) {
            c->edge[c->n_edge++] = c->edge[i];
        }
    }
}

void dr_proof_layout(struct dr_proof *c, uint32_t extra) {
    const struct dr_plan *p = c->p;
    collect_edges(c);
    c->n_ranges = c->n_edge + extra;
    c->operand = DR_NEW_N(c->a, struct dr_proof_range, (size_t)p->unroll * p->n_operands + 1);
    c->workspace = DR_NEW_N(c->a, struct dr_proof_range, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        uint32_t operands = c->g->node.at[v].n_in + c->g->node.at[v].n_out;
        for (uint32_t phase = 0; phase < p->unroll; phase++) {
            for (uint32_t i = 0; i < operands; i++) {
                size_t at = (size_t)phase * p->n_operands + p->operand_first[v] + i;
                c->operand[at] = range_of(c, p->address[at], operand_bytes(c->g, v, i));
            }
        }
        if (p->choice[v].workspace_bytes > 0) {
            c->workspace[v] =
                range_of(c, p->workspace_offset[v], (uint64_t)p->choice[v].workspace_bytes);
        }
    }
}
