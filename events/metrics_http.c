/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/metrics_http.h"

#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "events/admission.h"
#include "events/log.h"
#include "events/metrics_snapshot.h"
#include "events/metrics_text.h"

enum {
	MAX_CONNECTIONS = 64,    /* more are not accepted */
	USUAL_CONNECTIONS = 48,  /* beyond these, a new connection displaces another */
	IDLE_S = 10,             /* of a connection */
	CONNECTION_BYTES = 8192, /* memory of a connection: its request's header must fit */
	BACKLOG = 64,
	SEND_BUFFER = 64 << 10, /* what the kernel keeps for a client that does not read; it doubles it */
};

static const char default_address[] = "127.0.0.1";

struct metrics_http {
	const struct events_options *options;
	struct MHD_Daemon *daemon;

	pthread_mutex_t mutex; /* held while the client is used */
	struct paged_client *client;
	bool stale; /* another client is attached, or none, since the last snapshot */

	/* Used by the thread of libmicrohttpd alone. */
	struct MHD_Response *text; /* of the last snapshot */
	uint64_t taken_ms;
	int fds[MAX_CONNECTIONS];
	struct admission_entry entries[MAX_CONNECTIONS]; /* `used` grows with each accept and each request */
	unsigned int n_connections;
	uint64_t last_used;
};

static uint64_t
monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Connections.  libmicrohttpd sees the end of a socket that is shut down as it sees that of any other. */

static void
connections_changed(void *argument, struct MHD_Connection *mhd_connection, void **context,
		    enum MHD_ConnectionNotificationCode what)
{
	struct metrics_http *http = argument;
	struct admission_entry *entry = *context;
	struct origin origin;
	size_t i = 0;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (entry == NULL)
			return;
		http->fds[entry - http->entries] = -1;
		entry->state = ADMISSION_FREE;
		http->n_connections--;
		return;
	}
	while (i < MAX_CONNECTIONS && http->fds[i] >= 0)
		i++;
	if (i == MAX_CONNECTIONS)
		return;
	http->fds[i] = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	origin = origin_of(http->fds[i]);
	if (++http->n_connections > USUAL_CONNECTIONS) {
		size_t victim = admission_victim(http->entries, MAX_CONNECTIONS, &origin);

		/* It is closed soon, and must not be chosen again. */
		if (victim < MAX_CONNECTIONS) {
			shutdown(http->fds[victim], SHUT_RDWR);
			http->entries[victim].state = ADMISSION_FREE;
		}
	}
	http->entries[i] = (struct admission_entry){ origin, ADMISSION_IDLE, ++http->last_used };
	*context = &http->entries[i];
}

static void
connection_used(struct metrics_http *http, struct MHD_Connection *mhd_connection)
{
	struct admission_entry *entry =
		MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;

	if (entry != NULL)
		entry->used = ++http->last_used;
}

/* Responses */

static enum MHD_Result
answer_text(struct MHD_Connection *connection, unsigned int code, const char *text)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result = MHD_NO;

	if (response == NULL)
		return MHD_NO;
	if (MHD_add_response_header(response, "Content-Type", "text/plain; charset=utf-8") == MHD_YES &&
	    (code != MHD_HTTP_METHOD_NOT_ALLOWED || MHD_add_response_header(response, "Allow", "GET, HEAD") == MHD_YES))
		result = MHD_queue_response(connection, code, response);
	MHD_destroy_response(response);
	return result;
}

/* The text of a new snapshot as a response; NULL: no memory. */
static struct MHD_Response *
metrics_take(struct metrics_http *http)
{
	struct metrics_snapshot snapshot;
	struct MHD_Response *response;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		return NULL;
	pthread_mutex_lock(&http->mutex);
	metrics_snapshot_take(&snapshot, http->client, http->options->pools, http->options->n_pools);
	http->stale = false;
	pthread_mutex_unlock(&http->mutex);
	metrics_text_write(out, &snapshot);
	metrics_snapshot_free(&snapshot);
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
	if (response == NULL)
		free(text);
	else if (MHD_add_response_header(response, "Content-Type", METRICS_TEXT_TYPE) != MHD_YES) {
		MHD_destroy_response(response);
		response = NULL;
	}
	return response;
}

static enum MHD_Result
answer_metrics(struct metrics_http *http, struct MHD_Connection *connection)
{
	bool stale;

	pthread_mutex_lock(&http->mutex);
	stale = http->stale;
	pthread_mutex_unlock(&http->mutex);
	if (stale || http->text == NULL || monotonic_ms() - http->taken_ms > METRICS_AGE_MS) {
		if (http->text != NULL)
			MHD_destroy_response(http->text);
		http->text = metrics_take(http);
		http->taken_ms = monotonic_ms();
	}
	if (http->text == NULL)
		return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
	return MHD_queue_response(connection, MHD_HTTP_OK, http->text);
}

