# unit_X: Criterion tests of the product's file X.c.  it_*: tests with real processes (harness.h).
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
AM_TESTS_ENVIRONMENT = CRITERION_OUTPUTS=tap:-; export CRITERION_OUTPUTS; \
	PAGED_SRCDIR='$(abs_top_srcdir)'; export PAGED_SRCDIR; \
	PAGED_BUILDDIR='$(abs_top_builddir)'; export PAGED_BUILDDIR; \
	LSAN_OPTIONS='suppressions=$(abs_top_srcdir)/tests/lsan.supp:print_suppressions=0'; export LSAN_OPTIONS;
EXTRA_DIST += %D%/lsan.supp

# Programs that are run as tests; each has its rules below.
if ENABLE_TESTS
check_PROGRAMS += $(UNIT_TESTS) $(IT_TESTS)
TESTS += $(UNIT_TESTS) $(IT_TESTS) $(LINT_TESTS)
endif
UNIT_TESTS =
IT_TESTS =
# Scripts that print TAP.
LINT_TESTS = %D%/lint_man.sh
EXTRA_DIST += $(LINT_TESTS) %D%/tap.sh

# it_* programs link this; they find the build tree by PAGED_BUILDDIR.
check_LTLIBRARIES = %D%/libharness.la
%C%_libharness_la_SOURCES = %D%/harness.c %D%/harness.h %D%/harness_daemon.c \
	%D%/harness_internal.h %D%/harness_process.c

UNIT_TESTS += %D%/unit_text
%C%_unit_text_SOURCES = %D%/unit_text.c
%C%_unit_text_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_text_LDADD = common/libcommon.la $(CRITERION_LIBS)

UNIT_TESTS += %D%/unit_wire
%C%_unit_wire_SOURCES = %D%/unit_wire.c
%C%_unit_wire_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_wire_LDADD = proto/libproto.la common/libcommon.la $(CRITERION_LIBS)

# Helpers of the core's tests.
check_LTLIBRARIES += %D%/libcoretest.la
%C%_libcoretest_la_SOURCES = %D%/core_fixture.c %D%/core_fixture.h %D%/trace.c %D%/trace.h
CORE_TEST_LIBS = %D%/libcoretest.la core/libcore.la common/libcommon.la $(CRITERION_LIBS)
EXTRA_DIST += %D%/golden/README.md %D%/golden/generate.py %D%/golden/allocation

UNIT_TESTS += %D%/unit_traces
%C%_unit_traces_SOURCES = %D%/unit_traces.c
%C%_unit_traces_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_traces_LDADD = $(CORE_TEST_LIBS)

UNIT_TESTS += %D%/unit_region
%C%_unit_region_SOURCES = %D%/unit_region.c
%C%_unit_region_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_region_LDADD = common/libcommon.la $(CRITERION_LIBS)

UNIT_TESTS += %D%/unit_core
%C%_unit_core_SOURCES = %D%/unit_core.c %D%/core_case.c %D%/core_case.h
%C%_unit_core_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_core_LDADD = $(CORE_TEST_LIBS)

UNIT_TESTS += %D%/unit_core_sessions
%C%_unit_core_sessions_SOURCES = %D%/unit_core_sessions.c %D%/core_case.c %D%/core_case.h
%C%_unit_core_sessions_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_core_sessions_LDADD = $(CORE_TEST_LIBS)

# The core compiled with the fault points of fault.h; tests link it instead of libcore.la.
check_LTLIBRARIES += %D%/libcore_faults.la
%C%_libcore_faults_la_SOURCES = $(core_libcore_la_SOURCES) common/fault.c
%C%_libcore_faults_la_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_FAULTS

UNIT_TESTS += %D%/unit_core_faults
%C%_unit_core_faults_SOURCES = %D%/unit_core_faults.c
%C%_unit_core_faults_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_core_faults_LDADD = %D%/libcoretest.la %D%/libcore_faults.la common/libcommon.la $(CRITERION_LIBS)

UNIT_TESTS += %D%/unit_core_model
%C%_unit_core_model_SOURCES = %D%/unit_core_model.c
%C%_unit_core_model_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_core_model_LDADD = $(CORE_TEST_LIBS)

# Arrays of sessions
UNIT_TESTS += %D%/unit_core_arrays
%C%_unit_core_arrays_SOURCES = %D%/unit_core_arrays.c %D%/core_case.c %D%/core_case.h
%C%_unit_core_arrays_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_core_arrays_LDADD = $(CORE_TEST_LIBS)

# Kernels: a float64 reference and fixtures of random sequences
check_LTLIBRARIES += %D%/libkerneltest.la
%C%_libkerneltest_la_SOURCES = \
	%D%/golden_case.c \
	%D%/golden_case.h \
	%D%/kernel_test.h \
	%D%/kernel_world.c \
	%D%/kernel_world.h \
	%D%/reference.c \
	%D%/reference.h
KERNEL_TEST_LIBS = %D%/libkerneltest.la kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)

UNIT_TESTS += %D%/unit_layout
%C%_unit_layout_SOURCES = %D%/unit_layout.c
%C%_unit_layout_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_layout_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_convert
%C%_unit_convert_SOURCES = %D%/unit_convert.c
%C%_unit_convert_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_convert_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_team
%C%_unit_team_SOURCES = %D%/unit_team.c
%C%_unit_team_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_team_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_schedule
%C%_unit_schedule_SOURCES = %D%/unit_schedule.c
%C%_unit_schedule_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_schedule_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_append
%C%_unit_append_SOURCES = %D%/unit_append.c
%C%_unit_append_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_append_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_append_rotary
%C%_unit_append_rotary_SOURCES = %D%/unit_append_rotary.c
%C%_unit_append_rotary_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_append_rotary_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention
%C%_unit_attention_SOURCES = %D%/unit_attention.c
%C%_unit_attention_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention_bytes
%C%_unit_attention_bytes_SOURCES = %D%/unit_attention_bytes.c
%C%_unit_attention_bytes_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_bytes_LDADD = $(MOD_TEST_LIBS)

