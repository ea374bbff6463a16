/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of sessions: upload in parts, replacement, limits, and readers of an array that was replaced. */
#include <stdio.h>
#include <string.h>

#include "core/array.h"
#include "tests/core/core_fixture.h"

TestSuite(core_arrays, .init = core_fixture_setup, .fini = core_fixture_teardown);

/* Uploads elements first .. first + count - 1, each `value`, of an i32 array of n elements. */
static enum paged_status
array_put_chunk(uint32_t by_session, uint32_t by_member, const char *name, uint32_t n, uint32_t first, uint32_t count,
		int32_t value)
{
	static int32_t values[1024];
	const struct core_array_chunk part = {
		.name = name,
		.shape = { .dtype = PAGED_I32, .n_dims = 1, .extents = { n } },
		.offset = 4ull * first,
		.data = values,
		.size = 4 * count,
	};

	for (uint32_t i = 0; i < count; i++)
		values[i] = value;
	return core_array_put(core_fixture.core, by_session, by_member, &part, &core_error);
}

static int32_t
array_element(const struct core_array *array, uint32_t i)
{
	int32_t value;

	memcpy(&value, array->data + 4ull * i, sizeof(value));
	return value;
}

static struct core_array *
array_acquire(uint32_t by_session, const char *name)
{
	struct core_array *array = NULL;

	expect_ok(core_array_acquire(core_fixture.core, by_session, name, PAGED_I32, 1, &array, &core_error));
	return array;
}

static uint32_t
arrays_open_session(uint32_t *member)
{
	uint32_t session;

	expect_ok(core_session_open(core_fixture.core, &session, member, &core_error));
	return session;
}

Test(core_arrays, an_array_is_available_after_its_last_chunk)
{
	struct core_array *array;

	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 10, 0, 4, 1));
	expect_error(core_array_acquire(core_fixture.core, fixture_session, "doc", PAGED_I32, 1, &array, &core_error),
		     PAGED_ERR_NOENT, "session 1 has no array doc; upload it first");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 6, 2));
	array = array_acquire(fixture_session, "doc");
	cr_assert_eq(array->size, 40);
	cr_assert_eq(array->shape.extents[0], 10);
	cr_assert(array_element(array, 3) == 1 && array_element(array, 4) == 2 && array_element(array, 9) == 2);
	core_array_release(array);
	expect_error(core_array_acquire(core_fixture.core, fixture_session, "doc", PAGED_F32, 1, &array, &core_error),
		     PAGED_ERR_INVALID, "array doc: dtype 16 with 1 indexes was uploaded, the mod has dtype 1 with 1");
	expect_error(core_array_acquire(core_fixture.core, fixture_session, "doc", PAGED_I32, 2, &array, &core_error),
		     PAGED_ERR_INVALID, "array doc: dtype 16 with 1 indexes was uploaded, the mod has dtype 16 with 2");
}

Test(core_arrays, chunks_out_of_order_are_refused)
{
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 2, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 10, 0, 4, 1));
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 5, 2, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk at byte 20, the next is at 16");
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 11, 4, 2, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk whose shape differs from the first chunk's");
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 7, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 28 bytes at byte 16 of 40");
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 11, 1, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 4 bytes at byte 44 of 40");
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 0, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 0 bytes at byte 16 of 40");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 6, 1));
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 10, 4, 6, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
}

/*
 * An acquired array stays valid when it is replaced; until the last chunk
 * of the new one, acquire returns the old one.
 */
