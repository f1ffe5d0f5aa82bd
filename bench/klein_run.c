/* klein_run.c: runs a command and reports its time and memory. klein_run REPORT COMMAND [ARGUMENT...]
 *
 * The file REPORT gets lines that sh can read: seconds by the clock; processor seconds (user and system); and the largest
 * resident memory: rss, which includes pages of mapped files, and anonymous, which does not and is sampled five times a
 * second. klein_run exits with the exit code of the command. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long anonymous_kib(pid_t pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) break;
    if (f) fclose(f);
    return kib;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    double start = seconds();
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (pid < 0) return 1;
    int status = 0;
    long most = 0;
    struct rusage usage = {0};
    while (wait4(pid, &status, WNOHANG, &usage) == 0) {
        long now = anonymous_kib(pid);
        if (now > most) most = now;
        usleep(200000);
    }
    FILE *f = fopen(argv[1], "w");
    if (!f) return 1;
    fprintf(f, "wall=%.2f\nuser=%.2f\nsystem=%.2f\nrss=%.2f\nanonymous=%.2f\n", seconds() - start,
            (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec,
            (double)usage.ru_stime.tv_sec + 1e-6 * (double)usage.ru_stime.tv_usec, (double)usage.ru_maxrss / 1048576,
            (double)most / 1048576);
    return fclose(f) || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}
