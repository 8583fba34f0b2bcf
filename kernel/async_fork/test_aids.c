// SPDX-License-Identifier: GPL-2.0
/* Module parameters for tests only. */
#include <linux/moduleparam.h>

#include "internal.h"

char *af_skip = "";
module_param_named(skip, af_skip, charp, 0444);
MODULE_PARM_DESC(skip, "test: leave out the hook of this function (a negative control; corrupts memory)");

unsigned int af_slow_us;
module_param_named(slow_us, af_slow_us, uint, 0644);
MODULE_PARM_DESC(slow_us, "test: the child and its copy threads sleep so many microseconds after each table");

static atomic_t af_allocations = ATOMIC_INIT(0);
static int fail_at;

static int fail_at_set(const char *value, const struct kernel_param *param)
{
	int ret = param_set_int(value, param);

	if (!ret)
		atomic_set(&af_allocations, 0);
	return ret;
}

static const struct kernel_param_ops fail_at_ops = { .set = fail_at_set, .get = param_get_int };
module_param_cb(fail_at, &fail_at_ops, &fail_at, 0644);
MODULE_PARM_DESC(fail_at, "test: the Nth allocation of the module from now on fails, once; 0: none. Resets allocations");

static int allocations_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&af_allocations));
}

static const struct kernel_param_ops allocations_ops = { .get = allocations_get };
module_param_cb(allocations, &allocations_ops, NULL, 0444);
MODULE_PARM_DESC(allocations, "test: allocations of the module since fail_at was last written");

/* Asked before every allocation that a fork, a copy or an unsharing makes. */
bool af_allocation_fails(void)
{
	return atomic_inc_return(&af_allocations) == READ_ONCE(fail_at);
}