Test(core_arrays, a_complete_upload_replaces_the_array)
{
	struct core_array *old, *new;

	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 8, 0, 8, 1));
	old = array_acquire(fixture_session, "doc");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 4, 0, 2, 2));
	new = array_acquire(fixture_session, "doc");
	cr_assert_eq(new, old);
	core_array_release(new);
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 4, 2, 2, 2));
	new = array_acquire(fixture_session, "doc");
	cr_assert_eq(new->shape.extents[0], 4);
	cr_assert_eq(array_element(new, 0), 2);
	cr_assert_eq(array_element(old, 7), 1);
	core_array_release(old);
	expect_ok(core_array_drop(core_fixture.core, fixture_session, "doc", &core_error));
	cr_assert_eq(array_element(new, 3), 2);
	core_array_release(new);
	expect_error(core_array_drop(core_fixture.core, fixture_session, "doc", &core_error), PAGED_ERR_NOENT,
		     "session 1 has no array doc; upload it first");
}

Test(core_arrays, uploads_of_two_members_are_separate)
{
	uint32_t other;

	expect_ok(core_session_join(core_fixture.core, fixture_session, &other, &core_error));
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 8, 0, 4, 1));
	expect_ok(array_put_chunk(fixture_session, other, "doc", 8, 0, 4, 2));
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 8, 4, 4, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
	expect_ok(array_put_chunk(fixture_session, other, "doc", 8, 4, 4, 2));
	core_array_release(array_acquire(fixture_session, "doc"));
}

Test(core_arrays, quota)
{
	core_array_set_quota(core_fixture.core, 400);
	expect_ok(array_put_chunk(fixture_session, fixture_member, "a", 60, 0, 60, 1));
	expect_error(array_put_chunk(fixture_session, fixture_member, "b", 41, 0, 41, 1), PAGED_ERR_LIMIT,
		     "array b of 164 bytes: session 1 has 240 bytes of others, and 400 is the most; "
		     "a mask that is not remote takes arrays of any size");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "b", 40, 0, 40, 1));
	/* A replaced array counts once; the new one counts from its first chunk. */
	expect_ok(array_put_chunk(fixture_session, fixture_member, "a", 60, 0, 10, 1));
	expect_error(array_put_chunk(fixture_session, fixture_member, "b", 41, 0, 41, 1), PAGED_ERR_LIMIT,
		     "array b of 164 bytes: session 1 has 240 bytes of others, and 400 is the most; "
		     "a mask that is not remote takes arrays of any size");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "a", 1, 0, 1, 1));
	expect_ok(array_put_chunk(fixture_session, fixture_member, "b", 99, 0, 99, 1));
}

/* What all sessions have is bounded: 32 quotas, here of 4 bytes each. */
Test(core_arrays, all_sessions)
{
	uint32_t session, member;

	core_array_set_quota(core_fixture.core, 16);
	for (uint32_t i = 0; i < CORE_ARRAY_QUOTAS; i++) {
		session = arrays_open_session(&member);
		expect_ok(array_put_chunk(session, member, "a", 4, 0, 4, 1));
	}
	/* The array under way counts, too. */
	expect_error(array_put_chunk(session, member, "a", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array a of 4 bytes: all sessions have 512 bytes, and 512 is the most: drop some, or raise "
		     "mask-arrays");
	expect_ok(core_array_drop(core_fixture.core, session, "a", &core_error));
	expect_ok(array_put_chunk(fixture_session, fixture_member, "b", 4, 0, 1, 1));
	expect_error(array_put_chunk(session, member, "a", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array a of 4 bytes: all sessions have 512 bytes, and 512 is the most: drop some, or raise "
		     "mask-arrays");
	expect_ok(core_session_end(core_fixture.core, fixture_session, &core_error));
	expect_ok(array_put_chunk(session, member, "a", 4, 0, 4, 1));
}

/* A tenant's sessions have its share of that together. */
Test(core_arrays, share_of_a_tenant)
{
	struct core_tenant_limits limits = CORE_UNLIMITED;
	uint32_t tenant, session, member, other, other_member;

	limits.array_bytes = 100;
	expect_ok(core_tenant_add(core_fixture.core, "research", &tenant, &core_error));
	core_tenant_limit(core_fixture.core, tenant, &limits);
	session = arrays_open_session(&member);
	other = arrays_open_session(&other_member);
	core_session_tenant(core_fixture.core, session, tenant);
	core_session_tenant(core_fixture.core, other, tenant);
	expect_ok(array_put_chunk(session, member, "a", 15, 0, 15, 1));
	expect_error(array_put_chunk(other, other_member, "b", 11, 0, 11, 1), PAGED_ERR_QUOTA,
		     "array b of 44 bytes: the sessions of tenant research have 60 bytes, and its share is 100: drop "
		     "some, or raise share or mask-arrays");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "b", 11, 0, 11, 1));
	expect_ok(array_put_chunk(other, other_member, "b", 10, 0, 10, 1));
}

