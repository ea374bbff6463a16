UNIT_TESTS += %D%/unit_config %D%/unit_log %D%/unit_memory_host %D%/unit_metrics %D%/unit_pools

# The daemon with the fault points of common/fault.h, which tests of other directories start.
if ENABLE_TESTS
check_PROGRAMS += %D%/pagedd-faults
endif
%C%_pagedd_faults_SOURCES = $(DAEMON_SOURCES) daemon/main.c
%C%_pagedd_faults_CPPFLAGS = $(DAEMON_CPPFLAGS) -DPAGED_FAULTS
%C%_pagedd_faults_LDADD = tests/core/libcore_faults.la $(DAEMON_LIBS)
