// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that opted in and whose forks take the default path all the same: which, why, and since when. One look by a
 * tracer is enough for that, and nobody would notice before the next slow save.
 */
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "internal.h"

/* From the first refused fork until one is deferred again, or the mm ends. */
struct af_refused {
	struct af_role role;
	struct list_head list;
	struct rcu_head rcu;
	pid_t pid;			/* in the first pid namespace */
	char comm[TASK_COMM_LEN];
	enum async_fork_refusal why;	/* of the last one */
	u64 count;
	time64_t since_s, last_s;	/* UTC */
};

static LIST_HEAD(af_refused_list);
static DEFINE_MUTEX(af_refused_lock);

static struct af_refused *af_refused_of(struct mm_struct *mm)
{
	struct af_role *role;

	rcu_read_lock();
	role = af_role_find(mm, AF_REFUSED);
	rcu_read_unlock();
	return role ? container_of(role, struct af_refused, role) : NULL;
}

static struct af_refused *af_refused_new(struct mm_struct *mm, enum async_fork_refusal why)
{
	struct af_refused *refused = kzalloc(sizeof(*refused), GFP_KERNEL_ACCOUNT);

	if (!refused)
		return NULL;
	refused->pid = task_tgid_nr(current);
	get_task_comm(refused->comm, current);
	refused->since_s = ktime_get_real_seconds();
	list_add_tail(&refused->list, &af_refused_list);
	af_role_add(&refused->role, mm, AF_REFUSED);
	pr_notice_ratelimited("%s (pid %d) opted in, but its forks take the default path from now on: %s\n",
			      refused->comm, refused->pid, af_refusal_name(why));
	return refused;
}

/* A fork of the running process, whose mm it is. Without memory for it only the note is missing. */
void af_refused_note(struct mm_struct *mm, enum async_fork_refusal why)
{
	struct af_refused *refused;

	mutex_lock(&af_refused_lock);
	refused = af_refused_of(mm) ?: af_refused_new(mm, why);
	if (refused) {
		refused->why = why;
		refused->count++;
		refused->last_s = ktime_get_real_seconds();
	}
	mutex_unlock(&af_refused_lock);
}

static void af_refused_drop(struct af_refused *refused)
{
	af_role_remove(&refused->role);
	list_del(&refused->list);
	kfree_rcu(refused, rcu);
}

/* A fork is deferred again, or the mm ends. */
void af_refused_forget(struct mm_struct *mm)
{
	struct af_refused *refused;

	mutex_lock(&af_refused_lock);
	refused = af_refused_of(mm);
	if (refused)
		af_refused_drop(refused);
	mutex_unlock(&af_refused_lock);
}

/* At unload, when no hook is attached any more. */
void af_refused_drop_all(void)
{
	struct af_refused *refused, *next;

	mutex_lock(&af_refused_lock);
	list_for_each_entry_safe(refused, next, &af_refused_list, list)
		af_refused_drop(refused);
	mutex_unlock(&af_refused_lock);
}

/* For /proc/async_fork_processes. */
void af_refused_show(struct seq_file *m)
{
	struct af_refused *refused;

	mutex_lock(&af_refused_lock);
	list_for_each_entry(refused, &af_refused_list, list) {
		seq_printf(m, "refused %d %s %llu %lld %lld ", refused->pid, af_refusal_name(refused->why),
			   refused->count, refused->since_s, refused->last_s);
		seq_escape(m, refused->comm, "\n\\");
		seq_putc(m, '\n');
	}
	mutex_unlock(&af_refused_lock);
}
