/* SPDX-License-Identifier: Apache-2.0 */
/**
 * top.h - what the files of the command top share
 */
#ifndef PAGED_CTL_TOP_H
#define PAGED_CTL_TOP_H

#include "pagedctl/ctl.h"

/** top_once - print the page once, about one interval from now on, as text or JSON */
enum ctl_exit top_once(struct ctl *ctl);

#endif
