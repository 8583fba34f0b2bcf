// SPDX-License-Identifier: GPL-2.0
/* The detectors: functions through which page tables are read or changed under mmap_lock. */
#include <linux/pagewalk.h>

#include "internal.h"
#include "hooks.h"
#include "symbols.h"

/*
 * All faults, the parent's as well as the child's own before its copy is complete. A parent whose copy failed has been
 * rolled back and goes on; a child whose copy failed must not see the missing memory.
 */
static vm_fault_t af_before_fault(struct mm_struct *mm, unsigned long addr)
{
	struct af_odf_mm *om = af_odf_of(mm);
	struct af_session *s;
	bool failed;
	int ret;

	if (om) {
		ret = af_unshare_table(om, addr, AF_MAY_FAIL, ASYNC_FORK_BY_FAULT);
		af_odf_put(om);
		if (ret)
			return VM_FAULT_OOM;
	}
	s = af_session_of_parent(mm);
	if (s) {
		af_sync_table(s, addr, ASYNC_FORK_BY_FAULT);
		af_session_put(s);
	}
	s = af_session_of_child(mm);
	if (!s)
		return 0;
	if (!af_session_failed(s))
		af_sync_table(s, addr, ASYNC_FORK_BY_CHILD_FAULT);
	failed = af_session_failed(s);
	af_session_put(s);
	return failed ? VM_FAULT_SIGBUS : 0;
}

vm_fault_t af_hook_handle_mm_fault(struct vm_area_struct *vma, unsigned long addr, unsigned int flags,
				   struct pt_regs *regs)
{
	int srcu = srcu_read_lock(&af_srcu);
	vm_fault_t ret = 0;

	if (unlikely(af_roles_of(vma->vm_mm) & AF_LIVE_ROLES))
		ret = af_before_fault(vma->vm_mm, addr);
	ret = ret ?: af_orig(handle_mm_fault)(vma, addr, flags, regs);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* The one place through which munmap, madvise, truncation and exit take pages away. */
void af_hook_unmap_page_range(struct mmu_gather *tlb, struct vm_area_struct *vma, unsigned long start,
			      unsigned long end, struct zap_details *details)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_odf_mm *om;

	af_step(AF_STEP_UNMAP);
	om = af_roles_of(vma->vm_mm) & BIT(AF_ODF) ? af_odf_of(vma->vm_mm) : NULL;
	if (om) {
		af_detach_range(om, vma, start, end, ASYNC_FORK_BY_ZAP);
		af_odf_put(om);
	}
	af_sync_mm(vma->vm_mm, start, end, ASYNC_FORK_BY_ZAP);
	af_orig(unmap_page_range)(tlb, vma, start, end, details);
	srcu_read_unlock(&af_srcu, srcu);
}

/* NUMA balancing only samples: it can leave this mm alone for a while. 0: no page was changed. */
unsigned long af_hook_change_prot_numa(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	int srcu = srcu_read_lock(&af_srcu);
	unsigned long ret = 0;

	if (af_roles_of(vma->vm_mm) & AF_LIVE_ROLES)
		atomic64_inc(&af_count.numa_skips);
	else
		ret = af_orig(change_prot_numa)(vma, start, end);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/*
 * smaps, pagemap, mincore, mlock, madvise, mbind, HMM and others. Multi-gen LRU's aging, the one user with a p4d_entry,
 * runs inside reclaim, where no tables should be allocated. It does not ask pmd_bad() and only clears accessed bits,
 * which are not part of a fork, so a session does not mind. But it uses a table that it read from an entry earlier,
 * which mmap_lock does not keep if the table is shared: another owner may free it (invariant 12). So it is skipped.
 */
static int af_walk(unsigned long start, unsigned long end, struct mm_walk *walk)
{
	if (!walk->ops->p4d_entry)
		af_sync_mm(walk->mm, start, end, ASYNC_FORK_BY_WALK);
	else if (af_roles_of(walk->mm) & BIT(AF_ODF))
		return 0;
	return af_orig(__walk_page_range)(start, end, walk);
}

/*
 * ksmd asks for the rest of the VMA and stops at the first page, so it is given one table after the other: what it does
 * not look at need not be copied. Its walk has nothing that is called once for each range.
 */
static int af_walk_by_tables(unsigned long start, unsigned long end, struct mm_walk *walk)
{
	unsigned long next;
	int ret = 0;

	for (; start < end && !ret; start = next) {
		next = pmd_addr_end(start, end);
		ret = af_walk(start, next, walk);
	}
	return ret;
}

int af_hook___walk_page_range(unsigned long start, unsigned long end, struct mm_walk *walk)
{
	int srcu = srcu_read_lock(&af_srcu), ret;

	if (walk->ops == af_ksm_walk && af_roles_of(walk->mm) & AF_LIVE_ROLES)
		ret = af_walk_by_tables(start, end, walk);
	else
		ret = af_walk(start, end, walk);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* The reaper must not allocate, nor wait for who does; it tries for a second, while the victim exits by itself. */
bool af_hook___oom_reap_task_mm(struct mm_struct *mm)
{
	int srcu = srcu_read_lock(&af_srcu);
	bool ret = false;

	if (af_roles_of(mm) & AF_LIVE_ROLES)
		atomic64_inc(&af_count.oom_reaper_skips);
	else
		ret = af_orig(__oom_reap_task_mm)(mm);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/*
 * The safety net. x86's pmd_bad() asks for R/W, so a walker that is not hooked would clear our entry and lose the
 * table. It is kept; the caller skips it, as it would skip a bad one.
 */
void af_hook_pmd_clear_bad(pmd_t *pmd)
{
	int srcu = srcu_read_lock(&af_srcu);

	if (!af_pmd_is_protected(READ_ONCE(*pmd))) {
		af_orig(pmd_clear_bad)(pmd);
	} else if (!af_bad_is_harmless(_RET_IP_)) {
		atomic64_inc(&af_count.bad_pmd_caught);
		WARN_ONCE(1, "async_fork: a page table walker that is not hooked met a protected table\n");
	}
	srcu_read_unlock(&af_srcu, srcu);
}

/* Core dump: with FOLL_DUMP a protected table would read as a hole. All other threads are gone, nobody forks. */
struct page *af_hook_get_dump_page(unsigned long addr)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct page *ret;

	af_sync_mm_unlocked(current->mm, addr, addr + 1, ASYNC_FORK_BY_COREDUMP);
	ret = af_orig(get_dump_page)(addr);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
