/* The CUDA executor: the plan's streams as CUDA streams, its waits as events, one block as one CUDA
 * Graph captured in thread-local mode. Blocks that are not whole launch the same lists uncaptured.
 *
 * Stream 0 of the plan is the origin: a block forks from it and joins back to it, so blocks follow
 * each other in its order and nothing on the host waits. The host learns of progress from sequence
 * tags in mapped pinned memory (kernels/cuda/tags.cu); after each block a side stream, which
 * nothing waits for, calls back so that a sleeping run loop looks at them. */
#include "ops/common.h"
#include "scheduler/device_cuda.h"
#include "scheduler/trace_cuda.h"
#include "scheduler/tune_cuda.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of cuBLASLt, a stream. Fixed, so that its choice is. */
#define LT_WORKSPACE ((size_t)36 << 20) /* cuBLASLt wants 32; partial sums of convolutions */

struct copy { /* one memcpy node of the captured graph, retargeted before each launch */
    cudaGraphNode_t node;
    uint32_t phase, v;
};

struct cuda_exec {
    struct dr_exec base;
    struct dr_exec_config c;
    const struct dr_plan *plan;
    const struct dr_graph *g;
    uint32_t n_streams;
    struct dr_cuda ctx[DR_MAX_STREAMS];
    cudaStream_t side; /* host callbacks */
    cudaEvent_t fork, block_done, join[DR_MAX_STREAMS];
    cudaEvent_t *event;  /* [unroll * nodes], NULL where nobody waits */
    void **pointer;      /* [unroll * operands] */
    size_t *slot_offset; /* by node: of a data node's input in a ring slot */
    uint32_t last_data;  /* the data node after which a slot is free; DR_NONE */
    cudaGraph_t graph;   /* kept: its nodes name what is retargeted */
    cudaGraphExec_t exec;
    struct copy *copy;
    uint32_t n_copies;
    int32_t *flag; /* mapped: step_checked's finding */
    struct dr_trace_cuda *trace;
};

static uint32_t phase_of(const struct cuda_exec *e, int64_t slot) {
    const int64_t u = e->plan->unroll;
    return (uint32_t)(((slot % u) + u) % u);
}

static void **operands(const struct cuda_exec *e, uint32_t phase, uint32_t v) {
    return e->pointer + (size_t)phase * e->plan->n_operands + e->plan->operand_first[v];
}

static unsigned char *slot_of(const struct cuda_exec *e, int64_t step) {
    const struct dr_ring *r = e->c.ring;
    return r->base + (size_t)(step % r->slots) * r->slot_bytes;
}

/* ---- launching one node ---- */

static int launch_data(struct cuda_exec *e, uint32_t phase, uint32_t v, int64_t step,
                       cudaStream_t s) {
    const struct dr_node *n = &e->g->node.at[v];
    void *const to = operands(e, phase, v)[n->n_in];
    const size_t bytes = (size_t)e->g->value.at[n->out[0]].bytes;
    return (int)cudaMemcpyAsync(to, slot_of(e, step) + e->slot_offset[v], bytes,
                                cudaMemcpyHostToDevice, s);
}

static int launch_readback(struct cuda_exec *e, uint32_t phase, uint32_t v, cudaStream_t s) {
    const struct dr_node *n = &e->g->node.at[v];
    const struct dr_readback *r = e->c.readback;
    struct dr_readback_args a = {.base = r->base,
                                 .done = (unsigned long long *)r->done,
                                 .record_bytes = r->record_bytes,
                                 .slots = r->slots,
                                 .n = n->n_in};
    for (uint32_t i = 0; i < n->n_in; i++) {
        a.from[i] = operands(e, phase, v)[i];
        a.offset[i] = (uint32_t)r->offset[i];
        a.bytes[i] = (uint32_t)e->g->value.at[n->in[i]].bytes;
        if (n->in[i] == e->g->header) {
            a.header = a.from[i];
        }
    }
    return dr_cuda_readback(&a, s);
}

static int launch_op(struct cuda_exec *e, uint32_t phase, uint32_t v, struct dr_cuda *cuda) {
    const struct dr_node *n = &e->g->node.at[v];
    void **const p = operands(e, phase, v);
    const struct dr_launch l = {.node = n,
                                .value = e->g->value.at,
                                .in = p,
                                .out = p + n->n_in,
                                .workspace = e->c.slab.base + e->plan->workspace_offset[v],
                                .choice = &e->plan->choice[v],
                                .seed = e->c.seed};
    return n->op->cuda(&l, cuda);
}

