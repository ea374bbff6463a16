# Messages.  wire.c is the only code that sees what protoc-c generates.
EXTRA_DIST += %D%/paged.proto
