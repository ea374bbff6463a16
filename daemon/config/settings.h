/* SPDX-License-Identifier: Apache-2.0 */
/**
 * settings.h - the table of all settings, and the parser of their values
 */
#ifndef PAGED_DAEMON_CONFIG_SETTINGS_H
#define PAGED_DAEMON_CONFIG_SETTINGS_H

#include "daemon/config/config.h"

enum settings_type {
	SETTINGS_COUNT,    /* uint32_t */
	SETTINGS_BYTES,    /* uint64_t; B, KiB, MiB, GiB, TiB */
	SETTINGS_DURATION, /* uint32_t milliseconds; ms, s, min */
	SETTINGS_SHARE,    /* struct config_share; a number of pages, or a percentage */
	SETTINGS_LIMIT,    /* struct config_limit; a number of pages, a percentage, or a size with a unit */
	SETTINGS_PERCENT,  /* uint32_t; a percentage */
	SETTINGS_BOOL,     /* bool; yes, no */
	SETTINGS_TEXT,     /* char * */
	SETTINGS_CHOICE,   /* uint32_t; one of the entry's choices */
	SETTINGS_USERS,    /* struct config_ids; names or numbers, a list */
	SETTINGS_GROUPS,
};

/** A choice of SETTINGS_CHOICE; a NULL name ends the array. */
struct settings_choice {
	const char *name;
	uint32_t value;
};

/** Where a setting is: outside of all braces, or inside those of a pool or tenant. */
enum settings_section { SETTINGS_GLOBAL, SETTINGS_OF_POOL, SETTINGS_OF_TENANT };

struct settings_entry {
	const char *name;
	enum settings_section section;
	enum settings_type type;
	const char *unit;
	const char *standard; /* the default, as written in the file; NULL: none */
	const struct settings_choice *choices;
	uint64_t min, max; /* for counts, bytes, durations, shares and percentages */
	size_t offset;     /* of the value, in the struct that settings_set() takes */
	const char *help;
};

extern const struct settings_entry settings_table[CONFIG_N_SETTINGS];

static inline bool
settings_is_list(const struct settings_entry *entry)
{
	return entry->type == SETTINGS_USERS || entry->type == SETTINGS_GROUPS;
}

/**
 * settings_set - parse the text and set the value; for a list, add one value unless the list has it
 *
 * @param[in] object  the struct config, config_pool or config_tenant; of SETTINGS_LIMIT the struct config_limit
 * @retval PAGED_ERR_INVALID  error says what is expected, without file, line and value (config_fail() adds those)
 */
enum paged_status settings_set(const struct settings_entry *entry, void *object, const char *text,
			       struct paged_error *error);

#endif
