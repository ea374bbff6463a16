/* SPDX-License-Identifier: Apache-2.0 */
/* pagedd.conf(5): values, units, defaults, and the exact text of errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/config/settings.h"
#include "daemon/log/log.h"
#include "daemon/policy.h"
#include "daemon/pools.h"

/* The settings that a pool needs, on one line. */
#define POOL "pool p { layers = 2 kv-heads = 3 head-dim = 64 pages = 10 }\n"
#define GEOMETRY "layers = 2 kv-heads = 3 head-dim = 64 "
#define SIXTEEN "0123456789abcdef"

static enum paged_status
load_text(const char *text, struct config *config, struct paged_error *error)
{
	char path[] = "/tmp/unit-config-XXXXXX";
	int fd = mkstemp(path);
	enum paged_status status;

	cr_assert(fd >= 0);
	cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	status = config_load(config, path, error);
	unlink(path);
	return status;
}

static const struct {
	const char *text;
	const char *sentence; /* behind "PATH:" */
} bad[] = {
	{ "pol p { }\n", "1: there is no setting pol; did you mean pool?" },
	{ "\nlog-levl = info\n", "2: there is no setting log-levl; did you mean log-level?" },
	{ "pool p { " GEOMETRY " pages = 10 sizes = 3 }\n",
	  "1: pool p: there is no setting sizes; did you mean size?" },
	{ "log-level = loud\n" POOL, "1: log-level = loud: none of error, warning, info, debug" },
	{ "stop-timeout = 10 h\n" POOL, "1: stop-timeout = 10 h: no time; write a number and ms, s or min" },
	{ "stop-timeout = 10h\n" POOL, "1: stop-timeout = 10h: no time; write a number and ms, s or min" },
	{ "stop-timeout = 61min\n" POOL, "1: stop-timeout = 61min: outside 0 min to 60 min" },
	{ "max-members = 0\n" POOL, "1: max-members = 0: outside 1 to 65536" },
	{ "max-members = -1\n" POOL, "1: max-members = -1: no whole number" },
	{ "max-members = 99999999999999999999\n" POOL, "1: max-members = 99999999999999999999: no whole number" },
	{ "allow-user = {root, nosuchuser}\n" POOL,
	  "1: allow-user = root, nosuchuser: nosuchuser: the system has no such user" },
	{ "allow-group = nosuchgroup\n" POOL, "1: allow-group = nosuchgroup: the system has no such group" },
	{ "allow-user = 4294967295\n" POOL, "1: allow-user = 4294967295: no user id" },
	{ "log-level = info\nlog-level = debug\n" POOL, "2: log-level is set twice, first in line 1" },
	{ "# one\n#\n\nlog-level = info # it's two\n\t## three\nlog-level = debug\n" POOL,
	  "6: log-level is set twice, first in line 4" },
	{ "log-level = \"a#\\\"b\" # c\n" POOL, "1: log-level = a#\"b: none of error, warning, info, debug" },
	{ "pool p {\n" GEOMETRY "\n}\n", "3: pool p: set either pages or size" },
	{ "pool p {\n" GEOMETRY "\npages = 3 size = 1GiB\n}\n", "4: pool p: set only one of pages or size" },
	{ "pool p {\nkv-heads = 1 head-dim = 8 pages = 3 }\n", "2: pool p: layers is not set" },
	{ "pool p {\nlayers = 1 head-dim = 8 pages = 3 }\n", "2: pool p: kv-heads is not set" },
	{ "pool p { layers = 1 kv-heads = 1 k-dim = 8 pages = 3 }\n",
	  "1: pool p: head-dim is not set (nor both k-dim and v-dim)" },
	{ "pool p { " GEOMETRY "size = 1024 }\n",
	  "1: pool p: size = 1024: 1 KiB are 0 pages of 24 KiB; a pool has 1 to 2147483647" },
	{ "pool p { " GEOMETRY "size = 3GB }\n",
	  "1: pool p: size = 3GB: no size; write a number and B, KiB, MiB, GiB or TiB" },
	{ "pool p { " GEOMETRY "size = 99999999TiB }\n",
	  "1: pool p: size = 99999999TiB: no size; write a number and B, KiB, MiB, GiB or TiB" },
	{ "pool p { " GEOMETRY "pages = 3 page-size = 257 }\n", "1: pool p: page-size = 257: outside 1 to 256 tokens" },
	{ "pool p { " GEOMETRY "pages = 3 page-size = 0 }\n", "1: pool p: page-size = 0: outside 1 to 256 tokens" },
	{ "pool p { " GEOMETRY "pages = 3 dtype = f64 }\n",
	  "1: pool p: dtype = f64: none of f32, f16, bf16, e4m3, e5m2, i8" },
	{ "pool p { " GEOMETRY "pages = 3 v-in-k = true }\n", "1: pool p: v-in-k = true: neither yes nor no" },
	{ "pool p { layers = 2 kv-heads = 1 k-dim = 64 v-dim = 128 v-in-k = yes pages = 3 }\n",
	  "1: pool p: V dim 128 cannot be the first dims of a K dim of 64" },
	{ "pool p { " GEOMETRY "pages = 3 device = 1 }\n", "1: pool p: device = 1: only backend = cuda has it" },
	{ "pool p { " GEOMETRY "pages = 3\nexport = vmm\n}\n", "2: pool p: export = vmm: only backend = cuda has it" },
	{ "pool p { " GEOMETRY "pages = 3 backend = cuda export = fd }\n",
	  "1: pool p: export = fd: none of auto, vmm, legacy" },
	{ "pool p { " GEOMETRY "pages = 3 quarantine = 1 }\n",
	  "1: pool p: quarantine = 1: no time; write a number and ms, s or min" },
	{ "pool p { " GEOMETRY "pages = 3 publish = 1 }\n", "1: pool p: publish = 1: neither yes nor no" },
	{ "pool p { " GEOMETRY "pages = 300\nfree-pages = 301 }\n",
	  "2: pool p: free-pages = 301: the pool has 300 pages" },
	{ "pool p { " GEOMETRY "pages = 3 free-pages = 101% }\n", "1: pool p: free-pages = 101%: outside 0% to 100%" },
	{ "pool p { " GEOMETRY "pages = 3 free-pages = 1.5% }\n",
	  "1: pool p: free-pages = 1.5%: neither a number of pages nor a percentage, as 5%" },
	{ "pool p { " GEOMETRY "pages = 3 pin-limit = 5 MiB }\n",
	  "1: pool p: pin-limit = 5 MiB: neither a number of pages nor a percentage, as 5%" },
	{ "pool p { " GEOMETRY "pages = 3 pin-limit = 4294967296 }\n",
	  "1: pool p: pin-limit = 4294967296: outside 0 to 2147483647 pages" },
	{ "pool p { " GEOMETRY "pages = 3 model = \"a\033[2J\" }\n",
	  "1: pool p: model: a control character at byte 1" },
	{ "pool p { " GEOMETRY "pages = 3 model = a\xff }\n", "1: pool p: model: no printable UTF-8 at byte 1" },
	{ "pool p { " GEOMETRY "pages = 3 model = " SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN
	  " }\n",
	  "1: pool p: model: 128 bytes; the longest name has 127" },
	{ POOL POOL, "2: pool p: the name is already in use" },
	{ "pool \"a b\" { " GEOMETRY "pages = 1 }\n",
	  "1: pool a b: a name is 1 to 63 letters, digits, dots, dashes and underscores" },
	{ "pool p { layer = 2 }\n", "1: pool p: there is no setting layer; did you mean layers?" },
	{ "widows = 3\n", "1: there is no setting widows; pagedd --help-settings lists them" },
	{ "layers = 3\n", "1: layers is a setting of a pool" },
	{ "pool p {\nlog-level = info }\n",
	  "2: pool p: log-level is a setting of the daemon: set it outside of the pools" },
	/* Tenants. */
	{ "tennant a { }\n", "1: there is no setting tennant; did you mean tenant?" },
	{ "limit p = 3\n" POOL, "1: limit is a setting of a tenant" },
	{ POOL "tenant a {\nallow-user = 7 limits p = 3 }\n",
	  "3: tenant a: there is no setting limits; did you mean limit?" },
	{ POOL "tenant a { layers = 3 }\n", "2: tenant a: layers is a setting of a pool" },
	{ POOL "tenant a { log-level = info }\n",
	  "2: tenant a: log-level is a setting of the daemon: set it outside of the tenants" },
	{ POOL "tenant a {\nlimit p = 3 }\n",
	  "3: tenant a: set allow-user or allow-group; else no session is the tenant's" },
	{ POOL "tenant a { allow-user = 7 }\ntenant a { allow-user = 8 }\n",
	  "3: tenant a: the name is already in use" },
	{ POOL "tenant \"a b\" { }\n",
	  "2: tenant a b: a name is 1 to 63 letters, digits, dots, dashes and underscores" },
	{ POOL "tenant a { allow-user = nosuchuser }\n",
	  "2: tenant a: allow-user = nosuchuser: the system has no such user" },
	{ POOL "tenant a { allow-group = { 7, nosuchgroup } }\n",
	  "2: tenant a: allow-group = 7, nosuchgroup: nosuchgroup: the system has no such group" },
	{ POOL "tenant a {\nallow-user = { 7, 8 } }\ntenant b { allow-user = 9\nallow-user = 8 }\n",
	  "5: tenant b: allow-user = 9, 8: uid 8 is tenant a's already, in line 3" },
	{ POOL "tenant a { allow-group = 8 }\ntenant b { allow-user = 8 allow-group = 8 }\n",
	  "3: tenant b: allow-group = 8: gid 8 is tenant a's already, in line 2" },
	{ POOL "tenant a {\nlimit p = 3\nallow-user = 7\nlimit p = 4 }\n",
	  "5: tenant a: limit p is set twice, first in line 3" },
	{ "pool llama { " GEOMETRY "pages = 10 }\ntenant a { allow-user = 7\nlimit lama = 3 }\n",
	  "3: tenant a: limit lama = 3: there is no pool lama; did you mean llama?" },
	{ POOL "tenant a { allow-user = 7 limit other = 3 }\n",
	  "2: tenant a: limit other = 3: there is no pool other" },
	{ POOL "tenant a { allow-user = 7\nlimit p = 11 }\n", "3: tenant a: limit p = 11: the pool has 10 pages" },
	{ POOL "tenant a { allow-user = 7 limit p = 1MiB }\n",
	  "2: tenant a: limit p = 1MiB: 42 pages of 24 KiB, and the pool has 10" },
	{ POOL "tenant a { allow-user = 7 limit p = 23 KiB }\n",
	  "2: tenant a: limit p = 23 KiB: less than a page, which has 24 KiB; write 0 for no pages" },
	{ POOL "tenant a { allow-user = 7 limit p = 0B }\n", "2: tenant a: limit p = 0B: write 0 for no pages" },
	{ POOL "tenant a { allow-user = 7 limit p = 101% }\n", "2: tenant a: limit p = 101%: outside 0% to 100%" },
	{ POOL "tenant a { allow-user = 7 limit p = 3 GB }\n",
	  "2: tenant a: limit p = 3 GB: neither a number of pages, nor a percentage, as 5%, nor a size, as 60GiB" },
	{ POOL "tenant a { allow-user = 7 share = 0% }\n", "2: tenant a: share = 0%: outside 1% to 100%" },
	{ POOL "tenant a { allow-user = 7 share = 50 }\n", "2: tenant a: share = 50: no percentage, as 75%" },
	{ POOL "tenant a { allow-user = 7 share = 1.5% }\n", "2: tenant a: share = 1.5%: no percentage, as 75%" },
	{ "user-share = 101%\n" POOL, "1: user-share = 101%: outside 1% to 100%" },
	{ POOL "tenant a { limit", "2: tenant a: limit: a name is missing" },
	{ POOL "tenant a { limit = 3 }", "2: tenant a: limit: a name is missing" },
	{ POOL "tenant a { limit p", "2: tenant a: limit: '=' is missing" },
	{ POOL "tenant a { limit p = }", "2: tenant a: limit p: a value is missing" },
	{ POOL "\ntenant a {\nallow-user = 7\n", "3: tenant a: its closing brace is missing" },
	{ POOL "tenant a", "2: tenant a: '{' is missing" },
	{ POOL "tenant", "2: tenant: a name is missing" },
	/* Cut short. */
	{ "log-level = info\n\npool p {\n" GEOMETRY "\npages = 3\n", "3: pool p: its closing brace is missing" },
	{ POOL "pool", "2: pool: a name is missing" },
	{ POOL "pool q", "2: pool q: '{' is missing" },
	{ "pool p {\nlayers", "2: pool p: layers: '=' is missing" },
	{ "pool p {\nlayers =", "2: pool p: layers: a value is missing" },
	{ "allow-user = { 1,", "1: allow-user: the list is not closed" },
	{ "allow-user = { 1 2 }\n" POOL, "1: allow-user: the list is not closed" },
	{ "runtime-dir = \"/run\n" POOL, "1: a quote is not closed" },
	{ POOL "}\n", "2: '}': the name of a setting is expected" },
	{ "log-level = { info }\n" POOL, "1: log-level: it has one value, no list" },
	{ "runtime-dir = /run/${NOPE}\n" POOL, "1: ${...}: variables are not replaced" },
	{ "runtime-dir = \"${HOME}/x\"\n" POOL, "1: ${...}: variables are not replaced" },
	{ "runtime-dir = run/paged\n" POOL, "1: runtime-dir = run/paged: write the whole path, from / on" },
	{ "stop-timeout = 10\n" POOL, "1: stop-timeout = 10: no time; write a number and ms, s or min" },
	{ "pool p { " GEOMETRY "size = 3 GB }\n",
	  "1: pool p: size = 3 GB: no size; write a number and B, KiB, MiB, GiB or TiB" },
};

