/* CUPTI at run time: activity records with their correlation ids and graph node ids, resource
 * callbacks that follow graph nodes from capture to the executable graph. See cupti_cuda.h.
 *
 * CUPTI's documentation: "Activity API" (buffers, external correlation) and "CUDA Graphs" (the ids
 * in records are those of the executable graph's nodes, clones of the captured ones). */
#include "scheduler/cupti_cuda.h"

#include "graph/base.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define FUNCTIONS(X)                                                                               \
    X(GetVersion)                                                                                  \
    X(GetResultString)                                                                             \
    X(Subscribe)                                                                                   \
    X(Unsubscribe)                                                                                 \
    X(EnableCallback)                                                                              \
    X(GetGraphNodeId)                                                                              \
    X(ActivityRegisterCallbacks)                                                                   \
    X(ActivityEnable)                                                                              \
    X(ActivityDisable)                                                                             \
    X(ActivityFlushAll)                                                                            \
    X(ActivityGetNextRecord)                                                                       \
    X(ActivityGetNumDroppedRecords)                                                                \
    X(ActivityPushExternalCorrelationId)                                                           \
    X(ActivityPopExternalCorrelationId)

#define DECLARE(f) __typeof__(&cupti##f) f;
static struct { FUNCTIONS(DECLARE) } api;

