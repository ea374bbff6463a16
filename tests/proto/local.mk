UNIT_TESTS += %D%/unit_wire