Test(config, errors_are_reported_in_one_exact_line)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct config config;
		struct paged_error error = { .text = "" };
		const char *sentence;

		cr_expect_eq(load_text(bad[i].text, &config, &error), PAGED_ERR_INVALID, "%s", bad[i].text);
		sentence = strchr(error.text, ':');
		cr_expect_str_eq(sentence ? sentence + 1 : error.text, bad[i].sentence);
		config_free(&config);
	}
}

Test(config, no_file_and_no_pool)
{
	struct config config;
	struct paged_error error;

	cr_expect_eq(config_load(&config, "/nonexistent/pagedd.conf", &error), PAGED_ERR_SYSTEM);
	cr_expect_str_eq(error.text, "/nonexistent/pagedd.conf: No such file or directory");
	config_free(&config);
	cr_expect_eq(config_load(&config, "/tmp", &error), PAGED_ERR_SYSTEM);
	cr_expect_str_eq(error.text, "/tmp: Is a directory");
	config_free(&config);
	cr_expect_eq(load_text("", &config, &error), PAGED_ERR_INVALID);
	cr_expect(strstr(error.text, ": no pool is configured") != NULL, "%s", error.text);
	config_free(&config);
	cr_expect_eq(load_text("log-level = info\n", &config, &error), PAGED_ERR_INVALID);
	cr_expect(strstr(error.text, ": no pool is configured") != NULL, "%s", error.text);
	config_free(&config);
}

