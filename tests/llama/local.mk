# examples/llama; a GPU bundle contains it_llama_cuda too.
if ENABLE_DEMO
PRODUCT_LIBS += examples/llama/libllama.la
UNIT_TESTS += %D%/unit_engine %D%/unit_gguf %D%/unit_matmul %D%/unit_tokenizer
IT_TESTS += %D%/it_llama %D%/it_llama_cuda %D%/it_prefix_cache %D%/it_split %D%/it_workers
GPU_TESTS += %D%/it_llama_cuda
TEST_SUPPORT += %D%/catch_die.h %D%/gguf_writer.h %D%/golden_llama.c %D%/golden_llama.h
endif
