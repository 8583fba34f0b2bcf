// SPDX-License-Identifier: GPL-2.0
/*
 * x86-64: each hook is an ftrace direct call. The five bytes at the function's entry call a trampoline of a few
 * instructions, which returns into the function at once if nothing is live, and otherwise drops the return address into
 * the function and continues in the hook. Direct calls are refused where a livepatch (IPMODIFY) is attached, and a
 * livepatch is refused where we are; ftrace_enabled=0 cannot remove them (FTRACE_OPS_FL_PERMANENT).
 */
#include <asm/unwind_hints.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"

/*
 * UNWIND_HINT_FUNC: after the return address into the function is gone, the stack is what it is at the entry of any
 * function, so unwinders (and livepatch's reliable stack traces) see the hook called by the function's caller.
 */
#define AF_TRAMPOLINE_BODY(name)				\
	"	addq	$8, %rsp\n"				\
	UNWIND_HINT_FUNC "\n"					\
	"	jmp	af_hook_" #name "\n"

/* Back into the function. */
#define AF_TRAMPOLINE_RETURN					\
	COMPAT_CALL_ACCOUNT					\
	"	" ASM_RET "\n"

#define AF_TRAMPOLINE_GATE_IF(counter)				\
	"	cmpl	$0, " #counter "(%rip)\n"		\
	"	jne	1f\n"					\
	AF_TRAMPOLINE_RETURN					\
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
	AF_TRAMPOLINE_RETURN					\
	"2:\n"

/* In addition the PMD entry that a parameter points to: af_pmd_is_protected(). */
#define AF_TRAMPOLINE_GATE_PMD(parameter)			\
	"	movq	(%" #parameter "), %rax\n"		\
	"	andl	$" __stringify(AF_PMD_FLAGS) ", %eax\n" \
	"	cmpl	$" __stringify(AF_PMD_PROTECTED) ", %eax\n" \
	"	je	2f\n"					\
	AF_TRAMPOLINE_RETURN					\
	"2:\n"

static void __used af_trampoline_constants(void)
{
	asm volatile(".set af_offset_vm_mm, %c0" : : "i" (offsetof(struct vm_area_struct, vm_mm)));
}

#define AF_GATE_LIVE	AF_TRAMPOLINE_GATE_IF(af_live)
#define AF_GATE_VMA	AF_TRAMPOLINE_GATE_IF(af_live) AF_TRAMPOLINE_GATE_VMA
#define AF_GATE_PMD_1	AF_TRAMPOLINE_GATE_IF(af_live) AF_TRAMPOLINE_GATE_PMD(rdi)
#define AF_GATE_PMD_2	AF_TRAMPOLINE_GATE_IF(af_live) AF_TRAMPOLINE_GATE_PMD(rsi)
#define AF_GATE_PMD_3	AF_TRAMPOLINE_GATE_IF(af_live) AF_TRAMPOLINE_GATE_PMD(rdx)
#define AF_GATE_TRACKED	AF_TRAMPOLINE_GATE_IF(af_tracked)
#define AF_GATE_ALWAYS	""

#define AF_HOOK(gate, ret, name, args)				\
	asm(".pushsection .text, \"ax\"\n"			\
	    ".globl af_trampoline_" #name "\n"			\
	    ".type af_trampoline_" #name ", @function\n"	\
	    "af_trampoline_" #name ":\n"			\
	    ASM_ENDBR						\
	    AF_GATE_##gate					\
	    AF_TRAMPOLINE_BODY(name)				\
	    ".size af_trampoline_" #name ", . - af_trampoline_" #name "\n" \
	    ".popsection\n");
#include "hook_list.h"

/* All or none. */
int af_arch_attach(struct af_hook *hooks, int count)
{
	int i, ret;

	for (i = 0; i < count; i++) {
		if (!hooks[i].ip)
			continue;
		ret = compat_attach(&hooks[i].direct, hooks[i].ip, hooks[i].entry);
		if (!ret)
			continue;
		pr_err("refused: %s cannot be hooked (%d)%s\n", hooks[i].name, ret,
		       ret == -EBUSY ? ": a livepatch or a BPF trampoline is attached, or ftrace is off" : "");
		af_arch_detach(hooks, i);
		return ret;
	}
	return 0;
}

void af_arch_detach(struct af_hook *hooks, int count)
{
	while (--count >= 0)
		if (hooks[count].ip)
			WARN_ON(compat_detach(&hooks[count].direct, hooks[count].ip, hooks[count].entry));
}

void af_flush_table(struct mm_struct *mm, unsigned long addr)
{
	af_sym(flush_tlb_mm_range)(mm, addr, addr + PMD_SIZE, PAGE_SHIFT, true);
}

void af_flush_all(void)
{
	af_sym(flush_tlb_all)();
}
