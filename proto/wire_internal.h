/* SPDX-License-Identifier: Apache-2.0 */
/* wire_internal.h - what the files of wire share: generated types stop here */
#ifndef PAGED_WIRE_INTERNAL_H
#define PAGED_WIRE_INTERNAL_H

#include "proto/paged.pb-c.h"
#include "proto/wire.h"

/** NULL when the arena is used up. */
void *wire_arena_alloc(struct wire_arena *arena, size_t size);

/** NULL, with error set, for what is no such message or needs more than the arena. */
const ProtobufCMessage *wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *message, size_t size,
				    struct wire_arena *arena, struct paged_error *error);

/** Size written; 0: does not fit. */
size_t wire_pack(const ProtobufCMessage *message, uint8_t *buffer, size_t buffer_size);

/** UTF-8 of bounded length without control characters; `what` names the field in the sentence. */
enum paged_status wire_text_check(const char *from, size_t max, const char *what, struct paged_error *error);
enum paged_status wire_text_copy(char *to, size_t to_size, const char *from, const char *what,
				 struct paged_error *error);

/** Bytes of exactly that size. */
enum paged_status wire_bytes_copy(uint8_t *to, size_t size, const ProtobufCBinaryData *from, const char *what,
				  struct paged_error *error);

/* wire_mask.c: arrays and block masks. */

void wire_put_array_put(Paged__V1__PutArray *to, const struct wire_array_part *from);
/** False when the arena is used up. */
bool wire_build_mask_put(Paged__V1__BuildMask *to, const struct mask_request *from, struct wire_arena *arena);
enum paged_status wire_put_array_get(struct wire_array_part *to, const Paged__V1__PutArray *from,
				     struct paged_error *error);
enum paged_status wire_build_mask_get(struct mask_request *to, const Paged__V1__BuildMask *from,
				      struct wire_arena *arena, struct paged_error *error);
void wire_mask_put(Paged__V1__Mask *to, const struct mask_part *from);
enum paged_status wire_mask_get(struct mask_part *to, const Paged__V1__Mask *from, struct paged_error *error);

void wire_geometry_put(Paged__V1__Geometry *to, const struct wire_geometry *from);
enum paged_status wire_geometry_get(struct wire_geometry *to, const Paged__V1__Geometry *from,
				    struct paged_error *error);

#endif
