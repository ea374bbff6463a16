LINT_TESTS += %D%/lint_cuda_images.sh %D%/lint_docs.sh %D%/lint_exports.sh %D%/lint_header.sh %D%/lint_includes.sh %D%/lint_man.sh \
	%D%/lint_names.sh %D%/lint_nvcc.sh %D%/lint_python.sh %D%/lint_sass.sh %D%/lint_units.sh
EXTRA_DIST += %D%/sass_limits.txt
