# SPDX-License-Identifier: Apache-2.0
# embed.awk FILE... - the files as C strings, for kernels/cuda/host/sources.h
BEGIN {
	print "/* Made by embed.awk. */"
	print "#include \"kernels/cuda/host/sources.h\"\n"
	print "const struct cuda_source cuda_sources[] = {"
	for (i = 1; i < ARGC; i++) {
		printf "\t{ \"%s\",\n", ARGV[i]
		while ((getline line < ARGV[i]) > 0) {
			gsub(/\\/, "&&", line)
			gsub(/"/, "\\\"", line)
			printf "\t  \"%s\\n\"\n", line
		}
		close(ARGV[i])
		print "\t},"
	}
	print "\t{ 0, 0 },\n};"
	printf "const unsigned int cuda_n_sources = %d;\n", ARGC - 1
	exit
}
