/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - begin, look-ups and end of sessions */
#ifndef PAGED_CORE_SESSION_H
#define PAGED_CORE_SESSION_H

#include "core/core_internal.h"

/* session.c */

/** core_session_make_pool - allocate the session's lists for a pool, and its tenant's charges; PAGED_ERR_NOMEM */
enum paged_status core_session_make_pool(struct core *core, struct core_session *session, uint32_t pool,
					 struct paged_error *error);

/** core_session_queue_or_free - queue an ended session for core_reap(), or free it if nothing is left to clean up */
void core_session_queue_or_free(struct core *core, struct core_session *session);
void core_session_free(struct core_session *session);

/* session_query.c */

/** core_session_find_active - PAGED_ERR_GONE if the session has ended or never existed */
enum paged_status core_session_find_active(const struct core *core, uint32_t id, struct core_session **session_p,
					   struct paged_error *error);

/** core_session_has_work - true: core_reap() can clean up something of this ended session now */
bool core_session_has_work(const struct core_session *session);

/* idmap.c */

struct core_session *idmap_find(const struct idmap *map, uint32_t id);

/** idmap_after - the session with the smallest id above; NULL: none */
struct core_session *idmap_after(const struct idmap *map, uint32_t id);

/** idmap_make_room - allocate room for one more entry; false: no memory */
bool idmap_make_room(struct idmap *map);

/** idmap_append - add an id above all others; idmap_make_room() has made room */
void idmap_append(struct idmap *map, uint32_t id, struct core_session *session);
void idmap_remove(struct idmap *map, uint32_t id);

/* array.c */

/** core_arrays_free - drop all arrays of a session that ends */
void core_arrays_free(struct core_session *session);

#endif
