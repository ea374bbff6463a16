/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include <confuse.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/memory.h"
#include "daemon/settings.h"

/* The driver may close a dead process's work a little later than the kernel says that it is gone. */
#define QUARANTINE_CUDA_MS 1000

/*
 * libconfuse gives its callbacks no pointer of the caller's, and lines are
 * known only while it parses, so the load under way is remembered here.
 */
static struct {
	struct config *config;
	struct paged_error *error;
	bool failed;
} load;

enum paged_status
config_fail(const struct config *config, const struct config_pool *pool, enum config_setting setting,
	    struct paged_error *error, const char *format, ...)
{
	const struct config_source *source = pool ? &pool->source[setting] : &config->source[setting];
	const struct settings_row *row = &settings_table[setting];
	char why[sizeof(error->text)], line[16] = "";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	if (source->line != 0)
		snprintf(line, sizeof(line), ":%u", source->line);
	return paged_fail(error, PAGED_ERR_INVALID, "%s%s: %s%s%s%s = %s%s: %s", config->path, line,
			  pool ? "pool " : "", pool ? pool->name : "", pool ? ": " : "", row->name,
			  source->text ? source->text : row->standard, source->text ? "" : " (the default)", why);
}

/* Refuse at a line where no value stands. */
static int
refuse(const cfg_t *cfg, const char *format, ...)
{
	char why[sizeof(load.error->text)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	paged_fail(load.error, PAGED_ERR_INVALID, "%s:%d: %s", load.config->path, cfg->line, why);
	load.failed = true;
	return -1;
}

/* What libconfuse itself finds: syntax, unknown names, a title twice. */
static void
syntax_error(cfg_t *cfg, const char *format, va_list arguments)
{
	char why[sizeof(load.error->text)];

	if (load.failed) /* ours is the better sentence */
		return;
	vsnprintf(why, sizeof(why), format, arguments);
	refuse(cfg, "%s", why);
}

static enum config_setting
setting_find(const char *name, bool of_pool)
{
	int i;

	for (i = 0; i < CONFIG_N_SETTINGS; i++)
		if (settings_table[i].of_pool == of_pool && strcmp(settings_table[i].name, name) == 0)
			break;
	return i;
}

static bool
name_is_good(const char *name)
{
	size_t length = strlen(name);

	return length >= 1 && length <= PAGED_MAX_NAME &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static enum paged_status
defaults_set(bool of_pool, void *object, struct paged_error *error)
{
	for (int i = 0; i < CONFIG_N_SETTINGS; i++) {
		const struct settings_row *row = &settings_table[i];
		enum paged_status status;

		if (row->of_pool != of_pool || row->standard == NULL)
			continue;
		status = settings_set(row, object, row->standard, error);
		if (status != PAGED_OK)
			return status;
	}
	return PAGED_OK;
}

/* The pool of a section; the first of its settings, or its end, makes it. */
static struct config_pool *
pool_of(cfg_t *section)
{
	struct config *config = load.config;
	const char *name = cfg_title(section);
	struct config_pool *pool, *grown;

	if (config->n_pools > 0 && strcmp(config->pools[config->n_pools - 1].name, name) == 0)
		return &config->pools[config->n_pools - 1];
	if (!name_is_good(name)) {
		refuse(section, "pool %s: a name is 1 to %u letters, digits, dots, dashes and underscores", name,
		       PAGED_MAX_NAME);
		return NULL;
	}
	if (config->n_pools == CONFIG_MAX_POOLS) {
		refuse(section, "pool %s: more than %d pools", name, CONFIG_MAX_POOLS);
		return NULL;
	}
	grown = reallocarray(config->pools, config->n_pools + 1, sizeof(*grown));
	if (grown == NULL) {
		refuse(section, "pool %s: no memory", name);
		return NULL;
	}
	config->pools = grown;
	pool = &config->pools[config->n_pools];
	*pool = (struct config_pool){ 0 };
	strcpy(pool->name, name);
	config->n_pools++;
	if (defaults_set(true, pool, load.error) != PAGED_OK) {
		load.failed = true;
		return NULL;
	}
	return pool;
}

/* The value as one would write it, for sentences. */
static char *
value_text(cfg_opt_t *opt)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return NULL;
	for (unsigned int i = 0; i < cfg_opt_size(opt); i++)
		fprintf(out, "%s%s", i ? ", " : "", cfg_opt_getnstr(opt, i));
	fclose(out);
	return text;
}

/*
 * libconfuse calls this for each value that it has read: of a list again and
 * again with what came so far, so lists grow, also when they are set twice.
 */
static int
setting_read(cfg_t *cfg, cfg_opt_t *opt)
{
	bool of_pool = cfg_title(cfg) != NULL;
	enum config_setting setting = setting_find(cfg_opt_name(opt), of_pool);
	struct config_pool *pool = of_pool ? pool_of(cfg) : NULL;
	struct config_source *source;
	struct paged_error why;

	if (of_pool && pool == NULL)
		return -1;
	source = of_pool ? &pool->source[setting] : &load.config->source[setting];
	if (source->line != 0 && !settings_is_list(&settings_table[setting]))
		return refuse(cfg, "%s%s%s%s is set twice, first in line %u", of_pool ? "pool " : "",
			      of_pool ? pool->name : "", of_pool ? ": " : "", settings_table[setting].name,
			      source->line);
	source->line = (unsigned int)cfg->line;
	free(source->text);
	source->text = value_text(opt);
	for (unsigned int i = 0; i < cfg_opt_size(opt); i++) {
		const char *text = cfg_opt_getnstr(opt, i);

		if (settings_set(&settings_table[setting], of_pool ? (void *)pool : load.config, text, &why) ==
		    PAGED_OK)
			continue;
		config_fail(load.config, pool, setting, load.error, "%s%s%s", cfg_opt_size(opt) > 1 ? text : "",
			    cfg_opt_size(opt) > 1 ? ": " : "", why.text);
		load.failed = true;
		return -1;
	}
	return 0;
}

static bool
is_set(const struct config_pool *pool, enum config_setting setting)
{
	return pool->source[setting].line != 0;
}

static int
pool_complete(cfg_t *section, struct config_pool *pool)
{
	if (!is_set(pool, CONFIG_POOL_LAYERS))
		return refuse(section, "pool %s: layers is not set", pool->name);
	if (!is_set(pool, CONFIG_POOL_KV_HEADS))
		return refuse(section, "pool %s: kv-heads is not set", pool->name);
	if (!is_set(pool, CONFIG_POOL_K_DIM))
		pool->k_dim = pool->head_dim;
	if (!is_set(pool, CONFIG_POOL_V_DIM))
		pool->v_dim = pool->head_dim;
	if (pool->k_dim == 0 || pool->v_dim == 0)
		return refuse(section, "pool %s: head-dim is not set (nor both k-dim and v-dim)", pool->name);
	if (is_set(pool, CONFIG_POOL_PAGES) == is_set(pool, CONFIG_POOL_SIZE))
		return refuse(section, "pool %s: set %s pages or size", pool->name,
			      is_set(pool, CONFIG_POOL_PAGES) ? "only one of" : "either");
	return 0;
}

/* What goes with where the pages lie. */
static enum paged_status
pool_place(struct config_pool *pool, struct paged_error *error)
{
	static const enum config_setting of_cuda[] = { CONFIG_POOL_DEVICE, CONFIG_POOL_EXPORT };
	bool cuda = strcmp(pool->backend, memory_ops_cuda.name) == 0;

	if (cuda && !is_set(pool, CONFIG_POOL_QUARANTINE))
		pool->quarantine_ms = QUARANTINE_CUDA_MS;
	for (size_t i = 0; i < sizeof(of_cuda) / sizeof(of_cuda[0]); i++)
		if (!cuda && is_set(pool, of_cuda[i]))
			return config_fail(load.config, pool, of_cuda[i], error, "only backend = cuda has it");
	return PAGED_OK;
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

/* libconfuse calls this at a pool's closing brace. */
static int
pool_read(cfg_t *cfg, cfg_opt_t *opt)
{
	cfg_t *section = cfg_opt_getnsec(opt, cfg_opt_size(opt) - 1);
	struct config_pool *pool = pool_of(section);
	char size[32], page[32];
	struct paged_error why;
	uint64_t n_pages;

	(void)cfg;
	if (pool == NULL || pool_complete(section, pool) < 0)
		return -1;
	if (pool_place(pool, load.error) != PAGED_OK) {
		load.failed = true;
		return -1;
	}
	if (pool_layout(pool, 1, &why) != PAGED_OK)
		return refuse(section, "pool %s: %s", pool->name, why.text);
	if (is_set(pool, CONFIG_POOL_SIZE)) {
		n_pages = pool->size / pool->layout.page_bytes;
		if (n_pages == 0 || n_pages > settings_table[CONFIG_POOL_PAGES].max) {
			config_fail(load.config, pool, CONFIG_POOL_SIZE, load.error,
				    "%s are %llu pages of %s; a pool has 1 to %llu",
				    config_format_bytes(pool->size, size, sizeof(size)), (unsigned long long)n_pages,
				    config_format_bytes(pool->layout.page_bytes, page, sizeof(page)),
				    (unsigned long long)settings_table[CONFIG_POOL_PAGES].max);
			load.failed = true;
			return -1;
		}
		pool->pages = (uint32_t)n_pages;
	}
	if (pool_layout(pool, pool->pages, &why) != PAGED_OK)
		return refuse(section, "pool %s: %s", pool->name, why.text);
	return 0;
}

static void
options_fill(cfg_opt_t *options, bool of_pool)
{
	size_t n = 0;

	for (int i = 0; i < CONFIG_N_SETTINGS; i++) {
		const struct settings_row *row = &settings_table[i];

		if (row->of_pool != of_pool)
			continue;
		options[n] = settings_is_list(row) ? (cfg_opt_t)CFG_STR_LIST(row->name, 0, CFGF_NODEFAULT)
						   : (cfg_opt_t)CFG_STR(row->name, 0, CFGF_NODEFAULT);
		options[n++].validcb = setting_read;
	}
	options[n] = (cfg_opt_t)CFG_END();
}

/*
 * libconfuse 3.3 counts a line with a comment three times, so it is given a
 * copy whose comments are blank.  A '#' in quotes begins none.
 */
static void
comments_blank(char *text, size_t length)
{
	bool comment = false;
	char quote = '\0';

	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (quote != '\0') {
			if (c == '\\')
				i++;
			else if (c == quote)
				quote = '\0';
			continue;
		}
		comment = c != '\n' && (comment || c == '#');
		if (comment)
			text[i] = ' ';
		else if (c == '"' || c == '\'')
			quote = c;
	}
}

/* The file's text; the caller frees it. */
static enum paged_status
file_read(const char *path, char **text_p, size_t *length_p, struct paged_error *error)
{
	FILE *file = fopen(path, "re");
	size_t size = 0;
	ssize_t length;

	*text_p = NULL;
	*length_p = 0;
	if (file == NULL)
		return paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", path);
	errno = 0;
	length = getdelim(text_p, &size, '\0', file);
	if (length < 0 && !feof(file)) {
		paged_fail(error, PAGED_ERR_SYSTEM, "%s: %m", path);
		fclose(file);
		free(*text_p);
		return error->status;
	}
	fclose(file);
	if (length > 0)
		*length_p = (size_t)length;
	return PAGED_OK;
}

/* libconfuse's lexer ends the process when it cannot read, so it reads from memory. */
static int
text_parse(cfg_t *cfg, char *text, size_t length)
{
	FILE *stream;
	int result;

	if (length == 0)
		return CFG_SUCCESS;
	comments_blank(text, length);
	stream = fmemopen(text, length, "r");
	if (stream == NULL)
		return CFG_PARSE_ERROR;
	result = cfg_parse_fp(cfg, stream);
	fclose(stream);
	return result;
}

static enum paged_status
file_parse(const char *path, struct paged_error *error)
{
	cfg_opt_t of_pool[CONFIG_N_SETTINGS + 1], global[CONFIG_N_SETTINGS + 2];
	cfg_opt_t *end = global;
	enum paged_status status;
	size_t length;
	char *text;
	cfg_t *cfg;

	status = file_read(path, &text, &length, error);
	if (status != PAGED_OK)
		return status;
	options_fill(of_pool, true);
	options_fill(global, false);
	while (end->name != NULL)
		end++;
	end[0] = (cfg_opt_t)CFG_SEC("pool", of_pool, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES);
	end[0].validcb = pool_read;
	end[1] = (cfg_opt_t)CFG_END();

	cfg = cfg_init(global, CFGF_NONE);
	if (cfg == NULL) {
		free(text);
		return paged_fail(error, PAGED_ERR_NOMEM, "%s: no memory", path);
	}
	cfg_set_error_function(cfg, syntax_error);
	if (text_parse(cfg, text, length) != CFG_SUCCESS) {
		if (!load.failed)
			paged_fail(error, PAGED_ERR_INVALID, "%s: cannot be read", path);
		status = error->status;
	}
	cfg_free(cfg);
	free(text);
	return status;
}

enum paged_status
config_load(struct config *config, const char *path, struct paged_error *error)
{
	enum paged_status status;

	*config = (struct config){ .path = strdup(path) };
	if (config->path == NULL)
		return paged_fail(error, PAGED_ERR_NOMEM, "%s: no memory", path);
	load.config = config;
	load.error = error;
	load.failed = false;
	status = defaults_set(false, config, error);
	if (status == PAGED_OK)
		status = file_parse(path, error);
	if (status == PAGED_OK && config->n_pools == 0)
		status = paged_fail(error, PAGED_ERR_INVALID, "%s: no pool is configured", path);
	load.config = NULL;
	return status;
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
		free(pool->allow_users.id);
		free(pool->allow_groups.id);
		sources_free(pool->source);
	}
	free(config->pools);
	free(config->runtime_dir);
	free(config->allow_users.id);
	free(config->allow_groups.id);
	free(config->admin_group.id);
	sources_free(config->source);
	free(config->path);
	*config = (struct config){ 0 };
}
