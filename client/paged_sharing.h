/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paged_sharing.h - sequences that share pages: prefixes, publish, match, start, fork; trim and hand-over
 *
 * Part of pagedclient.h, which includes it; programs include that alone.
 *
 * Publish.  Once the K and V of a page have been written, its sequence can
 * publish it.  Then any sequence of any process of the pool whose tokens begin
 * in the same way can use the page instead of computing it again.  Published
 * pages never change.  They stay in the pool after their last sequence has
 * ended ("cached"), until a reserve needs the memory; the least recently used
 * pages are evicted first, the end of a prefix before its beginning.  Cached
 * pages never make a reserve fail.
 *
 * Match and start.  paged_prefix_match() tells how many tokens of a prompt are
 * published, without a request.  paged_seq_start() creates sequences on their
 * longest published prefixes and reserves the rest of their capacity, in one
 * request.  A prompt is then computed from its first token that is not shared.
 *
 * Fork.  paged_batch_fork() creates sequences with the first tokens of a
 * sequence of this session, for parallel samples and beams.
 *
 * Trim.  paged_seq_trim() gives the beginning of a sequence back, which a sliding window no longer reaches.
 *
 * Hold.  paged_pages_hold() keeps published pages from eviction while a program copies them elsewhere.
 *
 * Hand-over.  paged_seq_give() makes a ticket, with which another session adopts
 * sequences of this one; no byte of K or V moves.  A prefill worker gives
 * what it has computed to a decode worker.  A worker that is to be restarted gives its
 * sequences with a long timeout, and its successor adopts them.  A given
 * sequence is at every moment its giver's, the ticket's or its taker's, so either
 * process may die at any time:
 *
 *   the giver dies before its request    the sequence ends with the giver's session
 *   the giver dies after it              the ticket keeps it until it is adopted or expires
 *   the taker dies before its request    the ticket stays valid; the giver may cancel it
 *   the taker dies after it              the sequence ends with the taker's session
 *
 * Whole pages are shared: a prefix is shared up to a multiple of the page size.
 * Shared and published tokens cannot be written.  paged_append() refuses them
 * with PAGED_ERR_PERM, and paged_seq_info.writable_from is the first token
 * that can be written.  Truncating a sequence inside a page that it shares makes
 * the rest of that page unusable for it: keep whole pages, or fork the sequence
 * at that token and erase it.
 *
 * What must not be written.  From the call of paged_seq_publish() or
 * paged_batch_publish() on, this process refuses to write what it publishes, also by
 * plans that were made before.  Other members of the session refuse it from the
 * moment at which the owner has handled the publish (paged_seq_info.published), and
 * what a fork shares, from the moment at which the owner has handled the fork.  So a
 * member publishes or forks only what no other member is writing: members agree on
 * that, as on everything that they write.  If they fail to, paged_append() on the
 * host notices when pages become protected while it writes them, and
 * paged_batch_validate() reports it.  Captured appends know what was protected at the
 * last paged_batch_plan_device() with tables_only, and what paged_batch_publish() and
 * paged_batch_fork() of their batch have protected since: after any other publish or
 * fork, plan before the next replay.  Explicit page tables (paged_batch_row.pages) are
 * the program's own, and not checked.
 *
 * Identity.  A page is found by all tokens before its end, by a salt, and by
 * extras that stand for content which token ids do not express.  These are
 * compared, not only their hashes, so a match is exact.  This follows vLLM's
 * automatic prefix caching (block hashes over parent, tokens and extra keys,
 * with a salt in the first block) and SGLang's RadixAttention (a radix tree of
 * tokens).  Programs that compute such block hashes themselves may pass those
 * instead (paged_prefix.keys).
 *
 * Trust.  Members of a pool can write its pages, so they can also publish
 * wrong content under any prefix.  Token ids of published pages lie in shared
 * memory that all members map.
 *
 * Publishing fails silently where only the chance to share is lost: paged_seq_info.publish_end says how the last
 * publish of a sequence ended, and if the owner refuses a publish that was sent, the library logs it.
 */
#ifndef PAGED_SHARING_H
#define PAGED_SHARING_H

#include <stdbool.h>

