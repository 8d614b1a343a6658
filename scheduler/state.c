/* States: initial values (He et al., "Delving Deep into Rectifiers", ICCV 2015: normal with
 * std = sqrt(2 / fan_in)), transfers and checksums. */
#include "scheduler/state.h"

#include "graph/weights.h"
#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two normals from two words (Box and Muller 1958). u1 is in (0, 1], so the logarithm is finite. */
static void box_muller(uint32_t a, uint32_t b, double out[2]) {
    const double u1 = ((double)(a >> 8) + 1.0) * 0x1p-24;
    const double u2 = (double)(b >> 8) * 0x1p-24;
    const double r = sqrt(-2.0 * log(u1)), t = 6.283185307179586476925 * u2;
    out[0] = r * cos(t);
    out[1] = r * sin(t);
}

static void he_normal(const struct dr_value *v, uint64_t seed, float *to) {
    const uint64_t key = dr_hash(v->name, strlen(v->name));
    const int64_t n = v->bytes / (int64_t)sizeof *to;
    const double std = sqrt(2.0 / (double)(v->init.fan_in > 0 ? v->init.fan_in : 1));
    for (int64_t i = 0; i < n; i += 4) {
        const struct dr_draw d = dr_philox(seed, key, 0, (uint64_t)i / 4, 0);
        double x[4];
        box_muller(d.x[0], d.x[1], x);
        box_muller(d.x[2], d.x[3], x + 2);
        for (int64_t j = 0; j < 4 && i + j < n; j++)
            to[i + j] = (float)(std * x[j]);
    }
}

static void ones(const struct dr_value *v, void *to) {
    const int64_t n = v->bytes / (int64_t)dr_dtype_bytes(v->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (v->dtype == DR_F32)
            ((float *)to)[i] = 1.0f;
        else if (v->dtype == DR_F64)
            ((double *)to)[i] = 1.0;
        else
            ((int64_t *)to)[i] = 1;
    }
}

void dr_state_initial(const struct dr_value *v, uint64_t seed, void *to) {
    memset(to, 0, (size_t)v->bytes);
    if (v->init.kind == DR_INIT_NUMBER) {
        DR_ASSERT(v->dtype == DR_F32);
        for (int64_t i = 0; i < v->bytes / (int64_t)sizeof(float); i++)
            ((float *)to)[i] = (float)v->init.number;
    } else if (v->init.kind == DR_INIT_HE_NORMAL) {
        DR_ASSERT(v->dtype == DR_F32);
        he_normal(v, seed, to);
    } else if (v->init.kind == DR_INIT_ONE) {
        DR_ASSERT(v->dtype == DR_F32 || v->dtype == DR_F64 || v->dtype == DR_I64);
        ones(v, to);
    }
}

struct dr_status dr_state_download(const struct dr_memory *m, const struct dr_plan *p,
                                   uint32_t value, void *to) {
    return m->ops->download(m->device, to, m->slab.base + p->buffer[value].offset,
                            (size_t)p->g->value.at[value].bytes);
}

struct dr_status dr_state_upload(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                                 const void *from) {
    return m->ops->upload(m->device, m->slab.base + p->buffer[value].offset, from,
                          (size_t)p->g->value.at[value].bytes);
}

/* Calls f for each state with a host buffer that is large enough for any of them. */
typedef struct dr_status state_fn(const struct dr_memory *m, const struct dr_plan *p,
                                  uint32_t value, void *buffer, void *ctx);

static struct dr_status each_state(const struct dr_memory *m, const struct dr_plan *p, state_fn *f,
                                   void *ctx) {
    struct dr_status s = {.code = DR_OK, .node = DR_NONE};
    int64_t largest = 1;
    for (uint32_t i = 0; i < p->g->value.n; i++)
        if (p->g->value.at[i].kind == DR_STATE && p->g->value.at[i].bytes > largest)
            largest = p->g->value.at[i].bytes;
    void *buffer = malloc((size_t)largest);
    if (!buffer) {
        s = (struct dr_status){DR_NO_DEVICE, DR_NONE, "out of host memory: a copy of a state"};
        return s;
    }
    for (uint32_t i = 0; i < p->g->value.n && s.code == DR_OK; i++)
        if (p->g->value.at[i].kind == DR_STATE)
            s = f(m, p, i, buffer, ctx);
    free(buffer);
    return s;
}

struct init {
    const struct dr_graph *other; /* its states stay as they are; NULL: none */
    uint64_t seed;
};
static struct dr_status init_one(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                                 void *buffer, void *ctx) {
    const struct init *i = ctx;
    const struct dr_value *v = &p->g->value.at[value];
    if (i->other && dr_map_get(i->other->value_by_name, v->name) != DR_NONE)
        return (struct dr_status){.code = DR_OK, .node = DR_NONE};
    dr_state_initial(v, i->seed, buffer);
    return dr_state_upload(m, p, value, buffer);
}

struct dr_status dr_state_init(const struct dr_memory *m, const struct dr_plan *p, uint64_t seed) {
    return dr_state_init_beside(m, p, NULL, seed);
}

struct dr_status dr_state_init_beside(const struct dr_memory *m, const struct dr_plan *p,
                                      const struct dr_graph *other, uint64_t seed) {
    struct init i = {other, seed};
    return each_state(m, p, init_one, &i);
}

static struct dr_status load_one(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                                 void *buffer, void *ctx) {
    const struct dr_tensor *t = ((const struct dr_tensor *const *)ctx)[value];
    const struct dr_value *v = &p->g->value.at[value];
    if (!t)
        return (struct dr_status){.code = DR_OK, .node = DR_NONE};
    if (v->cls != DR_WEIGHT && v->cls != DR_BUFFER) /* a checkpoint's: as it is */
        memcpy(buffer, t->data, (size_t)v->bytes);
    else if (!dr_weights_read(v, t, buffer))
        return (struct dr_status){DR_NO_DEVICE, DR_NONE, "out of host memory: a copy of a state"};
    return dr_state_upload(m, p, value, buffer);
}

struct dr_status dr_state_load(const struct dr_memory *m, const struct dr_plan *p,
                               const struct dr_tensor *const *tensor) {
    return each_state(m, p, load_one, (void *)tensor);
}

static struct dr_status hash_one(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                                 void *buffer, void *ctx) {
    const struct dr_status s = dr_state_download(m, p, value, buffer);
    ((uint64_t *)ctx)[value] = dr_hash(buffer, (size_t)p->g->value.at[value].bytes);
    return s;
}

struct dr_status dr_state_checksums(const struct dr_memory *m, const struct dr_plan *p,
                                    struct dr_arena *a, uint64_t **sums) {
    *sums = DR_NEW_N(a, uint64_t, p->g->value.n + 1);
    return each_state(m, p, hash_one, *sums);
}

uint32_t dr_state_frozen_changed(const struct dr_plan *p, const uint64_t *before,
                                 const uint64_t *after) {
    for (uint32_t i = 0; i < p->g->value.n; i++) {
        const struct dr_value *v = &p->g->value.at[i];
        if (v->kind == DR_STATE && v->frozen && before[i] != after[i])
            return i;
    }
    return DR_NONE;
}
