/* SPDX-License-Identifier: GPL-2.0 */
/*
 * arm64: the marker is a PMD entry that points to a table and has APTable[1] set, which takes the right to write from
 * everything below, at every exception level. pmd_bad() does not see it: hook_arm64.c.
 */
#ifndef _AF_ARCH_ARM64_H
#define _AF_ARCH_ARM64_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/page_table_check.h>
#include <asm/sysreg.h>
#include <asm/tlb.h>

#if !defined(CONFIG_ARM64_4K_PAGES) || CONFIG_PGTABLE_LEVELS < 4
#error "async_fork is for arm64 with 4 KiB pages and 48-bit or 52-bit addresses"
#endif
#if !defined(CONFIG_DYNAMIC_FTRACE_WITH_REGS) && !defined(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)
#error "async_fork needs CONFIG_DYNAMIC_FTRACE_WITH_REGS or CONFIG_DYNAMIC_FTRACE_WITH_ARGS"
#endif
#ifdef CONFIG_ARM64_BTI_KERNEL
#error "the original function is called past its BTI instruction: not with CONFIG_ARM64_BTI_KERNEL"
#endif

/* ---- page table entries ---- */

#define AF_PMD_APTABLE_BIT 62			/* APTable[1] */
#define AF_PMD_APTABLE (_AT(pmdval_t, 1) << AF_PMD_APTABLE_BIT)
#define AF_TCR_HPD0 (UL(1) << 41)		/* hierarchical permissions are disabled below TTBR0 */

/* Entries of every level: 0 said so before there was a name for it, and now means the highest. */
#ifdef TLBI_TTL_UNKNOWN
#define AF_ANY_LEVEL TLBI_TTL_UNKNOWN
#else
#define AF_ANY_LEVEL 0
#endif

static inline void af_flush_range(struct mm_struct *mm, unsigned long addr, unsigned long bytes)
{
	struct vm_area_struct vma = TLB_FLUSH_VMA(mm, 0);

	__flush_tlb_range(&vma, addr, addr + bytes, PAGE_SIZE, false, AF_ANY_LEVEL);
}

/* All translations of the 2 MiB at addr, and what is cached of the levels above. */
static inline void af_flush_table(struct mm_struct *mm, unsigned long addr)
{
	af_flush_range(mm, addr & PMD_MASK, PMD_SIZE);
}

static inline void af_flush_all(void)
{
	flush_tlb_all();
}

static inline void af_pmd_protect(pmd_t *pmd)
{
	set_bit(AF_PMD_APTABLE_BIT, (unsigned long *)pmd);
}

/*
 * A CPU that has cached the entry, or a translation made with it, would refuse writes for as long as it likes: the
 * kernel takes such a fault for one that another CPU has just resolved, and does not flush (invariant 5).
 */
static inline void af_pmd_unprotect(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	clear_bit(AF_PMD_APTABLE_BIT, (unsigned long *)pmd);
	af_flush_table(mm, addr);
}

/*
 * The same after every entry of the table was write-protected: translations made with the protected entry say what the
 * table says, only the cached entry itself must go, for which one address suffices.
 */
static inline void af_pmd_unprotect_copied(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	clear_bit(AF_PMD_APTABLE_BIT, (unsigned long *)pmd);
	af_flush_range(mm, addr & PMD_MASK, PAGE_SIZE);
}

static inline bool af_pmd_is_protected(pmd_t pmd)
{
	return (pmd_val(pmd) & (PMD_TYPE_MASK | AF_PMD_APTABLE)) == (PMD_TYPE_TABLE | AF_PMD_APTABLE);
}

static inline pmd_t af_pmd_of_table(struct page *table, bool protected)
{
	return __pmd(__phys_to_pmd_val(page_to_phys(table)) | PMD_TYPE_TABLE | PMD_TABLE_PXN |
		     (protected ? AF_PMD_APTABLE : 0));
}

/*
 * A writable entry of the table that is copied. A block with the contiguous hint is protected as a whole. To change one
 * of its entries the kernel would take the hint from all: it clears them, flushes this mm's translations and sets them
 * again, but the table may be shared, and the other mms' translations would remain.
 */
static inline void af_pte_wrprotect(struct mm_struct *mm, unsigned long addr, pte_t *pte)
{
#ifdef wrprotect_ptes
	if (pte_cont(READ_ONCE(*pte))) {
		wrprotect_ptes(mm, addr & CONT_PTE_MASK, PTR_ALIGN_DOWN(pte, CONT_PTES * sizeof(*pte)), CONT_PTES);
		return;
	}
#endif
	ptep_set_wrprotect(mm, addr, pte);
}

/*
 * An entry of a table that is not linked yet. Not set_pte_at(): what that does for executable and tagged pages was done
 * when the page was mapped in the table that this one is copied from.
 */
static inline void af_set_new_pte(struct mm_struct *mm, unsigned long addr, pte_t *pte, pte_t value)
{
	compat_table_check_set(mm, addr, pte, value);
	set_pte(pte, value);
}

/* Why page tables cannot be marked on this machine; NULL: they can. */
static inline const char *af_arch_refuses(void)
{
	if (read_sysreg(tcr_el1) & AF_TCR_HPD0)
		return "this kernel disables hierarchical permissions (TCR_EL1.HPD0)";
#ifdef ARM64_HAS_S1PIE
	if (cpus_have_final_cap(ARM64_HAS_S1PIE))
		return "this CPU has permission indirection (FEAT_S1PIE), which disables hierarchical permissions";
#endif
	return NULL;
}

/* ---- the kernel's text ---- */

#define AF_ARCH_HOOK_LIST "hook_list_arm64.h"
#define AF_SWAPOFF_HOOKS(define) define(__arm64_sys_swapoff)	/* for 32-bit processes, too */
#define AF_ARCH_SYMBOLS

/*
 * What a hooked function's ftrace call continues in, and where that call is: after the instruction that saves the
 * return address.
 */
#define AF_ENTRY(name) af_hook_##name
#define AF_DECLARE_ENTRY(name)

static inline bool af_is_entry(unsigned long address, unsigned long ip)
{
	return ip == address + AARCH64_INSN_SIZE;
}

/* Variables that kallsyms does not know. */
int af_arch_find_variables(spinlock_t **mmlist_lock, struct mm_struct **init_mm);

#define AF_CALL_STEP AARCH64_INSN_SIZE	/* distance of places where an instruction may begin, bytes */
#define AF_CALL_BYTES AARCH64_INSN_SIZE
#define AF_CALL_PADDING 0	/* before a function */

/* The target of B or BL; 0: something else. */
static inline unsigned long af_call_target(const u8 *at)
{
	u32 instruction = *(const u32 *)at;

	if ((instruction & 0x7c000000) != 0x14000000)
		return 0;
	return (unsigned long)at + sign_extend64((u64)(instruction & 0x03ffffff) << 2, 27);
}

#endif
