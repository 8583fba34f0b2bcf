// SPDX-License-Identifier: GPL-2.0
/*
 * Linux 6.12 on arm64. On x86 pmd_bad() is true for a protected entry; here it looks at the entry's type only. So those
 * who look up an entry's table find it, as the reverse map must, and need no hook (lookup_6_12_x86.c); but who gives up
 * on x86 would go on.
 */
#include <linux/mmu_notifier.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"
#include "async_fork/symbols.h"

/* What __flush_tlb_range() calls and the kernel does not export. */
void __mmu_notifier_arch_invalidate_secondary_tlbs(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	af_sym(__mmu_notifier_arch_invalidate_secondary_tlbs)(mm, start, end);
}

/*
 * khugepaged and MADV_COLLAPSE, under mmap_lock: the table would be taken away (invariant 2). They ask for the entry
 * again when they hold mmap_lock for writing, and give up if there is none, as on x86. The others that ask mean pages that
 * are not below a protected entry: KSM, who splits a huge page, and UFFDIO_MOVE, which has a hook of its own. No SRCU: it
 * does not sleep.
 */
pmd_t *af_hook_mm_find_pmd(struct mm_struct *mm, unsigned long addr)
{
	pmd_t *pmd = af_orig(mm_find_pmd)(mm, addr);

	return pmd && af_pmd_is_protected(READ_ONCE(*pmd)) ? NULL : pmd;
}

int af_version_prepare(void)
{
	return 0;
}

/* Only entries that are no pointers to tables come to pmd_clear_bad(). */
bool af_bad_is_harmless(unsigned long caller)
{
	return false;
}
