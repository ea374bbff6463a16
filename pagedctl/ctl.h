/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ctl.h - the commands of pagedctl
 *
 * A command queries the daemon only through pagedclient.h and prints either a
 * table for people or one JSON document for programs.
 */
#ifndef PAGED_CTL_H
#define PAGED_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pagedclient.h"

/** Exit codes; documented in pagedctl(8). */
enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3, CTL_CHECK_FAILED = 4 };

#define CTL_MAX_SETS 16u

/** Options of the command mask; 0: not given. */
struct ctl_mask {
	bool any;
	uint32_t q, kv, q_block, kv_block, heads;
	int64_t q_base;
	const char *sets[CTL_MAX_SETS]; /* name=value */
	uint32_t n_sets;
};

struct ctl {
	const char *runtime_dir;           /* --runtime-dir, or NULL */
	struct paged_client_params params; /* of the client */
	struct paged_client *client; /* an observer; for pin, a session; for mask, an embedded owner without a daemon */
	const char *pool;            /* --pool, or NULL */
	const char *const *operands; /* of the command; then NULL */
	bool json;                   /* --json */
	bool kill;                   /* --kill */
	bool tokens;                 /* --tokens */
	bool once;                   /* --once */
	uint32_t delay_ms;           /* --delay; 0: not given */
	uint32_t watch_ms;           /* --watch; 0: not given */
	struct ctl_mask mask;
};

/** ctl_open - attach to the daemon, which may have to start first (--wait); client is set also on failure */
enum paged_status ctl_open(struct ctl *ctl);

/** ctl_fail - print the client's last error text, return the exit code for a status */
enum ctl_exit ctl_fail(const struct ctl *ctl, enum paged_status status);

/** ctl_fail_stdout - print why standard output could not be written, by errno */
enum ctl_exit ctl_fail_stdout(void);

/** ctl_usage - print a complaint about the command line */
enum ctl_exit ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** ctl_parse_session - parse the number of a session; false: it is none, a message was printed */
bool ctl_parse_session(const char *text, uint32_t *session_p);

/** Prints what a list has of a pool. */
struct print_list;
typedef enum paged_status (*ctl_print_pool_fn)(struct ctl *ctl, const char *pool, struct print_list *list);

/** ctl_list_pools - print and end a list of --pool, or of all pools that the user may open */
enum ctl_exit ctl_list_pools(struct ctl *ctl, struct print_list *list, ctl_print_pool_fn print);

/** ctl_pool_name - the name of the pool with this number; NULL: there is none */
const char *ctl_pool_name(const struct paged_pool_entry *pools, size_t n_pools, uint32_t number);

enum ctl_exit ctl_status(struct ctl *ctl);
enum ctl_exit ctl_pools(struct ctl *ctl);
enum ctl_exit ctl_sessions(struct ctl *ctl);
enum ctl_exit ctl_sequences(struct ctl *ctl);
enum ctl_exit ctl_table(struct ctl *ctl);
enum ctl_exit ctl_check(struct ctl *ctl);
enum ctl_exit ctl_kick(struct ctl *ctl);
enum ctl_exit ctl_drain(struct ctl *ctl);
enum ctl_exit ctl_mask(struct ctl *ctl);
enum ctl_exit ctl_prefixes(struct ctl *ctl);
enum ctl_exit ctl_evict(struct ctl *ctl);
enum ctl_exit ctl_pin(struct ctl *ctl);
enum ctl_exit ctl_pins(struct ctl *ctl);
enum ctl_exit ctl_unpin(struct ctl *ctl);
enum ctl_exit ctl_tickets(struct ctl *ctl);
enum ctl_exit ctl_quota(struct ctl *ctl);
enum ctl_exit ctl_log_level(struct ctl *ctl);
enum ctl_exit ctl_top(struct ctl *ctl);

/** ctl_watch - run a command that lists until a signal, an error, or the end of standard output's reader */
enum ctl_exit ctl_watch(struct ctl *ctl, enum ctl_exit (*run)(struct ctl *ctl));

/** ctl_parse_seconds - parse an option's time, such as 0.5; false: invalid, a message was printed */
bool ctl_parse_seconds(const char *option, const char *text, uint32_t *ms_p);

/** ctl_mask_option - store an option of mask, given by its long name; false: invalid, a message was printed */
bool ctl_mask_option(struct ctl_mask *mask, const char *name, const char *value);

#endif
