/* The file of --tune. See tune.h. */
#include "scheduler/tune.h"

#include "kernels/cuda/conv_way.h"
#include "scheduler/cli.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGEST ((size_t)4 << 20) /* of a file that this program wrote */

const struct dr_tuned_row *dr_tuned_find(const struct dr_tuned *t, const char *problem) {
    for (uint32_t i = 0; t && problem && i < t->row.n; i++) {
        if (!strcmp(t->row.at[i].problem, problem)) {
            return &t->row.at[i];
        }
    }
    return NULL;
}

const char *dr_tuned_kernels(struct dr_arena *a) {
    return dr_printf(a, "%016llx", (unsigned long long)dr_cuda_conv_ways_hash());
}

/* "NVIDIA H200 (sm_90, 132 SMs)" -> "nvidia-h200-sm-90-132-sms" */
static const char *file_word(struct dr_arena *a, const char *card) {
    char *word = dr_strdup(a, card);
    size_t n = 0;
    for (const char *c = card; *c; c++) {
        if (isalnum((unsigned char)*c)) {
            word[n++] = (char)tolower((unsigned char)*c);
        } else if (n > 0 && word[n - 1] != '-') {
            word[n++] = '-';
        }
    }
    while (n > 0 && word[n - 1] == '-') {
        n--;
    }
    word[n] = '\0';
    return word;
}

/* Relative paths in XDG_CACHE_HOME are to be ignored (XDG Base Directory Specification). */
const char *dr_tuned_path(struct dr_arena *a, const char *card) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (!cache || *cache != '/') {
        if (!home || !*home) {
            return NULL;
        }
        cache = dr_printf(a, "%s/.cache", home);
    }
    return dr_printf(a, "%s/dagrun/tune-%s.json", cache, file_word(a, card));
}

/* ---- reading ---- */

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

/* Why the file is of no use; NULL: every choice is in t. */
static const char *take(struct dr_arena *a, const json_t *j, const char *card, struct dr_tuned *t) {
    json_t *const choices = json_object_get(j, "choices");
    if (!json_is_object(choices) || !*text_of(j, "dagrun")) {
        return "it is no file of --tune";
    }
    if (strcmp(text_of(j, "dagrun"), DR_VERSION) != 0 ||
        strcmp(text_of(j, "kernels"), dr_tuned_kernels(a)) != 0) {
        return "another version of dagrun, with other kernels, wrote it (run --tune again)";
    }
    if (strcmp(text_of(j, "device"), card) != 0) {
        return "it was measured on another card";
    }
    const char *problem;
    json_t *choice;
    json_object_foreach(choices, problem, choice) {
        const double us = json_number_value(json_object_get(choice, "us"));
        const char *kernel = text_of(choice, "kernel");
        if (!*kernel || !(us > 0) || !isfinite(us)) {
            return "a choice in it is damaged";
        }
        *dr_push(a, &t->row) =
            (struct dr_tuned_row){dr_strdup(a, problem), dr_strdup(a, kernel), us};
    }
    return NULL;
}

const struct dr_tuned *dr_tuned_read(struct dr_arena *a, struct dr_diag *d, const char *path,
                                     const char *card) {
    char cannot[160] = "";
    size_t n = 0;
    if (!path || (access(path, F_OK) != 0 && errno == ENOENT)) {
        return NULL;
    }
    struct dr_tuned *t = DR_NEW(a, struct dr_tuned);
    t->path = path;
    const char *why = cannot;
    char *const bytes = dr_file_map(path, &n, cannot, sizeof cannot);
    if (bytes) {
        json_error_t e;
        json_t *const j = n > LARGEST ? NULL : json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &e);
        why = n > LARGEST ? "it is too large"
              : j         ? take(a, j, card, t)
                          : dr_printf(a, "line %d is not JSON", e.line);
        json_decref(j);
        munmap(bytes, n);
    }
    if (why) {
        dr_warn(d, (struct dr_mark){0}, "%s: %s; its choices of kernels are ignored", path, why);
        return NULL;
    }
    return t;
}

/* ---- writing ---- */

int dr_tuned_write(const struct dr_tuned *t, const char *card) {
    struct dr_arena *a = dr_arena_create();
    json_t *const choices = json_object();
    for (uint32_t i = 0; i < t->row.n; i++) {
        json_object_set_new(
            choices, t->row.at[i].problem,
            json_pack("{s:s, s:f}", "kernel", t->row.at[i].kernel, "us", t->row.at[i].us));
    }
    json_t *const j = json_pack("{s:s, s:s, s:s, s:o}", "dagrun", DR_VERSION, "kernels",
                                dr_tuned_kernels(a), "device", card, "choices", choices);
    char *const text =
        j ? json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(6)) : NULL;
    const int error = text ? dr_write_file(t->path, text, strlen(text)) : ENOMEM;
    free(text);
    json_decref(j);
    dr_arena_destroy(a);
    return error;
}
