/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-cuda/fibre.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake-cuda/simt_run.h"

#ifdef __x86_64__
/* Replaces swapcontext(), which makes two system calls per switch and is a hundred times slower. */
typedef void *context;

/*
 * Saves the callee-saved registers, stores the stack pointer in *from and
 * resumes `to`.  It ends with a jump because a return would always be
 * mispredicted.
 */
void fibre_switch(context *from, context to) __attribute__((visibility("hidden")));
__asm__(".text\n"
	".globl fibre_switch\n"
	".hidden fibre_switch\n"
	".type fibre_switch, @function\n"
	"fibre_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	popq %rcx\n"
	"	jmp *%rcx\n"
	".size fibre_switch, .-fibre_switch\n");

static void
context_prepare(context *at, unsigned char *stack, void (*start)(void))
{
	/* Six registers, where to go, and a slot that makes the stack look as after a call. */
	void **top = (void **)(stack + FIBRE_STACK_SIZE) - 8;

	memset(top, 0, 8 * sizeof(*top));
	top[6] = (void *)start;
	*at = top;
}

static void
context_switch(context *from, context *to)
{
	fibre_switch(from, *to);
}
#else
#include <ucontext.h>
typedef ucontext_t context;

static void
context_prepare(context *at, unsigned char *stack, void (*start)(void))
{
	getcontext(at);
	at->uc_stack.ss_sp = stack;
	at->uc_stack.ss_size = FIBRE_STACK_SIZE;
	at->uc_link = NULL;
	makecontext(at, start, 0);
}

static void
context_switch(context *from, context *to)
{
	swapcontext(from, to);
}
#endif

/*
 * Stacks begin at different offsets in their pages: equal offsets would map to
 * the same L1 cache sets, and every switch would miss to the next cache level.
 */
#define STAGGER_STEP 320
#define STAGGER_SIZE 20480

static context scheduler, fibres[SIMT_MAX_THREADS];
static unsigned char *stacks;
static size_t guard_size;

static size_t
stacks_pitch(void)
{
	return FIBRE_STACK_SIZE + STAGGER_SIZE + guard_size;
}

static bool
stacks_map(void)
{
	void *at;

	guard_size = (size_t)sysconf(_SC_PAGESIZE);
	at = mmap(NULL, SIMT_MAX_THREADS * stacks_pitch(), PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (at == MAP_FAILED)
		return false;
	stacks = at;
	for (unsigned int i = 0; i < SIMT_MAX_THREADS; i++)
		if (mprotect(stacks + i * stacks_pitch(), guard_size, PROT_NONE) != 0)
			return false;
	return true;
}

bool
fibre_prepare(unsigned int index, void (*start)(void))
{
	if (stacks == NULL && !stacks_map())
		return false;
	context_prepare(&fibres[index],
			stacks + index * stacks_pitch() + guard_size + index * STAGGER_STEP % STAGGER_SIZE, start);
	return true;
}

void
fibre_enter(unsigned int index)
{
	context_switch(&scheduler, &fibres[index]);
}

void
fibre_change(unsigned int from, unsigned int to)
{
	context_switch(&fibres[from], &fibres[to]);
}

void
fibre_leave(unsigned int from)
{
	context_switch(&fibres[from], &scheduler);
}

bool
fibre_on_stack(uintptr_t address)
{
	return address - (uintptr_t)stacks < SIMT_MAX_THREADS * stacks_pitch();
}
