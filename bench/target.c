/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/target.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/limits.h"

#define OTHERWISE "(AMX "

enum target_verdict
target_judge(const char *target, double value, double ratio)
{
	const char *tiles;
	double goal;
	char *end;

	if (target == NULL || target[0] == 0)
		return TARGET_NONE;
	if (strncmp(target, ">= ", 3) != 0 && strncmp(target, "<= ", 3) != 0)
		bench_die("target %s is no bound", target);
	goal = strtod(target + 3, &end);
	tiles = strstr(end, OTHERWISE);
	if (tiles != NULL && limit_unit_missing(LIMIT_AMX) == NULL)
		goal = strtod(tiles + strlen(OTHERWISE), NULL);
	if (end[0] == 0 || tiles != NULL)
		value = ratio;
	return (target[0] == '>' ? value >= goal : value <= goal) ? TARGET_MET : TARGET_MISSED;
}

const char *
target_verdict_name(enum target_verdict verdict)
{
	static const char *const names[] = { "", "met", "missed" };

	return names[verdict];
}
