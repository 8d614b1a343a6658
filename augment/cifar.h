/* CIFAR-10's binary batches: records of a label byte and 32 x 32 pixels as three planes, R, G, B.
 * Files are mapped; a file that is not whole records is refused. */
#ifndef DR_AUGMENT_CIFAR_H
#define DR_AUGMENT_CIFAR_H
#include "augment/files.h"

struct dr_cifar {
    uint32_t n; /* files */
    struct dr_cifar_file {
        const unsigned char *data;
        size_t bytes;
        int64_t first; /* record */
    } * file;
    int64_t records;
};
/* Maps all files of the list. False + reason, which names the file. */
bool dr_cifar_open(struct dr_arena *a, const struct dr_files *f, struct dr_cifar *out, char *why,
                   size_t why_n);
void dr_cifar_close(struct dr_cifar *c); /* twice is fine */
/* One record: its label byte, then the planes. */
const unsigned char *dr_cifar_record(const struct dr_cifar *c, int64_t i);
/* Its picture as [32, 32, 3]. */
void dr_cifar_pixels(const unsigned char *record, unsigned char *to);
#endif
