/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/settings.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log/log.h"
#include "daemon/memory.h"

#define GLOBAL(field) .section = SETTINGS_GLOBAL, .offset = offsetof(struct config, field)
#define OF_POOL(field) .section = SETTINGS_OF_POOL, .offset = offsetof(struct config_pool, field)
#define OF_TENANT(field) .section = SETTINGS_OF_TENANT, .offset = offsetof(struct config_tenant, field)
/* Times are 32 bits of milliseconds. */
#define MAX_TIME (40u * 24 * 60 * 60 * 1000)
#define PERCENT .type = SETTINGS_PERCENT, .min = 1, .max = 100
#define COUNT(low, high) .type = SETTINGS_COUNT, .min = (low), .max = (high)

/* A page number must fit 31 bits: kernels read page tables as int32. */
#define MAX_PAGES INT32_MAX

static const struct settings_choice log_levels[] = { { "error", LOG_LEVEL_ERROR },
						     { "warning", LOG_LEVEL_WARNING },
						     { "info", LOG_LEVEL_INFO },
						     { "debug", LOG_LEVEL_DEBUG },
						     { NULL, 0 } };
static const struct settings_choice dtypes[] = { { "f32", PAGED_F32 },
						 { "f16", PAGED_F16 },
						 { "bf16", PAGED_BF16 },
						 { "e4m3", PAGED_E4M3 },
						 { "e5m2", PAGED_E5M2 },
						 { "i8", PAGED_I8 },
						 { NULL, 0 } };
static const struct settings_choice exports[] = {
	{ "auto", MEMORY_AUTO }, { "vmm", MEMORY_VMM }, { "legacy", MEMORY_LEGACY }, { NULL, 0 }
};

