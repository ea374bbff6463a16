UNIT_TESTS += %D%/unit_append %D%/unit_append_rotary %D%/unit_attention %D%/unit_attention_bytes \
	%D%/unit_attention_golden %D%/unit_attention_merge %D%/unit_attention_model %D%/unit_attention_mods \
	%D%/unit_attention_mods_random %D%/unit_attention_order %D%/unit_attention_pairs %D%/unit_attention_range \
	%D%/unit_attention_sight %D%/unit_convert %D%/unit_gather %D%/unit_layout %D%/unit_schedule %D%/unit_team \
	%D%/unit_tile_dots %D%/unit_tile_packed
TEST_SUPPORT += %D%/mod_scene.c %D%/mod_scene.h

# The tile kernels of every instruction set, and models of those that multiply bf16 pairs.  tile_body.h explains why
# floating-point contraction is off.
check_LTLIBRARIES += %D%/libtilemodel.la
%C%_libtilemodel_la_SOURCES = %D%/tile_model.c %D%/tile_model.h %D%/tile_model_words.h
%C%_libtilemodel_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -fno-var-tracking -Wno-psabi
%C%_unit_tile_packed_LDADD = %D%/libtilemodel.la $(LDADD)
%C%_unit_tile_dots_LDADD = %D%/libtilemodel.la $(LDADD)

# The attention tests, run over the models.
%C%_unit_attention_model_SOURCES = %D%/isa_model.c %D%/unit_attention.c %D%/unit_attention_bytes.c \
	%D%/unit_attention_mods.c %D%/unit_attention_mods_random.c %D%/unit_attention_order.c \
	%D%/unit_attention_pairs.c %D%/unit_attention_range.c %D%/unit_attention_sight.c
%C%_unit_attention_model_CPPFLAGS = $(AM_CPPFLAGS) -DKERNEL_TEST_MODEL
%C%_unit_attention_model_LDADD = %D%/libtilemodel.la $(LDADD)
