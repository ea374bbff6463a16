/* SPDX-License-Identifier: Apache-2.0 */
/**
 * options.h - the command line of paged-llama
 */
#ifndef LLAMA_OPTIONS_H
#define LLAMA_OPTIONS_H

#include <pagedclient.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX_ROUNDS 99u
#define OPTIONS_KILL_NONE UINT32_MAX

struct options {
	const char *model;
	const char *runtime_dir; /* NULL: the library's default */
	const char *pool;
	enum paged_dtype dtype;  /* of an embedded pool's elements */
	const char *backend;     /* of an embedded pool, or of the geometry to print; NULL: the host */
	uint32_t embedded_pages; /* 0: a daemon has the pool */
	uint32_t n_workers;      /* 0: this process answers */
	uint32_t n_threads;
	uint32_t max_tokens;
	uint32_t max_running;
	bool chat, verify, print_geometry;
	bool token_lines;           /* prompts are lines of token ids on stdin */
	bool prefix_cache;          /* answers start on published prefixes, and are published */
	const char *salt;           /* prompts with different salts share nothing; NULL: "" */
	char *system;               /* system prompt; NULL: that of the model */
	bool share;                 /* each worker answers alone, then from the prefix cache */
	uint32_t split_interval_ms; /* milliseconds between requests whose prefill and decode are split; 0: not split */
	uint32_t compare_rounds;    /* rounds of comparison with a private cache; 0: none */
	const char *report;         /* NULL: none */
	uint32_t kill_worker;       /* the worker to kill during its answer */
	char **prompts;
	size_t n_prompts;
};

/** options_parse - read argv; help, version and errors are printed here and end the process */
void options_parse(int argc, char **argv, struct options *options);

void options_free(struct options *options);

#endif