const struct settings_entry settings_table[CONFIG_N_SETTINGS] = {
	[CONFIG_RUNTIME_DIR] = { "runtime-dir", GLOBAL(runtime_dir), .type = SETTINGS_TEXT,
				 .help = "directory of the sockets, unless $PAGED_RUNTIME_DIR is set; the default is "
					 "$RUNTIME_DIRECTORY or " PAGED_RUNSTATEDIR "/paged" },
	[CONFIG_ALLOW_USER] = { "allow-user", GLOBAL(allow_users), .type = SETTINGS_USERS,
				.help = "users who may attach, besides the daemon's own and root" },
	[CONFIG_ALLOW_GROUP] = { "allow-group", GLOBAL(allow_groups), .type = SETTINGS_GROUPS,
				 .help = "groups whose members may attach" },
	[CONFIG_ADMIN_GROUP] = { "admin-group", GLOBAL(admin_group), .type = SETTINGS_GROUPS,
				 .help = "group whose members may check, drain and kick" },
	[CONFIG_START_TIMEOUT] = { "start-timeout", GLOBAL(start_timeout_ms), .type = SETTINGS_DURATION, .unit = "time",
				   .standard = "10min", .max = 24 * 3600 * 1000,
				   .help = "how long a start waits for memory that workers of an earlier pagedd keep" },
	[CONFIG_STOP_TIMEOUT] = { "stop-timeout", GLOBAL(stop_timeout_ms), .type = SETTINGS_DURATION, .unit = "time",
				  .standard = "10s", .max = 3600 * 1000,
				  .help = "how long a stopping daemon waits for its sessions" },
	[CONFIG_LOG_LEVEL] = { "log-level", GLOBAL(log_level), .type = SETTINGS_CHOICE, .choices = log_levels,
			       .standard = "info", .help = "least severe lines to log" },
	[CONFIG_MAX_SESSIONS] = { "max-sessions", GLOBAL(max_sessions), COUNT(1, 65536), .standard = "1024",
				  .help = "sessions at a time" },
	[CONFIG_MAX_MEMBERS] = { "max-members", GLOBAL(max_members), COUNT(1, 65536), .standard = "1024",
				 .help = "attached processes at a time, observers included" },
	[CONFIG_MAX_USER_MEMBERS] = { "max-members-per-user", GLOBAL(max_user_members), COUNT(1, 65536),
				      .help = "of them, those of one user who is no administrator; the default is the "
					      "user's share" },
	[CONFIG_USER_SHARE] = { "user-share", GLOBAL(user_share), PERCENT, .standard = "75%",
				.help = "of sequences, sessions, members, tickets and pins, for a user of no tenant" },
	[CONFIG_MAX_TICKET_TIME] = { "max-ticket-time", GLOBAL(max_ticket_ms), .type = SETTINGS_DURATION,
				     .unit = "time", .standard = "10min", .min = 1000, .max = MAX_TIME,
				     .help = "how long a ticket may keep sequences for their taker" },
	[CONFIG_MAX_PIN_TIME] = { "max-pin-time", GLOBAL(max_pin_ms), .type = SETTINGS_DURATION, .unit = "time",
				  .standard = "1440min", .min = 1000, .max = MAX_TIME,
				  .help = "how long a pin of one who is no administrator may last" },
	[CONFIG_MASK_SIZE] = { "mask-size", GLOBAL(mask_bytes), .type = SETTINGS_BYTES, .unit = "bytes",
			       .standard = "64MiB", .max = UINT64_C(1) << 36,
			       .help = "largest block mask built for a session; 0: none" },
	[CONFIG_MASK_TIME] = { "mask-time", GLOBAL(mask_time_ms), .type = SETTINGS_DURATION, .unit = "time",
			       .standard = "2s", .min = 1, .max = 3600 * 1000,
			       .help = "how long building one may take" },
	[CONFIG_MASK_ARRAYS] = { "mask-arrays", GLOBAL(array_bytes), .type = SETTINGS_BYTES, .unit = "bytes",
				 .standard = "16MiB", .max = UINT64_C(1) << 36,
				 .help = "arrays that a session may upload for block masks; 0: none" },

	[CONFIG_POOL_LAYERS] = { "layers", OF_POOL(layers), COUNT(1, 65536), .help = "layers of the model" },
	[CONFIG_POOL_KV_HEADS] = { "kv-heads", OF_POOL(kv_heads), COUNT(1, 65536), .help = "KV heads of a layer" },
	[CONFIG_POOL_HEAD_DIM] = { "head-dim", OF_POOL(head_dim), COUNT(1, PAGED_MAX_DIM), .unit = "elements",
				   .help = "dimension of K and V" },
	[CONFIG_POOL_K_DIM] = { "k-dim", OF_POOL(k_dim), COUNT(1, PAGED_MAX_DIM), .unit = "elements",
				.help = "dimension of K, where it differs" },
	[CONFIG_POOL_V_DIM] = { "v-dim", OF_POOL(v_dim), COUNT(1, PAGED_MAX_DIM), .unit = "elements",
				.help = "dimension of V, where it differs" },
	[CONFIG_POOL_V_IN_K] = { "v-in-k", OF_POOL(v_in_k), .type = SETTINGS_BOOL, .standard = "no",
				 .help = "V is the first v-dim elements of K and stored once (MLA)" },
	[CONFIG_POOL_DTYPE] = { "dtype", OF_POOL(dtype), .type = SETTINGS_CHOICE, .choices = dtypes, .standard = "f16",
				.help = "element type" },
	[CONFIG_POOL_PAGE_SIZE] = { "page-size", OF_POOL(page_size), COUNT(1, PAGED_MAX_PAGE_SIZE), .unit = "tokens",
				    .standard = "16", .help = "tokens in a page" },
	[CONFIG_POOL_PAGES] = { "pages", OF_POOL(pages), COUNT(1, MAX_PAGES), .help = "pages of the pool; or size" },
	[CONFIG_POOL_SIZE] = { "size", OF_POOL(size), .type = SETTINGS_BYTES, .unit = "bytes", .min = 1,
			       .max = INT64_MAX, .help = "memory for the pages; or pages" },
	[CONFIG_POOL_SEQUENCES] = { "sequences", OF_POOL(sequences), COUNT(1, 1 << 24), .standard = "1024",
				    .help = "sequences at a time" },
	[CONFIG_POOL_MAX_LENGTH] = { "max-length", OF_POOL(max_length), COUNT(1, 1 << 30), .unit = "tokens",
				     .standard = "8192", .help = "longest sequence" },
	[CONFIG_POOL_TABLE_MEMORY] = { "table-memory", OF_POOL(table_bytes), .type = SETTINGS_BYTES, .unit = "bytes",
				       .min = 1, .max = UINT64_C(1) << 44,
				       .help = "most memory of page tables; the default grows with pages, from 64MiB" },
	[CONFIG_POOL_BACKEND] = { "backend", OF_POOL(backend), .type = SETTINGS_TEXT, .standard = "host",
				  .help = "where the pages lie: host or cuda" },
	[CONFIG_POOL_DEVICE] = { "device", OF_POOL(device), .type = SETTINGS_TEXT, .standard = "0",
				 .help = "of cuda: the GPU, by number or UUID" },
	[CONFIG_POOL_EXPORT] = { "export", OF_POOL(export), .type = SETTINGS_CHOICE, .choices = exports,
				 .standard = "auto", .help = "of cuda: how workers open the memory" },
	[CONFIG_POOL_QUARANTINE] = { "quarantine", OF_POOL(quarantine_ms), .type = SETTINGS_DURATION, .unit = "time",
				     .standard = "0s", .max = 3600 * 1000,
				     .help = "how long a dead worker's pages wait before they are used; on cuda 1s" },
	[CONFIG_POOL_PUBLISH] = { "publish", OF_POOL(publish), .type = SETTINGS_BOOL, .standard = "yes",
				  .help = "workers may publish pages, which later sequences share" },
	[CONFIG_POOL_FREE_PAGES] = { "free-pages", OF_POOL(free_pages), .type = SETTINGS_SHARE, .unit = "pages",
				     .standard = "1%", .max = MAX_PAGES,
				     .help = "evict unused published pages while fewer pages are free" },
	[CONFIG_POOL_PIN_LIMIT] = { "pin-limit", OF_POOL(pin_limit), .type = SETTINGS_SHARE, .unit = "pages",
				    .standard = "25%", .max = MAX_PAGES,
				    .help = "published pages that workers may pin" },
	[CONFIG_POOL_MODEL] = { "model", OF_POOL(model), .type = SETTINGS_TEXT,
				.help = "the model and its revision, as \"name@revision\"" },
	[CONFIG_POOL_ALLOW_USER] = { "allow-user", OF_POOL(allow_users), .type = SETTINGS_USERS,
				     .help = "users who may open the pool; the default is all who may attach" },
	[CONFIG_POOL_ALLOW_GROUP] = { "allow-group", OF_POOL(allow_groups), .type = SETTINGS_GROUPS,
				      .help = "groups whose members may open the pool" },

	[CONFIG_TENANT_ALLOW_USER] = { "allow-user", OF_TENANT(allow_users), .type = SETTINGS_USERS,
				       .help = "users whose sessions are the tenant's" },
	[CONFIG_TENANT_ALLOW_GROUP] = { "allow-group", OF_TENANT(allow_groups), .type = SETTINGS_GROUPS,
					.help = "groups whose members' sessions are the tenant's" },
	[CONFIG_TENANT_LIMIT] = { "limit", .section = SETTINGS_OF_TENANT, .type = SETTINGS_LIMIT, .unit = "pages",
				  .max = MAX_PAGES,
				  .help = "\"limit POOL = 60GiB\", 25% or 4000: pages of a pool for its sequences" },
	[CONFIG_TENANT_CACHE_SHARE] = { "cache-share", .section = SETTINGS_OF_TENANT, .type = SETTINGS_LIMIT,
					.unit = "pages", .max = MAX_PAGES,
					.help = "\"cache-share POOL = 25%\": cached pages that others cannot evict; "
						"the default is limit" },
	[CONFIG_TENANT_SHARE] = { "share", OF_TENANT(share), PERCENT,
				  .help = "of what user-share is of; the default is the largest limit, at most "
					  "user-share" },
};

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit units_count[] = { { "", 1 }, { NULL, 0 } };
static const struct unit units_percent[] = { { "%", 1 }, { NULL, 0 } };
static const struct unit units_bytes[] = { { "", 1 },
					   { "B", 1 },
					   { "KiB", 1ull << 10 },
					   { "MiB", 1ull << 20 },
					   { "GiB", 1ull << 30 },
					   { "TiB", 1ull << 40 },
					   { NULL, 0 } };
