/* SPDX-License-Identifier: GPL-2.0 */
/* Linux 6.12: hooks of functions that other versions have not, or with other parameters. Included by hook_version.c. */
#include <linux/list.h>
#include <linux/pagewalk.h>
#include <linux/slab.h>
#include <linux/userfaultfd_k.h>

/* ---- fork: dup_mmap() is inlined into copy_process(), but not what it calls first nor what is called after it ---- */

/* A fork under way, from uprobe_dup_mmap() to uprobe_end_dup_mmap(), of the task that forks. Holds the module. */
struct af_forker {
	struct list_head list;
	struct task_struct *task;
	struct af_fork fork;
};

static LIST_HEAD(af_forkers);
static DEFINE_SPINLOCK(af_forkers_lock);

static void af_forker_begins(struct mm_struct *child, struct mm_struct *parent)
{
	struct af_strategy how;
	struct af_forker *forker;

	if (likely(!af_fork_is_ours(parent, &how)))
		return;
	forker = af_allocation_fails() ? NULL : kmalloc(sizeof(*forker), GFP_KERNEL_ACCOUNT);
	if (!forker) {
		af_refuse(ASYNC_FORK_REFUSED_NO_MEMORY);
		return;
	}
	if (!try_module_get(THIS_MODULE)) {
		kfree(forker);
		af_refuse(ASYNC_FORK_REFUSED_UNLOADING);
		return;
	}
	forker->task = current;
	af_fork_begins(&forker->fork, &how, child, parent);
	spin_lock(&af_forkers_lock);
	list_add(&forker->list, &af_forkers);
	spin_unlock(&af_forkers_lock);
}

static struct af_forker *af_forker_take(void)
{
	struct af_forker *forker;

	if (likely(list_empty_careful(&af_forkers)))
		return NULL;
	spin_lock(&af_forkers_lock);
	list_for_each_entry(forker, &af_forkers, list) {
		if (forker->task == current) {
			list_del(&forker->list);
			spin_unlock(&af_forkers_lock);
			return forker;
		}
	}
	spin_unlock(&af_forkers_lock);
	return NULL;
}

/* With the parent's mmap_lock held for writing, before anything is copied. */
void af_hook_uprobe_dup_mmap(struct mm_struct *parent, struct mm_struct *child)
{
	int srcu = srcu_read_lock(&af_srcu);

	af_forker_begins(child, parent);
	af_orig(uprobe_dup_mmap)(parent, child);
	srcu_read_unlock(&af_srcu, srcu);
}

/* A fork that fails after it has begun to copy marks the child's mm so. */
static bool af_fork_failed(struct af_fork *fork)
{
	struct af_session *s = fork->session;

	return s && (!READ_ONCE(s->child.hashed) || test_bit(MMF_UNSTABLE, &s->child.mm->flags));
}

/* dup_mmap() has ended. If it failed, the child's exit_mmap() has been called already, unless others hold its mm. */
void af_hook_uprobe_end_dup_mmap(void)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_forker *forker = af_forker_take();

	af_orig(uprobe_end_dup_mmap)();
	if (forker) {
		af_fork_ends(&forker->fork, af_fork_failed(&forker->fork));
		kfree(forker);
		module_put(THIS_MODULE);
	}
	srcu_read_unlock(&af_srcu, srcu);
}

/* ---- looking up an entry's table ---- */

/* The text of a function; set before anything is hooked. */
struct af_text {
	const char *name;
	unsigned long start;
	unsigned long bytes;
};

static struct af_text af_rmap_text = { "page_vma_mapped_walk" };
static struct af_text af_map_text[] = {
	{ "__pte_offset_map" }, { "pte_offset_map_nolock" }, { "__pte_offset_map_lock" },
};

static unsigned long af_return_to_tracer, af_return_to_probe;	/* 0: there is none */

static bool af_is_in(const struct af_text *text, unsigned long address)
{
	return address - text->start < text->bytes;
}

static bool af_is_in_map(unsigned long address)
{
	return af_is_in(&af_map_text[0], address) || af_is_in(&af_map_text[1], address) ||
	       af_is_in(&af_map_text[2], address);
}

static int af_text_find(struct af_text *text)
{
	unsigned long offset;

	text->start = af_symbol(text->name);
	if (text->start && af_sym(kallsyms_lookup_size_offset)(text->start, &text->bytes, &offset))
		return 0;
	pr_err("refused: no function %s in this kernel\n", text->name);
	return -ENOENT;
}

int af_version_prepare(void)
{
	int i, ret = af_text_find(&af_rmap_text);

	for (i = 0; i < ARRAY_SIZE(af_map_text) && !ret; i++)
		ret = af_text_find(&af_map_text[i]);
	af_return_to_tracer = af_symbol("return_to_handler");
	af_return_to_probe = af_symbol("arch_rethook_trampoline");
	return ret;
}

/* Not one of a copy on a stack, as GUP-fast, multi-gen LRU and perf have: they read only, or their hooks have looked. */
static bool af_is_in_table(pmd_t *pmd)
{
	return virt_addr_valid(pmd) && PageTable(virt_to_page(pmd));
}

/* Where functions return to whose end is traced: their callers are not known. */
static bool af_is_traced_return(unsigned long address)
{
	return address == af_return_to_tracer || address == af_return_to_probe;
}

/*
 * The safety net: nobody but the reverse map may come to a protected table; others are synchronised by their hooks
 * before. Who does it nevertheless is let through, as he would try again and again if he were told that there is no
 * table.
 */
static void af_check_walker(pmd_t *pmd, unsigned long caller)
{
	if (af_is_in(&af_rmap_text, caller) || !af_is_in_table(pmd) || af_is_traced_return(caller))
		return;
	atomic64_inc(&af_count.bad_pmd_caught);
	WARN_ONCE(1, "async_fork: a page table walker that is not hooked met a protected table: %pS\n", (void *)caller);
}

