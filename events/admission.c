/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/admission.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct origin
origin_of(int fd)
{
	struct sockaddr_storage storage = { .ss_family = AF_UNSPEC };
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&storage;
	socklen_t size = sizeof(storage);
	struct origin origin = { 0 };
	uint32_t v4 = 0;

	getpeername(fd, (struct sockaddr *)&storage, &size);
	origin.kind = storage.ss_family;
	if (storage.ss_family == AF_UNIX) {
		struct ucred credentials = { .uid = UINT32_MAX };

		size = sizeof(credentials);
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
		origin.number = credentials.uid;
	} else if (storage.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(&origin.number, &v6->sin6_addr, sizeof(origin.number));
	} else if (storage.ss_family == AF_INET6) {
		memcpy(&v4, (const uint8_t *)&v6->sin6_addr + 12, sizeof(v4));
		origin = (struct origin){ AF_INET, v4 };
	} else if (storage.ss_family == AF_INET) {
		origin.number = ((const struct sockaddr_in *)&storage)->sin_addr.s_addr;
	}
	return origin;
}

static bool
origin_equal(const struct origin *a, const struct origin *b)
{
	return a->kind == b->kind && a->number == b->number;
}

static size_t
origin_count(const struct admission_entry *entries, size_t n, const struct origin *origin)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		if (entries[i].state != ADMISSION_FREE && origin_equal(&entries[i].origin, origin))
			count++;
	return count;
}

/* Is a a better victim than b? */
static bool
victim_before(const struct admission_entry *a, const struct admission_entry *b)
{
	if ((a->state == ADMISSION_ACTIVE) != (b->state == ADMISSION_ACTIVE))
		return b->state == ADMISSION_ACTIVE;
	return a->state == ADMISSION_ACTIVE ? a->used > b->used : a->used < b->used;
}

size_t
admission_victim(const struct admission_entry *entries, size_t n, const struct origin *origin)
{
	/* A tie is the new connection's loss: it displaces its own origin's. */
	size_t most = origin_count(entries, n, origin) + 1, victim = n;
	struct origin largest = *origin;

	for (size_t i = 0; i < n; i++) {
		size_t count;

		if (entries[i].state == ADMISSION_FREE || origin_equal(&entries[i].origin, &largest))
			continue;
		count = origin_count(entries, n, &entries[i].origin);
		if (count > most) {
			most = count;
			largest = entries[i].origin;
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (entries[i].state == ADMISSION_FREE || !origin_equal(&entries[i].origin, &largest) ||
		    (entries[i].state == ADMISSION_ACTIVE && origin_equal(&largest, origin)))
			continue;
		if (victim == n || victim_before(&entries[i], &entries[victim]))
			victim = i;
	}
	return victim;
}
