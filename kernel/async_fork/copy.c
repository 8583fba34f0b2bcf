// SPDX-License-Identifier: GPL-2.0
/* Copying one table of a session, and making sure that a range is copied. */
#include <linux/memcontrol.h>
#include <linux/ktime.h>
#include <linux/wait_bit.h>
#include <asm/pgalloc.h>

#include "internal.h"
#include "symbols.h"

/*
 * The caller has claimed the table. It stays although no lock of the parent is held: whoever would free it, move it or
 * change it first waits for us (invariant 2). Takes *table, or leaves it if there was an error. Does not sleep. -EAGAIN:
 * nothing was done, *blocker says why.
 */
static noinline int af_copy_table(struct af_session *s, unsigned long addr, pgtable_t *table,
				  struct af_blocker *blocker)
{
	struct mm_struct *parent = s->parent.mm, *child = s->child.mm;
	pmd_t *src = af_pmd_find(parent, addr), *dst = af_pmd_find(child, addr);
	long rss[NR_MM_COUNTERS];
	spinlock_t *ptl;
	int ret;

	if (WARN_ON_ONCE(!src || !dst || !af_pmd_is_protected(*src) || !pmd_none(*dst)))
		return -EINVAL;
	af_step_atomic(AF_STEP_COPY);
	ptl = pte_lockptr(parent, src);
	spin_lock(ptl);
	ret = af_fill_table(parent, child, addr, af_table_of(pmd_page(*src)), af_table_of(*table), rss, blocker);
	spin_unlock(ptl);
	if (ret == -EAGAIN)
		return ret;
	if (ret) {
		af_pmd_unprotect(parent, src, addr);
		return ret;
	}
	af_sym(pmd_install)(child, dst, table);
	af_pmd_unprotect_copied(parent, src, addr);
	/* It takes the table unless there is one: nobody else makes tables of this child. The pages of ours would stay. */
	if (WARN_ON_ONCE(*table))
		return -EEXIST;
	af_rss_add(child, rss, 1);
	return 0;
}

/* Who does not interrupt the parent. */
static bool af_is_background(enum async_fork_reason reason)
{
	return reason == ASYNC_FORK_BY_CHILD || reason == ASYNC_FORK_BY_HELPER ||
	       reason == ASYNC_FORK_BY_CHILD_FAULT;
}

/*
 * Whether the caller keeps the parent's table from being freed also while nobody has claimed it: by the parent's
 * mmap_lock, or because the parent exits.
 */
static bool af_keeps_table(enum async_fork_reason reason)
{
	return !af_is_background(reason) && reason != ASYNC_FORK_BY_SWAPOFF;
}

/* Waits for what kept the table from being copied, while others may claim it. */
static int af_wait_for_blocker(struct af_session *s, unsigned long addr, const struct af_blocker *blocker,
			       enum async_fork_reason reason)
{
	struct mm_struct *parent = s->parent.mm;

	return af_unblock(parent, af_keeps_table(reason) ? af_pmd_find(parent, addr) : NULL, addr, blocker);
}

/*
 * One attempt to copy a table; takes *table if that worked. -EBUSY: another task has claimed it. -EAGAIN: something must
 * be waited for. Else the table is done.
 */
static int af_try_sync(struct af_session *s, u8 *state, unsigned long addr, pgtable_t *table,
		       struct af_blocker *blocker, enum async_fork_reason reason)
{
	bool tell = false;
	int ret;

	if (!af_table_claim(state))
		return -EBUSY;
	ret = af_copy_table(s, addr, table, blocker);
	if (ret == -EAGAIN) {
		af_table_give_back(state);
		return ret;
	}
	if (ret) {
		tell = af_session_mark_failed(s);
		atomic64_inc(&af_count.tables_rolled_back);
	} else {
		atomic64_inc(&af_count.tables_copied[reason]);
	}
	af_session_table_done(s, state);
	if (tell)
		af_session_tell_failed(ret);
	return ret;
}

