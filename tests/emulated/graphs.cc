/* Captures and graphs, by the CUDA programming guide's rules (CUDA Graphs, stream capture). */
#include "tests/emulated/runtime.h"
#include <algorithm>
#include <map>
#include <set>

namespace emulated {

std::vector<capture *> captures;

cudaError_t spoil(capture *c, cudaError_t e) {
    c->invalid = true;
    return failed(e);
}
cudaError_t not_in_capture(void) {
    cudaError_t e = cudaSuccess;
    for (capture *const c : captures) {
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id())) {
            e = spoil(c, cudaErrorStreamCaptureUnsupported);
        }
    }
    return e;
}
CUgraphNode_st *add_node(CUstream_st *s, cudaError_t *e) {
    if (s->captured->invalid) {
        *e = cudaErrorStreamCaptureInvalidated;
        return NULL;
    }
    *e = cudaSuccess;
    std::deque<CUgraphNode_st> &nodes = s->captured->graph->nodes;
    nodes.push_back({{}, {}, s->last});
    s->last.assign(1, &nodes.back());
    return &nodes.back();
}

namespace {

capture *capture_of(unsigned long long id) {
    for (capture *const c : captures) {
        if (c->id == id) {
            return c;
        }
    }
    return NULL;
}
void join(CUstream_st *s, const std::vector<CUgraphNode_st *> &nodes) {
    for (CUgraphNode_st *const n : nodes) {
        if (std::find(s->last.begin(), s->last.end(), n) == s->last.end()) {
            s->last.push_back(n);
        }
    }
}
/* Whether all nodes come before what the origin would do next. */
bool joined(const capture &c) {
    std::set<const CUgraphNode_st *> seen;
    std::vector<const CUgraphNode_st *> open(c.origin->last.begin(), c.origin->last.end());
    while (!open.empty()) {
        const CUgraphNode_st *const n = open.back();
        open.pop_back();
        if (seen.insert(n).second) {
            open.insert(open.end(), n->after.begin(), n->after.end());
        }
    }
    return seen.size() == c.graph->nodes.size();
}
} // namespace
} // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    capture *const of = e->captured ? capture_of(e->captured) : NULL;
    if (s->captured && s->captured->invalid) {
        return failed(cudaErrorStreamCaptureInvalidated);
    }
    if (e->captured && !of) {
        return failed(cudaErrorCapturedEvent);
    }
    if (of && of->invalid) {
        return failed(cudaErrorStreamCaptureInvalidated);
    }
    if (s->captured && s->captured != of) {
        return of ? (spoil(of, cudaErrorStreamCaptureMerge),
                     spoil(s->captured, cudaErrorStreamCaptureMerge))
                  : spoil(s->captured, cudaErrorStreamCaptureIsolation);
    }
    if (of && s == stream_of(NULL)) {
        return spoil(of, cudaErrorStreamCaptureImplicit);
    }
    if (of) {
        if (!s->captured) {
            s->captured = of;
            of->streams.push_back(s);
        }
        join(s, e->last);
    } else if (e->m->asked) {
        item i;
        i.waits = e->m;
        i.number = e->m->asked;
        give(s, std::move(i));
    }
    return cudaSuccess;
}

/* ---- capture ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    static unsigned long long ids;
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (s == stream_of(NULL)) {
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    if (s->captured) {
        return spoil(s->captured, cudaErrorIllegalState);
    }
    s->captured =
        new capture{new CUgraph_st, s, mode, std::this_thread::get_id(), {s}, ++ids, false};
    s->last.clear();
    captures.push_back(s->captured);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    const std::lock_guard<std::mutex> l(lock);
    capture *const c = stream_of(s)->captured;
    *graph = NULL;
    if (!c) {
        return failed(cudaErrorIllegalState);
    }
    if (c->origin != s) {
        return spoil(c, cudaErrorStreamCaptureUnmatched);
    }
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id()) {
        return failed(cudaErrorStreamCaptureWrongThread);
    }
    const cudaError_t e = c->invalid    ? failed(cudaErrorStreamCaptureInvalidated)
                          : !joined(*c) ? failed(cudaErrorStreamCaptureUnjoined)
                                        : cudaSuccess;
    for (CUstream_st *const of : c->streams) {
        of->captured = NULL;
        of->last.clear();
    }
    captures.erase(std::find(captures.begin(), captures.end(), c));
    if (e) {
        delete c->graph;
    } else {
        *graph = c->graph;
    }
    delete c;
    return e;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **last, const cudaGraphEdgeData **edges,
                                     size_t *n) {
    const std::lock_guard<std::mutex> l(lock);
    const CUstream_st *const s = stream_of(stream);
    *status = !s->captured           ? cudaStreamCaptureStatusNone
              : s->captured->invalid ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    if (*status != cudaStreamCaptureStatusActive) {
        return cudaSuccess;
    }
    if (id) {
        *id = s->captured->id;
    }
    if (graph) {
        *graph = s->captured->graph;
    }
    if (last) {
        *last = s->last.data();
    }
    if (edges) {
        *edges = NULL;
    }
    if (n) {
        *n = s->last.size();
    }
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status) {
    return cudaStreamGetCaptureInfo(s, status, NULL, NULL, NULL, NULL, NULL);
}

/* ---- graphs ---- */
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long) {
    std::map<const CUgraphNode_st *, int> number;
    const auto plan = std::make_shared<replayed>();
    CUgraphExec_st *const x = new CUgraphExec_st;
    for (const CUgraphNode_st &n : g->nodes) {
        const int now = number[&n] = (int)x->nodes.size();
        plan->pieces.push_back({n.work, (int)n.after.size(), {}});
        for (const CUgraphNode_st *const a : n.after) {
            plan->pieces[(size_t)number[a]].before.push_back(now);
        }
        x->nodes.push_back(&n);
        x->copies.push_back(n.copy);
    }
    x->plan = plan;
    x->m = std::make_shared<moment>(moment{0, 0, {}});
    *exec = x;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    delete x;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t node, void *to,
                                               const void *from, size_t bytes, cudaMemcpyKind) {
    const auto at = std::find(x->nodes.begin(), x->nodes.end(), node);
    const size_t i = (size_t)(at - x->nodes.begin());
    if (at == x->nodes.end() || x->plan->pieces[i].work || bytes == 0) {
        return failed(cudaErrorInvalidValue);
    }
    x->copies[i] = {to, from, bytes};
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t stream) {
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (s->captured) {
        return failed(cudaErrorNotSupported); /* CUDA would add a child graph */
    }
    item before, now;
    before.waits = x->m, before.number = x->m->asked;
    now.records = x->m, now.number = ++x->m->asked;
    now.graph = std::make_shared<replay>(replay{x->plan, x->copies, {}, {}});
    for (size_t i = 0; i < x->plan->pieces.size(); i++) {
        now.graph->left.push_back(x->plan->pieces[i].after);
        if (x->plan->pieces[i].after == 0) {
            now.graph->ready.push_back((int)i);
        }
    }
    give(s, std::move(before));
    give(s, std::move(now));
    return cudaSuccess;
}
} // extern "C"
