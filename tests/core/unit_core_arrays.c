/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of sessions: upload in parts, replacement, limits, and readers of an array that was replaced. */
#include <stdio.h>
#include <string.h>

#include "core/array.h"
#include "tests/core/core_case.h"

TestSuite(core_arrays, .init = case_setup, .fini = case_teardown);

/* A part of an i32 array of n elements: elements first .. first + count - 1, each `value`. */
static enum paged_status
put(uint32_t of, uint32_t by, const char *name, uint32_t n, uint32_t first, uint32_t count, int32_t value)
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
	return core_array_put(f.core, of, by, &part, &error);
}

static int32_t
element(const struct core_array *array, uint32_t i)
{
	int32_t value;

	memcpy(&value, array->data + 4ull * i, sizeof(value));
	return value;
}

static struct core_array *
take(uint32_t of, const char *name)
{
	struct core_array *array = NULL;

	assert_ok(core_array_acquire(f.core, of, name, PAGED_I32, 1, &array, &error));
	return array;
}

Test(core_arrays, parts_make_a_whole)
{
	struct core_array *array;

	assert_ok(put(session, member, "doc", 10, 0, 4, 1));
	assert_fails(core_array_acquire(f.core, session, "doc", PAGED_I32, 1, &array, &error), PAGED_ERR_NOENT,
		     "session 1 has no array doc; upload it with paged_array_upload()");
	assert_ok(put(session, member, "doc", 10, 4, 6, 2));
	array = take(session, "doc");
	cr_assert_eq(array->size, 40);
	cr_assert_eq(array->shape.extents[0], 10);
	cr_assert(element(array, 3) == 1 && element(array, 4) == 2 && element(array, 9) == 2);
	core_array_release(array);
	assert_fails(core_array_acquire(f.core, session, "doc", PAGED_F32, 1, &array, &error), PAGED_ERR_INVALID,
		     "array doc: dtype 16 with 1 indexes was uploaded, the mod has dtype 1 with 1");
	assert_fails(core_array_acquire(f.core, session, "doc", PAGED_I32, 2, &array, &error), PAGED_ERR_INVALID,
		     "array doc: dtype 16 with 1 indexes was uploaded, the mod has dtype 16 with 2");
}

