/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/llama/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/die.h"
#include "examples/llama/xalloc.h"

/* Bytes touched between two reports of progress. */
#define PROGRESS_BYTES (1u << 20)
/* Larger than any real model's dimension; products of two then fit 64 bits. */
#define MAX_DIMENSION (1u << 24)

/* State of loading. */
struct loader {
	const struct gguf *gguf;
	bool *used; /* [n_tensors] */
};

static struct matrix
loader_find_matrix(struct loader *loader, const char *name, uint32_t n_columns, uint32_t n_rows)
{
	const struct gguf_tensor *tensor = gguf_tensor(loader->gguf, name);

	if (tensor == NULL)
		die("%s: tensor %s is missing", loader->gguf->path, name);
	if (tensor->dims[0] != n_columns || tensor->dims[1] != n_rows || tensor->n_dims > 2)
		die("%s: tensor %s is %llu x %llu in %u dimensions, %u x %u is expected", loader->gguf->path, name,
		    (unsigned long long)tensor->dims[0], (unsigned long long)tensor->dims[1], tensor->n_dims, n_columns,
		    n_rows);
	loader->used[tensor - loader->gguf->tensors] = true;
	return (struct matrix){ .data = tensor->data,
				.type = tensor->type,
				.n_rows = n_rows,
				.n_columns = n_columns,
				.row_bytes = tensor->size / n_rows };
}

static const float *
loader_find_vector(struct loader *loader, const char *name, uint32_t n)
{
	struct matrix vector = loader_find_matrix(loader, name, n, 1);

	if (vector.type != GGUF_TYPE_F32)
		die("%s: tensor %s has type %s, F32 is expected", loader->gguf->path, name,
		    gguf_type(vector.type)->name);
	return (const float *)vector.data;
}

static void
model_load_layer(struct loader *loader, const struct model *model, uint32_t number, struct model_layer *layer)
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
		*matrices[i].matrix = loader_find_matrix(loader, name, matrices[i].n_columns, matrices[i].n_rows);
	}
	snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", number);
	layer->attention_norm = loader_find_vector(loader, name, model->n_embedding);
	snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", number);
	layer->ffn_norm = loader_find_vector(loader, name, model->n_embedding);
}

static void
model_load_tensors(const struct gguf *gguf, struct model *model)
{
	struct loader loader = { gguf, xcalloc(gguf->n_tensors, sizeof(bool)) };

	model->embedding = loader_find_matrix(&loader, "token_embd.weight", model->n_embedding, model->n_vocabulary);
	model->output_norm = loader_find_vector(&loader, "output_norm.weight", model->n_embedding);
	model->output = model->embedding;
	if (gguf_tensor(gguf, "output.weight") != NULL)
		model->output = loader_find_matrix(&loader, "output.weight", model->n_embedding, model->n_vocabulary);
	for (uint32_t i = 0; i < model->n_layers; i++)
		model_load_layer(&loader, model, i, &model->layers[i]);
	/* Refuse a tensor that no line above names: computation would silently ignore it. */
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		struct gguf_string name = gguf->tensors[i].name;

		if (!loader.used[i])
			die("%s: tensor %.*s is no part of a plain Llama model", gguf->path, GGUF_SHOWN(name));
	}
	free(loader.used);
}

static void
model_check_architecture(const struct gguf *gguf)
{
	struct gguf_string text = gguf_string(gguf, "general.architecture");

	if (!gguf_string_is(text, "llama"))
		die("%s: architecture \"%.*s\" is not supported; llama is", gguf->path, GGUF_SHOWN(text));
	if (!gguf_has(gguf, "llama.rope.scaling.type"))
		return;
	text = gguf_string(gguf, "llama.rope.scaling.type");
	if (!gguf_string_is(text, "none"))
		die("%s: rotary scaling \"%.*s\" is not supported", gguf->path, GGUF_SHOWN(text));
}

