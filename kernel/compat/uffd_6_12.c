// SPDX-License-Identifier: GPL-2.0
/* Linux 6.12: userfaultfd fills and moves pages under the locks of single VMAs. */
#include <linux/userfaultfd_k.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"

/*
 * Fills and moves under way, by the mm's bucket in the table of roles. They lock single VMAs, in functions that are
 * inlined, so a fork could begin between the hook and that lock. A VMA of an mm that is being filled is therefore copied
 * by the kernel: either the fork sees the counter (af_must_copy()), or the hook sees the role of the fork, waits for
 * mmap_lock, and synchronises.
 */
static atomic_t af_filling[1 << AF_ROLE_BITS];

static atomic_t *af_filling_of(struct mm_struct *mm)
{
	return &af_filling[af_role_bucket(mm) - af_roles];
}

bool af_uffd_is_filling(struct mm_struct *mm)
{
	return atomic_read(af_filling_of(mm));
}

static void af_filling_begins(struct mm_struct *mm)
{
	atomic_inc(af_filling_of(mm));
	smp_mb__after_atomic();	/* the counter before the roles; pairs with af_generation_raise() */
}

static void af_filling_ends(struct mm_struct *mm)
{
	smp_mb__before_atomic();	/* the entries before the counter */
	atomic_dec(af_filling_of(mm));
}

ssize_t af_hook_mfill_atomic_copy(struct userfaultfd_ctx *ctx, unsigned long dst, unsigned long src, unsigned long len,
				  uffd_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_filling_begins(ctx->mm);
	af_sync_mm_unlocked(ctx->mm, dst, dst + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_copy)(ctx, dst, src, len, flags);
	af_filling_ends(ctx->mm);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mfill_atomic_zeropage(struct userfaultfd_ctx *ctx, unsigned long start, unsigned long len)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_filling_begins(ctx->mm);
	af_sync_mm_unlocked(ctx->mm, start, start + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_zeropage)(ctx, start, len);
	af_filling_ends(ctx->mm);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

ssize_t af_hook_mfill_atomic_poison(struct userfaultfd_ctx *ctx, unsigned long start, unsigned long len,
				    uffd_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_filling_begins(ctx->mm);
	af_sync_mm_unlocked(ctx->mm, start, start + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(mfill_atomic_poison)(ctx, start, len, flags);
	af_filling_ends(ctx->mm);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* UFFDIO_MOVE: the destination is registered, the source need not be. */
ssize_t af_hook_move_pages(struct userfaultfd_ctx *ctx, unsigned long dst, unsigned long src, unsigned long len,
			   __u64 mode)
{
	int srcu = srcu_read_lock(&af_srcu);
	ssize_t ret;

	af_filling_begins(ctx->mm);
	af_sync_mm_unlocked(ctx->mm, src, src + len, ASYNC_FORK_BY_UFFD);
	af_sync_mm_unlocked(ctx->mm, dst, dst + len, ASYNC_FORK_BY_UFFD);
	ret = af_orig(move_pages)(ctx, dst, src, len, mode);
	af_filling_ends(ctx->mm);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}
