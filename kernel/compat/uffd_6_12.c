// SPDX-License-Identifier: GPL-2.0
/* Linux 6.12: userfaultfd fills and moves pages under the locks of single VMAs. */
#include <linux/userfaultfd_k.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"

/*
 * Fills and moves under way. They lock single VMAs, in functions that are inlined, so a fork could begin between the hook
 * and that lock. A VMA of an mm that is being filled is therefore copied by the kernel: either the fork sees the fill
 * (af_must_copy()), or the hook sees the role of the fork, waits for mmap_lock, and synchronises. A fill may take for ever,
 * if its source is never there: so each is known by its mm, and keeps nobody else's fork from being deferred.
 */
struct af_filling {
	struct hlist_node node;
	struct mm_struct *mm;
};

static struct hlist_head af_fillings[1 << AF_ROLE_BITS];	/* by the mm's bucket in the table of roles */
static DEFINE_SPINLOCK(af_fillings_lock);

static struct hlist_head *af_fillings_of(struct mm_struct *mm)
{
	return &af_fillings[af_role_bucket(mm) - af_roles];
}

bool af_uffd_is_filling(struct mm_struct *mm)
{
	struct hlist_head *head = af_fillings_of(mm);
	struct af_filling *filling;
	bool found = false;

	if (likely(!READ_ONCE(head->first)))
		return false;
	spin_lock(&af_fillings_lock);
	hlist_for_each_entry(filling, head, node)
		found = found || filling->mm == mm;
	spin_unlock(&af_fillings_lock);
	return found;
}

static void af_filling_begins(struct af_filling *filling, struct mm_struct *mm)
{
	filling->mm = mm;
	spin_lock(&af_fillings_lock);
	hlist_add_head(&filling->node, af_fillings_of(mm));
	spin_unlock(&af_fillings_lock);
	smp_mb();	/* the fill before the roles; pairs with af_generation_raise() */
}

static void af_filling_ends(struct af_filling *filling)
{
	spin_lock(&af_fillings_lock);
	hlist_del(&filling->node);
	spin_unlock(&af_fillings_lock);
}

ssize_t af_hook_mfill_atomic_copy(struct userfaultfd_ctx *ctx, unsigned long dst, unsigned long src, unsigned long len,
				  uffd_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_filling filling;
	ssize_t ret;

	af_filling_begins(&filling, ctx->mm);
	af_sync_mm_unlocked(ctx->mm, dst, dst + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_copy)(ctx, dst, src, len, flags);
	af_filling_ends(&filling);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mfill_atomic_zeropage(struct userfaultfd_ctx *ctx, unsigned long start, unsigned long len)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_filling filling;
	ssize_t ret;

	af_filling_begins(&filling, ctx->mm);
	af_sync_mm_unlocked(ctx->mm, start, start + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_zeropage)(ctx, start, len);
	af_filling_ends(&filling);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mfill_atomic_poison(struct userfaultfd_ctx *ctx, unsigned long start, unsigned long len,
				    uffd_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_filling filling;
	ssize_t ret;

	af_filling_begins(&filling, ctx->mm);
	af_sync_mm_unlocked(ctx->mm, start, start + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_poison)(ctx, start, len, flags);
	af_filling_ends(&filling);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* UFFDIO_MOVE: the destination is registered, the source need not be. */
ssize_t af_hook_move_pages(struct userfaultfd_ctx *ctx, unsigned long dst, unsigned long src, unsigned long len,
			   __u64 mode)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_filling filling;
	ssize_t ret;

	af_filling_begins(&filling, ctx->mm);
	af_sync_mm_unlocked(ctx->mm, src, src + len, ASYNC_FORK_BY_UFFD);
	af_sync_mm_unlocked(ctx->mm, dst, dst + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(move_pages)(ctx, dst, src, len, mode);
	af_filling_ends(&filling);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
