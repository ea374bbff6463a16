/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h - the parameters of requests on sequences, passed from the library to the core */
#ifndef PAGED_SEQUENCE_H
#define PAGED_SEQUENCE_H

#include "common/region.h"

struct seq_spec {
	uint32_t pool;
	uint32_t n_tokens; /* capacity to reserve at creation */
	const char *tag;   /* at most PAGED_MAX_TAG bytes; "": none */
};

/** A child to create by a fork. */
struct seq_fork {
	paged_seq_id parent;
	uint32_t n_tokens; /* of the parent that the child begins with */
};

/** A sequence to start on published pages, or to go on with. */
struct seq_start_spec {
	uint32_t n_pages;  /* of its prefix; 0: the sequence starts empty */
	uint32_t n_tokens; /* capacity to reserve, absolute; 0: that of the prefix */
	uint32_t n_asked;  /* tokens that the caller looked for, for statistics */
	uint64_t serial;   /* of the prefix's last page; 0 with n_pages 0 */
	paged_seq_id seq;  /* 0: a new sequence; else one whose pages are all published: it goes on from its end */
	const char *tag;   /* of a new sequence; at most PAGED_MAX_TAG bytes */
};

/** The sequences of a start. */
struct seq_start_list {
	uint32_t pool;
	uint32_t n;
	const struct seq_start_spec *specs;
	uint32_t n_pages;
	const uint32_t *pages; /* of all prefixes, one after the other: chains of nodes, as prefix_find() found them */
};

/** A sequence of which pages are published. */
struct seq_publish_spec {
	paged_seq_id seq;
	uint64_t version;
	uint32_t from, n_pages;
};

/** The sequences of a publish, and the block keys of all their pages, one after the other. */
struct seq_publish_list {
	uint32_t n;
	const struct seq_publish_spec *specs;
	uint32_t n_tokens;
	bool keyed;             /* each page has an extra, its block key */
	const uint32_t *tokens; /* if keyed, attached to the block keys, or NULL */
	uint32_t n_extras;
	const uint32_t *extra_page; /* ascending: index among all pages; unused if keyed */
	const uint8_t (*extra)[REGION_EXTRA_SIZE];
};

/** Who may adopt given sequences, and until when; paged_types.h has the flags. */
struct seq_give {
	uint32_t timeout_ms;
	uint32_t flags;
	uint32_t session; /* with PAGED_GIVE_SESSION */
	uint32_t uid;     /* with PAGED_GIVE_UID */
};

/** printf format and arguments for an id as "slot.generation". */
#define SEQ_FORMAT "%u.%u"
#define SEQ_ARGS(id) PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id)

#endif