Test(core_arrays, max_arrays_of_a_session)
{
	char name[32];

	for (uint32_t i = 0; i < CORE_MAX_ARRAYS; i++) {
		snprintf(name, sizeof(name), "a%u", i);
		expect_ok(array_put_chunk(fixture_session, fixture_member, name, 0, 0, 0, 0));
	}
	expect_error(array_put_chunk(fixture_session, fixture_member, "more", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array more: session 1 has 64 arrays, the maximum");
	expect_ok(array_put_chunk(fixture_session, fixture_member, "a7", 1, 0, 1, 1));
	core_array_set_quota(core_fixture.core, 0);
	expect_error(array_put_chunk(fixture_session, fixture_member, "a7", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array a7 of 4 bytes: session 1 has 0 bytes of others, and 0 is the most; "
		     "a mask that is not remote takes arrays of any size");
}

Test(core_arrays, invalid_names_dtypes_and_extents_are_refused)
{
	struct core_array_chunk part = { .name = "x", .shape = { .dtype = PAGED_I32, .n_dims = 1 }, .data = "" };

	part.name = "7up";
	expect_error(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_INVALID, "array '7up': a name is a letter or _, then letters, digits, _; at most 31");
	part.name = "abcdefghijklmnopqrstuvwxyz_and_more";
	cr_assert_eq(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_INVALID);
	part.name = "x";
	part.shape.dtype = (enum paged_dtype)9;
	expect_error(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_INVALID, "array x: no dtype has number 9");
	part.shape.dtype = PAGED_U8;
	part.shape.n_dims = 5;
	expect_error(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_INVALID, "array x: 5 indexes; an array has 1 to 4");
	part.shape = (struct core_array_shape){ PAGED_I32, 4, { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX } };
	expect_error(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_LIMIT, "array x: more than 2^64 bytes");
	part.shape = (struct core_array_shape){ PAGED_U8, 2, { UINT32_MAX, UINT32_MAX, 0, 0 } };
	part.size = 1;
	cr_assert_eq(core_array_put(core_fixture.core, fixture_session, fixture_member, &part, &core_error),
		     PAGED_ERR_LIMIT);
}

Test(core_arrays, the_end_of_a_session_frees_its_arrays)
{
	struct core_array *array, *other_array;
	uint32_t other, other_member;

	expect_ok(core_session_open(core_fixture.core, &other, &other_member, &core_error));
	expect_ok(array_put_chunk(fixture_session, fixture_member, "doc", 8, 0, 8, 1));
	expect_ok(array_put_chunk(other, other_member, "doc", 8, 0, 8, 2));
	array = array_acquire(fixture_session, "doc");
	other_array = array_acquire(other, "doc");
	core_member_leave(core_fixture.core, fixture_member);
	cr_assert_eq(array_element(array, 0), 1);
	cr_assert_eq(array_element(other_array, 0), 2);
	core_array_release(array);
	core_array_release(other_array);
	expect_error(array_put_chunk(fixture_session, fixture_member, "doc", 8, 0, 8, 1), PAGED_ERR_GONE,
		     "session 1 has ended");
	expect_ok(core_session_end(core_fixture.core, other, &core_error));
	expect_error(core_array_acquire(core_fixture.core, other, "doc", PAGED_I32, 1, &array, &core_error),
		     PAGED_ERR_GONE, "session 2 has ended");
}
