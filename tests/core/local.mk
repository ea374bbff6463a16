UNIT_TESTS += %D%/unit_core %D%/unit_core_adopt %D%/unit_core_arrays %D%/unit_core_buckets %D%/unit_core_eviction %D%/unit_core_faults %D%/unit_core_holds %D%/unit_core_model %D%/unit_core_peers \
	%D%/unit_core_sessions %D%/unit_core_sharing %D%/unit_core_sharing_errors %D%/unit_core_table_memory %D%/unit_core_tenants %D%/unit_core_tickets \
	%D%/unit_core_trim %D%/unit_traces
%C%_unit_core_model_SOURCES = %D%/unit_core_model.c %D%/core_model.c %D%/core_model.h %D%/core_model_compare.c \
	%D%/core_model_holds.c %D%/core_model_pins.c %D%/core_model_publish.c %D%/core_model_requests.c \
	%D%/core_model_shares.c %D%/core_model_sharing.c %D%/core_model_steps.c %D%/core_model_tenants.c %D%/core_model_tickets.c
%C%_unit_core_peers_CPPFLAGS = $(AM_CPPFLAGS) $(SODIUM_CFLAGS)
%C%_unit_core_peers_LDADD = $(LDADD) $(SODIUM_LIBS)
TEST_SUPPORT += %D%/core_fixture.c %D%/core_fixture.h %D%/sharing_fixture.c %D%/sharing_fixture.h

# The core compiled with the fault points of common/fault.h; linked before libcore.la, it takes its place.
TEST_LIBS += %D%/libcore_faults.la
%C%_libcore_faults_la_SOURCES = $(core_libcore_la_SOURCES) common/fault.c
%C%_libcore_faults_la_CPPFLAGS = $(AM_CPPFLAGS) -DPAGED_FAULTS
%C%_unit_core_faults_LDADD = %D%/libcore_faults.la $(LDADD)

# Searches while the index changes: all sources compiled with interruptions between atomic accesses (race_step.h), and
# once more with ThreadSanitizer, which knows no fences (-Wno-tsan) and excludes other sanitizers.
UNIT_TESTS += %D%/unit_prefix_race
RACE_SOURCES = %D%/unit_prefix_race.c %D%/race_step.h %D%/race_watcher.c %D%/race_watcher.h $(core_libcore_la_SOURCES) $(common_libcommon_la_SOURCES)
RACE_CPPFLAGS = $(AM_CPPFLAGS) -include tests/core/race_step.h
%C%_unit_prefix_race_SOURCES = $(RACE_SOURCES)
%C%_unit_prefix_race_CPPFLAGS = $(RACE_CPPFLAGS)
%C%_unit_prefix_race_CFLAGS = $(AM_CFLAGS) -Wno-shadow
%C%_unit_prefix_race_LDADD = -lpthread
if !ENABLE_SANITIZERS
UNIT_TESTS += %D%/unit_prefix_race_tsan
%C%_unit_prefix_race_tsan_SOURCES = $(RACE_SOURCES)
%C%_unit_prefix_race_tsan_CPPFLAGS = $(RACE_CPPFLAGS)
%C%_unit_prefix_race_tsan_CFLAGS = $(AM_CFLAGS) -Wno-shadow -Wno-tsan -Wno-unknown-warning-option -fsanitize=thread
%C%_unit_prefix_race_tsan_LDFLAGS = $(AM_LDFLAGS) -fsanitize=thread
%C%_unit_prefix_race_tsan_LDADD = -lpthread
endif
