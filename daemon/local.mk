# The daemon.
# All files except main.c are a convenience library, which tests link.
DAEMON_SOURCES = \
	%D%/background_thread.c \
	%D%/background_thread.h \
	%D%/cache_cleanup.c \
	%D%/cache_cleanup.h \
	%D%/config/config.c \
	%D%/config/config.h \
	%D%/config/config_lexer.c \
	%D%/config/config_lexer.h \
	%D%/config/config_tenants.c \
	%D%/config/config_tenants.h \
	%D%/config/settings.c \
	%D%/config/settings.h \
	%D%/connection.c \
	%D%/connection.h \
	%D%/control.c \
	%D%/control.h \
	%D%/daemon.c \
	%D%/daemon.h \
	%D%/endpoint.c \
	%D%/endpoint.h \
	%D%/histogram.h \
	%D%/kernel_check.c \
	%D%/kernel_check.h \
	%D%/kernel_feature.h \
	%D%/log/log.c \
	%D%/log/log.h \
	%D%/log/log_journal.c \
	%D%/log/log_journal.h \
	%D%/log/log_output.c \
	%D%/log/log_output.h \
	%D%/log/log_queue.c \
	%D%/log/log_queue.h \
	%D%/loop.c \
	%D%/loop.h \
	%D%/member.c \
	%D%/member.h \
	%D%/memory.c \
	%D%/memory.h \
	%D%/memory_cuda.c \
	%D%/memory_host.c \
	%D%/memory_wait.c \
	%D%/memory_wait.h \
	%D%/metrics.c \
	%D%/metrics.h \
	%D%/pidfd.c \
	%D%/pidfd.h \
	%D%/policy.c \
	%D%/policy.h \
	%D%/pools.c \
	%D%/pools.h \
	%D%/probe.c \
	%D%/probe.h \
	%D%/random.c \
	%D%/random.h \
	%D%/relaunch.c \
	%D%/relaunch.h \
	%D%/rpc.c \
	%D%/rpc.h \
	%D%/rpc_admin.c \
	%D%/rpc_check.c \
	%D%/rpc_handover.c \
	%D%/rpc_masks.c \
	%D%/rpc_reply.c \
	%D%/rpc_sequences.c \
	%D%/rpc_sharing.c \
	%D%/rpc_unfinished.c \
	%D%/runtime.c \
	%D%/runtime.h \
	%D%/service_manager.c \
	%D%/service_manager.h \
	%D%/session_cleanup.c \
	%D%/session_cleanup.h \
	%D%/system_memory.c \
	%D%/system_memory.h \
	%D%/tenants.c \
	%D%/tenants.h \
	%D%/zmq_auth.c \
	%D%/zmq_auth.h
DAEMON_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_SYSCONFDIR='"$(sysconfdir)"' -DPAGED_RUNSTATEDIR='"$(runstatedir)"' \
	$(ZMQ_CFLAGS)
DAEMON_LIBS = proto/libproto.la kernels/libkernels.la common/libcommon.la \
	$(ZMQ_LIBS)

if ENABLE_DAEMON
noinst_LTLIBRARIES += %D%/libdaemon.la
endif
%C%_libdaemon_la_SOURCES = $(DAEMON_SOURCES)
%C%_libdaemon_la_CPPFLAGS = $(DAEMON_CPPFLAGS)
%C%_libdaemon_la_LIBADD = core/libcore.la $(DAEMON_LIBS)

if ENABLE_DAEMON
sbin_PROGRAMS += %D%/pagedd
endif
%C%_pagedd_SOURCES = %D%/main.c
%C%_pagedd_CPPFLAGS = $(DAEMON_CPPFLAGS)
%C%_pagedd_LDADD = %D%/libdaemon.la
