/* SPDX-License-Identifier: Apache-2.0 */
/**
 * trace.h - reads golden/allocation/ *.trace: operations of PyTorch's PagedAttention and their results
 *
 * Format: golden/README.md.  One step is one operation and the whole state
 * after it.
 */
#ifndef PAGED_TRACE_H
#define PAGED_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum trace_verb {
	TRACE_RESERVE,
	TRACE_ERASE,
};

struct trace {
	FILE *file;
	char *line;
	size_t line_size;
	unsigned line_number;

	uint32_t n_pages;
	uint32_t page_size; /* tokens */
	uint32_t n_rows;

	/* The step read last. */
	enum trace_verb verb;
	uint32_t row;
	uint32_t tokens; /* reserve */
	bool full;       /* reserve: refused; n_requested pages were requested, n_empty were free */
	uint32_t n_requested, n_empty;
	uint32_t **rows;      /* [n_rows][row_pages[i]] */
	uint32_t *row_pages;  /* [n_rows] */
	uint32_t *capacities; /* [n_rows] tokens */
	uint32_t *free;       /* PyTorch's empty_pages, taken from the end */
	uint32_t n_free;
};

/** trace_open - false: the file does not exist or is not a trace */
bool trace_open(struct trace *trace, const char *path);

/** trace_next - read the next step; 1: done; 0: end of the trace; -1: the line line_number is invalid */
int trace_next(struct trace *trace);

void trace_close(struct trace *trace);

#endif
