// SPDX-License-Identifier: GPL-2.0
/*
 * swapoff walks the tables of all mms on the mmlist with pmd_none_or_trans_huge_or_clear_bad() inlined, so there is no
 * function to hook further down: everything is completed before it begins, and while it runs forks take the default
 * path. Either a fork sees the counter (af_must_copy()), or we see its role: both have a full barrier in between.
 *
 * The system call is hooked before it has asked for the right, and anybody may call it: so the hook asks first
 * (invariant 19). Without the right the original refuses.
 */
#include <linux/capability.h>

#include "internal.h"
#include "hooks.h"

static void af_complete_all(void)
{
	struct af_session *s;

	while ((s = af_session_any())) {
		if (test_bit(AF_READY, &s->flags)) {
			af_sync_range(s, 0, TASK_SIZE_MAX, ASYNC_FORK_BY_SWAPOFF);
			af_session_leave_parent(s);
		} else {
			schedule_timeout_uninterruptible(1);	/* the fork ends soon */
		}
		af_session_put(s);
	}
	af_odf_unshare_all();
}

static bool af_may_swapoff(void)
{
	return capable(CAP_SYS_ADMIN) || af_is_skipped("check:swapoff_right");
}

static void af_swapoff_begins(void)
{
	atomic_inc(&af_swapoffs);
	smp_mb__after_atomic();
	af_complete_all();
}

#define AF_SWAPOFF(name)				\
long af_hook_##name(struct pt_regs *regs)		\
{							\
	int srcu = srcu_read_lock(&af_srcu);		\
	bool may = af_may_swapoff();			\
	long ret;					\
							\
	if (may)					\
		af_swapoff_begins();			\
	ret = af_orig(name)(regs);			\
	if (may)					\
		atomic_dec(&af_swapoffs);		\
	srcu_read_unlock(&af_srcu, srcu);		\
	return ret;					\
}
AF_SWAPOFF_HOOKS(AF_SWAPOFF)