Test(config, files_that_are_no_text)
{
	char path[] = "/tmp/unit-config-XXXXXX";
	struct paged_error error;
	struct config config;
	int fd = mkstemp(path);

	cr_assert(write(fd, POOL "\0more", sizeof(POOL) + 4) == (ssize_t)sizeof(POOL) + 4);
	close(fd);
	cr_expect_eq(config_load(&config, path, &error), PAGED_ERR_INVALID);
	cr_expect(strstr(error.text, ": no text: it has a zero byte") != NULL, "%s", error.text);
	config_free(&config);
	unlink(path);
}

Test(config, units_may_follow_a_space)
{
	struct config config;
	struct paged_error error;

	cr_assert_eq(load_text("stop-timeout = 3 min mask-size = 1024\n"
			       "pool p { layers = 1 kv-heads = 1 head-dim = 8 size = 2 GiB max-length = 64 quarantine "
			       "= 5 s }\n"
			       "pool q { layers = 1 kv-heads = 1 head-dim = 8 size =\n 4096\nquarantine = \"50 ms\"}\n"
			       "mask-arrays = 2048 pool r { layers = 1 kv-heads = 1 head-dim = 8 pages = 1 }",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_expect_eq(config.stop_timeout_ms, 180000);
	cr_expect_eq(config.mask_bytes, 1024);
	cr_expect_eq(config.array_bytes, 2048);
	cr_expect_eq(config.pools[0].size, 2ull << 30);
	cr_expect_eq(config.pools[0].max_length, 64);
	cr_expect_eq(config.pools[0].quarantine_ms, 5000);
	cr_expect_eq(config.pools[1].size, 4096);
	cr_expect_eq(config.pools[1].quarantine_ms, 50);
	cr_expect_eq(config.n_pools, 3);
	config_free(&config);
}

/* A file as an operator writes it. */
Test(config, several_settings_on_a_line)
{
	struct config config;
	struct paged_error error;
	const struct config_pool *pool;

	cr_assert_eq(load_text("# comment\nallow-group = root\n\npool llama {\n"
			       "    layers = 30   kv-heads = 3   head-dim = 64   dtype = f16\n"
			       "    page-size = 16           # tokens\n    size = 2GiB\n"
			       "    max-length = 8192\n    backend = host           # or cuda\n}\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_assert_eq(config.n_pools, 1);
	pool = &config.pools[0];
	cr_expect_str_eq(pool->name, "llama");
	cr_expect_eq(pool->pages, 5825);
	cr_expect_eq(pool->layout.page_bytes, 360 * 1024);
	cr_expect_eq(pool->max_length, 8192);
	cr_expect_eq(pool->sequences, 1024);
	cr_expect_eq(pool->dtype, PAGED_F16);
	cr_expect_str_eq(pool->backend, "host");
	cr_expect_eq(config.allow_groups.n, 1);
	cr_expect_eq(config.allow_groups.id[0], 0);
	cr_expect_eq(config.stop_timeout_ms, 10000);
	cr_expect_eq(config.log_level, LOG_LEVEL_INFO);
	config_free(&config);
}

Test(config, lists_of_any_length)
{
	struct config config;
	struct paged_error error;

	cr_assert_eq(load_text("allow-user = {root, 7, 7,\n 8}\nallow-user = 9\nstop-timeout = 250ms\n" POOL, &config,
			       &error),
		     PAGED_OK, "%s", error.text);
	cr_assert_eq(config.allow_users.n, 4);
	cr_expect_eq(config.allow_users.id[3], 9);
	cr_expect_eq(config.stop_timeout_ms, 250);
	config_free(&config);
}

Test(config, k_dim_and_v_dim)
{
	struct config config;
	struct paged_error error;

	cr_assert_eq(
		load_text("pool mla { layers = 2 kv-heads = 1 k-dim = 576 v-dim = 512 v-in-k = yes dtype = bf16 "
			  "pages = 7 allow-user = 5 }\npool b { layers=1 kv-heads=1 head-dim=8 v-dim=16 pages=1 }\n",
			  &config, &error),
		PAGED_OK, "%s", error.text);
	cr_assert_eq(config.n_pools, 2);
	cr_expect_eq(config.pools[0].layout.page_bytes, 2 * 16 * 576 * 2);
	cr_expect_eq(config.pools[0].allow_users.n, 1);
	cr_expect_eq(config.pools[1].layout.params.k_dim, 8);
	cr_expect_eq(config.pools[1].layout.params.v_dim, 16);
	config_free(&config);
}

static void
expect_refused(const char *text, const char *part)
{
	struct config config;
	struct paged_error error = { .text = "" };

	cr_assert_eq(load_text(text, &config, &error), PAGED_OK, "%s", error.text);
	cr_expect_eq(daemon_pools_check(&config, &error), PAGED_ERR_INVALID);
	cr_expect(strstr(error.text, part) != NULL, "%s", error.text);
	config_free(&config);
}

Test(config, unavailable_settings_are_refused)
{
	expect_refused("pool p {\n" GEOMETRY "\nsize = 500TiB page-size = 256 }\n", ":3: pool p: size = 500TiB: the ");
	expect_refused("pool p {\n" GEOMETRY "\npages = 2147483647 }\n",
		       ":3: pool p: pages = 2147483647: 47 TiB; the ");
	expect_refused(
		"pool a { " GEOMETRY "pages = 1 }\npool p { " GEOMETRY
		"pages = 3 sequences = 10000000 page-size = 1 max-length = 1000000 }\n",
		":2: pool p: max-length = 1000000: tables for 10000000 sequences of 1000000 tokens exceed 16 TiB");
	expect_refused("pool p { " GEOMETRY "pages = 3 backend = hip }\n",
		       ":1: pool p: backend = hip: this build has the back ends host and cuda");
}

Test(config, sizes_are_printed_with_units)
{
	char text[32];

	cr_expect_str_eq(config_format_bytes(1023, text, sizeof(text)), "1023 B");
	cr_expect_str_eq(config_format_bytes(360 << 10, text, sizeof(text)), "360 KiB");
	cr_expect_str_eq(config_format_bytes(2ull << 40, text, sizeof(text)), "2 TiB");
	cr_expect_str_eq(config_format_bytes(UINT64_MAX, text, sizeof(text)), "15 EiB");
}

Test(config, help_lists_the_choices)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	config_help(out);
	fclose(out);
	cr_expect(strstr(text, "element type: f32, f16, bf16, e4m3, e5m2, i8\n") != NULL, "%s", text);
	cr_expect(strstr(text, "least severe lines to log: error, warning, info, debug\n") != NULL, "%s", text);
	free(text);
}

/* Every setting has its paragraph in pagedd.conf(5), and its default there. */
Test(config, manual_describes_every_setting)
{
	char path[512], *manual, *sections[3];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/man/pagedd.conf.5", getenv("PAGED_SRCDIR") ? getenv("PAGED_SRCDIR") : ".");
	file = fopen(path, "r");
	cr_assert(file != NULL, "%s", path);
	manual = calloc(1, 1 << 16);
	size = fread(manual, 1, (1 << 16) - 1, file);
	cr_assert(size > 0);
	fclose(file);
	sections[SETTINGS_GLOBAL] = manual;
	sections[SETTINGS_OF_POOL] = strstr(manual, "\n.Ss Pools");
	sections[SETTINGS_OF_TENANT] = strstr(manual, "\n.Ss Tenants");
	cr_assert(sections[SETTINGS_OF_POOL] != NULL && sections[SETTINGS_OF_TENANT] != NULL);
	for (int i = 0; i < CONFIG_N_SETTINGS; i++) {
		const struct settings_entry *entry = &settings_table[i];
		char item[64], *paragraph, *end;

		snprintf(item, sizeof(item), ".It Ic %s ", entry->name);
		paragraph = strstr(sections[entry->section], item);
		cr_assert(paragraph != NULL, "no paragraph for %s", entry->name);
		end = strstr(paragraph + 1, "\n.It ");
		if (end != NULL)
			*end = '\0';
		cr_expect(entry->standard == NULL || strstr(paragraph + strlen(item), entry->standard) != NULL,
			  "the default of %s is %s", entry->name, entry->standard);
		if (end != NULL)
			*end = '\n';
	}
	free(manual);
}

Test(config, published_pages)
{
	struct config config;
	struct paged_error error;
	const struct config_pool *pools;

	cr_assert_eq(load_text("pool a { " GEOMETRY "pages = 1050 }\n"
			       "pool b { " GEOMETRY "pages = 300 publish = no free-pages = 300 pin-limit = 0% "
			       "model = \"SmolLM-135M@12fd\" }\n"
			       "pool c { " GEOMETRY "size = 48MiB free-pages = 100 % pin-limit = 7 }\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	pools = config.pools;
	cr_expect(pools[0].publish);
	cr_expect_null(pools[0].model);
	cr_expect_eq(config_share_pages(pools[0].free_pages, pools[0].pages), 10);
	cr_expect_eq(config_share_pages(pools[0].pin_limit, pools[0].pages), 262);
	cr_expect_not(pools[1].publish);
	cr_expect_str_eq(pools[1].model, "SmolLM-135M@12fd");
	cr_expect_eq(config_share_pages(pools[1].free_pages, pools[1].pages), 300);
	cr_expect_eq(config_share_pages(pools[1].pin_limit, pools[1].pages), 0);
	cr_expect_eq(config_share_pages(pools[2].free_pages, pools[2].pages), 2048);
	cr_expect_eq(config_share_pages(pools[2].pin_limit, pools[2].pages), 7);
	config_free(&config);
}

/* A limit may precede its pool, and other settings may follow it on the line. */
Test(config, tenants)
{
	struct config config;
	struct paged_error error;
	const struct config_tenant *tenants;

	cr_assert_eq(load_text("tenant a { allow-user = root limit q = 300 limit p = 50 % allow-group = { 7, 8 } }\n"
			       "pool p { " GEOMETRY "pages = 11 }\npool q { " GEOMETRY "size = 24 MiB }\n"
			       "tenant b { allow-user = 8 limit q = 1 MiB limit p = 0\n"
			       "} mask-arrays = 2048 tenant c { allow-group = 9 }\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_assert_eq(config.n_tenants, 3);
	cr_expect_eq(config.array_bytes, 2048);
	tenants = config.tenants;
	cr_expect_str_eq(tenants[0].name, "a");
	cr_expect(tenants[0].allow_users.n == 1 && tenants[0].allow_users.id[0] == 0);
	cr_expect(tenants[0].allow_groups.n == 2 && tenants[0].allow_groups.id[1] == 8);
	cr_assert_eq(tenants[0].n_limits, 2);
	cr_expect(tenants[0].limits[0].pool == 1 && tenants[0].limits[0].pages == 300);
	cr_expect(tenants[0].limits[1].pool == 0 && tenants[0].limits[1].pages == 5);
	cr_assert_eq(tenants[1].n_limits, 2);
	cr_expect(tenants[1].limits[0].pool == 1 && tenants[1].limits[0].pages == 42);
	cr_expect(tenants[1].limits[1].pool == 0 && tenants[1].limits[1].pages == 0);
	cr_expect_eq(tenants[2].n_limits, 0);
	/* The default of a share is the largest limit, rounded up, at most user-share. */
	cr_expect(tenants[0].share == 46 && tenants[1].share == 5 && tenants[2].share == 75);
	cr_expect(config_percentage(1024, 46) == 471 && config_percentage(8, 5) == 1);
	config_free(&config);
}

/* A limit of all pages is no share of all else. */
Test(config, default_share_of_a_tenant)
{
	struct config config;
	struct paged_error error;

	cr_assert_eq(load_text(POOL "tenant a { allow-user = 1 limit p = 100% }\n"
				    "tenant b { allow-user = 2 limit p = 100% share = 90% }\nuser-share = 60%\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_expect(config.tenants[0].share == 60 && config.tenants[1].share == 90);
	config_free(&config);
}

/* A process belongs to the first tenant in the file that names its user or one of its groups. */
Test(config, tenant_of_a_peer)
{
	gid_t groups[] = { 41, 42 };
	struct policy_peer peer = { .uid = 1, .gid = 40, .groups = groups, .n_groups = 2 };
	struct config config;
	struct paged_error error;

	cr_assert_eq(load_text(POOL "tenant a { allow-user = { 2, 3 } }\ntenant b { allow-group = 42 }\n"
				    "tenant c { allow-user = 1 allow-group = 40 }\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_expect_eq(policy_tenant(&config, &peer), 2);
	peer.n_groups = 1;
	cr_expect_eq(policy_tenant(&config, &peer), 3);
	peer.uid = 3;
	cr_expect_eq(policy_tenant(&config, &peer), 1);
	peer.uid = 4;
	cr_expect_eq(policy_tenant(&config, &peer), 3);
	peer.gid = 43;
	cr_expect_eq(policy_tenant(&config, &peer), 0);
	peer.uid = geteuid();
	cr_expect_eq(policy_tenant(&config, &peer), 0);
	config_free(&config);
}

/* A pool in GPU memory has another alignment, and by default a quarantine, which gives the driver time. */
Test(config, pools_on_cuda)
{
	struct config config;
	struct paged_error error;

	cr_assert_eq(load_text("pool a { " GEOMETRY "pages = 3 }\n"
			       "pool b { " GEOMETRY "pages = 3 backend = cuda }\n"
			       "pool c { " GEOMETRY
			       "pages = 3 quarantine = 50ms backend = cuda device = GPU-1 export = legacy }\n",
			       &config, &error),
		     PAGED_OK, "%s", error.text);
	cr_expect_eq(config.pools[0].layout.params.alignment, LAYOUT_ALIGNMENT_HOST);
	cr_expect_eq(config.pools[0].quarantine_ms, 0);
	cr_expect_eq(config.pools[1].layout.params.alignment, LAYOUT_ALIGNMENT_CUDA);
	cr_expect_eq(config.pools[1].quarantine_ms, 1000);
	cr_expect_str_eq(config.pools[1].device, "0");
	cr_expect_eq(config.pools[1].export, MEMORY_AUTO);
	cr_expect_eq(config.pools[2].quarantine_ms, 50);
	cr_expect_str_eq(config.pools[2].device, "GPU-1");
	cr_expect_eq(config.pools[2].export, MEMORY_LEGACY);
	config_free(&config);
}
