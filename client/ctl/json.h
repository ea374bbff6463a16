/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGED_CTL_JSON_H
#define PAGED_CTL_JSON_H

#include <jansson.h>

/** json_print - a document to standard output; takes the reference; NULL (no memory) ends the program */
void json_print(json_t *document);

#endif