static int launch_node(struct cuda_exec *e, uint32_t phase, uint32_t v, int64_t step,
                       struct dr_cuda *cuda) {
    const struct dr_node *n = &e->g->node.at[v];
    const uint32_t delay_us = e->c.delay_us ? e->c.delay_us[v] : 0;
    int err;
    nvtxRangePushA(n->name);
    if (delay_us && (err = dr_cuda_delay(delay_us, cuda->stream)) != cudaSuccess) {
        nvtxRangePop();
        return err;
    }
    if (n->role == DR_ROLE_DATA) {
        err = launch_data(e, phase, v, step, cuda->stream);
    } else if (n->role == DR_ROLE_READBACK) {
        err = launch_readback(e, phase, v, cuda->stream);
    } else {
        err = launch_op(e, phase, v, cuda);
    }
    nvtxRangePop();
    return err;
}

/* All data nodes share a stream, so a step's slot is free after the last of them. */
static int release_slot(struct cuda_exec *e, uint32_t phase, cudaStream_t s) {
    const struct dr_graph *g = e->g;
    const uint32_t v = g->value.at[g->header].producer;
    const struct dr_batch *header = operands(e, phase, v)[g->node.at[v].n_in];
    return dr_cuda_release(header, (unsigned long long *)e->c.ring->released, e->c.ring->slots, s);
}

/* ---- one block, captured or not ---- */

static int fork_streams(struct cuda_exec *e) {
    int err = (int)cudaEventRecord(e->fork, e->ctx[0].stream);
    for (uint32_t s = 1; s < e->n_streams && !err; s++) {
        err = (int)cudaStreamWaitEvent(e->ctx[s].stream, e->fork, 0);
    }
    return err;
}

static int join_streams(struct cuda_exec *e) {
    int err = cudaSuccess;
    for (uint32_t s = 1; s < e->n_streams && !err; s++) {
        err = (int)cudaEventRecord(e->join[s], e->ctx[s].stream);
        if (!err) {
            err = (int)cudaStreamWaitEvent(e->ctx[0].stream, e->join[s], 0);
        }
    }
    return err;
}

static int wait_for_others(struct cuda_exec *e, uint32_t phase, uint32_t v, cudaStream_t s) {
    const struct dr_plan *p = e->plan;
    int err = cudaSuccess;
    for (uint32_t i = p->wait_first[v]; i < p->wait_first[v + 1] && !err; i++) {
        const struct dr_wait *w = &p->wait.at[i];
        if (w->slots <= phase) {
            err = (int)cudaStreamWaitEvent(
                s, e->event[(size_t)(phase - w->slots) * p->n_nodes + w->from], 0);
        }
    }
    return err;
}

/* The memcpy node that the last capture call on `s` added. */
static int remember_copy(struct cuda_exec *e, uint32_t phase, uint32_t v, cudaStream_t s) {
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *last = NULL;
    size_t n = 0;
    const int err = (int)cudaStreamGetCaptureInfo(s, &status, NULL, NULL, &last, NULL, &n);
    if (err || status != cudaStreamCaptureStatusActive || n != 1) {
        return err ? err : (int)cudaErrorStreamCaptureInvalidated;
    }
    e->copy[e->n_copies++] = (struct copy){last[0], phase, v};
    return cudaSuccess;
}

