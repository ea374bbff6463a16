/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma: products of four warps, which happen when a warp waits for them.
 *
 * Until then the accumulators have NaN, so that a kernel that does not wait
 * computes NaN, and other writes to an operand in shared memory are races.
 * Operands are read by the asynchronous proxy: a proxy fence must follow the
 * writes.  Layouts as in the PTX manual, "Asynchronous warpgroup level matrix
 * instructions"; of the descriptors' swizzle modes only the one of 128 bytes.
 *
 * Registers that warps give and take (setmaxnreg) are counted.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/convert.h"
#include "tests/fake-cuda/simt_block.h"
#include "tests/fake-cuda/simt_model.h"

#define GROUP_WARPS 4
#define MAX_WARPS (SIMT_MAX_THREADS / SIMT_WARP)
#define MAX_GROUPS (MAX_WARPS / GROUP_WARPS) /* of a block */
#define MAX_PRODUCTS 64                      /* of a warp, in flight */
#define MAX_SUMS 4                           /* arrays of accumulators in flight */
#define MAX_COLUMNS 128
#define DEPTH 16 /* k of a product */

/* An array of accumulators that products in flight add to. */
struct sums {
	float *of[SIMT_WARP]; /* the lanes' arrays; NULL in place 0: not in use */
	unsigned int n_columns;
	float value[SIMT_WARP][MAX_COLUMNS / 2];
};

struct product {
	unsigned int sums;
	unsigned int group;
	uint64_t a, b; /* descriptors */
	bool a_in_registers, f16, add;
	uint32_t registers[SIMT_WARP][4];
	const void *code;
};

/* What each of a group's warps must give alike. */
struct operands {
	uint64_t a, b;
};

struct warp {
	struct product products[MAX_PRODUCTS];
	struct sums sums[MAX_SUMS];
	unsigned int n, group;
	unsigned int n_issued;  /* in this block */
	unsigned int registers; /* of a thread, as it asked for them; 0: as at launch */
	bool fenced;
};

static struct warp warps[MAX_WARPS];
static struct operands issued[SIMT_MAX_CLUSTER][MAX_GROUPS][MAX_PRODUCTS]; /* by number, modulo MAX_PRODUCTS */
static unsigned int n_issued[SIMT_MAX_CLUSTER][MAX_GROUPS];

void
wgmma_begin(void)
{
	for (unsigned int i = 0; i < MAX_WARPS; i++) {
		warps[i].n = warps[i].group = warps[i].n_issued = warps[i].registers = 0;
		warps[i].fenced = false;
		memset(warps[i].sums, 0, sizeof(warps[i].sums));
	}
	memset(n_issued, 0, sizeof(n_issued));
}

void
simt_proxy_fence(void)
{
	race_proxy_fence();
}

/* Registers */

#define ALL_REGISTERS 65536u /* of a multiprocessor */
#define REGISTER_UNIT 8u     /* of a thread */

/*
 * When all warps have asked: does the block have so many?  At launch it gets what its launch bounds permit, but no more
 * for a thread than one asks for.  If it has fewer, the last warps that ask for more wait forever.
 */
static void
registers_check(void)
{
	const struct simt_kernel *kernel = block.launch->kernel;
	unsigned int n_blocks = kernel->min_blocks == 0 ? 1 : kernel->min_blocks, most = 0, sum = 0;
	unsigned int at_launch = ALL_REGISTERS / n_blocks / kernel->max_threads / REGISTER_UNIT * REGISTER_UNIT;

	for (unsigned int i = 0; i < block.n_threads / SIMT_WARP; i++) {
		const struct warp *warp = &warps[block_rank() * (block.n_threads / SIMT_WARP) + i];

		if (warp->registers == 0)
			return;
		most = warp->registers > most ? warp->registers : most;
		sum += warp->registers * SIMT_WARP;
	}
	at_launch = most < at_launch ? most : at_launch;
	if (sum > at_launch * block.n_threads)
		block_fail("setmaxnreg: the warps ask for %u registers, and the block has %u", sum,
			   at_launch * block.n_threads);
}

static void
registers_complete(void *const arguments[SIMT_WARP])
{
	unsigned int n = *(const unsigned int *)arguments[0];

	if (n < 24 || n > 256 || n % REGISTER_UNIT != 0)
		block_fail("setmaxnreg of %u registers: multiples of %u from 24 to 256 are possible", n, REGISTER_UNIT);
	warps[block.thread / SIMT_WARP].registers = n;
	registers_check();
}

void
simt_model_registers(unsigned int n, const char *file, int line)
{
	block_meet(registers_complete, "setmaxnreg", &n, file, line);
}

/* Descriptors: start, leading and stride offsets in units of 16 bytes, swizzle mode 1. */