#include <pagedclient.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/** Content that token ids do not express, for example an image: its digest, and the tokens that stand for it. */
struct paged_extra {
	uint32_t first;                    /* position of the first of these tokens */
	uint32_t n_tokens;                 /* at least 1 */
	uint8_t digest[PAGED_DIGEST_SIZE]; /* SHA-256 of the content */
};

/** Identifies the content of a sequence's first n_tokens tokens. */
struct paged_prefix {
	size_t struct_size;
	/**
	 * [PAGED_DIGEST_SIZE], from paged_salt().  Prefixes with different salts never match.  The salt must cover
	 * everything that K and V depend on and that the pool's configuration does not state: adapter, scales of
	 * fp8, settings of the rotary embedding, user or tenant.  NULL: zeros.
	 */
	const uint8_t *salt;
	/** [n_tokens] token ids; each is below 2^32 - 1.  Read during the call only. */
	const uint32_t *tokens;
	size_t n_tokens;
	/**
	 * [n_extra], in ascending order of `first`, not overlapping.  Each begins before n_tokens and may end after it:
	 * always pass an extra whole, because its n_tokens is part of the identity.
	 */
	const struct paged_extra *extra;
	size_t n_extra;
	/**
	 * Instead of salt and extra: [n_tokens / page_size] keys, each a collision-free hash of the whole
	 * prefix up to the end of its page, for example vLLM's SHA-256 block hashes.  n_tokens is then a multiple of
	 * the page size.  Prefixes with keys never match prefixes with tokens.
	 *
	 * `tokens` may be given with keys.  They are not part of the identity: paged_publish stores them for programs
	 * that watch the index (paged_watch.h), such as paged-events(8), whose subscribers place the pages by them.
	 */
	const uint8_t (*keys)[PAGED_DIGEST_SIZE];
};

/**
 * paged_salt - SHA-256 of n strings, each preceded by its length in bytes as 8 bytes, least significant first
 *
 * @param[out] salt   [PAGED_DIGEST_SIZE]
 * @param[in]  parts  [n], for example a model, an adapter and a tenant; NULL with n 0
 */
void paged_salt(uint8_t *salt, size_t n, const char *const *parts);

/**
 * paged_model_allowed - whether a model of some name may use a pool
 *
 * @param[in] setting  paged_pool_info.model: "name" or "name@revision"; "" or NULL allows every model
 * @param[in] name     what the engine loads: a name of the Hugging Face Hub, a directory or a GGUF file; NULL as ""
 *
 * The setting's name is the whole of `name`, or the end of it that follows a '/'.  The case of ASCII letters, '/' at
 * the end and ".gguf" make no difference; the revision is not compared.  "Llama-3@v1" allows "meta/llama-3" and
 * "/models/Llama-3.gguf", but not "Llama-3-Instruct".
 *
 * Weights of one geometry fit each other's pages, so an engine that shares prefixes must refuse a pool that does not
 * allow its model.
 */
bool paged_model_allowed(const char *setting, const char *name);

/**
 * paged_prefix_match - find the length of the longest published part of a prefix
 *
 * Reads shared memory only: no request and no lock.  The result is a hint,
 * because pages may be evicted before paged_seq_start() takes them.
 *
 * @param[in]  prefix    required
 * @param[out] n_tokens  a multiple of the page size; may equal prefix->n_tokens
 * @retval PAGED_ERR_INVALID  the prefix is not what struct paged_prefix documents
 * @retval PAGED_ERR_GONE     the daemon died, or ended this session; noticed within a second
 *
 * Threads: any, at the same time.  Blocks: never.
 */
enum paged_status paged_prefix_match(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t *n_tokens);

/**
 * paged_prefix_wait - sleep until the first n_tokens of a prefix are published, or timeout_ms have passed
 *
 * Sends no request.  For a worker that waits until another one has computed the
 * prompt that both need.
 *
 * @param[in] n_tokens  rounded down to whole pages
 * @retval PAGED_ERR_TIMEOUT      fewer tokens are published after timeout_ms
 * @retval PAGED_ERR_LIMIT        n_tokens exceeds the prefix or the pool's max_length
 * @retval PAGED_ERR_UNSUPPORTED  the pool publishes nothing (publish = no)
 * @retval PAGED_ERR_GONE         the daemon died, or ended this session; noticed within a second
 *
 * Threads: any; other calls on the client proceed meanwhile.
 */
