/* Sends one program's connections through proxies: preloaded, it stands before the
 * C library's connect. HOLDFAST_TEST_ROUTES says, as "5001:6001 5002:6002 ", which
 * ports of the loopback interface have proxies, and at which ports. A proxy accepts
 * also while nobody listens at the port itself, where the program would be refused
 * and try again later. So the port is tried first. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int route(int port)
{
	const char *at = getenv("HOLDFAST_TEST_ROUTES");
	int from, to, length;
	while (at && sscanf(at, "%d:%d %n", &from, &to, &length) == 2) {
		if (from == port)
			return to;
		at += length;
	}
	return port;
}

static int refused(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int failed = fd >= 0 && syscall(SYS_connect, fd, address, sizeof *address);
	int why = errno;
	if (fd >= 0)
		close(fd);
	errno = why;
	return failed && why == ECONNREFUSED;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_in changed;
	if (address->sa_family == AF_INET && length >= sizeof changed) {
		memcpy(&changed, address, sizeof changed);
		int port = ntohs(changed.sin_port), to = route(port);
		if (to != port && refused(&changed))
			return -1;
		changed.sin_port = htons(to);
		address = (struct sockaddr *)&changed;
		length = sizeof changed;
	}
	return (int)syscall(SYS_connect, fd, address, length);
}
