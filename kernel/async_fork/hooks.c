// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching the hooks. A call by ftrace at the function's entry continues in the hook, if its gate is open, as if the
 * function's caller had called the hook (arch_*.c: how). The original is called past its entry.
 */
#include <linux/module.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"

DEFINE_SRCU(af_srcu);

#define AF_HOOK(gate, ret, name, args) DEFINE_STATIC_CALL_NULL(af_orig_##name, af_hook_##name);
#include "hook_list.h"

#define AF_HOOK(when, ret, hooked, args)			\
	{ .name = #hooked, .gate = AF_WHEN_##when, .entry = AF_ENTRY(hooked),			\
	  .key = &STATIC_CALL_KEY(af_orig_##hooked), .call = STATIC_CALL_TRAMP_ADDR(af_orig_##hooked) },
static struct af_hook af_hooks[] = {
#include "hook_list.h"
};

static int af_hook_find(struct af_hook *hook)
{
	unsigned long address = af_symbol(hook->name), ip;

	if (!address) {
		pr_err("refused: no function %s in this kernel\n", hook->name);
		return -ENOENT;
	}
	ip = af_sym(ftrace_location)(address);
	if (!af_is_entry(address, ip)) {
		pr_err("refused: %s does not begin with an ftrace call\n", hook->name);
		return -ENODEV;
	}
	__static_call_update(hook->key, hook->call, (void *)(ip + MCOUNT_INSN_SIZE));
	if (!af_is_skipped(hook->name))
		hook->ip = ip;
	else
		pr_warn("test: %s is not hooked\n", hook->name);
	return 0;
}

/*
 * Two waits before our text may go: for the hooks that have begun (they may sleep in the original), then for
 * tasks that were preempted in a trampoline or between a hook's last unlock and its return.
 */
static void af_hooks_wait(void)
{
	synchronize_rcu_tasks();
	synchronize_srcu(&af_srcu);
	synchronize_rcu_tasks();
}

/* All hooks or none. */
int af_hooks_attach(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(af_hooks) && af_skip_is_no_check(); i++)
		if (af_is_skipped(af_hooks[i].name))
			break;
	if (i == ARRAY_SIZE(af_hooks)) {
		pr_err("refused: skip=%s is not a hook, nor a check\n", af_skipped());
		return -EINVAL;
	}
	ret = af_version_prepare();
	for (i = 0; i < ARRAY_SIZE(af_hooks) && !ret; i++)
		ret = af_hook_find(&af_hooks[i]);
	if (ret)
		return ret;
	ret = af_arch_attach(af_hooks, ARRAY_SIZE(af_hooks));
	if (ret)
		af_hooks_wait();
	return ret;
}

void af_hooks_detach(void)
{
	af_arch_detach(af_hooks, ARRAY_SIZE(af_hooks));
	af_hooks_wait();
}
