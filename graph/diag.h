/* The diagnostics sink: a user's mistakes, each with its place in the YAML.
 *
 * Nothing here prints or exits: messages are kept in file order and the CLI prints them. A message
 * is `file:line:col: error: text`, the source line, a caret under the marked text, then its notes.
 * After 20 errors further ones are counted, not kept. */
#ifndef DR_GRAPH_DIAG_H
#define DR_GRAPH_DIAG_H

#include "graph/base.h"
#include <stdio.h>

/* A place in a source text. line and col are 1-based and count bytes, len is the bytes to underline
 * (0: one caret). line 0: no place (the message is printed without one). */
struct dr_mark {
    uint16_t source; /* index of dr_diag_source */
    uint32_t line, col, len;
};

struct dr_diag;
struct dr_diag *dr_diag_create(struct dr_arena *a);

/* Registers a text that marks can point into. The bytes must outlive the sink. */
uint16_t dr_diag_source(struct dr_diag *d, const char *name, const char *text, size_t n);

/* All return false, so that `return dr_error(...)` reads well. */
bool dr_error(struct dr_diag *d, struct dr_mark m, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool dr_warn(struct dr_diag *d, struct dr_mark m, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Attaches to the message before it (dropped where that one was dropped). */
bool dr_note(struct dr_diag *d, struct dr_mark m, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t dr_diag_errors(const struct dr_diag *d);
uint32_t dr_diag_warnings(const struct dr_diag *d);
/* Further errors would only be counted: skip what is costly to say ("did you mean"). */
bool dr_diag_full(const struct dr_diag *d);
/* Prints what came since the last call, in file order. */
void dr_diag_print(struct dr_diag *d, FILE *to);
/* All messages so far as text in the sink's arena. */
const char *dr_diag_text(const struct dr_diag *d);

/* The candidate nearest to `name` by Damerau-Levenshtein distance (at most a third of its length,
 * at least 1; capitals count little), or NULL. */
const char *dr_nearest(const char *name, const char *const *candidates, uint32_t n);
/* "; did you mean 'x'?" or "" : append it to a message. In the arena. */
const char *dr_did_you_mean(struct dr_arena *a, const char *name, const char *const *candidates,
                            uint32_t n);

#endif
