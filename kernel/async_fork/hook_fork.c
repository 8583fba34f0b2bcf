// SPDX-License-Identifier: GPL-2.0
/* The hooks on the way of fork and exit: where sessions begin and end. */
#include <linux/ktime.h>
#include <linux/memcontrol.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/coredump.h>
#include <linux/sched/task.h>

#include "internal.h"
#include "hooks.h"

static bool enabled = true;
static int enabled_set(const char *value, const struct kernel_param *param);
static const struct kernel_param_ops enabled_ops = { .set = enabled_set, .get = param_get_bool };
module_param_cb(enabled, &enabled_ops, &enabled, 0644);
MODULE_PARM_DESC(enabled, "0: all forks take the default path, what is shared is unshared at once");

atomic_t af_swapoffs = ATOMIC_INIT(0);

/* Emergency off: then rmmod succeeds as soon as the sessions under way are complete. */
static int enabled_set(const char *value, const struct kernel_param *param)
{
	int ret = param_set_bool(value, param);

	if (!ret && !enabled)
		af_odf_unshare_all();
	return ret;
}

void af_refuse(enum async_fork_refusal why)
{
	atomic64_inc(&af_count.forks_refused[why]);
}

/*
 * ksmd takes a page under mmap_lock, looks it up without, and merges it if the VMA is mergeable then, whatever happened
 * in between: the VMA may have been unmergeable for the time of a fork (invariant 18). The flag comes with the first
 * MADV_MERGEABLE (or PR_SET_MEMORY_MERGE), under mmap_lock for writing, and goes when ksmd has found, under mmap_lock,
 * that nothing of the mm is mergeable: then it holds none of its pages.
 */
static bool af_is_mergeable(struct mm_struct *mm)
{
	return test_bit(MMF_VM_MERGEABLE, &mm->flags) && !af_is_skipped("check:mergeable");
}

/* What a fork of the mm would meet now. */
bool af_fork_would_be_refused(struct mm_struct *mm, enum async_fork_refusal *why)
{
	if (!READ_ONCE(enabled))
		*why = ASYNC_FORK_REFUSED_UNLOADING;
	else if (atomic_read(&af_swapoffs))
		*why = ASYNC_FORK_REFUSED_SWAPOFF;
	else if (test_bit(MMF_HAS_PINNED, &mm->flags))
		*why = ASYNC_FORK_REFUSED_PINNED;
	else if (mm_has_notifiers(mm))
		*why = ASYNC_FORK_REFUSED_NOTIFIER;
	else if (af_is_mergeable(mm))
		*why = ASYNC_FORK_REFUSED_MERGEABLE;
	else
		return false;
	return true;
}

static bool af_fork_refused(struct mm_struct *parent)
{
	enum async_fork_refusal why;

	if (af_fork_would_be_refused(parent, &why)) {
		af_refuse(why);
		af_refused_note(parent, why);
		return true;
	}
	if (unlikely(af_roles_of(parent) & BIT(AF_REFUSED)))
		af_refused_forget(parent);
	return false;
}

/* Counts a fork; whether it is not a default one, and then how. */
bool af_fork_is_ours(struct mm_struct *parent, struct af_strategy *how)
{
	bool own;

	this_cpu_inc(af_forks_seen);
	*how = af_strategy_of(current, parent, &own);
	return unlikely(how->strategy != ASYNC_FORK_DEFAULT) && !af_fork_refused(parent);
}

static struct af_session *af_fork_session(struct mm_struct *child, struct mm_struct *parent, unsigned int copy_threads)
{
	struct af_session *s;

	if (!try_module_get(THIS_MODULE)) {
		af_refuse(ASYNC_FORK_REFUSED_UNLOADING);
		return NULL;
	}
	s = af_session_new(parent, child, copy_threads);
	if (!s) {
		module_put(THIS_MODULE);
		af_refuse(ASYNC_FORK_REFUSED_NO_MEMORY);
	}
	return s;
}

/* Before anything is copied. af_fork_ends() must follow. */
void af_fork_begins(struct af_fork *fork, const struct af_strategy *how, struct mm_struct *child,
		    struct mm_struct *parent)
{
	fork->start_ns = ktime_get_ns();
	fork->session = NULL;
	fork->sharer = NULL;
	if (how->strategy == ASYNC_FORK_ASYNC) {
		fork->session = af_fork_session(child, parent, how->copy_threads);
		return;
	}
	fork->sharer = af_odf_add(child, true);
	if (fork->sharer)
		atomic64_inc(&af_count.forks_odf);
	else
		af_refuse(ASYNC_FORK_REFUSED_NO_MEMORY);
}