# The tile kernels of every instruction set, and models of those that multiply bf16 pairs.  tile_body.h explains why
# floating-point contraction is off.
check_LTLIBRARIES += %D%/libtilemodel.la
%C%_libtilemodel_la_SOURCES = %D%/tile_model.c %D%/tile_model.h %D%/tile_model_words.h
%C%_libtilemodel_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -fno-var-tracking -Wno-psabi
UNIT_TESTS += %D%/unit_tile_packed
%C%_unit_tile_packed_SOURCES = %D%/unit_tile_packed.c
%C%_unit_tile_packed_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_tile_packed_LDADD = %D%/libtilemodel.la $(KERNEL_TEST_LIBS)
UNIT_TESTS += %D%/unit_tile_dots
%C%_unit_tile_dots_SOURCES = %D%/unit_tile_dots.c
%C%_unit_tile_dots_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_tile_dots_LDADD = %D%/libtilemodel.la $(KERNEL_TEST_LIBS)

# The attention tests, run over the models
UNIT_TESTS += %D%/unit_attention_model
%C%_unit_attention_model_SOURCES = \
	%D%/isa_model.c \
	%D%/unit_attention.c \
	%D%/unit_attention_bytes.c \
	%D%/unit_attention_mods.c \
	%D%/unit_attention_mods_random.c \
	%D%/unit_attention_order.c \
	%D%/unit_attention_pairs.c \
	%D%/unit_attention_range.c \
	%D%/unit_attention_sight.c
