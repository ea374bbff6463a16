/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake libnvrtc that compiles for the host: its "cubin" (or PTX) is a host
 * library, which the fake driver loads as a module.  Headers passed with the
 * program are found first, then those of the source tree, whose simt.h includes
 * the host models.  It is built twice: with the version of the fake driver, and with that of CUDA 13.
 *
 *   PAGED_FAKE_CUDA_SOURCE=DIR  the source tree; default: the one it was built from
 *   PAGED_FAKE_NVRTC_VERSION=11040  its version instead
 *   CXX=COMMAND                the compiler; default: the one it was built with
 */
#include "kernels/cuda/host/nvrtc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake-cuda/inject.h"

#define MAX_ARGUMENTS 64

#pragma GCC visibility push(default)
#define NVRTC_DECLARE(type, symbol, field, parameters) type symbol parameters;
CUDA_NVRTC_FUNCTIONS(NVRTC_DECLARE)
#undef NVRTC_DECLARE
#pragma GCC visibility pop

struct file {
	char *name;
	char *text;
};

struct _nvrtcProgram {
	struct file *files; /* the source, then the headers */
	int n_files;
	char *image, *log;
	size_t image_size, log_size;
};

static const int supported_archs[] = { 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121 };

static int
entry(const char *name)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int result;

	pthread_mutex_lock(&lock);
	result = inject_result(name);
	inject_log(name, result);
	pthread_mutex_unlock(&lock);
	return result;
}

#define ENTRY(name, parameters, call)                                \
	int name parameters                                          \
	{                                                            \
		int result = entry(#name);                           \
                                                                     \
		return result == CUDA_NVRTC_SUCCESS ? call : result; \
	}

/* Files */

static bool
file_write(const char *dir, const struct file *file)
{
	char path[4096];
	FILE *stream;
	bool good;

	snprintf(path, sizeof(path), "%s/%s", dir, file->name);
	for (char *at = strchr(path + strlen(dir) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = '\0';
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return false;
		*at = '/';
	}
	stream = fopen(path, "we");
	if (stream == NULL)
		return false;
	good = fputs(file->text, stream) >= 0;
	return fclose(stream) == 0 && good;
}

static char *
file_read(const char *dir, const char *name, size_t *size_p)
{
	char path[4096], *bytes;
	struct stat stat;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &stat) != 0) {
		close(fd);
		return NULL;
	}
	bytes = calloc(1, (size_t)stat.st_size + 1);
	if (bytes != NULL && read(fd, bytes, (size_t)stat.st_size) == stat.st_size)
		*size_p = (size_t)stat.st_size;
	close(fd);
	return bytes;
}

static void
remove_all(const char *dir)
{
	char command[4200];

	snprintf(command, sizeof(command), "rm -rf -- '%s'", dir);
	if (system(command) != 0)
		fprintf(stderr, "# fake-cuda: %s stays\n", dir);
}

/* The host's compiler */

struct arguments {
	char *words[MAX_ARGUMENTS];
	unsigned int n;
};

static void __attribute__((format(printf, 2, 3))) arguments_add(struct arguments *arguments, const char *format, ...)
{
	va_list values;
	char *word;

	va_start(values, format);
	if (vasprintf(&word, format, values) >= 0 && arguments->n < MAX_ARGUMENTS - 1)
		arguments->words[arguments->n++] = word;
	va_end(values);
}

