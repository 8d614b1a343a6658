/* Streams, events, and the thread that does their work; see runtime.h. */
#include "tests/emulated/runtime.h"
#include <algorithm>
#include <condition_variable>
#include <new>
#include <pthread.h>
#include <string.h>

namespace emulated {

std::mutex lock;

namespace {

/* Never destroyed: the thread outlives main(). */
std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;
CUstream_st &legacy = *new CUstream_st{true, 0, {}, 0, 0, NULL, {}};
std::condition_variable &given = *new std::condition_variable;
std::condition_variable &done = *new std::condition_variable;
bool begun;
int waiting; /* threads of the host */

/* ---- the device's thread ---- */
bool can_go_on(const item &i) {
    return !i.waits || i.waits->happened >= i.number;
}
/* A piece of a graph whose predecessors are done; true of the last. Goes down one path for a while,
 * so that others fall behind. */
bool step(replay &r) {
    if (r.ready.empty()) {
        return true;
    }
    const size_t n = r.ready.size(), at = draw(4) ? n - 1 : draw((unsigned)n);
    const int now = r.ready[at];
    r.ready[at] = r.ready.back();
    r.ready.pop_back();
    const replayed::piece &p = r.of->pieces[(size_t)now];
    if (p.work) {
        p.work();
    } else {
        const copied &c = r.copies[(size_t)now];
        memmove(c.to, c.from, c.bytes);
    }
    for (const int next : p.before) {
        if (--r.left[(size_t)next] == 0) {
            r.ready.push_back(next);
        }
    }
    return r.ready.empty();
}
void serve() {
    device_thread_begins();
    std::unique_lock<std::mutex> l(lock);
    for (;;) {
        CUstream_st *now = NULL; /* of those that can go on the one of the highest rank */
        const bool anew = draw(32) == 0;
        for (CUstream_st *const s : streams) {
            s->rank = anew ? draw(1 << 16) : s->rank;
            if (!s->items.empty() && can_go_on(s->items.front()) && (!now || s->rank > now->rank)) {
                now = s;
            }
        }
        if (!now) {
            given.wait(l);
            if (draw(2)) { /* a slow device: the host goes on until it waits, or for a while */
                given.wait_for(l, std::chrono::microseconds(200), [] { return waiting > 0; });
            }
            continue;
        }
        item &i = now->items.front();
        l.unlock();
        bool over = true;
        if (i.graph) {
            over = step(*i.graph);
        } else if (i.work) {
            i.work();
        }
        l.lock();
        if (!over) {
            continue;
        }
        if (i.records && i.records->happened < i.number) {
            i.records->happened = i.number;
            i.records->at = std::chrono::steady_clock::now();
        }
        now->items.pop_front();
        now->done++;
        done.notify_all();
    }
}
/* A child of fork has no such thread, and may have been given its locks in use. */
void in_child() {
    new (&lock) std::mutex;
    new (&given) std::condition_variable;
    new (&done) std::condition_variable;
    begun = false;
    waiting = 0;
}
CUstream_st *queue_of(CUstream_st *s) {
    return s->blocking ? &legacy : s;
}
template <class F> void wait_until(std::unique_lock<std::mutex> &l, F holds) {
    waiting++;
    given.notify_one();
    done.wait(l, holds);
    waiting--;
}
void wait_for(std::unique_lock<std::mutex> &l, const CUstream_st *s) {
    const uint64_t number = s->given;
    wait_until(l, [=] { return s->done >= number; });
}
cudaError_t of_event(cudaEvent_t e) {
    if (e->captured) {
        for (capture *const c : captures) {
            if (c->id == e->captured) {
                return spoil(c, cudaErrorCapturedEvent);
            }
        }
        return failed(cudaErrorCapturedEvent);
    }
    return cudaSuccess;
}
} // namespace

CUstream_st *stream_of(cudaStream_t s) {
    return s == NULL || s == cudaStreamLegacy || s == cudaStreamPerThread ? &legacy : s;
}
void give(CUstream_st *s, item i) {
    if (!begun) {
        static std::once_flag once;
        std::call_once(once, [] {
            streams.push_back(&legacy);
            pthread_atfork(NULL, NULL, in_child);
            atexit([] { cudaDeviceSynchronize(); });
        });
        begun = true;
        std::thread(serve).detach();
    }
    CUstream_st *const q = queue_of(s);
    q->items.push_back(std::move(i));
    q->given++;
    given.notify_one();
}
void wait_for_all(std::unique_lock<std::mutex> &l) {
    for (const CUstream_st *const s : streams) {
        wait_for(l, s);
    }
}
cudaError_t in_order(cudaStream_t stream, std::function<void()> work) {
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (!s->captured) {
        item i;
        i.work = std::move(work);
        give(s, std::move(i));
        return cudaSuccess;
    }
    cudaError_t e;
    if (CUgraphNode_st *const n = add_node(s, &e)) {
        n->work = std::move(work);
    }
    return e;
}
cudaError_t copy_in_order(cudaStream_t stream, copied c) {
    {
        const std::lock_guard<std::mutex> l(lock);
        if (stream_of(stream)->captured) {
            cudaError_t e;
            if (CUgraphNode_st *const n = add_node(stream_of(stream), &e)) {
                n->copy = c;
            }
            return e;
        }
    }
    return in_order(stream, [=] { memmove(c.to, c.from, c.bytes); });
}
} // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaDeviceSynchronize(void) {
    std::unique_lock<std::mutex> l(lock);
    for (capture *const c : captures) {
        return spoil(c, cudaErrorStreamCaptureUnsupported);
    }
    wait_for_all(l);
    return cudaSuccess;
}

