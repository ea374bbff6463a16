/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/model.h"

#include <stdio.h>
#include <stdlib.h>

/* Bytes touched between two reports of progress. */
#define PROGRESS_BYTES (1u << 20)
#define PAGE_BYTES 4096u
/* No dimension of a model comes near; products of two then fit 64 bits. */
#define MAX_DIMENSION (1u << 24)

/* What is being loaded; n_used counts tensors that were asked for. */
struct loader {
	const struct gguf *gguf;
	uint64_t n_used;
	struct error *error;
};

static bool
find(struct loader *loader, const char *name, uint32_t n_columns, uint32_t n_rows, const struct gguf_tensor **tensor_p)
{
	const struct gguf_tensor *tensor = gguf_tensor(loader->gguf, name);

	if (tensor == NULL)
		return error_set(loader->error, "%s: tensor %s is missing", gguf_path(loader->gguf), name);
	if (tensor->dims[0] != n_columns || tensor->dims[1] != n_rows || tensor->n_dims > 2)
		return error_set(loader->error, "%s: tensor %s is %llu x %llu in %u dimensions, %u x %u is expected",
				 gguf_path(loader->gguf), name, (unsigned long long)tensor->dims[0],
				 (unsigned long long)tensor->dims[1], tensor->n_dims, n_columns, n_rows);
	loader->n_used++;
	*tensor_p = tensor;
	return true;
}

static bool
find_matrix(struct loader *loader, const char *name, uint32_t n_columns, uint32_t n_rows, struct matrix *matrix)
{
	const struct gguf_tensor *tensor;

	if (!find(loader, name, n_columns, n_rows, &tensor))
		return false;
	*matrix = (struct matrix){ .data = tensor->data,
				   .type = tensor->type,
				   .n_rows = n_rows,
				   .n_columns = n_columns,
				   .row_bytes = tensor->size / n_rows };
	return true;
}

static bool
find_vector(struct loader *loader, const char *name, uint32_t n, const float **vector_p)
{
	const struct gguf_tensor *tensor;

	if (!find(loader, name, n, 1, &tensor))
		return false;
	if (tensor->type != GGUF_TYPE_F32)
		return error_set(loader->error, "%s: tensor %s has type %s, F32 is expected", gguf_path(loader->gguf),
				 name, gguf_type_name(tensor->type));
	*vector_p = tensor->data;
	return true;
}

static bool
load_layer(struct loader *loader, const struct model *model, uint32_t number, struct model_layer *layer)
{
	uint32_t n_q = model->n_heads * model->head_dim, n_kv = model->n_kv_heads * model->head_dim;
	const struct {
		const char *part;
		uint32_t n_columns, n_rows;
		struct matrix *matrix;
	} matrices[] = {
		{ "attn_q", model->n_embedding, n_q, &layer->q },
		{ "attn_k", model->n_embedding, n_kv, &layer->k },
		{ "attn_v", model->n_embedding, n_kv, &layer->v },
		{ "attn_output", n_q, model->n_embedding, &layer->o },
		{ "ffn_gate", model->n_embedding, model->n_ffn, &layer->gate },
		{ "ffn_up", model->n_embedding, model->n_ffn, &layer->up },
		{ "ffn_down", model->n_ffn, model->n_embedding, &layer->down },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
		snprintf(name, sizeof(name), "blk.%u.%s.weight", number, matrices[i].part);
		if (!find_matrix(loader, name, matrices[i].n_columns, matrices[i].n_rows, matrices[i].matrix))
			return false;
	}
	snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", number);
	if (!find_vector(loader, name, model->n_embedding, &layer->attention_norm))
		return false;
	snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", number);
	return find_vector(loader, name, model->n_embedding, &layer->ffn_norm);
}

/* A tensor that nothing asked for would be left out of the sums, silently. */
static bool
refuse_others(struct loader *loader, const struct model *model)
{
	static const char *const parts[] = { "attn_q", "attn_k",   "attn_v",    "attn_output", "ffn_gate",
					     "ffn_up", "ffn_down", "attn_norm", "ffn_norm" };
	uint64_t n = gguf_n_tensors(loader->gguf);

	for (uint64_t i = 0; i < n && loader->n_used != n; i++) {
		struct gguf_string name = gguf_tensor_at(loader->gguf, i)->name;
		char text[64], part[32] = "";
		unsigned int layer;
		bool known = gguf_string_is(name, "token_embd.weight") || gguf_string_is(name, "output_norm.weight") ||
			     gguf_string_is(name, "output.weight");

		snprintf(text, sizeof(text), "%.*s", (int)(name.size > 60 ? 60 : name.size), name.data);
		if (sscanf(text, "blk.%9u.%31[a-z_].weight", &layer, part) == 2 && layer < model->n_layers)
			for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
				snprintf(text, sizeof(text), "blk.%u.%s.weight", layer, parts[p]);
				known = known || gguf_string_is(name, text);
			}
		if (!known)
			return error_set(loader->error, "%s: tensor %.*s is no part of a plain Llama model",
					 gguf_path(loader->gguf), (int)(name.size > 64 ? 64 : name.size), name.data);
	}
	return true;
}

static bool
load_tensors(struct loader *loader, struct model *model)
{
	if (!find_matrix(loader, "token_embd.weight", model->n_embedding, model->n_vocabulary, &model->embedding) ||
	    !find_vector(loader, "output_norm.weight", model->n_embedding, &model->output_norm))
		return false;
	model->output = model->embedding;
	if (gguf_tensor(loader->gguf, "output.weight") != NULL &&
	    !find_matrix(loader, "output.weight", model->n_embedding, model->n_vocabulary, &model->output))
		return false;
	for (uint32_t i = 0; i < model->n_layers; i++)
		if (!load_layer(loader, model, i, &model->layers[i]))
			return false;
	return refuse_others(loader, model);
}

