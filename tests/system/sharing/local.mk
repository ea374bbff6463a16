# Pages that sequences, sessions and processes share: forks, prefixes, hand-over.
IT_TESTS += %D%/it_cache_share %D%/it_fork %D%/it_fork_copy %D%/it_handover %D%/it_handover_example \
	%D%/it_handover_peers %D%/it_hold %D%/it_old_plan %D%/it_prefix %D%/it_prefix_full %D%/it_prefix_hostile \
	%D%/it_prefix_identity %D%/it_prefix_soak %D%/it_prefix_wait %D%/it_prefixes %D%/it_share_prefix \
	%D%/it_sharing %D%/it_watch %D%/it_handover_cuda %D%/it_hold_cuda %D%/it_old_plan_cuda
GPU_TESTS += %D%/it_sharing
%C%_it_handover_cuda_SOURCES = %D%/it_handover.c $(ON_CUDA)
%C%_it_handover_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_hold_cuda_SOURCES = %D%/it_hold.c $(ON_CUDA)
%C%_it_hold_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
%C%_it_old_plan_cuda_SOURCES = %D%/it_old_plan.c $(ON_CUDA)
%C%_it_old_plan_cuda_CPPFLAGS = $(ON_CUDA_CPPFLAGS)
