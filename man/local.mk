dist_man_MANS += %D%/paged-protocol.7
