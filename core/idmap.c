/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted array.  Ids only grow, so appending keeps the order.  Removal
 * moves the entries behind it; only live ids have entries, so the array stays
 * short however many ids were ever given out.
 */
#include "core/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first entry above id, or n. */
static uint32_t
idmap_above(const struct idmap *map, uint32_t id)
{
	uint32_t low = 0, high = map->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (map->entries[middle].id > id)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct core_session *
idmap_find(const struct idmap *map, uint32_t id)
{
	uint32_t above = idmap_above(map, id);

	return above > 0 && map->entries[above - 1].id == id ? map->entries[above - 1].session : NULL;
}

struct core_session *
idmap_after(const struct idmap *map, uint32_t id)
{
	uint32_t above = idmap_above(map, id);

	return above < map->n ? map->entries[above].session : NULL;
}

bool
idmap_make_room(struct idmap *map)
{
	struct idmap_entry *entries;
	uint32_t room = map->room == 0 ? 16 : map->room * 2;

	if (map->n < map->room)
		return true;
	entries = reallocarray(map->entries, room, sizeof(*entries));
	if (entries == NULL)
		return false;
	map->entries = entries;
	map->room = room;
	return true;
}

void
idmap_append(struct idmap *map, uint32_t id, struct core_session *session)
{
	assert(map->n < map->room && (map->n == 0 || map->entries[map->n - 1].id < id));
	map->entries[map->n++] = (struct idmap_entry){ .id = id, .session = session };
}

void
idmap_remove(struct idmap *map, uint32_t id)
{
	uint32_t above = idmap_above(map, id);

	assert(above > 0 && map->entries[above - 1].id == id);
	memmove(&map->entries[above - 1], &map->entries[above], (map->n - above) * sizeof(*map->entries));
	map->n--;
}
