/* SPDX-License-Identifier: Apache-2.0 */
/* The command mask: prints the block mask of a mask mod as PyTorch does, with an embedded owner and a dummy pool. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagedctl/ctl.h"
#include "pagedctl/print.h"

/* Parses the whole text as a number within bounds. */
static bool
ctl_parse_number(const char *text, int64_t least, int64_t most, int64_t *number_p)
{
	char *end;

	errno = 0;
	*number_p = strtoll(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' && *number_p >= least && *number_p <= most;
}

static bool
ctl_mask_parse_count(const char *name, const char *value, uint32_t *count_p)
{
	int64_t number;

	if (!ctl_parse_number(value, 1, INT32_MAX, &number)) {
		ctl_usage("--%s %s: a number from 1 to %d", name, value, INT32_MAX);
		return false;
	}
	*count_p = (uint32_t)number;
	return true;
}

static bool
ctl_mask_parse_block(struct ctl_mask *mask, const char *value)
{
	char query[16];
	const char *x = strchr(value, 'x');
	size_t n = x != NULL ? (size_t)(x - value) : sizeof(query);

	if (n >= sizeof(query)) {
		ctl_usage("--block %s: two numbers with an x between, as in 128x64", value);
		return false;
	}
	memcpy(query, value, n);
	query[n] = '\0';
	return ctl_mask_parse_count("block", query, &mask->q_block) &&
	       ctl_mask_parse_count("block", x + 1, &mask->kv_block);
}

bool
ctl_mask_option(struct ctl_mask *mask, const char *name, const char *value)
{
	mask->any = true;
	if (strcmp(name, "q") == 0)
		return ctl_mask_parse_count(name, value, &mask->q);
	if (strcmp(name, "kv") == 0)
		return ctl_mask_parse_count(name, value, &mask->kv);
	if (strcmp(name, "q-block") == 0)
		return ctl_mask_parse_count(name, value, &mask->q_block);
	if (strcmp(name, "kv-block") == 0)
		return ctl_mask_parse_count(name, value, &mask->kv_block);
	if (strcmp(name, "heads") == 0)
		return ctl_mask_parse_count(name, value, &mask->heads);
	if (strcmp(name, "block") == 0)
		return ctl_mask_parse_block(mask, value);
	if (strcmp(name, "q-base") == 0) {
		if (ctl_parse_number(value, INT32_MIN, INT32_MAX, &mask->q_base))
			return true;
		ctl_usage("--q-base %s: a number from %d to %d", value, INT32_MIN, INT32_MAX);
		return false;
	}
	if (strchr(value, '=') == NULL || mask->n_sets == CTL_MAX_SETS) {
		ctl_usage("--set %s: %s", value,
			  strchr(value, '=') == NULL ? "a parameter and its value, as in window=4096"
						     : "too many parameters");
		return false;
	}
	mask->sets[mask->n_sets++] = value;
	return true;
}

/* The parameters of --set: int if the value is an integer, else float. */
struct parameters {
	struct paged_array arrays[CTL_MAX_SETS];
	char *names[CTL_MAX_SETS];
	union {
		int32_t i;
		float f;
	} values[CTL_MAX_SETS];
	uint32_t n;
};

static bool
ctl_mask_parse_parameter(struct parameters *parameters, const char *set)
{
	const char *value = strchr(set, '=') + 1;
	uint32_t n = parameters->n;
	int64_t integer;
	char *end;

	parameters->names[n] = strndup(set, (size_t)(value - 1 - set));
	if (parameters->names[n] == NULL)
		return false;
	parameters->n++;
	parameters->arrays[n] = (struct paged_array){ .name = parameters->names[n],
						      .dtype = PAGED_I32,
						      .data = &parameters->values[n] };
	if (ctl_parse_number(value, INT32_MIN, INT32_MAX, &integer)) {
		parameters->values[n].i = (int32_t)integer;
		return true;
	}
	parameters->arrays[n].dtype = PAGED_F32;
	parameters->values[n].f = strtof(value, &end);
	return end != value && *end == '\0';
}

/* The data to print. */
struct result {
	struct paged_block_mask_info info;
	struct paged_block_mask_row row;
	uint64_t n_full, n_partial, n_q_blocks, n_kv_blocks;
	const char *text; /* the mod's canonical text */
	char *picture;
};

static enum paged_status
ctl_mask_read(struct result *result, const struct paged_block_mask *mask)
{
	struct paged_block_lists lists = { .struct_size = sizeof(lists) };
	enum paged_status status;

	result->info.struct_size = sizeof(result->info);
	result->row.struct_size = sizeof(result->row);
	status = paged_block_mask_get_info(mask, &result->info);
	if (status == PAGED_OK)
		status = paged_block_mask_get_row(mask, 0, &result->row);
	if (status == PAGED_OK)
		status = paged_block_mask_lists(mask, &lists);
	if (status == PAGED_OK)
		status = paged_block_mask_picture(mask, 0, 0, 0, &result->picture);
	if (status != PAGED_OK)
		return status;
	result->n_full = lists.start[PAGED_BLOCKS_FULL][result->info.n_lists];
	result->n_partial = lists.start[PAGED_BLOCKS_PARTIAL][result->info.n_lists];
	result->n_q_blocks = (result->row.q_len + result->info.q_block - 1) / result->info.q_block;
	result->n_kv_blocks = (result->row.kv_len + result->info.kv_block - 1) / result->info.kv_block;
	return PAGED_OK;
}

static void
ctl_mask_print_table(const struct result *result)
{
	size_t length = strlen(result->picture);
	uint64_t n = result->info.n_lists * result->n_kv_blocks;

	printf("%s%s\n", result->picture, length != 0 && result->picture[length - 1] == '\n' ? "" : "\n");
	printf("%" PRIu32 " %s, %" PRIu64 " query %s of %" PRIu32 ", %" PRIu64 " KV %s of %" PRIu32 "\n",
	       result->info.n_heads, print_plural(result->info.n_heads, "head", "heads"), result->n_q_blocks,
	       print_plural(result->n_q_blocks, "block", "blocks"), result->info.q_block, result->n_kv_blocks,
	       print_plural(result->n_kv_blocks, "block", "blocks"), result->info.kv_block);
	printf("sparsity %.2f %%: %" PRIu64 " full, %" PRIu64 " partial, %" PRIu64 " empty\n", result->info.sparsity,
	       result->n_full, result->n_partial, n - result->n_full - result->n_partial);
}

static void
ctl_mask_print_json(const struct result *result)
{
	print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:s}", "expression", result->text, "q",
			     (json_int_t)result->row.q_len, "kv", (json_int_t)result->row.kv_len, "q_base",
			     (json_int_t)result->row.q_base, "heads", (json_int_t)result->info.n_heads, "q_block",
			     (json_int_t)result->info.q_block, "kv_block", (json_int_t)result->info.kv_block,
			     "sparsity", result->info.sparsity, "full", (json_int_t)result->n_full, "partial",
			     (json_int_t)result->n_partial, "picture", result->picture));
}

