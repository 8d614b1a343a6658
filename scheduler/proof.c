/* proof: walks the finished plan over prologue -> block -> block -> remainder -> epilogue and
 * checks that of any two accesses to a byte, one of them a write, one happens before the other, and
 * that every read finds what its producer wrote for its step.
 *
 * It reads only what an executor reads (stream lists, waits, stages, addresses, the values' sizes)
 * and shares no reasoning with the files that made the plan. Vector clocks as in FastTrack
 * (Flanagan and Freund, PLDI 2009): a shadow per elementary byte range keeps the last write and, by
 * stream, the reads since. The host is one more stream: before a block it reads the records of the
 * block before the last and fills ring slots that were released; ring slots and records are bytes
 * too, behind the slab.
 *
 * Nodes are visited in plan order, slot by slot, which is one possible execution; a race is found
 * in any one of them if there is one. Of several races it names one inside a full block, between
 * the first node that meets one and the latest access that it races with. */
#include "scheduler/proof.h"
#include <string.h>

struct walk {
    struct dr_proof c;
    uint32_t without;
    uint32_t *before;      /* by operand: the last writer of that state before its node; DR_NONE */
    uint32_t *last_writer; /* by value: of a state, in a step; DR_NONE */
    int64_t steps, t0;     /* of the run; first slot of the block */
    uint32_t top;          /* highest stage */
    uint32_t *now;         /* [width][width] clock of each stream and the host */
    uint32_t *clock;       /* [unroll][nodes][width] of this block */
    uint32_t *data, n_data, *data_index; /* data nodes; by node its place among them */
    uint32_t *released;                  /* [n_data][ring_slots][width] clock of a copy */
    int64_t *copied;                     /* by data node: steps copied */
    uint32_t records, *record_clock;     /* [records][width] clock of a readback */
    uint32_t ring_base, record_base;     /* their ranges */
    int64_t filled, read_back;           /* steps, by the host */
    uint32_t seq;
    bool full; /* every node of the block is active */
    struct dr_race race;
    bool race_in_full;
};

static void join(uint32_t *into, const uint32_t *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        into[i] = from[i] > into[i] ? from[i] : into[i];
    }
}

static uint32_t *now_of(struct walk *w, uint32_t stream) {
    return w->now + (size_t)stream * w->c.width;
}

static void begin_access(struct walk *w, uint32_t stream, uint32_t node, uint32_t phase) {
    uint32_t *clock = now_of(w, stream);
    w->c.clock = clock;
    w->c.current = (struct dr_epoch){
        .stream = stream, .time = clock[stream], .seq = ++w->seq, .node = node, .phase = phase};
    w->c.found = false;
}

static void end_access(struct walk *w) {
    if (w->c.found && (!w->race.found || (w->full && !w->race_in_full))) {
        w->race = dr_proof_race(&w->c);
        w->race_in_full = w->full;
    }
}

/* ---- set-up ---- */
static void find_writers(struct walk *w) {
    const struct dr_graph *g = w->c.g;
    w->before = DR_NEW_N(w->c.a, uint32_t, w->c.p->n_operands + 1);
    w->last_writer = DR_NEW_N(w->c.a, uint32_t, g->value.n + 1);
    memset(w->last_writer, 0xff, g->value.n * sizeof *w->last_writer);
    for (uint32_t v = 0; v < g->node.n; v++) { /* ids are program order */
        const struct dr_node *n = &g->node.at[v];
        for (uint32_t i = 0; i < n->n_in; i++) {
            w->before[w->c.p->operand_first[v] + i] = w->last_writer[n->in[i]];
        }
        for (uint32_t i = 0; i < n->n_out; i++) {
            w->last_writer[n->out[i]] = v;
        }
    }
}