/* Walks the lists of one block for steps [s0, s1). *at is the node to blame for an error. */
static int walk_block(struct cuda_exec *e, int64_t b, int64_t s0, int64_t s1, bool capturing,
                      uint32_t *at) {
    const struct dr_plan *p = e->plan;
    int err = fork_streams(e);
    for (uint32_t phase = 0; phase < p->unroll && !err; phase++) {
        for (uint32_t i = 0; i < p->n_nodes && !err; i++) {
            const uint32_t v = p->order[i];
            struct dr_cuda *cuda = &e->ctx[p->stream[v]];
            const int64_t step = b * p->unroll + phase + p->stage[v];
            *at = v;
            err = wait_for_others(e, phase, v, cuda->stream);
            if (!err && step >= s0 && step < s1) {
                dr_trace_cuda_node(e->trace, phase, v, step, cuda->stream);
                err = launch_node(e, phase, v, step, cuda);
                if (!err && capturing && e->g->node.at[v].role == DR_ROLE_DATA) {
                    err = remember_copy(e, phase, v, cuda->stream);
                }
                if (!err && v == e->last_data) {
                    err = release_slot(e, phase, cuda->stream);
                }
                dr_trace_cuda_node_end(e->trace, phase, v, cuda->stream);
            }
            const cudaEvent_t done = e->event[(size_t)phase * p->n_nodes + v];
            if (!err && done) {
                err = (int)cudaEventRecord(done, cuda->stream);
            }
            enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
            if (!err && capturing) {
                err = (int)cudaStreamIsCapturing(cuda->stream, &status);
                if (!err && status == cudaStreamCaptureStatusInvalidated) {
                    err = (int)cudaErrorStreamCaptureInvalidated;
                }
            }
        }
    }
    if (!err) {
        *at = DR_NONE;
        err = join_streams(e);
    }
    return err;
}

static void drop_graph(struct cuda_exec *e) {
    if (e->exec) {
        cudaGraphExecDestroy(e->exec);
    }
    if (e->graph) {
        cudaGraphDestroy(e->graph);
    }
    e->exec = NULL;
    e->graph = NULL;
}

/* Captures a whole block. A failure leaves the run without a graph and a note that says why. */
static void capture(struct cuda_exec *e) {
    uint32_t at = DR_NONE;
    /* Steps 0.. are placeholders: copies are retargeted before each launch. */
    int err = (int)cudaStreamBeginCapture(e->ctx[0].stream, cudaStreamCaptureModeThreadLocal);
    if (!err) {
        dr_trace_cuda_capture(e->trace, true);
        err = walk_block(e, 0, 0, INT64_MAX, true, &at);
        dr_trace_cuda_capture(e->trace, false);
        const int end = (int)cudaStreamEndCapture(e->ctx[0].stream, &e->graph);
        err = err ? err : end;
    }
    if (!err) { /* the priorities of the streams, not of the one that it is launched into */
        err =
            (int)cudaGraphInstantiate(&e->exec, e->graph, cudaGraphInstantiateFlagUseNodePriority);
    }
    if (!err) {
        err = (int)cudaGraphUpload(e->exec, e->ctx[0].stream);
    }
    if (err) {
        drop_graph(e);
        cudaGetLastError();
        snprintf(e->base.note, sizeof e->base.note,
                 "running without a CUDA graph: capture failed%s%s%s: %s",
                 at == DR_NONE ? "" : " at '", at == DR_NONE ? "" : e->g->node.at[at].name,
                 at == DR_NONE ? "" : "'", cudaGetErrorString((cudaError_t)err));
    } else if (!dr_trace_cuda_captured(e->trace, e->base.note, sizeof e->base.note)) {
        drop_graph(e);
    }
}

static int replay(struct cuda_exec *e, int64_t b) {
    const struct dr_plan *p = e->plan;
    int err = cudaSuccess;
    for (uint32_t i = 0; i < e->n_copies && !err; i++) {
        const struct copy *c = &e->copy[i];
        const struct dr_node *n = &e->g->node.at[c->v];
        const int64_t step = b * p->unroll + c->phase + p->stage[c->v];
        err = (int)cudaGraphExecMemcpyNodeSetParams1D(
            e->exec, c->node, operands(e, c->phase, c->v)[n->n_in],
            slot_of(e, step) + e->slot_offset[c->v], (size_t)e->g->value.at[n->out[0]].bytes,
            cudaMemcpyHostToDevice);
    }
    if (!err) {
        dr_trace_cuda_replay(e->trace, b);
        err = (int)cudaGraphLaunch(e->exec, e->ctx[0].stream);
        dr_trace_cuda_launched(e->trace);
    }
    return err;
}

static void CUDART_CB call_progress(void *arg) {
    const struct cuda_exec *e = arg;
    e->c.progress(e->c.progress_ctx);
}

