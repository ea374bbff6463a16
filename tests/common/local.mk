UNIT_TESTS += %D%/unit_region %D%/unit_text
