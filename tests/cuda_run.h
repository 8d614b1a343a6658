/* What the files of main_cuda_run share. A group returns NULL, or what is wrong in the arena. */
#ifndef DR_TESTS_CUDA_RUN_H
#define DR_TESTS_CUDA_RUN_H

#include "tests/fake_runs.h"

extern bool cuda;              /* false: a dry run on the CPU */
extern struct dr_arena *arena; /* of this group */
extern int64_t replays;        /* of captured graphs, so far */

/* Called by the loader's threads after a batch was written to its slot; NULL. */
extern void (*on_filled)(const struct dr_ring *ring, uint64_t step, unsigned char *slot);

#define WRONG(...) return dr_printf(arena, __VA_ARGS__)
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sleep_us(long us);
uint32_t scrambled(uint64_t x);
/* This program as another process: its first argument tells it what to be. */
struct cli_run self_run(const char *words);

/* ---- cuda_run_cases.c ---- */
const char *draws_differ(void);         /* STR-01 */
const char *rates_follow_steps(void);   /* STR-02 */
const char *batches_arrive(void);       /* STR-04 */
const char *branches_are_joined(void);  /* STR-05 */
const char *captures_stand_alone(void); /* STR-07 */
const char *long_runs(void);
/* Captures every model once, in a process that has launched nothing; NULL: it worked. */
const char *cold_captures(void);

/* ---- cuda_run_half.c ---- */
const char *half_runs(void);

/* ---- cuda_run_files.c ---- */
const char *files_of_runs(void); /* resuming, FRZ-03, inference */

/* ---- cuda_run_tune.c ---- */
const char *tuned_runs(void);

#endif