enum paged_status paged_prefix_wait(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t n_tokens,
				    uint32_t timeout_ms);

/** A sequence to start. */
struct paged_start {
	/** NULL: the sequence starts empty. */
	const struct paged_prefix *prefix;
	/** As in struct paged_seq_params. */
	const char *tag;
	/** Share at most this many tokens, rounded down to whole pages.  0: all that match. */
	uint32_t max_tokens;
	/** Capacity to reserve, tokens.  0: that of the shared pages. */
	uint32_t reserve;
	uint32_t reserved[4]; /* 0 */
};

/**
 * paged_seq_start - create n sequences on their longest published prefixes, and reserve their capacity
 *
 * All or nothing; one request, except where the prefixes together have more
 * than 14,000 pages.  If a matched page is evicted before the request arrives, the library
 * matches again, up to three times, and then shares nothing.
 *
 * If a whole prompt is shared, its last token's query is still to be computed:
 * plan it with q_len 1 and PAGED_ROW_NO_APPEND, because its K and V exist.
 *
 * After PAGED_ERR_TIMEOUT the library erases the sequences when the late reply
 * arrives.
 *
 * @param[out] ids       [n], written on PAGED_OK only
 * @param[out] n_shared  [n] tokens that each sequence starts with; NULL: not wanted
 * @retval PAGED_ERR_FULL   the pool lacks slots or pages for all of them; none was created
 * @retval PAGED_ERR_QUOTA  the session's tenant may not have so many pages, shared ones included; none was created
 * @retval PAGED_ERR_LIMIT  `reserve` exceeds the pool's max_length, or a tag is too long
 *
 * Blocks: up to timeout_ms for each request.
 */
enum paged_status paged_seq_start(struct paged_pool *pool, size_t n, const struct paged_start *starts,
				  paged_seq_id *ids, uint32_t *n_shared);

/** A sequence to publish. */
struct paged_publish {
	paged_seq_id seq;
	/** The content of the sequence's first n_tokens tokens. */
	const struct paged_prefix *prefix;
};

/**
 * paged_seq_publish - let other sequences share the whole pages of the first prefix->n_tokens tokens
 *
 * The caller promises that the K and V of these tokens have been written, in all
 * layers.  From now on they cannot be written.  Pass the whole prefix each time,
 * at any interval; only what is not yet published is sent.
 *
 * The call never waits.  What cannot be sent now (four publishes have no reply
 * yet, or another thread uses the client) is sent by a later call; this is not an error.
 * paged_seq_info.published tells how far publishing has come, and .publish_end why it has not come to the end.  What is
 * published can be found.  It gets less if a page that another sequence has published first is evicted, or if a page
 * loses its place in the index (SECURITY.md); then the next call publishes these pages again.  Where a thousand pages
 * are concerned at once, this can take some turns of the daemon.  If a sequence has given back pages past what is
 * published, none of it counts as published any more.
 *
 * If another sequence has published the same prefix, its pages stand for it and
 * those of this sequence stay private.
 *
 * @retval PAGED_ERR_CAPACITY     prefix->n_tokens exceeds a sequence's capacity; nothing was sent
 * @retval PAGED_ERR_PERM         a sequence belongs to another session; nothing was sent
 * @retval PAGED_ERR_STALE        an id names no live sequence; nothing was sent
 * @retval PAGED_ERR_LIMIT        n exceeds PAGED_MAX_REQUEST_SEQS
 * @retval PAGED_ERR_UNSUPPORTED  the pool publishes nothing (publish = no)
 */
enum paged_status paged_seq_publish(struct paged_pool *pool, size_t n, const struct paged_publish *publishes);

/**
 * paged_batch_publish - paged_seq_publish(), as soon as the device has done all work put on the batch's stream so far
 *
 * For a pool in host memory: paged_seq_publish() at once.  On a GPU, the call
 * copies what it needs of the prefixes into memory of the batch and records an
 * event on the stream.  Later calls on the batch (publish, plan, validate,
 * finish, destroy) test the event without waiting, and send what was reached.  If that
 * memory is full, less is published; a later call with the same prefixes
 * publishes the rest.  What is queued for a sequence is dropped if the sequence is truncated,
 * also inside a page and by another member of the session, trimmed, erased or given away.
 *
 * @retval PAGED_ERR_UNSUPPORTED  also: the stream is being captured: publish after each replay
 * @retval PAGED_ERR_BACKEND      the driver failed
 * Other statuses as for paged_seq_publish().
 */
