/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.h - what a sequence starts with, from the library to the core */
#ifndef PAGED_SEQUENCE_H
#define PAGED_SEQUENCE_H

#include "common/paged_types.h"

struct seq_spec {
	uint32_t pool;
	uint32_t n_tokens; /* capacity to reserve at once */
	const char *tag;   /* at most PAGED_MAX_TAG bytes; "": none */
};

/** "slot.generation" of an id, for sentences. */
#define SEQ_FORMAT "%u.%u"
#define SEQ_ARGS(id) PAGED_SEQ_SLOT(id), PAGED_SEQ_GENERATION(id)

#endif
