/* The order in which an epoch shows its samples, shared by the threads that fill batches.
 *
 * A permutation is worked out once an epoch, by the first thread that needs it, into one of a few
 * buffers allocated at the start; the others wait for it. Several are kept because threads that run
 * ahead are in the next epoch already. */
#ifndef DR_AUGMENT_ORDER_H
#define DR_AUGMENT_ORDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define DR_ORDER_KEPT 3
struct dr_order {
    uint32_t n;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t clock;
    struct dr_permutation {
        uint64_t seed, last_use;
        uint32_t epoch, users;
        bool ready, building;
        uint32_t *at; /* [n] */
    } kept[DR_ORDER_KEPT];
};
bool dr_order_init(struct dr_order *o, uint32_t n); /* false: no memory */
void dr_order_free(struct dr_order *o);
/* The permutation of an epoch, to be given back; blocks while it is worked out or while all buffers
 * are in use. */
const struct dr_permutation *dr_order_take(struct dr_order *o, uint64_t seed, uint32_t epoch);
void dr_order_give(struct dr_order *o, const struct dr_permutation *p);
/* Fisher-Yates by Philox keyed by (seed, epoch). */
void dr_order_shuffle(uint32_t *at, uint32_t n, uint64_t seed, uint32_t epoch);
#endif
