/* SPDX-License-Identifier: Apache-2.0 */
/**
 * enter.h - how each public call begins and ends
 *
 * Every public call begins with client_enter() or a function that calls it:
 * in a forked child it returns PAGED_ERR_FORK before anything else is
 * examined.  It ends with client_leave(), or with client_fail() if it fails.  The functions
 * in between pass a struct paged_error, as everywhere in this code base.
 */
#ifndef PAGED_CLIENT_ENTER_H
#define PAGED_CLIENT_ENTER_H

#include "client/api/objects.h"

/** client_enter - PAGED_OK if the client is open and belongs to the calling process; refuses NULL */
enum paged_status client_enter(const struct paged_client *client);

/** client_enter_owner - client_enter() for calls that need the owner; PAGED_ERR_GONE if it has ended */
enum paged_status client_enter_owner(const struct paged_client *client);

/**
 * client_enter_shared - client_enter_owner() for calls that read shared memory and may send no request
 *
 * At most once a second, asks the kernel whether the owner lives: the memory of a daemon that was replaced looks like
 * that of one with nothing to do.
 */
enum paged_status client_enter_shared(struct paged_client *client);

/** client_fail - set the calling thread's error text for this client; returns the error's status */
enum paged_status client_fail(const struct paged_client *client, const struct paged_error *error);

enum paged_status client_failf(const struct paged_client *client, enum paged_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** client_leave - end a public call: client_fail() unless status is PAGED_OK */
static inline enum paged_status
client_leave(const struct paged_client *client, enum paged_status status, const struct paged_error *error)
{
	return status == PAGED_OK ? PAGED_OK : client_fail(client, error);
}

/** client_poll_owner - handle the owner's notices, unless another thread holds the client's mutex; never blocks */
void client_poll_owner(struct paged_client *client);

/** client_check_owner - client_enter_owner(), after asking the kernel whether the owner lives; one system call */
enum paged_status client_check_owner(struct paged_client *client);

#endif
