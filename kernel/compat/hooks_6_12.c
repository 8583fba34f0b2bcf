// SPDX-License-Identifier: GPL-2.0
/* Linux 6.12: hooks of functions that have other parameters in other versions. */
#include <linux/pagewalk.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"

int af_orig_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	return af_orig(gup_fast_fallback)(start, nr_pages, flags, pages);
}

int af_hook_gup_fast_fallback(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	return af_gup_fast(start, nr_pages, flags, pages);
}

/*
 * Slow GUP looks at the right to write in the table alone, and would hand out writable pages. "No page" makes it fault,
 * and the fault is hooked. Under mmap_lock, which keeps a fork out between the gate and here.
 */
struct page *af_hook_follow_page_pte(struct vm_area_struct *vma, unsigned long addr, pmd_t *pmd, unsigned int flags,
				     struct dev_pagemap **pgmap)
{
	if (af_pmd_is_protected(READ_ONCE(*pmd)))
		return NULL;
	return af_orig(follow_page_pte)(vma, addr, pmd, flags, pgmap);
}

/* KSM and move_pages(). It returns with the table's lock held. Under mmap_lock. */
struct folio *af_hook_folio_walk_start(struct folio_walk *walk, struct vm_area_struct *vma, unsigned long addr,
				       folio_walk_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct folio *ret;

	af_sync_mm(vma->vm_mm, addr, addr + 1, vma->vm_flags & VM_MERGEABLE ? ASYNC_FORK_BY_KSM : ASYNC_FORK_BY_GUP);
	ret = af_orig(folio_walk_start)(walk, vma, addr, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

long af_hook_change_protection(struct mmu_gather *tlb, struct vm_area_struct *vma, unsigned long start,
			       unsigned long end, unsigned long flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	long ret;

	af_sync_mm(vma->vm_mm, start, end, ASYNC_FORK_BY_MPROTECT);
	ret = af_orig(change_protection)(tlb, vma, start, end, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

unsigned long af_hook_move_page_tables(struct vm_area_struct *vma, unsigned long old_addr,
				       struct vm_area_struct *new_vma, unsigned long new_addr, unsigned long len,
				       bool need_rmap_locks, bool for_stack)
{
	int srcu = srcu_read_lock(&af_srcu);
	unsigned long ret;

	af_sync_mm(vma->vm_mm, old_addr, old_addr + len, ASYNC_FORK_BY_MREMAP);
	ret = af_orig(move_page_tables)(vma, old_addr, new_vma, new_addr, len, need_rmap_locks, for_stack);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
