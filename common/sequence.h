/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h - the parameters of new sequences, passed from the library to the core */
#ifndef PAGED_SEQUENCE_H
#define PAGED_SEQUENCE_H

#include "common/paged_types.h"

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

/** printf format and arguments for an id as "slot.generation". */
#define SEQ_FORMAT "%u.%u"
#define SEQ_ARGS(id) PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id)

#endif