static enum ctl_exit
mask_print(struct ctl *ctl, struct paged_pool *pool, const struct parameters *parameters)
{
	const struct paged_batch_row row = { .q_len = ctl->mask.q,
					     .kv_len = ctl->mask.kv != 0 ? ctl->mask.kv : ctl->mask.q,
					     .q_base = ctl->mask.q_base,
					     .flags = PAGED_ROW_Q_BASE };
	const struct paged_block_mask_params params = {
		.struct_size = sizeof(params),
		.rows = &row,
		.n_rows = 1,
		.n_heads = ctl->mask.heads,
		.q_block = ctl->mask.q_block,
		.kv_block = ctl->mask.kv_block,
	};
	struct paged_block_mask *mask;
	struct result result = { .picture = NULL };
	struct paged_mod *mod;
	enum paged_status status;

	status = paged_mod_parse(pool, PAGED_MOD_MASK, ctl->operands[0], parameters->n, parameters->arrays, &mod);
	if (status == PAGED_OK)
		status = paged_block_mask_create(pool, &params, mod, parameters->n, parameters->arrays, &mask);
	if (status == PAGED_OK)
		status = ctl_mask_read(&result, mask);
	if (status != PAGED_OK)
		return ctl_fail(ctl, status);
	result.text = paged_mod_text(mod);
	if (ctl->json)
		ctl_mask_print_json(&result);
	else
		ctl_mask_print_table(&result);
	paged_free(result.picture);
	return CTL_OK;
}

enum ctl_exit
ctl_mask(struct ctl *ctl)
{
	const struct paged_pool_params token = {
		.struct_size = sizeof(token),
		.name = "none",
		.n_layers = 1,
		.n_kv_heads = 1,
		.k_dim = 1,
		.dtype = PAGED_F32,
		.page_size = 1,
		.n_pages = 1,
	};
	struct parameters parameters = { .n = 0 };
	enum ctl_exit code = CTL_USAGE;
	enum paged_status status;
	struct paged_pool *pool;

	if (ctl->mask.q == 0)
		return ctl_usage("mask needs --q, the number of query rows");
	for (uint32_t i = 0; i < ctl->mask.n_sets; i++)
		if (!ctl_mask_parse_parameter(&parameters, ctl->mask.sets[i])) {
			ctl_usage("--set %s: the value is no number", ctl->mask.sets[i]);
			goto out;
		}
	status = paged_client_open_embedded(&token, 1, NULL, &ctl->client);
	if (status == PAGED_OK)
		status = paged_pool_open(ctl->client, token.name, &pool);
	code = status == PAGED_OK ? mask_print(ctl, pool, &parameters) : ctl_fail(ctl, status);
out:
	for (uint32_t i = 0; i < parameters.n; i++)
		free(parameters.names[i]);
	return code;
}
