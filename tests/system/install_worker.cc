/* SPDX-License-Identifier: Apache-2.0 */
/* A C++ program on the installed header: one prefill step on the daemon's pages. */
#include <pagedclient.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace
{

constexpr uint32_t n_tokens = 20;

paged_tensor
tensor(std::vector<float> &values, uint32_t n_heads, uint32_t dim)
{
	return { .data = values.data(), .dtype = PAGED_F32, .n_heads = n_heads, .dim = dim };
}

/* The same step with a sliding window of one: each token sees itself alone. */
int
windowed(paged_pool *pool, paged_batch *batch, const paged_tensor &q, std::vector<float> &out)
{
	int32_t window = 1;
	const paged_array names[] = { { .name = "window", .data = &window, .dtype = PAGED_I32 } };
	paged_mod_set_params params = { .struct_size = sizeof(params) };
	paged_attention_params with = { .struct_size = sizeof(with) };
	paged_mod *mask = nullptr;
	paged_mod_set *mods = nullptr;
	const std::size_t n = out.size() / n_tokens;
	const paged_tensor to = tensor(out, q.n_heads, static_cast<uint32_t>(n) / q.n_heads);

	if (paged_mod_parse(pool, PAGED_MOD_MASK, "sliding_window", 1, names, &mask) != PAGED_OK)
		return 1;
	params.mask = mask;
	if (paged_mod_set_create(batch, &params, &mods) != PAGED_OK ||
	    paged_mod_set_bind(mods, 1, names, nullptr) != PAGED_OK)
		return 1;
	with.mod_set = mods;
	if (paged_attention(batch, 0, &q, &to, &with) != PAGED_OK)
		return 1;
	for (std::size_t i = 0; i < out.size(); i++)
		if (std::fabs(out[i] - static_cast<float>(i / n)) > 1e-4f) {
			std::fprintf(stderr, "windowed out[%zu] = %g\n", i, static_cast<double>(out[i]));
			return 1;
		}
	return 0;
}

int
step(paged_client *client)
{
	struct paged_pool_info info = { .struct_size = sizeof(info) };
	paged_batch *batch = nullptr;
	paged_pool *pool = nullptr;
	paged_seq_id seq = 0;

	if (paged_pool_open(client, "llama", &pool) != PAGED_OK || paged_pool_get_info(pool, &info) != PAGED_OK)
		return 1;
	const paged_seq_params params = { .pool = pool, .n_tokens = n_tokens };
	if (paged_seq_create(client, 1, &params, &seq) != PAGED_OK ||
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
	return windowed(pool, batch, tq, out);
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
