// SPDX-License-Identifier: GPL-2.0
/*
 * arm64: ftrace has no direct calls here in 6.1, and the module does without in 6.12. One ftrace_ops for all hooks sets
 * the instruction pointer to the hook if its gate is open, and otherwise leaves it behind the call. With one ops and no
 * other tracer, ftrace's entry code calls it directly. IPMODIFY: a livepatch of the same function is refused while we
 * are attached, and the reverse; PERMANENT: ftrace_enabled=0 cannot remove it.
 */
#include <linux/hash.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"

/* The hooks by the address of their call: open addressing, complete before the ops is registered. */
#define AF_SLOT_BITS 7

static struct af_hook *af_slots[1 << AF_SLOT_BITS];

/* The slot of ip, or the empty one where it belongs. */
static __always_inline struct af_hook **af_slot(unsigned long ip)
{
	unsigned int i = hash_long(ip, AF_SLOT_BITS);

	while (af_slots[i] && af_slots[i]->ip != ip)
		i = (i + 1) % ARRAY_SIZE(af_slots);
	return &af_slots[i];
}

/* argument: of the hooked function, a pointer to a PMD entry */
static __always_inline bool af_pmd_is_live(unsigned long argument)
{
	return atomic_read(&af_live) && af_pmd_is_protected(READ_ONCE(*(pmd_t *)argument));
}

static __always_inline bool af_gate_is_open(enum af_gate gate, struct ftrace_regs *fregs)
{
	struct vm_area_struct *vma;

	switch (gate) {
	case AF_WHEN_LIVE:
		return atomic_read(&af_live);
	case AF_WHEN_VMA:
		vma = (struct vm_area_struct *)compat_argument(fregs, 0);
		return atomic_read(&af_live) && READ_ONCE(af_role_bucket(vma->vm_mm)->first);
	case AF_WHEN_TRACKED:
		return atomic_read(&af_tracked);
	case AF_WHEN_PMD_1:
		return af_pmd_is_live(compat_argument(fregs, 0));
	case AF_WHEN_PMD_2:
		return af_pmd_is_live(compat_argument(fregs, 1));
	case AF_WHEN_PMD_3:
		return af_pmd_is_live(compat_argument(fregs, 2));
	case AF_WHEN_ALWAYS:
		break;
	}
	return true;
}

static void notrace af_enter(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			     struct ftrace_regs *fregs)
{
	struct af_hook *hook = *af_slot(ip);

	if (hook && af_gate_is_open(hook->gate, fregs))
		compat_continue_at(fregs, (unsigned long)hook->entry);
}

static struct ftrace_ops af_ops = {
	.func = af_enter,
	.flags = COMPAT_FTRACE_FLAGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

/* All or none. */
int af_arch_attach(struct af_hook *hooks, int count)
{
	unsigned long ips[ARRAY_SIZE(af_slots) / 2];
	int i, attached = 0, ret;

	if (WARN_ON(count > ARRAY_SIZE(ips)))
		return -E2BIG;
	for (i = 0; i < count; i++) {
		if (!hooks[i].ip)
			continue;
		ips[attached++] = hooks[i].ip;
		*af_slot(hooks[i].ip) = &hooks[i];
	}
	ret = ftrace_set_filter_ips(&af_ops, ips, attached, 0, 1);
	ret = ret ?: register_ftrace_function(&af_ops);
	if (ret) {
		pr_err("refused: the functions cannot be hooked (%d)%s\n", ret,
		       ret == -EBUSY ? ": a livepatch is attached to one, or ftrace is off" : "");
		ftrace_free_filter(&af_ops);
	}
	return ret;
}

void af_arch_detach(struct af_hook *hooks, int count)
{
	if (!WARN_ON(unregister_ftrace_function(&af_ops)))
		ftrace_free_filter(&af_ops);
}
