/* SPDX-License-Identifier: Apache-2.0 */
/* Salts and the extras of pages, compared with SHA-256 of the documented bytes (computed with Python's hashlib). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "client/api/seq/prefix.h"

#define PAGE_SIZE_TOKENS 4u

static struct paged_pool pool = { .mapping.view = { .page_size = PAGE_SIZE_TOKENS, .max_length = 4096 } };
static uint32_t tokens[400];
static struct paged_extra extras[3] = {
	{ .first = 2, .n_tokens = 6 },    /* pages 0 and 1 */
	{ .first = 9, .n_tokens = 1 },    /* page 2 */
	{ .first = 11, .n_tokens = 300 }, /* pages 2 to 77 */
};
static uint8_t salt[PAGED_DIGEST_SIZE];

static void
prefix_setup(void)
{
	for (uint32_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		tokens[i] = i;
	for (uint8_t i = 0; i < PAGED_DIGEST_SIZE; i++)
		extras[0].digest[i] = extras[2].digest[i] = i;
	memset(extras[1].digest, 0xaa, PAGED_DIGEST_SIZE);
	paged_salt(salt, 3, (const char *const[]){ "model", "", "tenant 7" });
}

TestSuite(prefix, .init = prefix_setup);

static void
expect_digest(const uint8_t *digest, const char *expected)
{
	char text[2 * PAGED_DIGEST_SIZE + 1];

	for (size_t i = 0; i < PAGED_DIGEST_SIZE; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	cr_assert_str_eq(text, expected);
}

Test(prefix, salt)
{
	uint8_t none[PAGED_DIGEST_SIZE];

	paged_salt(none, 0, NULL);
	expect_digest(none, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	expect_digest(salt, "d53b7c9f5e313791bba314407a48c157387b693c80deb35f93377175589da437");
}

Test(prefix, model_allowed)
{
	cr_assert(paged_model_allowed("", "any"));
	cr_assert(paged_model_allowed(NULL, ""));
	cr_assert(paged_model_allowed("", NULL));
	cr_assert_not(paged_model_allowed("any", NULL));
	cr_assert(paged_model_allowed("Llama-3", "Llama-3"));
	cr_assert(paged_model_allowed("Llama-3@v1", "meta/llama-3"));
	cr_assert(paged_model_allowed("Llama-3", "/models/Llama-3//"));
	cr_assert(paged_model_allowed("Llama-3", "/models/Llama-3.GGUF"));
	cr_assert(paged_model_allowed("meta/Llama-3", "/models/meta/Llama-3"));
	cr_assert(!paged_model_allowed("Llama-3", "Llama-3-Instruct"));
	cr_assert(!paged_model_allowed("Llama-3", "Code-Llama-3"));
	cr_assert(!paged_model_allowed("Llama-3@v1", "Llama-3@v1"));
	cr_assert(!paged_model_allowed("meta/Llama-3", "other/Llama-3"));
	cr_assert(!paged_model_allowed("meta/Llama-3", "Llama-3"));
	cr_assert(!paged_model_allowed("Llama-3", "Llama-3/weights"));
	cr_assert(!paged_model_allowed("Llama-3", ""));
	cr_assert(!paged_model_allowed("Llama-3", ".gguf"));
}

static void
request_make(const struct paged_prefix *prefix, struct prefix_request *request)
{
	struct paged_error error = { 0 };

	cr_assert_eq(prefix_request_init(&pool, prefix, request, &error), PAGED_OK, "%s", error.text);
}

Test(prefix, extras_of_pages)
{
	const struct paged_prefix prefix = { .struct_size = sizeof(prefix),
					     .salt = salt,
					     .tokens = tokens,
					     .n_tokens = 27,
					     .extra = extras,
					     .n_extra = 3 };
	struct prefix_request request;

	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_pages, 6);
	cr_assert_eq(request.keys.tokens, tokens);
	cr_assert_eq(request.keys.n_extras, 6);
	cr_assert_null(request.memory);
	for (uint32_t i = 0; i < 6; i++)
		cr_assert_eq(request.keys.extra_page[i], i);
	expect_digest(request.keys.extra[0], "e66187c209f70a95631951c93066a4b2f132284d5df1d3ab015ce59e9b64c1bd");
	expect_digest(request.keys.extra[1], "7dd11ca67c5caf90757a5d86944f4eca6979d1b7e613e1d5bc4c286e26949da5");
	expect_digest(request.keys.extra[2], "2808500bbc249ee6e86e1590083c16a2c246ba405b4271df38dacb33bd530cb6");
	expect_digest(request.keys.extra[3], "4fa2ee55ffae53ec22a952c840bb43400287ee40050d14554785802142a2622c");
	prefix_request_destroy(&request);
}

Test(prefix, salt_and_extras_are_optional)
{
	static const uint8_t zeros[PAGED_DIGEST_SIZE];
	struct paged_prefix prefix = { .struct_size = sizeof(prefix), .tokens = tokens, .n_tokens = 400 };
	struct prefix_request request;

	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_pages, 100);
	cr_assert_eq(request.keys.n_extras, 0);
	prefix.salt = zeros;
	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_extras, 0);
	prefix.salt = salt;
	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_extras, 1);
	expect_digest(request.keys.extra[0], "983e45426fc5305e037c10a83e0c02243704ebbca4c69515bac62b91536040b5");
	prefix.salt = NULL;
	prefix.extra = extras;
	prefix.n_extra = 1;
	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_extras, 2);
	expect_digest(request.keys.extra[0], "004d389f8f1e3970c4ada394eb03ba55fd9b651f42e7d9afe80160503bd6c7e4");
}

