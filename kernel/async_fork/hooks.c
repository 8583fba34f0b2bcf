// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching the hooks. Each is an ftrace direct call: the five bytes at the function's entry call a trampoline of a
 * few instructions, which returns into the function at once if nothing is live, and otherwise drops the return address
 * into the function and continues in the hook as if the caller had called the hook. The original is then called past
 * its entry. Direct calls are refused where a livepatch (IPMODIFY) is attached, and a livepatch is refused where we
 * are; ftrace_enabled=0 cannot remove them (FTRACE_OPS_FL_PERMANENT).
 */
#include <linux/module.h>
#include <asm/unwind_hints.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"

DEFINE_SRCU(af_srcu);

/*
 * UNWIND_HINT_FUNC: after the return address into the function is gone, the stack is what it is at the entry of any
 * function, so unwinders (and livepatch's reliable stack traces) see the hook called by the function's caller.
 */
#define AF_TRAMPOLINE_BODY(name)				\
	"	addq	$8, %rsp\n"				\
	UNWIND_HINT_FUNC "\n"					\
	"	jmp	af_hook_" #name "\n"

#define AF_TRAMPOLINE_GATE_IF(counter)				\
	"	cmpl	$0, " #counter "(%rip)\n"		\
	"	jne	1f\n"					\
	"	" ASM_RET "\n"					\
	"1:\n"

/*
 * In addition the bucket of the mm of the VMA in the first parameter: page faults of everybody else, while somebody is
 * live. The same as af_role_bucket(); rax and r10 carry nothing at the entry of a C function.
 */
#define AF_TRAMPOLINE_GATE_VMA					\
	"	movq	af_offset_vm_mm(%rdi), %rax\n"		\
	"	movabsq	$" __stringify(AF_ROLE_FACTOR) ", %r10\n" \
	"	imulq	%r10, %rax\n"				\
	"	shrq	$(64 - " __stringify(AF_ROLE_BITS) "), %rax\n" \
	"	leaq	af_roles(%rip), %r10\n"			\
	"	cmpq	$0, (%r10, %rax, 8)\n"			\
	"	jne	2f\n"					\
	"	" ASM_RET "\n"					\
	"2:\n"

static void __used af_trampoline_constants(void)
{
	asm volatile(".set af_offset_vm_mm, %c0" : : "i" (offsetof(struct vm_area_struct, vm_mm)));
}

#define AF_GATE_LIVE	AF_TRAMPOLINE_GATE_IF(af_live)
#define AF_GATE_VMA	AF_TRAMPOLINE_GATE_IF(af_live) AF_TRAMPOLINE_GATE_VMA
#define AF_GATE_TRACKED	AF_TRAMPOLINE_GATE_IF(af_tracked)
#define AF_GATE_ALWAYS	""

#define AF_HOOK(gate, ret, name, args)				\
	ret (*af_orig_##name) args;				\
	void af_trampoline_##name(void);			\
	asm(".pushsection .text, \"ax\"\n"			\
	    ".globl af_trampoline_" #name "\n"			\
	    ".type af_trampoline_" #name ", @function\n"	\
	    "af_trampoline_" #name ":\n"			\
	    AF_GATE_##gate					\
	    AF_TRAMPOLINE_BODY(name)				\
	    ".size af_trampoline_" #name ", . - af_trampoline_" #name "\n" \
	    ".popsection\n");
#include "hook_list.h"

struct af_hook {
	const char *name;
	void *trampoline;
	void *orig;		/* where to store the address past the entry */
	unsigned long ip;	/* of the call at the entry; 0: not attached */
};

#define AF_HOOK(gate, ret, hooked, args)			\
	{ .name = #hooked, .trampoline = af_trampoline_##hooked, .orig = &af_orig_##hooked },
static struct af_hook af_hooks[] = {
#include "hook_list.h"
};

static int af_hook_attach(struct af_hook *hook)
{
	unsigned long address = af_symbol(hook->name), ip;
	int ret;

	if (!address) {
		pr_err("refused: no function %s in this kernel\n", hook->name);
		return -ENOENT;
	}
	ip = af_sym.ftrace_location(address);
	if (ip != address) {
		pr_err("refused: %s does not begin with an ftrace call\n", hook->name);
		return -ENODEV;
	}
	*(unsigned long *)hook->orig = ip + MCOUNT_INSN_SIZE;
	if (!strcmp(af_skip, hook->name)) {
		pr_warn("test: %s is not hooked\n", hook->name);
		return 0;
	}
	ret = compat_attach(ip, hook->trampoline);
	if (ret) {
		pr_err("refused: %s cannot be hooked (%d)%s\n", hook->name, ret,
		       ret == -EBUSY ? ": a livepatch or a BPF trampoline is attached" : "");
		return ret;
	}
	hook->ip = ip;
	return 0;
}

/* All hooks or none. */
int af_hooks_attach(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(af_hooks) && *af_skip; i++)
		if (!strcmp(af_hooks[i].name, af_skip))
			break;
	if (i == ARRAY_SIZE(af_hooks)) {
		pr_err("refused: skip=%s is not a hook\n", af_skip);
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(af_hooks); i++) {
		ret = af_hook_attach(&af_hooks[i]);
		if (ret) {
			af_hooks_detach();
			return ret;
		}
	}
	return 0;
}

/*
 * Two waits before our text may go: for the hooks that have begun (they may sleep in the original), then for
 * tasks that were preempted in a trampoline or between a hook's last unlock and its return.
 */
void af_hooks_detach(void)
{
	int i;

	for (i = ARRAY_SIZE(af_hooks) - 1; i >= 0; i--) {
		struct af_hook *hook = &af_hooks[i];

		if (hook->ip && WARN_ON(compat_detach(hook->ip, hook->trampoline)))
			continue;
		hook->ip = 0;
	}
	synchronize_rcu_tasks();
	synchronize_srcu(&af_srcu);
	synchronize_rcu_tasks();
}
