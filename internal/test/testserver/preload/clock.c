/* Sets the wall clock of one program: preloaded, it stands before the C
 * library's functions and adds the nanoseconds that the first eight bytes of the
 * file $HOLDFAST_TEST_CLOCK say, a file that its owner changes at will. It
 * allocates nothing and looks no symbol up, because it is called before the
 * program's allocator is ready. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

static int64_t shift(void)
{
	static int tried;
	if (!tried) {
		tried = 1;
		const char *path = getenv("HOLDFAST_TEST_CLOCK");
		int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
		if (fd >= 0) {
			void *page = (void *)syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 0);
			syscall(SYS_close, fd);
			if (page != MAP_FAILED)
				offset = page;
		}
	}
	return offset ? *offset : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, t);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t ns = t->tv_nsec + shift() % 1000000000;
	int64_t carry = ns < 0 ? -1 : ns >= 1000000000;
	t->tv_nsec = ns - carry * 1000000000;
	t->tv_sec += shift() / 1000000000 + carry;
	return 0;
}

int gettimeofday(struct timeval *v, void *zone)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	v->tv_sec = t.tv_sec;
	v->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
