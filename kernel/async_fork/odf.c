// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork: the mms that share tables; their end, and the sweep that ends sharing when the sharers are gone. */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"

#define AF_SWEEP_AGAIN_JIFFIES 2

static LIST_HEAD(af_odf_mms);
static DEFINE_SPINLOCK(af_odf_lock);

/*
 * With a reference, for an mm that shares nothing yet; NULL: no memory, or the module is being unloaded. Under the mm's
 * mmap_lock for writing, or, while it is being made by fork (forking), before anybody else knows the mm. Each mm that
 * shares holds the module.
 */
struct af_odf_mm *af_odf_add(struct mm_struct *mm, bool forking)
{
	struct af_odf_mm *om;

	if (af_allocation_fails())
		return NULL;
	om = kzalloc(sizeof(*om), GFP_KERNEL_ACCOUNT);
	if (!om)
		return NULL;
	if (!try_module_get(THIS_MODULE)) {
		kfree(om);
		return NULL;
	}
	mutex_init(&om->lock);
	refcount_set(&om->ref, 2);	/* the role's, and the caller's */
	om->role.mm = mm;
	om->forking = forking;
	spin_lock(&af_odf_lock);
	list_add(&om->list, &af_odf_mms);
	spin_unlock(&af_odf_lock);
	af_role_add(&om->role, mm, AF_ODF);
	atomic64_inc(&af_count.odf_mms_live);
	return om;
}

/* The mm shares nothing any more, and mmap_lock, or exit, keeps it so. */
static void af_odf_remove(struct af_odf_mm *om)
{
	if (!af_role_remove(&om->role))
		return;
	WARN_ONCE(atomic_long_read(&om->entries) && !af_is_skipped("check:entries"),
		  "async_fork: an mm that has protected entries is forgotten\n");
	spin_lock(&af_odf_lock);
	list_del(&om->list);
	spin_unlock(&af_odf_lock);
	atomic64_dec(&af_count.odf_mms_live);
	af_odf_put(om);
	module_put(THIS_MODULE);
}

/*
 * Later kernels duplicate the tree of VMAs first; if the fork then fails, an entry marks how far it came, and behind it
 * are VMAs of the parent.
 */
static bool af_is_end_of_fork(struct vm_area_struct *vma)
{
	return xa_is_zero(vma);
}

/* All VMAs' tables, rounded outwards: VMAs may have been split since the fork. Under mmap_lock. */
static int af_odf_unshare_mm(struct af_odf_mm *om, enum af_unshare_how how, enum async_fork_reason reason)
{
	struct vm_area_struct *vma;
	int ret = 0;
	VMA_ITERATOR(vmi, om->role.mm, 0);

	for_each_vma(vmi, vma) {
		if (af_is_end_of_fork(vma))
			break;
		if (!vma_is_anonymous(vma))
			continue;
		ret = af_unshare_range(om, vma->vm_start & PMD_MASK, ALIGN(vma->vm_end, PMD_SIZE), how, reason);
		if (ret)
			break;
	}
	return ret;
}

/* At exit_mmap: nobody else can fork or fault in this mm, and all of it goes. */
void af_odf_exit(struct mm_struct *mm)
{
	struct af_odf_mm *om = af_odf_of(mm);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	if (!om)
		return;
	mmap_read_lock(mm);
	for_each_vma(vmi, vma) {
		if (af_is_end_of_fork(vma))
			break;
		if (vma_is_anonymous(vma))
			af_detach_range(om, vma, vma->vm_start & PMD_MASK, ALIGN(vma->vm_end, PMD_SIZE),
					ASYNC_FORK_BY_PARENT_EXIT);
	}
	mmap_read_unlock(mm);
	af_step(AF_STEP_EXIT);
	af_odf_remove(om);
	af_odf_put(om);
	af_odf_sweep_later();
}

/*
 * Before a session of the mm begins, under its mmap_lock for writing: a protected entry must mean one thing only
 * (invariant 3).
 */
int af_odf_end(struct af_odf_mm *om)
{
	int ret = af_odf_unshare_mm(om, AF_MAY_FAIL, ASYNC_FORK_BY_REFORK);

	if (!ret)
		af_odf_remove(om);
	return ret;
}

/*
 * An mm that was not visited in this pass and is alive, with references to both. Its role may end before the caller has
 * mmap_lock; then protected tables may be a session's.
 */
static struct af_odf_mm *af_odf_next(unsigned int pass)
{
	struct af_odf_mm *om, *found = NULL;

	spin_lock(&af_odf_lock);
	list_for_each_entry(om, &af_odf_mms, list) {
		if (om->pass == pass || !mmget_not_zero(om->role.mm))
			continue;
		om->pass = pass;
		refcount_inc(&om->ref);
		found = om;
		break;
	}
	spin_unlock(&af_odf_lock);
	return found;
}

static atomic_t af_odf_pass = ATOMIC_INIT(0);

/* Every shared table becomes private: swapoff, and turning the module off. */
void af_odf_unshare_all(void)
{
	unsigned int pass = atomic_inc_return(&af_odf_pass);
	struct af_odf_mm *om;

	while ((om = af_odf_next(pass))) {
		struct mm_struct *mm = om->role.mm;

		mmap_write_lock(mm);
		if (om->role.hashed) {
			af_odf_unshare_mm(om, AF_MUST_COPY, ASYNC_FORK_BY_SWAPOFF);
			af_odf_remove(om);
		}
		mmap_write_unlock(mm);
		af_odf_put(om);
		mmput(mm);
	}
}

static void af_odf_sweep(struct work_struct *work);
static DECLARE_DELAYED_WORK(af_sweep_work, af_odf_sweep);

/*
 * The tables of one mm. False: it has protected entries that no VMA in its tree covers. munmap takes the VMA out first,
 * keeps mmap_lock for reading only, and then comes to the hook of unmap_page_range(), which must find the role
 * (invariant 17).
 */
static bool af_odf_sweep_mm(struct af_odf_mm *om)
{
	struct mm_struct *mm = om->role.mm;
	unsigned long shared = 0, entries;
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	mmap_read_lock(mm);	/* keeps forks out, which would share anew */
	for_each_vma(vmi, vma) {
		if (af_is_end_of_fork(vma))
			break;
		if (om->role.hashed && vma_is_anonymous(vma))
			shared += af_take_back_range(om, vma->vm_start, vma->vm_end);
	}
	af_step(AF_STEP_SWEEP);
	entries = af_is_skipped("check:entries") ? shared : atomic_long_read(&om->entries);
	if (!entries && !READ_ONCE(om->forking))
		af_odf_remove(om);
	mmap_read_unlock(mm);
	return entries <= shared;
}

/*
 * After a sharer has gone, tables that it shared with one other mm are that mm's alone, but still protected, and would
 * keep the hooks of the whole machine busy until it touches them. The sweep takes them back.
 */
static void af_odf_sweep(struct work_struct *work)
{
	unsigned int pass = atomic_inc_return(&af_odf_pass);
	struct af_odf_mm *om;
	bool complete = true;

	while ((om = af_odf_next(pass))) {
		struct mm_struct *mm = om->role.mm;

		complete = af_odf_sweep_mm(om) && complete;
		af_odf_put(om);
		mmput(mm);
	}
	if (!complete)
		queue_delayed_work(system_unbound_wq, &af_sweep_work, AF_SWEEP_AGAIN_JIFFIES);
}

void af_odf_sweep_later(void)
{
	mod_delayed_work(system_unbound_wq, &af_sweep_work, 0);
}

void af_odf_stop(void)
{
	cancel_delayed_work_sync(&af_sweep_work);
}
