// SPDX-License-Identifier: GPL-2.0
/*
 * GUP-fast walks without locks and ignores the R/W bit of PMD entries: it would hand out writable pages below a
 * protected table. Direct I/O, io_uring, vmsplice, futexes and ptrace come through it.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "internal.h"
#include "hooks.h"

#define AF_FOLL_CARE (FOLL_WRITE | FOLL_PIN)	/* a plain read gives what it gives after any fork */
#define AF_GUP_TRIES 3

/* Also true if mmap_lock is not free: with the caller's locks held it should not be waited for. */
static bool af_range_is_protected(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	unsigned long addr;
	bool found = false;

	if (!mmap_read_trylock(mm))
		return true;
	for (addr = start & PMD_MASK; addr < end && !found; addr += PMD_SIZE) {
		pmd_t *pmd = af_pmd_find(mm, addr);

		found = pmd && af_pmd_is_protected(READ_ONCE(*pmd));
	}
	mmap_read_unlock(mm);
	return found;
}

/* False: the caller must take the slow way, and is not allowed to. */
static bool af_before_gup(struct mm_struct *mm, unsigned long start, unsigned long end, unsigned int flags)
{
	unsigned int roles = af_roles_of(mm);
	struct af_session *s;
	bool fast = true;

	if (!(roles & AF_LIVE_ROLES))
		return true;
	/* The caller holds locks that allocations may need; told to, it makes a fault happen without them. */
	if (flags & FOLL_NOFAULT && !(flags & FOLL_FAST_ONLY))
		return !af_range_is_protected(mm, start, end);
	if (!(flags & FOLL_FAST_ONLY)) {
		af_sync_mm_unlocked(mm, start, end, ASYNC_FORK_BY_GUP);
		return true;
	}
	if (roles & BIT(AF_ODF))
		return false;
	s = af_session_of_parent(mm);
	if (s) {
		if (!test_bit(AF_READY, &s->flags) || af_range_pending(s, start, end))
			fast = false;
		af_session_put(s);
	}
	return fast;
}

static void af_undo_gup(struct page **pages, int count, unsigned int flags)
{
	int i;

	atomic64_inc(&af_count.gup_retries);
	if (flags & FOLL_PIN)
		unpin_user_pages(pages, count);
	else
		for (i = 0; i < count; i++)
			put_page(pages[i]);
}

/*
 * One attempt; its result goes to *ret. False: another thread's fork of this mm came in between, and there are no pages.
 */
static bool af_try_gup(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages, int *ret)
{
	unsigned long first = untagged_addr(start) & PAGE_MASK, end = first + (nr_pages << PAGE_SHIFT);
	struct mm_struct *mm = current->mm;
	struct af_generation generation = af_generation_of(mm);

	*ret = flags & FOLL_FAST_ONLY ? 0 : -EFAULT;
	if (!af_before_gup(mm, first, end, flags))
		return true;
	smp_rmb();	/* that no copy is pending before the entries, which GUP-fast reads without their lock */
	*ret = af_orig_gup_fast(start, nr_pages, flags, pages);
	if (likely(!af_has_forked(mm, &generation)) || *ret <= 0 || !pages)
		return true;
	/* the pages may lie below tables that the fork has protected */
	af_undo_gup(pages, *ret, flags);
	return false;
}

/*
 * A process that forks faster than it can pin comes to an end all the same: after a few attempts by the slow way, which
 * keeps forks out by mmap_lock. Where nobody may sleep (FOLL_FAST_ONLY) one attempt is all there is, as in the kernel.
 */
static int af_gup(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	int try, ret;

	for (try = 0; try < AF_GUP_TRIES; try++) {
		if (af_try_gup(start, nr_pages, flags, pages, &ret))
			return ret;
		if (flags & FOLL_FAST_ONLY)
			return 0;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return compat_gup_slow(untagged_addr(start) & PAGE_MASK, nr_pages, flags, pages);
}

/* The hook, whatever the function is called: internal_get_user_pages_fast(), gup_fast_fallback(). */
int af_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	int srcu = srcu_read_lock(&af_srcu), ret;

	if (flags & AF_FOLL_CARE)
		ret = af_gup(start, nr_pages, flags, pages);
	else
		ret = af_orig_gup_fast(start, nr_pages, flags, pages);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
