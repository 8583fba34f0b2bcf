// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork after the fork: a table becomes private again (paper, 3.2: copy, take back, detach). */
#include <linux/ktime.h>
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
static void af_take_back(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, struct page *table)
{
	long rss[NR_MM_COUNTERS];

	if (compat_table_mm(table) != mm) {
		af_table_rss(af_table_of(table), rss);
		af_rss_add(mm, rss, 1);
	}
	compat_set_table_mm(table, NULL);
	af_pmd_unprotect(mm, pmd, addr);
	atomic64_inc(&af_count.tables_last_owner);
}

/*
 * The entry points elsewhere (or nowhere); nobody who walked through it may still use the table when its owner count
 * drops: paging-structure caches and GUP-fast, whose walk the flush's IPI waits for.
 */
static void af_let_go(struct mm_struct *mm, unsigned long addr, struct page *table)
{
	af_flush_table(mm, addr);
	page_ref_dec(table);
}

/* The caller unmaps all of it: no copy. */
static void af_detach(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, struct page *table)
{
	long rss[NR_MM_COUNTERS];

	if (compat_table_mm(table) == mm) {
		af_table_rss(af_table_of(table), rss);
		af_rss_add(mm, rss, -1);
		compat_set_table_mm(table, NULL);
	}
	set_pmd(pmd, __pmd(0));
	af_let_go(mm, addr, table);
	mm_dec_nr_ptes(mm);
	atomic64_inc(&af_count.tables_detached);
}

/* Takes *new, unless there is an error. */
static int af_copy_shared(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, struct page *table, pgtable_t *new,
			  struct af_blocker *blocker)
{
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
	af_let_go(mm, addr, table);
	return 0;
}

/* One attempt. -EAGAIN: something must be waited for, or a table is needed for a copy (*new is NULL). */
static int af_try_unshare(struct af_odf_mm *om, pmd_t *pmd, unsigned long addr, bool detach, pgtable_t *new,
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
	if (page_count(table) == 1) {
		af_take_back(mm, pmd, addr, table);
	} else if (detach) {
		af_detach(mm, pmd, addr, table);
	} else if (!*new) {
		ret = -ENOBUFS;
	} else {
		ret = af_copy_shared(mm, pmd, addr, table, new, blocker);
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
		ret = af_try_unshare(om, pmd, addr, how == AF_MAY_DETACH, &new, &blocker, reason);
		if (ret == -ENOBUFS) {
			new = how == AF_MAY_FAIL ? af_table_alloc(mm) : af_table_alloc_nofail(mm);
			ret = new ? 0 : -ENOMEM;
		} else if (ret == -EAGAIN) {
			ret = af_unblock(mm, NULL, addr, &blocker);
			if (ret && how != AF_MAY_FAIL) {
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
		enum af_unshare_how this = how;

		if (!af_pmd_find(om->role.mm, addr)) {
			addr = pud_addr_end(addr, end);
			continue;
		}
		if (how == AF_MAY_DETACH && (addr < start || addr + PMD_SIZE > end))
			this = AF_MUST_COPY;
		ret = af_unshare_table(om, addr, this, reason);
		addr += PMD_SIZE;
		cond_resched();
	}
	return ret;
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
			if (page_count(table) == 1)
				af_take_back(mm, pmd, addr, table);
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

/* Under the anon_vma lock of the VMA, which keeps its page tables (free_pgtables() unlinks first). */
bool af_table_is_shared_at(struct vm_area_struct *vma, unsigned long addr)
{
	struct af_odf_mm *om;
	pmd_t *pmd;

	if (!(af_roles_of(vma->vm_mm) & BIT(AF_ODF)))
		return false;
	om = af_odf_of(vma->vm_mm);
	if (!om)
		return false;
	af_odf_put(om);
	pmd = af_pmd_find(vma->vm_mm, addr);
	return pmd && af_pmd_is_protected(READ_ONCE(*pmd));
}