/* The compiler may be several words. */
static void
arguments_begin(struct arguments *arguments)
{
	const char *compiler = getenv("CXX");
	char words[1024], *rest = words, *word;

	snprintf(words, sizeof(words), "%s", compiler != NULL && compiler[0] != '\0' ? compiler : FAKE_CUDA_CXX);
	for (word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
		arguments_add(arguments, "%s", word);
}

static void
arguments_host(struct arguments *arguments, const char *dir)
{
	static const char *const fixed[] = {
		"-x",
		"c++",
		"-std=c++17",
		"-O1",
		"-g",
		"-fPIC",
		"-shared",
		"-w",
		"-fno-exceptions",
		"-fno-rtti",
		"-nodefaultlibs",
		"-fsanitize=thread",
		"-ffp-contract=off",
		"-fvisibility=hidden",
		"-DSIMT_HOST_HEADER=\"tests/fake-cuda/simt_host.h\"",
	};
	const char *source = getenv("PAGED_FAKE_CUDA_SOURCE");

	/* -nodefaultlibs keeps libtsan out: the fake driver has its functions. */
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		arguments_add(arguments, "%s", fixed[i]);
	arguments_add(arguments, "-I%s", dir);
	arguments_add(arguments, "-I%s", source != NULL ? source : FAKE_CUDA_SOURCE);
}

/* "sm_90", "sm_90a", which alone has wgmma, or "compute_90". */
static bool
arguments_arch(struct arguments *arguments, const char *arch)
{
	arguments_add(arguments, "-DSIMT_HAS_WGMMA=%d", strcmp(arch, "sm_90a") == 0);
	if (strncmp(arch, "compute_", 8) == 0)
		return true;
	if (strncmp(arch, "sm_", 3) != 0 || atoi(arch + 3) == 0)
		return false;
	arguments_add(arguments, "-DFAKE_CUDA_ARCH=%d", atoi(arch + 3));
	return true;
}

/* NVRTC's options: those that mean something to the host are kept, the known others dropped. */
static bool
arguments_option(struct arguments *arguments, const char *option)
{
	static const char *const dropped[] = { "-std=",
					       "--std=",
					       "-default-device",
					       "--device-as-default-execution-space",
					       "-lineinfo",
					       "--generate-line-info",
					       "-dopt",
					       "--use_fast_math",
					       "-use_fast_math",
					       "-fmad=",
					       "--fmad=",
					       "-ftz=",
					       "--ftz=",
					       "-maxrregcount=",
					       "--maxrregcount=",
					       "-no-source-include",
					       "--no-source-include" };

	if (strncmp(option, "-D", 2) == 0 || strncmp(option, "-I", 2) == 0 || strncmp(option, "-U", 2) == 0) {
		arguments_add(arguments, "%s", option);
		return true;
	}
	if (strncmp(option, "--define-macro=", 15) == 0 || strncmp(option, "--include-path=", 15) == 0) {
		arguments_add(arguments, "-%c%s", option[2] == 'd' ? 'D' : 'I', option + 15);
		return true;
	}
	if (strncmp(option, "-arch=", 6) == 0 || strncmp(option, "--gpu-architecture=", 19) == 0)
		return arguments_arch(arguments, strchr(option, '=') + 1);
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
		if (strncmp(option, dropped[i], strlen(dropped[i])) == 0)
			return true;
	return false;
}

static int
arguments_run(struct arguments *arguments, const char *dir)
{
	posix_spawn_file_actions_t actions;
	int status = -1;
	char log[4096];
	pid_t child;

	arguments->words[arguments->n] = NULL;
	snprintf(log, sizeof(log), "%s/log", dir);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (posix_spawnp(&child, arguments->words[0], &actions, NULL, arguments->words, environ) == 0)
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
	posix_spawn_file_actions_destroy(&actions);
	return status;
}

static int
compile_in(struct _nvrtcProgram *program, const char *dir, int n_options, const char *const *options)
{
	struct arguments arguments = { .n = 0 };
	int status;

	for (int i = 0; i < program->n_files; i++)
		if (!file_write(dir, &program->files[i]))
			return CUDA_NVRTC_ERROR_INTERNAL_ERROR;
	arguments_begin(&arguments);
	arguments_host(&arguments, dir);
	for (int i = 0; i < n_options; i++) {
		if (!arguments_option(&arguments, options[i])) {
			program->log_size =
				(size_t)asprintf(&program->log, "nvrtc: error: invalid value or option %s", options[i]);
			status = CUDA_NVRTC_ERROR_INVALID_OPTION;
			goto out;
		}
	}
	arguments_add(&arguments, "-o");
	arguments_add(&arguments, "%s/image", dir);
	arguments_add(&arguments, "%s/%s", dir, program->files[0].name);
	/* Its functions come from the fake driver that is loaded already. */
	arguments_add(&arguments, "-Wl,--no-as-needed,%s/libcuda.so.1,-lm,-lc", FAKE_CUDA_LIBRARIES);
	status = arguments_run(&arguments, dir);
	program->log = file_read(dir, "log", &program->log_size);
	if (status == 0)
		program->image = file_read(dir, "image", &program->image_size);
	status = program->image != NULL ? CUDA_NVRTC_SUCCESS : CUDA_NVRTC_ERROR_COMPILATION;
out:
	for (unsigned int i = 0; i < arguments.n; i++)
		free(arguments.words[i]);
	return status;
}

static int
program_compile(struct _nvrtcProgram *program, int n_options, const char *const *options)
{
	const char *parent = getenv("TMPDIR");
	char dir[4000];
	int result;

	if (program == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	snprintf(dir, sizeof(dir), "%s/paged-nvrtc.XXXXXX", parent != NULL ? parent : "/tmp");
	if (mkdtemp(dir) == NULL)
		return CUDA_NVRTC_ERROR_INTERNAL_ERROR;
	result = compile_in(program, dir, n_options, options);
	remove_all(dir);
	return result;
}

/* Programs */

static int
program_destroy(struct _nvrtcProgram **program_p)
{
	struct _nvrtcProgram *program = *program_p;

	if (program == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	for (int i = 0; program->files != NULL && i < program->n_files; i++) {
		free(program->files[i].name);
		free(program->files[i].text);
	}
	free(program->files);
	free(program->image);
	free(program->log);
	free(program);
	*program_p = NULL;
	return CUDA_NVRTC_SUCCESS;
}

static bool
file_set(struct file *file, const char *name, const char *text)
{
	file->name = strdup(name);
	file->text = strdup(text);
	return file->name != NULL && file->text != NULL;
}

static int
program_create(struct _nvrtcProgram **program_p, const char *source, const char *name, int n_headers,
	       const char *const *headers, const char *const *header_names)
{
	struct _nvrtcProgram *program;
	bool good;

	if (source == NULL || n_headers < 0)
		return CUDA_NVRTC_ERROR_INVALID_INPUT;
	program = calloc(1, sizeof(*program));
	if (program == NULL)
		return CUDA_NVRTC_ERROR_OUT_OF_MEMORY;
	program->n_files = n_headers + 1;
	program->files = calloc((size_t)program->n_files, sizeof(*program->files));
	good = program->files != NULL && file_set(&program->files[0], name != NULL ? name : "default_program", source);
	for (int i = 0; good && i < n_headers; i++)
		good = file_set(&program->files[i + 1], header_names[i], headers[i]);
	if (!good) {
		program_destroy(&program);
		return CUDA_NVRTC_ERROR_OUT_OF_MEMORY;
	}
	*program_p = program;
	return CUDA_NVRTC_SUCCESS;
}

static int
image_size(const struct _nvrtcProgram *program, size_t *size)
{
	if (program == NULL || program->image == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	*size = program->image_size;
	return CUDA_NVRTC_SUCCESS;
}

static int
image_get(const struct _nvrtcProgram *program, char *to)
{
	if (program == NULL || program->image == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	memcpy(to, program->image, program->image_size);
	return CUDA_NVRTC_SUCCESS;
}

static int
log_size(const struct _nvrtcProgram *program, size_t *size)
{
	if (program == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	*size = program->log_size + 1;
	return CUDA_NVRTC_SUCCESS;
}

static int
log_get(const struct _nvrtcProgram *program, char *to)
{
	if (program == NULL)
		return CUDA_NVRTC_ERROR_INVALID_PROGRAM;
	memcpy(to, program->log != NULL ? program->log : "", program->log_size + 1);
	return CUDA_NVRTC_SUCCESS;
}

static int
archs_get(int *archs)
{
	memcpy(archs, supported_archs, sizeof(supported_archs));
	return CUDA_NVRTC_SUCCESS;
}

const char *
nvrtcGetErrorString(int result)
{
	switch (result) {
	case CUDA_NVRTC_SUCCESS:
		return "NVRTC_SUCCESS";
	case CUDA_NVRTC_ERROR_OUT_OF_MEMORY:
		return "NVRTC_ERROR_OUT_OF_MEMORY";
	case CUDA_NVRTC_ERROR_INVALID_INPUT:
		return "NVRTC_ERROR_INVALID_INPUT";
	case CUDA_NVRTC_ERROR_INVALID_PROGRAM:
		return "NVRTC_ERROR_INVALID_PROGRAM";
	case CUDA_NVRTC_ERROR_INVALID_OPTION:
		return "NVRTC_ERROR_INVALID_OPTION";
	case CUDA_NVRTC_ERROR_COMPILATION:
		return "NVRTC_ERROR_COMPILATION";
	case CUDA_NVRTC_ERROR_INTERNAL_ERROR:
		return "NVRTC_ERROR_INTERNAL_ERROR";
	default:
		return "NVRTC_ERROR unknown";
	}
}

/* The program is freed also if a test lets the call fail: the caller has nothing more to do with it. */
int
nvrtcDestroyProgram(cuda_program *program)
{
	int result = entry("nvrtcDestroyProgram"), destroyed = program_destroy(program);

	return result == CUDA_NVRTC_SUCCESS ? destroyed : result;
}

#ifdef FAKE_NVRTC_NEWER
#define FAKE_NVRTC_VERSION 13000
#else
#define FAKE_NVRTC_VERSION 12080
#endif

static int
version_get(int *major, int *minor)
{
	const char *text = getenv("PAGED_FAKE_NVRTC_VERSION");
	int version = text != NULL ? atoi(text) : FAKE_NVRTC_VERSION;

	*major = version / 1000;
	*minor = version % 1000 / 10;
	return CUDA_NVRTC_SUCCESS;
}

ENTRY(nvrtcVersion, (int *major, int *minor), version_get(major, minor))
ENTRY(nvrtcGetNumSupportedArchs, (int *n),
      (*n = sizeof(supported_archs) / sizeof(supported_archs[0]), CUDA_NVRTC_SUCCESS))
ENTRY(nvrtcGetSupportedArchs, (int *archs), archs_get(archs))
ENTRY(nvrtcCreateProgram,
      (cuda_program * program, const char *source, const char *name, int n_headers, const char *const *headers,
       const char *const *header_names),
      program_create(program, source, name, n_headers, headers, header_names))
ENTRY(nvrtcCompileProgram, (cuda_program program, int n_options, const char *const *options),
      program_compile(program, n_options, options))
ENTRY(nvrtcGetCUBINSize, (cuda_program program, size_t *size), image_size(program, size))
ENTRY(nvrtcGetCUBIN, (cuda_program program, char *cubin), image_get(program, cubin))
ENTRY(nvrtcGetPTXSize, (cuda_program program, size_t *size), image_size(program, size))
ENTRY(nvrtcGetPTX, (cuda_program program, char *ptx), image_get(program, ptx))
ENTRY(nvrtcGetProgramLogSize, (cuda_program program, size_t *size), log_size(program, size))
ENTRY(nvrtcGetProgramLog, (cuda_program program, char *log), log_get(program, log))