/*
 * pte_offset_map() asks pmd_bad(), takes a protected entry for a bad one and says that there is no table, whereupon
 * page_vma_mapped_walk(), and with it reclaim and migration, would look again without end. Here the entry is what it is
 * in 6.1 for those who do not ask. Also called in NMIs, so without SRCU: these hooks do not sleep, and RCU-tasks waits
 * for them. That the entry becomes protected after the gate is possible for rmap only, which looks again.
 */
pte_t *af_hook___pte_offset_map(pmd_t *pmd, unsigned long addr, pmd_t *copy)
{
	pmd_t value = READ_ONCE(*pmd);

	if (!af_pmd_is_protected(value))
		return af_orig(__pte_offset_map)(pmd, addr, copy);
	if (!af_is_in_map(_RET_IP_))
		af_check_walker(pmd, _RET_IP_);
	rcu_read_lock();	/* until pte_unmap() */
	if (copy)
		*copy = value;
	return pte_offset_kernel(&value, addr);
}

/* The next two are hooked for their callers' sake only: the original comes to the hook above. */
pte_t *af_hook_pte_offset_map_nolock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, spinlock_t **lock)
{
	af_check_walker(pmd, _RET_IP_);
	return af_orig(pte_offset_map_nolock)(mm, pmd, addr, lock);
}

pte_t *af_hook___pte_offset_map_lock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, spinlock_t **lock)
{
	af_check_walker(pmd, _RET_IP_);
	return af_orig(__pte_offset_map_lock)(mm, pmd, addr, lock);
}

/* An entry that became protected after the gate, see above. */
bool af_bad_is_harmless(unsigned long caller)
{
	return af_is_in_map(caller);
}

/* ---- GUP ---- */

int af_orig_gup_fast(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	return af_orig(gup_fast_fallback)(start, nr_pages, flags, pages);
}

int af_hook_gup_fast_fallback(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	return af_gup_fast(start, nr_pages, flags, pages);
}

/*
 * Slow GUP looks at the right to write in the table alone, and would hand out writable pages. "No page" makes it fault,
 * and the fault is hooked. Under mmap_lock, which keeps a fork out between the gate and here.
 */
struct page *af_hook_follow_page_pte(struct vm_area_struct *vma, unsigned long addr, pmd_t *pmd, unsigned int flags,
				     struct dev_pagemap **pgmap)
{
	if (af_pmd_is_protected(READ_ONCE(*pmd)))
		return NULL;
	return af_orig(follow_page_pte)(vma, addr, pmd, flags, pgmap);
}

/* KSM and move_pages(). It returns with the table's lock held. Under mmap_lock. */
struct folio *af_hook_folio_walk_start(struct folio_walk *walk, struct vm_area_struct *vma, unsigned long addr,
				       folio_walk_flags_t flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct folio *ret;

	af_sync_mm(vma->vm_mm, addr, addr + 1, vma->vm_flags & VM_MERGEABLE ? ASYNC_FORK_BY_KSM : ASYNC_FORK_BY_GUP);
	ret = af_orig(folio_walk_start)(walk, vma, addr, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* ---- changes of a range ---- */

long af_hook_change_protection(struct mmu_gather *tlb, struct vm_area_struct *vma, unsigned long start,
			       unsigned long end, unsigned long flags)
{
	int srcu = srcu_read_lock(&af_srcu);
	long ret;

	af_sync_mm(vma->vm_mm, start, end, ASYNC_FORK_BY_MPROTECT);
	ret = af_orig(change_protection)(tlb, vma, start, end, flags);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

unsigned long af_hook_move_page_tables(struct vm_area_struct *vma, unsigned long old_addr,
				       struct vm_area_struct *new_vma, unsigned long new_addr, unsigned long len,
				       bool need_rmap_locks, bool for_stack)
{
	int srcu = srcu_read_lock(&af_srcu);
	unsigned long ret;

	af_sync_mm(vma->vm_mm, old_addr, old_addr + len, ASYNC_FORK_BY_MREMAP);
	ret = af_orig(move_page_tables)(vma, old_addr, new_vma, new_addr, len, need_rmap_locks, for_stack);
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/* ---- userfaultfd ---- */

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

/* ---- attaching ---- */

/*
 * One ftrace_ops for each trampoline. register_ftrace_direct() sets the flags, so PERMANENT (ftrace_enabled=0 is
 * refused) comes after it; and as ftrace may have been off before, it is asked after that. It is asked before as well:
 * what is registered and taken back while ftrace is off stays half in its records, and it turns itself off for good when
 * it notices.
 */
int compat_attach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	const int *enabled = (const int *)af_symbol("ftrace_enabled");
	int ret;

	if (!enabled || !READ_ONCE(*enabled))
		return -EBUSY;
	ret = ftrace_set_filter_ip(&direct->ops, ip, 0, 1);
	ret = ret ?: register_ftrace_direct(&direct->ops, (unsigned long)trampoline);
	if (ret) {
		ftrace_free_filter(&direct->ops);
		return ret;
	}
	direct->ops.flags |= FTRACE_OPS_FL_PERMANENT;
	smp_mb();	/* the flag before the switch; who turns it off asks for the flag afterwards */
	if (READ_ONCE(*enabled))
		return 0;
	compat_detach(direct, ip, trampoline);
	return -EBUSY;
}

int compat_detach(struct compat_direct *direct, unsigned long ip, void *trampoline)
{
	return unregister_ftrace_direct(&direct->ops, (unsigned long)trampoline, true);
}