enum paged_status paged_batch_publish(struct paged_batch *batch, size_t n, const struct paged_publish *publishes);

/**
 * paged_batch_fork - create children[i] with the first n_tokens[i] tokens of parents[i]
 *
 * Whole pages are shared; parent and child cannot write them from now on.  A
 * partial last page is copied for each child on the batch's stream, so the parent may
 * go on writing its own.  Plan the children on this batch, or on another one
 * after paged_batch_wait().  To fork a parent 64 times, pass it 64 times.
 * On a GPU, call paged_batch_finish() before a parent is truncated or erased, because the copies read its last page.
 * Children have the capacity of their pages: reserve more, or let the plan do it.
 *
 * @param[out] children  [n], written on PAGED_OK only
 * @retval PAGED_ERR_CAPACITY     n_tokens exceeds a parent's capacity
 * @retval PAGED_ERR_INVALID      a parent has given back the page that n_tokens ends in, or later ones
 * @retval PAGED_ERR_FULL         the pool lacks slots, or pages for the copies; nothing was created
 * @retval PAGED_ERR_QUOTA        the session's tenant may not have the pages for the copies; nothing was created
 * @retval PAGED_ERR_LIMIT        n exceeds PAGED_MAX_REQUEST_SEQS, or the children have more than 2^20 pages in all
 * @retval PAGED_ERR_PERM         a parent belongs to another session
 * @retval PAGED_ERR_STALE        an id names no live sequence
 * @retval PAGED_ERR_UNSUPPORTED  the stream is being captured: fork before the replay
 * @retval PAGED_ERR_BACKEND      the driver failed; the children were erased
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_batch_fork(struct paged_batch *batch, size_t n, const paged_seq_id *parents,
				   const uint32_t *n_tokens, paged_seq_id *children);

/**
 * paged_seq_trim - give the whole pages before token items[i].n_tokens of each sequence back
 *
 * For attention with a sliding window: what no query can reach any more need not be kept, so a sequence of any length
 * takes the memory of its window.  Positions do not change: a trimmed sequence has the same length and capacity, and
 * appending goes on where it was.  Published pages stay in the cache for other sequences until they are evicted, and
 * pages that another sequence shares stay its own.
 *
 * Attention over a trimmed sequence reads no key before its first page, as if paged_batch_row.kv_first were there.
 * The mask is not changed otherwise: trim only what the window of every later query excludes.  What was given back
 * cannot be kept by paged_seq_truncate(), forked or published.  If the part after it is published, the sequence goes
 * on publishing; else, paged_seq_publish() passes over it.
 *
 * By the call the session promises that none of its work on these pages is outstanding, as for paged_seq_truncate():
 * on a GPU, call paged_batch_finish() first.  Plan again afterwards; a plan of another session that reads the
 * sequence becomes PAGED_ERR_STALE, as paged_batch_validate() reports.  A plan that another session makes afterwards
 * begins at the first page too, with no error: a reader that needs the tokens before it compares
 * paged_seq_info.n_trimmed with what it expects.
 *
 * All or nothing; absolute, so it may be repeated: a sequence that has given more back does not change.
 *
 * @param[in] items  [n] n_tokens: the first token to keep; n_ahead 0
 * @retval PAGED_ERR_CAPACITY  n_tokens exceeds a sequence's capacity
 * @retval PAGED_ERR_LIMIT     n exceeds PAGED_MAX_REQUEST_SEQS
 * @retval PAGED_ERR_PERM      a sequence belongs to another session
 * @retval PAGED_ERR_STALE     an id names no live sequence
 * @retval PAGED_ERR_INVALID   a sequence is named twice, or n_ahead is not 0
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_seq_trim(struct paged_client *client, size_t n, const struct paged_seq_item *items);

/**
 * paged_prefix_pin - evict the published part of a prefix only after all pages that are not pinned
 *
 * If the end of it is evicted all the same, the pin is one of what is left, and only that counts.
 *
 * @param[in]  seconds   from now on, at most max-pin-time of pagedd.conf(5), and a year for administrators; replaces
 *                       an earlier pin of the session's tenant.  0: unpin
 * @param[out] n_tokens  tokens that were found and are pinned; NULL: not wanted
 * @retval PAGED_ERR_LIMIT  more pages than the pool's pin-limit (pagedd.conf(5)) would be pinned, more than 8192, or
 *                          for too long
 * @retval PAGED_ERR_QUOTA  more than the tenant's share of pins
 * @retval PAGED_ERR_STALE  pages of the prefix were evicted during each of three attempts
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_prefix_pin(struct paged_pool *pool, const struct paged_prefix *prefix, uint32_t seconds,
				   uint32_t *n_tokens);

/**
 * paged_prefix_pages - list the published pages of a prefix
 *
 * Reads shared memory only: no request and no lock.  As with paged_prefix_match(), pages may be evicted at any time
 * until a sequence or a hold has them.
 *
 * @param[in]  n_max    room in pages and serials; paged_prefix_match() tells how many tokens are published
 * @param[out] pages    [n_max] physical pages, from the beginning of the prefix
 * @param[out] serials  [n_max] of these pages: a page that is published again gets another serial
 * @param[out] n_p      number of pages written
 * @retval PAGED_ERR_INVALID  the prefix is not what struct paged_prefix documents, or an argument is NULL
 *
 * Threads: any, at the same time.  Blocks: never.
 */
