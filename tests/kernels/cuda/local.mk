# CUDA kernels, run on the host by the models of tests/fake-cuda.
UNIT_TESTS += %D%/unit_cuda_aot %D%/unit_cuda_append_quantise %D%/unit_cuda_attention %D%/unit_cuda_attention_cluster \
	%D%/unit_cuda_attention_mla %D%/unit_cuda_attention_quantised %D%/unit_cuda_gather %D%/unit_cuda_golden %D%/unit_cuda_gpu \
	%D%/unit_cuda_jit %D%/unit_cuda_mods %D%/unit_cuda_mods_quantised %D%/unit_cuda_pages %D%/unit_cuda_plan \
	%D%/unit_cuda_random
TEST_SUPPORT += %D%/combine_check.c %D%/combine_check.h %D%/cuda_kernel_fixture.c %D%/cuda_kernel_fixture.h \
	%D%/mla_check.c %D%/mla_check.h %D%/mods_check.c %D%/mods_check.h
