/* SPDX-License-Identifier: Apache-2.0 */
/* Entry and exit of every call: the lock, injected failures, the log, sticky errors. */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake-cuda/inject.h"
#include "tests/fake-cuda/fake_cuda.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pid_t started_by; /* 0: cuInit() was not called */
static int poison;
static char message[1024];

void
entry_lock(void)
{
	pthread_mutex_lock(&lock);
}

void
entry_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void
entry_wait(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 2000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&changed, &lock, &until);
}

void
entry_changed(void)
{
	pthread_cond_broadcast(&changed);
}

uint64_t
entry_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* Simulates a fault of another process under MPS. */
static void
break_check(void)
{
	const char *path = getenv("PAGED_FAKE_CUDA_BREAK");

	if (path != NULL && poison == CUDA_SUCCESS && unlink(path) == 0)
		entry_poison(CUDA_ERROR_LAUNCH_FAILED, "%s broke it", path);
}

/* Simulates a slow call: other threads' calls go on. */
static void
hold_check(const char *name)
{
	const char *item = getenv("PAGED_FAKE_CUDA_HOLD");
	size_t length = strlen(name);
	int fd;

	if (item == NULL || strncmp(item, name, length) != 0 || item[length] != '=')
		return;
	item += length + 1;
	fd = open(item, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	close(fd);
	while (access(item, F_OK) == 0)
		usleep(1000);
}

int
entry_begin(const char *name, enum entry_needs needs)
{
	int result;

	hold_check(name);
	entry_lock();
	result = inject_result(name);
	if (result != CUDA_SUCCESS || needs == ENTRY_ANY_TIME)
		return result;
	if (started_by != getpid()) /* not started, or by a parent: a child cannot use CUDA */
		return CUDA_ERROR_NOT_INITIALIZED;
	break_check();
	if (poison != CUDA_SUCCESS && needs != ENTRY_INIT)
		return poison;
	if (needs >= ENTRY_CONTEXT && !context_is_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	return needs == ENTRY_UNSAFE ? capture_unsafe() : CUDA_SUCCESS;
}

int
entry_end(const char *name, int result)
{
	inject_log(name, result);
	entry_unlock();
	return result;
}

int
entry_poison(int result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	fprintf(stderr, "# fake-cuda: %s\n", message);
	poison = result;
	return result;
}

const char *
fake_cuda_message(void)
{
	return message;
}

/* Starting, and what needs no start */

static int
driver_init(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (started_by != 0 && started_by != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!device_exists(0))
		return CUDA_ERROR_NO_DEVICE;
	started_by = getpid();
	return CUDA_SUCCESS;
}

ENTRY(cuInit, (unsigned int flags), ENTRY_ANY_TIME, driver_init(flags))
ENTRY(cuDriverGetVersion, (int *version), ENTRY_ANY_TIME,
      (*version = (int)entry_setting("PAGED_FAKE_CUDA_VERSION", 12080), CUDA_SUCCESS))

static const struct {
	int result;
	const char *name, *text;
} results[] = {
	{ CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library" },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
	  "CUDA-capable device(s) is/are busy or unavailable" },
	{ CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
	{ CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed" },
	{ CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped" },
	{ CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
	  "no kernel image is available for execution on the device" },
	{ CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed" },
	{ CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
	  "PTX JIT compiler library not found" },
	{ CUDA_ERROR_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
	  "the provided PTX was compiled with an unsupported toolchain." },
	{ CUDA_ERROR_JIT_COMPILATION_DISABLED, "CUDA_ERROR_JIT_COMPILATION_DISABLED",
	  "PTX JIT compilation was disabled" },
	{ CUDA_ERROR_INVALID_SOURCE, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid" },
	{ CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
	  "too many resources requested for launch" },
	{ CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
	  "the operation cannot be performed in the present state" },
	{ CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	  "operation not permitted when stream is capturing" },
	{ CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	  "operation failed due to a previous error during capture" },
	{ CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	  "operation would result in a merge of separate capture sequences" },
	{ CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	  "capture was not ended in the same stream as it began" },
	{ CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
	  "capturing stream has unjoined work" },
	{ CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	  "dependency created on uncaptured work in another stream" },
	{ CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	  "operation would make the legacy stream depend on a capturing blocking stream" },
	{ CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
	  "operation not permitted on an event last recorded in a capturing stream" },
	{ CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	  "attempt to terminate a thread-local capture sequence from another thread" },
	{ CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static int
result_describe(int result, const char **name, const char **text)
{
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		if (results[i].result != result)
			continue;
		*(name != NULL ? name : text) = name != NULL ? results[i].name : results[i].text;
		return CUDA_SUCCESS;
	}
	*(name != NULL ? name : text) = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

ENTRY(cuGetErrorName, (int wanted, const char **name), ENTRY_ANY_TIME, result_describe(wanted, name, NULL))
ENTRY(cuGetErrorString, (int wanted, const char **text), ENTRY_ANY_TIME, result_describe(wanted, NULL, text))
