/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/memory.h"

#define GLOBAL(field) .of_pool = false, .offset = offsetof(struct config, field)
#define OF_POOL(field) .of_pool = true, .offset = offsetof(struct config_pool, field)
#define COUNT(low, high) .type = SETTINGS_COUNT, .min = (low), .max = (high)

/* A page number must fit 31 bits: tables are handed to kernels as int32. */
#define MAX_PAGES INT32_MAX

const struct settings_row settings_table[CONFIG_N_SETTINGS] = {
	[CONFIG_RUNTIME_DIR] = { "runtime-dir", GLOBAL(runtime_dir), .type = SETTINGS_TEXT,
				 .help = "directory of the sockets; the default is $RUNTIME_DIRECTORY or /run/paged" },
	[CONFIG_ALLOW_USER] = { "allow-user", GLOBAL(allow_users), .type = SETTINGS_USERS,
				.help = "users who may attach, besides the daemon's own and root" },
	[CONFIG_ALLOW_GROUP] = { "allow-group", GLOBAL(allow_groups), .type = SETTINGS_GROUPS,
				 .help = "groups whose members may attach" },
	[CONFIG_ADMIN_GROUP] = { "admin-group", GLOBAL(admin_group), .type = SETTINGS_GROUPS,
				 .help = "group whose members may check and kick" },
	[CONFIG_STOP_TIMEOUT] = { "stop-timeout", GLOBAL(stop_timeout_ms), .type = SETTINGS_DURATION, .unit = "time",
				  .standard = "10s", .max = 3600 * 1000,
				  .help = "how long a stopping daemon waits for its sessions" },
	[CONFIG_LOG_LEVEL] = { "log-level", GLOBAL(log_level), .type = SETTINGS_LOG_LEVEL, .standard = "info",
			       .help = "error, warning, info or debug" },
	[CONFIG_MAX_SESSIONS] = { "max-sessions", GLOBAL(max_sessions), COUNT(1, 65536), .standard = "1024",
				  .help = "sessions at a time" },
	[CONFIG_MAX_MEMBERS] = { "max-members", GLOBAL(max_members), COUNT(1, 65536), .standard = "1024",
				 .help = "attached processes at a time, observers included" },
	[CONFIG_MAX_USER_MEMBERS] = { "max-members-per-user", GLOBAL(max_user_members), COUNT(1, 65536),
				      .standard = "1024",
				      .help = "of them, those of one user who is no administrator" },
	[CONFIG_MASK_SIZE] = { "mask-size", GLOBAL(mask_bytes), .type = SETTINGS_BYTES, .unit = "bytes",
			       .standard = "64MiB", .max = UINT64_C(1) << 36,
			       .help = "largest block mask built for a session; 0: none" },
	[CONFIG_MASK_TIME] = { "mask-time", GLOBAL(mask_time_ms), .type = SETTINGS_DURATION, .unit = "time",
			       .standard = "2s", .min = 1, .max = 3600 * 1000,
			       .help = "how long building one may take" },
	[CONFIG_MASK_ARRAYS] = { "mask-arrays", GLOBAL(array_bytes), .type = SETTINGS_BYTES, .unit = "bytes",
				 .standard = "16MiB", .max = UINT64_C(1) << 36,
				 .help = "arrays for block masks that a session may keep; 0: none" },

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
	[CONFIG_POOL_DTYPE] = { "dtype", OF_POOL(dtype), .type = SETTINGS_DTYPE, .standard = "f16",
				.help = "element type: f32, f16 or bf16" },
	[CONFIG_POOL_PAGE_SIZE] = { "page-size", OF_POOL(page_size), COUNT(1, PAGED_MAX_PAGE_SIZE), .unit = "tokens",
				    .standard = "16", .help = "tokens in a page" },
	[CONFIG_POOL_PAGES] = { "pages", OF_POOL(pages), COUNT(1, MAX_PAGES), .help = "pages of the pool; or size" },
	[CONFIG_POOL_SIZE] = { "size", OF_POOL(size), .type = SETTINGS_BYTES, .unit = "bytes", .min = 1,
			       .max = INT64_MAX, .help = "memory for the pages; or pages" },
	[CONFIG_POOL_SEQUENCES] = { "sequences", OF_POOL(sequences), COUNT(1, 1 << 24), .standard = "1024",
				    .help = "sequences at a time" },
	[CONFIG_POOL_MAX_LENGTH] = { "max-length", OF_POOL(max_length), COUNT(1, 1 << 30), .unit = "tokens",
				     .standard = "8192", .help = "longest sequence" },
	[CONFIG_POOL_BACKEND] = { "backend", OF_POOL(backend), .type = SETTINGS_TEXT, .standard = "host",
				  .help = "where the pages lie: host or cuda" },
	[CONFIG_POOL_DEVICE] = { "device", OF_POOL(device), .type = SETTINGS_TEXT, .standard = "0",
				 .help = "of cuda: the GPU, by number or UUID" },
	[CONFIG_POOL_EXPORT] = { "export", OF_POOL(export), .type = SETTINGS_EXPORT, .standard = "auto",
				 .help = "of cuda: how workers open the memory: auto, vmm or legacy" },
	[CONFIG_POOL_QUARANTINE] = { "quarantine-ms", OF_POOL(quarantine_ms), COUNT(0, 3600 * 1000), .unit = "ms",
				     .standard = "0",
				     .help = "wait so long before a dead worker's pages are used; on cuda 1000" },
	[CONFIG_POOL_ALLOW_USER] = { "allow-user", OF_POOL(allow_users), .type = SETTINGS_USERS,
				     .help = "users who may open the pool; the default is all who may attach" },
	[CONFIG_POOL_ALLOW_GROUP] = { "allow-group", OF_POOL(allow_groups), .type = SETTINGS_GROUPS,
				      .help = "groups whose members may open the pool" },
};

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit units_count[] = { { "", 1 }, { NULL, 0 } };
static const struct unit units_bytes[] = { { "", 1 },
					   { "B", 1 },
					   { "KiB", 1ull << 10 },
					   { "MiB", 1ull << 20 },
					   { "GiB", 1ull << 30 },
					   { "TiB", 1ull << 40 },
					   { NULL, 0 } };