/* ---- streams ---- */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
    const std::lock_guard<std::mutex> l(lock);
    *s = new CUstream_st{(flags & cudaStreamNonBlocking) == 0, 0, {}, 0, 0, NULL, {}};
    streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *s) {
    return cudaStreamCreateWithPriority(s, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    std::unique_lock<std::mutex> l(lock);
    if (s->captured) {
        return spoil(s->captured, cudaErrorStreamCaptureUnsupported);
    }
    wait_for(l, s);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    std::unique_lock<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (s->captured) {
        return spoil(s->captured, cudaErrorStreamCaptureUnsupported);
    }
    wait_for(l, queue_of(s));
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (s->captured) {
        return spoil(s->captured, cudaErrorStreamCaptureUnsupported);
    }
    return queue_of(s)->items.empty() ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *arg) {
    const cudaError_t e = in_order(s, [=] { f(arg); });
    return e ? failed(e) : cudaSuccess;
}

/* ---- events ---- */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    *e = new CUevent_st{
        (flags & cudaEventDisableTiming) == 0, std::make_shared<moment>(moment{0, 0, {}}), 0, {}};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e; /* work that records it, or waits, has its own hold of what it needs */
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    const std::lock_guard<std::mutex> l(lock);
    CUstream_st *const s = stream_of(stream);
    if (s->captured) {
        if (s->captured->invalid) {
            return failed(cudaErrorStreamCaptureInvalidated);
        }
        e->captured = s->captured->id;
        e->last = s->last;
        return cudaSuccess;
    }
    e->captured = 0;
    item i;
    i.records = e->m;
    i.number = ++e->m->asked;
    give(s, std::move(i));
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    const std::lock_guard<std::mutex> l(lock);
    cudaError_t err = of_event(e);
    err = err ? err : not_in_capture();
    return err ? err : e->m->happened >= e->m->asked ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    std::unique_lock<std::mutex> l(lock);
    const cudaError_t err = of_event(e);
    if (err) {
        return err;
    }
    const std::shared_ptr<moment> m = e->m;
    const uint64_t number = m->asked;
    wait_until(l, [=] { return m->happened >= number; });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    const std::lock_guard<std::mutex> l(lock);
    const cudaError_t err = of_event(from) ? cudaErrorCapturedEvent : of_event(to);
    if (err) {
        return err;
    }
    if (!from->timed || !to->timed || !from->m->asked || !to->m->asked) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (from->m->happened < from->m->asked || to->m->happened < to->m->asked) {
        return failed(cudaErrorNotReady);
    }
    *ms = std::chrono::duration<float, std::milli>(to->m->at - from->m->at).count();
    return cudaSuccess;
}
} // extern "C"
