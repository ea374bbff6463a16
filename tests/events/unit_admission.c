/* SPDX-License-Identifier: Apache-2.0 */
/* Which connection makes room for a new one. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/admission.h"

static const struct origin a = { 1, 1, 1 }, b = { 1, 2, 2 }, c = { 2, 1, 1 }, d = { 3, 3, 3 };

Test(admission, own_idle_ones_go_first)
{
	const struct admission_entry entries[] = {
		{ a, ADMISSION_ACTIVE, 1 }, { a, ADMISSION_IDLE, 4 }, { a, ADMISSION_NEW, 3 }, { a, ADMISSION_FREE, 0 }
	};

	cr_assert_eq(admission_victim(entries, 4, &a), 2);
	cr_assert_eq(admission_victim(entries, 2, &a), 1);
	/* None that is in use. */
	cr_assert_eq(admission_victim(entries, 1, &a), 1);
}

Test(admission, the_largest_origin_makes_room)
{
	const struct admission_entry entries[] = {
		{ a, ADMISSION_ACTIVE, 1 }, { b, ADMISSION_ACTIVE, 2 }, { b, ADMISSION_ACTIVE, 5 },
		{ b, ADMISSION_ACTIVE, 4 }, { c, ADMISSION_IDLE, 3 },   { b, ADMISSION_FREE, 9 },
	};

	/* The last of b, although c has an idle one. */
	cr_assert_eq(admission_victim(entries, 6, &c), 2);
	cr_assert_eq(admission_victim(entries, 6, &a), 2);
	/* The new one would make b the larger. */
	cr_assert_eq(admission_victim(entries, 3, &a), 3);
	cr_assert_eq(admission_victim(entries, 2, &d), 2);
}

/* However many an origin has, another one gets its part. */
Test(admission, parts_become_equal)
{
	struct admission_entry entries[12];
	size_t n_of_b = 0;

	for (size_t i = 0; i < 12; i++)
		entries[i] = (struct admission_entry){ a, ADMISSION_ACTIVE, i };
	for (uint64_t used = 12; used < 40; used++) {
		size_t victim = admission_victim(entries, 12, &b);

		if (victim == 12)
			continue;
		n_of_b++;
		entries[victim] = (struct admission_entry){ b, ADMISSION_ACTIVE, used };
	}
	cr_assert_eq(n_of_b, 6);
}

/* Fills all of `entries` but the first `from` with connections of origins that differ. */
static void
fill_strangers(struct admission_entry *entries, size_t from, size_t n, enum admission_state state)
{
	for (size_t i = from; i < n; i++)
		entries[i] = (struct admission_entry){ { 9, i, i }, state, 100 + i };
}

/* A host with many addresses takes no connection from one that uses few. */
Test(admission, few_in_use_are_kept)
{
	struct admission_entry entries[128] = { { a, ADMISSION_ACTIVE, 1 }, { a, ADMISSION_ACTIVE, 2 } };

	fill_strangers(entries, 2, 128, ADMISSION_ACTIVE);
	cr_assert_eq(admission_victim(entries, 128, &d), 128);
	/* One of three is not in use. */
	entries[2] = (struct admission_entry){ a, ADMISSION_ACTIVE, 3 };
	cr_assert_eq(admission_victim(entries, 128, &d), 2);
}

/* Silent peers keep no other away, even if each has another address. */
Test(admission, a_tie_displaces_the_oldest_that_is_idle)
{
	struct admission_entry entries[128] = { { a, ADMISSION_ACTIVE, 1 }, { b, ADMISSION_ACTIVE, 2 } };

	fill_strangers(entries, 2, 128, ADMISSION_NEW);
	cr_assert_eq(admission_victim(entries, 128, &d), 2);
	entries[2].used = 1000;
	cr_assert_eq(admission_victim(entries, 128, &d), 3);
	/* But not for one that has more than they have. */
	cr_assert_eq(admission_victim(entries, 128, &a), 128);
}