%C%_unit_attention_model_CPPFLAGS = $(AM_CPPFLAGS) -DKERNEL_TEST_MODEL
%C%_unit_attention_model_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_model_LDADD = %D%/libtilemodel.la $(MOD_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention_order
%C%_unit_attention_order_SOURCES = %D%/unit_attention_order.c
%C%_unit_attention_order_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_order_LDADD = $(KERNEL_TEST_LIBS)

EXTRA_DIST += %D%/golden/attention
UNIT_TESTS += %D%/unit_attention_pairs
%C%_unit_attention_pairs_SOURCES = %D%/unit_attention_pairs.c
%C%_unit_attention_pairs_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_pairs_LDADD = $(MOD_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention_golden
%C%_unit_attention_golden_SOURCES = %D%/unit_attention_golden.c
%C%_unit_attention_golden_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_golden_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention_merge
%C%_unit_attention_merge_SOURCES = %D%/unit_attention_merge.c
%C%_unit_attention_merge_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_merge_LDADD = $(KERNEL_TEST_LIBS)

UNIT_TESTS += %D%/unit_attention_mods
%C%_unit_attention_mods_SOURCES = %D%/unit_attention_mods.c
%C%_unit_attention_mods_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_mods_LDADD = $(MOD_TEST_LIBS)
UNIT_TESTS += %D%/unit_attention_mods_random
%C%_unit_attention_mods_random_SOURCES = %D%/unit_attention_mods_random.c
%C%_unit_attention_mods_random_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_mods_random_LDADD = $(MOD_TEST_LIBS)
UNIT_TESTS += %D%/unit_attention_sight
%C%_unit_attention_sight_SOURCES = %D%/unit_attention_sight.c
%C%_unit_attention_sight_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_sight_LDADD = $(MOD_TEST_LIBS)
UNIT_TESTS += %D%/unit_attention_range
%C%_unit_attention_range_SOURCES = %D%/unit_attention_range.c
%C%_unit_attention_range_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_attention_range_LDADD = $(MOD_TEST_LIBS)

# The daemon
DAEMON_TEST_LIBS = daemon/libdaemon.la $(CRITERION_LIBS)
UNIT_TESTS += %D%/unit_config %D%/unit_memory_host
%C%_unit_config_SOURCES = %D%/unit_config.c
%C%_unit_config_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_config_LDADD = $(DAEMON_TEST_LIBS)
%C%_unit_memory_host_SOURCES = %D%/unit_memory_host.c
%C%_unit_memory_host_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_memory_host_LDADD = $(DAEMON_TEST_LIBS)
check_LTLIBRARIES += %D%/libraw.la
%C%_libraw_la_SOURCES = %D%/raw.c %D%/raw.h
%C%_libraw_la_CPPFLAGS = $(AM_CPPFLAGS) $(ZMQ_CFLAGS)
RAW_TEST_LIBS = %D%/libraw.la %D%/libharness.la proto/libproto.la common/libcommon.la $(ZMQ_LIBS)
IT_TESTS += %D%/it_first
%C%_it_first_SOURCES = %D%/it_first.c
%C%_it_first_LDADD = %D%/libharness.la

IT_TESTS += %D%/it_daemon
%C%_it_daemon_SOURCES = %D%/it_daemon.c
%C%_it_daemon_LDADD = $(RAW_TEST_LIBS)
IT_TESTS += %D%/it_hostile
%C%_it_hostile_SOURCES = %D%/it_hostile.c
%C%_it_hostile_LDADD = $(RAW_TEST_LIBS)

# The client library over an embedded owner.
UNIT_TESTS += %D%/unit_client_rows
%C%_unit_client_rows_SOURCES = %D%/unit_client_rows.c
%C%_unit_client_rows_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_rows_LDADD = $(CLIENT_WORLD_LIBS)
UNIT_TESTS += %D%/unit_client_arguments
%C%_unit_client_arguments_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/unit_client_arguments.c
%C%_unit_client_arguments_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_arguments_LDADD = client/libpagedclient.la $(CRITERION_LIBS) -lpthread
UNIT_TESTS += %D%/unit_client
%C%_unit_client_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/unit_client.c
%C%_unit_client_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_LDADD = client/libpagedclient.la $(CRITERION_LIBS) -lpthread
UNIT_TESTS += %D%/unit_batch
%C%_unit_batch_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/unit_batch.c
%C%_unit_batch_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_batch_LDADD = client/libpagedclient.la $(KERNEL_TEST_LIBS) -lm
UNIT_TESTS += %D%/unit_guard
%C%_unit_guard_SOURCES = %D%/unit_guard.c client/guard.c
%C%_unit_guard_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_guard_LDADD = $(CRITERION_LIBS)
LINT_TESTS += %D%/lint_exports.sh %D%/lint_header.sh %D%/lint_includes.sh

# The client library and pagedctl with a real daemon.
IT_TESTS += %D%/it_client
%C%_it_client_SOURCES = %D%/it_client.c
%C%_it_client_LDADD = client/libpagedclient.la %D%/libharness.la -lpthread

# Worker processes that use the library
check_LTLIBRARIES += %D%/libtoy.la
%C%_libtoy_la_SOURCES = %D%/toy.c %D%/toy.h
IT_LIBS = %D%/libtoy.la client/libpagedclient.la $(RAW_TEST_LIBS)
IT_TESTS += %D%/it_attach
%C%_it_attach_SOURCES = %D%/it_attach.c
%C%_it_attach_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_failures
%C%_it_failures_SOURCES = %D%/it_failures.c
%C%_it_failures_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_sharing
%C%_it_sharing_SOURCES = %D%/it_sharing.c
%C%_it_sharing_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_check
%C%_it_check_SOURCES = %D%/it_check.c
%C%_it_check_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_it_check_LDADD = $(IT_LIBS) $(JANSSON_LIBS)
IT_TESTS += %D%/it_traces
%C%_it_traces_SOURCES = %D%/it_traces.c
%C%_it_traces_LDADD = %D%/libcoretest.la $(IT_LIBS)
IT_TESTS += %D%/it_big
%C%_it_big_SOURCES = %D%/it_big.c
%C%_it_big_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_limits
%C%_it_limits_SOURCES = %D%/it_limits.c
%C%_it_limits_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_races
%C%_it_races_SOURCES = %D%/it_races.c
%C%_it_races_LDADD = $(IT_LIBS) -lpthread
IT_TESTS += %D%/it_masks
%C%_it_masks_SOURCES = %D%/it_masks.c
%C%_it_masks_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_masks_raw
%C%_it_masks_raw_SOURCES = %D%/it_masks_raw.c
%C%_it_masks_raw_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_kill
%C%_it_kill_SOURCES = %D%/it_kill.c
%C%_it_kill_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_quarantine
%C%_it_quarantine_SOURCES = %D%/it_quarantine.c
%C%_it_quarantine_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_steady
%C%_it_steady_SOURCES = %D%/it_steady.c
%C%_it_steady_LDADD = $(IT_LIBS)

# Fuzz targets: make check replays seeds and mutations of them; --enable-fuzzer builds libFuzzer programs.
FUZZ_SEEDERS = %D%/fuzz_wire_seeds
%C%_fuzz_wire_seeds_SOURCES = %D%/fuzz.h %D%/fuzz_main.c %D%/fuzz_wire.c
%C%_fuzz_wire_seeds_LDADD = proto/libproto.la common/libcommon.la
if ENABLE_TESTS
check_PROGRAMS += $(FUZZ_SEEDERS)
TESTS += $(FUZZ_SEEDERS)
endif
if ENABLE_FUZZER
noinst_PROGRAMS += %D%/fuzz_wire
endif
%C%_fuzz_wire_SOURCES = %D%/fuzz.h %D%/fuzz_wire.c
%C%_fuzz_wire_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
%C%_fuzz_wire_LDADD = proto/libproto.la common/libcommon.la

# The installed tree: programs in C, C++ and Python.
LINT_TESTS += %D%/it_install.sh
EXTRA_DIST += %D%/install_ffi.py %D%/install_worker.cc
# Attacks by users who may attach
IT_TESTS += %D%/it_versions
%C%_it_versions_SOURCES = %D%/it_versions.c
%C%_it_versions_CPPFLAGS = $(AM_CPPFLAGS) $(ZMQ_CFLAGS)
%C%_it_versions_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_attack
%C%_it_attack_SOURCES = %D%/it_attack.c
%C%_it_attack_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_fair
%C%_it_fair_SOURCES = %D%/it_fair.c
%C%_it_fair_LDADD = $(IT_LIBS)
IT_TESTS += %D%/it_threads
%C%_it_threads_SOURCES = %D%/it_threads.c
%C%_it_threads_LDADD = $(IT_LIBS) -lpthread

# Counts the allocations of a step.
UNIT_TESTS += %D%/unit_quiet
%C%_unit_quiet_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/unit_quiet.c
%C%_unit_quiet_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_quiet_LDADD = client/libpagedclient.la $(CRITERION_LIBS)

# Mods
EXTRA_DIST += %D%/golden/mods
check_LTLIBRARIES += %D%/libmodtest.la
%C%_libmodtest_la_SOURCES = %D%/mod_fixture.c %D%/mod_fixture.h %D%/mod_generator.c %D%/mod_generator.h \
	%D%/mod_scene.c %D%/mod_scene.h %D%/mod_texts.c %D%/mod_texts.h
%C%_libmodtest_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
MOD_TEST_LIBS = %D%/libmodtest.la $(KERNEL_TEST_LIBS)
UNIT_TESTS += %D%/unit_mod_parse %D%/unit_mod_eval %D%/unit_mod_property
%C%_unit_mod_parse_SOURCES = %D%/unit_mod_parse.c
%C%_unit_mod_parse_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mod_parse_LDADD = $(MOD_TEST_LIBS)
%C%_unit_mod_eval_SOURCES = %D%/unit_mod_eval.c
%C%_unit_mod_eval_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mod_eval_LDADD = $(MOD_TEST_LIBS)
%C%_unit_mod_property_SOURCES = %D%/unit_mod_property.c
%C%_unit_mod_property_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mod_property_LDADD = $(MOD_TEST_LIBS) -lm
FUZZ_SEEDERS += %D%/fuzz_mod_seeds
%C%_fuzz_mod_seeds_SOURCES = %D%/fuzz.h %D%/fuzz_main.c %D%/fuzz_mod.c
%C%_fuzz_mod_seeds_LDADD = kernels/libkernels.la common/libcommon.la
if ENABLE_FUZZER
noinst_PROGRAMS += %D%/fuzz_mod
endif
%C%_fuzz_mod_SOURCES = %D%/fuzz.h %D%/fuzz_mod.c
%C%_fuzz_mod_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
%C%_fuzz_mod_LDADD = kernels/libkernels.la common/libcommon.la

# Block masks
check_LTLIBRARIES += %D%/libmasktest.la
%C%_libmasktest_la_SOURCES = %D%/mask_fixture.c %D%/mask_fixture.h
%C%_libmasktest_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
MASK_TEST_LIBS = %D%/libmasktest.la kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)
EXTRA_DIST += %D%/golden/masks %D%/golden/conversions %D%/golden/pictures
UNIT_TESTS += %D%/unit_mask
%C%_unit_mask_SOURCES = %D%/unit_mask.c
%C%_unit_mask_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_LDADD = $(MASK_TEST_LIBS)
UNIT_TESTS += %D%/unit_mask_convert
%C%_unit_mask_convert_SOURCES = %D%/unit_mask_convert.c
%C%_unit_mask_convert_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_convert_LDADD = $(MASK_TEST_LIBS)
UNIT_TESTS += %D%/unit_mask_create
%C%_unit_mask_create_SOURCES = %D%/unit_mask_create.c
%C%_unit_mask_create_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_create_LDADD = $(MASK_TEST_LIBS)
UNIT_TESTS += %D%/unit_mask_runs
%C%_unit_mask_runs_SOURCES = %D%/unit_mask_runs.c
%C%_unit_mask_runs_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_runs_LDADD = $(MASK_TEST_LIBS) -lpthread
UNIT_TESTS += %D%/unit_mask_picture
%C%_unit_mask_picture_SOURCES = %D%/unit_mask_picture.c
%C%_unit_mask_picture_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_picture_LDADD = $(MASK_TEST_LIBS)

# PyTorch's class over the client library.
check_LTLIBRARIES += %D%/libtorchtest.la
%C%_libtorchtest_la_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/paged_attention.c %D%/paged_attention.h \
	%D%/pa_memory.h %D%/torch_golden.c %D%/torch_golden.h \
	%D%/torch_scene.c %D%/torch_scene.h
%C%_libtorchtest_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
check_LTLIBRARIES += %D%/libpahost.la %D%/libpacuda.la
%C%_libpahost_la_SOURCES = %D%/pa_host.c
%C%_libpacuda_la_SOURCES = %D%/pa_cuda.c %D%/stand_in_use.h
%C%_libpacuda_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
TORCH_TEST_LIBS = %D%/libtorchtest.la %D%/libpahost.la client/libpagedclient.la $(MOD_TEST_LIBS) -lm
TORCH_CUDA_LIBS = %D%/libtorchtest.la %D%/libpacuda.la client/libpagedclient.la $(MOD_TEST_LIBS) -ldl -lm
UNIT_TESTS += %D%/unit_torch_class
%C%_unit_torch_class_SOURCES = %D%/unit_torch_class.c
%C%_unit_torch_class_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_class_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_block_mask
%C%_unit_torch_block_mask_SOURCES = %D%/unit_torch_block_mask.c
%C%_unit_torch_block_mask_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_block_mask_LDADD = %D%/libmasktest.la $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_decode
%C%_unit_torch_decode_SOURCES = %D%/unit_torch_decode.c
%C%_unit_torch_decode_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_decode_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_calls
%C%_unit_torch_calls_SOURCES = %D%/unit_torch_calls.c
%C%_unit_torch_calls_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_calls_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_scores
%C%_unit_torch_scores_SOURCES = %D%/unit_torch_scores.c
%C%_unit_torch_scores_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_scores_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_defects
%C%_unit_torch_defects_SOURCES = %D%/unit_torch_defects.c
%C%_unit_torch_defects_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_defects_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_golden
%C%_unit_torch_golden_SOURCES = %D%/unit_torch_golden.c
%C%_unit_torch_golden_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_golden_LDADD = $(TORCH_TEST_LIBS)
UNIT_TESTS += %D%/unit_torch_mods
%C%_unit_torch_mods_SOURCES = %D%/unit_torch_mods.c
%C%_unit_torch_mods_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_mods_LDADD = %D%/libmasktest.la $(TORCH_TEST_LIBS)

# The same over pools in a GPU's memory
UNIT_TESTS += %D%/unit_torch_class_cuda
%C%_unit_torch_class_cuda_SOURCES = %D%/unit_torch_class.c
%C%_unit_torch_class_cuda_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_class_cuda_LDADD = $(TORCH_CUDA_LIBS)
EXTRA_%C%_unit_torch_class_cuda_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_torch_decode_cuda
%C%_unit_torch_decode_cuda_SOURCES = %D%/unit_torch_decode.c
%C%_unit_torch_decode_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DTORCH_SHORT
%C%_unit_torch_decode_cuda_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_decode_cuda_LDADD = $(TORCH_CUDA_LIBS)
EXTRA_%C%_unit_torch_decode_cuda_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_torch_calls_cuda
%C%_unit_torch_calls_cuda_SOURCES = %D%/unit_torch_calls.c
%C%_unit_torch_calls_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DTORCH_SHORT
%C%_unit_torch_calls_cuda_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_calls_cuda_LDADD = $(TORCH_CUDA_LIBS)
EXTRA_%C%_unit_torch_calls_cuda_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_torch_defects_cuda
%C%_unit_torch_defects_cuda_SOURCES = %D%/unit_torch_defects.c
%C%_unit_torch_defects_cuda_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_defects_cuda_LDADD = $(TORCH_CUDA_LIBS)
EXTRA_%C%_unit_torch_defects_cuda_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_torch_golden_cuda
%C%_unit_torch_golden_cuda_SOURCES = %D%/unit_torch_golden_cuda.c
%C%_unit_torch_golden_cuda_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_torch_golden_cuda_LDADD = $(TORCH_CUDA_LIBS)
EXTRA_%C%_unit_torch_golden_cuda_DEPENDENCIES = $(STAND_IN_LIBS)

# Block masks of live tables
UNIT_TESTS += %D%/unit_batch_mask
%C%_unit_batch_mask_SOURCES = %D%/unit_batch_mask.c %D%/core_case.c %D%/core_case.h
%C%_unit_batch_mask_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_batch_mask_LDADD = %D%/libcoretest.la core/libcore.la %D%/libmasktest.la $(MOD_TEST_LIBS) -lpthread

# Mods through the library.
check_LTLIBRARIES += %D%/libclientworld.la
%C%_libclientworld_la_SOURCES = %D%/client_fixture.c %D%/client_fixture.h %D%/client_world.c %D%/client_world.h
%C%_libclientworld_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
CLIENT_WORLD_LIBS = %D%/libclientworld.la client/libpagedclient.la $(MOD_TEST_LIBS) -lm
UNIT_TESTS += %D%/unit_client_threads
%C%_unit_client_threads_SOURCES = %D%/unit_client_threads.c
%C%_unit_client_threads_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_threads_LDADD = $(CLIENT_WORLD_LIBS)
UNIT_TESTS += %D%/unit_client_mods
%C%_unit_client_mods_SOURCES = %D%/unit_client_mods.c
%C%_unit_client_mods_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_mods_LDADD = $(CLIENT_WORLD_LIBS)
UNIT_TESTS += %D%/unit_client_quantised
%C%_unit_client_quantised_SOURCES = %D%/unit_client_quantised.c
%C%_unit_client_quantised_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_quantised_LDADD = $(CLIENT_WORLD_LIBS)
UNIT_TESTS += %D%/unit_client_merge
%C%_unit_client_merge_SOURCES = %D%/unit_client_merge.c
%C%_unit_client_merge_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_merge_LDADD = $(CLIENT_WORLD_LIBS)
UNIT_TESTS += %D%/unit_client_mods_calls
%C%_unit_client_mods_calls_SOURCES = %D%/unit_client_mods_calls.c
%C%_unit_client_mods_calls_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_mods_calls_LDADD = $(CLIENT_WORLD_LIBS)

# Block masks through the library
UNIT_TESTS += %D%/unit_block_mask %D%/unit_block_mask_physical %D%/unit_block_mask_golden
check_LTLIBRARIES += %D%/libblockmasktest.la
%C%_libblockmasktest_la_SOURCES = %D%/block_mask_case.c %D%/block_mask_case.h %D%/client_fixture.c %D%/client_fixture.h
%C%_libblockmasktest_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
BLOCK_MASK_TEST_LIBS = %D%/libblockmasktest.la client/libpagedclient.la
%C%_unit_block_mask_SOURCES = %D%/unit_block_mask.c
%C%_unit_block_mask_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_block_mask_LDADD = $(BLOCK_MASK_TEST_LIBS) $(CRITERION_LIBS) -lpthread
%C%_unit_block_mask_physical_SOURCES = %D%/unit_block_mask_physical.c
%C%_unit_block_mask_physical_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_block_mask_physical_LDADD = $(BLOCK_MASK_TEST_LIBS) $(CRITERION_LIBS)
%C%_unit_block_mask_golden_SOURCES = %D%/unit_block_mask_golden.c
%C%_unit_block_mask_golden_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_block_mask_golden_LDADD = $(BLOCK_MASK_TEST_LIBS) $(MASK_TEST_LIBS)
LINT_TESTS += %D%/it_mask.sh %D%/it_configure.sh
# The fake CUDA driver (stand-in)
include tests/cuda-stand-in/local.mk
check_LTLIBRARIES += %D%/libsimtcases.la
%C%_libsimtcases_la_SOURCES = %D%/simt_cases.cc %D%/simt_cases.h
%C%_libsimtcases_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libsimtcases_la_CXXFLAGS = $(SIMT_CXXFLAGS)
EXTRA_DIST += %D%/simt_cases.cu
UNIT_TESTS += %D%/unit_simt
%C%_unit_simt_SOURCES = %D%/unit_simt.c
%C%_unit_simt_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_simt_LDADD = %D%/libsimtcases.la %D%/cuda-stand-in/libsimt.la common/libcommon.la $(CRITERION_LIBS)
IT_TESTS += %D%/it_stand_in %D%/it_stand_in_run
STAND_IN_LIBS = %D%/cuda-stand-in/libcuda.la %D%/cuda-stand-in/libnvrtc.la
%C%_it_stand_in_SOURCES = %D%/it_stand_in.c %D%/stand_in_case.h %D%/stand_in_use.h
%C%_it_stand_in_LDADD = %D%/libharness.la kernels/libkernels.la common/libcommon.la
EXTRA_%C%_it_stand_in_DEPENDENCIES = $(STAND_IN_LIBS)
%C%_it_stand_in_run_SOURCES = %D%/it_stand_in_run.c %D%/stand_in_case.h %D%/stand_in_use.h
%C%_it_stand_in_run_LDADD = $(%C%_it_stand_in_LDADD)
EXTRA_%C%_it_stand_in_run_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_cuda_abi
%C%_unit_cuda_abi_SOURCES = %D%/unit_cuda_abi.c %D%/cuda_abi.h %D%/cuda_graph.h
%C%_unit_cuda_abi_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_abi_CPPFLAGS = $(AM_CPPFLAGS)
%C%_unit_cuda_abi_LDADD = $(CRITERION_LIBS)
EXTRA_DIST += %D%/cuda_abi_theirs.c
if HAVE_CUDA_TOOLKIT
%C%_unit_cuda_abi_SOURCES += %D%/cuda_abi_theirs.c
%C%_unit_cuda_abi_CPPFLAGS += -isystem $(CUDA_DIR)/include -DCUDA_TOOLKIT='"$(CUDA_DIR)"'
endif

# With the CUDA toolkit: kernel sources that nvcc compiles for each architecture.  The test checks that the cubins
# contain the kernels that the fake driver runs.  Each directory adds its sources here.
CUDA_FILES = tests/simt_cases.cu
AM_TESTS_ENVIRONMENT += CUDA_DIR='$(CUDA_DIR)'; export CUDA_DIR; CUDA_FILES='$(CUDA_FILES)'; export CUDA_FILES;
LINT_TESTS += %D%/lint_nvcc.sh
IT_TESTS += %D%/it_cuda_toolkit
%C%_it_cuda_toolkit_SOURCES = %D%/it_cuda_toolkit.c %D%/stand_in_case.h %D%/stand_in_use.h
%C%_it_cuda_toolkit_LDADD = $(%C%_it_stand_in_LDADD)
EXTRA_%C%_it_cuda_toolkit_DEPENDENCIES = $(STAND_IN_LIBS)

# Pools in a GPU's memory
check_LTLIBRARIES += %D%/libcudacase.la
%C%_libcudacase_la_SOURCES = %D%/cuda_case.c %D%/cuda_case.h %D%/stand_in_use.h
CUDA_CASE_LIBS = %D%/libcudacase.la $(IT_LIBS) kernels/libkernels.la common/libcommon.la
IT_TESTS += %D%/it_cuda_pool %D%/it_cuda_faults
%C%_it_cuda_pool_SOURCES = %D%/it_cuda_pool.c
%C%_it_cuda_pool_LDADD = $(CUDA_CASE_LIBS)
EXTRA_%C%_it_cuda_pool_DEPENDENCIES = $(STAND_IN_LIBS)
%C%_it_cuda_faults_SOURCES = %D%/it_cuda_faults.c
%C%_it_cuda_faults_LDADD = $(CUDA_CASE_LIBS)
EXTRA_%C%_it_cuda_faults_DEPENDENCIES = $(STAND_IN_LIBS)
UNIT_TESTS += %D%/unit_cuda_gpu
%C%_unit_cuda_gpu_SOURCES = %D%/unit_cuda_gpu.c
%C%_unit_cuda_gpu_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_gpu_LDADD = kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)

