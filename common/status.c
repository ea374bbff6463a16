/* SPDX-License-Identifier: Apache-2.0 */
#include "common/status.h"

#include <stdio.h>
#include <string.h>

#include "common/text.h"

const char *
paged_status_text(enum paged_status status)
{
	switch (status) {
	case PAGED_OK:
		return "success";
	case PAGED_ERR_INVALID:
		return "invalid argument";
	case PAGED_ERR_NOMEM:
		return "out of memory";
	case PAGED_ERR_NOENT:
		return "no such object";
	case PAGED_ERR_PERM:
		return "not permitted";
	case PAGED_ERR_FULL:
		return "pool is full";
	case PAGED_ERR_CAPACITY:
		return "length exceeds reserved capacity";
	case PAGED_ERR_LIMIT:
		return "limit exceeded";
	case PAGED_ERR_STALE:
		return "stale sequence or plan";
	case PAGED_ERR_RANGE:
		return "index out of bounds";
	case PAGED_ERR_GONE:
		return "daemon or session has ended";
	case PAGED_ERR_AGAIN:
		return "busy, call again";
	case PAGED_ERR_TIMEOUT:
		return "no answer in time";
	case PAGED_ERR_FORK:
		return "object belongs to the parent process";
	case PAGED_ERR_UNSUPPORTED:
		return "not supported here";
	case PAGED_ERR_VERSION:
		return "incompatible version";
	case PAGED_ERR_BACKEND:
		return "memory back end failed";
	case PAGED_ERR_SYSTEM:
		return "system call failed";
	case PAGED_ERR_PROTOCOL:
		return "malformed message";
	case PAGED_ERR_NO_DAEMON:
		return "no daemon";
	case PAGED_ERR_STOPPING:
		return "daemon is stopping";
	case PAGED_ERR_CORRUPT:
		return "page accounting is inconsistent";
	case PAGED_ERR_QUOTA:
		return "limit of a user reached";
	}
	return "unknown status";
}

enum paged_status
paged_vfail(struct paged_error *error, enum paged_status status, const char *format, va_list arguments)
{
	error->status = status;
	error->shortage = (struct paged_shortage){ 0 };
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	text_clean_utf8(error->text); /* it may quote untrusted bytes, or be cut within a character */
	return status;
}

enum paged_status
paged_fail(struct paged_error *error, enum paged_status status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	paged_vfail(error, status, format, arguments);
	va_end(arguments);
	return status;
}

uint32_t
paged_dtype_size(enum paged_dtype dtype)
{
	switch (dtype) {
	case PAGED_F32:
		return 4;
	case PAGED_F16:
	case PAGED_BF16:
		return 2;
	case PAGED_E4M3:
	case PAGED_E5M2:
	case PAGED_I8:
		return 1;
	case PAGED_I32:
	case PAGED_U8:
	case PAGED_I64:
	case PAGED_DTYPE_NONE:
		break;
	}
	return 0;
}

bool
paged_dtype_is_tensor(enum paged_dtype dtype)
{
	return dtype == PAGED_F32 || dtype == PAGED_F16 || dtype == PAGED_BF16;
}

const char *
paged_dtype_name(enum paged_dtype dtype)
{
	switch (dtype) {
	case PAGED_F32:
		return "f32";
	case PAGED_F16:
		return "f16";
	case PAGED_BF16:
		return "bf16";
	case PAGED_E4M3:
		return "e4m3";
	case PAGED_E5M2:
		return "e5m2";
	case PAGED_I8:
		return "i8";
	case PAGED_I32:
		return "i32";
	case PAGED_U8:
		return "u8";
	case PAGED_I64:
		return "i64";
	case PAGED_DTYPE_NONE:
		break;
	}
	return "?";
}

enum paged_dtype
paged_dtype_parse(const char *name)
{
	static const enum paged_dtype all[] = { PAGED_F32, PAGED_F16, PAGED_BF16, PAGED_E4M3, PAGED_E5M2, PAGED_I8 };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(name, paged_dtype_name(all[i])) == 0)
			return all[i];
	return PAGED_DTYPE_NONE;
}
