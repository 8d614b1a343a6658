/* Shuffling: see order.h. */
#include "augment/order.h"
#include "kernels/philox.h"

#include <stdlib.h>
#include <string.h>

#define ORDER_KEY UINT64_C(0x6f72646572) /* "order": no node's hash, so draws stay apart */

/* r * n / 2^64: uniform on [0, n) up to 2^-32, since n < 2^32 (Lemire, "Fast random integer
 * generation in an interval", 2019, without the rejection). */
static uint32_t below(uint32_t high, uint32_t low, uint32_t n) {
    const uint64_t carry = ((uint64_t)low * n) >> 32;
    return (uint32_t)(((uint64_t)high * n + carry) >> 32);
}

void dr_order_shuffle(uint32_t *at, uint32_t n, uint64_t seed, uint32_t epoch) {
    for (uint32_t i = 0; i < n; i++)
        at[i] = i;
    struct dr_draw d = {{0}};
    for (uint32_t k = 1; k < n; k++) { /* draw k picks the partner of item n - k */
        const uint32_t i = n - k, half = k & 1;
        if (half)
            d = dr_philox(seed, ORDER_KEY, epoch, k >> 1, 0);
        const uint32_t j = below(d.x[2 * half], d.x[2 * half + 1], i + 1);
        const uint32_t t = at[i];
        at[i] = at[j];
        at[j] = t;
    }
}

bool dr_order_init(struct dr_order *o, uint32_t n) {
    memset(o, 0, sizeof *o);
    o->n = n;
    for (int i = 0; i < DR_ORDER_KEPT; i++) {
        o->kept[i].at = malloc(n ? n * sizeof(uint32_t) : 1);
        if (!o->kept[i].at) {
            while (i--)
                free(o->kept[i].at);
            return false;
        }
    }
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    return true;
}

void dr_order_free(struct dr_order *o) {
    for (int i = 0; i < DR_ORDER_KEPT; i++)
        free(o->kept[i].at);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
}

/* The one asked for (ready or being built), else the least recently used free one, else NULL. */
static struct dr_permutation *find(struct dr_order *o, uint64_t seed, uint32_t epoch) {
    struct dr_permutation *oldest = NULL;
    for (int i = 0; i < DR_ORDER_KEPT; i++) {
        struct dr_permutation *p = &o->kept[i];
        if ((p->ready || p->building) && p->seed == seed && p->epoch == epoch)
            return p;
        if (!p->users && !p->building && (!oldest || p->last_use < oldest->last_use))
            oldest = p;
    }
    return oldest;
}

const struct dr_permutation *dr_order_take(struct dr_order *o, uint64_t seed, uint32_t epoch) {
    pthread_mutex_lock(&o->lock);
    struct dr_permutation *p;
    while (!(p = find(o, seed, epoch)) || p->building)
        pthread_cond_wait(&o->changed, &o->lock);
    if (!p->ready || p->seed != seed || p->epoch != epoch) {
        p->seed = seed;
        p->epoch = epoch;
        p->ready = false;
        p->building = true;
        pthread_mutex_unlock(&o->lock);
        dr_order_shuffle(p->at, o->n, seed, epoch);
        pthread_mutex_lock(&o->lock);
        p->building = false;
        p->ready = true;
        pthread_cond_broadcast(&o->changed);
    }
    p->users++;
    p->last_use = ++o->clock;
    pthread_mutex_unlock(&o->lock);
    return p;
}

void dr_order_give(struct dr_order *o, const struct dr_permutation *given) {
    struct dr_permutation *p = &o->kept[given - o->kept];
    pthread_mutex_lock(&o->lock);
    if (--p->users == 0)
        pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}
