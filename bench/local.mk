# paged-bench measures cases and their limits; make builds it, and it is run by hand.
noinst_PROGRAMS += %D%/paged-bench
%C%_paged_bench_SOURCES = \
	%D%/base.c \
	%D%/base.h \
	%D%/bench_mod.c \
	%D%/bench_mod.h \
	%D%/gpu/gpu.c \
	%D%/gpu/gpu.h \
	%D%/gpu/gpu_reader.h \
	%D%/gpu/suite_compile.c \
	%D%/kv/kv.c \
	%D%/kv/kv.h \
	%D%/kv/kv_case.h \
	%D%/kv/kv_fixture.h \
	%D%/kv/kv_gpu.c \
	%D%/kv/kv_gpu.h \
	%D%/kv/kv_host.c \
	%D%/kv/kv_host.h \
	%D%/kv/kv_mods.c \
	%D%/kv/kv_mods.h \
	%D%/kv/kv_peer.c \
	%D%/kv/kv_peer.h \
	%D%/kv/peer.c \
	%D%/kv/peer.h \
	%D%/kv/suite_append.c \
	%D%/kv/suite_decode.c \
	%D%/kv/suite_gpu.c \
	%D%/kv/suite_prefill.c \
	%D%/machine.c \
	%D%/machine.h \
	%D%/main.c \
	%D%/memory_limits.c \
	%D%/memory_limits.h \
	%D%/peak.c \
	%D%/peak.h \
	%D%/pinned_threads.c \
	%D%/pinned_threads.h \
	%D%/processes.c \
	%D%/processes.h \
	%D%/random.c \
	%D%/random.h \
	%D%/report.c \
	%D%/report.h \
	%D%/rounds.c \
	%D%/rounds.h \
	%D%/sharing/cached_pool.c \
	%D%/sharing/cached_pool.h \
	%D%/sharing/observers.c \
	%D%/sharing/observers.h \
	%D%/sharing/sharing_core.c \
	%D%/sharing/sharing_core.h \
	%D%/sharing/sharing_daemon.c \
	%D%/sharing/sharing_daemon.h \
	%D%/sharing/sharing_give.c \
	%D%/sharing/sharing_limits.c \
	%D%/sharing/suite_sharing.c \
	%D%/stream_kernels.c \
	%D%/stream_kernels.h \
	%D%/suite.h \
	%D%/suite_control.c \
	%D%/suite_limits.c \
	%D%/suite_masks.c \
	%D%/suite_mods.c \
	%D%/suite_remote_masks.c \
	%D%/suite_scale.c
%C%_paged_bench_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client $(ZMQ_CFLAGS) $(JANSSON_CFLAGS) \
	-DBENCH_PEERS='"$(abs_srcdir)/%D%/peers"'
%C%_paged_bench_LDADD = client/libpagedclient.la core/libcore.la kernels/libkernels.la common/libcommon.la $(ZMQ_LIBS) $(JANSSON_LIBS) -lpthread -lm
%C%_paged_bench_LDADD += -ldl
EXTRA_DIST += %D%/torch_ratios.json %D%/vllm_ratios.json %D%/figures.svg %D%/gpu/gpu_reader.cu %D%/measure %D%/plot_peers.py %D%/plots.py %D%/table.py \
	%D%/peers/README.md %D%/peers/peer_table.py %D%/peers/cpu_torch.py %D%/peers/cpu_vllm.py \
	%D%/peers/gpu_torch.py %D%/peers/peer_process.py %D%/peers/setup

# The table and plot of docs/PERFORMANCE.md for this machine; takes about ten minutes.
bench-report: %D%/paged-bench$(EXEEXT) daemon/pagedd$(EXEEXT)
	PAGED_BENCH=%D%/paged-bench $(srcdir)/%D%/measure %D%/report

.PHONY: bench-report
