/* Fibers, barriers, shared memory. */
#include "tests/emulated/runtime.h"
#include <algorithm>
#include <deque>
#include <execinfo.h>
#include <map>
#include <memory>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

static uint64_t state;
unsigned draw(unsigned n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % n);
}

namespace {

constexpr size_t STACK = 256 << 10, WINDOW = 256 << 10; /* of shared memory */
constexpr int MOST_THREADS = 1024, REGISTERS = 65536;

typedef void *jump[5]; /* of GCC's __builtin_setjmp, which saves no more than must be */
struct fiber {
    ucontext_t start;
    jump at;
    bool begun;
    int thread; /* linear in the block */
};
/* Those who wait for each other. */
struct meeting {
    int arrived;
    std::vector<fiber *> waiting;
};
/* Lanes of a warp that give each other values; two sets of slots, used in turns. */
struct exchange_of {
    meeting m;
    unsigned turn;
    uint64_t slot[2][32];
};
struct groups {
    std::deque<std::vector<std::function<void()>>> closed;
    std::vector<std::function<void()>> open;
};
struct mbarrier { /* as it lies in shared memory */
    uint16_t arrivals;
    uint16_t pending : 15;
    uint16_t phase : 1;
    int32_t bytes;
};
struct barrier_waiter {
    uint32_t bar, parity;
    fiber *f;
};

bool late_block;
const std::function<void()> *body;
jump hub;
fiber *self;
std::vector<fiber *> idle, ready;
std::vector<int> order; /* of threads that have not begun, the next one last */
int alive;

meeting whole, named[16], warpgroup[MOST_THREADS / 128], warp[MOST_THREADS / 32];
std::map<unsigned, exchange_of> exchanges[MOST_THREADS / 32];
std::vector<barrier_waiter> at_barrier;
groups queues[QUEUES][MOST_THREADS];
std::vector<std::function<void()>> unordered;
int registers_of[MOST_THREADS], registers_sum;

unsigned char *window;
size_t shared_bytes, protected_bytes;

mbarrier *barrier_at(uint32_t bar) {
    return (mbarrier *)(uintptr_t)bar;
}

[[noreturn]] __attribute__((noinline)) void resume(fiber *f) {
    self = f;
    if (f->begun) {
        __builtin_longjmp(f->at, 1);
    }
    f->begun = true;
    setcontext(&f->start);
    abort();
}
[[noreturn]] __attribute__((noinline)) void to_hub() {
    __builtin_longjmp(hub, 1);
}
/* The running thread stops until its fiber is ready. */
__attribute__((noinline)) void leave() {
    fiber *const f = self;
    const dim3 here = threadIdx;
    if (__builtin_setjmp(f->at) == 0) {
        to_hub();
    }
    threadIdx = here;
}
void release(meeting &m) {
    ready.insert(ready.end(), m.waiting.begin(), m.waiting.end());
    m.waiting.clear();
    m.arrived = 0;
}
/* True of the last. */
bool meet(meeting &m, int threads) {
    if (++m.arrived < threads) {
        m.waiting.push_back(self);
        leave();
        return false;
    }
    return true;
}

void run_thread(int t) {
    self->thread = t;
    threadIdx.x = (unsigned)t % blockDim.x;
    threadIdx.y = (unsigned)t / blockDim.x % blockDim.y;
    threadIdx.z = (unsigned)t / blockDim.x / blockDim.y;
    (*body)();
    alive--;
    if (alive > 0 && whole.arrived >= alive) {
        release(whole);
    }
    for (int q = 0; q < QUEUES && late_block;
         q++) { /* what nobody waited for happens all the same */
        if (q != PRODUCTS) {
            commit((queue)q);
            wait((queue)q, 0);
        }
    }
}
/* A fiber runs threads that have not begun, as long as none that has can go on. */
void fiber_main() {
    for (;;) {
        while (!order.empty()) {
            const int t = order.back();
            order.pop_back();
            run_thread(t);
            if (!ready.empty()) {
                break;
            }
        }
        fiber *const f = self;
        idle.push_back(f);
        if (__builtin_setjmp(f->at) == 0) {
            __builtin_longjmp(hub, 1);
        }
    }
}
fiber *fresh_fiber() {
    fiber *const f = new fiber();
    char *const stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE, PROT_NONE) != 0) {
        fault("no memory for another thread's stack");
    }
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack, f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = NULL;
    makecontext(&f->start, fiber_main, 0);
    return f;
}

void on_signal(int number) {
    fault(number == SIGSEGV || number == SIGBUS ? "an access outside of memory" : "a signal");
}

