/* Timing the ways to compute a node. Each is a graph of some launches; the graphs take turns, since
 * a card that works for long lowers its clock and whoever comes second would lose; of the turns the
 * median counts. */
#include "scheduler/tune_cuda.h"

#include "ops/common.h"
#include "scheduler/device_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TURNS = 7,
    MOST_LAUNCHES = 20, /* in a graph */
    OPERANDS = 16,      /* of a node, at most */
    PATTERN = 1 << 20,  /* elements before made-up numbers repeat */
};
#define GRAPH_US 2000.0  /* that a graph should take */
#define HOPELESS 1.5     /* times the best: no further turns */
#define PAUSE_NS 5000000 /* between graphs */

struct meter {
    struct dr_cuda cuda;
    cudaEvent_t from, to;
    void *operand[OPERANDS], *workspace;
    cudaGraphExec_t graph[DR_WAYS];
    int launches[DR_WAYS];
    double turn[DR_WAYS][TURNS];
    int turns[DR_WAYS];
    uint64_t random;
};

/* ---- operands ---- */

/* [-1, 1); vectors (biases, norms) in [0.5, 1), since variances are positive. */
static float made_up(struct meter *m, bool vector) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    const float x = (float)(m->random >> 40) / (float)(1 << 24);
    return vector ? 0.5f + 0.5f * x : 2 * x - 1;
}

/* The upper half of a float's bits is a bf16; exponents of numbers in [2^-14, 1) fit an fp16. */
static uint16_t half_of(float x, enum dr_dtype t) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t exponent = bits >> 23 & 0xff, sign = bits >> 16 & 0x8000;
    if (t == DR_BF16) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)(exponent < 113 ? sign : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static int fill(struct meter *m, const struct dr_value *v, void *to) {
    const size_t item = dr_dtype_bytes(v->dtype), bytes = (size_t)v->bytes;
    size_t done = bytes < PATTERN * item ? bytes : PATTERN * item;
    if (v->dtype != DR_F32 && v->dtype != DR_F16 && v->dtype != DR_BF16) {
        return (int)cudaMemsetAsync(to, 0, bytes, m->cuda.stream);
    }
    unsigned char *const host = malloc(done);
    if (!host) {
        return (int)cudaErrorMemoryAllocation;
    }
    for (size_t i = 0; i < done / item; i++) {
        const float x = made_up(m, v->shape.rank < 2);
        const uint16_t h = half_of(x, v->dtype);
        memcpy(host + i * item, v->dtype == DR_F32 ? (const void *)&x : &h, item);
    }
    int err = (int)cudaMemcpyAsync(to, host, done, cudaMemcpyHostToDevice, m->cuda.stream);
    for (; done < bytes && !err; done *= 2) {
        const size_t more = done < bytes - done ? done : bytes - done;
        err = (int)cudaMemcpyAsync((char *)to + done, to, more, cudaMemcpyDeviceToDevice,
                                   m->cuda.stream);
    }
    err = err ? err : (int)cudaStreamSynchronize(m->cuda.stream);
    free(host);
    return err;
}

static int place(struct meter *m, const struct dr_graph *g, const struct dr_node *n,
                 const struct dr_choice *way, uint32_t ways) {
    size_t workspace = 1;
    int err = cudaSuccess;
    for (uint32_t i = 0; i < n->n_in + n->n_out && !err; i++) {
        const struct dr_value *v = &g->value.at[i < n->n_in ? n->in[i] : n->out[i - n->n_in]];
        err = (int)cudaMalloc(&m->operand[i], (size_t)v->bytes);
        err = err ? err : fill(m, v, m->operand[i]);
    }
    for (uint32_t i = 0; i < ways; i++) {
        const size_t bytes = (size_t)way[i].workspace_bytes;
        workspace = bytes > workspace ? bytes : workspace;
    }
    return err ? err : (int)cudaMalloc(&m->workspace, workspace);
}

/* ---- time ---- */

static int launch(struct meter *m, const struct dr_graph *g, const struct dr_node *n,
                  const struct dr_choice *way) {
    const struct dr_launch l = {.node = n,
                                .value = g->value.at,
                                .in = m->operand,
                                .out = m->operand + n->n_in,
                                .workspace = m->workspace,
                                .choice = way,
                                .seed = g->seed};
    return n->op->cuda(&l, &m->cuda);
}

static int finish(struct meter *m, double *us) {
    float ms = 0;
    int err = (int)cudaEventRecord(m->to, m->cuda.stream);
    err = err ? err : (int)cudaEventSynchronize(m->to);
    err = err ? err : (int)cudaEventElapsedTime(&ms, m->from, m->to);
    *us = ms * 1e3;
    return err;
}

/* The first launch loads the kernel's code; the second tells how many a graph should have. */
static int capture(struct meter *m, const struct dr_graph *g, const struct dr_node *n,
                   const struct dr_choice *way, uint32_t i) {
    cudaGraph_t graph = NULL;
    double us = 0;
    int err = launch(m, g, n, way);
    err = err ? err : (int)cudaEventRecord(m->from, m->cuda.stream);
    err = err ? err : launch(m, g, n, way);
    err = err ? err : finish(m, &us);
    if (err) {
        return err;
    }
    const double wanted = us > 0 ? GRAPH_US / us : MOST_LAUNCHES;
    m->launches[i] = wanted > MOST_LAUNCHES ? MOST_LAUNCHES : wanted < 2 ? 2 : (int)wanted;
    err = (int)cudaStreamBeginCapture(m->cuda.stream, cudaStreamCaptureModeThreadLocal);
    for (int k = 0; k < m->launches[i] && !err; k++) {
        err = launch(m, g, n, way);
    }
    const int end = (int)cudaStreamEndCapture(m->cuda.stream, &graph);
    err = err ? err : end;
    err = err ? err : (int)cudaGraphInstantiate(&m->graph[i], graph, 0);
    if (graph) {
        cudaGraphDestroy(graph);
    }
    return err ? err : (int)cudaGraphUpload(m->graph[i], m->cuda.stream);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct meter *m, uint32_t i) {
    double sorted[TURNS];
    memcpy(sorted, m->turn[i], sizeof sorted);
    qsort(sorted, (size_t)m->turns[i], sizeof *sorted, by_size);
    return sorted[m->turns[i] / 2];
}

static int take_turns(struct meter *m, uint32_t n, double *us) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    double best = 0;
    int err = cudaSuccess;
    for (int turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < n && !err; i++) {
            if (turn > 1 && us[i] > HOPELESS * best) {
                continue;
            }
            nanosleep(&pause, NULL);
            err = (int)cudaEventRecord(m->from, m->cuda.stream);
            err = err ? err : (int)cudaGraphLaunch(m->graph[i], m->cuda.stream);
            err = err ? err : finish(m, &m->turn[i][m->turns[i]]);
            m->turn[i][m->turns[i]++] /= m->launches[i];
            us[i] = median(m, i);
        }
        for (uint32_t i = 0; i < n; i++) {
            best = i == 0 || us[i] < best ? us[i] : best;
        }
    }
    return err;
}

