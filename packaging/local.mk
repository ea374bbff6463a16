# Example configuration files, to be adapted by the operator, and shell completion.
EXTRA_DIST += %D%/completion.bash %D%/completion.zsh %D%/paged-events.service.in %D%/pagedd-gpu.conf %D%/pagedd.conf \
	%D%/pagedd.service.in

bashcompletiondir = $(datadir)/bash-completion/completions
zshcompletiondir = $(datadir)/zsh/site-functions
bashcompletion_DATA = %D%/bash/pagedctl
zshcompletion_DATA = %D%/zsh/_pagedctl
if ENABLE_DAEMON
pagedexamples_DATA += $(srcdir)/%D%/pagedd-gpu.conf $(srcdir)/%D%/pagedd.conf %D%/pagedd.service
bashcompletion_DATA += %D%/bash/pagedd
endif
if ENABLE_EVENTS
pagedexamples_DATA += %D%/paged-events.service
bashcompletion_DATA += %D%/bash/paged-events
endif
CLEANFILES += %D%/paged-events.service %D%/bash/paged-events %D%/pagedd.service %D%/bash/pagedctl %D%/bash/pagedd %D%/zsh/_pagedctl

%D%/pagedd.service: %D%/pagedd.service.in Makefile
	$(AM_V_GEN)$(SERVICE_FILL) $(srcdir)/%D%/pagedd.service.in >$@
%D%/paged-events.service: %D%/paged-events.service.in Makefile
	$(AM_V_GEN)$(SERVICE_FILL) $(srcdir)/%D%/paged-events.service.in >$@
SERVICE_FILL = $(MKDIR_P) %D% && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' \
	-e 's|@sysconfdir[@]|$(sysconfdir)|g' -e 's|@runstatedir[@]|$(runstatedir)|g'
# Shells find a completion by its program's name.
%D%/bash/pagedctl %D%/bash/pagedd %D%/bash/paged-events: %D%/completion.bash
	$(AM_V_GEN)$(MKDIR_P) %D%/bash && cp $(srcdir)/%D%/completion.bash $@
%D%/zsh/_pagedctl: %D%/completion.zsh
	$(AM_V_GEN)$(MKDIR_P) %D%/zsh && cp $(srcdir)/%D%/completion.zsh $@
# Debian packages: tools/deb builds them.
EXTRA_DIST += debian/changelog debian/control debian/copyright debian/libpagedclient-dev.docs debian/libpagedclient-dev.examples \
	debian/libpagedclient-dev.install debian/libpagedclient-dev.manpages debian/libpagedclient0.install \
	debian/libpagedclient0.symbols debian/not-installed debian/paged-events.docs \
	debian/paged-events.examples debian/paged-events.install \
	debian/paged-events.lintian-overrides debian/paged-events.manpages debian/paged-events.prerm debian/paged-tools.install debian/paged-tools.manpages \
	debian/pagedd.README.Debian debian/pagedd.docs debian/pagedd.examples debian/pagedd.install debian/pagedd.lintian-overrides \
	debian/pagedd.manpages debian/pagedd.postinst debian/pagedd.postrm debian/pagedd.prerm debian/python3-paged.docs \
	debian/python3-paged.examples debian/rules \
	debian/source/format
EXTRA_DIST += %D%/Containerfile tools/deb tools/release tools/wheel tests/packages/container.sh tests/packages/debian.sh \
	tests/packages/documented.sh tests/packages/release.sh tests/packages/use.py tests/packages/wheel.sh