static enum MHD_Result
metrics_answer(void *argument, struct MHD_Connection *connection, const char *url, const char *method,
	       const char *version, const char *body, size_t *body_size, void **context)
{
	static const char is_known = 1;

	(void)version, (void)body, (void)body_size;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD are served\n");
	/* The first call of a request comes after its header; a response to that call would close the connection. */
	if (*context == NULL) {
		*context = (void *)&is_known;
		connection_used(argument, connection);
		return MHD_YES;
	}
	if (strcmp(url, "/metrics") == 0)
		return answer_metrics(argument, connection);
	if (strcmp(url, "/") == 0)
		return answer_text(connection, MHD_HTTP_OK, "paged-events: the metrics are at /metrics\n");
	return answer_text(connection, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
}

/* What libmicrohttpd complains about is mostly what clients do, so it is logged for debugging only. */
static void __attribute__((format(printf, 2, 0))) metrics_log(void *argument, const char *format, va_list arguments)
{
	char text[256];
	size_t length;

	(void)argument;
	vsnprintf(text, sizeof(text), format, arguments);
	length = strcspn(text, "\n");
	events_log(EVENTS_LOG_DEBUG, "metrics", "%.*s", (int)length, text);
}

/* Life */

/* Splits "[ADDRESS:]PORT", in which an IPv6 address has brackets; false: too long, or a bracket is missing. */
static bool
address_split(const char *listen, char address[64], char port[16])
{
	const char *colon = strrchr(listen, ':'), *from = listen;
	size_t length = colon != NULL ? (size_t)(colon - listen) : 0;

	snprintf(address, 64, "%s", default_address);
	if (colon != NULL && listen[0] == '[') {
		if (length < 2 || listen[length - 1] != ']')
			return false;
		from++;
		length -= 2;
	}
	if (length >= 64)
		return false;
	if (colon != NULL)
		snprintf(address, 64, "%.*s", (int)length, from);
	from = colon != NULL ? colon + 1 : listen;
	/* getaddrinfo() takes the lowest 16 bits of a number, and so another port. */
	return from[0] != '\0' && from[strspn(from, "0123456789")] == '\0' && strtoul(from, NULL, 10) <= UINT16_MAX &&
	       (size_t)snprintf(port, 16, "%s", from) < 16;
}

/* A socket that listens; -1: the reason was logged. */
static int
metrics_listen(const char *listen_at)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char address[64], port[16];
	int error, fd;

	if (!address_split(listen_at, address, port) || address[0] == '\0') {
		events_log(EVENTS_LOG_ERROR, "metrics", "--metrics-listen %s is not [ADDRESS:]PORT", listen_at);
		return -1;
	}
	error = getaddrinfo(address, port, &hints, &found);
	if (error != 0) {
		events_log(EVENTS_LOG_ERROR, "metrics", "--metrics-listen %s: %s", listen_at, gai_strerror(error));
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Connections inherit the size of the buffer. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ SEND_BUFFER }, sizeof(int)) < 0 ||
	    bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		events_log(EVENTS_LOG_ERROR, "metrics", "--metrics-listen %s: %m", listen_at);
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

/* The port may have been 0. */
static void
metrics_log_address(int fd)
{
	struct sockaddr_storage storage;
	socklen_t size = sizeof(storage);
	char address[64], port[16];

	if (getsockname(fd, (struct sockaddr *)&storage, &size) == 0 &&
	    getnameinfo((struct sockaddr *)&storage, size, address, sizeof(address), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		events_log(EVENTS_LOG_INFO, "metrics", "serving http://%s%s%s:%s/metrics",
			   storage.ss_family == AF_INET6 ? "[" : "", address, storage.ss_family == AF_INET6 ? "]" : "",
			   port);
}

bool
metrics_http_open(const struct events_options *options, struct metrics_http **http_p)
{
	struct metrics_http *http;
	int fd;

	*http_p = NULL;
	if (options->metrics_listen == NULL)
		return true;
	fd = metrics_listen(options->metrics_listen);
	if (fd < 0)
		return false;
	http = calloc(1, sizeof(*http));
	if (http != NULL) {
		http->options = options;
		pthread_mutex_init(&http->mutex, NULL);
		for (unsigned int i = 0; i < MAX_CONNECTIONS; i++)
			http->fds[i] = -1;
		http->daemon = MHD_start_daemon(
			MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, metrics_answer, http,
			MHD_OPTION_EXTERNAL_LOGGER, metrics_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
			MHD_OPTION_CONNECTION_LIMIT, (unsigned int)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
			(unsigned int)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
			MHD_OPTION_NOTIFY_CONNECTION, connections_changed, http, MHD_OPTION_END);
	}
	if (http == NULL || http->daemon == NULL) {
		events_log(EVENTS_LOG_ERROR, "metrics", "no memory, or no thread, for an HTTP server");
		close(fd);
		free(http);
		return false;
	}
	metrics_log_address(fd);
	*http_p = http;
	return true;
}

void
metrics_http_attach(struct metrics_http *http, struct paged_client *client)
{
	if (http == NULL)
		return;
	pthread_mutex_lock(&http->mutex);
	http->client = client;
	http->stale = true;
	pthread_mutex_unlock(&http->mutex);
}

void
metrics_http_detach(struct metrics_http *http)
{
	metrics_http_attach(http, NULL);
}

void
metrics_http_close(struct metrics_http *http)
{
	if (http == NULL)
		return;
	MHD_stop_daemon(http->daemon); /* it also closes the listening socket */
	if (http->text != NULL)
		MHD_destroy_response(http->text);
	pthread_mutex_destroy(&http->mutex);
	free(http);
}
