/* Moves the wall clock of a process by the seconds in the file KP_CLOCK, as a step of NTP or an operator would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;
static int (*of_system)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void)
{
    of_system = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("KP_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    offset = mapped == MAP_FAILED ? NULL : mapped;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (of_system == NULL)
        prepare(); /* another library's constructor came first */
    int status = of_system(clock, at);
    if (offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *offset;
    return status;
}

int gettimeofday(struct timeval *at, void *zone)
{
    (void)zone;
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return status;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