static void *open_library(void) {
    static const char *const below[] = {"extras/CUPTI/lib64", "lib64", "lib",
                                        "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda",
                                 "/usr/local/cuda-13.0"};
    char name[32], path[512];
    snprintf(name, sizeof name, "libcupti.so.%d", CUPTI_API_VERSION / 10000);
    void *h = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (size_t r = 0; r < sizeof roots / sizeof *roots && !h; r++)
        for (size_t b = 0; b < sizeof below / sizeof *below && !h && roots[r]; b++) {
            snprintf(path, sizeof path, "%s/%s/%s", roots[r], below[b], name);
            h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        }
    return h ? h : dlopen("libcupti.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* The layouts of activity records are those of one major version. */
static bool load(char *why, size_t why_bytes) {
    void *h = open_library();
    if (!h) {
        snprintf(why, why_bytes, "libcupti.so.%d was not found (LD_LIBRARY_PATH, CUDA_HOME)",
                 CUPTI_API_VERSION / 10000);
        return false;
    }
#define FIND(f)                                                                                    \
    do {                                                                                           \
        void *const at = dlsym(h, "cupti" #f);                                                     \
        memcpy(&api.f, &at, sizeof at);                                                            \
        if (!at) {                                                                                 \
            snprintf(why, why_bytes, "libcupti has no cupti" #f);                                  \
            return false;                                                                          \
        }                                                                                          \
    } while (0);
    FUNCTIONS(FIND)
    uint32_t version = 0;
    if (api.GetVersion(&version) != CUPTI_SUCCESS || version / 10000 != CUPTI_API_VERSION / 10000) {
        snprintf(why, why_bytes, "CUPTI's version is %u, not %d", version, CUPTI_API_VERSION);
        return false;
    }
    return true;
}

/* ---- the handle ---- */

enum { BUFFERS = 64, BUFFER_BYTES = 1 << 20 };

struct record {
    uint64_t start_ns, end_ns, graph_node;
    const char *kernel;
    uint32_t correlation;
};
struct link { /* a launch call and the tag around it */
    uint64_t tag;
    uint32_t correlation;
};
struct node {
    uint64_t id, tag; /* tag 0: a free place */
};

struct dr_cupti {
    CUpti_SubscriberHandle subscriber;
    pthread_mutex_t lock;
    unsigned char *buffer; /* BUFFERS of them */
    _Atomic bool taken[BUFFERS];
    struct record *record;
    struct link *link;
    uint64_t room, n_records, n_links, lost;
    struct node *node; /* open addressing */
    uint64_t n_nodes, node_room;
};

/* CUPTI's buffer callbacks carry no pointer of ours. */
static struct dr_cupti *_Atomic the_one;
static _Thread_local uint64_t created_tag;

/* ---- graph nodes ---- */

static struct node *place(struct node *at, uint64_t room, uint64_t id) {
    uint64_t i = (id * 0x9e3779b97f4a7c15u >> 20) & (room - 1);
    while (at[i].tag && at[i].id != id)
        i = (i + 1) & (room - 1);
    return &at[i];
}

static uint64_t tag_of(const struct dr_cupti *c, uint64_t id) {
    return c->node_room ? place(c->node, c->node_room, id)->tag : 0;
}

static void remember(struct dr_cupti *c, uint64_t id, uint64_t tag) {
    if (2 * c->n_nodes >= c->node_room) {
        const uint64_t room = c->node_room ? 2 * c->node_room : 1024;
        struct node *at = calloc(room, sizeof *at);
        if (!at)
            return;
        for (uint64_t i = 0; i < c->node_room; i++)
            if (c->node[i].tag)
                *place(at, room, c->node[i].id) = c->node[i];
        free(c->node);
        c->node = at;
        c->node_room = room;
    }
    struct node *n = place(c->node, c->node_room, id);
    c->n_nodes += !n->tag;
    *n = (struct node){id, tag};
}

static void CUPTIAPI on_resource(void *ctx, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data) {
    struct dr_cupti *c = ctx;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE)
        return;
    const CUpti_ResourceData *r = data;
    const CUpti_GraphData *g = r->resourceDescriptor;
    uint64_t node = 0, original = 0;
    if (!g || api.GetGraphNodeId(g->node, &node) != CUPTI_SUCCESS)
        return;
    pthread_mutex_lock(&c->lock);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        if (created_tag)
            remember(c, node, created_tag);
    } else if (g->originalNode && api.GetGraphNodeId(g->originalNode, &original) == CUPTI_SUCCESS) {
        const uint64_t tag = tag_of(c, original);
        if (tag)
            remember(c, node, tag);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- activity records ---- */

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records) {
    struct dr_cupti *c = atomic_load(&the_one);
    *buffer = NULL;
    *size = 0;
    *records = 0; /* as many as fit */
    for (int i = 0; c && i < BUFFERS; i++)
        if (!atomic_exchange(&c->taken[i], true)) {
            *buffer = c->buffer + (size_t)i * BUFFER_BYTES;
            *size = BUFFER_BYTES;
            return;
        }
}

static void keep(struct dr_cupti *c, const struct record *r) {
    if (!r->start_ns || r->end_ns < r->start_ns) /* CUPTI could not time it */
        c->lost++;
    else if (c->n_records < c->room)
        c->record[c->n_records++] = *r;
    else
        c->lost++;
}

static void take_activity(struct dr_cupti *c, const CUpti_Activity *a) {
    switch (a->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel10 *k = (const void *)a;
        keep(c, &(struct record){k->start, k->end, k->graphNodeId, k->name, k->correlationId});
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy6 *k = (const void *)a;
        keep(c, &(struct record){k->start, k->end, k->graphNodeId, "copy", k->correlationId});
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset4 *k = (const void *)a;
        keep(c, &(struct record){k->start, k->end, k->graphNodeId, "fill", k->correlationId});
        break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const CUpti_ActivityExternalCorrelation *k = (const void *)a;
        if (k->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
            break;
        /* A runtime call and the driver call inside it may report the same. */
        const struct link *last = c->n_links ? &c->link[c->n_links - 1] : NULL;
        if (last && last->correlation == k->correlationId)
            break;
        if (c->n_links < c->room)
            c->link[c->n_links++] = (struct link){k->externalId, k->correlationId};
        break;
    }
    default: /* API records, enabled for the correlations that precede them */
        break;
    }
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid) {
    struct dr_cupti *c = atomic_load(&the_one);
    CUpti_Activity *a = NULL;
    size_t dropped = 0;
    (void)size;
    if (!c || !buffer)
        return;
    pthread_mutex_lock(&c->lock);
    while (valid && api.ActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS)
        take_activity(c, a);
    if (api.ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        c->lost += dropped;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->taken[(size_t)(buffer - c->buffer) / BUFFER_BYTES], false);
}

/* ---- opening and closing ---- */

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool failed(CUptiResult r, const char *call, char *why, size_t why_bytes) {
    const char *text = NULL;
    if (r == CUPTI_SUCCESS)
        return false;
    api.GetResultString(r, &text);
    snprintf(why, why_bytes, "%s: %s", call, text ? text : "unknown error");
    return true;
}

static bool start(struct dr_cupti *c, char *why, size_t why_bytes) {
    static const CUpti_CallbackId ids[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                           CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
    if (failed(api.Subscribe(&c->subscriber, (CUpti_CallbackFunc)on_resource, c), "cuptiSubscribe",
               why, why_bytes)) {
        c->subscriber = NULL;
        return false;
    }
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (failed(api.EnableCallback(1, c->subscriber, CUPTI_CB_DOMAIN_RESOURCE, ids[i]),
                   "cuptiEnableCallback", why, why_bytes))
            return false;
    if (failed(api.ActivityRegisterCallbacks(give_buffer, take_buffer),
               "cuptiActivityRegisterCallbacks", why, why_bytes))
        return false;
    for (int i = 0; i < KINDS; i++)
        if (failed(api.ActivityEnable(kinds[i]), "cuptiActivityEnable", why, why_bytes))
            return false;
    return true;
}

struct dr_cupti *dr_cupti_open(uint64_t room, char *why, size_t why_bytes) {
    if (atomic_load(&the_one)) {
        snprintf(why, why_bytes, "another trace is being made");
        return NULL;
    }
    if (!load(why, why_bytes))
        return NULL;
    struct dr_cupti *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->room = room;
    c->buffer = aligned_alloc(4096, (size_t)BUFFERS * BUFFER_BYTES);
    c->record = calloc(room + 1, sizeof *c->record);
    c->link = calloc(room + 1, sizeof *c->link);
    snprintf(why, why_bytes, "out of host memory");
    const bool memory = c->buffer && c->record && c->link;
    if (memory)
        atomic_store(&the_one, c);
    if (memory && start(c, why, why_bytes))
        return c;
    dr_cupti_close(c);
    return NULL;
}

void dr_cupti_close(struct dr_cupti *c) {
    if (!c)
        return;
    for (int i = KINDS; i-- && c->subscriber;)
        api.ActivityDisable(kinds[i]);
    if (c->subscriber) {
        api.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        api.Unsubscribe(c->subscriber);
    }
    atomic_store(&the_one, NULL);
    bool lent = false; /* a buffer that CUPTI kept: leave its memory alone */
    for (int i = 0; i < BUFFERS; i++)
        lent |= atomic_load(&c->taken[i]);
    if (!lent)
        free(c->buffer);
    pthread_mutex_destroy(&c->lock);
    free(c->record);
    free(c->link);
    free(c->node);
    free(c);
}

/* ---- use ---- */

void dr_cupti_push(struct dr_cupti *c, uint64_t tag) {
    if (c)
        api.ActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, tag);
}

void dr_cupti_pop(struct dr_cupti *c) {
    uint64_t last;
    if (c)
        api.ActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

void dr_cupti_tag_nodes(struct dr_cupti *c, uint64_t tag) {
    if (c)
        created_tag = tag;
}

uint64_t dr_cupti_tagged(struct dr_cupti *c) {
    if (!c)
        return 0;
    pthread_mutex_lock(&c->lock);
    const uint64_t n = c->n_nodes;
    pthread_mutex_unlock(&c->lock);
    return n;
}

static int by_correlation(const void *a, const void *b) {
    const struct link *x = a, *y = b;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

void dr_cupti_collect(struct dr_cupti *c, void (*take)(void *ctx, const struct dr_cupti_record *r),
                      void *ctx) {
    if (!c)
        return;
    api.ActivityFlushAll(0);
    api.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&c->lock);
    qsort(c->link, (size_t)c->n_links, sizeof *c->link, by_correlation);
    for (uint64_t i = 0; i < c->n_records; i++) {
        const struct record *r = &c->record[i];
        const struct link key = {.correlation = r->correlation};
        const struct link *l =
            bsearch(&key, c->link, (size_t)c->n_links, sizeof key, by_correlation);
        take(ctx,
             &(struct dr_cupti_record){.start_ns = r->start_ns,
                                       .end_ns = r->end_ns,
                                       .launch_tag = l ? l->tag : 0,
                                       .node_tag = r->graph_node ? tag_of(c, r->graph_node) : 0,
                                       .kernel = r->kernel ? r->kernel : "",
                                       .in_graph = r->graph_node != 0});
    }
    c->n_records = c->n_links = 0;
    pthread_mutex_unlock(&c->lock);
}

uint64_t dr_cupti_lost(struct dr_cupti *c) {
    if (!c)
        return 0;
    pthread_mutex_lock(&c->lock);
    const uint64_t n = c->lost;
    c->lost = 0;
    pthread_mutex_unlock(&c->lock);
    return n;
}
