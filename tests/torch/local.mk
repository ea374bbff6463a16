# PyTorch's class over the client library, and PyTorch's tests of it.
UNIT_TESTS += %D%/unit_torch_block_mask %D%/unit_torch_calls %D%/unit_torch_class %D%/unit_torch_decode \
	%D%/unit_torch_defects %D%/unit_torch_golden %D%/unit_torch_mods %D%/unit_torch_scores
TEST_SUPPORT += %D%/pa_host.c %D%/pa_memory.h %D%/paged_attention.c %D%/paged_attention.h %D%/torch_fixture.c \
	%D%/torch_fixture.h %D%/torch_golden.c %D%/torch_golden.h

# The same over pools in a GPU's memory: pa_cuda.c takes the place of pa_host.c.
UNIT_TESTS += %D%/unit_torch_calls_cuda %D%/unit_torch_class_cuda %D%/unit_torch_decode_cuda \
	%D%/unit_torch_defects_cuda %D%/unit_torch_golden_cuda
%C%_unit_torch_calls_cuda_SOURCES = %D%/unit_torch_calls.c %D%/pa_cuda.c
%C%_unit_torch_calls_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DTORCH_SHORT
%C%_unit_torch_class_cuda_SOURCES = %D%/unit_torch_class.c %D%/pa_cuda.c
%C%_unit_torch_decode_cuda_SOURCES = %D%/unit_torch_decode.c %D%/pa_cuda.c
%C%_unit_torch_decode_cuda_CPPFLAGS = $(AM_CPPFLAGS) -DTORCH_SHORT
%C%_unit_torch_defects_cuda_SOURCES = %D%/unit_torch_defects.c %D%/pa_cuda.c
%C%_unit_torch_golden_cuda_SOURCES = %D%/unit_torch_golden_cuda.c %D%/pa_cuda.c
