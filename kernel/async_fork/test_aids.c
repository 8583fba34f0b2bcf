// SPDX-License-Identifier: GPL-2.0
/* Parameters for tests. Only in a module that was built for them: make AF_TEST=1. */
#include <linux/delay.h>
#include <linux/moduleparam.h>

#include "internal.h"
#include "common/fail_at.h"

static char *skip = "";
module_param(skip, charp, 0444);
MODULE_PARM_DESC(skip, "test: leave out this hook, or check: (a negative control; corrupts memory)");

/* What can be left out besides hooks: rules that would be missed only where two things meet. */
static const char *const af_checks[] = {
	"check:mergeable",	/* a process that ksmd may hold a page of is not shared nor deferred */
	"check:entries",	/* a sharer's role stays while an entry is protected */
	"check:own_forks",	/* a pin and reclaim mind forks of their own mm only */
	"check:cpu_kept",	/* a task that copies a table is not preempted */
	"check:swapoff_right",	/* only who may turn swap off makes everybody finish */
};

bool af_is_skipped(const char *what)
{
	return !strcmp(skip, what);
}

const char *af_skipped(void)
{
	return skip;
}

/* True: something is to be left out that must be a hook's name. */
bool af_skip_is_no_check(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(af_checks); i++)
		if (af_is_skipped(af_checks[i]))
			return false;
	return *skip;
}

unsigned int af_slow_us;
module_param_named(slow_us, af_slow_us, uint, 0644);
MODULE_PARM_DESC(slow_us, "test: the child and its copy threads sleep so many microseconds after each table");

static unsigned int delay_at, delay_us;
module_param(delay_at, uint, 0644);
MODULE_PARM_DESC(delay_at, "test: steps that wait, the bits of enum af_step");
module_param(delay_us, uint, 0644);
MODULE_PARM_DESC(delay_us, "test: so many microseconds");

void af_step(enum af_step step)
{
	if (READ_ONCE(delay_at) & BIT(step))
		fsleep(READ_ONCE(delay_us));
}

void af_step_atomic(enum af_step step)
{
	if (READ_ONCE(delay_at) & BIT(step))
		udelay(min(READ_ONCE(delay_us), 1000U));
}

/* Asked before every allocation that a fork, a copy or an unsharing makes. */
bool af_allocation_fails(void)
{
	return allocation_fails();
}
