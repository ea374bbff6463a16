/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fibre.h - the threads of a block, as stacks that take turns
 *
 * Every stack has a guard page below it and is kept for the next block: a
 * fibre is started anew by fibre_prepare() and abandoned by never going back
 * to it.  One operating-system thread at a time uses them.
 */
#ifndef TESTS_CUDA_STAND_IN_FIBRE_H
#define TESTS_CUDA_STAND_IN_FIBRE_H

#include <stdbool.h>
#include <stdint.h>

#define FIBRE_STACK_SIZE 65536

/** fibre_prepare - fibre `index` will begin in start(), which must not return; false: no memory */
bool fibre_prepare(unsigned int index, void (*start)(void));

/** fibre_enter - from the scheduler into a fibre, until fibre_leave() or fibre_change() to nobody */
void fibre_enter(unsigned int index);

/** fibre_change - from one fibre to another */
void fibre_change(unsigned int from, unsigned int to);

/** fibre_leave - from a fibre back to where fibre_enter() was called */
void fibre_leave(unsigned int from);

/** fibre_on_stack - the address lies in a fibre's stack */
bool fibre_on_stack(uintptr_t address);

#endif