static bool
check_kind(const struct gguf *gguf, struct error *error)
{
	struct gguf_string text;

	if (!gguf_string(gguf, "general.architecture", &text, error))
		return false;
	if (!gguf_string_is(text, "llama"))
		return error_set(error, "%s: architecture \"%.*s\" is not supported; llama is", gguf_path(gguf),
				 (int)(text.size > 64 ? 64 : text.size), text.data);
	if (!gguf_has(gguf, "llama.rope.scaling.type"))
		return true;
	if (!gguf_string(gguf, "llama.rope.scaling.type", &text, error))
		return false;
	return gguf_string_is(text, "none") ||
	       error_set(error, "%s: rotary scaling \"%.*s\" is not supported", gguf_path(gguf),
			 (int)(text.size > 64 ? 64 : text.size), text.data);
}

static bool
read_numbers(const struct gguf *gguf, struct model *model, struct error *error)
{
	const struct {
		const char *key;
		uint32_t *value;
	} numbers[] = {
		{ "llama.block_count", &model->n_layers },
		{ "llama.embedding_length", &model->n_embedding },
		{ "llama.feed_forward_length", &model->n_ffn },
		{ "llama.attention.head_count", &model->n_heads },
		{ "llama.attention.head_count_kv", &model->n_kv_heads },
		{ "llama.context_length", &model->n_context },
	};
	struct gguf_array tokens;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!gguf_u32(gguf, numbers[i].key, numbers[i].value, error))
			return false;
		if (*numbers[i].value == 0 || *numbers[i].value > MAX_DIMENSION)
			return error_set(error, "%s: %s = %u, 1 to %u are possible", gguf_path(gguf), numbers[i].key,
					 *numbers[i].value, MAX_DIMENSION);
	}
	if (!gguf_f32(gguf, "llama.attention.layer_norm_rms_epsilon", &model->norm_epsilon, error) ||
	    !gguf_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, error))
		return false;
	if (tokens.n_items == 0 || tokens.n_items > MAX_DIMENSION)
		return error_set(error, "%s: vocabulary of %llu tokens, 1 to %u are possible", gguf_path(gguf),
				 (unsigned long long)tokens.n_items, MAX_DIMENSION);
	model->n_vocabulary = (uint32_t)tokens.n_items;
	model->rope_base = 10000;
	return !gguf_has(gguf, "llama.rope.freq_base") ||
	       gguf_f32(gguf, "llama.rope.freq_base", &model->rope_base, error);
}

static bool
check_heads(const struct gguf *gguf, struct model *model, struct error *error)
{
	uint32_t rope_dim;

	model->head_dim = model->n_embedding / model->n_heads;
	if (gguf_has(gguf, "llama.attention.key_length") &&
	    !gguf_u32(gguf, "llama.attention.key_length", &model->head_dim, error))
		return false;
	rope_dim = model->head_dim;
	if (gguf_has(gguf, "llama.rope.dimension_count") &&
	    !gguf_u32(gguf, "llama.rope.dimension_count", &rope_dim, error))
		return false;
	if (model->n_heads % model->n_kv_heads != 0)
		return error_set(error, "%s: %u query heads do not share %u KV heads evenly", gguf_path(gguf),
				 model->n_heads, model->n_kv_heads);
	if (model->head_dim == 0 || model->head_dim % 2 != 0 || model->head_dim > 1024 || rope_dim != model->head_dim ||
	    model->n_heads > MAX_DIMENSION / model->head_dim)
		return error_set(error, "%s: %u heads of %u with %u rotary dimensions are not supported",
				 gguf_path(gguf), model->n_heads, model->head_dim, rope_dim);
	/* Each layer has tensors, so the file bounds what is allocated. */
	if (model->n_layers > gguf_n_tensors(gguf))
		return error_set(error, "%s: %u layers, but %llu tensors", gguf_path(gguf), model->n_layers,
				 (unsigned long long)gguf_n_tensors(gguf));
	return true;
}

static void
touch_tensors(const struct gguf *gguf, model_progress_fn progress, void *argument)
{
	uint64_t all = 0, done = 0, reported = 0;
	volatile uint8_t sink;

	for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++)
		all += gguf_tensor_at(gguf, i)->size;
	for (uint64_t i = 0; i < gguf_n_tensors(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

		for (uint64_t at = 0; at < tensor->size; at += PAGE_BYTES) {
			sink = ((const uint8_t *)tensor->data)[at];
			if (progress != NULL && done + at >= reported + PROGRESS_BYTES)
				progress(argument, reported = done + at, all);
		}
		done += tensor->size;
	}
	(void)sink;
	if (progress != NULL)
		progress(argument, all, all);
}

bool
model_create(const struct gguf *gguf, model_progress_fn progress, void *argument, struct model **model_p,
	     struct error *error)
{
	struct model *model = calloc(1, sizeof(*model));
	struct loader loader = { .gguf = gguf, .error = error };

	if (model == NULL)
		return error_set(error, "%s: no memory for the model", gguf_path(gguf));
	if (!check_kind(gguf, error) || !read_numbers(gguf, model, error) || !check_heads(gguf, model, error))
		goto err_free;
	model->layers = calloc(model->n_layers, sizeof(*model->layers));
	if (model->layers == NULL) {
		error_set(error, "%s: no memory for %u layers", gguf_path(gguf), model->n_layers);
		goto err_free;
	}
	if (!load_tensors(&loader, model))
		goto err_free;
	touch_tensors(gguf, progress, argument);
	*model_p = model;
	return true;

err_free:
	model_destroy(model);
	return false;
}

void
model_destroy(struct model *model)
{
	if (model == NULL)
		return;
	free(model->layers);
	free(model);
}
