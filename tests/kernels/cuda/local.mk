# CUDA kernels, run on the host by the models of tests/fake-cuda.
UNIT_TESTS += %D%/unit_cuda_attention %D%/unit_cuda_attention_mla %D%/unit_cuda_bytes %D%/unit_cuda_jit \
	%D%/unit_cuda_gather %D%/unit_cuda_golden %D%/unit_cuda_gpu %D%/unit_cuda_mods %D%/unit_cuda_pages \
	%D%/unit_cuda_plan %D%/unit_cuda_quantise %D%/unit_cuda_random %D%/unit_cuda_aot
TEST_SUPPORT += %D%/cuda_world.c %D%/cuda_world.h
