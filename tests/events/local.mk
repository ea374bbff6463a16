# The parts of paged-events.
if ENABLE_EVENTS
UNIT_TESTS += %D%/unit_admission %D%/unit_batch_log %D%/unit_block_hash %D%/unit_connector %D%/unit_metrics_text \
	%D%/unit_node_mirror %D%/unit_publisher %D%/unit_transport %D%/unit_zmtp
endif
%C%_unit_admission_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_batch_log_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_block_hash_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_connector_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_metrics_text_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_node_mirror_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_publisher_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_transport_LDADD = $(EVENTS_TEST_LDADD)
%C%_unit_zmtp_LDADD = $(EVENTS_TEST_LDADD)
EVENTS_TEST_LDADD = events/libevents.la $(LDADD)
