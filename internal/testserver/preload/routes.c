/* Sends one program's connections elsewhere: preloaded, it stands before the C
 * library's connect. HOLDFAST_TEST_ROUTES says, as "5001:6001 5002:6002 ", which
 * ports of the loopback interface are replaced by which. */
#define _GNU_SOURCE
#include <arpa/inet.h>
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

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_in changed;
	if (address->sa_family == AF_INET && length >= sizeof changed) {
		memcpy(&changed, address, sizeof changed);
		changed.sin_port = htons(route(ntohs(changed.sin_port)));
		address = (struct sockaddr *)&changed;
		length = sizeof changed;
	}
	return (int)syscall(SYS_connect, fd, address, length);
}
