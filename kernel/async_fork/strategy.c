// SPDX-License-Identifier: GPL-2.0
/* What strategies are called, and the right to choose one. */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/seq_file.h>

#include "internal.h"

static bool allow_odf;
module_param(allow_odf, bool, 0444);
MODULE_PARM_DESC(allow_odf, "1: On-Demand-Fork may be chosen. Memory below its shared tables cannot be reclaimed");

static const char *const af_strategies[] = {
	[ASYNC_FORK_INHERIT] = "inherit",
	[ASYNC_FORK_DEFAULT] = "default",
	[ASYNC_FORK_ASYNC] = "async",
	[ASYNC_FORK_ODF] = "odf",
};

void af_strategy_show(struct seq_file *m, const char *what, pid_t pid, const struct af_strategy *strategy)
{
	seq_printf(m, "%s %d %s %u", what, pid, af_strategies[strategy->strategy], strategy->copy_threads);
}

/*
 * Every road to a strategy comes here (invariant 19): the device, and a file that belongs to whom the cgroup was given
 * to. In the first user namespace, of the writer and of the process that opened the file, which may be another.
 */
int af_strategy_may_be_set(struct file *file, enum async_fork_strategy strategy)
{
	if (!capable(CAP_SYS_ADMIN) || !file_ns_capable(file, &init_user_ns, CAP_SYS_ADMIN))
		return -EPERM;
	if (strategy == ASYNC_FORK_ODF && !allow_odf) {
		pr_notice_ratelimited("On-Demand-Fork is off: load the module with allow_odf=1\n");
		return -EOPNOTSUPP;
	}
	return 0;
}