# Mods as generated source, compiled by the host's compiler
UNIT_TESTS += %D%/unit_mod_source
%C%_unit_mod_source_SOURCES = %D%/mod_compiled.c %D%/mod_compiled.h %D%/mod_host.h %D%/unit_mod_source.c
%C%_unit_mod_source_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_CXX='"$(CXX)"'
%C%_unit_mod_source_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mod_source_LDADD = $(MOD_TEST_LIBS) -ldl -lm

# Compiled kernels in the worker
CODE_TEST_LIBS = client/libcode.la kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)
UNIT_TESTS += %D%/unit_code_cache
%C%_unit_code_cache_SOURCES = %D%/unit_code_cache.c
%C%_unit_code_cache_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_code_cache_LDADD = $(CODE_TEST_LIBS)

# CUDA kernels, run on the host
check_LTLIBRARIES += %D%/libsimtkernels.la
%C%_libsimtkernels_la_SOURCES = \
	%D%/simt/append.cc \
	%D%/simt/attention_bytes.cc \
	%D%/simt/attention_mla.cc \
	%D%/simt/attention_mla_window.cc \
	%D%/simt/attention_mma.cc \
	%D%/simt/attention_mma_window.cc \
	%D%/simt/attention_simt.cc \
	%D%/simt/attention_simt_document.cc \
	%D%/simt/attention_simt_window.cc \
	%D%/simt/kernels.h \
	%D%/simt/merge.cc \
	%D%/simt/mod_document.h \
	%D%/simt/mod_window.h \
	%D%/simt/pages.cc \
	%D%/simt/plan.cc