/* dup_mmap() has ended. After a failure the child's exit_mmap() may have been called already. */
void af_fork_ends(struct af_fork *fork, bool failed)
{
	struct af_session *s = fork->session;

	if (s && failed) {
		af_session_roll_back(s);
		af_session_leave_child(s);
	} else if (s) {
		atomic64_inc(&af_count.forks_async);
		af_session_ready(s);
	}
	if (s)
		af_session_put(s);
	if (fork->sharer) {
		af_step(AF_STEP_FORK_ENDS);
		/* release: who sees that the fork is over sees which entries it protected; af_table_is_shared_at() */
		smp_store_release(&fork->sharer->forking, false);
		af_odf_put(fork->sharer);
	}
	af_note_fork(ktime_get_ns() - fork->start_ns);
}

/* What makes an mm live, looked up at once. With references; NULL: it is nothing of the kind. */
struct af_live_mm {
	struct af_session *parent_of;
	struct af_session *child_of;
	struct af_odf_mm *sharer;
};

static bool af_is_live(const struct af_live_mm *mm)
{
	return mm->parent_of || mm->child_of || mm->sharer;
}

/* Under rcu_read_lock(). */
static void af_role_hold(struct af_role *role, struct af_live_mm *found)
{
	struct af_session *s;
	struct af_odf_mm *om;

	switch (role->kind) {
	case AF_PARENT:
		s = container_of(role, struct af_session, parent);
		if (!found->parent_of && refcount_inc_not_zero(&s->ref))
			found->parent_of = s;
		break;
	case AF_CHILD:
		s = container_of(role, struct af_session, child);
		if (!found->child_of && refcount_inc_not_zero(&s->ref))
			found->child_of = s;
		break;
	case AF_ODF:
		om = container_of(role, struct af_odf_mm, role);
		if (!found->sharer && refcount_inc_not_zero(&om->ref))
			found->sharer = om;
		break;
	case AF_SETTING:
	case AF_REFUSED:
		break;
	}
}

static void af_live_get(struct mm_struct *mm, struct af_live_mm *found)
{
	struct hlist_head *head = af_role_bucket(mm);
	struct af_role *role;

	*found = (struct af_live_mm) {};
	if (likely(!READ_ONCE(head->first)))
		return;
	rcu_read_lock();
	hlist_for_each_entry_rcu(role, head, node)
		if (role->mm == mm)
			af_role_hold(role, found);
	rcu_read_unlock();
}

static void af_live_put(const struct af_live_mm *found)
{
	if (found->parent_of)
		af_session_put(found->parent_of);
	if (found->child_of)
		af_session_put(found->child_of);
	if (found->sharer)
		af_odf_put(found->sharer);
}

/*
 * An older session of this parent (older: NULL if there is none) is completed before its tables are looked at again
 * (paper, 5.2, Consecutive snapshots): whatever strategy the new fork has.
 */
static void af_complete_older(struct af_session *older, struct mm_struct *child)
{
	if (!older || older->child.mm == child)
		return;
	af_sync_range(older, 0, TASK_SIZE_MAX, ASYNC_FORK_BY_REFORK);
	af_session_leave_parent(older);
}

/*
 * A page may have been pinned, a notifier registered, memory made mergeable, or swapoff begun, since dup_mmap was
 * entered; from here on mmap_lock and the generation keep the first three out (invariants 8 and 18), and swapoff waits
 * for us.
 */
static bool af_must_copy(struct mm_struct *mm)
{
	smp_mb();	/* generation before flag; pairs with set_bit() in mm_set_has_pinned_flag() */
	return test_bit(MMF_HAS_PINNED, &mm->flags) || mm_has_notifiers(mm) || atomic_read(&af_swapoffs) ||
	       af_is_mergeable(mm) || af_uffd_is_filling(mm);
}

static int af_copy_deferring(struct af_session *s, struct vm_area_struct *dst, struct vm_area_struct *src)
{
	if (!af_vma_can_defer(src))
		return af_orig(copy_page_range)(dst, src);
	af_session_open(s);
	if (af_must_copy(src->vm_mm))
		return af_orig(copy_page_range)(dst, src);
	return af_defer_vma(s, dst, src);
}

