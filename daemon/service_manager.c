/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service_manager.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log/log.h"

void
service_manager_notify(const char *state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *name = getenv("NOTIFY_SOCKET");
	size_t length = name != NULL ? strlen(name) : 0;
	int fd;

	if (length == 0 || length > sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, name, length);
	if (name[0] == '@') /* the abstract namespace */
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		log_warning("pagedd", "NOTIFY_SOCKET %s: %m", name);
	if (fd >= 0)
		close(fd);
}

uint64_t
service_manager_watchdog_us(void)
{
	const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

	if (interval == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
		return 0;
	return strtoull(interval, NULL, 10);
}
