# What tests of several directories share: the harness of real processes, fixtures of each layer, the float64 reference.
TEST_SUPPORT += %D%/client_fixture.c %D%/client_fixture.h %D%/cuda_graph.h %D%/geometry.h %D%/golden_attention.c \
	%D%/golden_attention.h %D%/golden_mask.c %D%/golden_mask.h %D%/harness.c %D%/harness.h %D%/harness_daemon.c \
	%D%/harness_internal.h %D%/harness_process.c %D%/kernel_fixture.c %D%/kernel_fixture.h %D%/kernel_test.h \
	%D%/mask_fixture.c %D%/mask_fixture.h %D%/mod_fixture.c %D%/mod_fixture.h %D%/mod_generator.c \
	%D%/mod_generator.h %D%/mod_texts.c %D%/mod_texts.h %D%/random.h %D%/reference.c %D%/reference.h \
	%D%/sequences.h %D%/trace.c %D%/trace.h %D%/wire_peer.c %D%/wire_peer.h %D%/worker_device.c \
	%D%/worker_device.h %D%/worker_fixture.c %D%/worker_fixture.h
EXTRA_DIST += %D%/lsan.supp %D%/tap.sh