static const struct unit units_duration[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "min", 60000 }, { NULL, 0 } };

/* A whole number and a unit; false: it is none, or past 2^64. */
static bool
number_parse(const char *text, const struct unit *units, uint64_t *value_p)
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

static enum paged_status
number_set(const struct settings_row *row, const char *text, uint64_t *value_p, struct paged_error *error)
{
	char low[32], high[32];

	if (row->type == SETTINGS_BYTES) {
		if (!number_parse(text, units_bytes, value_p))
			return paged_fail(error, PAGED_ERR_INVALID,
					  "no size; write a number and B, KiB, MiB, GiB or TiB");
		if (*value_p < row->min || *value_p > row->max)
			return paged_fail(error, PAGED_ERR_INVALID, "outside %s to %s",
					  config_format_bytes(row->min, low, sizeof(low)),
					  config_format_bytes(row->max, high, sizeof(high)));
		return PAGED_OK;
	}
	if (row->type == SETTINGS_DURATION) {
		if (!number_parse(text, units_duration, value_p))
			return paged_fail(error, PAGED_ERR_INVALID, "no time; write a number and ms, s or min");
		if (*value_p < row->min || *value_p > row->max)
			return paged_fail(error, PAGED_ERR_INVALID, "outside %" PRIu64 "ms to %" PRIu64 "ms", row->min,
					  row->max);
		return PAGED_OK;
	}
	if (!number_parse(text, units_count, value_p))
		return paged_fail(error, PAGED_ERR_INVALID, "no whole number");
	if (*value_p < row->min || *value_p > row->max)
		return paged_fail(error, PAGED_ERR_INVALID, "outside %" PRIu64 " to %" PRIu64 "%s%s", row->min,
				  row->max, row->unit ? " " : "", row->unit ? row->unit : "");
	return PAGED_OK;
}

static bool
user_find(const char *name, uint32_t *id_p)
{
	const struct passwd *user = getpwnam(name);

	if (user != NULL)
		*id_p = user->pw_uid;
	return user != NULL;
}

static bool
group_find(const char *name, uint32_t *id_p)
{
	const struct group *group = getgrnam(name);

	if (group != NULL)
		*id_p = group->gr_gid;
	return group != NULL;
}

