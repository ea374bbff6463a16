/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/admission.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What an origin may keep in use however many others there are. */
#define FLOOR 2
#define CELLS (2 * ADMISSION_MAX)

/* All addresses of loopback are one: any user of this machine may take each of them. */
static struct origin
origin_of_v4(uint32_t address)
{
	if (ntohl(address) >> 24 == IN_LOOPBACKNET)
		address = htonl(INADDR_LOOPBACK);
	return (struct origin){ AF_INET, address, address };
}

static struct origin
origin_of_v6(const struct in6_addr *address)
{
	struct origin origin = { .kind = AF_INET6 };
	uint32_t v4;

	if (IN6_IS_ADDR_LOOPBACK(address))
		return origin_of_v4(htonl(INADDR_LOOPBACK));
	if (IN6_IS_ADDR_V4MAPPED(address)) {
		memcpy(&v4, (const uint8_t *)address + 12, sizeof(v4));
		return origin_of_v4(v4);
	}
	memcpy(&origin.group, address, 48 / 8);
	memcpy(&origin.number, address, 64 / 8);
	return origin;
}

struct origin
origin_of_address(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return origin_of_v6(&((const struct sockaddr_in6 *)address)->sin6_addr);
	if (address->ss_family == AF_INET)
		return origin_of_v4(((const struct sockaddr_in *)address)->sin_addr.s_addr);
	return (struct origin){ .kind = address->ss_family };
}

struct origin
origin_of(int fd)
{
	struct sockaddr_storage storage = { .ss_family = AF_UNSPEC };
	struct ucred credentials = { .uid = UINT32_MAX };
	socklen_t size = sizeof(storage);

	getpeername(fd, (struct sockaddr *)&storage, &size);
	if (storage.ss_family != AF_UNIX)
		return origin_of_address(&storage);
	size = sizeof(credentials);
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
	return (struct origin){ AF_UNIX, credentials.uid, credentials.uid };
}

/* How many connections each origin has, or each group: at most half of the cells are used. */
struct tally {
	bool of_groups;
	uint16_t entry[CELLS]; /* one of the origin's, and 1 */
	uint16_t count[CELLS];
};

static bool
same_group(const struct origin *a, const struct origin *b)
{
	return a->kind == b->kind && a->group == b->group;
}

static bool
same_origin(const struct origin *a, const struct origin *b)
{
	return same_group(a, b) && a->number == b->number;
}

/* The cell of an origin, or the free one where it belongs. */
static size_t
tally_cell(const struct tally *tally, const struct admission_entry *entries, const struct origin *origin)
{
	uint64_t hash = (origin->group + origin->kind) * 0x9e3779b97f4a7c15;
	size_t cell;

	if (!tally->of_groups)
		hash = (hash ^ origin->number) * 0x9e3779b97f4a7c15;
	for (cell = (hash >> 32) % CELLS; tally->entry[cell] != 0; cell = (cell + 1) % CELLS) {
		const struct origin *other = &entries[tally->entry[cell] - 1].origin;

		if (tally->of_groups ? same_group(origin, other) : same_origin(origin, other))
			break;
	}
	return cell;
}

static void
tally_fill(struct tally *tally, bool of_groups, const struct admission_entry *entries, size_t n)
{
	memset(tally, 0, sizeof(*tally));
	tally->of_groups = of_groups;
	for (size_t i = 0; i < n; i++) {
		size_t cell;

		if (entries[i].state == ADMISSION_FREE)
			continue;
		cell = tally_cell(tally, entries, &entries[i].origin);
		tally->entry[cell] = (uint16_t)(i + 1);
		tally->count[cell]++;
	}
}

/* A connection that may be closed.  Two are compared number by number; the larger one is closed. */
struct candidate {
	uint64_t reason; /* 0: it may not be closed */
	uint64_t n_group, n_origin;
	uint64_t is_idle, age;
};

static struct candidate
candidate_of(const struct admission_entry *entry, const struct origin *origin, const struct candidate *own,
	     struct candidate found)
{
	bool idle = entry->state != ADMISSION_ACTIVE, may = idle || found.n_group > FLOOR;

	found.is_idle = idle;
	found.age = idle ? UINT64_MAX - entry->used : entry->used;
	if (!same_group(&entry->origin, origin))
		found.reason = may && found.n_group > own->n_group + 1 ? 4 : 0;
	else if (!same_origin(&entry->origin, origin))
		found.reason = may && found.n_origin > own->n_origin + 1 ? 3 : 0;
	else
		found.reason = idle ? 2 : 0;
	/* A tie: both would have the same part. */
	if (found.reason == 0 && idle &&
	    (same_group(&entry->origin, origin) ? found.n_origin > own->n_origin : found.n_group > own->n_group))
		found = (struct candidate){ .reason = 1, .age = found.age };
	return found;
}

static bool
candidate_before(const struct candidate *a, const struct candidate *b)
{
	if (a->reason != b->reason)
		return a->reason > b->reason;
	if (a->n_group != b->n_group)
		return a->n_group > b->n_group;
	if (a->n_origin != b->n_origin)
		return a->n_origin > b->n_origin;
	if (a->is_idle != b->is_idle)
		return a->is_idle > b->is_idle;
	return a->age > b->age;
}

size_t
admission_victim(const struct admission_entry *entries, size_t n, const struct origin *origin)
{
	struct candidate own, best = { 0 };
	struct tally groups, origins;
	size_t victim = n;

	tally_fill(&groups, true, entries, n);
	tally_fill(&origins, false, entries, n);
	own = (struct candidate){ .n_group = groups.count[tally_cell(&groups, entries, origin)],
				  .n_origin = origins.count[tally_cell(&origins, entries, origin)] };
	for (size_t i = 0; i < n; i++) {
		struct candidate candidate = { 0 };

		if (entries[i].state == ADMISSION_FREE)
			continue;
		candidate.n_group = groups.count[tally_cell(&groups, entries, &entries[i].origin)];
		candidate.n_origin = origins.count[tally_cell(&origins, entries, &entries[i].origin)];
		candidate = candidate_of(&entries[i], origin, &own, candidate);
		if (candidate.reason > 0 && (victim == n || candidate_before(&candidate, &best))) {
			best = candidate;
			victim = i;
		}
	}
	return victim;
}
