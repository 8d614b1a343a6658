/* Ceilings of this machine's processor: numbers that no schedule can beat, for the bound. */
#ifndef DR_SCHEDULER_CPU_INFO_H
#define DR_SCHEDULER_CPU_INFO_H
#include <stdint.h>
void dr_cpu_ceilings(uint32_t cores, double *flops_per_s, double *bytes_per_s,
                     uint64_t *memory_bytes);
/* Resident bytes of this process; 0: unknown. */
uint64_t dr_cpu_memory_used(void *device);
#endif
