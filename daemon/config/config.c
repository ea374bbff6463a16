/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/config.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "common/text.h"
#include "daemon/config/config_lexer.h"
#include "daemon/config/config_tenants.h"
#include "daemon/config/settings.h"
#include "daemon/memory.h"

/* The default quarantine of cuda pools: the driver may end a dead process's GPU work after its pidfd is readable. */
#define QUARANTINE_CUDA_MS 1000

struct parser {
	struct config *config;
	/* The pool or tenant whose braces are open; NULL: none. */
	struct config_pool *pool;
	struct config_tenant *tenant;
	unsigned int section_line;
	struct paged_error *error;
	struct config_lexer lexer;
};

enum paged_status
config_fail(const struct config *config, const struct config_pool *pool, enum config_setting setting,
	    struct paged_error *error, const char *format, ...)
{
	const struct config_source *source = pool ? &pool->source[setting] : &config->source[setting];
	const struct settings_entry *entry = &settings_table[setting];
	char why[sizeof(error->text)], line[16] = "";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	if (source->line != 0)
		snprintf(line, sizeof(line), ":%u", source->line);
	return paged_fail(error, PAGED_ERR_INVALID, "%s%s: %s%s%s%s = %s%s: %s", config->path, line,
			  pool ? "pool " : "", pool ? pool->name : "", pool ? ": " : "", entry->name,
			  source->text ? source->text : entry->standard, source->text ? "" : " (the default)", why);
}

