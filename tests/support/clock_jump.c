/* A wall clock that is off by as many seconds as stand in the file that CLOCK_JUMP_FILE names.
 * Build: cc -shared -fPIC -o clock_jump.so clock_jump.c -ldl; use: LD_PRELOAD. Only CLOCK_REALTIME jumps. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int (*reader)(clockid_t, struct timespec *);

static long offset_s(void)
{
    char text[32] = {0};
    const char *path = getenv("CLOCK_JUMP_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    return count > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    static reader real;
    if (!real)
        real = (reader)dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, time);
    if (!failed && id == CLOCK_REALTIME)
        time->tv_sec += offset_s();
    return failed;
}
