# Real daemons and worker processes.
IT_TESTS += \
	%D%/it_attach \
	%D%/it_attack \
	%D%/it_big \
	%D%/it_client \
	%D%/it_daemon \
	%D%/it_descriptors \
	%D%/it_engine \
	%D%/it_failures \
	%D%/it_fair \
	%D%/it_first \
	%D%/it_free_pages \
	%D%/it_handshake \
	%D%/it_harness \
	%D%/it_hostile \
	%D%/it_kill \
	%D%/it_long \
	%D%/it_masks \
	%D%/it_masks_wire \
	%D%/it_own_block_manager \
	%D%/it_posts \
	%D%/it_quantised \
	%D%/it_quarantine \
	%D%/it_races \
	%D%/it_replaced \
	%D%/it_shortage \
	%D%/it_start \
	%D%/it_start_waits \
	%D%/it_steady \
	%D%/it_threads \
	%D%/it_traces \
	%D%/it_trim \
	%D%/it_versions
LINT_TESTS += %D%/it_bench_host.sh %D%/it_configure.sh %D%/it_install.sh %D%/it_tools.sh %D%/it_unit.sh
EXTRA_DIST += %D%/confine.py %D%/install_ffi.py %D%/install_worker.cc

IT_TESTS += %D%/it_trim_cuda
%C%_it_trim_cuda_SOURCES = %D%/it_trim.c $(ON_CUDA)
%C%_it_trim_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
GPU_TESTS += %D%/it_quarantine
TEST_SUPPORT += %D%/batch_fixture.c %D%/batch_fixture.h %D%/chain_fixture.c %D%/chain_fixture.h %D%/prompt_fixture.c \
	%D%/prompt_fixture.h

# paged-events.
if ENABLE_EVENTS
IT_TESTS += %D%/it_events %D%/it_events_hostile
endif
%C%_it_events_SOURCES = %D%/it_events.c %D%/router_fixture.c %D%/router_fixture.h
%C%_it_events_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS) $(SODIUM_CFLAGS)
%C%_it_events_LDADD = $(EVENTS_TEST_LDADD) $(MSGPACK_LIBS) $(SODIUM_LIBS)
%C%_it_events_hostile_SOURCES = %D%/it_events_hostile.c %D%/router_fixture.c %D%/router_fixture.h
%C%_it_events_hostile_CPPFLAGS = $(%C%_it_events_CPPFLAGS)
%C%_it_events_hostile_LDADD = $(%C%_it_events_LDADD)

include %D%/admin/local.mk
include %D%/cuda/local.mk
include %D%/sharing/local.mk