uint64_t
simt_matrix(const void *shared, uint32_t eight, uint32_t sixty_four)
{
	uint64_t start = (uint64_t)((const unsigned char *)shared - block_shared());

	if (start >= block.launch->shared_size || start % 16 != 0)
		block_fail_at(__builtin_return_address(0), "a matrix that is not at 16 aligned bytes of shared memory");
	if (eight % 16 != 0 || sixty_four % 16 != 0)
		block_fail_at(__builtin_return_address(0), "a matrix with offsets of %u and %u bytes", eight,
			      sixty_four);
	return start >> 4 | (uint64_t)(sixty_four >> 4) << 16 | (uint64_t)(eight >> 4) << 32 | (uint64_t)1 << 62;
}

uint64_t
simt_matrix_after(uint64_t matrix, uint32_t n_bytes)
{
	uint32_t start = (uint32_t)(matrix & 0x3fff) + (n_bytes >> 4);

	if (n_bytes % 16 != 0 || start > 0x3fff)
		block_fail_at(__builtin_return_address(0), "a matrix %u bytes after offset %u", n_bytes,
			      (uint32_t)(matrix & 0x3fff) << 4);
	return (matrix & ~UINT64_C(0x3fff)) | start;
}

struct matrix {
	uint32_t start, leading, stride;
};

static struct matrix
matrix_of(uint64_t descriptor)
{
	return (struct matrix){ (uint32_t)(descriptor & 0x3fff) << 4, (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
				(uint32_t)(descriptor >> 32 & 0x3fff) << 4 };
}

/* The hardware XORs bits 4 to 6 of an address with bits 7 to 9. */
static uint16_t
element_read(uint32_t offset, const void *code)
{
	uint16_t bits;

	offset ^= (offset >> 7 & 7) << 4;
	if (offset + 2 > block.launch->shared_size)
		block_fail_at(code, "wgmma reads offset %u of %zu bytes of shared memory", offset,
			      block.launch->shared_size);
	race_proxy_read((uintptr_t)block_shared() + offset, sizeof(bits), code);
	memcpy(&bits, block_shared() + offset, sizeof(bits));
	return bits;
}

/* Row `row` of a matrix of which each row has adjacent elements of k. */
static uint16_t
k_major(const struct matrix *matrix, unsigned int row, unsigned int k, const void *code)
{
	return element_read(matrix->start + row / 8 * matrix->stride + row % 8 * 128 + k * 2, code);
}

/* A matrix of which 64 rows have adjacent elements of the same k. */
static uint16_t
row_major(const struct matrix *matrix, unsigned int row, unsigned int k, const void *code)
{
	return element_read(
		matrix->start + row / 64 * matrix->leading + row % 64 * 2 + k / 8 * matrix->stride + k % 8 * 128, code);
}

/* Computing */

static double
number(uint16_t bits, bool f16)
{
	return f16 ? (double)convert_from_f16(bits) : (double)convert_from_bf16(bits);
}

static void
a_read(const struct product *product, unsigned int warp, double a[16][DEPTH])
{
	struct matrix matrix = matrix_of(product->a);

	for (unsigned int row = 0; row < 16 && !product->a_in_registers; row++)
		for (unsigned int k = 0; k < DEPTH; k++)
			a[row][k] =
				number(k_major(&matrix, warp % GROUP_WARPS * 16 + row, k, product->code), product->f16);
	for (unsigned int lane = 0; lane < SIMT_WARP && product->a_in_registers; lane++)
		for (unsigned int i = 0; i < 8; i++) { /* as the A of mma */
			uint16_t bits = (uint16_t)(product->registers[lane][i / 2] >> i % 2 * 16);

			a[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i / 4 * 8 + i % 2] = number(bits, product->f16);
		}
}

/* In float64 with one rounding at the end, as the model of mma. */
static void
product_compute(struct warp *warp, const struct product *product)
{
	static double a[16][DEPTH], b[MAX_COLUMNS][DEPTH];
	struct sums *sums = &warp->sums[product->sums];
	struct matrix matrix = matrix_of(product->b);

	a_read(product, simt_thread() / SIMT_WARP, a);
	for (unsigned int column = 0; column < sums->n_columns; column++)
		for (unsigned int k = 0; k < DEPTH; k++)
			b[column][k] = number(product->a_in_registers ? row_major(&matrix, column, k, product->code)
								      : k_major(&matrix, column, k, product->code),
					      product->f16);
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++)
		for (unsigned int i = 0; i < sums->n_columns / 2; i++) {
			const double *row = a[lane / 4 + i / 2 % 2 * 8], *column = b[i / 4 * 8 + lane % 4 * 2 + i % 2];
			float *value = &sums->value[lane][i];
			double sum = product->add ? (double)*value : 0;

			for (unsigned int k = 0; k < DEPTH; k++)
				sum += row[k] * column[k];
			*value = (float)sum;
		}
}

/* Issuing */

struct wgmma_argument {
	float *d;
	const uint32_t *a_registers;
	struct product product;
	unsigned int n_columns;
};

static bool
sums_in_flight(const struct warp *warp, unsigned int sums)
{
	for (unsigned int i = 0; i < warp->n; i++)
		if (warp->products[i].sums == sums)
			return true;
	return false;
}

