/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/trace.h"

#include <stdlib.h>
#include <string.h>

static bool
read_line(struct trace *trace)
{
	if (getline(&trace->line, &trace->line_size, trace->file) < 0)
		return false;
	trace->line_number++;
	trace->line[strcspn(trace->line, "\n")] = '\0';
	return true;
}

/* The numbers of a line "... : 1 2 3", at most `room`; the count, or -1. */
static int
read_numbers(const char *line, uint32_t *numbers, uint32_t room)
{
	const char *at = strchr(line, ':');
	char *end;
	int n = 0;

	if (at == NULL)
		return -1;
	for (at++;; at = end) {
		unsigned long number = strtoul(at, &end, 10);

		if (end == at)
			return *(at + strspn(at, " ")) == '\0' ? n : -1;
		if ((uint32_t)n == room)
			return -1;
		numbers[n++] = (uint32_t)number;
	}
}

/* Numbers of the next line, which begins with `word`. */
static int
read_list(struct trace *trace, const char *word, uint32_t *numbers, uint32_t room)
{
	if (!read_line(trace) || strncmp(trace->line, word, strlen(word)) != 0)
		return -1;
	return read_numbers(trace->line, numbers, room);
}

bool
trace_open(struct trace *trace, const char *path)
{
	*trace = (struct trace){ .file = fopen(path, "r") };
	if (trace->file == NULL)
		return false;
	if (!read_line(trace) ||
	    sscanf(trace->line, "pool %u %u %u", &trace->n_pages, &trace->page_size, &trace->n_rows) != 3) {
		trace_close(trace);
		return false;
	}
	trace->rows = calloc(trace->n_rows, sizeof(uint32_t *));
	trace->row_pages = calloc(trace->n_rows, sizeof(uint32_t));
	trace->capacities = calloc(trace->n_rows, sizeof(uint32_t));
	trace->free = calloc(trace->n_pages, sizeof(uint32_t));
	for (uint32_t i = 0; i < trace->n_rows; i++)
		trace->rows[i] = calloc(trace->n_pages, sizeof(uint32_t));
	return true;
}

static bool
parse_operation(struct trace *trace)
{
	char outcome[8];

	trace->full = false;
	if (sscanf(trace->line, "erase %u ok", &trace->row) == 1) {
		trace->verb = TRACE_ERASE;
		return trace->row < trace->n_rows;
	}
	if (sscanf(trace->line, "reserve %u %u %7s %u %u", &trace->row, &trace->tokens, outcome, &trace->n_requested,
		   &trace->n_empty) < 3)
		return false;
	trace->verb = TRACE_RESERVE;
	trace->full = strcmp(outcome, "full") == 0;
	return trace->row < trace->n_rows;
}

int
trace_next(struct trace *trace)
{
	int n;

	if (!read_line(trace))
		return 0;
	if (!parse_operation(trace))
		return -1;
	for (uint32_t i = 0; i < trace->n_rows; i++) {
		n = read_list(trace, "row ", trace->rows[i], trace->n_pages);
		if (n < 0)
			return -1;
		trace->row_pages[i] = (uint32_t)n;
	}
	n = read_list(trace, "capacity ", trace->capacities, trace->n_rows);
	if (n != (int)trace->n_rows)
		return -1;
	n = read_list(trace, "free ", trace->free, trace->n_pages);
	if (n < 0)
		return -1;
	trace->n_free = (uint32_t)n;
	return 1;
}

void
trace_close(struct trace *trace)
{
	for (uint32_t i = 0; trace->rows != NULL && i < trace->n_rows; i++)
		free(trace->rows[i]);
	free(trace->rows);
	free(trace->row_pages);
	free(trace->capacities);
	free(trace->free);
	free(trace->line);
	fclose(trace->file);
}
