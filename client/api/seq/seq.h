/* SPDX-License-Identifier: Apache-2.0 */
/**
 * seq.h - the checks that requests about sequences have in common
 */
#ifndef PAGED_CLIENT_SEQ_H
#define PAGED_CLIENT_SEQ_H

#include "client/api/objects.h"

/** seq_request_enter - enter a call that sends a request about n sequences; has_arrays false: an array is NULL */
enum paged_status seq_request_enter(struct paged_client *client, size_t n, bool has_arrays);

/**
 * seq_tag_check - check the tag of element i of an array of this name
 *
 * @param[in]     tag     NULL: none
 * @param[in,out] tags_p  bytes of the tags of the request so far
 */
enum paged_status seq_tag_check(const char *array, size_t i, const char *tag, size_t *tags_p,
				struct paged_error *error);

#endif
