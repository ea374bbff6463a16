UNIT_TESTS += %D%/unit_batch_mask %D%/unit_mask %D%/unit_mask_convert %D%/unit_mask_create %D%/unit_mask_memory \
	%D%/unit_mask_to_string %D%/unit_remote_mask
