/* The two register tiles of im2win, a template without guard: im2win_tile.c includes it once an
 * instruction set, with TILE(name), TARGET, VEC, INTS (as many ints), LANES, ROWS, SET1, LOAD,
 * STORE and FMA defined; it undefines them. Both keep ROWS x 2 vectors of sums in registers and
 * broadcast one value a row:
 *
 *   fprop  a row is a pixel: its window's next value, times that value's weights for nr filters
 *   wgrad  a row is a place in the window: that value of pixel p, times pixel p's nr gradients
 *
 * Depthwise, the broadcast becomes a load: that value of nr neighbouring channels.
 *
 * rows, vectors and depthwise are constants in each instance (the switches at the end), so that the
 * loops unroll and the sums stay in registers. Each sum is one chain over l (p), in order. */
#define NR (2 * LANES)
#define MULTIPLY_ADD(sum, x)                                                                       \
    {                                                                                              \
        const VEC x0 = depthwise ? LOAD(x) : SET1(*(x));                                           \
        (sum)[0] = FMA(x0, b0, (sum)[0]);                                                          \
        if (vectors == 2) {                                                                        \
            (sum)[1] = FMA(depthwise ? LOAD((x) + LANES) : x0, b1, (sum)[1]);                      \
        }                                                                                          \
    }

TARGET static inline __attribute__((always_inline)) void
TILE(fprop_body)(const struct dr_tile_fprop *t, const int rows, const int vectors,
                 const bool depthwise) {
    VEC sum[ROWS][2];
    const float *a[ROWS];
    UNROLL
    for (int i = 0; i < rows; i++) {
        a[i] = t->a[i] + t->at;
        UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = LOAD(t->bias + v * LANES);
        }
    }
    const float *b = t->b;
    for (int64_t l = 0; l < t->n; l++, b += NR) {
        const VEC b0 = LOAD(b);
        const VEC b1 = vectors == 2 ? LOAD(b + LANES) : b0;
        UNROLL
        for (int i = 0; i < rows; i++) {
            const float *x = a[i] + (depthwise ? l * t->pitch : l);
            MULTIPLY_ADD(sum[i], x)
        }
    }
    if (t->scale) { /* in steps that round one by one, as a norm of its own does */
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < vectors; v++) {
                VEC x = sum[i][v] - LOAD(t->mean + v * LANES);
                x = x * LOAD(t->scale + v * LANES);
                sum[i][v] = x + LOAD(t->shift + v * LANES);
            }
        }
    }
    if (t->add) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            float part[NR];
            const float *add = t->add[i];
            if (t->lanes < vectors * LANES) {
                memset(part, 0, sizeof part);
                memcpy(part, add, (size_t)t->lanes * sizeof *part);
                add = part;
            }
            UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[i][v] = sum[i][v] + LOAD(add + v * LANES);
            }
        }
    }
    if (t->relu) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < vectors; v++) { /* NaN <= 0 is false: NaN stays */
                sum[i][v] = (VEC)((INTS)sum[i][v] & ~(INTS)(sum[i][v] <= SET1(0.0F)));
            }
        }
    }
    if (t->lanes == vectors * LANES) {
        UNROLL
        for (int i = 0; i < rows; i++) {
            UNROLL
            for (int v = 0; v < vectors; v++) {
                STORE(t->y[i] + v * LANES, sum[i][v]);
            }
        }
        return;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        float part[NR];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            STORE(part + v * LANES, sum[i][v]);
        }
        memcpy(t->y[i], part, (size_t)t->lanes * sizeof *part);
    }
}

TARGET static inline __attribute__((always_inline)) void
TILE(wgrad_body)(const struct dr_tile_wgrad *t, const int rows, const int vectors,
                 const bool depthwise) {
    VEC sum[ROWS][2];
    UNROLL
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = SET1(0.0F);
    }
    for (int64_t p = 0; p < t->n; p++) {
        const float *a = t->a[p] + t->at, *b = t->b[p];
        const VEC b0 = LOAD(b);
        const VEC b1 = vectors == 2 ? LOAD(b + LANES) : b0;
        UNROLL
        for (int i = 0; i < rows; i++) {
            const float *x = a + (depthwise ? i * t->pitch : i);
            MULTIPLY_ADD(sum[i], x)
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *to = t->sum + i * NR + v * LANES;
            STORE(to, LOAD(to) + sum[i][v]);
        }
    }
}

#define CASE(body, r)                                                                              \
    case r:                                                                                        \
        if (t->pitch) {                                                                            \
            t->lanes > LANES ? TILE(body)(t, r, 2, true) : TILE(body)(t, r, 1, true);              \
        } else {                                                                                   \
            t->lanes > LANES ? TILE(body)(t, r, 2, false) : TILE(body)(t, r, 1, false);            \
        }                                                                                          \
        break;
#if ROWS == 12
#define CASES(body)                                                                                \
    CASE(body, 1)                                                                                  \
    CASE(body, 2)                                                                                  \
    CASE(body, 3)                                                                                  \
    CASE(body, 4)                                                                                  \
    CASE(body, 5)                                                                                  \
    CASE(body, 6)                                                                                  \
    CASE(body, 7)                                                                                  \
    CASE(body, 8)                                                                                  \
    CASE(body, 9)                                                                                  \
    CASE(body, 10)                                                                                 \
    CASE(body, 11)                                                                                 \
    CASE(body, 12)
#else
#define CASES(body)                                                                                \
    CASE(body, 1)                                                                                  \
    CASE(body, 2)                                                                                  \
    CASE(body, 3)                                                                                  \
    CASE(body, 4)                                                                                  \
    CASE(body, 5)                                                                                  \
    CASE(body, 6)
#endif
TARGET static void TILE(fprop)(const struct dr_tile_fprop *t) {
    switch (t->rows) { CASES(fprop_body) }
}
TARGET static void TILE(wgrad)(const struct dr_tile_wgrad *t) {
    switch (t->rows) { CASES(wgrad_body) }
}
#undef CASES
#undef CASE
#undef MULTIPLY_ADD
#undef NR
#undef TILE
#undef TARGET
#undef VEC
#undef INTS
#undef LANES
#undef ROWS
#undef SET1
#undef LOAD
#undef STORE
#undef FMA