/*
 * parent: its role as a sharer, set here if it has none yet. child: NULL if this fork does not share. Then what the
 * parent has shared before is made private.
 */
static int af_copy_sharing(struct af_odf_mm **parent, struct af_odf_mm *child, struct vm_area_struct *dst,
			   struct vm_area_struct *src)
{
	bool share = child && af_vma_can_defer(src);
	int ret = 0;

	if (share && !*parent) {
		*parent = af_odf_add(src->vm_mm, false);
		if (!*parent) {
			af_refuse(ASYNC_FORK_REFUSED_NO_MEMORY);
			share = false;
		}
	}
	if (share) {
		af_generation_raise(src->vm_mm);
		share = !af_must_copy(src->vm_mm);
	}
	if (!share) {
		if (*parent)
			ret = af_unshare_range(*parent, src->vm_start, src->vm_end, AF_MAY_FAIL, ASYNC_FORK_BY_REFORK);
		return ret ?: af_orig(copy_page_range)(dst, src);
	}
	(*parent)->is_parent = true;
	ret = af_share_vma(*parent, child, dst, src);
	af_step(AF_STEP_SHARED);
	/* again: for reclaim that began after it was raised, but found an entry that was not protected yet */
	af_generation_raise(src->vm_mm);
	return ret;
}

int af_hook_copy_page_range(struct vm_area_struct *dst, struct vm_area_struct *src)
{
	int srcu = srcu_read_lock(&af_srcu), ret;
	struct af_live_mm parent, child;

	af_live_get(src->vm_mm, &parent);
	af_live_get(dst->vm_mm, &child);
	if (!af_is_live(&parent) && !af_is_live(&child)) {
		ret = af_orig(copy_page_range)(dst, src);
		goto out;
	}
	af_complete_older(parent.parent_of, dst->vm_mm);
	if (child.child_of) {
		ret = parent.sharer ? af_odf_end(parent.sharer) : 0;
		ret = ret ?: af_copy_deferring(child.child_of, dst, src);
	} else {
		ret = af_copy_sharing(&parent.sharer, child.sharer, dst, src);
	}
	af_live_put(&child);
	af_live_put(&parent);
out:
	srcu_read_unlock(&af_srcu, srcu);
	return ret;
}

/*
 * The task work can only be added here: copy_process() clears those of the new task. The child is in its cgroup by
 * now, and it does not run yet.
 */
void af_hook_wake_up_new_task(struct task_struct *task)
{
	int srcu = srcu_read_lock(&af_srcu);
	struct af_session *s = NULL;

	if (task->mm && task->mm != current->mm && !(task->flags & PF_KTHREAD))
		s = af_session_of_child(task->mm);
	if (s) {
		WRITE_ONCE(s->memcg, get_mem_cgroup_from_mm(task->mm));
		init_task_work(&s->work, af_child_copies);
		if (WARN_ON_ONCE(task_work_add(task, &s->work, TWA_RESUME))) {
			af_session_fail(s, -ESRCH);
			af_session_put(s);
		}
	}
	af_orig(wake_up_new_task)(task);
	srcu_read_unlock(&af_srcu, srcu);
}

/* A child that dies needs no copy; a parent that exits or executes completes its child's first. */
void af_hook_exit_mmap(struct mm_struct *mm)
{
	int srcu = srcu_read_lock(&af_srcu);
	unsigned int roles = af_roles_of(mm);
	struct af_session *s;

	if (roles & AF_LIVE_ROLES) {
		s = af_session_of_child(mm);
		if (s) {
			af_session_roll_back(s);
			af_session_leave_child(s);
			af_session_put(s);
		}
		s = af_session_of_parent(mm);
		if (s) {
			af_sync_range(s, 0, TASK_SIZE_MAX, ASYNC_FORK_BY_PARENT_EXIT);
			af_session_leave_parent(s);
			af_session_put(s);
		}
		af_odf_exit(mm);
	}
	if (roles & BIT(AF_SETTING))
		af_setting_forget(mm);
	if (roles & BIT(AF_REFUSED))
		af_refused_forget(mm);
	af_orig(exit_mmap)(mm);
	srcu_read_unlock(&af_srcu, srcu);
}
