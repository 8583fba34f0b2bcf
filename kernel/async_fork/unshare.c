// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork after the fork: a table becomes private again (paper, 3.2: copy, take back, detach). */
#include <linux/ktime.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <asm/pgalloc.h>

#include "internal.h"
#include "symbols.h"

/* What a table's pages are in the RSS counters. */
static void af_table_rss(pte_t *table, long *rss)
{
	int i;

	memset(rss, 0, NR_MM_COUNTERS * sizeof(*rss));
	for (i = 0; i < PTRS_PER_PTE; i++) {
		swp_entry_t entry;

		if (pte_none(table[i]))
			continue;
		if (pte_present(table[i])) {
			if (!pte_special(table[i]))
				rss[compat_rss_member(pte_page(table[i]))]++;
			continue;
		}
		entry = pte_to_swp_entry(table[i]);
		if (!non_swap_entry(entry))
			rss[MM_SWAPENTS]++;
		else if (is_migration_entry(entry))
			rss[compat_rss_member(pfn_swap_entry_to_page(entry))]++;
	}
}

/* The other owners are gone. */
static void af_take_back(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, struct page *table)
{
	struct mm_struct *mm = om->role.mm;
	long rss[NR_MM_COUNTERS];

	if (compat_table_mm(table) != mm) {
		af_table_rss(af_table_of(table), rss);
		af_rss_add(mm, rss, 1);
	}
	compat_set_table_mm(table, NULL);
	af_step_atomic(AF_STEP_TAKE_BACK);
	af_pmd_unprotect(mm, pmd, addr);
	atomic_long_dec(&om->entries);
	atomic64_inc(&af_count.tables_last_owner);
}

/*
 * The entry points elsewhere (or nowhere). When the owner count drops no paging-structure cache may still lead to the
 * table; GUP-fast may still be in it, which keeps it from being freed (invariant 12).
 */
static void af_let_go(struct af_odf_mm *om, unsigned long addr, struct page *table)
{
	af_flush_table(om->role.mm, addr);
	af_step_atomic(AF_STEP_LET_GO);
	atomic_long_dec(af_owners(table));
	atomic_long_dec(&om->entries);
}

/* The caller unmaps all of it: no copy. */
static void af_detach(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, struct page *table)
{
	struct mm_struct *mm = om->role.mm;
	long rss[NR_MM_COUNTERS];

	if (compat_table_mm(table) == mm) {
		af_table_rss(af_table_of(table), rss);
		af_rss_add(mm, rss, -1);
		compat_set_table_mm(table, NULL);
	}
	af_step_atomic(AF_STEP_DETACH);
	set_pmd(pmd, __pmd(0));
	af_let_go(om, addr, table);
	mm_dec_nr_ptes(mm);
	atomic64_inc(&af_count.tables_detached);
}

/* Takes *new, unless there is an error. */
static int af_copy_shared(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, struct page *table, pgtable_t *new,
			  struct af_blocker *blocker)
{
	struct mm_struct *mm = om->role.mm;
	long rss[NR_MM_COUNTERS];
	int ret = af_fill_table(mm, mm, addr, af_table_of(table), af_table_of(*new), rss, blocker);

	if (ret)
		return ret;
	if (compat_table_mm(table) == mm)
		compat_set_table_mm(table, NULL);	/* what was counted is now the private copy */
	else
		af_rss_add(mm, rss, 1);
	smp_wmb();	/* the entries before the table; as in pmd_install() */
	set_pmd(pmd, af_pmd_of_table(*new, false));
	*new = NULL;
	af_let_go(om, addr, table);
	return 0;
}

/* One attempt. -EAGAIN: something must be waited for, or a table is needed for a copy (*new is NULL). */
static int af_try_unshare(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, pgtable_t *new,
			  struct af_blocker *blocker, enum async_fork_reason reason)
{
	struct mm_struct *mm = om->role.mm;
	struct page *table;
	spinlock_t *ptl;
	int ret = 0;

