// SPDX-License-Identifier: GPL-2.0
/* Linux 6.12 on x86: direct calls. */
#include <linux/ftrace.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"
#include "async_fork/symbols.h"

/*
 * One ftrace_ops for each trampoline. register_ftrace_direct() sets the flags, so PERMANENT (ftrace_enabled=0 is
 * refused) comes after it; and as ftrace may have been off before, it is asked after that. It is asked before as well:
 * what is registered and taken back while ftrace is off stays half in its records, and it turns itself off for good when
 * it notices.
 */
int compat_attach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	const int *enabled = (const int *)af_symbol("ftrace_enabled");
	int ret;

	if (!enabled || !READ_ONCE(*enabled))
		return -EBUSY;
	ret = ftrace_set_filter_ip(&direct->ops, ip, 0, 1);
	ret = ret ?: register_ftrace_direct(&direct->ops, (unsigned long)trampoline);
	if (ret) {
		ftrace_free_filter(&direct->ops);
		return ret;
	}
	direct->ops.flags |= FTRACE_OPS_FL_PERMANENT;
	smp_mb();	/* the flag before the switch; who turns it off asks for the flag afterwards */
	if (READ_ONCE(*enabled))
		return 0;
	compat_detach(direct, ip, trampoline);
	return -EBUSY;
}

int compat_detach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	return unregister_ftrace_direct(&direct->ops, (unsigned long)trampoline, true);
}
