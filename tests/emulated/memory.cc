/* Memory of the device and pinned memory of the host; copies and fills. */
#include "tests/emulated/runtime.h"
#include <map>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emulated {
namespace {

constexpr size_t ALIGNED = 256, TOTAL = (size_t)8 << 30, CHUNK = 1 << 20;

/* An allocation ends, rounded up to 256 bytes, where a guard page begins. */
struct allocation {
    char *pages;
    size_t length, bytes;
};
std::mutex memory_lock;
std::map<char *, allocation> allocations, pinned;
size_t used;

size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}
/* What lies between the allocation and its pages' ends. */
void check_ends(const char *p, const allocation &a) {
    bool intact = true;
    for (const char *q = a.pages; q < p; q++) {
        intact &= (unsigned char)*q == PATTERN;
    }
    for (const char *q = p + a.bytes; q < a.pages + a.length; q++) {
        intact &= (unsigned char)*q == PATTERN;
    }
    if (!intact) {
        fault("a write beside an allocation");
    }
}
/* A file of FRESH bytes: of large allocations, what nobody writes takes no memory, and no time. */
int fresh_file() {
    static const int file = [] {
        const int f = memfd_create("fresh", 0);
        char *const at = f < 0 || ftruncate(f, CHUNK) != 0
                             ? (char *)MAP_FAILED
                             : (char *)mmap(NULL, CHUNK, PROT_WRITE, MAP_SHARED, f, 0);
        if (at == MAP_FAILED) {
            return -1;
        }
        memset(at, FRESH, CHUNK);
        munmap(at, CHUNK);
        return f;
    }();
    return file;
}
bool make_fresh(char *pages, size_t length) {
    size_t done = 0;
    while (length - done >= CHUNK && fresh_file() >= 0) {
        if (mmap(pages + done, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fresh_file(),
                 0) == MAP_FAILED) {
            return false;
        }
        done += CHUNK;
    }
    if (done < length && mprotect(pages + done, length - done, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    memset(pages + done, FRESH, length - done);
    return true;
}
cudaError_t allocate(std::map<char *, allocation> &from, void **p, size_t bytes) {
    {
        const std::lock_guard<std::mutex> l(lock);
        const cudaError_t e = not_in_capture();
        if (e) {
            return e;
        }
    }
    const size_t end = up(bytes ? bytes : 1, ALIGNED), length = up(end, PAGE);
    const std::lock_guard<std::mutex> l(memory_lock);
    if (bytes > TOTAL || used + length > TOTAL) {
        return failed(cudaErrorMemoryAllocation);
    }
    char *const pages = (char *)mmap(NULL, length + 2 * PAGE, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED || !make_fresh(pages + PAGE, length)) {
        return failed(cudaErrorMemoryAllocation);
    }
    char *const at = pages + PAGE + length - end;
    memset(pages + PAGE, PATTERN, length - end);
    memset(at + bytes, PATTERN, end - bytes);
    from[at] = {pages + PAGE, length, bytes};
    used += &from == &allocations ? length : 0;
    *p = at;
    return cudaSuccess;
}
cudaError_t release(std::map<char *, allocation> &from, void *p) {
    {
        std::unique_lock<std::mutex> l(lock);
        const cudaError_t e = not_in_capture();
        if (e) {
            return e;
        }
        wait_for_all(l);
    }
    const std::lock_guard<std::mutex> l(memory_lock);
    const auto a = from.find((char *)p);
    if (a == from.end()) {
        return p ? failed(cudaErrorInvalidValue) : cudaSuccess;
    }
    check_ends(a->first, a->second);
    munmap(a->second.pages - PAGE, a->second.length + 2 * PAGE);
    used -= &from == &allocations ? a->second.length : 0;
    from.erase(a);
    return cudaSuccess;
}
bool in(const std::map<char *, allocation> &of, const void *p) {
    auto a = of.upper_bound((char *)p);
    return a != of.begin() && (--a, (char *)p < a->first + a->second.bytes);
}
bool pageable(const void *p) {
    const std::lock_guard<std::mutex> l(memory_lock);
    return !in(allocations, p) && !in(pinned, p);
}
bool capturing(cudaStream_t s) {
    const std::lock_guard<std::mutex> l(lock);
    return stream_of(s)->captured;
}
/* From pageable memory the call returns when the bytes are in a buffer of the driver's: not yet
 * where they belong. To it: when they are there. */
cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t s, bool wait) {
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (capturing(s)) {
        const cudaError_t e = copy_in_order(s, {to, from, bytes});
        return e ? failed(e) : cudaSuccess;
    }
    if (pageable(from) && !pageable(to)) {
        const auto staged = std::make_shared<std::vector<char>>((char *)from, (char *)from + bytes);
        return in_order(s, [=] { memcpy(to, staged->data(), bytes); });
    }
    const cudaError_t e = copy_in_order(s, {to, from, bytes});
    return e || (!wait && !pageable(to)) ? e : cudaStreamSynchronize(s);
}
cudaError_t checked(void) {
    const std::lock_guard<std::mutex> l(lock);
    return not_in_capture();
}
} // namespace
} // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) {
    return allocate(allocations, p, bytes);
}
cudaError_t cudaFree(void *p) {
    return release(allocations, p);
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    return allocate(pinned, p, bytes);
}
cudaError_t cudaFreeHost(void *p) {
    return release(pinned, p);
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    const std::lock_guard<std::mutex> l(memory_lock);
    *left = TOTAL - used, *total = TOTAL;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t s) {
    return copy(to, from, bytes, s, false);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t e = checked();
    return e ? e : copy(to, from, bytes, NULL, kind != cudaMemcpyDeviceToDevice);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
    const cudaError_t e = in_order(s, [=] { memset(to, value, bytes); });
    return e ? failed(e) : cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    const cudaError_t e = checked();
    return e ? e : cudaMemsetAsync(to, value, bytes, NULL);
}
} // extern "C"
