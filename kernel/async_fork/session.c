// SPDX-License-Identifier: GPL-2.0
/* Sessions of Async-fork: creation, lookup, references, end. */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"

/*
 * A session with the child's role hashed and one reference for the caller. NULL: no memory, or the module is being
 * unloaded. Each session holds the module.
 */
struct af_session *af_session_new(struct mm_struct *parent, struct mm_struct *child, unsigned int copy_threads)
{
	struct af_session *s;

	if (af_allocation_fails())
		return NULL;
	s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	if (!s)
		return NULL;
	mmgrab(parent);
	mmgrab(child);
	s->parent.mm = parent;
	s->copy_threads = copy_threads;
	xa_init(&s->chunks);
	mutex_init(&s->cursor_lock);
	refcount_set(&s->ref, 2);
	af_role_add(&s->child, child, AF_CHILD);
	atomic64_inc(&af_count.sessions_live);
	return s;
}

void af_session_put(struct af_session *s)
{
	struct af_chunk *chunk;
	unsigned long i;

	if (!refcount_dec_and_test(&s->ref))
		return;
	xa_for_each(&s->chunks, i, chunk)
		kfree(chunk);
	xa_destroy(&s->chunks);
	mem_cgroup_put(s->memcg);
	mmdrop(s->parent.mm);
	mmdrop(s->child.mm);
	kfree_rcu(s, rcu);
	atomic64_dec(&af_count.sessions_live);
	module_put(THIS_MODULE);
}

static struct af_session *af_session_of(struct mm_struct *mm, enum af_kind kind)
{
	struct af_session *s = NULL;
	struct af_role *role;

	rcu_read_lock();
	role = af_role_find(mm, kind);
	if (role) {
		s = kind == AF_PARENT ? container_of(role, struct af_session, parent) :
					container_of(role, struct af_session, child);
		if (!refcount_inc_not_zero(&s->ref))
			s = NULL;
	}
	rcu_read_unlock();
	return s;
}

/* Both with a reference, NULL if there is none. */
struct af_session *af_session_of_parent(struct mm_struct *mm)
{
	return af_session_of(mm, AF_PARENT);
}

struct af_session *af_session_of_child(struct mm_struct *mm)
{
	return af_session_of(mm, AF_CHILD);
}

/* Some session whose parent has protected tables, with a reference. */
struct af_session *af_session_any(void)
{
	struct af_session *s = NULL;
	struct af_role *role;

	rcu_read_lock();
	role = af_role_any(AF_PARENT);
	if (role) {
		s = container_of(role, struct af_session, parent);
		if (!refcount_inc_not_zero(&s->ref))
			s = NULL;
	}
	rcu_read_unlock();
	return s;
}

/*
 * Before the first table is deferred, under the parent's mmap_lock for writing and after an older session of the
 * parent was completed: a parent has one session at a time (invariant 3).
 */
void af_session_open(struct af_session *s)
{
	if (s->parent.hashed)
		return;
	refcount_inc(&s->ref);
	af_role_add(&s->parent, s->parent.mm, AF_PARENT);
	af_generation_raise(s->parent.mm);
}

/* dup_mmap has ended: from here on the last table to be done ends the parent's part. */
void af_session_ready(struct af_session *s)
{
	set_bit(AF_READY, &s->flags);
	smp_mb__after_atomic();		/* pairs with the decrement in af_session_table_done() */
	if (!atomic_long_read(&s->pending))
		af_session_leave_parent(s);
}

void af_session_leave_parent(struct af_session *s)
{
	if (af_role_remove(&s->parent))
		af_session_put(s);
}

void af_session_leave_child(struct af_session *s)
{
	if (af_role_remove(&s->child))
		af_session_put(s);
}

u8 *af_session_state(struct af_session *s, unsigned long addr)
{
	struct af_chunk *chunk = xa_load(&s->chunks, addr >> PUD_SHIFT);

	return chunk ? &chunk->state[pmd_index(addr)] : NULL;
}

/*
 * The parent may come to wait for the task that copies, and the scheduler may leave that task without a CPU for as long as it
 * likes (a quota that is used up, SCHED_IDLE, a busy cpuset). So the claim comes with the CPU: 512 entries are copied
 * without sleeping. A kernel for real time, whose locks of page tables sleep, has priority inheritance there instead.
 */
static bool af_claim_keeps_cpu(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && !af_is_skipped("check:cpu_kept");
}

bool af_table_claim(u8 *state)
{
	if (af_claim_keeps_cpu())
		preempt_disable();
	if (cmpxchg(state, AF_PENDING, AF_BUSY) == AF_PENDING)
		return true;
	if (af_claim_keeps_cpu())
		preempt_enable();
	return false;
}

static void af_table_let_go(u8 *state, enum af_state now)
{
	/* release: pairs with the acquire of those who find it done */
	smp_store_release(state, now);
	smp_mb();	/* pairs with the barrier of prepare_to_wait() in af_state_wait() */
	wake_up_var(state);
	if (af_claim_keeps_cpu())
		preempt_enable();
}

/* Until the task that claimed the table is done, or has given it back. Sleeps. */
void af_state_wait(u8 *state)
{
	/* acquire: pairs with the release in af_session_table_done(); the table is seen complete */
	wait_var_event(state, smp_load_acquire(state) != AF_BUSY);
}

/* Nothing was copied: something must be waited for first. */
void af_table_give_back(u8 *state)
{
	af_table_let_go(state, AF_PENDING);
}

/* The caller had claimed the table. */
void af_session_table_done(struct af_session *s, u8 *state)
{
	af_table_let_go(state, AF_DONE);
	if (atomic_long_dec_and_test(&s->pending) && test_bit(AF_READY, &s->flags))
		af_session_leave_parent(s);
}