/* Until the table is done, by this task or another. */
static void af_sync_pending(struct af_session *s, u8 *state, unsigned long addr, enum async_fork_reason reason)
{
	struct af_blocker blocker;
	pgtable_t table = NULL;
	int ret = 0;

	while (smp_load_acquire(state) != AF_DONE) {	/* pairs with af_session_table_done() */
		if (READ_ONCE(*state) == AF_BUSY) {
			af_state_wait(state);
			continue;
		}
		if (ret || af_session_failed(s)) {
			af_session_fail(s, ret);
			af_table_roll_back(s, state, addr);
			break;
		}
		if (!table)
			table = af_table_alloc_for(s->child.mm, READ_ONCE(s->memcg));
		ret = table ? af_try_sync(s, state, addr, &table, &blocker, reason) : -ENOMEM;
		if (ret == -EAGAIN)
			ret = af_wait_for_blocker(s, addr, &blocker, reason);
		else if (ret == -EBUSY)
			ret = 0;
	}
	if (table)
		pte_free(s->child.mm, table);
}

/*
 * Proactive synchronisation (paper, 4.2), and the child's copy: on return the table of addr may be changed in the
 * parent, because the child has its copy or the session has failed. Sleeps.
 */
noinline void af_sync_table(struct af_session *s, unsigned long addr, enum async_fork_reason reason)
{
	u8 *state = af_session_state(s, addr);
	u64 start_ns;

	if (!state)
		return;
	switch (smp_load_acquire(state)) {	/* pairs with af_session_table_done() */
	case AF_NONE:
	case AF_DONE:
		return;
	}
	start_ns = ktime_get_ns();
	af_sync_pending(s, state, addr & PMD_MASK, reason);
	if (!af_is_background(reason))
		af_interrupted(addr & PMD_MASK, reason, ktime_get_ns() - start_ns);
}

/* All tables that intersect [start, end). */
void af_sync_range(struct af_session *s, unsigned long start, unsigned long end, enum async_fork_reason reason)
{
	unsigned long addr = start & PMD_MASK;

	while (addr < end && atomic_long_read(&s->pending)) {
		unsigned long chunk = addr >> PUD_SHIFT;

		if (!xa_find(&s->chunks, &chunk, (end - 1) >> PUD_SHIFT, XA_PRESENT))
			return;
		if (chunk != addr >> PUD_SHIFT)
			addr = chunk << PUD_SHIFT;
		af_sync_table(s, addr, reason);
		cond_resched();
		addr += PMD_SIZE;
	}
}

bool af_range_pending(struct af_session *s, unsigned long start, unsigned long end)
{
	unsigned long addr;

	for (addr = start & PMD_MASK; addr < end; addr += PMD_SIZE) {
		u8 *state = af_session_state(s, addr);

		if (state && (READ_ONCE(*state) == AF_PENDING || READ_ONCE(*state) == AF_BUSY))
			return true;
	}
	return false;
}

/*
 * What most hooks do: before [start, end) of mm is walked or changed, its tables are copied if mm is a parent, made if
 * it is a child, and unshared if it shares tables. The caller holds mmap_lock, or the mm is exiting.
 */
void af_sync_mm(struct mm_struct *mm, unsigned long start, unsigned long end, enum async_fork_reason reason)
{
	unsigned int roles = mm ? af_roles_of(mm) : 0;
	struct af_odf_mm *om = roles & BIT(AF_ODF) ? af_odf_of(mm) : NULL;
	struct af_session *s;

	if (om) {
		af_unshare_range(om, start, end, AF_MUST_COPY, reason);
		af_odf_put(om);
	}
	s = roles & BIT(AF_PARENT) ? af_session_of_parent(mm) : NULL;
	if (s) {
		af_sync_range(s, start, end, reason);
		af_session_put(s);
	}
	s = roles & BIT(AF_CHILD) ? af_session_of_child(mm) : NULL;
	if (s) {
		if (!af_session_failed(s))
			af_sync_range(s, start, end, ASYNC_FORK_BY_CHILD_FAULT);
		af_session_put(s);
	}
}

/*
 * For hooks of functions that take mmap_lock themselves. The lock keeps the upper levels while a shared table is looked
 * for, and waits for a fork in another thread, whose TLB flush must come first.
 */
void af_sync_mm_unlocked(struct mm_struct *mm, unsigned long start, unsigned long end, enum async_fork_reason reason)
{
	if (!mm || !(af_roles_of(mm) & AF_LIVE_ROLES))
		return;
	mmap_read_lock(mm);
	af_sync_mm(mm, start, end, reason);
	mmap_read_unlock(mm);
}
