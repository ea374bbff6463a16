UNIT_TESTS += %D%/unit_region %D%/unit_ring %D%/unit_text