%C%_libsimtkernels_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libsimtkernels_la_CXXFLAGS = $(SIMT_CXXFLAGS)
check_LTLIBRARIES += %D%/libcudatest.la
%C%_libcudatest_la_SOURCES = %D%/cuda_world.c %D%/cuda_world.h
%C%_libcudatest_la_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
CUDA_TEST_LIBS = %D%/libcudatest.la %D%/libkerneltest.la %D%/libsimtkernels.la %D%/cuda-stand-in/libsimt.la \
	kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)
UNIT_TESTS += %D%/unit_cuda_pages
%C%_unit_cuda_pages_SOURCES = %D%/unit_cuda_pages.c
%C%_unit_cuda_pages_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_pages_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_plan
%C%_unit_cuda_plan_SOURCES = %D%/unit_cuda_plan.c
%C%_unit_cuda_plan_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_plan_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_attention
%C%_unit_cuda_attention_SOURCES = %D%/unit_cuda_attention.c
%C%_unit_cuda_attention_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_attention_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_attention_mla
%C%_unit_cuda_attention_mla_SOURCES = %D%/unit_cuda_attention_mla.c
%C%_unit_cuda_attention_mla_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_attention_mla_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_bytes
%C%_unit_cuda_bytes_SOURCES = %D%/unit_cuda_bytes.c
%C%_unit_cuda_bytes_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_bytes_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_quantise
%C%_unit_cuda_quantise_SOURCES = %D%/unit_cuda_quantise.c
%C%_unit_cuda_quantise_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_quantise_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_golden
%C%_unit_cuda_golden_SOURCES = %D%/unit_cuda_golden.c
%C%_unit_cuda_golden_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_golden_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_mods
%C%_unit_cuda_mods_SOURCES = %D%/unit_cuda_mods.c
%C%_unit_cuda_mods_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_mods_LDADD = %D%/libmodtest.la $(CUDA_TEST_LIBS)
STAND_IN_KERNELS += tests/simt/append.cc tests/simt/attention_bytes.cc tests/simt/attention_mla.cc \
	tests/simt/attention_mma.cc tests/simt/attention_simt.cc tests/simt/merge.cc tests/simt/pages.cc tests/simt/plan.cc
