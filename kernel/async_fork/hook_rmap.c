// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim and migration reach tables through the reverse map, under the table's lock, and do not ask pmd_bad().
 * Async-fork: harmless, each table has one owner and the copy takes what it finds (invariant 7). On-Demand-Fork: one
 * change would be seen by all owners, while the TLB flush goes to one; pages below shared tables stay where they are,
 * but for those that must go: then each owner gets a table of its own first.
 */
#include "internal.h"
#include "hooks.h"
#include "symbols.h"

/* A folio mapped by single pages may lie in two tables, if it was moved. */
static bool af_rmap_refused(struct folio *folio, struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long last = min(addr + folio_size(folio), vma->vm_end) - 1;

	if (!af_table_is_shared_at(vma, addr) &&
	    (!((addr ^ last) & PMD_MASK) || !af_table_is_shared_at(vma, last)))
		return false;
	/* a page whose memory is broken does not stay, or its users would go on with what it holds */
	if (folio_test_hwpoison(folio) && af_unshare_for_rmap(vma, addr, last, ASYNC_FORK_BY_POISON))
		return false;
	atomic64_inc(&af_count.rmap_refused);
	return true;
}

/*
 * A fork of this mm began meanwhile: the table may have been shared when it was changed, and may by now be the child's
 * alone. Which processors have its translations cannot be told any more.
 */
static void af_rmap_changed(struct mm_struct *mm, const struct af_generation *generation)
{
	if (unlikely(af_has_forked(mm, generation))) {
		atomic64_inc(&af_count.rmap_flushes);
		af_flush_all();
	}
}

#define AF_RMAP_ONE(name)									\
bool af_hook_##name(struct folio *folio, struct vm_area_struct *vma, unsigned long addr, void *arg) \
{												\
	struct af_generation generation = af_generation_of(vma->vm_mm);				\
	int srcu = srcu_read_lock(&af_srcu);							\
	bool ret = false;									\
												\
	if (!af_rmap_refused(folio, vma, addr)) {						\
		af_step_atomic(AF_STEP_RMAP);							\
		ret = af_orig(name)(folio, vma, addr, arg);					\
		af_rmap_changed(vma->vm_mm, &generation);					\
	}											\
	srcu_read_unlock(&af_srcu, srcu);							\
	return ret;										\
}
AF_RMAP_ONE(try_to_unmap_one)
AF_RMAP_ONE(try_to_migrate_one)
