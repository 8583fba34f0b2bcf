// SPDX-License-Identifier: GPL-2.0
/* Linux 6.1: hooks of functions that other versions have not, or with other parameters. */
#include "async_fork/internal.h"
#include "async_fork/hooks.h"

int af_hook_dup_mmap(struct mm_struct *child, struct mm_struct *parent)
{
	int srcu = srcu_read_lock(&af_srcu), ret;
	struct af_strategy how;
	struct af_fork fork;
	bool ours = af_fork_is_ours(parent, &how);

	if (unlikely(ours))
		af_fork_begins(&fork, &how, child, parent);
	ret = af_orig(dup_mmap)(child, parent);
	if (unlikely(ours))
		af_fork_ends(&fork, ret);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

int af_orig_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	return af_orig(internal_get_user_pages_fast)(start, nr_pages, flags, pages);
}

int af_hook_internal_get_user_pages_fast(unsigned long start, unsigned long nr_pages, unsigned int flags,
					 struct page **pages)
{
	return af_gup_fast(start, nr_pages, flags, pages);
}

long af_hook_change_protection(struct mmu_gather *tlb, struct vm_area_struct *vma, unsigned long start,
			       unsigned long end, pgprot_t prot, unsigned long flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	long ret;

	af_sync_mm(vma->vm_mm, start, end, ASYNC_FORK_BY_MPROTECT);
	ret = af_orig(change_protection)(tlb, vma, start, end, prot, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

unsigned long af_hook_move_page_tables(struct vm_area_struct *vma, unsigned long old_addr,
				       struct vm_area_struct *new_vma, unsigned long new_addr, unsigned long len,
				       bool need_rmap_locks)
{
	int srcu = srcu_read_lock(&af_srcu);
	unsigned long ret;

	af_sync_mm(vma->vm_mm, old_addr, old_addr + len, ASYNC_FORK_BY_MREMAP);
	ret = af_orig(move_page_tables)(vma, old_addr, new_vma, new_addr, len, need_rmap_locks);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/*
 * follow_page() takes a protected entry for a bad one and says that there is no page. For KSM, which would skip the
 * page, and for move_pages(), which would report an error.
 */
struct page *af_hook_follow_page(struct vm_area_struct *vma, unsigned long addr, unsigned int flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct page *ret;

	af_sync_mm(vma->vm_mm, addr, addr + 1, vma->vm_flags & VM_MERGEABLE ? ASYNC_FORK_BY_KSM : ASYNC_FORK_BY_GUP);
	ret = af_orig(follow_page)(vma, addr, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/*
 * userfaultfd filling pages: does not ask pmd_bad() and writes into the table. The VMA must be registered; one that
 * was registered at fork is not deferred, one that is registered later may have protected tables. A fork between here
 * and the original's mmap_lock finds it registered, unless that happens in the gap as well: mfill_atomic_install_pte
 * is therefore hooked too, under that lock. (A zero page in such a gap reads like the hole that the fork had seen.)
 */
int af_hook_mfill_atomic_install_pte(struct mm_struct *mm, pmd_t *pmd, struct vm_area_struct *vma, unsigned long addr,
				     struct page *page, bool newly_allocated, bool wp_copy)
{
	int srcu = srcu_read_lock(&af_srcu), ret;

	af_sync_mm(mm, addr, addr + 1, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_install_pte)(mm, pmd, vma, addr, page, newly_allocated, wp_copy);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mcopy_atomic(struct mm_struct *mm, unsigned long dst, unsigned long src, unsigned long len,
			     atomic_t *mmap_changing, __u64 mode)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_sync_mm_unlocked(mm, dst, dst + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mcopy_atomic)(mm, dst, src, len, mmap_changing, mode);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mfill_zeropage(struct mm_struct *mm, unsigned long start, unsigned long len, atomic_t *mmap_changing)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_sync_mm_unlocked(mm, start, start + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_zeropage)(mm, start, len, mmap_changing);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* What calls pmd_clear_bad() with a protected entry is a walker that should be hooked. */
bool af_bad_is_harmless(unsigned long caller)
{
	return false;
}

bool af_uffd_is_filling(struct mm_struct *mm)
{
	return false;	/* mfill_atomic_install_pte is hooked */
}

int af_version_prepare(void)
{
	return 0;
}
