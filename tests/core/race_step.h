/* SPDX-License-Identifier: Apache-2.0 */
/**
 * race_step.h - threads of a test give way now and then between atomic accesses
 *
 * Included before all else where the sources of common/ and core/ are compiled for unit_prefix_race (-include).
 * Without it, a thread is hardly ever interrupted inside the few nanoseconds of a search in which a page can become
 * another node.
 */
#ifndef PAGED_RACE_STEP_H
#define PAGED_RACE_STEP_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

static inline void
race_step(void)
{
	static _Thread_local uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	if (state >> 55 == 0)
		sched_yield();
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#ifdef __clang__
#define atomic_load_explicit(object, order) (race_step(), __c11_atomic_load(object, order))
#define atomic_store_explicit(object, value, order) (race_step(), __c11_atomic_store(object, value, order))
#else
#define atomic_load_explicit(object, order)                     \
	__extension__({                                         \
		__auto_type load_object = (object);             \
		__typeof__((void)0, *load_object) load_value;   \
		race_step();                                    \
		__atomic_load(load_object, &load_value, order); \
		load_value;                                     \
	})
#define atomic_store_explicit(object, value, order)                       \
	__extension__({                                                   \
		__auto_type store_object = (object);                      \
		__typeof__((void)0, *store_object) store_value = (value); \
		race_step();                                              \
		__atomic_store(store_object, &store_value, order);        \
	})
#endif

#endif
