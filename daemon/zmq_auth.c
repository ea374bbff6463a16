/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/zmq_auth.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/clock.h"

/* Frames of a ZAP request with the PLAIN mechanism. */
enum {
	ZAP_VERSION,
	ZAP_REQUEST_ID,
	ZAP_IN_DOMAIN,
	ZAP_ADDRESS,
	ZAP_ROUTING_ID,
	ZAP_MECHANISM,
	ZAP_USER,
	ZAP_PASSWORD,
	ZAP_N_FRAMES
};

struct zap_frame {
	size_t size;
	char text[256]; /* zero-terminated */
};

/* Receives one request; returns its number of frames.  A frame that is too long is invalid and counts as empty. */
static size_t
zap_receive(void *socket, struct zap_frame *frames)
{
	size_t n = 0;
	bool more = true;

	while (more) {
		zmq_msg_t message;

		zmq_msg_init(&message);
		if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&message);
			break;
		}
		more = zmq_msg_more(&message);
		if (n < ZAP_N_FRAMES) {
			size_t size = zmq_msg_size(&message);

			if (size >= sizeof(frames[n].text))
				size = 0;
			frames[n].size = size;
			memcpy(frames[n].text, zmq_msg_data(&message), size);
			frames[n].text[size] = '\0';
		}
		n++;
		zmq_msg_close(&message);
	}
	return n;
}

static bool
frame_equals(const struct zap_frame *frame, const char *text)
{
	return frame->size == strlen(text) && memcmp(frame->text, text, frame->size) == 0;
}

/* The address is HOST:UID:GID:PID; ZeroMQ has the ids from the kernel. */
static bool
zap_parse_address(const char *address, uint32_t *uid_p, uint32_t *gid_p, uint32_t *pid_p)
{
	const char *numbers = address + strlen(address);
	int end = 0;

	for (int i = 0; i < 3; i++) {
		numbers = memrchr(address, ':', (size_t)(numbers - address));
		if (numbers == NULL)
			return false;
	}
	return sscanf(numbers, ":%" SCNu32 ":%" SCNu32 ":%" SCNu32 "%n", uid_p, gid_p, pid_p, &end) == 3 &&
	       numbers[end] == '\0';
}

/* Parses a request into a peer; false: it has no PLAIN credentials, or the user name is not a number. */
static bool
zap_parse_peer(const struct zap_frame *frames, size_t n_frames, struct zap_peer *peer, const char **why_p)
{
	int end = 0;

	*peer = (struct zap_peer){ .password = frames[ZAP_PASSWORD].text };
	*why_p = "no PLAIN credentials";
	if (n_frames != ZAP_N_FRAMES || !frame_equals(&frames[ZAP_VERSION], "1.0") ||
	    !frame_equals(&frames[ZAP_IN_DOMAIN], ZAP_DOMAIN) || !frame_equals(&frames[ZAP_MECHANISM], "PLAIN"))
		return false;
	*why_p = "the user name is no member's id";
	if (sscanf(frames[ZAP_USER].text, "%" SCNu32 "%n", &peer->id, &end) != 1 || frames[ZAP_USER].text[end] != '\0')
		return false;
	if (!zap_parse_address(frames[ZAP_ADDRESS].text, &peer->uid, &peer->gid, &peer->pid))
		peer->pid = 0;
	return true;
}

static void
zap_send_frame(void *socket, const void *data, size_t size, bool last, struct log_limit *limit)
{
	if (zmq_send(socket, data, size, ZMQ_DONTWAIT | (last ? 0 : ZMQ_SNDMORE)) < 0 &&
	    log_limit_pass(limit, LOG_LEVEL_ERROR, "rpc", clock_ms()))
		log_error("rpc", "ZAP reply: %s", zmq_strerror(errno));
}

bool
zap_answer(void *socket, zap_admit_fn admit, void *context, struct log_limit *limit)
{
	struct zap_frame frames[ZAP_N_FRAMES] = { 0 };
	size_t n_frames = zap_receive(socket, frames);
	struct zap_peer peer;
	char id[16] = "";
	const char *why;
	bool admitted;

	if (n_frames == 0)
		return false;
	admitted = zap_parse_peer(frames, n_frames, &peer, &why) && admit(context, &peer, &why);
	if (admitted)
		snprintf(id, sizeof(id), "%" PRIu32, peer.id);
	else if (log_limit_pass(limit, LOG_LEVEL_WARNING, "rpc", clock_ms()))
		log_warning("rpc", "connection from %s refused: %s", frames[ZAP_ADDRESS].text, why);
	zap_send_frame(socket, "1.0", 3, false, limit);
	zap_send_frame(socket, frames[ZAP_REQUEST_ID].text, frames[ZAP_REQUEST_ID].size, false, limit);
	zap_send_frame(socket, admitted ? "200" : "400", 3, false, limit);
	zap_send_frame(socket, admitted ? "" : "refused", admitted ? 0 : 7, false, limit);
	zap_send_frame(socket, id, strlen(id), false, limit);
	zap_send_frame(socket, "", 0, true, limit);
	return true;
}
