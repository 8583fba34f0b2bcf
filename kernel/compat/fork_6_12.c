// SPDX-License-Identifier: GPL-2.0
/*
 * Linux 6.12: dup_mmap() is inlined into copy_process(), but not what it calls first, nor what is called after it.
 */
#include <linux/list.h>
#include <linux/slab.h>

#include "async_fork/internal.h"
#include "async_fork/hooks.h"

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
