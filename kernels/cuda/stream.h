/* CUDA's stream without CUDA's headers: op files declare launchers for a device that the machine
 * they are compiled on need not have. dr_stream is cudaStream_t. */
#ifndef DR_KERNELS_CUDA_STREAM_H
#define DR_KERNELS_CUDA_STREAM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef struct CUstream_st *dr_stream;

/* What a CUDA launcher may use. Launchers launch on the stream, never allocate, never synchronise,
 * and return a cudaError_t as int, so any of them can be captured. */
enum { DR_CUDA_TICKETS = 256 };
struct dr_cuda {
    dr_stream stream;
    struct cublasLtContext *lt; /* cublasLtHandle_t, of this stream alone */
    void *lt_workspace;
    size_t lt_workspace_bytes;
    unsigned *tickets; /* DR_CUDA_TICKETS, zeros before and after every kernel of this stream */
    int arch;          /* of the device, 10 * major + minor */
    int sms;           /* multiprocessors that kernels may use */
    bool tf32;         /* convolutions and matrix products round their operands to tf32 */
};
#endif
