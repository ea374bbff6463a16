/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/mod/mod_compiled.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/mod/cuda_source.h"

extern char **environ;

static void
path_of(const struct mod_compiled *compiled, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", compiled->dir, name);
}

void
mod_compiled_begin(struct mod_compiled *compiled)
{
	char path[128];

	*compiled = (struct mod_compiled){ .dir = "/tmp/paged-mods.XXXXXX" };
	cr_assert_not_null(mkdtemp(compiled->dir), "%s", compiled->dir);
	path_of(compiled, "mods.cc", path, sizeof(path));
	compiled->source = fopen(path, "we");
	cr_assert_not_null(compiled->source, "%s", path);
	fprintf(compiled->source, "#define SIMT_HOST_HEADER \"tests/kernels/mod/mod_host.h\"\n"
				  "#define ATTENTION_MOD_FUNCTION static inline\n");
}

void
mod_compiled_add(struct mod_compiled *compiled, const struct mod *mod)
{
	bool is_mask = mod_kind(mod) == MOD_MASK;
	struct paged_error error;
	char name[32], *text;

	snprintf(name, sizeof(name), "mod_%u", compiled->n);
	cr_assert_eq(mod_cuda_source(name, is_mask ? mod : NULL, is_mask ? NULL : mod, &text, &error), PAGED_OK);
	fprintf(compiled->source,
		"\n// %s\n%s"
		"extern \"C\" float\ncall_%u([[maybe_unused]] float score, int32_t b, int32_t h, int32_t q_idx, "
		"int32_t kv_idx, const void *args)\n"
		"{\n\treturn %s::%sb, h, q_idx, kv_idx, args);\n}\n",
		mod_text(mod), text, compiled->n, name, is_mask ? "mask(" : "score(score, ");
	free(text);
	compiled->n++;
}

static int
compiler_run(const char *source, const char *library)
{
	char include[4096];
	const char *const arguments[] = {
		"sh",
		"-c",
		TEST_CXX " \"$@\"", /* $(CXX) may consist of several words */
		"sh",
		"-std=c++17",
		"-O1",
		"-fPIC",
		"-shared",
		"-ffp-contract=off",
		"-fsanitize=undefined,float-cast-overflow",
		"-fsanitize-undefined-trap-on-error",
		"-Wall",
		"-Wextra",
		"-Wshadow",
		"-Wno-tautological-compare", /* random texts may contain x < x */
		"-Werror",
		include,
		"-o",
		library,
		source,
		"-lm",
		NULL,
	};
	pid_t child;
	int status;

	snprintf(include, sizeof(include), "-I%s", getenv("PAGED_SRCDIR"));
	cr_assert_eq(posix_spawnp(&child, arguments[0], NULL, NULL, (char **)(uintptr_t)arguments, environ), 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	return status;
}

void
mod_compiled_make(struct mod_compiled *compiled)
{
	char source[128], library[128];

	cr_assert_eq(fclose(compiled->source), 0);
	compiled->source = NULL;
	path_of(compiled, "mods.cc", source, sizeof(source));
	path_of(compiled, "mods.so", library, sizeof(library));
	cr_assert_eq(compiler_run(source, library), 0, "see %s", source);
	compiled->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(compiled->library, "%s", dlerror());
}

mod_compiled_fn
mod_compiled_get(const struct mod_compiled *compiled, uint32_t number)
{
	mod_compiled_fn function;
	char name[32];

	snprintf(name, sizeof(name), "call_%u", number);
	*(void **)&function = dlsym(compiled->library, name);
	cr_assert_not_null(function, "%s", name);
	return function;
}

void
mod_compiled_close(struct mod_compiled *compiled)
{
	char path[128];

	dlclose(compiled->library);
	path_of(compiled, "mods.cc", path, sizeof(path));
	unlink(path);
	path_of(compiled, "mods.so", path, sizeof(path));
	unlink(path);
	rmdir(compiled->dir);
}