/* Stores an error with the line of the current token, but without a value; returns false. */
static bool
parser_fail(const struct parser *parser, const char *format, ...)
{
	const char *section = parser->pool != NULL ? "pool " : parser->tenant != NULL ? "tenant " : "";
	const char *name = parser->pool != NULL     ? parser->pool->name
			   : parser->tenant != NULL ? parser->tenant->name
						    : "";
	char why[sizeof(parser->error->text)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	paged_fail(parser->error, PAGED_ERR_INVALID, "%s:%u: %s%s%s%s", parser->config->path, parser->lexer.token_line,
		   section, name, section[0] != '\0' ? ": " : "", why);
	return false;
}

static bool
token_next(struct parser *parser)
{
	struct paged_error why;

	return config_lexer_next(&parser->lexer, &why) == PAGED_OK || parser_fail(parser, "%s", why.text);
}

/* Settings */

static enum settings_section
parser_section(const struct parser *parser)
{
	return parser->pool != NULL ? SETTINGS_OF_POOL : parser->tenant != NULL ? SETTINGS_OF_TENANT : SETTINGS_GLOBAL;
}

static enum config_setting
setting_find(const char *name, enum settings_section section)
{
	int i;

	for (i = 0; i < CONFIG_N_SETTINGS; i++)
		if (settings_table[i].section == section && strcmp(settings_table[i].name, name) == 0)
			break;
	return i;
}

/* Is this name nearer to the word than those before?  A word is shorter than CONFIG_WORD_SIZE, a name as well. */
static void
setting_compare(const char *word, const char *name, const char **nearest_p, uint32_t *least_p)
{
	uint32_t distance = text_edit_distance(word, strlen(word), name, strlen(name));

	static_assert(CONFIG_WORD_SIZE - 1 <= TEXT_MAX_EDITED, "the longest word");
	if (distance < *least_p) {
		*nearest_p = name;
		*least_p = distance;
	}
}

/* Refuses an unknown name: it is a setting of another section, or may be meant for the nearest one of this section. */
static bool
parser_fail_name(const struct parser *parser)
{
	enum settings_section section = parser_section(parser);
	const char *name = parser->lexer.word, *nearest = NULL;
	uint32_t least = UINT32_MAX;

	if (setting_find(name, SETTINGS_OF_POOL) != CONFIG_N_SETTINGS)
		return parser_fail(parser, "%s is a setting of a pool", name);
	if (setting_find(name, SETTINGS_OF_TENANT) != CONFIG_N_SETTINGS)
		return parser_fail(parser, "%s is a setting of a tenant", name);
	if (setting_find(name, SETTINGS_GLOBAL) != CONFIG_N_SETTINGS)
		return parser_fail(parser, "%s is a setting of the daemon: set it outside of the %s", name,
				   section == SETTINGS_OF_POOL ? "pools" : "tenants");
	for (int i = 0; i < CONFIG_N_SETTINGS; i++)
		if (settings_table[i].section == section)
			setting_compare(name, settings_table[i].name, &nearest, &least);
	if (section == SETTINGS_GLOBAL) {
		setting_compare(name, "pool", &nearest, &least);
		setting_compare(name, "tenant", &nearest, &least);
	}
	if (least > MAX(strlen(name) / 3, 1))
		return parser_fail(parser, "there is no setting %s; pagedd --help-settings lists them", name);
	return parser_fail(parser, "there is no setting %s; did you mean %s?", name, nearest);
}

static bool
section_name_is_valid(const char *name)
{
	size_t length = strlen(name);

	return length >= 1 && length <= PAGED_MAX_NAME &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static enum paged_status
defaults_set(enum settings_section section, void *object, struct paged_error *error)
{
	for (int i = 0; i < CONFIG_N_SETTINGS; i++) {
		const struct settings_entry *entry = &settings_table[i];
		enum paged_status status;

		if (entry->section != section || entry->standard == NULL)
			continue;
		status = settings_set(entry, object, entry->standard, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

/* The name behind "pool", "tenant" or "limit". */
static bool
section_read_name(struct parser *parser, const char *section)
{
	if (!token_next(parser))
		return false;
	if (parser->lexer.token != TOKEN_WORD)
		return parser_fail(parser, "%s: a name is missing", section);
	if (!section_name_is_valid(parser->lexer.word))
		return parser_fail(parser, "%s %s: a name is 1 to %u letters, digits, dots, dashes and underscores",
				   section, parser->lexer.word, PAGED_MAX_NAME);
	return true;
}

static bool
section_read_brace(struct parser *parser)
{
	if (!token_next(parser))
		return false;
	return parser->lexer.token == TOKEN_OPEN ? token_next(parser) : parser_fail(parser, "'{' is missing");
}

/* "pool NAME {" */
static bool
pool_begin(struct parser *parser)
{
	struct config *config = parser->config;
	struct config_pool *grown;

	if (!section_read_name(parser, "pool"))
		return false;
	for (size_t i = 0; i < config->n_pools; i++)
		if (strcmp(config->pools[i].name, parser->lexer.word) == 0)
			return parser_fail(parser, "pool %s: the name is already in use", parser->lexer.word);
	if (config->n_pools == CONFIG_MAX_POOLS)
		return parser_fail(parser, "pool %s: more than %d pools", parser->lexer.word, CONFIG_MAX_POOLS);
	grown = reallocarray(config->pools, config->n_pools + 1, sizeof(*grown));
	if (grown == NULL)
		return parser_fail(parser, "pool %s: no memory", parser->lexer.word);
	config->pools = grown;
	parser->pool = &config->pools[config->n_pools++];
	parser->section_line = parser->lexer.token_line;
	*parser->pool = (struct config_pool){ 0 };
	strcpy(parser->pool->name, parser->lexer.word);
	return defaults_set(SETTINGS_OF_POOL, parser->pool, parser->error) == PAGED_OK && section_read_brace(parser);
}

/* "tenant NAME {" */
static bool
tenant_begin(struct parser *parser)
{
	struct config *config = parser->config;
	struct config_tenant *grown;

	if (!section_read_name(parser, "tenant"))
		return false;
	for (size_t i = 0; i < config->n_tenants; i++)
		if (strcmp(config->tenants[i].name, parser->lexer.word) == 0)
			return parser_fail(parser, "tenant %s: the name is already in use", parser->lexer.word);
	if (config->n_tenants == CONFIG_MAX_TENANTS)
		return parser_fail(parser, "tenant %s: more than %d tenants", parser->lexer.word, CONFIG_MAX_TENANTS);
	grown = reallocarray(config->tenants, config->n_tenants + 1, sizeof(*grown));
	if (grown == NULL)
		return parser_fail(parser, "tenant %s: no memory", parser->lexer.word);
	config->tenants = grown;
	parser->tenant = &config->tenants[config->n_tenants++];
	parser->section_line = parser->lexer.token_line;
	*parser->tenant = (struct config_tenant){ 0 };
	strcpy(parser->tenant->name, parser->lexer.word);
	return section_read_brace(parser);
}

/* Where a value is stored, besides its source; limit: the limit that is being read, or NULL. */
static void *
value_object(const struct parser *parser, struct config_limit *limit)
{
	if (limit != NULL)
		return limit;
	return parser->pool != NULL     ? (void *)parser->pool
	       : parser->tenant != NULL ? (void *)parser->tenant
					: parser->config;
}

static struct config_source *
value_source(const struct parser *parser, enum config_setting setting, struct config_limit *limit)
{
	if (limit != NULL)
		return &limit->source;
	return parser->pool != NULL     ? &parser->pool->source[setting]
	       : parser->tenant != NULL ? &parser->tenant->source[setting]
					: &parser->config->source[setting];
}

/* Sets a value; for a list, appends the value. */
static bool
value_set(struct parser *parser, enum config_setting setting, struct config_limit *limit)
{
	const struct settings_entry *entry = &settings_table[setting];
	struct config_source *source = value_source(parser, setting, limit);
	bool several = source->text != NULL;
	struct paged_error why;
	char *text = NULL;

	if (entry->type == SETTINGS_BYTES || entry->type == SETTINGS_DURATION || entry->type == SETTINGS_SHARE ||
	    entry->type == SETTINGS_PERCENT || entry->type == SETTINGS_LIMIT)
		config_lexer_join_unit(&parser->lexer);
	if (asprintf(&text, "%s%s%s", several ? source->text : "", several ? ", " : "", parser->lexer.word) < 0)
		return parser_fail(parser, "no memory");
	free(source->text);
	source->text = text;
	source->line = parser->lexer.token_line;
	if (settings_set(entry, value_object(parser, limit), parser->lexer.word, &why) == PAGED_OK)
		return token_next(parser);
	if (parser->tenant != NULL)
		config_tenant_fail(parser->config, parser->tenant, setting, limit, parser->error, "%s%s%s",
				   several ? parser->lexer.word : "", several ? ": " : "", why.text);
	else
		config_fail(parser->config, parser->pool, setting, parser->error, "%s%s%s",
			    several ? parser->lexer.word : "", several ? ": " : "", why.text);
	return false;
}

/* Reads '=' and the token after it. */
static bool
equals_read(struct parser *parser, const char *name)
{
	if (!token_next(parser))
		return false;
	if (parser->lexer.token != TOKEN_EQUALS)
		return parser_fail(parser, "%s: '=' is missing", name);
	return token_next(parser);
}

/* "limit POOL = VALUE", "cache-share POOL = VALUE"; the pool may follow later in the file. */
static bool
limit_read(struct parser *parser, enum config_setting setting)
{
	const char *name = settings_table[setting].name;
	struct config_tenant *tenant = parser->tenant;
	struct config_limit *limit;

	if (!section_read_name(parser, name))
		return false;
	for (size_t i = 0; i < tenant->n_limits; i++)
		if (tenant->limits[i].setting == setting && strcmp(tenant->limits[i].name, parser->lexer.word) == 0)
			return parser_fail(parser, "%s %s is set twice, first in line %u", name, parser->lexer.word,
					   tenant->limits[i].source.line);
	limit = config_tenant_add_limit(tenant, setting, parser->lexer.word);
	if (limit == NULL)
		return parser_fail(parser, "%s %s: no memory", name, parser->lexer.word);
	if (!equals_read(parser, name))
		return false;
	return parser->lexer.token == TOKEN_WORD ? value_set(parser, setting, limit)
						 : parser_fail(parser, "%s %s: a value is missing", name, limit->name);
}

/* "NAME = VALUE"; for a list also "NAME = { VALUE, VALUE }".  A list grows with each setting. */
static bool
setting_read(struct parser *parser)
{
	enum config_setting setting = setting_find(parser->lexer.word, parser_section(parser));
	const struct settings_entry *entry = &settings_table[setting];
	const struct config_source *source;

	if (setting == CONFIG_N_SETTINGS)
		return parser_fail_name(parser);
	if (setting == CONFIG_TENANT_LIMIT || setting == CONFIG_TENANT_CACHE_SHARE)
		return limit_read(parser, setting);
	source = value_source(parser, setting, NULL);
	if (source->line != 0 && !settings_is_list(entry))
		return parser_fail(parser, "%s is set twice, first in line %u", entry->name, source->line);
	if (!equals_read(parser, entry->name))
		return false;
	if (parser->lexer.token == TOKEN_WORD)
		return value_set(parser, setting, NULL);
	if (parser->lexer.token != TOKEN_OPEN || !settings_is_list(entry))
		return parser_fail(parser, "%s: %s", entry->name,
				   parser->lexer.token == TOKEN_OPEN ? "it has one value, no list"
								     : "a value is missing");
	do {
		if (!token_next(parser))
			return false;
		if (parser->lexer.token == TOKEN_WORD && !value_set(parser, setting, NULL))
			return false;
	} while (parser->lexer.token == TOKEN_COMMA);
	return parser->lexer.token == TOKEN_CLOSE ? token_next(parser)
						  : parser_fail(parser, "%s: the list is not closed", entry->name);
}

static bool
is_set(const struct config_pool *pool, enum config_setting setting)
{
	return pool->source[setting].line != 0;
}

static bool
pool_complete(const struct parser *parser, struct config_pool *pool)
{
	if (!is_set(pool, CONFIG_POOL_LAYERS))
		return parser_fail(parser, "layers is not set");
	if (!is_set(pool, CONFIG_POOL_KV_HEADS))
		return parser_fail(parser, "kv-heads is not set");
	if (!is_set(pool, CONFIG_POOL_K_DIM))
		pool->k_dim = pool->head_dim;
	if (!is_set(pool, CONFIG_POOL_V_DIM))
		pool->v_dim = pool->head_dim;
	if (pool->k_dim == 0 || pool->v_dim == 0)
		return parser_fail(parser, "head-dim is not set (nor both k-dim and v-dim)");
	if (is_set(pool, CONFIG_POOL_PAGES) == is_set(pool, CONFIG_POOL_SIZE))
		return parser_fail(parser, "set %s pages or size",
				   is_set(pool, CONFIG_POOL_PAGES) ? "only one of" : "either");
	return true;
}

/* The defaults and restrictions that depend on the back end. */
static bool
pool_check_backend(const struct parser *parser, struct config_pool *pool)
{
	static const enum config_setting of_cuda[] = { CONFIG_POOL_DEVICE, CONFIG_POOL_EXPORT };
	bool cuda = strcmp(pool->backend, memory_ops_cuda.name) == 0;

	if (cuda && !is_set(pool, CONFIG_POOL_QUARANTINE))
		pool->quarantine_ms = QUARANTINE_CUDA_MS;
	for (size_t i = 0; i < sizeof(of_cuda) / sizeof(of_cuda[0]); i++) {
		if (cuda || !is_set(pool, of_cuda[i]))
			continue;
		config_fail(parser->config, pool, of_cuda[i], parser->error, "only backend = cuda has it");
		return false;
	}
	return true;
}

static enum paged_status
pool_layout(struct config_pool *pool, uint32_t n_pages, struct paged_error *error)
{
	const struct layout_params params = {
		.n_layers = pool->layers,
		.n_kv_heads = pool->kv_heads,
		.k_dim = pool->k_dim,
		.v_dim = pool->v_dim,
		.v_in_k = pool->v_in_k,
		.dtype = pool->dtype,
		.page_size = pool->page_size,
		.n_pages = n_pages,
		.alignment = strcmp(pool->backend, memory_ops_cuda.name) == 0 ? LAYOUT_ALIGNMENT_CUDA : 0,
	};

	return layout_init(&pool->layout, &params, error);
}

/* Checks what a pool states about its published pages. */
static bool
pool_check_publish(const struct parser *parser, const struct config_pool *pool)
{
	const struct {
		enum config_setting setting;
		struct config_share share;
	} shares[] = { { CONFIG_POOL_FREE_PAGES, pool->free_pages }, { CONFIG_POOL_PIN_LIMIT, pool->pin_limit } };
	const char *model = pool->model != NULL ? pool->model : "";
	size_t length = strlen(model), bad = text_bad_byte(model);

	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		if (config_share_pages(shares[i].share, pool->pages) <= pool->pages)
			continue;
		config_fail(parser->config, pool, shares[i].setting, parser->error, "the pool has %u pages",
			    pool->pages);
		return false;
	}
	/* The value is not repeated in the error, as it may not be printable. */
	if (bad != length)
		return parser_fail(parser, "model: %s at byte %zu",
				   (unsigned char)model[bad] < 0x80 ? "a control character" : "no printable UTF-8",
				   bad);
	if (length > CONFIG_MAX_MODEL)
		return parser_fail(parser, "model: %zu bytes; the longest name has %d", length, CONFIG_MAX_MODEL);
	return true;
}

/* Checks a pool as a whole and computes its number of pages, at its closing brace. */
static bool
pool_end(struct parser *parser)
{
	struct config_pool *pool = parser->pool;
	char size[32], page[32];
	struct paged_error why;
	uint64_t n_pages;

	if (!pool_complete(parser, pool) || !pool_check_backend(parser, pool))
		return false;
	if (pool_layout(pool, 1, &why) != PAGED_OK)
		return parser_fail(parser, "%s", why.text);
	if (is_set(pool, CONFIG_POOL_SIZE)) {
		n_pages = pool->size / pool->layout.page_bytes;
		if (n_pages == 0 || n_pages > settings_table[CONFIG_POOL_PAGES].max) {
			config_fail(parser->config, pool, CONFIG_POOL_SIZE, parser->error,
				    "%s are %llu pages of %s; a pool has 1 to %llu",
				    config_format_bytes(pool->size, size, sizeof(size)), (unsigned long long)n_pages,
				    config_format_bytes(pool->layout.page_bytes, page, sizeof(page)),
				    (unsigned long long)settings_table[CONFIG_POOL_PAGES].max);
			return false;
		}
		pool->pages = (uint32_t)n_pages;
	}
	if (pool_layout(pool, pool->pages, &why) != PAGED_OK)
		return parser_fail(parser, "%s", why.text);
	if (!pool_check_publish(parser, pool))
		return false;
	parser->pool = NULL;
	return token_next(parser);
}

static bool
tenant_end(struct parser *parser)
{
	const struct config_tenant *tenant = parser->tenant;

	if (tenant->allow_users.n == 0 && tenant->allow_groups.n == 0)
		return parser_fail(parser, "set allow-user or allow-group; else no session is the tenant's");
	parser->tenant = NULL;
	return token_next(parser);
}

static bool
config_parse(struct parser *parser)
{
	bool ok = token_next(parser);

	while (ok && parser->lexer.token != TOKEN_END) {
		if (parser->lexer.token == TOKEN_CLOSE && parser->pool != NULL)
			ok = pool_end(parser);
		else if (parser->lexer.token == TOKEN_CLOSE && parser->tenant != NULL)
			ok = tenant_end(parser);
		else if (parser->lexer.token != TOKEN_WORD)
			ok = parser_fail(parser, "'%c': the name of a setting is expected", (char)parser->lexer.token);
		else if (parser_section(parser) == SETTINGS_GLOBAL && strcmp(parser->lexer.word, "pool") == 0)
			ok = pool_begin(parser);
		else if (parser_section(parser) == SETTINGS_GLOBAL && strcmp(parser->lexer.word, "tenant") == 0)
			ok = tenant_begin(parser);
		else
			ok = setting_read(parser);
	}
	if (!ok || parser_section(parser) == SETTINGS_GLOBAL)
		return ok;
	parser->lexer.token_line = parser->section_line;
	return parser_fail(parser, "its closing brace is missing");
}

/* The file's text; the caller frees it. */
static enum paged_status
file_read(const char *path, char **text_p, struct paged_error *error)
{
	FILE *file = fopen(path, "re");
	size_t size = 0;
	ssize_t length;

	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", path);
	*text_p = NULL;
	errno = 0;
	length = getdelim(text_p, &size, '\0', file);
	if (ferror(file))
		paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", path);
	else if (length <= 0) /* getdelim() gives no text for an empty file */
		paged_fail(error, PAGED_ERR_INVALID, "%s: no pool is configured", path);
	else if (!feof(file))
		paged_fail(error, PAGED_ERR_INVALID, "%s: no text: it has a zero byte", path);
	else
		error->status = PAGED_OK;
	fclose(file);
	if (error->status != PAGED_OK)
		free(*text_p);
	return error->status;
}

enum paged_status
config_load(struct config *config, const char *path, struct paged_error *error)
{
	struct parser parser = { .config = config, .error = error, .lexer.line = 1 };
	char *text;

	*config = (struct config){ .path = strdup(path) };
	if (config->path == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "%s: no memory", path);
	if (defaults_set(SETTINGS_GLOBAL, config, error) != PAGED_OK || file_read(path, &text, error) != PAGED_OK)
		return error->status;
	parser.lexer.at = text;
	if (!config_parse(&parser)) {
		free(text);
		return error->status;
	}
	free(text);
	if (config->n_pools == 0)
		return paged_fail(error, PAGED_ERR_INVALID, "%s: no pool is configured", path);
	if (config->runtime_dir != NULL && config->runtime_dir[0] != '/')
		return config_fail(config, NULL, CONFIG_RUNTIME_DIR, error, "write the whole path, from / on");
	return config_tenants_check(config, error);
}

static void
sources_free(struct config_source *sources)
{
	for (int i = 0; i < CONFIG_N_SETTINGS; i++)
		free(sources[i].text);
}

void
config_free(struct config *config)
{
	for (size_t i = 0; i < config->n_pools; i++) {
		struct config_pool *pool = &config->pools[i];

		free(pool->backend);
		free(pool->device);
		free(pool->model);
		free(pool->allow_users.id);
		free(pool->allow_groups.id);
		sources_free(pool->source);
	}
	free(config->pools);
	for (size_t i = 0; i < config->n_tenants; i++)
		config_tenant_free(&config->tenants[i]);
	free(config->tenants);
	free(config->runtime_dir);
	free(config->allow_users.id);
	free(config->allow_groups.id);
	free(config->admin_group.id);
	sources_free(config->source);
	free(config->path);
	*config = (struct config){ 0 };
}