static void set_up(struct walk *w) {
    const struct dr_plan *p = w->c.p;
    struct dr_arena *a = w->c.a;
    w->data = DR_NEW_N(a, uint32_t, p->n_nodes + 1);
    w->data_index = DR_NEW_N(a, uint32_t, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        w->top = p->stage[v] > w->top ? p->stage[v] : w->top;
        if (w->c.g->node.at[v].role == DR_ROLE_DATA) {
            w->data_index[v] = w->n_data;
            w->data[w->n_data++] = v;
        }
    }
    w->records = 2 * p->unroll; /* the host reads a block's records two blocks later */
    dr_proof_layout(&w->c, w->n_data * p->ring_slots + w->records);
    w->ring_base = w->c.n_edge;
    w->record_base = w->ring_base + w->n_data * p->ring_slots;
    size_t width = w->c.width;
    w->c.shadow = DR_NEW_N(a, struct dr_shadow, w->c.n_ranges + 1);
    w->c.read = DR_NEW_N(a, struct dr_epoch, width * w->c.n_ranges + 1);
    w->now = DR_NEW_N(a, uint32_t, width * width);
    w->clock = DR_NEW_N(a, uint32_t, width * p->n_nodes * p->unroll + 1);
    w->released = DR_NEW_N(a, uint32_t, width * w->n_data * p->ring_slots + 1);
    w->copied = DR_NEW_N(a, int64_t, w->n_data + 1);
    w->record_clock = DR_NEW_N(a, uint32_t, width * w->records);
    dr_proof_initial(&w->c);
    find_writers(w);
    /* two full blocks, then part of one */
    w->steps = 2 * (int64_t)p->unroll + w->top + p->unroll / 2;
}

/* ---- the host ---- */
static struct dr_proof_range ring_range(const struct walk *w, uint32_t d, int64_t step) {
    uint32_t slots = w->c.p->ring_slots;
    uint32_t at = w->ring_base + d * slots + (uint32_t)(step % slots);
    return (struct dr_proof_range){at, at + 1};
}

static struct dr_proof_range record_range(const struct walk *w, int64_t step) {
    uint32_t at = w->record_base + (uint32_t)(step % w->records);
    return (struct dr_proof_range){at, at + 1};
}

/* Before a block is launched the host has read the records up to the block before the last. */
static void host_reads(struct walk *w) {
    uint32_t host = w->c.width - 1, readback = w->c.g->readback;
    if (readback == DR_NONE) {
        return;
    }
    int64_t until = w->t0 - w->c.p->unroll + w->c.p->stage[readback];
    for (; w->read_back < until && w->read_back < w->steps; w->read_back++) {
        const uint32_t *done = w->record_clock + (size_t)(w->read_back % w->records) * w->c.width;
        join(now_of(w, host), done, w->c.width);
        now_of(w, host)[host]++;
        begin_access(w, host, DR_NONE, 0);
        dr_proof_read(&w->c, record_range(w, w->read_back), DR_PROOF_RECORD,
                      (struct dr_tag){DR_PROOF_RECORD, readback, w->read_back});
        end_access(w);
    }
}

/* Fills a slot once every copy out of it was released. */
static void host_fills(struct walk *w) {
    const struct dr_plan *p = w->c.p;
    uint32_t host = w->c.width - 1;
    int64_t ahead = 0;
    for (uint32_t d = 0; d < w->n_data; d++) {
        ahead = p->stage[w->data[d]] > ahead ? p->stage[w->data[d]] : ahead;
    }
    int64_t until = w->t0 + p->unroll + ahead;
    for (; w->n_data > 0 && w->filled < until && w->filled < w->steps; w->filled++) {
        now_of(w, host)[host]++;
        for (uint32_t d = 0; d < w->n_data; d++) {
            int64_t old = w->filled - p->ring_slots;
            if (old >= 0 && w->copied[d] <= old && !w->race.found) {
                w->race = (struct dr_race){.found = true, .first = DR_NONE, .second = w->data[d]};
                w->race.text = dr_printf(
                    w->c.out,
                    "deadlock: %u slots of the input ring do not last: the host must fill "
                    "step %lld before '%s' has copied step %lld",
                    p->ring_slots, (long long)w->filled, w->c.g->node.at[w->data[d]].name,
                    (long long)old);
            }
            if (old >= 0) {
                size_t at = (size_t)d * p->ring_slots + (size_t)(old % p->ring_slots);
                join(now_of(w, host), w->released + at * w->c.width, w->c.width);
            }
        }
        for (uint32_t d = 0; d < w->n_data; d++) {
            begin_access(w, host, DR_NONE, 0);
            dr_proof_write(&w->c, ring_range(w, d, w->filled), DR_PROOF_RING,
                           (struct dr_tag){DR_PROOF_RING, DR_NONE, w->filled});
            end_access(w);
        }
    }
}

/* ---- the device ---- */
static struct dr_tag expected(const struct walk *w, uint32_t x, uint32_t operand, int64_t step) {
    const struct dr_value *v = &w->c.g->value.at[x];
    if (v->kind == DR_STEP) {
        return (struct dr_tag){x, v->producer, step};
    }
    if (w->before[operand] != DR_NONE) {
        return (struct dr_tag){x, w->before[operand], step};
    }
    if (w->last_writer[x] != DR_NONE && step > 0) {
        return (struct dr_tag){x, w->last_writer[x], step - 1};
    }
    return (struct dr_tag){x, DR_NONE, -1};
}