/* Shared memory ends where a guard page begins, so that it does not end late. */
void place_shared(size_t bytes) {
    if (!window) {
        unsigned char *const raw = (unsigned char *)mmap(
            NULL, 2 * WINDOW + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        if (raw == MAP_FAILED) {
            fault("no memory below 4 GB for shared memory");
        }
        window = (unsigned char *)(((uintptr_t)raw + PAGE + WINDOW - 1) / WINDOW * WINDOW);
        protected_bytes = WINDOW;
    }
    shared_bytes = bytes;
    const size_t first = (size_t)((unsigned char *)shared() - window) / PAGE * PAGE;
    if (first != protected_bytes) {
        mprotect(window, WINDOW, PROT_NONE);
        mprotect(window + first, WINDOW - first, PROT_READ | PROT_WRITE);
        protected_bytes = first;
    }
    memset(window + first, PATTERN, WINDOW - first);
}
void check_shared() {
    const unsigned char *const from = (unsigned char *)shared(), *const end = window + WINDOW;
    bool intact = true;
    for (const unsigned char *p = window + protected_bytes; p < from; p++) {
        intact &= *p == PATTERN;
    }
    for (const unsigned char *p = from + shared_bytes; p < end; p++) {
        intact &= *p == PATTERN;
    }
    if (!intact) {
        fault("a write outside of the block's shared memory");
    }
}

void run_block() {
    const int n = (int)(blockDim.x * blockDim.y * blockDim.z);
    alive = n;
    late_block = draw(2);
    memset(shared(), FRESH, shared_bytes);
    std::vector<int> warps((size_t)(n + 31) / 32);
    for (int i = 0; i < (int)warps.size(); i++) {
        const int j = (int)draw((unsigned)i + 1);
        warps[(size_t)i] = warps[(size_t)j];
        warps[(size_t)j] = i;
    }
    order.clear();
    for (const int w : warps) {
        for (int i = std::min(32 * w + 32, n); i-- > 32 * w;) {
            order.push_back(i);
        }
    }
    __builtin_setjmp(hub); /* every fiber that stops comes back here */
    while (!ready.empty() || !order.empty() || !unordered.empty()) {
        const bool none = ready.empty() && order.empty();
        if (!unordered.empty() && (none || draw(late_block ? 64 : 2) == 0)) {
            const size_t i = draw((unsigned)unordered.size());
            const std::function<void()> work = std::move(unordered[i]);
            unordered[i] = std::move(unordered.back());
            unordered.pop_back();
            work();
            continue;
        }
        if (!ready.empty() && (order.empty() || draw(2))) {
            const size_t i = draw((unsigned)ready.size());
            fiber *const f = ready[i];
            ready[i] = ready.back();
            ready.pop_back();
            resume(f);
        }
        if (idle.empty()) {
            idle.push_back(fresh_fiber());
        }
        fiber *const f = idle.back();
        idle.pop_back();
        resume(f);
    }
    if (alive > 0) {
        fault("threads wait for each other for ever");
    }
    for (int i = 0; i < MOST_THREADS / 128; i++) {
        if (!queues[PRODUCTS][128 * i].closed.empty() || !queues[PRODUCTS][128 * i].open.empty()) {
            fault("a warpgroup ended before its products");
        }
    }
    if (registers_sum) {
        memset(registers_of, 0, sizeof registers_of);
        registers_sum = 0;
    }
    check_shared();
}
} // namespace

void fault(const char *what) {
    void *frames[32];
    fprintf(stderr, "emulated GPU: %s; block %u,%u,%u, ", what, blockIdx.x, blockIdx.y, blockIdx.z);
    fprintf(stderr, "thread %u,%u,%u\n", threadIdx.x, threadIdx.y, threadIdx.z);
    for (const auto &w : at_barrier) {
        fprintf(stderr, "thread %d waits at barrier %#x for phase %u\n", w.f->thread, w.bar,
                w.parity);
    }
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    _exit(1);
}

