/* SPDX-License-Identifier: Apache-2.0 */
/**
 * fibre.h - the threads of a block as fibres: user-level stacks, of which one runs at a time
 *
 * Each stack has a guard page below it and is reused for the next block.
 * fibre_prepare() restarts a fibre; a fibre is abandoned by never switching to
 * it again.  Only one operating-system thread at a time may use fibres.
 */
#ifndef TESTS_FAKE_CUDA_FIBRE_H
#define TESTS_FAKE_CUDA_FIBRE_H

#include <stdbool.h>
#include <stdint.h>

#define FIBRE_STACK_SIZE 65536

/** fibre_prepare - fibre `index` will begin in start(), which must not return; false: no memory */
bool fibre_prepare(unsigned int index, void (*start)(void));

/** fibre_enter - switch from the scheduler to a fibre; returns when a fibre calls fibre_leave() */
void fibre_enter(unsigned int index);

/** fibre_change - switch from one fibre to another */
void fibre_change(unsigned int from, unsigned int to);

/** fibre_leave - switch from a fibre back to the caller of fibre_enter() */
void fibre_leave(unsigned int from);

/** fibre_on_stack - whether the address is in a fibre's stack */
bool fibre_on_stack(uintptr_t address);

#endif
