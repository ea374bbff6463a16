/* SPDX-License-Identifier: Apache-2.0 */
/**
 * split_worker.h - a worker that prefills prompts, decodes answers, or does both, as it is told for each request
 *
 * A worker that only prefills computes the prompt and the answer's first token, and gives the sequence.  The ticket
 * goes through the parent process to a worker that only decodes: it adopts the sequence and computes the other tokens.
 * Orders arrive and are followed while other answers are being computed (continuous batching).
 */
#ifndef LLAMA_SPLIT_WORKER_H
#define LLAMA_SPLIT_WORKER_H

#include <pagedclient.h>

#include "examples/llama/options.h"

enum split_kind { SPLIT_BOTH, SPLIT_PREFILL, SPLIT_DECODE };

/** Sent to a worker. */
struct split_order {
	enum split_kind kind;
	uint32_t prompt; /* index into options->prompts */
	/* For SPLIT_DECODE: */
	uint32_t first_token;
	struct paged_ticket ticket;
};

enum split_event_kind {
	SPLIT_READY,   /* the model is loaded */
	SPLIT_TOKEN,   /* a token of an answer */
	SPLIT_GIVEN,   /* the prompt is computed; the ticket is in the event */
	SPLIT_ADOPTED, /* the sequence of a ticket is the worker's */
};

/** Sent by a worker. */
struct split_event {
	enum split_event_kind kind;
	uint32_t prompt;
	uint32_t n_prompt;          /* tokens of the prompt */
	uint32_t token;             /* SPLIT_TOKEN */
	bool last;                  /* SPLIT_TOKEN: the answer is complete */
	double at_s;                /* clock_now_s(), which all processes share */
	double call_s;              /* SPLIT_GIVEN, SPLIT_ADOPTED: seconds of the call */
	uint32_t n_pages;           /* SPLIT_GIVEN: of the sequence */
	struct paged_ticket ticket; /* SPLIT_GIVEN */
};

/** split_worker_serve - a worker_serve_fn: load, attach, report SPLIT_READY, follow orders until end of file */
void split_worker_serve(const struct options *options, uint32_t number, int socket);

#endif
