# Pools in the memory of the fake CUDA driver, or of a GPU.
IT_TESTS += %D%/it_cuda_batch %D%/it_cuda_clusters %D%/it_cuda_devices %D%/it_cuda_faults %D%/it_cuda_graph \
	%D%/it_cuda_graph_attention %D%/it_cuda_images %D%/it_cuda_lost %D%/it_cuda_marks %D%/it_cuda_marks_refused \
	%D%/it_cuda_mods %D%/it_cuda_mods_faults %D%/it_cuda_nvrtc %D%/it_cuda_overlap %D%/it_cuda_plan \
	%D%/it_cuda_pool %D%/it_cuda_prefill %D%/it_cuda_prefill_mods %D%/it_cuda_scatter %D%/it_cuda_sharing \
	%D%/it_cuda_toolkit %D%/it_cuda_work
GPU_TESTS += %D%/it_cuda_batch %D%/it_cuda_clusters %D%/it_cuda_faults %D%/it_cuda_graph %D%/it_cuda_graph_attention \
	%D%/it_cuda_marks %D%/it_cuda_mods %D%/it_cuda_overlap %D%/it_cuda_plan %D%/it_cuda_pool %D%/it_cuda_prefill \
	%D%/it_cuda_prefill_mods %D%/it_cuda_scatter %D%/it_cuda_sharing %D%/it_cuda_work
TEST_SUPPORT += %D%/cuda_daemon.c %D%/cuda_daemon.h %D%/decode_fixture.c %D%/decode_fixture.h %D%/marks_fixture.c \
	%D%/marks_fixture.h %D%/mods_fixture.c %D%/mods_fixture.h %D%/prefill_fixture.c %D%/prefill_fixture.h
%C%_it_cuda_images_LDADD = kernels/libimages.la $(LDADD)

# For tests of other programs, which run on the fake CUDA driver too.
ON_CUDA = %D%/on_cuda.c tests/support/worker_fixture.c
ON_CUDA_CPPFLAGS = $(AM_CPPFLAGS) -DWORKER_ON_CUDA
