/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mod_host.h - the functions of simt.h that compiled mods use, for one host thread
 *
 * Independent of tests/fake-cuda, so that tests cover a mod's source alone.
 */
#ifndef PAGED_TESTS_MOD_HOST_H
#define PAGED_TESTS_MOD_HOST_H

template <class T>
static inline T
simt_load_fresh(const T *at)
{
	return *at;
}

static inline uint32_t
simt_atomic_or(uint32_t *at, uint32_t bits)
{
	uint32_t old = *at;

	*at = old | bits;
	return old;
}

static inline float
simt_from_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	__builtin_memcpy(&value, &wide, sizeof(value));
	return value;
}

static inline float
simt_from_f16(uint16_t bits)
{
	int exponent = bits >> 10 & 31, digits = bits & 1023;
	float magnitude;

	if (exponent == 31)
		magnitude = digits != 0 ? __builtin_nanf("") : __builtin_inff();
	else
		magnitude = __builtin_ldexpf((float)(exponent != 0 ? digits + 1024 : digits),
					     exponent != 0 ? exponent - 25 : -24);
	return bits >> 15 ? -magnitude : magnitude;
}

#endif