/* The place of the lanes' arrays among those in flight. */
static unsigned int
sums_find(struct warp *warp, void *const arguments[SIMT_WARP])
{
	const struct wgmma_argument *first = arguments[0];
	struct sums *sums;
	unsigned int at = MAX_SUMS;

	for (unsigned int i = 0; i < MAX_SUMS; i++) {
		if (warp->sums[i].of[0] == first->d && warp->sums[i].n_columns == first->n_columns)
			return i;
		if (warp->sums[i].of[0] == NULL)
			at = i;
	}
	if (at == MAX_SUMS)
		block_fail_at(first->product.code, "products in flight for more than %u arrays", MAX_SUMS);
	if (!warp->fenced)
		block_fail_at(first->product.code, "wgmma without a fence between it and other uses of its registers");
	sums = &warp->sums[at];
	sums->n_columns = first->n_columns;
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++) {
		float *d = ((const struct wgmma_argument *)arguments[lane])->d;

		sums->of[lane] = d;
		for (unsigned int i = 0; i < sums->n_columns / 2; i++) {
			sums->value[lane][i] = d[i];
			d[i] = NAN;
		}
	}
	return at;
}

/* All lanes and all warps of a group must give the same matrices in shared memory. */
static void
operands_check(struct warp *warp, void *const arguments[SIMT_WARP])
{
	unsigned int rank = block_rank(), group = simt_thread() / SIMT_WARP / GROUP_WARPS, number = warp->n_issued++;
	const struct product *product = &((const struct wgmma_argument *)arguments[0])->product;
	struct operands *same = &issued[rank][group][number % MAX_PRODUCTS];

	if (number == n_issued[rank][group]) {
		n_issued[rank][group]++;
		*same = (struct operands){ product->a, product->b };
	}
	for (unsigned int lane = 0; lane < SIMT_WARP; lane++) {
		const struct product *other = &((const struct wgmma_argument *)arguments[lane])->product;

		if (other->a != same->a || other->b != same->b)
			block_fail_at(product->code, "wgmma of other matrices in another lane or warp of the group");
	}
}

static void
wgmma_complete(void *const arguments[SIMT_WARP])
{
	struct warp *warp = &warps[block.thread / SIMT_WARP];
	struct product *product = &warp->products[warp->n];

	if (warp->n == MAX_PRODUCTS)
		block_fail("more than %u products of a warp in flight", MAX_PRODUCTS);
	operands_check(warp, arguments);
	*product = ((const struct wgmma_argument *)arguments[0])->product;
	product->sums = sums_find(warp, arguments);
	product->group = warp->group;
	if (product->a_in_registers && !warp->fenced)
		block_fail_at(product->code, "wgmma without a fence between it and other uses of its registers");
	for (unsigned int lane = 0; lane < SIMT_WARP && product->a_in_registers; lane++)
		memcpy(product->registers[lane], ((const struct wgmma_argument *)arguments[lane])->a_registers,
		       sizeof(product->registers[0]));
	warp->n++;
}

void
simt_model_wgmma(float *d, unsigned int n, const uint32_t *a_registers, uint64_t a, uint64_t b, bool f16, bool add,
		 const char *file, int line)
{
	struct wgmma_argument argument = {
		.d = d,
		.a_registers = a_registers,
		.product = { .a = a,
			     .b = b,
			     .a_in_registers = a_registers != NULL,
			     .f16 = f16,
			     .add = add,
			     .code = __builtin_return_address(0) },
		.n_columns = n,
	};

	block_meet(wgmma_complete, "wgmma", &argument, file, line);
}

static void
fence_complete(void *const arguments[SIMT_WARP])
{
	(void)arguments;
	warps[block.thread / SIMT_WARP].fenced = true;
}

void
simt_model_wgmma_fence(const char *file, int line)
{
	block_meet(fence_complete, "wgmma.fence", NULL, file, line);
}

static void
commit_complete(void *const arguments[SIMT_WARP])
{
	(void)arguments;
	warps[block.thread / SIMT_WARP].group++;
}

void
simt_model_wgmma_commit(const char *file, int line)
{
	block_meet(commit_complete, "wgmma.commit_group", NULL, file, line);
}

/* Waiting */

static void
wait_complete(void *const arguments[SIMT_WARP])
{
	struct warp *warp = &warps[block.thread / SIMT_WARP];
	unsigned int n_groups = *(const unsigned int *)arguments[0], done = 0;

	while (done < warp->n && warp->products[done].group + n_groups < warp->group)
		product_compute(warp, &warp->products[done++]);
	warp->n -= done;
	memmove(warp->products, warp->products + done, warp->n * sizeof(warp->products[0]));
	warp->fenced = false;
	for (unsigned int i = 0; i < MAX_SUMS; i++) {
		struct sums *sums = &warp->sums[i];

		if (sums->of[0] == NULL || sums_in_flight(warp, i))
			continue;
		for (unsigned int lane = 0; lane < SIMT_WARP; lane++)
			memcpy(sums->of[lane], sums->value[lane], sums->n_columns / 2 * sizeof(float));
		sums->of[0] = NULL;
	}
}

void
simt_model_wgmma_wait(unsigned int n_groups, const char *file, int line)
{
	block_meet(wait_complete, "wgmma.wait_group", &n_groups, file, line);
}
