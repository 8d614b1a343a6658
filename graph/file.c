/* Files that appear whole or not at all: written to a temporary name beside the place, synced and
 * renamed. */
#include "graph/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sys/mman.h>

int dr_make_folders(const char *path_of_file) {
    char *p = strdup(path_of_file);
    if (!p)
        return ENOMEM;
    int err = 0;
    for (char *s = strchr(p + (*p == '/'), '/'); s && !err; s = strchr(s + 1, '/')) {
        *s = 0;
        struct stat st;
        if (*p && mkdir(p, 0777) != 0) {
            err = errno; /* EEXIST, or EROFS and EACCES above a folder that is there */
            if (stat(p, &st) == 0)
                err = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        }
        *s = '/';
    }
    free(p);
    return err;
}

static int write_all(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t got = write(fd, bytes, n < 1u << 30 ? n : 1u << 30);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        bytes += got;
        n -= (size_t)got;
    }
    return 0;
}

/* The rename itself is durable only once its folder is synced; some file systems cannot do that
 * (EINVAL), which is no failure of the write. */
static void sync_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

/* mkstemp makes files for their owner only; a new file should have the mode that open gives, and
 * an old one keep its own. Reading the umask would change it for other threads, so the name is
 * drawn here and opened with O_EXCL. */
static int open_beside(const char *path, char *tmp, size_t cap) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    for (uint32_t i = 0; i < 1000; i++) { /* short: the file's name may be as long as names get */
        snprintf(tmp, cap, "%.*s.dagrun-%ld-%u", folder, path, (long)getpid(), i);
        int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

struct dr_file {
    int fd;
    char *real, *tmp; /* tmp NULL: written in place, there is nothing to replace */
};

static void file_free(struct dr_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    free(f->real);
    free(f->tmp);
    free(f);
}

static int file_begin(struct dr_file *f, const char *path) {
    struct stat st;
    const bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return EISDIR;
    if (there && !S_ISREG(st.st_mode)) { /* /dev/stdout, a pipe */
        f->fd = open(path, O_WRONLY | O_CLOEXEC);
        return f->fd < 0 ? errno : 0;
    }
    f->real = there ? realpath(path, NULL) : strdup(path); /* through a symbolic link */
    if (!f->real)
        return errno;
    const size_t cap = strlen(f->real) + 64;
    f->tmp = malloc(cap);
    if (!f->tmp)
        return ENOMEM;
    f->fd = open_beside(f->real, f->tmp, cap);
    if (f->fd < 0)
        return errno;
    if (there)
        (void)fchmod(f->fd, st.st_mode & 07777);
    return 0;
}

int dr_file_create(struct dr_file **out, const char *path) {
    *out = NULL;
    const int err = dr_make_folders(path);
    if (err)
        return err;
    struct dr_file *f = calloc(1, sizeof *f);
    if (!f)
        return ENOMEM;
    f->fd = -1;
    const int begun = file_begin(f, path);
    if (begun) {
        file_free(f);
        return begun;
    }
    *out = f;
    return 0;
}

/* A pipe's reader would take an opened and closed one for its end. */
int dr_file_try(const char *path) {
    struct stat st;
    struct dr_file *f = NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return access(path, W_OK) ? errno : 0;
    const int err = dr_file_create(&f, path);
    dr_file_drop(f);
    if (!err && stat(path, &st) != 0 && errno != ENOENT) /* the name is too long */
        return errno;
    return err;
}

int dr_file_write(struct dr_file *f, const void *bytes, size_t n) {
    return write_all(f->fd, bytes, n);
}

int dr_file_commit(struct dr_file *f) {
    int err = fsync(f->fd) ? errno : 0;
    if (!f->tmp && (err == EINVAL || err == ENOTSUP)) /* pipes cannot be synced */
        err = 0;
    if (close(f->fd) && !err)
        err = errno;
    f->fd = -1;
    if (f->tmp) {
        if (!err && rename(f->tmp, f->real))
            err = errno;
        if (err)
            (void)unlink(f->tmp);
        else
            sync_folder(f->real);
    }
    file_free(f);
    return err;
}

void dr_file_drop(struct dr_file *f) {
    if (!f)
        return;
    if (f->tmp)
        (void)unlink(f->tmp);
    file_free(f);
}

int dr_write_file(const char *path, const void *bytes, size_t n) {
    struct dr_file *f;
    int err = dr_file_create(&f, path);
    if (err)
        return err;
    err = dr_file_write(f, bytes, n);
    if (!err)
        return dr_file_commit(f);
    dr_file_drop(f);
    return err;
}

void *dr_file_map(const char *path, size_t *n, char *why, size_t why_n) {
    /* O_NONBLOCK: opening a FIFO must not hang; regular files ignore it. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_n, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        snprintf(why, why_n, S_ISREG(st.st_mode) ? "the file is empty" : "it is not a file");
        close(fd);
        return NULL;
    }
    *n = (size_t)st.st_size;
    void *map = mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED) {
        snprintf(why, why_n, "mmap: %s", strerror(error));
        return NULL;
    }
    return map;
}
