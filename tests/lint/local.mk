LINTS = %D%/lint_abi.sh %D%/lint_clang_format.sh %D%/lint_cuda_images.sh %D%/lint_docs.sh %D%/lint_exports.sh \
	%D%/lint_header.sh %D%/lint_includes.sh %D%/lint_man.sh %D%/lint_names.sh %D%/lint_nvcc.sh %D%/lint_python.sh \
	%D%/lint_ruff.sh %D%/lint_sass.sh %D%/lint_shell.sh %D%/lint_spelling.sh %D%/lint_units.sh %D%/lint_version.sh
LINT_TESTS += $(LINTS)
EXTRA_DIST += %D%/abi.txt %D%/lint_mypy.sh %D%/sass_limits.txt %D%/tree.sh .codespellrc .editorconfig .shellcheckrc ruff.toml

# The lints alone, without building the test programs.  Prints what is wrong, and what was skipped.
lint: all
	@$(AM_TESTS_ENVIRONMENT) status=0; for lint in $(LINTS) %D%/lint_mypy.sh; do \
		echo "  LINT     $$lint"; $(SHELL) $(srcdir)/$$lint >lint.log 2>&1 || status=1; \
		grep -vE '^(ok [^#]*|1[.][.][0-9]+)$$' lint.log; done; rm -f lint.log; exit $$status
.PHONY: lint