LINT_TESTS += %D%/lint_cuda_images.sh
IT_TESTS += %D%/it_cuda_images
%C%_it_cuda_images_SOURCES = %D%/it_cuda_images.c %D%/stand_in_case.h %D%/stand_in_use.h
%C%_it_cuda_images_LDADD = kernels/libimages.la $(%C%_it_stand_in_LDADD)
EXTRA_%C%_it_cuda_images_DEPENDENCIES = $(STAND_IN_LIBS)
if BUILD_CUDA_IMAGES
AM_TESTS_ENVIRONMENT += CUDA_IMAGES=yes; export CUDA_IMAGES;
endif

# Memory of block masks
UNIT_TESTS += %D%/unit_mask_memory %D%/unit_block_mask_memory
%C%_unit_mask_memory_SOURCES = %D%/unit_mask_memory.c
%C%_unit_mask_memory_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mask_memory_LDADD = kernels/libkernels.la common/libcommon.la $(CRITERION_LIBS)
%C%_unit_block_mask_memory_SOURCES = %D%/unit_block_mask_memory.c %D%/client_fixture.c %D%/client_fixture.h
%C%_unit_block_mask_memory_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_block_mask_memory_LDADD = client/libpagedclient.la $(CRITERION_LIBS) -lpthread

# Kernels compiled at run time
UNIT_TESTS += %D%/unit_cuda_compile
%C%_unit_cuda_compile_SOURCES = %D%/unit_cuda_compile.c
%C%_unit_cuda_compile_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_compile_LDADD = $(MOD_TEST_LIBS) -lm
UNIT_TESTS += %D%/unit_code
%C%_unit_code_SOURCES = %D%/stand_in_use.h %D%/unit_code.c
%C%_unit_code_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_code_LDADD = client/libcode.la $(MOD_TEST_LIBS) -ldl -lpthread
EXTRA_%C%_unit_code_DEPENDENCIES = $(STAND_IN_LIBS)