	mutex_lock(&om->lock);
	if (!af_pmd_is_protected(READ_ONCE(*pmd)))
		goto unlock;
	table = pmd_page(*pmd);
	ptl = pte_lockptr(mm, pmd);
	spin_lock(ptl);
	if (atomic_long_read(af_owners(table)) == 1) {
		af_take_back(om, pmd, addr, table);
	} else if (!*new) {
		ret = -ENOBUFS;
	} else {
		ret = af_copy_shared(om, pmd, addr, table, new, blocker);
		if (!ret)
			atomic64_inc(&af_count.tables_unshared[reason]);
	}
	spin_unlock(ptl);
unlock:
	mutex_unlock(&om->lock);
	return ret;
}

static int af_unshare_loop(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, enum af_unshare_how how,
			   enum async_fork_reason reason)
{
	struct mm_struct *mm = om->role.mm;
	struct af_blocker blocker;
	pgtable_t new = NULL;
	int ret;

	for (;;) {
		ret = af_try_unshare(om, pmd, addr, &new, &blocker, reason);
		if (ret == -ENOBUFS) {
			new = how == AF_MUST_COPY ? af_table_alloc_nofail(mm) : af_table_alloc(mm);
			ret = new ? 0 : -ENOMEM;
		} else if (ret == -EAGAIN && how != AF_MAY_NOT_WAIT) {
			ret = af_unblock(mm, NULL, addr, &blocker);
			if (ret && how == AF_MUST_COPY) {
				schedule_timeout_uninterruptible(1);
				ret = 0;
			}
		} else {
			break;
		}
		if (ret)
			break;
	}
	if (new)
		pte_free(mm, new);
	return ret;
}

/*
 * The table of addr becomes private to the mm. The caller holds mmap_lock, or the mm is exiting. Sleeps. With
 * AF_MAY_FAIL -ENOMEM is possible; -EINVAL is a bug (an entry that cannot be copied).
 */
noinline int af_unshare_table(struct af_odf_mm *om, unsigned long addr, enum af_unshare_how how,
			      enum async_fork_reason reason)
{
	pmd_t *pmd = af_pmd_find(om->role.mm, addr);
	u64 start_ns;
	int ret;

	if (!pmd || !af_pmd_is_protected(READ_ONCE(*pmd)))
		return 0;
	start_ns = ktime_get_ns();
	af_step(AF_STEP_UNSHARE);
	ret = af_unshare_loop(om, pmd, addr & PMD_MASK, how, reason);
	if (om->is_parent && reason != ASYNC_FORK_BY_PARENT_EXIT)
		af_interrupted(addr & PMD_MASK, reason, ktime_get_ns() - start_ns);
	return ret;
}

/* All tables that intersect [start, end). The first error ends it. */
int af_unshare_range(struct af_odf_mm *om, unsigned long start, unsigned long end, enum af_unshare_how how,
		     enum async_fork_reason reason)
{
	unsigned long addr = start & PMD_MASK;
	int ret = 0;

	while (!ret && addr < end) {
		if (!af_pmd_find(om->role.mm, addr)) {
			addr = pud_addr_end(addr, end);
			continue;
		}
		ret = af_unshare_table(om, addr, how, reason);
		addr += PMD_SIZE;
		cond_resched();
	}
	return ret;
}

/*
 * The caller unmaps all of the table. Under the anon_vma lock, since in 6.1 a reverse map walk (page_vma_mapped_walk())
 * reads the entry again after it has found a table there, which nobody else makes disappear under that lock. No
 * allocation happens under it: reclaim would wait for it.
 */
static void af_detach_table(struct af_odf_mm *om, struct anon_vma *anon_vma, pmd_t *pmd, unsigned long addr)
{
	struct mm_struct *mm = om->role.mm;

	anon_vma_lock_write(anon_vma);
	mutex_lock(&om->lock);
	if (af_pmd_is_protected(READ_ONCE(*pmd))) {
		struct page *table = pmd_page(*pmd);
		spinlock_t *ptl = pte_lockptr(mm, pmd);

		spin_lock(ptl);
		if (atomic_long_read(af_owners(table)) == 1)
			af_take_back(om, pmd, addr, table);
		else
			af_detach(om, pmd, addr, table);
		spin_unlock(ptl);
	}
	mutex_unlock(&om->lock);
	anon_vma_unlock_write(anon_vma);
}

