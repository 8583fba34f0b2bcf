// SPDX-License-Identifier: GPL-2.0
/*
 * Linux 6.1 on arm64. On x86 pmd_bad() is true for a protected entry, and some walkers are left alone because they then do the right thing.
 * arm64's pmd_bad() looks at the entry's type only, so they would walk on into the table.
 */
#include "async_fork/internal.h"
#include "async_fork/hooks.h"

/*
 * Slow GUP looks at the right to write in the table alone, and would hand out writable pages. "No page" makes it fault,
 * and the fault is hooked. Under mmap_lock.
 */
struct page *af_hook_follow_page_mask(struct vm_area_struct *vma, unsigned long addr, unsigned int flags,
				      struct follow_page_context *context)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct page *ret = NULL;
	pmd_t *pmd = NULL;

	if (af_roles_of(vma->vm_mm) & AF_LIVE_ROLES)
		pmd = af_pmd_find(vma->vm_mm, addr);
	if (!pmd || !af_pmd_is_protected(READ_ONCE(*pmd)))
		ret = af_orig(follow_page_mask)(vma, addr, flags, context);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* khugepaged and MADV_COLLAPSE, each time they have taken mmap_lock: the table would be taken away (invariant 2). */
int af_hook_hugepage_vma_revalidate(struct mm_struct *mm, unsigned long addr, bool expect_anonymous,
				    struct vm_area_struct **vma, struct collapse_control *control)
{
	int srcu = srcu_read_lock(&af_srcu), ret;

	af_sync_mm(mm, addr, addr + PMD_SIZE, ASYNC_FORK_BY_COLLAPSE);
	ret = af_orig(hugepage_vma_revalidate)(mm, addr, expect_anonymous, vma, control);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