static const struct unit units_duration[] = { { "ms", 1 }, { "s", 1000 }, { "min", 60000 }, { NULL, 0 } };

/* Parses a whole number with a unit; false: it is malformed or overflows 64 bits. */
static bool
settings_parse_number(const char *text, const struct unit *units, uint64_t *value_p)
{
	uint64_t value;
	char *end;

	if (!isdigit((unsigned char)text[0])) /* strtoull takes signs */
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0)
		return false;
	while (*end == ' ')
		end++;
	for (; units->name != NULL; units++)
		if (strcmp(end, units->name) == 0)
			return !__builtin_mul_overflow(value, units->factor, value_p);
	return false;
}

/* "10 s": a whole number of the largest possible unit. */
static const char *
duration_text(uint64_t ms, char *text, size_t text_size)
{
	const struct unit *unit = &units_duration[2];

	while (ms % unit->factor != 0)
		unit--;
	snprintf(text, text_size, "%" PRIu64 " %s", ms / unit->factor, unit->name);
	return text;
}

static enum paged_status
settings_set_number(const struct settings_entry *entry, const char *text, uint64_t *value_p, struct paged_error *error)
{
	const struct unit *units = units_count;
	const char *wanted = "no whole number";
	char low[32], high[32];

	if (entry->type == SETTINGS_BYTES) {
		units = units_bytes;
		wanted = "no size; write a number and B, KiB, MiB, GiB or TiB";
	} else if (entry->type == SETTINGS_DURATION) {
		units = units_duration;
		wanted = "no time; write a number and ms, s or min";
	}
	if (!settings_parse_number(text, units, value_p))
		return paged_fail(error, PAGED_ERR_INVALID, "%s", wanted);
	if (*value_p >= entry->min && *value_p <= entry->max)
		return PAGED_OK;
	if (entry->type == SETTINGS_COUNT)
		return paged_fail(error, PAGED_ERR_INVALID, "outside %" PRIu64 " to %" PRIu64 "%s%s", entry->min,
				  entry->max, entry->unit ? " " : "", entry->unit ? entry->unit : "");
	return paged_fail(error, PAGED_ERR_INVALID, "outside %s to %s",
			  entry->type == SETTINGS_BYTES ? config_format_bytes(entry->min, low, sizeof(low))
							: duration_text(entry->min, low, sizeof(low)),
			  entry->type == SETTINGS_BYTES ? config_format_bytes(entry->max, high, sizeof(high))
							: duration_text(entry->max, high, sizeof(high)));
}

