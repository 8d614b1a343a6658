/* One line on the terminal: step, loss, steps/s, time left. Drawn at most ten times a second. */
#include "scheduler/cli.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

void dr_progress_start(struct dr_progress *p, int64_t first, int64_t total, bool wanted) {
    *p =
        (struct dr_progress){.on = wanted && isatty(STDERR_FILENO), .first = first, .total = total};
    p->start_s = dr_now_s();
}

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : 80;
}

static void bar(char *out, int width, int64_t step, int64_t total) {
    const int full = total > 0 ? (int)(step * width / total) : 0;
    for (int i = 0; i < width; i++)
        out[i] = i < full ? '#' : '.';
    out[width] = 0;
}

void dr_progress_step(struct dr_progress *p, int64_t step, double loss) {
    const double now = dr_now_s();
    if (!p->on || (now - p->drawn_s < 0.1 && step + 1 < p->total))
        return;
    char line[256], text[33];
    bar(text, 32, step + 1, p->total);
    const double rate = (double)(step + 1 - p->first) / (now - p->start_s + 1e-9);
    const long left = (long)((double)(p->total - step - 1) / rate + 0.5);
    const int n =
        snprintf(line, sizeof line, "[%s] %lld/%lld  loss %.4g  %.1f steps/s  ETA %ld:%02ld", text,
                 (long long)step + 1, (long long)p->total, loss, rate, left / 60, left % 60);
    const int room = columns() - 1; /* a line that wraps could not be drawn over */
    const char *shown = n <= room ? line : line + sizeof text + 2;
    fprintf(stderr, "\r\x1b[K%.*s", room, shown);
    fflush(stderr);
    p->drawn_s = now;
    p->drawn_step = step + 1;
}

void dr_progress_clear(struct dr_progress *p) {
    if (p->on && p->drawn_step) {
        fputs("\r\x1b[K", stderr);
        fflush(stderr);
    }
    p->drawn_step = 0;
}
