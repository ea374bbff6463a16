/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_reports.h - reports about a daemon, its pools, sessions and sequences
 *
 * Part of pagedclient.h, which includes it; programs include that alone.  The
 * owner of the pools fills these structs, messages carry them, and the calls of
 * paged_admin.h return them.
 *
 * A report begins with struct_size, which the caller sets before the call.  Calls
 * that list entries take the size of an entry instead.  Text is zero-terminated
 * printable UTF-8.
 */
#ifndef PAGED_REPORTS_H
#define PAGED_REPORTS_H

#include <paged_types.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct paged_daemon_info {
	size_t struct_size;
	char version[32];
	char boot_id[33]; /* hexadecimal */
	uint64_t uptime_ms;
	uint64_t n_requests; /* answered since the daemon started, without this one */
	uint32_t n_sessions;
	uint32_t n_pools;
	uint32_t pid;
	uint32_t stopping; /* 1: the daemon accepts no new work */
};

struct paged_pool_entry {
	char name[PAGED_MAX_NAME + 1];
	char backend[16]; /* "host", "cuda" */
	uint64_t page_bytes;
	uint64_t size; /* bytes */
	/** free + referenced + cached + quarantined = n_pages.  Cached: published, and in no sequence; a reserve may
	 * evict it. */
	uint32_t n_pages, n_free, n_referenced, n_cached, n_quarantined;
	uint32_t n_pinned;  /* published pages that are pinned */
	uint32_t page_size; /* tokens */
	uint32_t n_layers, n_kv_heads, k_dim, v_dim;
	uint32_t v_in_k; /* 1: V is the first v_dim dims of K */
	uint32_t dtype;  /* enum paged_dtype */
	uint32_t n_slots, n_sequences;
	uint32_t max_length; /* tokens that one sequence may reserve */
	char memory[64];     /* "huge pages", "4 KiB pages", "CUDA, vmm, NVIDIA H200" */
	char device[48];     /* backend "cuda": UUID of the GPU, "GPU-8a1b..."; "host": "" */
	uint32_t number;     /* PAGED_SEQ_POOL() of the pool's sequences */
	uint32_t publishes;  /* 1: sequences can be published; 0: pagedd.conf(5) says publish = no */
	char model[128];     /* "name@revision" of pagedd.conf(5); "": not stated */
	/* Totals since the daemon started; paged_pool_totals explains them. */
	uint64_t n_starts;                                   /* sequences started with a prefix to look for */
	uint64_t n_tokens_asked;                             /* tokens of these prefixes */
	uint64_t n_tokens_found;                             /* of these, tokens that the sequences share */
	uint64_t n_published, n_evicted;                     /* pages */
	uint64_t n_orphaned, n_taken, n_trimmed;             /* pages */
	uint64_t n_created, n_ended, n_forked;               /* sequences */
	uint64_t n_given, n_adopted, n_cancelled, n_expired; /* sequences */
	uint32_t peak_sequences, peak_referenced;
	uint64_t table_used, table_populated, table_limit; /* bytes of page tables: see paged_pool_totals */
	uint64_t n_displaced;                              /* pages */
	uint64_t n_stopped_removed, n_stopped_trimmed, n_stopped_other, n_stopped_bucket; /* publishes */
};

/** One entry per member of a session; one entry with member 0 for an ended session without members. */
struct paged_session_entry {
	uint32_t session;
	uint32_t member;
	uint32_t first; /* 1: the member that started the session */
	uint32_t ended; /* 1: the session has ended; its pages are quarantined until its members are gone */
	uint32_t pid;
	uint32_t uid;
	uint64_t n_requests;                          /* made by the member */
	uint32_t n_sequences, n_pages, n_quarantined; /* of the session */
	char name[PAGED_MAX_NAME + 1];
	uint32_t draining;               /* 1: the session gets no new sequences */
	char tenant[PAGED_MAX_NAME + 1]; /* that the session's pages are charged to; "": none */
};

/** States of a sequence: given away, until it is adopted or returned; a hold of published pages, in any order. */
#define PAGED_STATE_GIVEN 1u
#define PAGED_STATE_HOLD 2u

struct paged_seq_entry {
	paged_seq_id seq;
	uint32_t session;
	uint32_t pid;                  /* of the session's first member; 0: that member has left */
	uint32_t capacity, n_pages;    /* tokens, pages */
	uint32_t n_trimmed;            /* of these pages, those at the beginning that were given back */
	char name[PAGED_MAX_NAME + 1]; /* of the session's first member */
	char tag[PAGED_MAX_TAG + 1];
	uint32_t state; /* 0, PAGED_STATE_GIVEN or PAGED_STATE_HOLD */
};

/** A published page, which sequences that begin alike share. */
struct paged_node_entry {
	uint64_t serial;        /* identifies this publication of the page for ever */
	uint64_t parent_serial; /* 0: the first page of a prefix */
	uint32_t page;
	uint32_t parent;       /* page before it; UINT32_MAX: the first page of a prefix */
	uint32_t n_references; /* sequences that have the page; 0: it is cached */
	uint32_t used_s;       /* seconds since a sequence last started on it, or since it was published */
	uint32_t hits;         /* sequences that were started on it */
	uint32_t pinned;       /* 1: pinned */
};

