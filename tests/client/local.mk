UNIT_TESTS += %D%/unit_batch %D%/unit_block_mask %D%/unit_block_mask_golden %D%/unit_block_mask_memory \
	%D%/unit_block_mask_physical %D%/unit_client %D%/unit_client_arguments %D%/unit_client_gather \
	%D%/unit_client_merge %D%/unit_client_overlap %D%/unit_client_mods %D%/unit_client_mods_calls %D%/unit_client_quantised \
	%D%/unit_client_rows %D%/unit_client_threads %D%/unit_checking %D%/unit_guard %D%/unit_holds %D%/unit_jit_store %D%/unit_jit_cache %D%/unit_mark \
	%D%/unit_prefix %D%/unit_publishing %D%/unit_sharing %D%/unit_step_allocations %D%/unit_watch
TEST_SUPPORT += %D%/block_mask_fixture.c %D%/block_mask_fixture.h %D%/attention_fixture.c %D%/attention_fixture.h
# The library does not export these files' names.
%C%_unit_guard_SOURCES = %D%/unit_guard.c client/api/guard.c
%C%_unit_prefix_SOURCES = %D%/unit_prefix.c client/api/seq/prefix.c client/params.c
%C%_unit_prefix_LDADD = $(LDADD) $(SODIUM_LIBS)
%C%_unit_publishing_SOURCES = %D%/unit_publishing.c client/api/seq/publishing.c
%C%_unit_watch_LDADD = $(LDADD) $(SODIUM_LIBS)
