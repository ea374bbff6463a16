# Real daemons and worker processes.
IT_TESTS += \
	%D%/it_attach \
	%D%/it_attack \
	%D%/it_big \
	%D%/it_cache_share \
	%D%/it_check \
	%D%/it_client \
	%D%/it_daemon \
	%D%/it_descriptors \
	%D%/it_drain \
	%D%/it_failures \
	%D%/it_fair \
	%D%/it_first \
	%D%/it_fork \
	%D%/it_fork_copy \
	%D%/it_free_pages \
	%D%/it_handover \
	%D%/it_handover_example \
	%D%/it_handover_peers \
	%D%/it_handshake \
	%D%/it_harness \
	%D%/it_hold \
	%D%/it_hostile \
	%D%/it_kill \
	%D%/it_limits \
	%D%/it_log \
	%D%/it_long \
	%D%/it_masks \
	%D%/it_masks_wire \
	%D%/it_metrics \
	%D%/it_names \
	%D%/it_old_plan \
	%D%/it_own_block_manager \
	%D%/it_posts \
	%D%/it_prefix \
	%D%/it_prefix_full \
	%D%/it_prefix_hostile \
	%D%/it_prefix_identity \
	%D%/it_prefix_soak \
	%D%/it_prefix_wait \
	%D%/it_prefixes \
	%D%/it_quantised \
	%D%/it_quota \
	%D%/it_quarantine \
	%D%/it_races \
	%D%/it_replaced \
	%D%/it_share_prefix \
	%D%/it_shares \
	%D%/it_sharing \
	%D%/it_start \
	%D%/it_start_waits \
	%D%/it_steady \
	%D%/it_table_memory \
	%D%/it_threads \
	%D%/it_top \
	%D%/it_traces \
	%D%/it_trim \
	%D%/it_versions \
	%D%/it_watch \
	%D%/it_watch_lists
LINT_TESTS += %D%/it_bench_host.sh %D%/it_configure.sh %D%/it_install.sh %D%/it_mask.sh %D%/it_tools.sh %D%/it_unit.sh
EXTRA_DIST += %D%/confine.py %D%/install_ffi.py %D%/install_worker.cc %D%/metrics_parse.py

# Pools in the memory of the fake CUDA driver, or of a GPU.
IT_TESTS += %D%/it_cuda_batch %D%/it_cuda_clusters %D%/it_cuda_devices %D%/it_cuda_faults %D%/it_cuda_graph %D%/it_cuda_graph_attention \
	%D%/it_cuda_images %D%/it_cuda_lost %D%/it_cuda_marks %D%/it_cuda_marks_refused %D%/it_cuda_mods \
	%D%/it_cuda_mods_faults %D%/it_cuda_nvrtc %D%/it_cuda_overlap %D%/it_cuda_plan %D%/it_cuda_pool %D%/it_cuda_prefill \
	%D%/it_cuda_prefill_mods %D%/it_cuda_scatter %D%/it_cuda_sharing %D%/it_cuda_toolkit %D%/it_cuda_work
# The tests of other programs, on the fake CUDA driver.
IT_TESTS += %D%/it_handover_cuda %D%/it_hold_cuda %D%/it_old_plan_cuda %D%/it_quota_cuda %D%/it_trim_cuda
ON_CUDA = %D%/on_cuda.c tests/support/worker_fixture.c
ON_CUDA_CPPFLAGS = $(AM_CPPFLAGS) -DWORKER_ON_CUDA
%C%_it_handover_cuda_SOURCES = %D%/it_handover.c $(ON_CUDA)
%C%_it_handover_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_hold_cuda_SOURCES = %D%/it_hold.c $(ON_CUDA)
%C%_it_hold_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_old_plan_cuda_SOURCES = %D%/it_old_plan.c $(ON_CUDA)
%C%_it_old_plan_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_quota_cuda_SOURCES = %D%/it_quota.c $(ON_CUDA)
%C%_it_quota_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_trim_cuda_SOURCES = %D%/it_trim.c $(ON_CUDA)
%C%_it_trim_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)

GPU_TESTS += %D%/it_cuda_batch %D%/it_cuda_clusters %D%/it_cuda_faults %D%/it_cuda_graph %D%/it_cuda_graph_attention \
	%D%/it_cuda_marks %D%/it_cuda_mods %D%/it_cuda_overlap %D%/it_cuda_plan %D%/it_cuda_pool \
	%D%/it_cuda_prefill %D%/it_cuda_prefill_mods %D%/it_cuda_scatter %D%/it_cuda_sharing %D%/it_cuda_work \
	%D%/it_quarantine %D%/it_sharing
TEST_SUPPORT += %D%/batch_fixture.c %D%/batch_fixture.h %D%/chain_fixture.c %D%/chain_fixture.h %D%/cuda_daemon.c \
	%D%/cuda_daemon.h %D%/decode_fixture.c %D%/decode_fixture.h %D%/marks_fixture.c %D%/marks_fixture.h \
	%D%/mods_fixture.c %D%/mods_fixture.h %D%/prefill_fixture.c %D%/prefill_fixture.h %D%/prompt_fixture.c \
	%D%/prompt_fixture.h %D%/terminal_fixture.c %D%/terminal_fixture.h
%C%_it_cuda_images_LDADD = kernels/libimages.la $(LDADD)

# paged-events.
if ENABLE_EVENTS
IT_TESTS += %D%/it_events %D%/it_events_hostile %D%/it_metrics_http
endif
%C%_it_events_SOURCES = %D%/it_events.c %D%/router_fixture.c %D%/router_fixture.h
%C%_it_events_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS) $(SODIUM_CFLAGS)
%C%_it_events_LDADD = $(EVENTS_TEST_LDADD) $(MSGPACK_LIBS) $(SODIUM_LIBS)
%C%_it_events_hostile_SOURCES = %D%/it_events_hostile.c %D%/router_fixture.c %D%/router_fixture.h
%C%_it_events_hostile_CPPFLAGS = $(%C%_it_events_CPPFLAGS)
%C%_it_events_hostile_LDADD = $(%C%_it_events_LDADD)