void device_thread_begins(void) {
    if (!state) {
        const char *const seed = getenv("DR_EMULATED_SEED");
        state = seed ? strtoull(seed, NULL, 10) * 2 + 1 : 1;
    }
    stack_t alternate = {};
    alternate.ss_sp = malloc(64 << 10), alternate.ss_size = 64 << 10;
    sigaltstack(&alternate, NULL);
    struct sigaction action = {};
    action.sa_handler = on_signal, action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
void run_grid(const place &p, const std::function<void()> &thread) {
    place_shared(p.shared_bytes);
    body = &thread, gridDim = p.grid, blockDim = p.block;
    for (blockIdx.z = 0; blockIdx.z < p.grid.z; blockIdx.z++) {
        for (blockIdx.y = 0; blockIdx.y < p.grid.y; blockIdx.y++) {
            for (blockIdx.x = 0; blockIdx.x < p.grid.x; blockIdx.x++) {
                run_block();
            }
        }
    }
}

void *shared() {
    return window + (WINDOW - shared_bytes) / 1024 * 1024;
}
int thread() {
    return self->thread;
}
int lane() {
    return thread() % 32;
}
bool late() {
    return late_block;
}
void pause() {
    ready.push_back(self);
    leave();
}

void sync_block() {
    if (meet(whole, alive)) {
        release(whole);
    }
}
void sync_some(int id, int threads) {
    if (meet(named[id], threads)) {
        release(named[id]);
    }
}
uint64_t exchange(unsigned lanes, uint64_t mine, int from) {
    exchange_of &e = exchanges[thread() / 32][lanes];
    const unsigned turn = e.turn;
    e.slot[turn][lane()] = mine;
    if (!(lanes >> lane() & 1)) {
        fault("a lane that is not of those it names");
    }
    const int here = std::min(32, (int)(blockDim.x * blockDim.y * blockDim.z) - thread() / 32 * 32);
    const unsigned there = here == 32 ? ~0u : (1u << here) - 1;
    if (meet(e.m, __builtin_popcount(lanes & there))) {
        e.turn ^= 1;
        release(e.m);
    }
    return e.slot[turn][from & 31];
}
void sync_lanes(unsigned lanes) {
    exchange(lanes, 0, lane());
}
void together(int threads, void (*work)(const void *), const void *with) {
    meeting &m = threads == 128 ? warpgroup[thread() / 128] : warp[thread() / 32];
    if (meet(m, threads)) {
        work(with);
        release(m);
    }
}

/* ---- mbarriers ---- */
static void barrier_step(uint32_t bar) {
    mbarrier *const b = barrier_at(bar);
    if (b->pending == 0 && b->bytes == 0) {
        b->phase ^= 1;
        b->pending = b->arrivals & 0x7fff;
        for (size_t i = 0; i < at_barrier.size();) {
            if (at_barrier[i].bar == bar && at_barrier[i].parity != b->phase) {
                ready.push_back(at_barrier[i].f);
                at_barrier[i] = at_barrier.back();
                at_barrier.pop_back();
            } else {
                i++;
            }
        }
    }
}
void barrier_init(uint32_t bar, uint32_t arrivals) {
    *barrier_at(bar) = {(uint16_t)arrivals, (uint16_t)(arrivals & 0x7fff), 0, 0};
}
void barrier_arrive(uint32_t bar, uint32_t expected_bytes) {
    mbarrier *const b = barrier_at(bar);
    if (b->pending == 0) {
        fault("an arrival too many at a barrier");
    }
    b->bytes += (int32_t)expected_bytes;
    b->pending--;
    barrier_step(bar);
}
void barrier_complete(uint32_t bar, uint32_t bytes) {
    barrier_at(bar)->bytes -= (int32_t)bytes;
    barrier_step(bar);
}
void barrier_wait(uint32_t bar, uint32_t parity) {
    if (barrier_at(bar)->phase == parity) {
        at_barrier.push_back({bar, parity, self});
        leave();
    }
}

/* ---- background work ---- */
static groups &queue_of(queue q) {
    return queues[q][q == PRODUCTS ? thread() / 128 * 128 : thread()];
}
void defer(queue q, std::function<void()> work) {
    if (late_block) {
        queue_of(q).open.push_back(std::move(work));
    } else {
        work();
    }
}
/* In other blocks than late ones there is nothing to keep, but of products that they are awaited.
 */
void commit(queue q) {
    if (!late_block && q != PRODUCTS) {
        return;
    }
    groups &g = queue_of(q);
    g.closed.push_back(std::move(g.open));
    g.open.clear();
}
void wait(queue q, int left) {
    groups &g = queue_of(q);
    while ((int)g.closed.size() > left) {
        for (const auto &work : g.closed.front()) {
            work();
        }
        g.closed.pop_front();
    }
}
void barrier_arrive_copied(uint32_t bar) {
    commit(COPIES);
    const std::shared_ptr<groups> all = std::make_shared<groups>(std::move(queue_of(COPIES)));
    queue_of(COPIES) = groups();
    some_time([=] {
        for (const auto &group : all->closed) {
            for (const auto &work : group) {
                work();
            }
        }
        barrier_arrive(bar, 0);
    });
}
void some_time(std::function<void()> work) {
    unordered.push_back(std::move(work));
}

void registers(int n) {
    registers_sum += n - registers_of[thread()];
    registers_of[thread()] = n;
    if (registers_sum > REGISTERS) {
        fault("more registers than a multiprocessor has");
    }
}
} // namespace emulated