/* "5%", "5 %" or "300". */
static enum paged_status
settings_set_share(const struct settings_entry *entry, const char *text, struct config_share *share,
		   struct paged_error *error)
{
	uint64_t value;

	*share = (struct config_share){ .percent = strchr(text, '%') != NULL };
	if (!settings_parse_number(text, share->percent ? units_percent : units_count, &value))
		return paged_fail(error, PAGED_ERR_INVALID, "neither a number of pages nor a percentage, as 5%%");
	if (share->percent && value > 100)
		return paged_fail(error, PAGED_ERR_INVALID, "outside 0%% to 100%%");
	if (value > entry->max)
		return paged_fail(error, PAGED_ERR_INVALID, "outside 0 to %" PRIu64 " pages", entry->max);
	share->number = (uint32_t)value;
	return PAGED_OK;
}

/* "75%" or "75 %" */
static enum paged_status
settings_set_percent(const struct settings_entry *entry, const char *text, uint32_t *field, struct paged_error *error)
{
	uint64_t value;

	if (!settings_parse_number(text, units_percent, &value))
		return paged_fail(error, PAGED_ERR_INVALID, "no percentage, as 75%%");
	if (value < entry->min || value > entry->max)
		return paged_fail(error, PAGED_ERR_INVALID, "outside %" PRIu64 "%% to %" PRIu64 "%%", entry->min,
				  entry->max);
	*field = (uint32_t)value;
	return PAGED_OK;
}

/* "60GiB", "60 GiB", or a share. */
static enum paged_status
settings_set_limit(const struct settings_entry *entry, const char *text, struct config_limit *limit,
		   struct paged_error *error)
{
	uint64_t number;

	limit->size = 0;
	if (strchr(text, '%') != NULL || settings_parse_number(text, units_count, &number))
		return settings_set_share(entry, text, &limit->share, error);
	if (!settings_parse_number(text, units_bytes, &limit->size))
		return paged_fail(error, PAGED_ERR_INVALID,
				  "neither a number of pages, nor a percentage, as 5%%, nor a size, as 60GiB");
	if (limit->size == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "write 0 for no pages");
	return PAGED_OK;
}

