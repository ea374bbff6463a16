/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagedd.conf(5): a text is refused in one line that begins with the file, or gives settings that are consistent with
 * each other.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/log/log.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_name[] = "config";
const unsigned int fuzz_mutations = 300;

static void
config_check_pool(const struct config_pool *pool)
{
	fuzz_require(pool->name[0] != '\0' && pool->backend != NULL);
	fuzz_require(pool->pages > 0 && pool->sequences > 0 && pool->page_size > 0 && pool->max_length > 0);
	fuzz_require(pool->layout.params.n_pages == pool->pages && pool->layout.size / pool->pages > 0);
	fuzz_require(config_share_pages(pool->free_pages, pool->pages) <= pool->pages);
	fuzz_require(config_share_pages(pool->pin_limit, pool->pages) <= pool->pages);
	fuzz_require(pool->model == NULL || strlen(pool->model) <= CONFIG_MAX_MODEL);
}

static void
config_check(const struct config *config)
{
	fuzz_require(config->n_pools > 0 && config->n_pools <= CONFIG_MAX_POOLS);
	fuzz_require(config->n_tenants <= CONFIG_MAX_TENANTS && config->max_sessions > 0 && config->max_members > 0);
	fuzz_require(log_level_name(config->log_level) != NULL);
	for (size_t i = 0; i < config->n_pools; i++)
		config_check_pool(&config->pools[i]);
	for (size_t i = 0; i < config->n_tenants; i++) {
		const struct config_tenant *tenant = &config->tenants[i];

		fuzz_require(tenant->share >= 1 && tenant->share <= 100);
		for (size_t k = 0; k < tenant->n_limits; k++)
			fuzz_require(tenant->limits[k].pool < config->n_pools &&
				     tenant->limits[k].pages <= config->pools[tenant->limits[k].pool].pages);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("pagedd.conf", MFD_CLOEXEC);
	struct paged_error error = { 0 };
	struct config config;
	char path[32];

	fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_load(&config, path, &error) == PAGED_OK)
		config_check(&config);
	else
		fuzz_require(strncmp(error.text, path, strlen(path)) == 0 && strchr(error.text, '\n') == NULL);
	config_free(&config);
	close(fd);
	return 0;
}

/* Settings of each type, and each kind of section. */
static const char *const seeds[] = {
	"pool p { layers = 2 kv-heads = 3 head-dim = 64 pages = 10 }\n",
	"# a comment\nruntime-dir = \"/run/paged\"\nallow-user = { root, 7 }\nallow-group = 8 admin-group = 0\n"
	"start-timeout = 10s\nstop-timeout = 500ms log-level = debug max-sessions = 5 max-members = 9\n"
	"max-members-per-user = 3 user-share = 20% max-ticket-time = 1min max-pin-time = 60 min\n"
	"mask-size = 1MiB mask-time = 5 s mask-arrays = 2048\n"
	"pool q { layers = 1 kv-heads = 1 k-dim = 8 v-dim = 16 dtype = bf16 size = 2 GiB max-length = 64\n"
	"page-size = 32 sequences = 100 table-memory = 1GiB backend = host quarantine = \"50 ms\" publish = no\n"
	"free-pages = 5% pin-limit = 300 model = \"a/b@1\" allow-user = 7 allow-group = { 8, 9 } }\n",
	"pool p { layers = 2 kv-heads = 1 k-dim = 576 v-dim = 512 v-in-k = yes dtype = e4m3 pages = 10 }\n"
	"pool q { layers = 2 kv-heads = 1 head-dim = 64 size = 1TiB backend = cuda device = 0 export = vmm }\n"
	"tenant a { allow-user = 7 limit p = 5 limit q = 5% cache-share p = 1MiB share = 30% }\n"
	"tenant b { allow-group = { 8, 9 } limit q = 60GiB }\n",
};

size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	size_t length;

	if (index >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	length = strlen(seeds[index]);
	fuzz_require(length <= buffer_size);
	memcpy(buffer, seeds[index], length);
	return length;
}
