// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of the page tables of a map. It is a PFN map: entries are special, so nobody else makes references to what
 * they point to. Everything here is under mmap_lock. Tables stay until the map is unmapped, which takes that for
 * writing.
 *
 * No entry is changed without the lock of its table (invariant 5), not even one alone by an atomic instruction: a fault
 * that finds the entry there compares it and writes it back, two steps that only this lock holds together.
 */
#include <linux/mmu_notifier.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <asm/tlbflush.h>

#include "internal.h"
#include "symbols.h"

#define EXMAP_STEPS 1024	/* with preemption off; to another table is one, too */
#define EXMAP_RANGE_PAGES 32	/* up to which a flush of the range is cheaper than one of everything */

static int exmap_no_change(pte_t *pte, unsigned long address, void *unused)
{
	return 0;
}

static pmd_t *exmap_pmd(struct mm_struct *mm, unsigned long address)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (p4d_none(*p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	return pud_none(*pud) ? NULL : pmd_offset(pud, address);
}

/* The same. Neighbours are in the same table, which is looked for once. */
static pmd_t *exmap_pmd_near(struct exmap_walk *walk, unsigned long address)
{
	pmd_t *pmd;

	if (walk->pmds && walk->pmds_at == (address & PUD_MASK))
		return walk->pmds + pmd_index(address);
	pmd = exmap_pmd(walk->vma->vm_mm, address);
	if (pmd) {
		walk->pmds = pmd - pmd_index(address);
		walk->pmds_at = address & PUD_MASK;
	}
	return pmd;
}

/* The table below, NULL if there is none; `allocate`: then it is made, NULL only without memory. */
static pmd_t *exmap_pmd_of_table(struct exmap_walk *walk, unsigned long address, bool allocate)
{
	pmd_t *pmd = exmap_pmd_near(walk, address);

	if (pmd && pmd_present(READ_ONCE(*pmd)))
		return pmd;
	/* Makes what is missing of all levels. */
	if (!allocate || exmap_allocation_fails() ||
	    apply_to_page_range(walk->vma->vm_mm, address & PAGE_MASK, PAGE_SIZE, exmap_no_change, NULL))
		return NULL;
	return exmap_pmd_near(walk, address);
}

static __always_inline void exmap_walk_leave(struct exmap_walk *walk)
{
	if (walk->at == EXMAP_NOWHERE)
		return;
	if (!exmap_skips(EXMAP_CHECK_table_lock))
		spin_unlock(walk->lock);
	walk->at = EXMAP_NOWHERE;
}

void exmap_walk_end(struct exmap_walk *walk)
{
	exmap_walk_leave(walk);
}

/* Of an entry that points to a frame. Dirty and young: the hardware has nothing to note, no fault is taken for it. */
static pgprot_t exmap_frame_prot(struct vm_area_struct *vma)
{
	pte_t entry = compat_pte_mkwrite(pfn_pte(0, vma->vm_page_prot));

	return pte_pgprot(pte_mkspecial(pte_mkyoung(pte_mkdirty(entry))));
}

/* To another table than that of the step before, or after many steps. */
pte_t *exmap_walk_on(struct exmap_walk *walk, u64 page, bool allocate)
{
	unsigned long address = exmap_address(walk, page);
	pmd_t *pmd;

	exmap_walk_leave(walk);
	if (--walk->steps < 0) {
		cond_resched();
		walk->steps = EXMAP_STEPS;
	}
	pmd = exmap_pmd_of_table(walk, address, allocate);
	if (!pmd)
		return NULL;
	walk->at = address & PMD_MASK;
	if (!pgprot_val(walk->frame_prot))
		walk->frame_prot = exmap_frame_prot(walk->vma);
	walk->table = pte_offset_kernel(pmd, walk->at);
	walk->lock = pte_lockptr(walk->vma->vm_mm, pmd);
	if (!exmap_skips(EXMAP_CHECK_table_lock))
		spin_lock(walk->lock);
	return walk->table + pte_index(address);
}

/* The first page after those whose entries are in the same table. */
u64 exmap_table_end(struct exmap_walk *walk, u64 page)
{
	unsigned long end = (exmap_address(walk, page) & PMD_MASK) + PMD_SIZE;

	return (end - walk->start) >> PAGE_SHIFT;
}

void exmap_pte_set_zero(struct exmap_walk *walk, u64 page, pte_t *pte)
{
	pte_t entry = pte_wrprotect(pfn_pte(my_zero_pfn(0), walk->vma->vm_page_prot));

	compat_set_pte(walk->vma->vm_mm, exmap_address(walk, page), pte, pte_mkspecial(entry));
}

static void exmap_flush_tlb(struct vm_area_struct *vma, const struct exmap_flush *flush, bool full)
{
#ifdef CONFIG_X86_64
	if (full)
		SYMBOL(flush_tlb_mm_range)(vma->vm_mm, 0UL, TLB_FLUSH_ALL, 0U, false);
	else
		SYMBOL(flush_tlb_mm_range)(vma->vm_mm, flush->start, flush->end, PAGE_SHIFT, false);
#else
	if (full)
		flush_tlb_mm(vma->vm_mm);
	else
		__flush_tlb_range(vma, flush->start, flush->end, PAGE_SIZE, true, 3);
#endif
}

/* Returns when no processor can reach what was taken away. False: nothing was. */
bool exmap_flush(struct vm_area_struct *vma, const struct exmap_flush *flush, bool *full)
{
	if (flush->start >= flush->end)
		return false;
	*full = flush->end - flush->start > EXMAP_RANGE_PAGES * PAGE_SIZE;
	exmap_flush_tlb(vma, flush, *full);
	return true;
}

#ifdef CONFIG_MMU_NOTIFIER
/*
 * Others that keep copies of the page tables (KVM, devices that share them) let go of what a call names before it is
 * taken away, and of what they cached before its frames are free. None can come meanwhile: that takes mmap_lock for
 * writing. False: there are none.
 */
bool exmap_notify_begin(struct exmap_call *call, struct vm_area_struct *vma, struct mmu_notifier_range *range)
{
	u64 first = U64_MAX, end = 0;
	unsigned int i;

	if (likely(!mm_has_notifiers(vma->vm_mm)) || exmap_skips(EXMAP_CHECK_notify))
		return false;
	for (i = 0; i < call->count; i++) {
		first = min_t(u64, first, call->entries[i].page);
		end = max_t(u64, end, (u64)call->entries[i].page + call->entries[i].length);
	}
	if (first >= end)
		return false;
	compat_notifier_range(range, vma, vma->vm_start + (first << PAGE_SHIFT), vma->vm_start + (end << PAGE_SHIFT));
	range->flags |= MMU_NOTIFIER_RANGE_BLOCKABLE;
	SYMBOL(__mmu_notifier_invalidate_range_start)(range);
	return true;
}

void exmap_notify_end(struct mmu_notifier_range *range)
{
	compat_notifier_end(range);
}
#else
bool exmap_notify_begin(struct exmap_call *call, struct vm_area_struct *vma, struct mmu_notifier_range *range)
{
	return false;
}

void exmap_notify_end(struct mmu_notifier_range *range)
{
}
#endif
