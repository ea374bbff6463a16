dist_man_MANS += %D%/paged-protocol.7
dist_man_MANS += %D%/pagedd.8 %D%/pagedd.conf.5
dist_man_MANS += %D%/pagedctl.8
dist_man_MANS += %D%/libpagedclient.3
