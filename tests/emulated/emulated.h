/* Runs the kernels' own source on the CPU: the threads of a block are fibers of one thread of the
 * host, blocks and kernels follow each other (of different streams: runtime.h). What a GPU may do
 * in any order is done in an order drawn from a seed (DR_EMULATED_SEED, 1): which thread goes on,
 * and whether copies and products that run in the background happen at once or when they are first
 * waited for. Barriers of shared memory, TMA and wgmma behave as the PTX ISA says (8.x,
 * sections 9.7.13 to 9.7.16).
 *
 * Faults of a kernel end the program with the kernel, block and thread: threads that wait for ever;
 * an access outside of an allocation or of the block's shared memory (guard pages; what lies
 * between an end and its page must keep its pattern); an arrival too many; too many registers.
 * Fresh memory holds NaN. It is no model of speed, and none of the memory model: orders between the
 * generic and the asynchronous proxy are not checked. */
#ifndef DR_TESTS_EMULATED_EMULATED_H
#define DR_TESTS_EMULATED_EMULATED_H
#include <cuda_runtime_api.h>
#include <functional>
#include <stdint.h>

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr size_t PAGE = 4096;
/* What memory holds where nobody may write, and where nobody has written: NaN. */
constexpr unsigned char PATTERN = 0xa5, FRESH = 0xff;

/* ---- launches ---- */
struct place {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
void launch(const void *kernel, const place &where, std::function<void()> thread);
/* After the stream's work so far; in a captured stream, whenever the graph is launched. Fails where
 * the capture is spoilt. */
cudaError_t in_order(cudaStream_t s, std::function<void()> work);
void run_grid(const place &where, const std::function<void()> &thread);
/* Ends the program, naming the thread. */
[[noreturn]] void fault(const char *what);

/* ---- of the running block ---- */
void *shared(); /* dynamic shared memory, 1024-byte aligned */
int thread();   /* linear in the block */
int lane();
bool late();  /* this block's background work happens as late as it may */
void pause(); /* lets others go on */
void sync_block();
void sync_some(int id, int threads); /* bar.sync */
void sync_lanes(unsigned lanes);
uint64_t exchange(unsigned lanes, uint64_t mine, int from); /* what lane `from` gave */
/* Waits for all `threads` of the aligned set the thread is in; the last one does `work` before any
 * goes on. */
void together(int threads, void (*work)(const void *), const void *with);
template <class F> void together(int threads, const F &work) {
    together(
        threads, [](const void *f) { (*(const F *)f)(); }, &work);
}

/* ---- mbarriers, at addresses of shared memory ---- */
void barrier_init(uint32_t bar, uint32_t arrivals);
void barrier_arrive(uint32_t bar, uint32_t expected_bytes);
void barrier_arrive_copied(uint32_t bar); /* when the thread's COPIES so far are done */
void barrier_complete(uint32_t bar, uint32_t bytes);
void barrier_wait(uint32_t bar, uint32_t parity);

/* ---- background work: groups a thread (or, of wgmma, a warpgroup), done in order ---- */
enum queue { COPIES, STORES, PRODUCTS, QUEUES };
void defer(queue q, std::function<void()> work); /* of PRODUCTS: by one thread of the warpgroup */
void commit(queue q);
void wait(queue q, int groups); /* until at most so many groups are not done */
/* Work that waits for nobody, and may happen whenever the block's threads run. */
void some_time(std::function<void()> work);

/* setmaxnreg: the block's threads must not ask for more than there are. */
void registers(int n);

} // namespace emulated
#endif