Test(core_arrays, parts_out_of_order_are_refused)
{
	assert_fails(put(session, member, "doc", 10, 4, 2, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
	assert_ok(put(session, member, "doc", 10, 0, 4, 1));
	assert_fails(put(session, member, "doc", 10, 5, 2, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk at byte 20, the next is at 16");
	assert_fails(put(session, member, "doc", 11, 4, 2, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk whose shape differs from the first chunk's");
	assert_fails(put(session, member, "doc", 10, 4, 7, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 28 bytes at byte 16 of 40");
	assert_fails(put(session, member, "doc", 10, 11, 1, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 4 bytes at byte 44 of 40");
	assert_fails(put(session, member, "doc", 10, 4, 0, 1), PAGED_ERR_INVALID,
		     "array doc: a chunk of 0 bytes at byte 16 of 40");
	assert_ok(put(session, member, "doc", 10, 4, 6, 1));
	assert_fails(put(session, member, "doc", 10, 4, 6, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
}

/* Whoever took the old one goes on reading it; until the new one is whole, others take the old one. */
Test(core_arrays, a_new_one_replaces_when_whole)
{
	struct core_array *old, *new;

	assert_ok(put(session, member, "doc", 8, 0, 8, 1));
	old = take(session, "doc");
	assert_ok(put(session, member, "doc", 4, 0, 2, 2));
	new = take(session, "doc");
	cr_assert_eq(new, old);
	core_array_release(new);
	assert_ok(put(session, member, "doc", 4, 2, 2, 2));
	new = take(session, "doc");
	cr_assert_eq(new->shape.extents[0], 4);
	cr_assert_eq(element(new, 0), 2);
	cr_assert_eq(element(old, 7), 1);
	core_array_release(old);
	assert_ok(core_array_drop(f.core, session, "doc", &error));
	cr_assert_eq(element(new, 3), 2);
	core_array_release(new);
	assert_fails(core_array_drop(f.core, session, "doc", &error), PAGED_ERR_NOENT,
		     "session 1 has no array doc; upload it with paged_array_upload()");
}

Test(core_arrays, two_members_do_not_mix)
{
	uint32_t other;

	assert_ok(core_session_join(f.core, session, &other, &error));
	assert_ok(put(session, member, "doc", 8, 0, 4, 1));
	assert_ok(put(session, other, "doc", 8, 0, 4, 2));
	assert_fails(put(session, member, "doc", 8, 4, 4, 1), PAGED_ERR_AGAIN,
		     "array doc: a chunk at byte 16 of an upload that was not begun");
	assert_ok(put(session, other, "doc", 8, 4, 4, 2));
	core_array_release(take(session, "doc"));
}

Test(core_arrays, limits)
{
	core_array_set_quota(f.core, 400);
	assert_ok(put(session, member, "a", 60, 0, 60, 1));
	assert_fails(put(session, member, "b", 41, 0, 41, 1), PAGED_ERR_LIMIT,
		     "array b of 164 bytes: session 1 has 240 bytes of others, and 400 is the most; "
		     "paged_block_mask_create() takes arrays of any size");
	assert_ok(put(session, member, "b", 40, 0, 40, 1));
	/* What is replaced counts once; what comes instead counts from its begin. */
	assert_ok(put(session, member, "a", 60, 0, 10, 1));
	assert_fails(put(session, member, "b", 41, 0, 41, 1), PAGED_ERR_LIMIT,
		     "array b of 164 bytes: session 1 has 240 bytes of others, and 400 is the most; "
		     "paged_block_mask_create() takes arrays of any size");
	assert_ok(put(session, member, "a", 1, 0, 1, 1));
	assert_ok(put(session, member, "b", 99, 0, 99, 1));
}

Test(core_arrays, as_many_as_fit)
{
	char name[32];

	for (uint32_t i = 0; i < CORE_MAX_ARRAYS; i++) {
		snprintf(name, sizeof(name), "a%u", i);
		assert_ok(put(session, member, name, 0, 0, 0, 0));
	}
	assert_fails(put(session, member, "more", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array more: session 1 has 64 arrays, the maximum");
	assert_ok(put(session, member, "a7", 1, 0, 1, 1));
	core_array_set_quota(f.core, 0);
	assert_fails(put(session, member, "a7", 1, 0, 1, 1), PAGED_ERR_LIMIT,
		     "array a7 of 4 bytes: session 1 has 0 bytes of others, and 0 is the most; "
		     "paged_block_mask_create() takes arrays of any size");
}

Test(core_arrays, what_is_no_array)
{
	struct core_array_chunk part = { .name = "x", .shape = { .dtype = PAGED_I32, .n_dims = 1 }, .data = "" };

	part.name = "7up";
	assert_fails(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_INVALID,
		     "array '7up': a name is a letter or _, then letters, digits, _; at most 31");
	part.name = "abcdefghijklmnopqrstuvwxyz_and_more";
	cr_assert_eq(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_INVALID);
	part.name = "x";
	part.shape.dtype = (enum paged_dtype)9;
	assert_fails(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_INVALID,
		     "array x: no dtype has number 9");
	part.shape.dtype = PAGED_U8;
	part.shape.n_dims = 5;
	assert_fails(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_INVALID,
		     "array x: 5 indexes; an array has 1 to 4");
	part.shape = (struct core_array_shape){ PAGED_I32, 4, { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX } };
	assert_fails(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_LIMIT,
		     "array x: more than 2^64 bytes");
	part.shape = (struct core_array_shape){ PAGED_U8, 2, { UINT32_MAX, UINT32_MAX, 0, 0 } };
	part.size = 1;
	cr_assert_eq(core_array_put(f.core, session, member, &part, &error), PAGED_ERR_LIMIT);
}

Test(core_arrays, the_sessions_end_frees_them)
{
	struct core_array *array, *other_array;
	uint32_t other, other_member;

	assert_ok(core_session_open(f.core, &other, &other_member, &error));
	assert_ok(put(session, member, "doc", 8, 0, 8, 1));
	assert_ok(put(other, other_member, "doc", 8, 0, 8, 2));
	array = take(session, "doc");
	other_array = take(other, "doc");
	core_member_leave(f.core, member);
	cr_assert_eq(element(array, 0), 1);
	cr_assert_eq(element(other_array, 0), 2);
	core_array_release(array);
	core_array_release(other_array);
	assert_fails(put(session, member, "doc", 8, 0, 8, 1), PAGED_ERR_GONE, "session 1 has ended");
	assert_ok(core_session_end(f.core, other, &error));
	assert_fails(core_array_acquire(f.core, other, "doc", PAGED_I32, 1, &array, &error), PAGED_ERR_GONE,
		     "session 2 has ended");
}
