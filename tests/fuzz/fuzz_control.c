/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What strangers send to the daemon's control socket: datagrams of any bytes, with and without descriptors, and
 * well-formed ones in any order, on up to four connections.
 *
 * An input is a list of steps.  The first byte of a step has the connection in its low two bits and enum step in the
 * next three.
 */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_daemon.h"

const char fuzz_name[] = "control";
const unsigned int fuzz_mutations = 150;

enum step {
	STEP_RAW,       /* size, bytes */
	STEP_RAW_FDS,   /* number of descriptors, size, bytes */
	STEP_SESSION,   /* bit 0: it outlives its first member; the other bits: 0, or an error in the version */
	STEP_JOIN,      /* 0, or an error in the token */
	STEP_OBSERVER,  /* as STEP_SESSION */
	STEP_OPEN_POOL, /* low four bits: a name; high ones: the shard */
	STEP_BYE,
	STEP_CLOSE,
};

enum { N_CONNECTIONS = 4 };

static struct {
	int fds[N_CONNECTIONS];
	uint8_t join_token[WIRE_TOKEN_SIZE]; /* of the last session */
} state;

/* Reads what the daemon has sent, and closes the connections that it has closed. */
static void
replies_read(void)
{
	struct wire_control_reply reply;
	int received;

	for (int i = 0; i < N_CONNECTIONS; i++) {
		if (state.fds[i] < 0)
			continue;
		while ((received = fuzz_daemon_receive(state.fds[i], &reply)) > 0) {
			static const uint8_t none[WIRE_TOKEN_SIZE];

			if (reply.kind == WIRE_WELCOME && memcmp(reply.welcome.join_token, none, sizeof(none)) != 0)
				memcpy(state.join_token, reply.welcome.join_token, sizeof(none));
			if (reply.kind == WIRE_REFUSAL)
				fuzz_require(reply.refusal.status != PAGED_OK && reply.refusal.text[0] != '\0');
		}
		if (received < 0) {
			close(state.fds[i]);
			state.fds[i] = -1;
		}
	}
}

static void
send_join(int fd, uint8_t error)
{
	uint8_t token[WIRE_TOKEN_SIZE];

	memcpy(token, state.join_token, sizeof(token));
	token[error % sizeof(token)] ^= error;
	fuzz_daemon_hello(fd, WIRE_ROLE_JOIN, WIRE_VERSION_MAJOR, false, token);
}

static void
send_open_pool(int fd, uint8_t argument)
{
	static const char *const names[] = { "p", "q", "p", "", "other" };
	struct wire_control_request request = { .kind = WIRE_OPEN_POOL };
	uint8_t message[128];

	strcpy(request.open_pool.name, names[(argument & 15) % (sizeof(names) / sizeof(names[0]))]);
	request.open_pool.shard = argument >> 4;
	fuzz_daemon_send(fd, message, wire_control_request_pack(&request, message, sizeof(message)), 0);
}

static void
send_bye(int fd)
{
	struct wire_control_request request = { .kind = WIRE_BYE };
	uint8_t message[16];

	fuzz_daemon_send(fd, message, wire_control_request_pack(&request, message, sizeof(message)), 0);
}

/* Takes a step; returns the bytes of its argument. */
static size_t
step_take(int *fd, enum step step, const uint8_t *data, size_t size)
{
	size_t at = step == STEP_RAW_FDS ? 2 : 1, n;
	uint8_t argument = size > 0 ? data[0] : 0;

	switch (step) {
	case STEP_RAW:
	case STEP_RAW_FDS:
		if (size < at)
			return size;
		n = data[at - 1] < size - at ? data[at - 1] : size - at;
		fuzz_daemon_send(*fd, data + at, n, step == STEP_RAW_FDS ? argument % 3u + 1 : 0);
		return at + n;
	case STEP_SESSION:
		fuzz_daemon_hello(*fd, WIRE_ROLE_SESSION, WIRE_VERSION_MAJOR + (argument >> 1), argument & 1, NULL);
		return 1;
	case STEP_JOIN:
		send_join(*fd, argument);
		return 1;
	case STEP_OBSERVER:
		fuzz_daemon_hello(*fd, WIRE_ROLE_OBSERVER, WIRE_VERSION_MAJOR + (argument >> 1), argument & 1, NULL);
		return 1;
	case STEP_OPEN_POOL:
		send_open_pool(*fd, argument);
		return 1;
	case STEP_BYE:
		send_bye(*fd);
		return 0;
	case STEP_CLOSE:
		close(*fd);
		*fd = -1;
		fuzz_daemon_pump();
		return 0;
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_daemon_begin();
	memset(&state, 0, sizeof(state));
	for (int i = 0; i < N_CONNECTIONS; i++)
		state.fds[i] = -1;
	while (size > 0) {
		int *fd = &state.fds[data[0] % N_CONNECTIONS];
		enum step step = (enum step)(data[0] / N_CONNECTIONS % 8);
		size_t n;

		if (*fd < 0)
			*fd = fuzz_daemon_connect();
		n = step_take(fd, step, data + 1, size - 1);
		replies_read();
		n = n + 1 < size ? n + 1 : size;
		data += n;
		size -= n;
	}
	for (int i = 0; i < N_CONNECTIONS; i++)
		if (state.fds[i] >= 0)
			close(state.fds[i]);
	fuzz_daemon_end();
	return 0;
}

/* A member's life in well-formed messages, and a Hello as a datagram of any bytes.  seeds/control has longer stories.
 */
size_t
fuzz_seed(size_t index, uint8_t *buffer, size_t buffer_size)
{
	static const uint8_t life[] = { STEP_SESSION, STEP_OPEN_POOL, STEP_JOIN, STEP_OBSERVER, STEP_BYE, STEP_CLOSE };
	struct wire_control_request hello = { .kind = WIRE_HELLO,
					      .hello = { .version_major = WIRE_VERSION_MAJOR, .name = "worker" } };
	size_t n = 0;

	fuzz_require(buffer_size >= 512);
	if (index == 0) {
		for (size_t i = 0; i < sizeof(life); i++) {
			buffer[n++] = (uint8_t)(life[i] * N_CONNECTIONS);
			if (life[i] < STEP_BYE)
				buffer[n++] = 0;
		}
		return n;
	}
	buffer[0] = STEP_RAW * N_CONNECTIONS;
	buffer[1] = (uint8_t)wire_control_request_pack(&hello, buffer + 2, 255);
	return index == 1 ? 2u + buffer[1] : 0;
}
