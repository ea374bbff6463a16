UNIT_TESTS += %D%/unit_mod_eval %D%/unit_mod_parse %D%/unit_mod_property %D%/unit_mod_source

# Mods as generated source, compiled by the host's compiler.
%C%_unit_mod_source_SOURCES = %D%/mod_compiled.c %D%/mod_compiled.h %D%/mod_host.h %D%/unit_mod_source.c
%C%_unit_mod_source_CPPFLAGS = $(AM_CPPFLAGS) -DTEST_CXX='"$(CXX)"'
