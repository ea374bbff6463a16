/* SPDX-License-Identifier: Apache-2.0 */
/* audit.h - what an audit records before a change, and checks of lists */
#ifndef PAGED_CORE_AUDIT_H
#define PAGED_CORE_AUDIT_H

#include "core/core_internal.h"

/* audit.c: call before a change, so that the audit saves the old value */

/** audit_page_table - record a page table; call it before the table drops its entries from n_pages on, or grows */
void audit_page_table(struct core_audit *audit, uint32_t slot, uint32_t n_pages);

/** audit_trim - record the entries before n_pages; call it before the page table gives their pages back */
void audit_trim(struct core_audit *audit, uint32_t slot, uint32_t n_pages);

/** audit_free_list - record the stack of free pages; call it before the stack drops its entries from n on */
void audit_free_list(struct core_audit *audit, uint32_t n);

/** audit_count - record a page's count and flags; call it before either changes */
void audit_count(struct core_audit *audit, uint32_t page);

/* check_index.c */

/** check_index - verify nodes, buckets and the lists of cached pages */
enum paged_status check_index(const struct core_pool *pool, struct paged_error *error);

#endif