static struct dr_status launch(struct dr_exec *x, int64_t b, int64_t s0, int64_t s1) {
    struct cuda_exec *e = (struct cuda_exec *)x;
    const struct dr_plan *p = e->plan;
    const int64_t first = b * p->unroll, last = first + p->unroll - 1 + (p->n_stages - 1);
    uint32_t at = DR_NONE;
    int err = dr_cuda_use(e->c.device);
    if (!err && e->exec && first >= s0 && last < s1) {
        err = replay(e, b);
    } else if (!err) {
        dr_trace_cuda_block(e->trace, b, s0, s1, e->ctx[0].stream);
        err = walk_block(e, b, s0, s1, false, &at);
    }
    if (!err && e->c.progress) {
        err = (int)cudaEventRecord(e->block_done, e->ctx[0].stream);
        err = err ? err : (int)cudaStreamWaitEvent(e->side, e->block_done, 0);
        err = err ? err : (int)cudaLaunchHostFunc(e->side, call_progress, e);
    }
    struct dr_status status = dr_cuda_status(err, "launching a block", at);
    if (err && at != DR_NONE) {
        const size_t n = strlen(status.text);
        snprintf(status.text + n, sizeof status.text - n, " at '%.80s'", e->g->node.at[at].name);
    }
    return status;
}

/* Stream 0 has joined the others, unless a launch failed in the middle of a block. */
static struct dr_status drain(struct dr_exec *x) {
    struct cuda_exec *e = (struct cuda_exec *)x;
    int err = dr_cuda_use(e->c.device);
    for (uint32_t s = 0; s < e->n_streams && !err; s++) {
        err = (int)cudaStreamSynchronize(e->ctx[s].stream);
    }
    err = err ? err : (int)cudaStreamSynchronize(e->side);
    return dr_cuda_status(err, "waiting for the device", DR_NONE);
}

static bool idle(struct dr_exec *x, struct dr_status *s) {
    struct cuda_exec *e = (struct cuda_exec *)x;
    int err = dr_cuda_use(e->c.device);
    err = err ? err : (int)cudaStreamQuery(e->ctx[0].stream);
    err = err ? err : (int)cudaStreamQuery(e->side);
    if (err == cudaErrorNotReady) {
        cudaGetLastError();
        *s = dr_cuda_status(cudaSuccess, "", DR_NONE);
        return false;
    }
    *s = dr_cuda_status(err, "running a block", DR_NONE);
    return true;
}

/* ---- one step with checks ---- */

static int check_outputs(struct cuda_exec *e, uint32_t phase, uint32_t v, bool *bad) {
    const struct dr_node *n = &e->g->node.at[v];
    int err = cudaSuccess;
    *e->flag = 0;
    for (uint32_t o = 0; o < n->n_out && !err; o++) {
        const struct dr_value *out = &e->g->value.at[n->out[o]];
        if (out->dtype == DR_F32 || out->dtype == DR_F16 || out->dtype == DR_BF16) {
            err = dr_cuda_check_finite(dr_type_of(out), operands(e, phase, v)[n->n_in + o],
                                       out->bytes / (int64_t)dr_dtype_bytes(out->dtype), e->flag,
                                       e->ctx[0].stream);
        }
    }
    err = err ? err : (int)cudaStreamSynchronize(e->ctx[0].stream);
    *bad = *(volatile int32_t *)e->flag != 0;
    return err;
}

static struct dr_status step_checked(struct dr_exec *x, int64_t step, uint32_t *node) {
    struct cuda_exec *e = (struct cuda_exec *)x;
    const struct dr_status before = drain(x);
    *node = DR_NONE;
    if (before.code != DR_OK) {
        return before;
    }
    for (uint32_t v = 0; v < e->plan->n_nodes; v++) {
        const uint32_t phase = phase_of(e, step - e->plan->stage[v]);
        bool bad = false;
        int err = launch_node(e, phase, v, step, &e->ctx[0]);
        if (!err && v == e->last_data) {
            err = release_slot(e, phase, e->ctx[0].stream);
        }
        err = err ? err : check_outputs(e, phase, v, &bad);
        if (err) {
            return dr_cuda_status(err, "rerunning a step", v);
        }
        if (bad && *node == DR_NONE) {
            *node = v;
        }
    }
    return (struct dr_status){DR_OK, DR_NONE, ""};
}

/* ---- creation ---- */

