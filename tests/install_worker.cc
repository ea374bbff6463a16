/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ program on the installed header: one prefill step on the daemon's pages. */
#include <pagedclient.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace
{

paged_tensor
tensor(std::vector<float> &values, uint32_t n_heads, uint32_t dim)
{
	return { .data = values.data(), .dtype = PAGED_F32, .n_heads = n_heads, .dim = dim };
}

int
step(paged_client *client)
{
	constexpr uint32_t n_tokens = 20;
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	paged_batch *batch = nullptr;
	paged_pool *pool = nullptr;
	paged_seq_id seq = 0;

	if (paged_pool_open(client, "llama", &pool) != PAGED_OK || paged_pool_info(pool, &info) != PAGED_OK ||
	    paged_seq_create(pool, 1, &seq) != PAGED_OK || paged_seq_reserve(pool, 1, &seq, &n_tokens) != PAGED_OK ||
	    paged_batch_create(pool, nullptr, &batch) != PAGED_OK)
		return 1;

	/* Equal keys: each token sees the mean of the values up to its own. */
	std::vector<float> k(n_tokens * info.n_kv_heads * info.k.dim, 1), v(n_tokens * info.n_kv_heads * info.v.dim);
	std::vector<float> q(k.size(), 1), out(v.size());
	for (uint32_t i = 0; i < v.size(); i++)
		v[i] = static_cast<float>(i / (v.size() / n_tokens));
	const paged_tensor tk = tensor(k, info.n_kv_heads, info.k.dim), tv = tensor(v, info.n_kv_heads, info.v.dim);
	const paged_tensor tq = tensor(q, info.n_kv_heads, info.k.dim), to = tensor(out, info.n_kv_heads, info.v.dim);
	const paged_batch_row row = { .seq = seq, .q_len = n_tokens, .kv_len = n_tokens };

	if (paged_batch_plan(batch, 1, &row) != PAGED_OK || paged_append(batch, 0, &tk, &tv, nullptr) != PAGED_OK ||
	    paged_attention(batch, 0, &tq, &to, nullptr) != PAGED_OK)
		return 1;
	for (uint32_t i = 0; i < out.size(); i++) {
		const double mean = static_cast<double>(i / (out.size() / n_tokens)) / 2;

		if (std::fabs(out[i] - mean) > 1e-4) {
			std::fprintf(stderr, "out[%u] = %g, not %g\n", i, out[i], mean);
			return 1;
		}
	}
	return 0;
}

} // namespace

int
main()
{
	paged_client *client = nullptr;
	int failed = paged_client_open(nullptr, nullptr, &client) != PAGED_OK || step(client) != 0;

	if (failed)
		std::fprintf(stderr, "%s\n", paged_client_error(client));
	paged_client_close(client);
	return failed;
}
