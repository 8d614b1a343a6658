/* Runs real ops without an executor: a graph built by hand, each value in a buffer of its own and
 * exact size (so that a sanitizer sees every step outside), nodes in id order.
 *
 * Outputs and workspaces are filled with NaN before each node: what a kernel leaves unwritten,
 * or adds to, shows. */
#ifndef DR_TESTS_FAKE_HARNESS_H
#define DR_TESTS_FAKE_HARNESS_H

#include "graph/builtin.h"
#include "kernels/cpu/cpu.h"
#include "ops/table.h"

struct rig {
    struct dr_graph *g;
    void **at; /* by value, NULL until it is set or run */
    uint32_t n_at;
    struct dr_cpu cpu;
};

/* A graph in training mode with a header (step 0, all `batch` samples valid). */
struct rig rig_create(int64_t batch);
void rig_free(struct rig *r);
const char *rig_text(const struct rig *r); /* diagnostics */
void rig_header(struct rig *r, uint64_t step, uint32_t n_valid);

/* An input with these bytes (NULL: no buffer until rig_set). Returns the value. */
uint32_t rig_input(struct rig *r, const char *name, enum dr_dtype t, struct dr_shape s,
                   enum dr_meaning meaning, const void *bytes);
uint32_t rig_floats(struct rig *r, const char *name, struct dr_shape s, const float *x);
/* A state, as an operand of internal ops. */
uint32_t rig_state(struct rig *r, const char *name, enum dr_state_class cls, enum dr_dtype t,
                   struct dr_shape s, const void *bytes);
void rig_set(struct rig *r, uint32_t value, const void *bytes);

/* Attributes of an op from YAML: "{kernel: 2, stride: 1}". NULL after an error in the sink. */
void *rig_attrs(struct rig *r, const char *op, const char *yaml);
/* A node; the header is appended where the op wants it. Its id, DR_NONE after an error. */
uint32_t rig_node(struct rig *r, const char *name, const char *op, const void *attrs,
                  const uint32_t *in, uint32_t n_in);
/* The same with attributes in YAML ("{}": defaults). */
uint32_t rig_op(struct rig *r, const char *name, const char *op, const char *yaml,
                const uint32_t *in, uint32_t n_in);
uint32_t rig_in(const struct rig *r, uint32_t node, uint32_t i);
uint32_t rig_out(const struct rig *r, uint32_t node, uint32_t i);
uint32_t rig_find(const struct rig *r, const char *value); /* asserts that it is there */
int64_t rig_elements(const struct rig *r, uint32_t value);

/* The op's gradient nodes for one node; fills dx[n_in] (DR_NONE: none). */
void rig_grad(struct rig *r, uint32_t node, const uint32_t *dy, const bool *need, double weight,
              uint32_t *dx);

/* The fuse pass over the rig's graph; values keep what they hold, ids change. */
void rig_fuse(struct rig *r);
/* States that were not set get their initial values (weights of HE_NORMAL: 0). */
void rig_run(struct rig *r);
void rig_run_node(struct rig *r, uint32_t node);
float *rig_f32(const struct rig *r, uint32_t value);

#endif