static void destroy(struct dr_exec *x) {
    struct cuda_exec *e = (struct cuda_exec *)x;
    if (!e) {
        return;
    }
    dr_cuda_use(e->c.device);
    cudaDeviceSynchronize();
    dr_trace_cuda_close(e->trace);
    drop_graph(e);
    for (uint32_t s = 0; s < e->n_streams; s++) {
        if (e->ctx[s].lt) {
            dr_lt()->destroy(e->ctx[s].lt);
        }
        cudaFree(e->ctx[s].lt_workspace);
        cudaFree(e->ctx[s].tickets);
        if (e->join[s]) {
            cudaEventDestroy(e->join[s]);
        }
        if (e->ctx[s].stream) {
            cudaStreamDestroy(e->ctx[s].stream);
        }
    }
    for (size_t i = 0; e->event && i < (size_t)e->plan->unroll * e->plan->n_nodes; i++) {
        if (e->event[i]) {
            cudaEventDestroy(e->event[i]);
        }
    }
    if (e->fork) {
        cudaEventDestroy(e->fork);
    }
    if (e->block_done) {
        cudaEventDestroy(e->block_done);
    }
    if (e->side) {
        cudaStreamDestroy(e->side);
    }
    if (e->flag) {
        cudaFreeHost(e->flag);
    }
    cudaGetLastError(); /* of a device that failed: the next executor must not meet it */
    free(e->event);
    free(e->pointer);
    free(e->slot_offset);
    free(e->copy);
    free(e);
}

/* The updated part, and what stands in its path, goes first: their streams have high priority. */
static int create_streams(struct cuda_exec *e) {
    const struct dr_cuda_device *d = e->c.device;
    const struct dr_plan *p = e->plan;
    const unsigned no_timing = cudaEventDisableTiming;
    int err = dr_cuda_use(d);
    err = err ? err : (int)cudaEventCreateWithFlags(&e->fork, no_timing);
    err = err ? err : (int)cudaEventCreateWithFlags(&e->block_done, no_timing);
    err = err ? err : (int)cudaStreamCreateWithFlags(&e->side, cudaStreamNonBlocking);
    for (uint32_t s = 0; s < e->n_streams && !err; s++) {
        bool first = false;
        for (uint32_t i = p->stream_first[s]; i < p->stream_first[s + 1]; i++) {
            first |= e->g->node.at[p->stream_node[i]].cls != DR_UPSTREAM;
        }
        err = (int)cudaStreamCreateWithPriority(&e->ctx[s].stream, cudaStreamNonBlocking,
                                                first ? d->priority_high : d->priority_low);
        err = err ? err : (int)cudaEventCreateWithFlags(&e->join[s], no_timing);
        err = err ? err : (int)cudaMalloc(&e->ctx[s].lt_workspace, LT_WORKSPACE);
        const size_t tickets = DR_CUDA_TICKETS * sizeof(unsigned);
        err = err ? err : (int)cudaMalloc((void **)&e->ctx[s].tickets, tickets);
        err = err ? err : (int)cudaMemsetAsync(e->ctx[s].tickets, 0, tickets, e->ctx[s].stream);
        err = err ? err : (int)cudaStreamSynchronize(e->ctx[s].stream);
        if (!err && dr_lt()->create(&e->ctx[s].lt) != CUBLAS_STATUS_SUCCESS) {
            err = (int)cudaErrorInitializationError;
        }
        e->ctx[s].lt_workspace_bytes = LT_WORKSPACE;
        e->ctx[s].sms = d->prop.multiProcessorCount;
        e->ctx[s].arch = 10 * d->prop.major + d->prop.minor;
        e->ctx[s].tf32 = e->g->tf32;
    }
    for (uint32_t i = 0; i < p->wait.n && !err; i++) {
        for (uint32_t phase = 0; phase < p->unroll && !err; phase++) {
            cudaEvent_t *ev = &e->event[(size_t)phase * p->n_nodes + p->wait.at[i].from];
            if (!*ev) {
                err = (int)cudaEventCreateWithFlags(ev, no_timing);
            }
        }
    }
    return err;
}

