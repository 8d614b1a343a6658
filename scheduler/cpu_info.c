/* Ceilings from /proc/cpuinfo and sysconf.
 *
 * They feed the bound, which must never be beaten, so every guess errs upwards: two FMA units of
 * the widest vectors that the flags name, at the highest clock known, on every core. Bandwidth is
 * that of a working set that sits in the last-level cache: 64 bytes a cycle and core. */
#include "scheduler/cpu_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A virtual machine often hides the turbo clock: assume at least this. */
#define MIN_HZ 4.5e9

static double read_khz(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    char text[64] = "";
    if (!fgets(text, sizeof text, f))
        text[0] = 0;
    fclose(f);
    return strtod(text, NULL);
}

/* Lanes of the widest fp32 vector, and the largest "cpu MHz". */
static int read_cpuinfo(double *mhz) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    int lanes = 4;
    *mhz = 0;
    if (!f)
        return 16;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0) {
        const char *value = strchr(line, ':');
        if (!value)
            continue;
        if (!strncmp(line, "cpu MHz", 7) && strtod(value + 1, NULL) > *mhz)
            *mhz = strtod(value + 1, NULL);
        if (!strncmp(line, "flags", 5)) {
            if (strstr(value, " avx512f"))
                lanes = 16;
            else if (strstr(value, " avx") && lanes < 8)
                lanes = 8;
        }
    }
    free(line);
    fclose(f);
    return lanes;
}

void dr_cpu_ceilings(uint32_t cores, double *flops_per_s, double *bytes_per_s,
                     uint64_t *memory_bytes) {
    double mhz;
    const int lanes = read_cpuinfo(&mhz);
    double hz = read_khz("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") * 1e3;
    if (hz < mhz * 1e6)
        hz = mhz * 1e6;
    if (hz < MIN_HZ)
        hz = MIN_HZ;
    const double flops_per_cycle = 2.0 * 2.0 * lanes; /* two units, multiply and add */
    *flops_per_s = flops_per_cycle * hz * cores;
    *bytes_per_s = 64.0 * hz * cores;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

uint64_t dr_cpu_memory_used(void *device) {
    unsigned long long all, resident = 0;
    (void)device;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    const int got = fscanf(f, "%llu %llu", &all, &resident);
    fclose(f);
    return got == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
