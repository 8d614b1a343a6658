/* Loading cuBLASLt at run time; see lt.h. */
#include "kernels/cuda/lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dr_lt table;
static char why[200];

/* POSIX lets a data pointer from dlsym hold a function; C has no cast for it. */
static int find(void *library, const char *name, size_t offset) {
    void *const f = dlsym(library, name);
    memcpy((char *)&table + offset, &f, sizeof f);
    if (!f) {
        snprintf(why, sizeof why, "cuBLASLt has no %s", name);
    }
    return f != NULL;
}

static void load(void) {
    static const struct {
        const char *name;
        size_t offset;
    } need[] = {
        {"cublasLtCreate", offsetof(struct dr_lt, create)},
        {"cublasLtDestroy", offsetof(struct dr_lt, destroy)},
        {"cublasLtMatmulDescInit_internal", offsetof(struct dr_lt, matmul_desc_init)},
        {"cublasLtMatmulDescSetAttribute", offsetof(struct dr_lt, matmul_desc_set)},
        {"cublasLtMatrixLayoutInit_internal", offsetof(struct dr_lt, layout_init)},
        {"cublasLtMatrixLayoutSetAttribute", offsetof(struct dr_lt, layout_set)},
        {"cublasLtMatmulPreferenceInit_internal", offsetof(struct dr_lt, preference_init)},
        {"cublasLtMatmulPreferenceSetAttribute", offsetof(struct dr_lt, preference_set)},
        {"cublasLtMatmulAlgoGetHeuristic", offsetof(struct dr_lt, heuristic)},
        {"cublasLtMatmul", offsetof(struct dr_lt, matmul)},
    };
    char name[40];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *const text = dlerror();
        snprintf(why, sizeof why, "%s", text ? text : name);
        return;
    }
    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++) {
        if (!find(library, need[i].name, need[i].offset)) {
            return;
        }
    }
}

const struct dr_lt *dr_lt(void) {
    pthread_once(&once, load);
    return why[0] ? NULL : &table;
}

const char *dr_lt_why(void) {
    return why;
}
