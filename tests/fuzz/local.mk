# Fuzz targets: make check replays seeds and mutations of them; --enable-fuzzer builds libFuzzer programs.
FUZZ_SEEDS = %D%/fuzz_mod_seeds %D%/fuzz_wire_seeds %D%/fuzz_zmtp_seeds
if ENABLE_TESTS
check_PROGRAMS += $(FUZZ_SEEDS)
TESTS += $(FUZZ_SEEDS)
endif
%C%_fuzz_mod_seeds_SOURCES = %D%/fuzz.h %D%/fuzz_main.c %D%/fuzz_mod.c
%C%_fuzz_wire_seeds_SOURCES = %D%/fuzz.h %D%/fuzz_main.c %D%/fuzz_wire.c
%C%_fuzz_zmtp_seeds_SOURCES = %D%/fuzz.h %D%/fuzz_main.c %D%/fuzz_zmtp.c events/zmtp.c events/zmtp.h

if ENABLE_FUZZER
noinst_PROGRAMS += %D%/fuzz_mod %D%/fuzz_wire %D%/fuzz_zmtp
endif
%C%_fuzz_mod_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
%C%_fuzz_wire_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
%C%_fuzz_zmtp_SOURCES = %D%/fuzz.h %D%/fuzz_zmtp.c events/zmtp.c events/zmtp.h
%C%_fuzz_zmtp_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