static void run_node(struct walk *w, uint32_t v, uint32_t phase, int64_t step) {
    const struct dr_plan *p = w->c.p;
    const struct dr_node *n = &w->c.g->node.at[v];
    uint32_t first = p->operand_first[v];
    const struct dr_proof_range *range = w->c.operand + (size_t)phase * p->n_operands + first;
    begin_access(w, p->stream[v], v, phase);
    dr_proof_write(&w->c, w->c.workspace[v], DR_PROOF_WORKSPACE,
                   (struct dr_tag){DR_PROOF_WORKSPACE, v, step});
    for (uint32_t i = 0; i < n->n_in; i++) {
        dr_proof_read(&w->c, range[i], n->in[i], expected(w, n->in[i], first + i, step));
    }
    if (n->role == DR_ROLE_DATA) {
        uint32_t d = w->data_index[v];
        dr_proof_read(&w->c, ring_range(w, d, step), DR_PROOF_RING,
                      (struct dr_tag){DR_PROOF_RING, DR_NONE, step});
        size_t at = (size_t)d * p->ring_slots + (size_t)(step % p->ring_slots);
        memcpy(w->released + at * w->c.width, w->c.clock, w->c.width * sizeof *w->released);
        w->copied[d] = step + 1;
    }
    if (v == w->c.g->readback) {
        dr_proof_write(&w->c, record_range(w, step), DR_PROOF_RECORD,
                       (struct dr_tag){DR_PROOF_RECORD, v, step});
        memcpy(w->record_clock + (size_t)(step % w->records) * w->c.width, w->c.clock,
               w->c.width * sizeof *w->record_clock);
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        dr_proof_write(&w->c, range[n->n_in + i], n->out[i], (struct dr_tag){n->out[i], v, step});
    }
    end_access(w);
}

static void run_slot(struct walk *w, uint32_t phase) {
    const struct dr_plan *p = w->c.p;
    uint32_t width = w->c.width;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        uint32_t v = p->order[i], s = p->stream[v];
        uint32_t *now = now_of(w, s);
        for (uint32_t k = p->wait_first[v]; k < p->wait_first[v + 1]; k++) {
            const struct dr_wait *wait = &p->wait.at[k];
            if (k != w->without && wait->slots <= phase) {
                size_t at = (size_t)(phase - wait->slots) * p->n_nodes + wait->from;
                join(now, w->clock + at * width, width);
            }
        }
        now[s]++;
        memcpy(w->clock + ((size_t)phase * p->n_nodes + v) * width, now, width * sizeof *now);
        int64_t step = w->t0 + phase + p->stage[v];
        if (step >= 0 && step < w->steps) {
            run_node(w, v, phase, step);
        }
    }
}

static void run_block(struct walk *w) {
    const struct dr_plan *p = w->c.p;
    uint32_t width = w->c.width, host = width - 1;
    host_reads(w);
    host_fills(w);
    w->full = w->t0 >= 0 && w->t0 + p->unroll - 1 + w->top < w->steps;
    for (uint32_t s = 0; s < p->n_streams; s++) { /* fork: the host launched the block */
        join(now_of(w, s), now_of(w, host), width);
    }
    for (uint32_t phase = 0; phase < p->unroll && !w->race_in_full; phase++) {
        run_slot(w, phase);
    }
    for (uint32_t s = 1; s < p->n_streams; s++) { /* barrier */
        join(now_of(w, 0), now_of(w, s), width);
    }
    for (uint32_t s = 1; s < p->n_streams; s++) {
        memcpy(now_of(w, s), now_of(w, 0), width * sizeof *w->now);
    }
    w->full = false;
}

struct dr_race dr_plan_prove(const struct dr_plan *p, uint32_t without, struct dr_arena *a) {
    struct dr_arena *scratch = dr_arena_create();
    struct walk w = {.c = {.p = p, .g = p->g, .a = scratch, .out = a, .width = p->n_streams + 1},
                     .without = without};
    if (dr_proof_structure(&w.c, &w.race)) {
        set_up(&w);
        int64_t prologue = (w.top + p->unroll - 1) / p->unroll;
        for (w.t0 = -prologue * p->unroll; w.t0 < w.steps && !w.race_in_full; w.t0 += p->unroll) {
            run_block(&w);
        }
        w.t0 += p->unroll; /* at the end the host reads what is left */
        host_reads(&w);
    }
    dr_arena_destroy(scratch);
    return w.race.found ? w.race : w.c.lie;
}