static enum paged_status
settings_add_id(const struct settings_entry *entry, struct config_ids *ids, const char *text, struct paged_error *error)
{
	bool users = entry->type == SETTINGS_USERS;
	const struct passwd *user;
	const struct group *group;
	uint64_t number;
	uint32_t id, *grown;

	if (settings_parse_number(text, units_count, &number)) {
		if (number >= UINT32_MAX) /* (uid_t)-1 means "none" to the kernel */
			return paged_fail(error, PAGED_ERR_INVALID, "no %s id", users ? "user" : "group");
		id = (uint32_t)number;
	} else if (users && (user = getpwnam(text)) != NULL) {
		id = user->pw_uid;
	} else if (!users && (group = getgrnam(text)) != NULL) {
		id = group->gr_gid;
	} else {
		return paged_fail(error, PAGED_ERR_INVALID, "the system has no such %s", users ? "user" : "group");
	}
	for (size_t i = 0; i < ids->n; i++)
		if (ids->id[i] == id)
			return PAGED_OK;
	grown = realloc(ids->id, (ids->n + 1) * sizeof(*grown));
	if (grown == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory");
	ids->id = grown;
	ids->id[ids->n++] = id;
	return PAGED_OK;
}

/* "f32, f16, bf16" */
static const char *
choices_text(const struct settings_entry *entry, char *text, size_t text_size)
{
	size_t n = 0;

	for (const struct settings_choice *choice = entry->choices; choice->name != NULL; choice++)
		n += (size_t)snprintf(text + n, text_size - n, "%s%s", choice == entry->choices ? "" : ", ",
				      choice->name);
	return text;
}

static enum paged_status
settings_set_choice(const struct settings_entry *entry, uint32_t *field, const char *text, struct paged_error *error)
{
	char names[64];

	for (const struct settings_choice *choice = entry->choices; choice->name != NULL; choice++) {
		if (strcmp(text, choice->name) == 0) {
			*field = choice->value;
			return PAGED_OK;
		}
	}
	return paged_fail(error, PAGED_ERR_INVALID, "none of %s", choices_text(entry, names, sizeof(names)));
}

enum paged_status
settings_set(const struct settings_entry *entry, void *object, const char *text, struct paged_error *error)
{
	void *field = (char *)object + entry->offset;
	enum paged_status status;
	uint64_t value;
	char *copy;

	switch (entry->type) {
	case SETTINGS_COUNT:
	case SETTINGS_DURATION:
		status = settings_set_number(entry, text, &value, error);
		if (status == PAGED_OK)
			*(uint32_t *)field = (uint32_t)value;
		return status;
	case SETTINGS_BYTES:
		return settings_set_number(entry, text, field, error);
	case SETTINGS_SHARE:
		return settings_set_share(entry, text, field, error);
	case SETTINGS_PERCENT:
		return settings_set_percent(entry, text, field, error);
	case SETTINGS_LIMIT:
		return settings_set_limit(entry, text, field, error);
	case SETTINGS_BOOL:
		if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
			return paged_fail(error, PAGED_ERR_INVALID, "neither yes nor no");
		*(bool *)field = strcmp(text, "yes") == 0;
		return PAGED_OK;
	case SETTINGS_TEXT:
		copy = strdup(text);
		if (copy == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory");
		free(*(char **)field);
		*(char **)field = copy;
		return PAGED_OK;
	case SETTINGS_CHOICE:
		return settings_set_choice(entry, field, text, error);
	case SETTINGS_USERS:
	case SETTINGS_GROUPS:
		return settings_add_id(entry, field, text, error);
	}
	return paged_fail(error, PAGED_ERR_INVALID, "no such type of setting");
}

const char *
config_format_bytes(uint64_t n_bytes, char *text, size_t text_size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t i = 0;

	/* Divide while the value divides evenly or is 10240 or more, then rounding down. */
	while (i + 1 < sizeof(names) / sizeof(names[0]) &&
	       (n_bytes >= 10240 || (n_bytes >= 1024 && n_bytes % 1024 == 0))) {
		n_bytes /= 1024;
		i++;
	}
	snprintf(text, text_size, "%" PRIu64 " %s", n_bytes, names[i]);
	return text;
}

static void
settings_print_help(FILE *out, enum settings_section section)
{
	char choices[64];

	for (int i = 0; i < CONFIG_N_SETTINGS; i++) {
		const struct settings_entry *entry = &settings_table[i];

		if (entry->section == section)
			fprintf(out, "  %-20s %-9s %-8s %s%s%s\n", entry->name, entry->unit ? entry->unit : "",
				entry->standard ? entry->standard : "", entry->help, entry->choices ? ": " : "",
				entry->choices ? choices_text(entry, choices, sizeof(choices)) : "");
	}
}

void
config_help(FILE *out)
{
	fprintf(out, "  %-20s %-9s %-8s\n", "SETTING", "UNIT", "DEFAULT");
	settings_print_help(out, SETTINGS_GLOBAL);
	fprintf(out, "\nof a pool NAME { ... }:\n");
	settings_print_help(out, SETTINGS_OF_POOL);
	fprintf(out, "\nof a tenant NAME { ... }:\n");
	settings_print_help(out, SETTINGS_OF_TENANT);
}
