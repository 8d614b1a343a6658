/* dagrun inside a program of your own: train a file, print its results and one weight.
 *
 *     cc -I. examples/embed.c -o embed build/libdr_*.a ...    (or the CMake target `embed`)
 *     build/embed examples/digits.yaml */
#include "scheduler/dagrun.h"

#include <stdio.h>

static int on_step(void *ctx, int64_t step, double loss) {
    const int64_t every = *(const int64_t *)ctx;
    if (step % every == 0)
        printf("step %lld: loss %.4f\n", (long long)step, loss);
    return 0; /* not 0 would stop the run */
}

int main(int argc, char **argv) {
    char why[1024];
    int64_t every = 100;
    const char *const set[] = {"train.epochs=4"};
    const struct dagrun_options options = {
        .set = set, .n_set = 1, .on_step = on_step, .ctx = &every};

    if (argc < 2) {
        fprintf(stderr, "usage: embed MODEL.yaml\n");
        return 2;
    }
    struct dagrun *d = dagrun_open(argv[1], &options, why, sizeof why);
    if (!d) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    const int code = dagrun_run(d, why, sizeof why);
    if (code)
        fprintf(stderr, "%s\n", why);
    else
        printf("%lld steps, loss %.4f, accuracy %.4f, net.logits.weight has %zu elements\n",
               (long long)dagrun_steps(d), dagrun_loss(d, "total"), dagrun_metric(d, "accuracy"),
               dagrun_weight(d, "net.logits.weight", NULL, 0));
    dagrun_close(d);
    return code;
}
