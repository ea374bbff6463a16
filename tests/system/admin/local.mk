# What an administrator sees and sets: pagedctl, limits, tenants, the log, metrics.
IT_TESTS += %D%/it_check %D%/it_drain %D%/it_limits %D%/it_log %D%/it_metrics %D%/it_names %D%/it_quota %D%/it_shares \
	%D%/it_table_memory %D%/it_top %D%/it_watch_lists %D%/it_quota_cuda
if ENABLE_EVENTS
IT_TESTS += %D%/it_metrics_http
endif
LINT_TESTS += %D%/it_mask.sh
EXTRA_DIST += %D%/metrics_parse.py
TEST_SUPPORT += %D%/terminal_fixture.c %D%/terminal_fixture.h
%C%_it_quota_cuda_SOURCES = %D%/it_quota.c $(ON_CUDA)
%C%_it_quota_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
