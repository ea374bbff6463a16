/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "events/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/log.h"
#include "events/peer.h"

static const char usage[] =
	"usage: paged-events [--runtime-dir DIR] [--pool POOL]... [--metrics-listen [ADDRESS:]PORT]\n"
	"\n"
	"Serves what changes in the prefix cache of this machine's pagedd; see paged-events(8).\n"
	"\n"
	"  -r, --runtime-dir DIR  the daemon's directory (default $PAGED_RUNTIME_DIR or " PAGED_RUNSTATEDIR "/paged)\n"
	"  -p, --pool POOL        a pool to watch; may be given several times (default: all)\n"
	"  -m, --metrics-listen [ADDRESS:]PORT\n"
	"                         serve metrics for Prometheus at http://ADDRESS:PORT/metrics (default 127.0.0.1)\n"
	"  -l, --log-level LEVEL  error, warning, info or debug\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"KV events, with the names and defaults of vLLM's configuration:\n"
	"      --endpoint ENDPOINT          publish them here, for example 'tcp://*:5557'\n"
	"      --bind                       bind the endpoint, also if it has no wildcard\n"
	"      --replay-endpoint ENDPOINT   replay batches here\n"
	"      --topic TOPIC                topic of all batches (\"\")\n"
	"      --buffer-steps N             batches kept for replay (10000)\n"
	"      --hwm N                      batches that wait for a slow subscriber (100000)\n"
	"      --max-connections N          connections of each endpoint (128)\n"
	"      --data-parallel-rank N       rank in all batches (0)\n"
	"      --prefix-caching-hash-algo NAME  sha256 (the default), sha256_cbor, xxhash, xxhash_cbor, xxh3_64\n"
	"      --hash-seed TEXT             PYTHONHASHSEED of the engines\n"
	"      --block-hashes int|bytes     form of the hashes (int)\n";

enum {
	OPTION_ENDPOINT = 256,
	OPTION_BIND,
	OPTION_REPLAY_ENDPOINT,
	OPTION_TOPIC,
	OPTION_BUFFER_STEPS,
	OPTION_HWM,
	OPTION_MAX_CONNECTIONS,
	OPTION_RANK,
	OPTION_HASH_ALGORITHM,
	OPTION_HASH_SEED,
	OPTION_BLOCK_HASHES,
};

/* vLLM's defaults (vllm/config/kv_events.py). */
#define BUFFER_STEPS 10000
#define BUFFER_STEPS_MAX 1000000
#define HWM 100000
#define MAX_CONNECTIONS 128
/* Bytes of the batches that wait or are kept for replay; vLLM limits only their number. */
#define BUFFER_SIZE ((size_t)256 << 20)
/* Subscribers that do not read delay the end of the program by so much. */
#define LINGER_MS 500

static const struct option known[] = {
	{ "runtime-dir", required_argument, NULL, 'r' },
	{ "pool", required_argument, NULL, 'p' },
	{ "log-level", required_argument, NULL, 'l' },
	{ "metrics-listen", required_argument, NULL, 'm' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "endpoint", required_argument, NULL, OPTION_ENDPOINT },
	{ "bind", no_argument, NULL, OPTION_BIND },
	{ "replay-endpoint", required_argument, NULL, OPTION_REPLAY_ENDPOINT },
	{ "topic", required_argument, NULL, OPTION_TOPIC },
	{ "buffer-steps", required_argument, NULL, OPTION_BUFFER_STEPS },
	{ "hwm", required_argument, NULL, OPTION_HWM },
	{ "max-connections", required_argument, NULL, OPTION_MAX_CONNECTIONS },
	{ "data-parallel-rank", required_argument, NULL, OPTION_RANK },
	{ "prefix-caching-hash-algo", required_argument, NULL, OPTION_HASH_ALGORITHM },
	{ "hash-seed", required_argument, NULL, OPTION_HASH_SEED },
	{ "block-hashes", required_argument, NULL, OPTION_BLOCK_HASHES },
	{ NULL, 0, NULL, 0 },
};

static void __attribute__((noreturn, format(printf, 1, 2))) events_usage(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "paged-events: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (see paged-events --help)\n");
	exit(2);
}

static void
events_option_pool(struct events_options *options, const char *name)
{
	for (uint32_t i = 0; i < options->n_pools; i++)
		if (strcmp(options->pools[i], name) == 0)
			events_usage("--pool %s is given twice", name);
	if (options->n_pools == PAGED_MAX_POOLS)
		events_usage("--pool: a daemon has at most %u pools", PAGED_MAX_POOLS);
	options->pools[options->n_pools++] = name;
}

