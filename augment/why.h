/* What readers of files say about a file that they do not take. */
#ifndef DR_AUGMENT_WHY_H
#define DR_AUGMENT_WHY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* Puts the reason into why; returns false. */
__attribute__((format(printf, 3, 4))) static inline bool dr_refuse(char *why, size_t why_n,
                                                                   const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, why_n, fmt, ap);
    va_end(ap);
    return false;
}
#endif