/* ---- a node ---- */

static int open_meter(struct meter *m, const struct dr_cuda_device *d, const struct dr_graph *g) {
    const size_t tickets = DR_CUDA_TICKETS * sizeof(unsigned);
    int err = dr_cuda_use(d);
    m->random = g->seed;
    m->cuda.sms = d->prop.multiProcessorCount;
    m->cuda.arch = 10 * d->prop.major + d->prop.minor;
    m->cuda.tf32 = g->tf32;
    err = err ? err : (int)cudaStreamCreateWithFlags(&m->cuda.stream, cudaStreamNonBlocking);
    err = err ? err : (int)cudaEventCreate(&m->from);
    err = err ? err : (int)cudaEventCreate(&m->to);
    err = err ? err : (int)cudaMalloc((void **)&m->cuda.tickets, tickets);
    return err ? err : (int)cudaMemsetAsync(m->cuda.tickets, 0, tickets, m->cuda.stream);
}

static void close_meter(struct meter *m) {
    if (m->cuda.stream) {
        cudaStreamSynchronize(m->cuda.stream);
    }
    for (int i = 0; i < DR_WAYS; i++) {
        if (m->graph[i]) {
            cudaGraphExecDestroy(m->graph[i]);
        }
    }
    for (int i = 0; i < OPERANDS; i++) {
        cudaFree(m->operand[i]);
    }
    cudaFree(m->workspace);
    cudaFree(m->cuda.tickets);
    if (m->from) {
        cudaEventDestroy(m->from);
    }
    if (m->to) {
        cudaEventDestroy(m->to);
    }
    if (m->cuda.stream) {
        cudaStreamDestroy(m->cuda.stream);
    }
    cudaGetLastError();
    free(m);
}

struct dr_status dr_cuda_measure(void *device, const struct dr_graph *g, uint32_t v,
                                 const struct dr_choice *way, uint32_t n, double *us) {
    const struct dr_node *node = &g->node.at[v];
    struct meter *m = calloc(1, sizeof *m);
    DR_ASSERT(n <= DR_WAYS && node->n_in + node->n_out <= OPERANDS);
    if (!m) {
        return dr_cuda_no_host_memory("measuring");
    }
    uint32_t at = 0;
    int err = open_meter(m, device, g);
    err = err ? err : place(m, g, node, way, n);
    for (; at < n && !err; at++) {
        err = capture(m, g, node, &way[at], at);
    }
    err = err ? err : take_turns(m, n, us);
    struct dr_status s = dr_cuda_status(err, "measuring", v);
    close_meter(m);
    if (err) {
        const size_t used = strlen(s.text);
        snprintf(s.text + used, sizeof s.text - used, " at '%.60s'%s%.60s", node->name,
                 at ? ", " : "", at ? way[at - 1].kernel : "");
    }
    return s;
}
