/* CIFAR-10's binary batches. See cifar.h. */
#include "augment/cifar.h"

#include <stdio.h>
#include <sys/mman.h>

enum { PLANE = 32 * 32, RECORD = 1 + 3 * PLANE };

bool dr_cifar_open(struct dr_arena *a, const struct dr_files *f, struct dr_cifar *out, char *why,
                   size_t why_n) {
    char reason[200];
    *out = (struct dr_cifar){.file = DR_NEW_N(a, struct dr_cifar_file, f->n)};
    for (uint32_t i = 0; i < f->n; i++) {
        struct dr_cifar_file *file = &out->file[i];
        file->data = dr_file_map(f->path[i], &file->bytes, reason, sizeof reason);
        if (!file->data) {
            snprintf(why, why_n, "%s: %s", f->path[i], reason);
            return false;
        }
        out->n++;
        if (file->bytes % RECORD != 0) {
            snprintf(why, why_n,
                     "%s: %zu bytes are not whole records of %d: it is no CIFAR-10 "
                     "binary batch, or is truncated",
                     f->path[i], file->bytes, RECORD);
            return false;
        }
        file->first = out->records;
        out->records += (int64_t)(file->bytes / RECORD);
    }
    return true;
}

void dr_cifar_close(struct dr_cifar *c) {
    for (uint32_t i = 0; i < c->n; i++)
        munmap((void *)c->file[i].data, c->file[i].bytes);
    c->n = 0;
}

const unsigned char *dr_cifar_record(const struct dr_cifar *c, int64_t i) {
    uint32_t at = c->n - 1; /* there are six of them, not thousands */
    while (c->file[at].first > i)
        at--;
    return c->file[at].data + (size_t)(i - c->file[at].first) * RECORD;
}

void dr_cifar_pixels(const unsigned char *record, unsigned char *to) {
    for (int i = 0; i < PLANE; i++)
        for (int c = 0; c < 3; c++)
            to[3 * i + c] = record[1 + c * PLANE + i];
}