static void
model_read_numbers(const struct gguf *gguf, struct model *model)
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
	struct gguf_array tokens = gguf_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING);

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		*numbers[i].value = gguf_u32(gguf, numbers[i].key);
		if (*numbers[i].value == 0 || *numbers[i].value > MAX_DIMENSION)
			die("%s: %s = %u, 1 to %u are possible", gguf->path, numbers[i].key, *numbers[i].value,
			    MAX_DIMENSION);
	}
	if (tokens.n_items == 0 || tokens.n_items > MAX_DIMENSION)
		die("%s: vocabulary of %llu tokens, 1 to %u are possible", gguf->path,
		    (unsigned long long)tokens.n_items, MAX_DIMENSION);
	model->n_vocabulary = (uint32_t)tokens.n_items;
	model->norm_epsilon = gguf_f32(gguf, "llama.attention.layer_norm_rms_epsilon");
	model->rope_base = gguf_has(gguf, "llama.rope.freq_base") ? gguf_f32(gguf, "llama.rope.freq_base") : 10000;
}

static void
model_read_heads(const struct gguf *gguf, struct model *model)
{
	uint32_t rope_dim;

	model->head_dim = gguf_has(gguf, "llama.attention.key_length") ? gguf_u32(gguf, "llama.attention.key_length")
								       : model->n_embedding / model->n_heads;
	rope_dim = gguf_has(gguf, "llama.rope.dimension_count") ? gguf_u32(gguf, "llama.rope.dimension_count")
								: model->head_dim;
	if (model->n_heads % model->n_kv_heads != 0)
		die("%s: %u query heads do not share %u KV heads evenly", gguf->path, model->n_heads,
		    model->n_kv_heads);
	if (model->head_dim == 0 || model->head_dim % 2 != 0 || model->head_dim > MODEL_MAX_HEAD_DIM ||
	    rope_dim != model->head_dim || model->n_heads > MAX_DIMENSION / model->head_dim)
		die("%s: %u heads of %u with %u rotary dimensions are not supported", gguf->path, model->n_heads,
		    model->head_dim, rope_dim);
	/* Each layer has tensors, so the size of the file bounds the allocation. */
	if (model->n_layers > gguf->n_tensors)
		die("%s: %u layers, but %llu tensors", gguf->path, model->n_layers,
		    (unsigned long long)gguf->n_tensors);
}

/* Each step maps the previous state one to one, so that any single different word changes the result. */
static uint64_t
model_checksum_add(uint64_t checksum, const uint8_t *data, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t word = 0;

		memcpy(&word, data + at, size - at < sizeof(word) ? size - at : sizeof(word));
		checksum = (checksum ^ word) * 0x9e3779b97f4a7c15u;
		checksum ^= checksum >> 32;
	}
	return checksum;
}

/* Reads the whole file, so that steps do not wait for the disk; returns its checksum. */
static uint64_t
model_read_file(const struct gguf *gguf, bool progress)
{
	const char *slash = strrchr(gguf->path, '/');
	uint64_t checksum = gguf->size;

	for (uint64_t at = 0, n; at < gguf->size; at += n) {
		n = gguf->size - at < PROGRESS_BYTES ? gguf->size - at : PROGRESS_BYTES;
		checksum = model_checksum_add(checksum, gguf->data + at, n);
		if (progress)
			fprintf(stderr, "\rloading %s (%llu MB) %3u %%%s", slash != NULL ? slash + 1 : gguf->path,
				(unsigned long long)(gguf->size / 1000000), (unsigned int)(100 * (at + n) / gguf->size),
				at + n == gguf->size ? "\n" : "");
	}
	return checksum;
}

struct model *
model_create(const struct gguf *gguf, bool progress)
{
	struct model *model = xcalloc(1, sizeof(*model));

	model_check_architecture(gguf);
	model_read_numbers(gguf, model);
	model_read_heads(gguf, model);
	model->layers = xcalloc(model->n_layers, sizeof(*model->layers));
	model_load_tensors(gguf, model);
	model->checksum = model_read_file(gguf, progress);
	return model;
}

void
model_destroy(struct model *model)
{
	if (model == NULL)
		return;
	free(model->layers);
	free(model);
}
