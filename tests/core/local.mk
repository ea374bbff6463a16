UNIT_TESTS += %D%/unit_core %D%/unit_core_arrays %D%/unit_core_eviction %D%/unit_core_faults %D%/unit_core_model \
	%D%/unit_core_sessions %D%/unit_core_sharing %D%/unit_traces
%C%_unit_core_model_SOURCES = %D%/unit_core_model.c %D%/core_model.c %D%/core_model.h %D%/core_model_compare.c \
	%D%/core_model_pins.c %D%/core_model_publish.c %D%/core_model_requests.c %D%/core_model_sharing.c
TEST_SUPPORT += %D%/core_fixture.c %D%/core_fixture.h %D%/sharing_fixture.c %D%/sharing_fixture.h

# The core compiled with the fault points of common/fault.h; linked before libcore.la, it takes its place.
check_LTLIBRARIES += %D%/libcore_faults.la
%C%_libcore_faults_la_SOURCES = $(core_libcore_la_SOURCES) common/fault.c
%C%_libcore_faults_la_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_FAULTS
%C%_unit_core_faults_LDADD = %D%/libcore_faults.la $(LDADD)
