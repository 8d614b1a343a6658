/* Strict scalars: the schema decides a value's type, never its looks. No locale, no partial reads.
 * Each returns false after an error that quotes the text and names `what` ("conv2d 'c1': kernel").
 */
#ifndef DR_GRAPH_SCALAR_H
#define DR_GRAPH_SCALAR_H

#include "graph/yaml.h"

/* Decimal integers only: [-+]?[0-9]+ ("010" is ten; 3.0, 1_000, 0x10, "" are errors). */
bool dr_scalar_int(struct dr_diag *d, const struct dr_yaml *y, const char *what, int64_t min,
                   int64_t max, int64_t *out);
/* YAML 1.2 core floats, finite only: [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? */
bool dr_scalar_float(struct dr_diag *d, const struct dr_yaml *y, const char *what, double min,
                     double max, double *out);
/* true false yes no on off, in any case. */
bool dr_scalar_bool(struct dr_diag *d, const struct dr_yaml *y, const char *what, bool *out);
/* One of `words`; the error lists them and says "did you mean". */
bool dr_scalar_word(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                    const char *const *words, uint32_t n, int32_t *out);
/* Any non-empty scalar as text. */
bool dr_scalar_text(struct dr_diag *d, const struct dr_yaml *y, const char *what, const char **out);
/* The same grammar for text that is not in a file (command line). */
bool dr_parse_int(const char *s, int64_t *out);
#endif