# Batches on a GPU
check_LTLIBRARIES += %D%/libbatchscene.la
%C%_libbatchscene_la_SOURCES = %D%/batch_scene.c %D%/batch_scene.h
IT_TESTS += %D%/it_cuda_batch
%C%_it_cuda_batch_SOURCES = %D%/it_cuda_batch.c
%C%_it_cuda_batch_LDADD = %D%/libbatchscene.la %D%/libkerneltest.la $(CUDA_CASE_LIBS) -lm
EXTRA_%C%_it_cuda_batch_DEPENDENCIES = $(STAND_IN_LIBS)
IT_TESTS += %D%/it_cuda_plan
%C%_it_cuda_plan_SOURCES = %D%/it_cuda_plan.c
%C%_it_cuda_plan_LDADD = $(%C%_it_cuda_batch_LDADD)
EXTRA_%C%_it_cuda_plan_DEPENDENCIES = $(STAND_IN_LIBS)
IT_TESTS += %D%/it_cuda_work
%C%_it_cuda_work_SOURCES = %D%/it_cuda_work.c
%C%_it_cuda_work_LDADD = $(%C%_it_cuda_batch_LDADD)
EXTRA_%C%_it_cuda_work_DEPENDENCIES = $(STAND_IN_LIBS)
IT_TESTS += %D%/it_cuda_mods
%C%_it_cuda_mods_SOURCES = %D%/it_cuda_mods.c
%C%_it_cuda_mods_LDADD = $(%C%_it_cuda_batch_LDADD)
EXTRA_%C%_it_cuda_mods_DEPENDENCIES = $(STAND_IN_LIBS)

# The daemon loses its GPU
IT_TESTS += %D%/it_cuda_lost
%C%_it_cuda_lost_SOURCES = %D%/it_cuda_lost.c
%C%_it_cuda_lost_LDADD = $(CUDA_CASE_LIBS)
EXTRA_%C%_it_cuda_lost_DEPENDENCIES = $(STAND_IN_LIBS)

# Marks: ordering batches of different streams and processes
UNIT_TESTS += %D%/unit_mark
%C%_unit_mark_SOURCES = %D%/unit_mark.c
%C%_unit_mark_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_mark_LDADD = client/libpagedclient.la $(CRITERION_LIBS)
IT_TESTS += %D%/it_cuda_marks
%C%_it_cuda_marks_SOURCES = %D%/cuda_graph.h %D%/it_cuda_marks.c
%C%_it_cuda_marks_LDADD = $(%C%_it_cuda_batch_LDADD)
EXTRA_%C%_it_cuda_marks_DEPENDENCIES = $(STAND_IN_LIBS)

# A GPU's instructions compared with their models
check_LTLIBRARIES += %D%/libconformance.la
%C%_libconformance_la_SOURCES = %D%/gpu/conformance.cc %D%/gpu/conformance.h
%C%_libconformance_la_CPPFLAGS = $(SIMT_CPPFLAGS)
%C%_libconformance_la_CXXFLAGS = $(SIMT_CXXFLAGS)
EXTRA_DIST += %D%/gpu/conformance.cu
STAND_IN_KERNELS += tests/gpu/conformance.cc tests/simt/gpu_reader.cc
CUDA_FILES += tests/gpu/conformance.cu bench/gpu_reader.cu
IT_TESTS += %D%/gpu/conformance
%C%_gpu_conformance_SOURCES = %D%/gpu/conformance.c %D%/gpu/conformance_run.c %D%/gpu/conformance_run.h
%C%_gpu_conformance_LDADD = %D%/libcudacase.la %D%/libconformance.la %D%/cuda-stand-in/libsimt.la \
	%D%/libkerneltest.la %D%/libharness.la kernels/libkernels.la common/libcommon.la -lm
EXTRA_%C%_gpu_conformance_DEPENDENCIES = $(STAND_IN_LIBS)
LINT_TESTS += %D%/it_conformance.sh

# Programs for a machine with a GPU; tools/gpu-bundle packs them.
GPU_TESTS = %D%/gpu/conformance %D%/it_sharing %D%/it_cuda_batch %D%/it_cuda_graph %D%/it_cuda_mods %D%/it_cuda_work \
	%D%/it_cuda_marks %D%/it_cuda_pool %D%/it_cuda_plan %D%/it_cuda_faults %D%/it_quarantine
if HAVE_CUDA_TOOLKIT
GPU_TESTS += %D%/gpu/conformance.fatbin bench/gpu_reader.fatbin
CLEANFILES += %D%/gpu/conformance.fatbin bench/gpu_reader.fatbin
bench/gpu_reader.fatbin: bench/gpu_reader.cu bench/gpu_reader.h kernels/cuda/simt.h kernels/cuda/simt_device.h
	$(AM_V_GEN)$(MKDIR_P) bench && $(CUDA_DIR)/bin/nvcc -std=c++17 -I$(top_srcdir) $(CUDA_GENCODE) -fatbin -o $@ \
		$(srcdir)/bench/gpu_reader.cu
%D%/gpu/conformance.fatbin: %D%/gpu/conformance.cu %D%/gpu/conformance.h kernels/cuda/fp8.h kernels/cuda/simt.h \
		kernels/cuda/simt_device.h
	$(AM_V_GEN)$(MKDIR_P) %D%/gpu && $(CUDA_DIR)/bin/nvcc -std=c++17 -I$(top_srcdir) $(CUDA_GENCODE) -fatbin -o $@ \
		$(srcdir)/%D%/gpu/conformance.cu
endif
.PHONY: gpu-tests
gpu-tests: all %D%/gpu/list
	$(MAKE) $(AM_MAKEFLAGS) $(GPU_TESTS)
# For tools/gpu-bundle.
check_DATA = %D%/gpu/list
CLEANFILES += %D%/gpu/list
%D%/gpu/list: Makefile
	$(AM_V_GEN)$(MKDIR_P) %D%/gpu && for name in $(GPU_TESTS); do echo $$name; done >$@

