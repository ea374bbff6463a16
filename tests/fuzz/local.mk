# Fuzz targets: make check replays seeds and mutations of them; --enable-fuzzer builds libFuzzer programs, which
# tools/fuzz runs.  A target is fuzz_X.c, fuzz_X and fuzz_X_seeds here, and a file seeds/X.
FUZZ_SEEDS = %D%/fuzz_config_seeds %D%/fuzz_control_seeds %D%/fuzz_mod_seeds %D%/fuzz_region_seeds %D%/fuzz_requests_seeds \
	%D%/fuzz_wire_seeds %D%/fuzz_zmtp_seeds
FUZZ_TARGETS = %D%/fuzz_config %D%/fuzz_control %D%/fuzz_mod %D%/fuzz_region %D%/fuzz_requests %D%/fuzz_wire \
	%D%/fuzz_zmtp
if ENABLE_EVENTS
FUZZ_SEEDS += %D%/fuzz_events_seeds
FUZZ_TARGETS += %D%/fuzz_events
endif
if ENABLE_DEMO
FUZZ_SEEDS += %D%/fuzz_gguf_seeds
FUZZ_TARGETS += %D%/fuzz_gguf
endif
if ENABLE_TESTS
check_PROGRAMS += $(FUZZ_SEEDS)
TESTS += $(FUZZ_SEEDS)
endif
if ENABLE_FUZZER
noinst_PROGRAMS += $(FUZZ_TARGETS)
endif
EXTRA_DIST += %D%/HOURS %D%/seeds

FUZZ_MAIN = %D%/fuzz.h %D%/fuzz_main.c
FUZZ_FLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
FUZZ_DAEMON = %D%/fuzz_daemon.c %D%/fuzz_daemon.h
FUZZ_DAEMON_LIBS = daemon/libdaemon.la $(ZMQ_LIBS) -ldl -lpthread -lm
FUZZ_DAEMON_WRAPS = -Wl,--wrap=endpoint_bind,--wrap=endpoint_unbind,--wrap=daemon_random,--wrap=pidfd_kill
FUZZ_REQUESTS_WRAPS = $(FUZZ_DAEMON_WRAPS),--wrap=endpoint_reply,--wrap=endpoint_reply_deferred
FUZZ_GGUF_WRAPS = -Wl,--wrap=xcalloc,--wrap=xreallocarray,--wrap=free,--wrap=mmap,--wrap=munmap

# Each links what it needs only, so that tools/fuzz builds little.
%C%_fuzz_config_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_config.c
%C%_fuzz_config_seeds_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_config_SOURCES = %D%/fuzz.h %D%/fuzz_config.c
%C%_fuzz_config_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_config_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_control_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_control.c $(FUZZ_DAEMON)
%C%_fuzz_control_seeds_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_DAEMON_WRAPS)
%C%_fuzz_control_seeds_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_control_SOURCES = %D%/fuzz.h %D%/fuzz_control.c $(FUZZ_DAEMON)
%C%_fuzz_control_LDFLAGS = $(FUZZ_FLAGS) $(FUZZ_DAEMON_WRAPS)
%C%_fuzz_control_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_events_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_events.c
%C%_fuzz_events_seeds_LDADD = events/libevents.la
%C%_fuzz_events_SOURCES = %D%/fuzz.h %D%/fuzz_events.c
%C%_fuzz_events_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_events_LDADD = events/libevents.la
%C%_fuzz_gguf_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_gguf.c
%C%_fuzz_gguf_seeds_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_GGUF_WRAPS)
%C%_fuzz_gguf_seeds_LDADD = examples/llama/libllama.la
%C%_fuzz_gguf_SOURCES = %D%/fuzz.h %D%/fuzz_gguf.c
%C%_fuzz_gguf_LDFLAGS = $(FUZZ_FLAGS) $(FUZZ_GGUF_WRAPS)
%C%_fuzz_gguf_LDADD = examples/llama/libllama.la
%C%_fuzz_mod_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_mod.c
%C%_fuzz_mod_seeds_LDADD = kernels/libkernels.la common/libcommon.la -lm
%C%_fuzz_mod_SOURCES = %D%/fuzz.h %D%/fuzz_mod.c
%C%_fuzz_mod_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_mod_LDADD = kernels/libkernels.la common/libcommon.la -lm
%C%_fuzz_region_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_region.c
%C%_fuzz_region_seeds_LDADD = core/libcore.la common/libcommon.la
%C%_fuzz_region_SOURCES = %D%/fuzz.h %D%/fuzz_region.c
%C%_fuzz_region_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_region_LDADD = core/libcore.la common/libcommon.la
%C%_fuzz_requests_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_requests.c $(FUZZ_DAEMON)
%C%_fuzz_requests_seeds_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_REQUESTS_WRAPS)
%C%_fuzz_requests_seeds_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_requests_SOURCES = %D%/fuzz.h %D%/fuzz_requests.c $(FUZZ_DAEMON)
%C%_fuzz_requests_LDFLAGS = $(FUZZ_FLAGS) $(FUZZ_REQUESTS_WRAPS)
%C%_fuzz_requests_LDADD = $(FUZZ_DAEMON_LIBS)
%C%_fuzz_wire_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_wire.c
%C%_fuzz_wire_seeds_LDADD = proto/libproto.la common/libcommon.la
%C%_fuzz_wire_SOURCES = %D%/fuzz.h %D%/fuzz_wire.c
%C%_fuzz_wire_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_wire_LDADD = proto/libproto.la common/libcommon.la
%C%_fuzz_zmtp_seeds_SOURCES = $(FUZZ_MAIN) %D%/fuzz_zmtp.c events/zmtp.c events/zmtp.h
%C%_fuzz_zmtp_seeds_LDADD =
%C%_fuzz_zmtp_SOURCES = %D%/fuzz.h %D%/fuzz_zmtp.c events/zmtp.c events/zmtp.h
%C%_fuzz_zmtp_LDFLAGS = $(FUZZ_FLAGS)
%C%_fuzz_zmtp_LDADD =
