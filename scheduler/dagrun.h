/* dagrun as a library: open a YAML file, look at its plan, run it, read the results.
 *
 *     char why[512];
 *     struct dagrun *d = dagrun_open("digits.yaml", NULL, why, sizeof why);
 *     if (!d || dagrun_run(d, why, sizeof why))
 *         fprintf(stderr, "%s\n", why);
 *     dagrun_close(d);
 *
 * The library prints nothing and never exits. Calls that fail write what failed to `why` (cut to
 * its size; NULL is fine) and return an exit code of the command line: 1 failed while running, 2
 * the YAML is wrong, 3 device or memory, 4 not verified. One handle belongs to one thread at a
 * time. examples/embed.c is a whole program. */
#ifndef DAGRUN_H
#define DAGRUN_H

#include <stddef.h>
#include <stdint.h>

struct dagrun;

struct dagrun_options {
    const char *device;     /* "cpu", "cuda", "cuda:1"; NULL: cpu */
    const char *const *set; /* "train.steps=10": overrides of the YAML */
    size_t n_set;
    unsigned threads; /* of the CPU; 0: all */
    /* After each training step, from the thread that called dagrun_run. Not 0: stop. */
    int (*on_step)(void *ctx, int64_t step, double loss);
    void *ctx;
};

/* Loads, checks, plans and prepares a run. NULL after errors. `options` may be NULL. */
struct dagrun *dagrun_open(const char *yaml, const struct dagrun_options *options, char *why,
                           size_t why_bytes);
void dagrun_close(struct dagrun *d); /* NULL is fine */

/* The plan as text; good until dagrun_close. */
const char *dagrun_plan(struct dagrun *d);

/* Trains as the file says, evaluations included (or runs inference). Once a handle. 0: done. */
int dagrun_run(struct dagrun *d, char *why, size_t why_bytes);

/* Results of the run: the mean of a loss over the last epoch ("total": their weighted sum), a
 * metric of the last evaluation. NaN where there is no such name. */
double dagrun_loss(const struct dagrun *d, const char *name);
double dagrun_metric(const struct dagrun *d, const char *name);
int64_t dagrun_steps(const struct dagrun *d);

/* Copies a weight ("net.c1.weight") as float. Returns its number of elements, also where `n` is
 * smaller (then nothing is copied: ask with NULL, 0 first); 0: there is no such weight. */
size_t dagrun_weight(struct dagrun *d, const char *name, float *to, size_t n);

#endif