/* The extra of a page does not depend on where a publish continues, nor on how many extras fit. */
Test(prefix, extras_in_parts)
{
	const struct paged_prefix prefix = { .struct_size = sizeof(prefix),
					     .salt = salt,
					     .tokens = tokens,
					     .n_tokens = 400,
					     .extra = extras,
					     .n_extra = 3 };
	struct prefix_request request;
	struct prefix_source source;
	struct paged_error error;

	request_make(&prefix, &request);
	cr_assert_eq(request.keys.n_extras, 78);
	cr_assert_not_null(request.memory);
	cr_assert_eq(prefix_source_init(&pool, &prefix, &source, &error), PAGED_OK);
	for (uint32_t from = 0, end; from < 100; from = end) {
		uint32_t pages[7], n;
		uint8_t parts[7][REGION_EXTRA_SIZE];

		n = prefix_source_extras(&source, from, 100, 7, pages, parts, &end);
		cr_assert_gt(end, from);
		for (uint32_t i = 0; i < n; i++) {
			cr_assert_eq(from + pages[i], request.keys.extra_page[from + i]);
			cr_assert_arr_eq(parts[i], request.keys.extra[from + pages[i]], REGION_EXTRA_SIZE);
		}
	}
	prefix_request_destroy(&request);
}

#define expect_refused(status_, ...)                                                                               \
	do {                                                                                                       \
		struct prefix_request request_;                                                                    \
		struct paged_error error_ = { 0 };                                                                 \
		char expected_[256];                                                                               \
		snprintf(expected_, sizeof(expected_), __VA_ARGS__);                                               \
		cr_assert_eq(prefix_request_init(&pool, &prefix, &request_, &error_), status_, "%s", error_.text); \
		cr_assert_str_eq(error_.text, expected_);                                                          \
	} while (0)

Test(prefix, what_is_refused)
{
	static const uint8_t keys[2][PAGED_DIGEST_SIZE] = { { 1 }, { 2 } };
	const struct paged_prefix good = { .struct_size = sizeof(good), .tokens = tokens, .n_tokens = 20 };
	struct paged_prefix prefix = { .tokens = tokens };
	struct paged_extra wrong[2];

	expect_refused(PAGED_ERR_INVALID, "paged_prefix: struct_size is 0; set it to sizeof(the struct)");
	prefix = good;
	prefix.tokens = NULL;
	expect_refused(PAGED_ERR_INVALID, "a prefix of 20 tokens has neither tokens nor keys");
	prefix = good;
	prefix.n_extra = 1;
	expect_refused(PAGED_ERR_INVALID, "extra is NULL but n_extra is 1");
	prefix.extra = wrong;
	wrong[0] = (struct paged_extra){ .first = 20, .n_tokens = 1 };
	expect_refused(PAGED_ERR_INVALID, "extra[0] of 1 tokens begins at 20, the prefix has 20 tokens");
	wrong[0] = (struct paged_extra){ .first = 3 };
	expect_refused(PAGED_ERR_INVALID, "extra[0] stands for no tokens");
	wrong[0] = (struct paged_extra){ .first = 3, .n_tokens = 4 };
	wrong[1] = (struct paged_extra){ .first = 6, .n_tokens = 4 };
	prefix.n_extra = 2;
	expect_refused(PAGED_ERR_INVALID, "extra[1] begins at 6, before the end of the one before it at 7");
	prefix = good;
	prefix.keys = keys;
	prefix.salt = salt;
	expect_refused(PAGED_ERR_INVALID, "keys and salt exclude each other");
	prefix.salt = NULL;
	prefix.extra = extras;
	prefix.n_extra = 1;
	expect_refused(PAGED_ERR_INVALID, "keys and extra exclude each other");
	prefix.n_extra = 0;
	prefix.n_tokens = 7;
	expect_refused(PAGED_ERR_INVALID, "keys are of whole pages: n_tokens is 7, the page size is 4");
	tokens[19] = UINT32_MAX;
	prefix = good;
	expect_refused(PAGED_ERR_INVALID, "tokens[19] is 2^32 - 1, which is no token id");
	prefix.n_tokens = 19; /* the last, partial page is not looked for */
	cr_assert_eq(prefix_request_init(&pool, &prefix, &(struct prefix_request){ 0 }, &(struct paged_error){ 0 }),
		     PAGED_OK);
	prefix.n_tokens = UINT32_MAX;
	expect_refused(PAGED_ERR_LIMIT, "a prefix of 4294967295 tokens, at most 2^32 - 2");
}