static enum paged_status
ids_add(const struct settings_row *row, struct config_ids *ids, const char *text, struct paged_error *error)
{
	bool users = row->type == SETTINGS_USERS;
	uint64_t number;
	uint32_t id, *grown;

	if (number_parse(text, units_count, &number)) {
		if (number >= UINT32_MAX) /* (uid_t)-1 means "none" to the kernel */
			return paged_fail(error, PAGED_ERR_INVALID, "no %s id", users ? "user" : "group");
		id = (uint32_t)number;
	} else if (!(users ? user_find(text, &id) : group_find(text, &id))) {
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

static enum paged_status
text_set(char **field, const char *text, struct paged_error *error)
{
	char *copy = strdup(text);

	if (copy == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "no memory");
	free(*field);
	*field = copy;
	return PAGED_OK;
}

static enum paged_status
bool_set(bool *field, const char *text, struct paged_error *error)
{
	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return paged_fail(error, PAGED_ERR_INVALID, "neither yes nor no");
	*field = strcmp(text, "yes") == 0;
	return PAGED_OK;
}

static enum paged_status
export_set(uint32_t *field, const char *text, struct paged_error *error)
{
	static const char *const names[] = { [MEMORY_AUTO] = "auto", [MEMORY_VMM] = "vmm", [MEMORY_LEGACY] = "legacy" };

	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			*field = i;
			return PAGED_OK;
		}
	}
	return paged_fail(error, PAGED_ERR_INVALID, "none of auto, vmm, legacy");
}

enum paged_status
settings_set(const struct settings_row *row, void *object, const char *text, struct paged_error *error)
{
	void *field = (char *)object + row->offset;
	enum paged_status status;
	uint64_t value;

	switch (row->type) {
	case SETTINGS_COUNT:
	case SETTINGS_DURATION:
		status = number_set(row, text, &value, error);
		if (status == PAGED_OK)
			*(uint32_t *)field = (uint32_t)value;
		return status;
	case SETTINGS_BYTES:
		return number_set(row, text, field, error);
	case SETTINGS_BOOL:
		return bool_set(field, text, error);
	case SETTINGS_TEXT:
		return text_set(field, text, error);
	case SETTINGS_DTYPE:
		*(uint32_t *)field = paged_dtype_parse(text);
		if (*(uint32_t *)field == PAGED_DTYPE_NONE)
			return paged_fail(error, PAGED_ERR_INVALID, "none of f32, f16, bf16, e4m3, e5m2, i8");
		return PAGED_OK;
	case SETTINGS_LOG_LEVEL:
		if (!log_level_parse(text, field))
			return paged_fail(error, PAGED_ERR_INVALID, "none of error, warning, info, debug");
		return PAGED_OK;
	case SETTINGS_EXPORT:
		return export_set(field, text, error);
	case SETTINGS_USERS:
	case SETTINGS_GROUPS:
		return ids_add(row, field, text, error);
	}
	return paged_fail(error, PAGED_ERR_INVALID, "no such type of setting");
}

const char *
config_format_bytes(uint64_t n_bytes, char *text, size_t text_size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t i = 0;

	/* Exact while it can be, and never more than four digits. */
	while (i + 1 < sizeof(names) / sizeof(names[0]) &&
	       (n_bytes >= 10240 || (n_bytes >= 1024 && n_bytes % 1024 == 0))) {
		n_bytes /= 1024;
		i++;
	}
	snprintf(text, text_size, "%" PRIu64 " %s", n_bytes, names[i]);
	return text;
}

static void
help_print(FILE *out, const struct settings_row *row)
{
	fprintf(out, "  %-20s %-9s %-8s %s\n", row->name, row->unit ? row->unit : "",
		row->standard ? row->standard : "", row->help);
}

void
config_help(FILE *out)
{
	fprintf(out, "  %-20s %-9s %-8s\n", "SETTING", "UNIT", "DEFAULT");
	for (int i = 0; i < CONFIG_N_SETTINGS; i++)
		if (!settings_table[i].of_pool)
			help_print(out, &settings_table[i]);
	fprintf(out, "\nof a pool NAME { ... }:\n");
	for (int i = 0; i < CONFIG_N_SETTINGS; i++)
		if (settings_table[i].of_pool)
			help_print(out, &settings_table[i]);
}
