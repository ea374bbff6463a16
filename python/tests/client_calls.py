# SPDX-License-Identifier: Apache-2.0
"""The calls of a client and its objects, for tests of what all of them do."""
import paged

# Calls of every kind that need the owner, or its shared memory.
CALLS = {
    "ping": lambda c, p, s: c.ping(),
    "dispatch": lambda c, p, s: c.dispatch(),
    "pool": lambda c, p, s: c.pool("test"),
    "reserve": lambda c, p, s: c.reserve(s, 16),
    "truncate": lambda c, p, s: c.truncate(s, 0),
    "trim": lambda c, p, s: c.trim(s, 0),
    "erase": lambda c, p, s: c.erase(s),
    "status": lambda c, p, s: c.status(),
    "pools": lambda c, p, s: c.pools(),
    "sessions": lambda c, p, s: c.sessions(),
    "sequences": lambda c, p, s: c.sequences("test"),
    "table": lambda c, p, s: c.page_table(s),
    "check": lambda c, p, s: c.check("test"),
    "kick": lambda c, p, s: c.kick(c.session + 1),
    "prefixes": lambda c, p, s: c.prefixes("test"),
    "evict": lambda c, p, s: c.evict("test"),
    "pin_page": lambda c, p, s: c.pin_page("test", 0, 1, 1),
    "drop": lambda c, p, s: c.drop("x"),
    "counts": lambda c, p, s: p.counts(),
    "wait_free": lambda c, p, s: p.wait_free(64, 60),
    "create": lambda c, p, s: p.create(),
    "pool reserve": lambda c, p, s: p.reserve(s, 16),
    "read": lambda c, p, s: p.read(s),
    "pool table": lambda c, p, s: p.page_table(s),
    "match": lambda c, p, s: p.match(paged.Prefix(range(16))),
    "wait_prefix": lambda c, p, s: p.wait_prefix(paged.Prefix(range(16)), 16, 60),
    "start": lambda c, p, s: p.start([(None, 16)]),
    "publish": lambda c, p, s: p.publish(s, paged.Prefix(range(16))),
    "pin": lambda c, p, s: p.pin(paged.Prefix(range(16)), 1),
}
