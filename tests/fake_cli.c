/* See fake_cli.h. */
#include "tests/fake_cli.h"

#include "augment/npy.h"
#include "graph/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *slurp(const char *path) {
    FILE *f = fopen(path, "rb");
    DR_ASSERT(f);
    size_t n = 0, room = 4096;
    char *s = malloc(room);
    for (size_t got; (got = fread(s + n, 1, room - n - 1, f)) > 0;) {
        n += got;
        if (room - n < 2)
            s = realloc(s, room *= 2);
    }
    s[n] = 0;
    fclose(f);
    return s;
}

struct cli_run cli_run(const char *binary, const char *args) {
    char *copy = strdup(args), *argv[64] = {(char *)binary}, *rest = copy;
    int argc = 1;
    for (char *w; (w = strsep(&rest, " ")) && argc < 63;)
        if (*w)
            argv[argc++] = w;
    char out[] = "/tmp/dagrun-out-XXXXXX", err[] = "/tmp/dagrun-err-XXXXXX";
    const int out_fd = mkstemp(out), err_fd = mkstemp(err);
    DR_ASSERT(out_fd >= 0 && err_fd >= 0);
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, out_fd, 1);
    posix_spawn_file_actions_adddup2(&fa, err_fd, 2);
    pid_t pid;
    int status = 0;
    DR_ASSERT(posix_spawn(&pid, binary, &fa, NULL, argv, environ) == 0);
    DR_ASSERT(waitpid(pid, &status, 0) == pid);
    posix_spawn_file_actions_destroy(&fa);
    close(out_fd);
    close(err_fd);
    struct cli_run r = {
        .code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
        .out = slurp(out),
        .err = slurp(err),
    };
    unlink(out);
    unlink(err);
    free(copy);
    return r;
}

void cli_run_free(struct cli_run *r) {
    free(r->out);
    free(r->err);
}

char *cli_folder(void) {
    char *f = strdup("/tmp/dagrun-test-XXXXXX");
    DR_ASSERT(mkdtemp(f));
    return f;
}

static void remove_all(const char *path) {
    DIR *d = opendir(path);
    if (!d) {
        unlink(path);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char inner[4096];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        remove_all(inner);
    }
    closedir(d);
    rmdir(path);
}

void cli_folder_remove(char *folder) {
    remove_all(folder);
    free(folder);
}

char *cli_file(const char *folder, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    DR_ASSERT(dr_write_file(path, text, strlen(text)) == 0);
    return strdup(path);
}

void cli_quadrants(const char *folder, int n) {
    unsigned char *image = malloc((size_t)n * 16), *label = malloc((size_t)n);
    uint32_t x = 12345;
    for (int i = 0; i < n; i++) {
        label[i] = (unsigned char)(i * 7 % 4);
        for (int k = 0; k < 16; k++) {
            x = x * 1664525u + 1013904223u;
            const int quadrant = k / 8 * 2 + k % 4 / 2;
            image[i * 16 + k] = (unsigned char)((x >> 26) + (quadrant == label[i] ? 180 : 0));
        }
    }
    char path[4096];
    const int64_t images[] = {n, 4, 4, 1}, labels[] = {n};
    snprintf(path, sizeof path, "%s/images.npy", folder);
    DR_ASSERT(dr_npy_write(path, "|u1", images, 4, image, (size_t)n * 16) == 0);
    snprintf(path, sizeof path, "%s/labels.npy", folder);
    DR_ASSERT(dr_npy_write(path, "|u1", labels, 1, label, (size_t)n) == 0);
    free(image);
    free(label);
}

const char cli_quadrants_yaml[] =
    "dagrun: 1\n"
    "model: quadrants\n"
    "seed: 3\n"
    "inputs:\n"
    "  image: {shape: [4, 4, 1], dtype: u8}\n"
    "  label: {shape: [], dtype: u8}\n"
    "data:\n"
    "  batch: 8\n"
    "  train: {image: {npy: images.npy, rows: [0, 64]}, label: {npy: labels.npy, rows: [0, 64]}}\n"
    "  test:  {image: {npy: images.npy, rows: [64, 84]}, label: {npy: labels.npy, rows: [64, "
    "84]}}\n"
    "subgraphs:\n"
    "  augment:\n"
    "    nodes:\n"
    "      norm: {op: normalize, in: image, mean: [0.3], std: [0.3]}\n"
    "  encoder:\n"
    "    frozen: true\n"
    "    weights: random\n"
    "    nodes:\n"
    "      c0: {op: conv2d, in: augment.norm, filters: 8, kernel: 3, padding: 1, activation: "
    "relu}\n"
    "  net:\n"
    "    nodes:\n"
    "      c1: {op: conv2d, in: encoder.c0, filters: 8, kernel: 3, padding: 1, bias: false}\n"
    "      n1: {op: batch_norm, activation: relu}\n"
    "      p1: {op: max_pool2d, kernel: 2}\n"
    "      flat: {op: flatten}\n"
    "      logits: {op: linear, features: 4}\n"
    "train:\n"
    "  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"
    "  optimizer: {op: sgd, lr: 0.05, momentum: 0.9}\n"
    "  epochs: 6\n"
    "eval: {on: test, every: 1 epoch, metrics: {acc: {op: accuracy, in: [net.logits, label]}}}\n";

struct cli_place cli_place_create(void) {
    struct cli_place p = {.folder = cli_folder()};
    cli_quadrants(p.folder, 84);
    p.yaml = cli_file(p.folder, "q.yaml", cli_quadrants_yaml);
    return p;
}

void cli_place_remove(struct cli_place *p) {
    free(p->yaml);
    cli_folder_remove(p->folder);
}