enum paged_status paged_prefix_pages(struct paged_pool *pool, const struct paged_prefix *prefix, size_t n_max,
				     uint32_t *pages, uint64_t *serials, size_t *n_p);

/**
 * paged_pages_hold - keep published pages from eviction
 *
 * For a program that copies pages elsewhere: from now on, the pages do not change and are in no other use, until
 * paged_seq_erase() of the returned id releases them, or the session ends.  They are then cached, and the last to be
 * evicted.  They stay published as long as the pages before them in their prefix: hold these too, if others are to find
 * them.  paged_prefix_pages() and paged_admin_prefixes() list pages and their serials.
 *
 * The pages may be in any order and of any prefixes, so the hold is no sequence that can be planned, appended to,
 * reserved, truncated, trimmed, forked, published or given: such calls fail with PAGED_ERR_PERM.  To read K and V, plan
 * a row of explicit pages (paged_batch_row.pages), or read the pages in the pool's memory.  paged_seq_read() lists the
 * pages in the order of this call.
 *
 * What is held cannot be used for new tokens: all holds and pins of a pool have at most pin-limit pages in all
 * (pagedd.conf(5)), where a page counts once in each hold.  A hold takes a slot as a sequence does.
 *
 * After PAGED_ERR_TIMEOUT the library erases the hold when the late reply arrives.
 *
 * @param[in]  n        1 to PAGED_MAX_HOLD_PAGES, and at most max_length / page_size; make several holds of more
 * @param[in]  pages    [n] each once
 * @param[in]  serials  [n] of these pages
 * @param[out] hold_p   written on PAGED_OK only
 * @retval PAGED_ERR_STALE    a page was evicted, or published again; nothing is held.  List the pages again
 * @retval PAGED_ERR_LIMIT    more than pin-limit, or too large a hold
 * @retval PAGED_ERR_FULL     the pool has no free slot
 * @retval PAGED_ERR_QUOTA    the session's tenant would be charged more than its limit
 * @retval PAGED_ERR_INVALID  n is 0, or a page is named twice
 * @retval PAGED_ERR_RANGE    a page's number exceeds the pool
 * @retval PAGED_ERR_PERM     an observer holds nothing
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_pages_hold(struct paged_pool *pool, size_t n, const uint32_t *pages, const uint64_t *serials,
				   paged_seq_id *hold_p);

struct paged_give_params {
	size_t struct_size;
	/** Until when the sequences can be adopted; at most max-ticket-time of pagedd.conf(5).  0: 10,000, or that */
	uint32_t timeout_ms;
	/** PAGED_GIVE_SESSION, PAGED_GIVE_UID; 0: every session that may use the pool and has the ticket. */
	uint32_t flags;
	uint32_t session; /* with PAGED_GIVE_SESSION: the only session that may adopt */
	uint32_t uid;     /* with PAGED_GIVE_UID: the only user whose processes may adopt */
};

