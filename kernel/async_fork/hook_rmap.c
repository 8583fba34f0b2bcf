// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim and migration reach tables through the reverse map, under the table's lock, and do not ask pmd_bad().
 * Async-fork: harmless, each table has one owner and the copy takes what it finds (invariant 7). On-Demand-Fork: one
 * change would be seen by all owners, while the TLB flush goes to one; pages below shared tables stay where they are.
 */
#include "internal.h"
#include "hooks.h"
#include "symbols.h"

typedef bool (*af_rmap_one_t)(struct folio *, struct vm_area_struct *, unsigned long, void *);

static bool af_rmap_one(af_rmap_one_t one, struct folio *folio, struct vm_area_struct *vma, unsigned long addr,
			void *arg)
{
	int srcu = srcu_read_lock(&af_srcu), generation = atomic_read_acquire(&af_generation);
	bool ret = false;

	if (af_table_is_shared_at(vma, addr)) {
		atomic64_inc(&af_count.rmap_refused);
		goto out;
	}
	ret = one(folio, vma, addr, arg);
	smp_mb();	/* the change before the generation (invariant 6) */
	/*
	 * A fork began meanwhile. If it was this mm's, the table may have been shared when it was changed, and may by
	 * now be the child's alone: who else runs with what its TLB has loaded cannot be told any more.
	 */
	if (unlikely(generation != atomic_read(&af_generation)))
		af_flush_all();
out:
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

bool af_hook_try_to_unmap_one(struct folio *folio, struct vm_area_struct *vma, unsigned long addr, void *arg)
{
	return af_rmap_one(af_orig_try_to_unmap_one, folio, vma, addr, arg);
}

bool af_hook_try_to_migrate_one(struct folio *folio, struct vm_area_struct *vma, unsigned long addr, void *arg)
{
	return af_rmap_one(af_orig_try_to_migrate_one, folio, vma, addr, arg);
}
