/* progress.c: see progress.h. The remaining time is the elapsed time, scaled by the planned work of the stages. */
#include "progress.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* The signal that asked to stop, or 0. A global variable, because a signal handler has no argument for it. */
static volatile sig_atomic_t stopped;

static void remember(int signal) { stopped = signal; }

static void handle_signals(void (*handler)(int), int flags) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < COUNT(signals); i++) {
        bool ignored = sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        /* Keep SIGHUP ignored under nohup. */
        if (signals[i] != SIGHUP || !ignored) sigaction(signals[i], &action, NULL);
    }
}

void stop_on_signals(void) { handle_signals(remember, (int)SA_RESETHAND | SA_RESTART); }
void stop_picture_on_signals(void) { handle_signals(remember, SA_RESTART); }

int forget_signals(void) {
    int last = stopped;
    handle_signals(SIG_DFL, 0);
    stopped = 0;
    return last;
}

bool await_input(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (int ready = 0; ready <= 0 && !stopped;) { /* with a timeout, because a signal may arrive just before poll */
        ready = poll(&wait, 1, 200);
        if (ready < 0 && errno != EINTR) break;
    }
    return !stopped;
}

bool stop_wanted(void) { return stopped; }
int stop_code(void) { return stopped ? 128 + stopped : STOPPED; }

/* ---- the line ---------------------------------------------------------------------------------------------------- */

enum { BAR = 24, PLAIN_SECONDS = 10 };

void progress_begin(progress *p, const job *j, int picture, int pictures, const overall *all) {
    *p = (progress){.plan = &j->plan, .picture = picture, .pictures = pictures, .overall = all};
    p->shown = !j->args->quiet && isatty(STDERR_FILENO);
    p->begun = p->drawn_at = seconds_now();
}

/* The fraction of all work that is done. It never decreases, although a stage may begin again for the next image. */
static double share_of_all(progress *p, const lz_progress *now) {
    double before = 0, share = now->done;
    int i = 0;
    for (; i < p->plan->n_stages && strcmp(p->plan->stages[i].stage, now->stage) != 0; i++)
        before += p->plan->stages[i].flops;
    if (i == p->plan->n_stages) return p->share;
    if (strcmp(now->stage, "denoise") == 0) share = (now->step + now->done) / now->steps;
    double all = (before + share * p->plan->stages[i].flops) / p->plan->flops;
    return all > p->share && all <= 1 ? all : p->share;
}

bool line_is_due(double drawn_at) { return seconds_now() - drawn_at > (lines_move() ? 0.1 : PLAIN_SECONDS); }

void draw_line(const char *before, double share, const char *after) {
    if (!lines_move()) {
        fprintf(stderr, "%s %3.0f%%%s\n", before, share * 100, after);
        return;
    }
    struct winsize size = {.ws_col = 80};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    char bar[BAR + 2] = "", line[256];
    for (int i = 0; i < BAR && size.ws_col >= 78; i++) bar[i] = i < (int)(share * BAR + 0.5) ? '#' : '.';
    if (*bar) bar[BAR] = ' ';
    snprintf(line, sizeof line, "%s %s%3.0f%%%s", before, bar, share * 100, after);
    fprintf(stderr, "\r%.*s\033[K", size.ws_col > 1 ? size.ws_col - 1 : 79, line);
    fflush(stderr);
}

void clear_line(void) {
    if (lines_move()) fputs("\r\033[K", stderr);
}

static void draw(progress *p, const lz_progress *now, double elapsed) {
    char which[32] = "", step[40] = "", left[48] = "", before[80], after[160];
    double share = p->share, ahead = (1 - share) / share; /* remaining time in units of the elapsed time */
    const overall *o = p->overall;
    if (o && !o->all)
        snprintf(which, sizeof which, "%d ", o->before + 1);
    else if (o) {
        double here = (p->picture + p->share) / p->pictures; /* fraction of this set */
        share = (o->before + here) / o->all;
        ahead = (o->all - o->before - here) / (o->painted + here);
        elapsed = seconds_now() - o->begun;
        snprintf(which, sizeof which, "%d/%d ", o->before + 1, o->all);
    } else if (p->pictures > 1)
        snprintf(which, sizeof which, "%d/%d ", p->picture + 1, p->pictures);
    if (strcmp(now->stage, "denoise") == 0) snprintf(step, sizeof step, " step %d/%d", now->step + 1, now->steps);
    if (p->share > 0.02 && elapsed > 0.5) snprintf(left, sizeof left, ", %s left", show_seconds(elapsed * ahead).text);
    snprintf(before, sizeof before, "%s%-7s", which, now->stage);
    snprintf(after, sizeof after, "%s %s%s", step, show_seconds(elapsed).text, left);
    draw_line(before, share, after);
    p->drawn = true;
}

bool progress_watch(void *user, const lz_progress *now) {
    progress *p = user;
    p->share = share_of_all(p, now);
    if (p->shown && line_is_due(p->drawn_at)) {
        p->drawn_at = seconds_now();
        draw(p, now, p->drawn_at - p->begun);
    }
    return !stopped;
}

void progress_clear(progress *p) {
    if (p->drawn) clear_line();
    p->drawn = false;
}