/* A customer of IPv6 has 65,536 times 64 bits: all of them have the part of one. */
Test(admission, groups)
{
	struct admission_entry entries[12] = { { a, ADMISSION_ACTIVE, 1 }, { b, ADMISSION_IDLE, 2 } };
	const struct origin new_one = { 2, 7, 999 };

	for (size_t i = 2; i < 12; i++)
		entries[i] = (struct admission_entry){ { 2, 7, i }, ADMISSION_ACTIVE, i };
	cr_assert_eq(admission_victim(entries, 12, &a), 11);
	/* One more of the group displaces neither another group nor one of its own that has as many. */
	cr_assert_eq(admission_victim(entries, 12, &new_one), 12);
	/* It gets its part of the group's. */
	entries[5].origin = entries[8].origin = entries[4].origin;
	cr_assert_eq(admission_victim(entries, 12, &new_one), 8);
}

/* All of a large set are counted. */
Test(admission, many)
{
	static struct admission_entry entries[ADMISSION_MAX];

	fill_strangers(entries, 0, ADMISSION_MAX, ADMISSION_ACTIVE);
	for (size_t i = 100; i < ADMISSION_MAX; i += 400)
		entries[i].origin = a;
	cr_assert_eq(admission_victim(entries, ADMISSION_MAX, &b), 3700 + 400 * ((ADMISSION_MAX - 1 - 3700) / 400));
}

/* The origin of a connection from 127.0.0.X to a socket of either family. */
static struct origin
origin_from(int family, uint8_t last)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last) };
	struct sockaddr_storage at = { .ss_family = (sa_family_t)family };
	socklen_t size = sizeof(at);
	int listener = socket(family, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), accepted;
	struct origin origin;

	cr_assert_eq(bind(listener, (const struct sockaddr *)&at, sizeof(at)), 0);
	cr_assert_eq(listen(listener, 1), 0);
	cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
	cr_assert_eq(bind(client, (const struct sockaddr *)&from, sizeof(from)), 0);
	from.sin_port =
		family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port : ((struct sockaddr_in6 *)&at)->sin6_port;
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	cr_assert_eq(connect(client, (const struct sockaddr *)&from, sizeof(from)), 0);
	accepted = accept(listener, NULL, NULL);
	cr_assert_geq(accepted, 0);
	origin = origin_of(accepted);
	close(accepted);
	close(client);
	close(listener);
	return origin;
}

Test(admission, origins)
{
	struct origin first = origin_from(AF_INET, 1), same = origin_from(AF_INET, 2);
	int pair[2], probe = socket(AF_INET6, SOCK_STREAM, 0);

	/* Any user may take all addresses of loopback. */
	cr_assert(first.kind == same.kind && first.group == same.group && first.number == same.number);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	cr_assert_eq(origin_of(pair[0]).kind, AF_UNIX);
	cr_assert_eq(origin_of(pair[0]).number, getuid());
	/* An IPv4 address is the same through an IPv6 socket. */
	if (probe >= 0) {
		same = origin_from(AF_INET6, 1);
		cr_assert(first.kind == same.kind && first.number == same.number);
		close(probe);
	}
	close(pair[0]);
	close(pair[1]);
}

static struct origin
origin_of_text(const char *text)
{
	struct sockaddr_storage address = { .ss_family = AF_INET6 };

	cr_assert_eq(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr), 1);
	return origin_of_address(&address);
}

/* By 48 bits and by 64; loopback is that of IPv4. */
Test(admission, origins_of_ipv6)
{
	struct origin first = origin_of_text("2001:db8:1:2::3"), same = origin_of_text("2001:db8:1:2:3::"),
		      customer = origin_of_text("2001:db8:1:3::3"), other = origin_of_text("2001:db8:2:2::3");

	cr_assert(first.kind == same.kind && first.group == same.group && first.number == same.number);
	cr_assert(first.group == customer.group && first.number != customer.number);
	cr_assert(first.group != other.group && first.number != other.number);
	first = origin_of_text("::1");
	same = origin_of_text("::ffff:127.1.2.3");
	cr_assert_eq(first.kind, AF_INET);
	cr_assert(first.kind == same.kind && first.group == same.group && first.number == same.number);
	other = origin_of_text("::ffff:10.1.2.3");
	cr_assert(first.kind == other.kind && first.group != other.group && first.number != other.number);
}