/** Sequences that a session has given away and that no session has adopted yet. */
struct paged_ticket_entry {
	uint64_t number;  /* of the ticket, counted since the daemon started; not the secret that adopts */
	uint32_t session; /* that gave them */
	uint32_t ended;   /* 1: that session has ended; when the ticket expires, the sequences end */
	uint32_t pool;    /* PAGED_SEQ_POOL() of the sequences */
	uint32_t n_sequences;
	uint64_t n_pages;
	uint64_t n_tokens;   /* sum of the lengths */
	uint32_t expires_ms; /* until it expires */
	uint32_t flags;      /* PAGED_GIVE_* */
	uint32_t to_session; /* with PAGED_GIVE_SESSION */
	uint32_t to_uid;     /* with PAGED_GIVE_UID */
};

/** What a tenant has in a pool, and its limits.  A limit that begins with max_ is 0 if there is none. */
struct paged_quota_entry {
	char tenant[PAGED_MAX_NAME + 1];
	uint32_t pool;                       /* PAGED_SEQ_POOL() of the sequences */
	uint32_t n_charged;                  /* distinct pages that sequences of the tenant have */
	uint32_t limited;                    /* 1: `limit` holds; 0: the tenant has no limit in this pool */
	uint32_t limit;                      /* pages */
	uint32_t n_quarantined;              /* of n_charged: left by sessions that have ended */
	uint32_t n_sequences, max_sequences; /* holds and sequences in tickets included */
	uint32_t n_pins, max_pins;
	uint32_t n_pin_pages, max_pin_pages; /* of pins and holds, each counted */
	uint32_t n_cached; /* cached pages that the tenant has published and that count for its share; 0 without one */
	uint32_t shared;   /* 1: `cache_share` holds; 0: the tenant has no share of this pool's cache */
	uint32_t cache_share; /* pages; those above are evicted before the pages of others */
	uint64_t table_used;  /* bytes of the page tables of its sequences */
	uint64_t table_limit; /* bytes that these may take; 0: no limit */
	/* In all pools, so the same in each entry of the tenant. */
	uint32_t n_sessions, max_sessions; /* also ended ones that are not cleaned up */
	uint32_t n_members, max_members;
	uint32_t n_tickets, max_tickets; /* open */
};

/** A pin of a published prefix. */
struct paged_pin_entry {
	uint64_t number; /* of the pool's pins, counted since the pool was created */
	uint64_t serial; /* of the last page's node; another one there now: its pages were evicted */
	uint32_t page;   /* the last page of the prefix */
	uint32_t n_pages;
	uint64_t n_tokens;
	uint32_t expires_s;              /* from now */
	uint32_t session;                /* that made it; it may have ended */
	uint32_t uid, pid;               /* of the process that made it */
	char tenant[PAGED_MAX_NAME + 1]; /* of the session; "": none */
};

#define PAGED_HISTOGRAM_BUCKETS 24
/** Upper bound of bucket i of a histogram: 1024 ns for the first, and twice that of the bucket before for each other.
 */
#define PAGED_BUCKET_NS(i) (1024ull << (i))

/** Durations by length.  A bucket has those that exceed the bound of the bucket before; the last one also all longer.
 */
struct paged_histogram {
	uint64_t sum_ns;    /* of all durations */
	uint32_t n_buckets; /* of counts; the others are 0 */
	uint32_t reserved;
	uint64_t counts[PAGED_HISTOGRAM_BUCKETS];
};

#define PAGED_METRICS_STATUSES 32

/** The requests of one kind that the daemon has replied to since it started. */
struct paged_request_entry {
	/**
	 * "reserve" and so on, as error texts begin.  "attach": connections to the control socket, from their
	 * acceptance to the Welcome or the end.  "invalid": messages that are no request which the daemon knows.
	 */
	char name[24];
	uint32_t n_statuses; /* of n_replies; the others are 0 */
	uint32_t reserved;
	uint64_t n_replies[PAGED_METRICS_STATUSES]; /* by enum paged_status; [PAGED_OK]: not refused */
	struct paged_histogram latency;             /* from the time when the daemon took the request to its reply */
	/**
	 * Most page table entries, pages and nodes of the prefix cache that a request of this kind, or a step of a
	 * long one, has visited to change them.  Other requests wait meanwhile.
	 */
	uint64_t most_visited;
};

/** What a daemon has done since it started. */
struct paged_metrics {
	size_t struct_size;
	uint64_t uptime_ms;
	uint64_t n_requests; /* without attaches; those whose reply is still due, too */
	uint64_t n_dropped;  /* messages that got no reply: of no attached member, or of another form than a request */
	uint64_t n_attached; /* members, observers included */
	uint64_t n_died;     /* members whose process ended before they left */
	uint64_t n_opened;   /* sessions */
	uint32_t n_members;  /* now, observers included */
	uint32_t n_sessions; /* now; those that have ended and still have pages or members, too */
	/** Turns of the daemon's loop: from one wait for events to the next.  No request or event is served meanwhile.
	 */
	struct paged_histogram turns;
	uint64_t longest_turn_ns;
};

struct paged_check_result {
	size_t struct_size;
	uint32_t n_pages, n_free, n_referenced, n_cached, n_quarantined, n_sequences;
	/** 1: the totals add up and the reference count of every page is right. */
	uint32_t holds;
	uint32_t reserved;
	char text[256]; /* the first error found */
};

#ifdef __cplusplus
}
#endif

#endif
