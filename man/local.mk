# The sources have the default paths; the installed pages have the paths of configure.
MAN_PAGES = %D%/libpagedclient.3 %D%/paged_sharing.3 %D%/paged_watch.3 %D%/paged-protocol.7 %D%/paged_mods.7 \
	%D%/pagedctl.8 %D%/pagedd.8 %D%/pagedd.conf.5 %D%/paged-events.8
EXTRA_DIST += $(MAN_PAGES)
man_MANS += %D%/installed/libpagedclient.3 %D%/installed/paged_sharing.3 %D%/installed/paged_watch.3 \
	%D%/installed/paged-protocol.7 %D%/installed/paged_mods.7 %D%/installed/pagedctl.8
if ENABLE_DAEMON
man_MANS += %D%/installed/pagedd.8 %D%/installed/pagedd.conf.5
endif
if ENABLE_EVENTS
man_MANS += %D%/installed/paged-events.8
endif
CLEANFILES += $(man_MANS)
$(man_MANS): $(MAN_PAGES) Makefile
	$(AM_V_GEN)$(MKDIR_P) %D%/installed && $(SED) -e 's|/etc/paged|$(sysconfdir)/paged|g' \
		-e 's|/run/paged|$(runstatedir)/paged|g' $(srcdir)/%D%/$(@F) >$@
