/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "client/ctl/json.h"

#include <stdio.h>
#include <stdlib.h>

void
json_print(json_t *document)
{
	if (document == NULL) {
		fprintf(stderr, "pagedctl: out of memory\n");
		exit(1);
	}
	json_dumpf(document, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(document);
}