/* Where data nodes read in a slot, which of them is the last, every operand's pointer. */
static void resolve(struct cuda_exec *e) {
    const struct dr_plan *p = e->plan;
    const struct dr_graph *g = e->g;
    e->last_data = DR_NONE;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const uint32_t v = p->order[i];
        const struct dr_node *n = &g->node.at[v];
        if (n->role != DR_ROLE_DATA) {
            continue;
        }
        DR_ASSERT(e->last_data == DR_NONE || (p->stream[e->last_data] == p->stream[v] &&
                                              p->stage[e->last_data] == p->stage[v]));
        e->last_data = v;
        uint32_t column = 0;
        while (column < g->input.n && g->input.at[column] != n->out[0]) {
            column++;
        }
        e->slot_offset[v] = e->c.ring->offset[column]; /* past the inputs: the header */
    }
    for (size_t i = 0; i < (size_t)p->unroll * p->n_operands; i++) {
        e->pointer[i] = e->c.slab.base + p->address[i];
    }
}

/* DR_OK where every node can be launched. */
static struct dr_status check_nodes(const struct dr_plan *p) {
    struct dr_status s = {DR_NO_DEVICE, DR_NONE, ""};
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &p->g->node.at[v];
        const bool by_executor = n->role == DR_ROLE_DATA || n->role == DR_ROLE_READBACK;
        s.node = v;
        if (!by_executor && !n->op->cuda) {
            snprintf(s.text, sizeof s.text, "'%s': op %s has no CUDA kernel", n->name, n->op->name);
            return s;
        }
        if (n->role == DR_ROLE_READBACK && n->n_in > DR_READBACK_MAX) {
            snprintf(s.text, sizeof s.text,
                     "%u losses, metrics and outputs are read back; a CUDA device takes %d",
                     n->n_in, DR_READBACK_MAX);
            return s;
        }
    }
    s.code = DR_OK;
    s.node = DR_NONE;
    return s;
}

static bool make_tables(struct cuda_exec *e) {
    const struct dr_plan *p = e->plan;
    e->event = calloc((size_t)p->unroll * p->n_nodes + 1, sizeof *e->event);
    e->pointer = calloc((size_t)p->unroll * p->n_operands + 1, sizeof *e->pointer);
    e->slot_offset = calloc((size_t)p->n_nodes + 1, sizeof *e->slot_offset);
    e->copy = calloc((size_t)p->unroll * p->n_nodes + 1, sizeof *e->copy);
    return e->event && e->pointer && e->slot_offset && e->copy;
}

static struct dr_status create(const struct dr_exec_config *c, struct dr_exec **out) {
    const struct dr_plan *p = c->plan;
    struct dr_status s = check_nodes(p);
    struct cuda_exec *e = s.code == DR_OK ? calloc(1, sizeof *e) : NULL;
    if (!e) {
        return s.code == DR_OK ? dr_cuda_no_host_memory("the executor") : s;
    }
    e->base.ops = &dr_exec_cuda;
    e->c = *c;
    e->plan = p;
    e->g = p->g;
    e->n_streams = p->n_streams;
    if (!make_tables(e)) {
        destroy(&e->base);
        return dr_cuda_no_host_memory("the executor");
    }
    resolve(e);
    int err = create_streams(e);
    err = err ? err : (int)cudaHostAlloc((void **)&e->flag, sizeof *e->flag, cudaHostAllocMapped);
    if (err) {
        s = dr_cuda_status(err, "creating streams and events", DR_NONE);
        destroy(&e->base);
        return s;
    }
    e->trace = dr_trace_cuda_open(c->trace, p, e->base.note, sizeof e->base.note);
    if (p->graph && !dr_trace_cuda_by_events(e->trace)) {
        capture(e);
    }
    *out = &e->base;
    return (struct dr_status){DR_OK, DR_NONE, ""};
}

const struct dr_exec_ops dr_exec_cuda = {
    .name = "cuda",
    .open = dr_cuda_open,
    .close = dr_cuda_close,
    .alloc = dr_cuda_alloc,
    .free = dr_cuda_free,
    .host_alloc = dr_cuda_host_alloc,
    .host_free = dr_cuda_host_free,
    .upload = dr_cuda_upload,
    .download = dr_cuda_download,
    .measure = dr_cuda_measure,
    .memory_used = dr_cuda_memory_used,
    .create = create,
    .launch = launch,
    .drain = drain,
    .idle = idle,
    .step_checked = step_checked,
    .destroy = destroy,
};
