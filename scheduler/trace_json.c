/* The trace as Chrome trace events: complete events ("ph": "X") in microseconds, one row a stream
 * of a plan, one process a plan. The format: "Trace Event Format" of the Chromium project. */
#include "scheduler/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const how_names[] = {
    [DR_TRACE_WORKER] = "worker thread",
    [DR_TRACE_GRAPH] = "captured graph",
    [DR_TRACE_LAUNCHED] = "uncaptured launch",
    [DR_TRACE_EVENTS] = "uncaptured launch, by events",
};

static const char *plan_name(const struct dr_plan *p) {
    static const char *const names[] = {"training", "evaluation", "inference"};
    return names[p->g->mode];
}

/* Rows have numbers of their own in the whole file: not all viewers keep processes apart. */
static uint32_t row(uint32_t plan, uint32_t stream) {
    return plan * DR_MAX_STREAMS + stream + 1;
}

/* The last identifier of an Itanium-mangled name, or the name itself: "_ZN2dr4fillEPfi" -> "fill".
 */
static int readable(const char *symbol, const char **at) {
    *at = symbol;
    int length = (int)strlen(symbol);
    if (strncmp(symbol, "_Z", 2) != 0)
        return length;
    const char *s = symbol + 2;
    while (*s == 'N' || *s == 'L' || *s == 'K')
        s++;
    while (*s >= '1' && *s <= '9') {
        char *name;
        const long n = strtol(s, &name, 10);
        if (n > (long)strlen(name))
            break;
        *at = name;
        length = (int)n;
        s = name + n;
        while (*s == 'L')
            s++;
    }
    return length;
}

/* ---- what is the same in all records of a node, made once ---- */

static char *quoted(const char *s) {
    json_t *j = json_string(s);
    char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    json_decref(j);
    return text ? text : strdup("\"?\"");
}

static char *describe(const struct dr_plan *p, uint32_t v) {
    const struct dr_graph *g = p->g;
    const struct dr_node *n = &g->node.at[v];
    char *name = quoted(n->name);
    char *op = quoted(n->op->name);
    char *subgraph = quoted(n->subgraph == DR_NONE ? "" : g->subgraph.at[n->subgraph].name);
    char *text = NULL;
    if (!name || !op || !subgraph ||
        asprintf(&text,
                 "\"name\":%s,\"cat\":\"%s\",\"args\":{\"op\":%s,\"subgraph\":%s,\"stage\":%u",
                 name, dr_role_name(n->role), op, subgraph, p->stage[v]) < 0)
        text = NULL;
    free(name);
    free(op);
    free(subgraph);
    return text;
}

static void forget(char **about, uint32_t n) {
    for (uint32_t v = 0; about && v < n; v++)
        free(about[v]);
    free(about);
}

static char **describe_all(const struct dr_plan *p) {
    char **about = calloc((size_t)p->n_nodes + 1, sizeof *about);
    for (uint32_t v = 0; about && v < p->n_nodes; v++) {
        about[v] = describe(p, v);
        if (!about[v]) {
            forget(about, v);
            return NULL;
        }
    }
    return about;
}

/* ---- events ---- */

static void name_rows(const struct dr_trace *t, uint32_t plan, bool by_events, FILE *f) {
    const struct dr_plan *p = t->plan[plan].plan;
    fprintf(f, "{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}},\n",
            plan + 1, plan_name(p));
    fprintf(f,
            "{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}"
            "},\n",
            plan + 1, plan);
    for (uint32_t s = 0; s < p->n_streams; s++) {
        fprintf(f,
                "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":"
                "\"stream %u%s\"}},\n",
                plan + 1, row(plan, s), s, by_events ? " (uncaptured, by events)" : "");
        fprintf(f,
                "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_sort_index\",\"args\":{"
                "\"sort_index\":%u}},\n",
                plan + 1, row(plan, s), s);
    }
}

static void event(const struct dr_trace_record *r, const char *about, uint64_t zero, FILE *f) {
    const uint64_t at = r->start_ns - zero, length = r->end_ns - r->start_ns;
    fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,%s",
            r->plan + 1u, row(r->plan, r->stream), (unsigned long long)(at / 1000),
            (unsigned long long)(at % 1000), (unsigned long long)(length / 1000),
            (unsigned long long)(length % 1000), about);
    if (r->step >= 0)
        fprintf(f, ",\"step\":%lld", (long long)r->step);
    fprintf(f, ",\"block\":%lld,\"from\":\"%s\"", (long long)r->block, how_names[r->how]);
    if (r->kernel) {
        const char *at_name;
        const int n = readable(r->kernel, &at_name);
        fprintf(f, ",\"kernel\":\"%.*s\"", n, at_name); /* a C identifier */
    }
    fputs("}}", f);
}

static void write_all(const struct dr_trace *t, const char *device, char **const *about, FILE *f) {
    const uint64_t n = dr_trace_records(t);
    bool by_events[DR_TRACE_PLANS] = {false};
    uint64_t zero = n ? t->at[0].start_ns : 0;
    for (uint64_t i = 0; i < n; i++) {
        by_events[t->at[i].plan] |= t->at[i].how == DR_TRACE_EVENTS;
        zero = t->at[i].start_ns < zero ? t->at[i].start_ns : zero;
    }
    char *name = quoted(device);
    fprintf(f,
            "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"device\":%s,\"records\":%llu,"
            "\"dropped\":%llu},\n\"traceEvents\":[\n",
            name ? name : "\"\"", (unsigned long long)n, (unsigned long long)dr_trace_dropped(t));
    free(name);
    for (uint32_t i = 0; i < t->n_plans; i++)
        name_rows(t, i, by_events[i], f);
    fputs("{\"ph\":\"M\",\"pid\":1,\"name\":\"process_labels\",\"args\":{\"labels\":\"dagrun\"}}",
          f);
    for (uint64_t i = 0; i < n; i++)
        event(&t->at[i], about[t->at[i].plan][t->at[i].node], zero, f);
    fputs("\n]}\n", f);
}

bool dr_trace_json(const struct dr_trace *t, const char *device, char **text, size_t *bytes) {
    char **about[DR_TRACE_PLANS] = {NULL};
    bool good = true;
    *text = NULL;
    for (uint32_t i = 0; i < t->n_plans && good; i++)
        good = (about[i] = describe_all(t->plan[i].plan)) != NULL;
    FILE *f = good ? open_memstream(text, bytes) : NULL;
    if (f) {
        write_all(t, device, about, f);
        good = !ferror(f);
        good = fclose(f) == 0 && good;
    }
    for (uint32_t i = 0; i < t->n_plans; i++)
        forget(about[i], t->plan[i].plan->n_nodes);
    if (f && good)
        return true;
    free(*text);
    *text = NULL;
    return false;
}