/*
 * Before [start, end) is unmapped, which lies in the VMA or, at exit, in tables that it has a part of: of the tables
 * that lie wholly in it nothing is copied. Cannot fail.
 */
void af_detach_range(struct af_odf_mm *om, struct vm_area_struct *vma, unsigned long start, unsigned long end,
		     enum async_fork_reason reason)
{
	unsigned long first = ALIGN(start, PMD_SIZE), last = ALIGN_DOWN(end, PMD_SIZE), addr;

	if (!vma->anon_vma)	/* has no anonymous memory */
		return;
	for (addr = first; addr < last; addr += PMD_SIZE) {
		pmd_t *pmd = af_pmd_find(om->role.mm, addr);
		u64 start_ns;

		if (!pmd)
			addr = pud_addr_end(addr, last) - PMD_SIZE;
		if (!pmd || !af_pmd_is_protected(READ_ONCE(*pmd)))
			continue;
		start_ns = ktime_get_ns();
		af_detach_table(om, vma->anon_vma, pmd, addr);
		if (om->is_parent && reason != ASYNC_FORK_BY_PARENT_EXIT)
			af_interrupted(addr, reason, ktime_get_ns() - start_ns);
		cond_resched();
	}
	af_unshare_range(om, start, min(first, end), AF_MUST_COPY, reason);
	af_unshare_range(om, max(last, start), end, AF_MUST_COPY, reason);
}

/* Tables in [start, end) that the mm alone still owns become writable; returns how many stay shared. */
unsigned long af_take_back_range(struct af_odf_mm *om, unsigned long start, unsigned long end)
{
	unsigned long addr = start & PMD_MASK, shared = 0;
	struct mm_struct *mm = om->role.mm;

	while (addr < end) {
		pmd_t *pmd = af_pmd_find(mm, addr);

		if (!pmd) {
			addr = pud_addr_end(addr, end);
			continue;
		}
		mutex_lock(&om->lock);
		if (af_pmd_is_protected(READ_ONCE(*pmd))) {
			struct page *table = pmd_page(*pmd);
			spinlock_t *ptl = pte_lockptr(mm, pmd);

			spin_lock(ptl);
			if (atomic_long_read(af_owners(table)) == 1)
				af_take_back(om, pmd, addr, table);
			else
				shared++;
			spin_unlock(ptl);
		}
		mutex_unlock(&om->lock);
		addr += PMD_SIZE;
		cond_resched();
	}
	return shared;
}

/*
 * For a change that must be made, in a reverse map walk: under the anon_vma lock, which keeps the upper levels and an
 * owner that exits. mmap_lock, which keeps forks out, comes before that lock, so it is only tried; and reclaim, which
 * might want either, is not entered. False: the tables stay shared.
 */
bool af_unshare_for_rmap(struct vm_area_struct *vma, unsigned long first, unsigned long last,
			 enum async_fork_reason reason)
{
	struct mm_struct *mm = vma->vm_mm;
	struct af_odf_mm *om;
	unsigned int flags;
	int ret = -ESRCH;

	if (!mmap_read_trylock(mm))
		return false;
	om = af_odf_of(mm);
	if (om) {
		flags = memalloc_noreclaim_save();
		ret = af_unshare_range(om, first, last + 1, AF_MAY_NOT_WAIT, reason);
		memalloc_noreclaim_restore(flags);
		af_odf_put(om);
	}
	mmap_read_unlock(mm);
	return !ret;
}

/*
 * Under the anon_vma lock of the VMA, which keeps its page tables (free_pgtables() unlinks first). While the mm is
 * being made by fork an entry may come to point to a shared table at any time, so all are taken for shared.
 */
bool af_table_is_shared_at(struct vm_area_struct *vma, unsigned long addr)
{
	struct af_odf_mm *om;
	bool forking;
	pmd_t *pmd;

	if (!(af_roles_of(vma->vm_mm) & BIT(AF_ODF)))
		return false;
	om = af_odf_of(vma->vm_mm);
	if (!om)
		return false;
	forking = smp_load_acquire(&om->forking);
	af_odf_put(om);
	if (forking)
		return true;
	pmd = af_pmd_find(vma->vm_mm, addr);
	return pmd && af_pmd_is_protected(READ_ONCE(*pmd));
}
