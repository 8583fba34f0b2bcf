/* SPDX-License-Identifier: GPL-2.0 */
/* The parameters fail_at and allocations of a module that is built for tests. For its one file test_aids.c. */
#ifndef _COMMON_FAIL_AT_H
#define _COMMON_FAIL_AT_H

#include <linux/atomic.h>
#include <linux/moduleparam.h>

static atomic_t allocations = ATOMIC_INIT(0);
static int fail_at;

static int fail_at_set(const char *value, const struct kernel_param *param)
{
	int ret = param_set_int(value, param);

	if (!ret)
		atomic_set(&allocations, 0);
	return ret;
}

static const struct kernel_param_ops fail_at_ops = { .set = fail_at_set, .get = param_get_int };
module_param_cb(fail_at, &fail_at_ops, &fail_at, 0644);
MODULE_PARM_DESC(fail_at, "test: the Nth allocation of the module from now on fails, once; 0: none. Resets allocations");

static int allocations_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&allocations));
}

static const struct kernel_param_ops allocations_ops = { .get = allocations_get };
module_param_cb(allocations, &allocations_ops, NULL, 0444);
MODULE_PARM_DESC(allocations, "test: allocations of the module since fail_at was last written");

/* Asked before every allocation that may be made to fail. */
static bool allocation_fails(void)
{
	return atomic_inc_return(&allocations) == READ_ONCE(fail_at);
}

#endif
