/* CUDA's runtime in place of NVIDIA's, what its files share: streams.cc (streams, events),
 * graphs.cc (captures, graphs), memory.cc (memory, copies), runtime.cc (devices, kernels, tensor
 * maps).
 *
 * A thread of its own does the work of all streams, one piece after the other; which of the pieces
 * that may come next, as streams, events and the edges of graphs allow it, is drawn. So a wait that
 * is missing shows, and so does a host that does not wait. */
#ifndef DR_TESTS_EMULATED_RUNTIME_H
#define DR_TESTS_EMULATED_RUNTIME_H
#include "tests/emulated/emulated.h"
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace emulated {

/* The records of an event: how many were asked for, the last one that happened, and when. */
struct moment {
    uint64_t asked, happened;
    std::chrono::steady_clock::time_point at;
};
struct copied {
    void *to;
    const void *from;
    size_t bytes;
};
struct capture {
    CUgraph_st *graph;
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    std::vector<CUstream_st *> streams;
    unsigned long long id;
    bool invalid;
};
/* The plan of a graph that can be launched; a launch has the copies as they are then. */
struct replayed {
    struct piece {
        std::function<void()> work; /* none: a copy */
        int after;                  /* how many come before it */
        std::vector<int> before;
    };
    std::vector<piece> pieces;
};
struct replay {
    std::shared_ptr<const replayed> of;
    std::vector<copied> copies;
    std::vector<int> left, ready;
};
/* A piece of a stream's work: one of these. */
struct item {
    std::function<void()> work;
    std::shared_ptr<replay> graph;
    std::shared_ptr<moment> records, waits;
    uint64_t number = 0; /* of the record */
};

extern std::mutex lock;            /* over all of this but what runs */
cudaError_t failed(cudaError_t e); /* the thread's last error, too */
CUstream_st *stream_of(cudaStream_t s);
void give(CUstream_st *s, item i); /* of a stream that is not captured; locked */
void wait_for_all(std::unique_lock<std::mutex> &l);
/* A node in a captured stream's graph; NULL and why. */
CUgraphNode_st *add_node(CUstream_st *s, cudaError_t *e);
cudaError_t copy_in_order(cudaStream_t s, copied c);
/* Forbids what a thread that captures must not call, and spoils the capture if it does; locked. */
cudaError_t not_in_capture(void);
cudaError_t spoil(capture *c, cudaError_t e);
extern std::vector<capture *> captures;
unsigned draw(unsigned n); /* by the device's thread */
void device_thread_begins(void);

} // namespace emulated

struct CUstream_st {
    bool blocking; /* and works in the order of the legacy stream */
    unsigned rank; /* drawn anew now and then: some streams fall far behind */
    std::deque<emulated::item> items;
    uint64_t given, done;
    emulated::capture *captured;
    std::vector<CUgraphNode_st *> last; /* the next node comes after them */
};
struct CUevent_st {
    bool timed;
    std::shared_ptr<emulated::moment> m;
    unsigned long long captured; /* by the capture of this number; 0: not */
    std::vector<CUgraphNode_st *> last;
};
struct CUgraphNode_st {
    std::function<void()> work; /* none: a copy */
    emulated::copied copy;
    std::vector<CUgraphNode_st *> after;
};
struct CUgraph_st {
    std::deque<CUgraphNode_st> nodes; /* stay where they are */
};
struct CUgraphExec_st {
    std::shared_ptr<const emulated::replayed> plan;
    std::vector<emulated::copied> copies;
    std::vector<const CUgraphNode_st *> nodes; /* of the graph that it was made of */
    std::shared_ptr<emulated::moment> m;       /* its launches follow each other */
};
#endif
