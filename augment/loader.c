/* The loader: threads that take the next step, wait until its slot is free, and fill it.
 *
 * Steps are handed out in order and finish in any; `complete` is the first that has not finished,
 * so a wait for step s means all of [first, s]. The first step in order that fails is the one
 * reported, whichever thread met an error first in time. */
#include "augment/column.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct dr_loader {
    struct dr_dataset *data;
    const struct dr_column_want *want;
    uint32_t n_want;
    struct dr_ring *ring;
    uint64_t seed, first, end;

    pthread_mutex_t lock;            /* guards what follows */
    pthread_cond_t work;             /* a slot was released, or it is over */
    pthread_cond_t done;             /* a step finished, or it is over, or a waiter left */
    uint64_t next, complete, failed; /* failed: lowest step that did, UINT64_MAX */
    uint32_t waiters;
    bool stop;
    double waited_s;
    char why[512]; /* of `failed` */

    uint32_t threads;
    pthread_t thread[];
};

static bool may_fill(const struct dr_loader *l, uint64_t step) {
    if (step - l->first < l->ring->slots)
        return true; /* the ring was empty at the start */
    const uint64_t released =
        atomic_load_explicit(&l->ring->released[step % l->ring->slots], memory_order_acquire);
    return released == step - l->ring->slots + 1;
}

/* A step is over: `complete` moves past all that are, and waiters look again. */
static void finish(struct dr_loader *l, uint64_t step, const char *why) {
    if (!why) {
        atomic_store_explicit(&l->ring->filled[step % l->ring->slots], step + 1,
                              memory_order_release);
    } else if (step < l->failed) {
        l->failed = step;
        memcpy(l->why, why, sizeof l->why);
        pthread_cond_broadcast(&l->work); /* no further steps */
    }
    while (l->complete < l->next &&
           atomic_load_explicit(&l->ring->filled[l->complete % l->ring->slots],
                                memory_order_relaxed) == l->complete + 1)
        l->complete++;
    pthread_cond_broadcast(&l->done);
}

static void *work(void *arg) {
    struct dr_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->next < l->end && l->failed == UINT64_MAX) {
        if (!may_fill(l, l->next)) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        const uint64_t step = l->next++;
        pthread_mutex_unlock(&l->lock);
        char why[sizeof l->why];
        unsigned char *slot = l->ring->base + (step % l->ring->slots) * l->ring->slot_bytes;
        const bool good = dr_dataset_fill(l->data, l->want, l->n_want, l->ring, l->seed, step, slot,
                                          why, sizeof why);
        pthread_mutex_lock(&l->lock);
        finish(l, step, good ? NULL : why);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals are the main thread's business. */
static void start_threads(struct dr_loader *l, uint32_t n) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (l->threads < n && pthread_create(&l->thread[l->threads], NULL, work, l) == 0)
        l->threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct dr_loader *dr_loader_start(struct dr_dataset *s, const struct dr_column_want *want,
                                  uint32_t n, struct dr_ring *ring, uint64_t seed, uint64_t first,
                                  uint64_t end, uint32_t threads) {
    if (threads == 0)
        threads = 1;
    struct dr_loader *l = calloc(1, sizeof *l + threads * sizeof(pthread_t));
    if (!l)
        return NULL;
    for (uint32_t i = 0; i < ring->slots; i++) {
        atomic_store(&ring->filled[i], 0);
        atomic_store(&ring->released[i], 0);
    }
    l->data = s;
    l->want = want;
    l->n_want = n;
    l->ring = ring;
    l->seed = seed;
    l->first = l->next = l->complete = first;
    l->end = end;
    l->failed = UINT64_MAX;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    start_threads(l, threads);
    if (l->threads == 0) {
        dr_loader_stop(l);
        return NULL;
    }
    return l;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool settled(const struct dr_loader *l, uint64_t step) {
    return l->complete > step || l->complete == l->failed || l->stop;
}

/* The lock is held; `until`: NULL, for ever. */
static void wait_settled(struct dr_loader *l, uint64_t step, const struct timespec *until) {
    if (settled(l, step))
        return;
    const double before = now_s();
    int error = 0;
    while (!settled(l, step) && !error)
        error = until ? pthread_cond_timedwait(&l->done, &l->lock, until)
                      : pthread_cond_wait(&l->done, &l->lock);
    l->waited_s += now_s() - before;
}

static void leave(struct dr_loader *l) {
    if (--l->waiters == 0 && l->stop)
        pthread_cond_broadcast(&l->done);
    pthread_mutex_unlock(&l->lock);
}

bool dr_loader_wait(struct dr_loader *l, uint64_t step, const char **why) {
    DR_ASSERT(step >= l->first && step < l->end);
    pthread_mutex_lock(&l->lock);
    l->waiters++;
    wait_settled(l, step, NULL);
    const bool good = l->complete > step;
    if (!good)
        *why = l->complete == l->failed ? l->why : "the loader was stopped";
    leave(l);
    return good;
}

bool dr_loader_wait_for(struct dr_loader *l, uint64_t step, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double at = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    pthread_mutex_lock(&l->lock);
    l->waiters++;
    wait_settled(l, step, &until);
    const bool over = settled(l, step);
    leave(l);
    return over;
}

bool dr_loader_starves(const struct dr_loader *l) {
    struct dr_loader *own = (struct dr_loader *)l; /* only to lock */
    pthread_mutex_lock(&own->lock);
    const bool starves = l->complete == l->next && l->next < l->end && !may_fill(l, l->next);
    pthread_mutex_unlock(&own->lock);
    return starves;
}

void dr_loader_wake(struct dr_loader *l) {
    /* Under the lock: a worker that has just found its slot taken must not miss this. */
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

double dr_loader_waited_s(const struct dr_loader *l) {
    struct dr_loader *own = (struct dr_loader *)l; /* only to lock */
    pthread_mutex_lock(&own->lock);
    const double s = l->waited_s;
    pthread_mutex_unlock(&own->lock);
    return s;
}

void dr_loader_stop(struct dr_loader *l) {
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->done);
    while (l->waiters)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->threads; i++)
        pthread_join(l->thread[i], NULL);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
