// SPDX-License-Identifier: GPL-2.0
/*
 * Filling a new table from an old one, for both strategies. The new table is not linked yet, so only the old one's
 * lock is needed. Follows copy_pte_range() of mm/memory.c.
 */
#include "internal.h"
#include "symbols.h"

/*
 * First pass: nothing is changed but swap counts, and those are given back if the second pass cannot follow at once.
 * Migration entries are waited for, never copied: after the fork the order in which rmap visits the two tables no
 * longer guarantees that the copy is found (invariant 7).
 */
static int af_reserve(pte_t *src, struct af_blocker *blocker)
{
	int i, ret = 0;

	for (i = 0; i < PTRS_PER_PTE && !ret; i++) {
		swp_entry_t entry;

		if (pte_none(src[i]) || pte_present(src[i]))
			continue;
		entry = pte_to_swp_entry(src[i]);
		if (!non_swap_entry(entry)) {
			if (af_sym(swap_duplicate)(entry) < 0) {
				blocker->kind = AF_BLOCKED_BY_SWAP_COUNT;
				blocker->entry = entry;
				ret = -EAGAIN;
				break;
			}
		} else if (is_migration_entry(entry)) {
			blocker->kind = AF_BLOCKED_BY_MIGRATION;
			blocker->index = i;
			ret = -EAGAIN;
			break;
		} else if (!is_pte_marker_entry(entry) && !is_hwpoison_entry(entry) &&
			   !compat_is_error_entry(entry)) {
			/* device memory: its users register mmu notifiers, such processes are refused */
			WARN_ONCE(1, "async_fork: entry of a kind that is not copied\n");
			ret = -EINVAL;
			break;
		}
	}
	while (ret && --i >= 0)
		if (!pte_none(src[i]) && !pte_present(src[i]) && !non_swap_entry(pte_to_swp_entry(src[i])))
			compat_swap_free(pte_to_swp_entry(src[i]));
	return ret;
}

static void af_fill_swap(struct mm_struct *mm, unsigned long addr, pte_t *src, pte_t *dst, long *rss)
{
	swp_entry_t entry = pte_to_swp_entry(*src);

	if (is_pte_marker_entry(entry)) {
		pte_t marker = compat_copy_marker(entry);

		if (!pte_none(marker))
			af_set_new_pte(mm, addr, dst, marker);
		return;
	}
	if (!non_swap_entry(entry)) {
		if (pte_swp_exclusive(*src))
			set_pte(src, pte_swp_clear_exclusive(*src));
		af_mmlist_add(mm);
		rss[MM_SWAPENTS]++;
	}
	af_set_new_pte(mm, addr, dst, pte_swp_clear_uffd_wp(*src));
}

/*
 * The entry is read by ptep_get(): what the hardware notes of a block of entries with the contiguous hint (arm64), dirty
 * above all, may be in any of them. The new table has no hints: set_pte() does not take them over.
 */
static void af_fill_present(struct mm_struct *src_mm, struct mm_struct *dst_mm, unsigned long addr, pte_t *src,
			    pte_t *dst, long *rss)
{
	pte_t entry = ptep_get(src);
	struct page *page = pte_special(entry) ? NULL : pte_page(entry);

	if (page) {
		get_page(page);
		if (PageAnon(page))
			compat_dup_anon_rmap(page);
		else
			compat_dup_file_rmap(page);
		rss[compat_rss_member(page)]++;
	}
	/* No flush: no TLB can hold a writable translation below a protected entry (invariant 4). */
	if (pte_write(entry)) {
		af_pte_wrprotect(src_mm, addr, src);
		entry = ptep_get(src);
	}
	af_set_new_pte(dst_mm, addr, dst, pte_clear_uffd_wp(pte_mkold(entry)));
}

/*
 * Copies 512 entries under the lock of src; rss is set to what dst adds. -EAGAIN: nothing was copied, drop the locks
 * and call af_unblock(). -EINVAL: an entry that cannot be copied.
 */
int af_fill_table(struct mm_struct *src_mm, struct mm_struct *dst_mm, unsigned long addr, pte_t *src, pte_t *dst,
		  long *rss, struct af_blocker *blocker)
{
	int i, ret = af_reserve(src, blocker);

	if (ret)
		return ret;
	af_table_lock_class(src, dst);
	memset(rss, 0, NR_MM_COUNTERS * sizeof(*rss));
	for (i = 0; i < PTRS_PER_PTE; i++, addr += PAGE_SIZE) {
		if (pte_none(src[i]))
			continue;
		if (pte_present(src[i]))
			af_fill_present(src_mm, dst_mm, addr, &src[i], &dst[i], rss);
		else
			af_fill_swap(dst_mm, addr, &src[i], &dst[i], rss);
	}
	return 0;
}

/*
 * Waits for what af_fill_table() found. Without locks; the caller guarantees that the table stays, or gives no entry:
 * then the table is not looked at, because another owner may free it meanwhile.
 */
int af_unblock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, const struct af_blocker *blocker)
{
	pmd_t copy;

	if (blocker->kind == AF_BLOCKED_BY_SWAP_COUNT) {
		if (af_allocation_fails())
			return -ENOMEM;
		return af_sym(add_swap_count_continuation)(blocker->entry, GFP_KERNEL | __GFP_RETRY_MAYFAIL);
	}
	atomic64_inc(&af_count.migration_waits);
	if (pmd)
		af_sym(migration_entry_wait)(mm, compat_pmd_to_wait(pmd, &copy), addr + blocker->index * PAGE_SIZE);
	else
		schedule_timeout_uninterruptible(1);
	return 0;
}

void af_rss_add(struct mm_struct *mm, const long *rss, int sign)
{
	int i;

	for (i = 0; i < NR_MM_COUNTERS; i++)
		if (rss[i])
			compat_add_rss(mm, i, sign * rss[i]);
}

/* Who has swap entries must be found by swapoff. */
void af_mmlist_add(struct mm_struct *mm)
{
	if (likely(!list_empty(&mm->mmlist)))
		return;
	spin_lock(af_mmlist_lock);
	if (list_empty(&mm->mmlist))
		list_add(&mm->mmlist, &af_init_mm->mmlist);
	spin_unlock(af_mmlist_lock);
}