static uint32_t
events_option_number(const char *name, const char *text, uint32_t min, uint32_t max)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || number < min || number > max)
		events_usage("--%s %s is no number from %u to %u", name, text, min, max);
	return (uint32_t)number;
}

/* What the options of KV events are made of once all are known. */
struct kv_option_texts {
	const char *hash_algorithm, *hash_seed;
	bool any; /* an option that needs --endpoint */
};

/* An option of KV events; false: it is none. */
static bool
kv_option(struct kv_events_options *kv, struct kv_option_texts *texts, int option, const char *name, const char *text)
{
	switch (option) {
	case OPTION_ENDPOINT:
		kv->publisher.endpoint = text;
		return true;
	case OPTION_BIND:
		kv->publisher.bind = true;
		break;
	case OPTION_REPLAY_ENDPOINT:
		kv->publisher.replay_endpoint = text;
		break;
	case OPTION_TOPIC:
		if (strlen(text) > PEER_MAX_TOPIC)
			events_usage("--topic: at most %u bytes", PEER_MAX_TOPIC);
		kv->publisher.topic = text;
		break;
	case OPTION_BUFFER_STEPS:
		kv->publisher.buffer_steps = events_option_number(name, text, 1, BUFFER_STEPS_MAX);
		break;
	case OPTION_HWM:
		kv->publisher.hwm = events_option_number(name, text, 1, INT32_MAX);
		break;
	case OPTION_MAX_CONNECTIONS:
		kv->publisher.max_connections = events_option_number(name, text, 1, ADMISSION_MAX);
		break;
	case OPTION_RANK:
		kv->data_parallel_rank = events_option_number(name, text, 0, INT32_MAX);
		break;
	case OPTION_HASH_ALGORITHM:
		texts->hash_algorithm = text;
		break;
	case OPTION_HASH_SEED:
		texts->hash_seed = text;
		break;
	case OPTION_BLOCK_HASHES:
		if (strcmp(text, "int") != 0 && strcmp(text, "bytes") != 0)
			events_usage("--block-hashes %s is neither int nor bytes", text);
		kv->integers = strcmp(text, "int") == 0;
		break;
	default:
		return false;
	}
	texts->any = true;
	return true;
}

static void
kv_options_check(struct kv_events_options *kv, const struct kv_option_texts *texts)
{
	const char *problem = block_hasher_init(&kv->hasher, texts->hash_algorithm, texts->hash_seed);

	if (problem != NULL)
		events_usage("--prefix-caching-hash-algo %s (one of %s), --hash-seed: %s", texts->hash_algorithm,
			     block_hash_names, problem);
	if (kv->publisher.endpoint == NULL && texts->any)
		events_usage("an option of KV events is given without --endpoint");
}

void
events_options_parse(struct events_options *options, int argc, char **argv)
{
	struct kv_option_texts kv_texts = { .hash_algorithm = "sha256" };
	int option, index = 0;

	options->kv = (struct kv_events_options){ .publisher = { .topic = "",
								 .buffer_steps = BUFFER_STEPS,
								 .buffer_size = BUFFER_SIZE,
								 .hwm = HWM,
								 .max_connections = MAX_CONNECTIONS,
								 .linger_ms = LINGER_MS },
						  .integers = true };
	while ((option = getopt_long(argc, argv, "r:p:m:l:hV", known, &index)) != -1) {
		switch (option) {
		case 'r':
			options->runtime_dir = optarg;
			break;
		case 'p':
			events_option_pool(options, optarg);
			break;
		case 'm':
			options->metrics_listen = optarg;
			break;
		case 'l':
			if (!events_log_set_level(optarg))
				events_usage("--log-level %s is none of error, warning, info, debug", optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(EXIT_SUCCESS);
		case 'V':
			printf("paged-events %s\n", PACKAGE_VERSION);
			exit(EXIT_SUCCESS);
		default:
			if (!kv_option(&options->kv, &kv_texts, option, known[index].name, optarg))
				exit(2);
		}
	}
	if (optind < argc)
		events_usage("%s: no such argument", argv[optind]);
	kv_options_check(&options->kv, &kv_texts);
	if (options->kv.publisher.endpoint == NULL && options->metrics_listen == NULL)
		events_usage("nothing to serve: give --endpoint, --metrics-listen or both");
}
