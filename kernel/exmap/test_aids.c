// SPDX-License-Identifier: GPL-2.0
/* Parameters for tests. Only in a module that was built for them: make AF_TEST=1. */
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/moduleparam.h>

#include "internal.h"
#include "common/fail_at.h"

/* Asked before every allocation of the module. */
bool exmap_allocation_fails(void)
{
	return allocation_fails();
}

#define X(name) [EXMAP_CHECK_##name] = #name,
static const char *const exmap_check_names[] = { EXMAP_CHECKS(X) };
#undef X

static int skip = -1;

static int skip_set(const char *value, const struct kernel_param *param)
{
	skip = sysfs_match_string(exmap_check_names, value);
	return min(skip, 0);
}

static int skip_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", skip < 0 ? "" : exmap_check_names[skip]);
}

static const struct kernel_param_ops skip_ops = { .set = skip_set, .get = skip_get };
module_param_cb(skip, &skip_ops, NULL, 0444);
MODULE_PARM_DESC(skip, "test: leave out this rule (a negative control; corrupts memory)");

bool exmap_skips(enum exmap_check check)
{
	return skip == (int)check;
}

static unsigned int delay_at, delay_us;
module_param(delay_at, uint, 0644);
MODULE_PARM_DESC(delay_at, "test: steps that wait, the bits of enum exmap_delay");
module_param(delay_us, uint, 0644);
MODULE_PARM_DESC(delay_us, "test: so many microseconds");

void exmap_delay(enum exmap_delay step)
{
	if (READ_ONCE(delay_at) & BIT(step))
		fsleep(READ_ONCE(delay_us));
}

/* On x86: the kernel holds the lock of the table meanwhile. Elsewhere that function is inlined, and nothing waits. */
static int exmap_fault_waits(struct kprobe *probe, struct pt_regs *regs)
{
	if (READ_ONCE(delay_at) & BIT(EXMAP_DELAY_FAULT))
		udelay(min(READ_ONCE(delay_us), 1000U));
	return 0;
}

static struct kprobe exmap_fault_probe = {
	.symbol_name = "ptep_set_access_flags", .pre_handler = exmap_fault_waits,
};
static bool exmap_fault_probed;

void exmap_delays_init(void)
{
	exmap_fault_probed = !register_kprobe(&exmap_fault_probe);
}

void exmap_delays_exit(void)
{
	if (exmap_fault_probed)
		unregister_kprobe(&exmap_fault_probe);
}