# examples/llama; a GPU bundle contains this test too
EXTRA_DIST += %D%/catch_die.h %D%/gguf_writer.h
EXTRA_DIST += %D%/golden/generate_llama.py %D%/golden/llama
if ENABLE_DEMO
UNIT_TESTS += %D%/unit_gguf
%C%_unit_gguf_SOURCES = %D%/unit_gguf.c
%C%_unit_gguf_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_gguf_LDADD = examples/llama/libllama.la $(CRITERION_LIBS)
UNIT_TESTS += %D%/unit_matmul
%C%_unit_matmul_SOURCES = %D%/unit_matmul.c
%C%_unit_matmul_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_matmul_LDADD = examples/llama/libllama.la $(CRITERION_LIBS) -lm
check_LTLIBRARIES += %D%/libgoldenllama.la
%C%_libgoldenllama_la_SOURCES = %D%/golden_llama.c %D%/golden_llama.h
UNIT_TESTS += %D%/unit_tokenizer
%C%_unit_tokenizer_SOURCES = %D%/unit_tokenizer.c
%C%_unit_tokenizer_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_tokenizer_LDADD = %D%/libgoldenllama.la examples/llama/libllama.la $(CRITERION_LIBS)
UNIT_TESTS += %D%/unit_engine
%C%_unit_engine_SOURCES = %D%/stand_in_use.h %D%/unit_engine.c
%C%_unit_engine_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_unit_engine_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_engine_LDADD = examples/llama/libllama.la client/libpagedclient.la $(CRITERION_LIBS) -ldl
EXTRA_%C%_unit_engine_DEPENDENCIES = $(STAND_IN_LIBS)
IT_TESTS += %D%/it_workers
%C%_it_workers_SOURCES = %D%/it_workers.c
%C%_it_workers_LDADD = %D%/libharness.la
IT_TESTS += %D%/it_llama
%C%_it_llama_SOURCES = %D%/it_llama.c
%C%_it_llama_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_it_llama_LDADD = %D%/libgoldenllama.la %D%/libharness.la examples/llama/libllama.la client/libpagedclient.la -lm
IT_TESTS += %D%/it_llama_cuda
%C%_it_llama_cuda_SOURCES = %D%/it_llama_cuda.c
%C%_it_llama_cuda_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/client
%C%_it_llama_cuda_LDADD = %D%/libgoldenllama.la examples/llama/libllama.la $(CUDA_CASE_LIBS) -ldl -lm
EXTRA_%C%_it_llama_cuda_DEPENDENCIES = $(STAND_IN_LIBS)
GPU_TESTS += %D%/it_llama_cuda
LINT_TESTS += %D%/it_bundle.sh
endif

# Captured graphs
IT_TESTS += %D%/it_stand_in_graph
%C%_it_stand_in_graph_SOURCES = %D%/cuda_graph.h %D%/it_stand_in_graph.c %D%/stand_in_case.h %D%/stand_in_use.h
%C%_it_stand_in_graph_LDADD = $(%C%_it_stand_in_LDADD)
EXTRA_%C%_it_stand_in_graph_DEPENDENCIES = $(STAND_IN_LIBS)
check_LTLIBRARIES += %D%/libdecodescene.la
%C%_libdecodescene_la_SOURCES = %D%/cuda_graph.h %D%/decode_scene.c %D%/decode_scene.h
IT_TESTS += %D%/it_cuda_graph
%C%_it_cuda_graph_SOURCES = %D%/it_cuda_graph.c
%C%_it_cuda_graph_LDADD = %D%/libdecodescene.la $(CUDA_CASE_LIBS) -lm
EXTRA_%C%_it_cuda_graph_DEPENDENCIES = $(STAND_IN_LIBS)

# paged-bench on a GPU
LINT_TESTS += %D%/it_bench_gpu.sh
# and on the host
LINT_TESTS += %D%/it_bench_host.sh
EXTRA_DIST += %D%/simt/gpu_reader.cc

# Pools of e4m3, e5m2 and i8
IT_TESTS += %D%/it_quantised
%C%_it_quantised_SOURCES = %D%/it_quantised.c
%C%_it_quantised_LDADD = %D%/libkerneltest.la $(IT_LIBS) kernels/libkernels.la common/libcommon.la -lm

# Built-in mods: the fake driver's are compiled from the same sources as the kernel images.
STAND_IN_KERNELS += \
	%D%/simt/ready.h \
	%D%/simt/ready_alibi.cc \
	%D%/simt/ready_capped_window.cc \
	%D%/simt/ready_document.cc \
	%D%/simt/ready_prefix_lm.cc \
	%D%/simt/ready_sliding_window.cc \
	%D%/simt/ready_soft_cap.cc
$(%C%_cuda_stand_in_libstandinkernels_la_OBJECTS): $(READY_FILES)
UNIT_TESTS += %D%/unit_cuda_ready
%C%_unit_cuda_ready_SOURCES = %D%/unit_cuda_ready.c
%C%_unit_cuda_ready_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_ready_LDADD = $(MOD_TEST_LIBS) -lm

# Failing calls on the way to attention with mods
IT_TESTS += %D%/it_cuda_mods_faults
%C%_it_cuda_mods_faults_SOURCES = %D%/it_cuda_mods_faults.c
%C%_it_cuda_mods_faults_LDADD = $(%C%_it_cuda_batch_LDADD)
EXTRA_%C%_it_cuda_mods_faults_DEPENDENCIES = $(STAND_IN_LIBS)

LINT_TESTS += %D%/lint_python.sh

UNIT_TESTS += %D%/unit_cuda_random
%C%_unit_cuda_random_SOURCES = %D%/unit_cuda_random.c
%C%_unit_cuda_random_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_random_LDADD = $(CUDA_TEST_LIBS)

# Requests over several pools, some of which fail
UNIT_TESTS += %D%/unit_pools
%C%_unit_pools_SOURCES = %D%/unit_pools.c
%C%_unit_pools_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_pools_LDADD = $(DAEMON_TEST_LIBS)

# Gather: copies tokens out of pages
UNIT_TESTS += %D%/unit_gather
%C%_unit_gather_SOURCES = %D%/unit_gather.c
%C%_unit_gather_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_gather_LDADD = $(KERNEL_TEST_LIBS)
UNIT_TESTS += %D%/unit_cuda_gather
%C%_unit_cuda_gather_SOURCES = %D%/unit_cuda_gather.c
%C%_unit_cuda_gather_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_cuda_gather_LDADD = $(CUDA_TEST_LIBS)
UNIT_TESTS += %D%/unit_client_gather
%C%_unit_client_gather_SOURCES = %D%/unit_client_gather.c
%C%_unit_client_gather_CFLAGS = $(AM_CFLAGS) $(CRITERION_CFLAGS)
%C%_unit_client_gather_LDADD = $(CLIENT_WORLD_LIBS)
