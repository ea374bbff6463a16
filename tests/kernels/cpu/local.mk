UNIT_TESTS += %D%/unit_append %D%/unit_append_rotary %D%/unit_attention %D%/unit_attention_bf16 \
	%D%/unit_attention_golden %D%/unit_attention_invariance %D%/unit_attention_kv_first \
	%D%/unit_attention_merge \
	%D%/unit_attention_mod_bounds %D%/unit_attention_model %D%/unit_attention_mods \
	%D%/unit_attention_mods_random %D%/unit_attention_quantised %D%/unit_attention_tile_mask %D%/unit_convert \
	%D%/unit_gather %D%/unit_layout %D%/unit_schedule %D%/unit_team %D%/unit_tile_decode \
	%D%/unit_tile_prefill
TEST_SUPPORT += %D%/attention_mod_fixture.c %D%/attention_mod_fixture.h

# The tile kernels of every instruction set, and models of those that multiply bf16 pairs.  tile_body.h explains why
# floating-point contraction is off.
TEST_LIBS += %D%/libtilemodel.la
%C%_libtilemodel_la_SOURCES = %D%/tile_model.c %D%/tile_model.h %D%/tile_model_vec.h
%C%_libtilemodel_la_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -fno-var-tracking -Wno-psabi
%C%_unit_tile_prefill_LDADD = %D%/libtilemodel.la $(LDADD)
%C%_unit_tile_decode_LDADD = %D%/libtilemodel.la $(LDADD)

# The attention tests, run over the models.
%C%_unit_attention_model_SOURCES = %D%/isa_model.c %D%/unit_attention.c %D%/unit_attention_quantised.c \
	%D%/unit_attention_mods.c %D%/unit_attention_mods_random.c %D%/unit_attention_invariance.c \
	%D%/unit_attention_bf16.c %D%/unit_attention_mod_bounds.c %D%/unit_attention_tile_mask.c \
	%D%/unit_attention_kv_first.c
%C%_unit_attention_model_CPPFLAGS = $(AM_CPPFLAGS) -DKERNEL_TEST_MODEL
%C%_unit_attention_model_LDADD = %D%/libtilemodel.la $(LDADD)
