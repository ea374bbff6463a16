# A test is one name in a list of its directory's local.mk: UNIT_TESTS (Criterion; the tests of FILE.c are unit_FILE.c),
# IT_TESTS (programs with real processes, tests/support/harness.h) or LINT_TESTS (scripts that print TAP).  Its source is the file
# of that name, its libraries are LDADD below, unless the directory says otherwise.
#
# Tests run side by side (make -j check) and on busy machines.  So each has names of its own: a directory or a file from
# mkdtemp() or mktemp, a free port, a runtime directory of the harness; it counts its own processes and descriptors, not
# the machine's; and it requires no duration (tests/support/harness.h).
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
AM_TESTS_ENVIRONMENT = CRITERION_OUTPUTS=tap:-; export CRITERION_OUTPUTS; \
	PAGED_SRCDIR='$(abs_top_srcdir)'; export PAGED_SRCDIR; \
	PAGED_BUILDDIR='$(abs_top_builddir)'; export PAGED_BUILDDIR; \
	LSAN_OPTIONS='suppressions=$(abs_top_srcdir)/tests/support/lsan.supp:print_suppressions=0'; export LSAN_OPTIONS;

UNIT_TESTS =
IT_TESTS =
LINT_TESTS =
# Programs for a machine with a GPU; tools/gpu-bundle packs them.
GPU_TESTS =

if ENABLE_TESTS
check_PROGRAMS += $(UNIT_TESTS) $(IT_TESTS)
check_LTLIBRARIES = $(TEST_LIBS)
TESTS += $(UNIT_TESTS) $(IT_TESTS) $(LINT_TESTS)
AM_CPPFLAGS += $(CRITERION_CFLAGS) $(ZMQ_CFLAGS) $(JANSSON_CFLAGS)
endif

# Every part of the product as a static library, then the library that programs link.  The linker takes what a test uses
# (AM_LDFLAGS has --as-needed).
LDADD = %D%/libsupport.la $(SIMT_LIBS) $(PRODUCT_LIBS) client/libpagedclient.la $(CRITERION_LIBS) $(ZMQ_LIBS) \
	$(JANSSON_LIBS) -ldl -lpthread -lm
PRODUCT_LIBS = client/cuda/libjit.la daemon/libdaemon.la core/libcore.la proto/libproto.la kernels/libkernels.la \
	common/libcommon.la
# Fixtures: those of several directories (support/), and each directory's own.
TEST_SUPPORT =
TEST_LIBS = %D%/libsupport.la
%C%_libsupport_la_SOURCES = $(TEST_SUPPORT)
if ENABLE_THREAD_SANITIZER
%C%_libsupport_la_SOURCES += %D%/thread-sanitizer/cases.c %D%/thread-sanitizer/criterion/criterion.h
endif
# Tests load the fake driver at run time.
EXTRA_%C%_libsupport_la_DEPENDENCIES = $(FAKE_CUDA_LIBS)

# The logs of all tests, for tools/check.
print-test-logs:
	@for log in $(TEST_LOGS); do echo $$log; done
.PHONY: print-test-logs

include %D%/support/local.mk
include %D%/common/local.mk
include %D%/core/local.mk
include %D%/proto/local.mk
include %D%/daemon/local.mk
include %D%/kernels/cpu/local.mk
include %D%/kernels/mask/local.mk
include %D%/kernels/mod/local.mk
include %D%/kernels/cuda/local.mk
include %D%/client/local.mk
include %D%/events/local.mk
include %D%/system/local.mk
include %D%/torch/local.mk
include %D%/llama/local.mk
include %D%/fuzz/local.mk
include %D%/lint/local.mk
include %D%/golden/local.mk
include %D%/fake-cuda/local.mk
include %D%/gpu/local.mk
EXTRA_DIST += $(LINT_TESTS)