/** A bearer secret, valid once: anyone who may use the pool and holds these bytes can adopt the sequences. */
struct paged_ticket {
	uint8_t bytes[PAGED_TICKET_SIZE];
};

/**
 * paged_seq_give - let another session adopt n sequences
 *
 * From now on the sequences can be read, by any session, but not changed: this
 * session's appends, reserves, truncates, erases, publishes and forks of them fail with
 * PAGED_ERR_PERM.  Their ids and pages stay when they are adopted.  If
 * nobody adopts them before the timeout, they return to this session; if it has
 * ended by then, they end.
 *
 * The caller promises that no work of its session that writes to the sequences is
 * outstanding.  On a GPU: call paged_batch_finish() first.
 *
 * After PAGED_ERR_TIMEOUT the sequences may have been given.  Nobody has the ticket then, so they return
 * after params->timeout_ms.
 *
 * @param[in]  seqs     [n] of this pool and session, each once
 * @param[in]  lengths  [n] written tokens, which paged_seq_adopt() returns
 * @param[in]  params   NULL: defaults
 * @param[out] ticket   written on PAGED_OK only
 * @retval PAGED_ERR_CAPACITY  a length exceeds the sequence's capacity; nothing was given
 * @retval PAGED_ERR_INVALID   unknown flags, a sequence of another pool, one that is named twice, or a length that ends
 *                             before the pages that the sequence has kept (paged_seq_trim())
 * @retval PAGED_ERR_NOENT     no active session has the number params->session
 * @retval PAGED_ERR_PERM      a sequence belongs to another session, or was given away
 * @retval PAGED_ERR_LIMIT     n exceeds PAGED_MAX_REQUEST_SEQS, the session has PAGED_MAX_TICKETS, or timeout_ms
 *                             exceeds max-ticket-time
 * @retval PAGED_ERR_QUOTA     the session's tenant has its share of open tickets
 * @retval PAGED_ERR_STALE     an id names no live sequence
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_seq_give(struct paged_pool *pool, size_t n, const paged_seq_id *seqs, const uint32_t *lengths,
				 const struct paged_give_params *params, struct paged_ticket *ticket);

/**
 * paged_seq_adopt - make this session the owner of a ticket's sequences
 *
 * Needs no free page and no free slot of the pool.  The sequences are planned, appended to and
 * published as before.  Plans that the giver has made of them are stale
 * (paged_batch_validate()).
 *
 * After PAGED_ERR_TIMEOUT the sequences may be this session's: if the request still arrives, the ticket is
 * used.  They end with the session, at the latest.
 *
 * @param[in]  n_max    room in seqs and lengths; PAGED_MAX_REQUEST_SEQS is always enough
 * @param[out] seqs     [n_max] in the order in which they were given
 * @param[out] lengths  [n_max] as the giver passed them; NULL: not wanted
 * @param[out] n_p      number of sequences.  All are written on PAGED_OK only
 * @retval PAGED_ERR_GONE     the daemon has ended, and with it the ticket and its sequences, expired or not; the next
 *                            daemon answers PAGED_ERR_NOENT: compute the sequences again.  Or the daemon has ended
 *                            this session; then the ticket stays valid
 * @retval PAGED_ERR_NOENT    the ticket is unknown, used or expired, of another pool, or of an earlier daemon
 * @retval PAGED_ERR_PERM     the ticket is for another session or user; it stays valid
 * @retval PAGED_ERR_INVALID  the ticket has more than n_max sequences; it stays valid
 * @retval PAGED_ERR_QUOTA    the session's tenant may not have so many pages or sequences; the ticket stays valid
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_seq_adopt(struct paged_pool *pool, const struct paged_ticket *ticket, size_t n_max,
				  paged_seq_id *seqs, uint32_t *lengths, size_t *n_p);

/**
 * paged_ticket_cancel - take back the sequences of a ticket that this session gave
 *
 * @retval PAGED_ERR_NOENT  the ticket is unknown, used or expired: another session may have adopted the sequences
 * @retval PAGED_ERR_PERM   another session gave them
 *
 * Blocks: up to timeout_ms.
 */
enum paged_status paged_ticket_cancel(struct paged_client *client, const struct paged_ticket *ticket);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
