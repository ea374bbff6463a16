# Expected results made with PyTorch, and the scripts that made them.
EXTRA_DIST += %D%/README.md %D%/allocation %D%/attention %D%/block_hashes %D%/conversions %D%/generate.py %D%/generate_llama.py \
	%D%/llama %D%/masks %D%/mods %D%/pictures
