/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/api/seq/prefix.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "client/params.h"

static_assert(REGION_EXTRA_SIZE == PAGED_DIGEST_SIZE && PAGED_DIGEST_SIZE == crypto_hash_sha256_BYTES, "SHA-256");

static void
prefix_hash_u32(crypto_hash_sha256_state *state, uint32_t value)
{
	const uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
				   (uint8_t)(value >> 24) };

	crypto_hash_sha256_update(state, bytes, sizeof(bytes));
}

void
paged_salt(uint8_t *salt, size_t n, const char *const *parts)
{
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	for (size_t i = 0; i < n; i++) {
		const char *part = parts[i] != NULL ? parts[i] : "";
		uint64_t size = strlen(part);

		prefix_hash_u32(&state, (uint32_t)size);
		prefix_hash_u32(&state, (uint32_t)(size >> 32));
		crypto_hash_sha256_update(&state, (const uint8_t *)part, size);
	}
	crypto_hash_sha256_final(&state, salt);
}

bool
paged_model_allowed(const char *setting, const char *name)
{
	static const char gguf[] = ".gguf";
	size_t wanted = setting != NULL ? strcspn(setting, "@") : 0, size = name != NULL ? strlen(name) : 0;

	if (wanted == 0)
		return true;
	while (size > 0 && name[size - 1] == '/')
		size--;
	if (size >= strlen(gguf) && strncasecmp(name + size - strlen(gguf), gguf, strlen(gguf)) == 0)
		size -= strlen(gguf);
	return size >= wanted && strncasecmp(name + size - wanted, setting, wanted) == 0 &&
	       (size == wanted || name[size - wanted - 1] == '/');
}

static enum paged_status
prefix_check_extras(const struct paged_prefix *user, struct paged_error *error)
{
	uint64_t end = 0;

	if (user->extra == NULL && user->n_extra > 0)
		return paged_fail(error, PAGED_ERR_INVALID, "extra is NULL but n_extra is %zu", user->n_extra);
	for (size_t i = 0; i < user->n_extra; i++) {
		const struct paged_extra *extra = &user->extra[i];

		if (extra->n_tokens == 0)
			return paged_fail(error, PAGED_ERR_INVALID, "extra[%zu] stands for no tokens", i);
		if (extra->first >= user->n_tokens || extra->n_tokens > INT32_MAX)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "extra[%zu] of %u tokens begins at %u, the prefix has %zu tokens", i,
					  extra->n_tokens, extra->first, user->n_tokens);
		if (extra->first < end)
			return paged_fail(error, PAGED_ERR_INVALID,
					  "extra[%zu] begins at %u, before the end of the one before it at %llu", i,
					  extra->first, (unsigned long long)end);
		end = (uint64_t)extra->first + extra->n_tokens;
	}
	return PAGED_OK;
}

static enum paged_status
prefix_check_keys(const struct paged_prefix *user, uint32_t page_size, struct paged_error *error)
{
	if (user->salt != NULL || user->n_extra > 0)
		return paged_fail(error, PAGED_ERR_INVALID, "keys and %s exclude each other",
				  user->salt != NULL ? "salt" : "extra");
	if (user->n_tokens % page_size != 0)
		return paged_fail(error, PAGED_ERR_INVALID,
				  "keys are of whole pages: n_tokens is %zu, the page size is %u", user->n_tokens,
				  page_size);
	return PAGED_OK;
}

enum paged_status
prefix_source_init(const struct paged_pool *pool, const struct paged_prefix *user, struct prefix_source *source,
		   struct paged_error *error)
{
	enum paged_status status;

	if (user == NULL)
		return paged_fail(error, PAGED_ERR_INVALID, "prefix is NULL");
	status = client_params_in(&source->user, sizeof(source->user), user, "paged_prefix", error);
	if (status != PAGED_OK)
		return status;
	user = &source->user;
	source->page_size = pool->mapping.view.page_size;
	if (user->n_tokens >= UINT32_MAX)
		return paged_fail(error, PAGED_ERR_LIMIT, "a prefix of %zu tokens, at most 2^32 - 2", user->n_tokens);
	if (user->tokens == NULL && user->keys == NULL && user->n_tokens > 0)
		return paged_fail(error, PAGED_ERR_INVALID, "a prefix of %zu tokens has neither tokens nor keys",
				  user->n_tokens);
	status = user->keys != NULL ? prefix_check_keys(user, source->page_size, error)
				    : prefix_check_extras(user, error);
	/* A salt of zeros is the same as none. */
	if (user->salt != NULL && client_is_zero(user->salt, PAGED_DIGEST_SIZE))
		source->user.salt = NULL;
	source->n_pages = (uint32_t)(user->n_tokens / source->page_size);
	return status;
}

