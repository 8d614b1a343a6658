/* bce, mse and l1, and their gradients. */
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/sums.h"

struct run {
    const struct dr_pairs *p;
    int64_t chunk, valid; /* elements of valid samples */
    double scale;
    bool of_target;
    float *dx;
    double *partial; /* [chunks, 2] */
};

static int64_t first_of(const struct run *r, size_t i, int64_t *end) {
    const int64_t begin = (int64_t)i * r->chunk;
    *end = begin + r->chunk < r->p->n ? begin + r->chunk : r->p->n;
    return begin;
}

static void value_chunk(void *ctx, size_t i) {
    const struct run *r = ctx;
    double sum = 0, count = 0;
    int64_t end;
    float t;
    for (int64_t k = first_of(r, i, &end); k < end && k < r->valid; k++)
        if (dr_pair_counts(r->p, k, &t)) {
            sum += dr_pair_value(r->p, r->p->x[k], t);
            count += 1;
        }
    r->partial[2 * i] = sum;
    r->partial[2 * i + 1] = count;
}

static void slope_chunk(void *ctx, size_t i) {
    const struct run *r = ctx;
    int64_t end;
    float t;
    for (int64_t k = first_of(r, i, &end); k < end; k++) {
        const bool used = k < r->valid && r->scale != 0 && dr_pair_counts(r->p, k, &t);
        r->dx[k] =
            used ? (float)(r->scale * dr_pair_slope(r->p, r->p->x[k], t, r->of_target)) : 0.0f;
    }
}

static struct run start(const struct dr_pairs *p, int64_t n_valid) {
    return (struct run){.p = p, .chunk = dr_cpu_chunk_rows(p->n), .valid = n_valid * p->per_sample};
}
static void go(struct dr_cpu *cpu, void (*f)(void *, size_t), struct run *r) {
    const double ns_each = r->p->loss == DR_PAIR_BCE ? 20 : 1;
    dr_cpu_for(cpu, f, r, (size_t)dr_cpu_chunks(r->p->n), (double)r->chunk * ns_each);
}

int64_t dr_cpu_pairs_bytes(int64_t n) {
    return dr_cpu_chunks(n) * 2 * (int64_t)sizeof(double);
}

void dr_cpu_pairs(struct dr_cpu *cpu, const struct dr_pairs *p, int64_t n_valid, void *workspace,
                  float *mean, double *partial) {
    struct run r = start(p, n_valid);
    r.partial = workspace;
    go(cpu, value_chunk, &r);
    double sum = 0, count = 0;
    for (int64_t i = 0, n = dr_cpu_chunks(p->n); i < n; i++) {
        sum += r.partial[2 * i];
        count += r.partial[2 * i + 1];
    }
    partial[0] = sum;
    partial[1] = count;
    *mean = count > 0 ? (float)(sum / count) : 0.0f;
}

void dr_cpu_pairs_dgrad(struct dr_cpu *cpu, const struct dr_pairs *p, int64_t n_valid,
                        double weight, double count, bool of_target, float *dx) {
    struct run r = start(p, n_valid);
    r.scale = count > 0 ? weight / count : 0;
    r.of_target = of_target;
    r.dx = dx;
    go(cpu, slope_chunk, &r);
}
