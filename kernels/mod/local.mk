# Mods: mask and score expressions
kernels_libkernels_la_SOURCES += \
	%D%/binding.c \
	%D%/builtin_mods.c \
	%D%/compile.c \
	%D%/cuda_source.c \
	%D%/cuda_source.h \
	%D%/element.c \
	%D%/emit.c \
	%D%/emit.h \
	%D%/eval_scalar.c \
	%D%/frontend.h \
	%D%/interval.c \
	%D%/interval_bounds.h \
	%D%/interval_grid.h \
	%D%/interval_scalar.c \
	%D%/ir.h \
	%D%/lex.c \
	%D%/lower.c \
	%D%/mod.h \
	%D%/mod_args.h \
	%D%/parse.c \
	%D%/print.c \
	%D%/prune.c \
	%D%/range_tree.c \
	%D%/symbols.c \
	%D%/vm.c \
	%D%/vm_fusion.c \
	%D%/vm_load.c \
	%D%/vm_operand.c \
	%D%/vm_plan.c \
	%D%/vm_state.h

# Vector code: *_body.h has each operation once; each instruction set compiles it with its flags.
kernels_libtile_generic_la_SOURCES += \
	%D%/interval_grid_body.h \
	%D%/interval_grid_generic.c \
	%D%/vec.h \
	%D%/vec_generic.h \
	%D%/vm_body.h \
	%D%/vm_body_bitmasks.h \
	%D%/vm_body_fused.h \
	%D%/vm_body_math.h \
	%D%/vm_body_ops.h \
	%D%/vm_generic.c \
	%D%/vm_ops.h
if HOST_X86_64
kernels_libtile_avx2_la_SOURCES += \
	%D%/interval_grid_avx2.c \
	%D%/vec_avx2.h \
	%D%/vm_avx2.c
kernels_libtile_avx512_la_SOURCES += \
	%D%/vec_avx512.h \
	%D%/vm_avx512.c
endif
