/* SPDX-License-Identifier: Apache-2.0 */
/**
 * model.h - the weights and hyperparameters of a Llama-architecture model
 *
 * Weights point into the mapped file, which stays open as long as the model.
 * The file must contain exactly the tensors of such a model: a missing tensor,
 * an extra one (biases, scaled rotary frequencies) or one of another shape is an
 * error that names the tensor.
 */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include "examples/llama/gguf.h"
#include "examples/llama/matmul.h"

#define MODEL_MAX_HEAD_DIM 1024u

struct model_layer {
	const float *attention_norm, *ffn_norm; /* [n_embedding] */
	struct matrix q, k, v, o;
	struct matrix gate, up, down;
};

struct model {
	uint32_t n_layers;
	uint32_t n_embedding;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t n_ffn;
	uint32_t n_vocabulary;
	uint32_t n_context; /* maximum tokens of a sequence */
	float rope_base;
	float norm_epsilon;
	struct matrix embedding, output; /* [n_vocabulary][n_embedding]; the same matrix if the file ties them */
	const float *output_norm;
	struct model_layer *layers;
	uint64_t checksum; /* of the file: tells files apart, but not one that was made to have the same checksum */
};

/**
 * model_create - find and check the tensors; read the file once, so that later steps do not wait for the disk
 *
 * @param[in] progress  show progress on stderr
 */
struct model *model_create(const struct gguf *gguf, bool progress);

/** model_destroy - takes NULL */
void model_destroy(struct model *model);

#endif