enum paged_status
prefix_source_check_tokens(const struct prefix_source *source, uint32_t from, struct paged_error *error)
{
	const uint32_t *tokens = source->user.tokens;
	size_t end = (size_t)source->n_pages * source->page_size;

	if (tokens == NULL)
		return PAGED_OK;
	for (size_t i = (size_t)from * source->page_size; i < end; i++)
		if (tokens[i] == PREFIX_NO_TOKENS)
			return paged_fail(error, PAGED_ERR_INVALID, "tokens[%zu] is 2^32 - 1, which is no token id", i);
	return PAGED_OK;
}

/* Moves *i_p to the first extra that ends after `token`. */
static void
prefix_skip_extras(const struct paged_prefix *user, uint64_t token, size_t *i_p)
{
	while (*i_p < user->n_extra && (uint64_t)user->extra[*i_p].first + user->extra[*i_p].n_tokens <= token)
		++*i_p;
}

/* The next page at or after `page` that has an extra, or UINT32_MAX; *i_p as in prefix_skip_extras(), 0 at first. */
static uint32_t
prefix_next_extra_page(const struct prefix_source *source, uint32_t page, size_t *i_p)
{
	const struct paged_prefix *user = &source->user;

	if (user->keys != NULL)
		return UINT32_MAX;
	prefix_skip_extras(user, (uint64_t)page * source->page_size, i_p);
	if (page == 0 && user->salt != NULL)
		return 0;
	return *i_p < user->n_extra ? MAX(page, user->extra[*i_p].first / source->page_size) : UINT32_MAX;
}

static void
prefix_hash_extra(const struct prefix_source *source, uint32_t page, size_t i, uint8_t *digest)
{
	const struct paged_prefix *user = &source->user;
	uint32_t begin = page * source->page_size;
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	if (page == 0 && user->salt != NULL)
		crypto_hash_sha256_update(&state, user->salt, PAGED_DIGEST_SIZE);
	for (; i < user->n_extra && user->extra[i].first < (uint64_t)begin + source->page_size; i++) {
		prefix_hash_u32(&state, user->extra[i].first - begin);
		prefix_hash_u32(&state, user->extra[i].n_tokens);
		crypto_hash_sha256_update(&state, user->extra[i].digest, PAGED_DIGEST_SIZE);
	}
	crypto_hash_sha256_final(&state, digest);
}

uint32_t
prefix_source_extras(const struct prefix_source *source, uint32_t from, uint32_t end, uint32_t n_max,
		     uint32_t *extra_page, uint8_t (*extra)[REGION_EXTRA_SIZE], uint32_t *end_p)
{
	uint32_t page = from, n = 0;
	size_t i = 0;

	while ((page = prefix_next_extra_page(source, page, &i)) < end) {
		if (n == n_max) {
			*end_p = page;
			return n;
		}
		extra_page[n] = page - from;
		prefix_hash_extra(source, page++, i, extra[n++]);
	}
	*end_p = end;
	return n;
}

uint32_t
prefix_source_n_extras(const struct prefix_source *source, uint32_t from, uint32_t end)
{
	uint32_t page = from, n = 0;
	size_t i = 0;

	for (; (page = prefix_next_extra_page(source, page, &i)) < end; page++)
		n++;
	return n;
}

/* Memory for the extras of all pages, where those of the request do not suffice. */
static enum paged_status
prefix_request_fill(struct prefix_request *request, const struct prefix_source *source, struct paged_error *error)
{
	uint32_t n = prefix_source_n_extras(source, 0, request->keys.n_pages), end, *extra_page = request->extra_page;
	uint8_t(*extra)[REGION_EXTRA_SIZE] = request->extra;

	if (n > PREFIX_EXTRAS_INLINE) {
		request->memory = malloc(n * (sizeof(*extra) + sizeof(*extra_page)));
		if (request->memory == NULL)
			return paged_fail(error, PAGED_ERR_NOMEM, "no memory for the extras of %u pages", n);
		extra = request->memory;
		extra_page = (uint32_t *)(void *)(extra + n);
	}
	request->keys.n_extras = prefix_source_extras(source, 0, request->keys.n_pages, n, extra_page, extra, &end);
	request->keys.extra_page = extra_page;
	request->keys.extra = (const uint8_t(*)[REGION_EXTRA_SIZE])extra;
	return PAGED_OK;
}

enum paged_status
prefix_request_init(const struct paged_pool *pool, const struct paged_prefix *user, struct prefix_request *request,
		    struct paged_error *error)
{
	struct prefix_source source;
	enum paged_status status = prefix_source_init(pool, user, &source, error);

	/* No sequence, and so no chain of nodes, has more pages. */
	if (status == PAGED_OK) {
		source.n_pages = MIN(source.n_pages, pool->mapping.view.max_length / source.page_size);
		status = prefix_source_check_tokens(&source, 0, error);
	}
	if (status != PAGED_OK)
		return status;
	request->memory = NULL;
	request->keys = prefix_source_keys(&source, 0, source.n_pages);
	return source.user.keys != NULL ? PAGED_OK : prefix_request_fill(request, &source, error);
}

void
prefix_request_destroy(struct prefix_request *request)
{
	free(request->memory);
}
