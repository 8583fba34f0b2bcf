// SPDX-License-Identifier: GPL-2.0
/* The child's side: it copies before it returns to user mode, with copy threads if it has any (paper, 5.1). */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "internal.h"

#define AF_SHARE_TABLES 64	/* a copier takes so many at a time: 128 MiB */
#define AF_SHARES_PER_CHUNK (PTRS_PER_PMD / AF_SHARE_TABLES)

static struct workqueue_struct *af_workqueue;

struct af_helper {
	struct work_struct work;
	struct af_session *session;
};

int af_child_init(void)
{
	/* of all children together no more than the machine has CPUs, whatever was asked for */
	af_workqueue = alloc_workqueue("async_fork", WQ_UNBOUND, af_copy_threads_most());
	return af_workqueue ? 0 : -ENOMEM;
}

void af_child_exit(void)
{
	destroy_workqueue(af_workqueue);
}

/* The next share nobody has taken: its chunk and first address. NULL: none left. */
static struct af_chunk *af_next_share(struct af_session *s, unsigned long *addr)
{
	struct af_chunk *chunk;
	unsigned long i;

	mutex_lock(&s->cursor_lock);
	i = s->cursor / AF_SHARES_PER_CHUNK;
	chunk = xa_find(&s->chunks, &i, ULONG_MAX, XA_PRESENT);
	if (chunk) {
		unsigned long share = max(s->cursor, i * AF_SHARES_PER_CHUNK);

		*addr = share * AF_SHARE_TABLES << PMD_SHIFT;
		s->cursor = share + 1;
	}
	mutex_unlock(&s->cursor_lock);
	return chunk;
}

static void af_copy_share(struct af_session *s, struct af_chunk *chunk, unsigned long addr,
			  enum async_fork_reason reason)
{
	int i = pmd_index(addr), end = i + AF_SHARE_TABLES;

	for (; i < end && !af_session_failed(s); i++, addr += PMD_SIZE) {
		if (READ_ONCE(chunk->state[i]) != AF_PENDING)
			continue;
		/* a child that is being killed needs no memory */
		if (reason == ASYNC_FORK_BY_CHILD && fatal_signal_pending(current)) {
			af_session_roll_back(s);
			return;
		}
		af_sync_table(s, addr, reason);
		if (unlikely(af_slow_us))
			fsleep(af_slow_us);
		cond_resched();
	}
}

static void af_copy_shares(struct af_session *s, enum async_fork_reason reason)
{
	struct af_chunk *chunk;
	unsigned long addr;

	while (!af_session_failed(s)) {
		chunk = af_next_share(s, &addr);
		if (!chunk)
			return;
		af_copy_share(s, chunk, addr, reason);
	}
}

static void af_helper_copies(struct work_struct *work)
{
	af_copy_shares(container_of(work, struct af_helper, work)->session, ASYNC_FORK_BY_HELPER);
}

/* Without memory for them there are no copy threads: the child is slower, not wrong. */
static struct af_helper *af_helpers_start(struct af_session *s, unsigned int count)
{
	struct af_helper *helpers;
	unsigned int i;

	if (!count || !atomic_long_read(&s->pending) || af_allocation_fails())
		return NULL;
	helpers = kcalloc(count, sizeof(*helpers), GFP_KERNEL_ACCOUNT);
	if (!helpers)
		return NULL;
	for (i = 0; i < count; i++) {
		helpers[i].session = s;
		INIT_WORK(&helpers[i].work, af_helper_copies);
		queue_work(af_workqueue, &helpers[i].work);
	}
	return helpers;
}

static void af_helpers_finish(struct af_helper *helpers, unsigned int count)
{
	unsigned int i;

	if (!helpers)
		return;
	/* One that has not begun finds nothing to do: not waiting for a worker for it keeps the child's latency low. */
	for (i = 0; i < count; i++)
		cancel_work_sync(&helpers[i].work);
	kfree(helpers);
}

/*
 * Task work of the child: runs before it first returns to user mode, also if it is killed or stopped before. Page
 * faults of the child before that (schedule_tail() writes set_child_tid) go through the hook of handle_mm_fault.
 */
noinline void af_child_copies(struct callback_head *work)
{
	struct af_session *s = container_of(work, struct af_session, work);
	unsigned int helpers_count = min_t(unsigned int, s->copy_threads, af_copy_threads_most()) - 1;
	u64 start_ns = ktime_get_ns();
	struct af_helper *helpers;

	/*
	 * Where one CPU has both, 6.12's scheduler lets a new child run first: the parent's fork() would wait for the copy, or
	 * for a slice of it. With a CPU of its own the child goes on at once. Nothing is waited for here, for which yield()
	 * would be wrong: where it does nothing, only that fork() takes longer.
	 */
	yield();
	helpers = af_helpers_start(s, helpers_count);
	af_copy_shares(s, ASYNC_FORK_BY_CHILD);
	af_helpers_finish(helpers, helpers_count);
	/* Tables that the parent, or a hook, is still busy with. */
	if (!af_session_failed(s))
		af_sync_range(s, 0, TASK_SIZE_MAX, ASYNC_FORK_BY_CHILD);
	if (af_session_failed(s)) {
		af_session_roll_back(s);
		if (!(current->flags & PF_EXITING) && !fatal_signal_pending(current)) {
			atomic64_inc(&af_count.children_killed);
			send_sig(SIGKILL, current, 1);
		}
		/* The child's role stays until exit_mmap: nobody may see the memory that is missing (invariant 9). */
	} else {
		af_note_child_copy(ktime_get_ns() - start_ns);
		af_session_leave_child(s);
	}
	af_session_put(s);
}
