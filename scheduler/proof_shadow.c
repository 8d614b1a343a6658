/* proof: shadow memory. Every elementary byte range keeps its last write, the reads since by
 * stream, and what it holds. An access is checked against them under its stream's vector clock. */
#include "scheduler/proof.h"

/* `e` was before unless the clock has not seen it. A node may read and write one state; any other
 * overlap of its own operands is a race with itself. */
static void meet(struct dr_proof *c, const struct dr_epoch *e, uint32_t range, uint32_t value,
                 bool other_writes, bool writes) {
    if (e->time == 0) {
        return;
    }
    bool self = e->stream == c->current.stream && e->time == c->current.time;
    bool ordered =
        self ? e->value == value && value < c->g->value.n && c->g->value.at[value].kind == DR_STATE
             : c->clock[e->stream] >= e->time;
    if (ordered || (c->found && c->other.seq >= e->seq)) {
        return;
    }
    c->found = true;
    c->other = *e;
    c->other_writes = other_writes;
    c->current_writes = writes;
    c->value = value;
    c->range = range;
}

static const char *node_name(const struct dr_proof *c, uint32_t v) {
    return v == DR_NONE
               ? "the host"
               : dr_printf(c->out, "'%s' (stream %u)", c->g->node.at[v].name, c->p->stream[v]);
}

static const char *value_name(const struct dr_proof *c, uint32_t x) {
    switch (x) {
    case DR_PROOF_NOTHING:
        return "nothing";
    case DR_PROOF_WORKSPACE:
        return "its workspace";
    case DR_PROOF_RING:
        return "a slot of the input ring";
    case DR_PROOF_RECORD:
        return "a record of the readback";
    default:
        return dr_printf(c->out, "'%s'", c->g->value.at[x].name);
    }
}

/* Host memory has no offset in the slab. */
static uint64_t offset_of(const struct dr_proof *c, uint32_t range) {
    return range < c->n_edge ? c->edge[range] : UINT64_MAX;
}

static void tell_lie(struct dr_proof *c, uint32_t range, uint32_t value, struct dr_tag expected) {
    const struct dr_tag *t = &c->shadow[range].tag;
    c->lie = (struct dr_race){.found = true,
                              .first = t->writer,
                              .second = c->current.node,
                              .first_phase = c->shadow[range].write.phase,
                              .second_phase = c->current.phase,
                              .first_value = t->value,
                              .second_value = value,
                              .offset = offset_of(c, range)};
    c->lie.text = dr_printf(
        c->out,
        "wrong bytes: %s in phase %u reads %s of step %lld, but finds %s of step %lld from %s",
        node_name(c, c->current.node), c->current.phase, value_name(c, value),
        (long long)expected.step, value_name(c, t->value), (long long)t->step,
        node_name(c, t->writer));
}

void dr_proof_read(struct dr_proof *c, struct dr_proof_range r, uint32_t value,
                   struct dr_tag expected) {
    for (uint32_t i = r.from; i < r.to; i++) {
        struct dr_shadow *s = &c->shadow[i];
        meet(c, &s->write, i, value, true, false);
        if (!c->lie.found && (s->tag.value != expected.value || s->tag.step != expected.step ||
                              s->tag.writer != expected.writer)) {
            tell_lie(c, i, value, expected);
        }
        struct dr_epoch *e = &c->read[(size_t)i * c->width + c->current.stream];
        *e = c->current;
        e->value = value;
        s->readers |= UINT64_C(1) << c->current.stream;
    }
}

void dr_proof_write(struct dr_proof *c, struct dr_proof_range r, uint32_t value,
                    struct dr_tag tag) {
    for (uint32_t i = r.from; i < r.to; i++) {
        struct dr_shadow *s = &c->shadow[i];
        meet(c, &s->write, i, value, true, true);
        for (uint64_t left = s->readers; left; left &= left - 1) {
            uint32_t stream = (uint32_t)__builtin_ctzll(left);
            meet(c, &c->read[(size_t)i * c->width + stream], i, value, false, true);
        }
        s->readers = 0;
        s->write = c->current;
        s->write.value = value;
        s->tag = tag;
    }
}

void dr_proof_initial(struct dr_proof *c) {
    bool *done = DR_NEW_N(c->a, bool, c->g->value.n + 1);
    for (uint32_t i = 0; i < c->n_ranges; i++) {
        c->shadow[i].tag =
            (struct dr_tag){.value = DR_PROOF_NOTHING, .writer = DR_NONE, .step = -1};
    }
    for (uint32_t v = 0; v < c->p->n_nodes; v++) {
        const struct dr_node *n = &c->g->node.at[v];
        for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
            uint32_t x = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
            if (c->g->value.at[x].kind != DR_STATE || done[x]) {
                continue;
            }
            done[x] = true;
            struct dr_proof_range r = c->operand[c->p->operand_first[v] + i];
            for (uint32_t k = r.from; k < r.to; k++) {
                c->shadow[k].tag = (struct dr_tag){.value = x, .writer = DR_NONE, .step = -1};
            }
        }
    }
}

struct dr_race dr_proof_race(const struct dr_proof *c) {
    struct dr_race r = {.found = true,
                        .first = c->other.node,
                        .second = c->current.node,
                        .first_phase = c->other.phase,
                        .second_phase = c->current.phase,
                        .first_value = c->other.value,
                        .second_value = c->value,
                        .offset = offset_of(c, c->range)};
    r.text = dr_printf(
        c->out, "race: %s %s %s in phase %u while %s %s %s in phase %u%s", node_name(c, r.first),
        c->other_writes ? "writes" : "reads", value_name(c, r.first_value), r.first_phase,
        node_name(c, r.second), c->current_writes ? "writes" : "reads",
        value_name(c, r.second_value), r.second_phase,
        r.offset == UINT64_MAX ? ""
                               : dr_printf(c->out, "; both touch byte %llu of the slab",
                                           (unsigned long long)r.offset));
    return r;
}
