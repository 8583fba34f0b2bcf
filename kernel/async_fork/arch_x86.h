/* SPDX-License-Identifier: GPL-2.0 */
/* x86-64: the marker is a PMD entry that points to a table and has R/W clear. arch_arm64.h has the same names. */
#ifndef _AF_ARCH_X86_H
#define _AF_ARCH_X86_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <asm/ibt.h>
#include <asm/nospec-branch.h>

#ifndef CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS
#error "async_fork needs CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"
#endif

/* ---- page table entries ---- */

static inline void af_pmd_protect(pmd_t *pmd)
{
	clear_bit(_PAGE_BIT_RW, (unsigned long *)pmd);
}

/* No flush: invariant 5. */
static inline void af_pmd_unprotect(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	set_bit(_PAGE_BIT_RW, (unsigned long *)pmd);
}

/* The same after every entry of the table was write-protected. */
static inline void af_pmd_unprotect_copied(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	af_pmd_unprotect(mm, pmd, addr);
}

/* Also in assembler: of an entry that is no huge page and not writable. */
#define AF_PMD_FLAGS 0x83
#define AF_PMD_PROTECTED 0x01
static_assert(AF_PMD_FLAGS == (_PAGE_PRESENT | _PAGE_RW | _PAGE_PSE) && AF_PMD_PROTECTED == _PAGE_PRESENT);

static inline bool af_pmd_is_protected(pmd_t pmd)
{
	return (pmd_flags(pmd) & AF_PMD_FLAGS) == AF_PMD_PROTECTED;
}

static inline pmd_t af_pmd_of_table(struct page *table, bool protected)
{
	return __pmd(((pteval_t)page_to_pfn(table) << PAGE_SHIFT) | (protected ? _PAGE_TABLE & ~_PAGE_RW : _PAGE_TABLE));
}

/* A writable entry of the table that is copied. */
static inline void af_pte_wrprotect(struct mm_struct *mm, unsigned long addr, pte_t *pte)
{
	ptep_set_wrprotect(mm, addr, pte);
}

/* An entry of a table that is not linked yet. */
static inline void af_set_new_pte(struct mm_struct *mm, unsigned long addr, pte_t *pte, pte_t value)
{
	set_pte_at(mm, addr, pte, value);
}

/* All translations of the 2 MiB at addr, and what is cached of the levels above. */
void af_flush_table(struct mm_struct *mm, unsigned long addr);
void af_flush_all(void);

/* Why page tables cannot be marked on this machine; NULL: they can. */
static inline const char *af_arch_refuses(void)
{
	/* an entry may only be changed by a hypercall, not by a bit operation */
	return boot_cpu_has(X86_FEATURE_XENPV) ? "the hypervisor owns the page tables (Xen PV)" : NULL;
}

/* ---- the kernel's text ---- */

#define AF_ARCH_HOOK_LIST "hook_list_x86.h"
#define AF_SWAPOFF_HOOKS(define) define(__x64_sys_swapoff) define(__ia32_sys_swapoff)

#define AF_ARCH_SYMBOLS								\
	AF_SYMBOL(void, flush_tlb_mm_range,					\
		  (struct mm_struct *, unsigned long, unsigned long, unsigned int, bool)) \
	AF_SYMBOL(void, flush_tlb_all, (void))

/* What a hooked function's ftrace call continues in, and where that call is. */
#define AF_ENTRY(name) af_trampoline_##name
#define AF_DECLARE_ENTRY(name) void af_trampoline_##name(void);

/* Whether a function's ftrace call is at its entry, perhaps after an ENDBR or what the kernel sealed it with. */
static inline bool af_is_entry(unsigned long address, unsigned long ip)
{
	return ip == address || (IS_ENABLED(CONFIG_X86_KERNEL_IBT) && ip == address + ENDBR_INSN_SIZE);
}

/* Variables that kallsyms does not know. */
static inline int af_arch_find_variables(spinlock_t **mmlist_lock, struct mm_struct **init_mm)
{
	return -ENOENT;
}

#define AF_CALL_STEP 1		/* distance of places where an instruction may begin, bytes */
#define AF_CALL_BYTES 5
#ifdef CONFIG_CALL_THUNKS
#define AF_CALL_PADDING CONFIG_FUNCTION_PADDING_BYTES	/* before a function; with retbleed=stuff calls begin there */
#else
#define AF_CALL_PADDING 0
#endif

/* The target of a direct call or jump (e8, e9 with a 32-bit distance); 0: something else. */
static inline unsigned long af_call_target(const u8 *at)
{
	return (*at & 0xfe) == 0xe8 ? (unsigned long)at + AF_CALL_BYTES + *(const s32 *)(at + 1) : 0;
}

#endif
