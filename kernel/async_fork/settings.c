// SPDX-License-Identifier: GPL-2.0
/* The strategy of a process: its own, else its cgroup's, else the default. */
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "internal.h"

struct af_setting {
	struct af_role role;
	struct af_strategy strategy;
	struct list_head list;
	struct rcu_head rcu;
	pid_t pid;		/* in the first pid namespace, when it was set */
};

static LIST_HEAD(af_settings);
static DEFINE_MUTEX(af_settings_lock);

static struct af_setting *af_setting_of(struct mm_struct *mm)
{
	struct af_role *role = af_role_find(mm, AF_SETTING);

	return role ? container_of(role, struct af_setting, role) : NULL;
}

static void af_setting_drop(struct af_setting *setting)
{
	if (!af_role_remove(&setting->role))
		return;
	list_del(&setting->list);
	kfree_rcu(setting, rcu);
}

void af_setting_forget(struct mm_struct *mm)
{
	struct af_setting *setting;

	mutex_lock(&af_settings_lock);
	rcu_read_lock();
	setting = af_setting_of(mm);
	rcu_read_unlock();
	if (setting)
		af_setting_drop(setting);
	mutex_unlock(&af_settings_lock);
}

/* The caller holds a reference to the mm (mmget), so it cannot exit before the setting is known. */
int af_setting_set(struct mm_struct *mm, const struct af_strategy *strategy, pid_t pid)
{
	struct af_setting *setting;

	af_setting_forget(mm);
	if (strategy->strategy == ASYNC_FORK_INHERIT)
		return 0;
	setting = kzalloc(sizeof(*setting), GFP_KERNEL_ACCOUNT);
	if (!setting)
		return -ENOMEM;
	setting->strategy = *strategy;
	setting->pid = pid;
	mutex_lock(&af_settings_lock);
	rcu_read_lock();
	if (af_setting_of(mm)) {	/* somebody else was quicker: the last one counts */
		struct af_setting *other = af_setting_of(mm);

		rcu_read_unlock();
		af_setting_drop(other);
	} else {
		rcu_read_unlock();
	}
	list_add(&setting->list, &af_settings);
	af_role_add(&setting->role, mm, AF_SETTING);
	mutex_unlock(&af_settings_lock);
	return 0;
}

/* At unload, when no hook is attached any more. How many there were. */
unsigned int af_settings_drop(void)
{
	struct af_setting *setting, *next;
	unsigned int count = 0;

	mutex_lock(&af_settings_lock);
	list_for_each_entry_safe(setting, next, &af_settings, list) {
		af_setting_drop(setting);
		count++;
	}
	mutex_unlock(&af_settings_lock);
	return count;
}

/* For /proc/async_fork_processes. */
void af_settings_show(struct seq_file *m)
{
	struct af_setting *setting;

	mutex_lock(&af_settings_lock);
	list_for_each_entry(setting, &af_settings, list) {
		af_strategy_show(m, "setting", setting->pid, &setting->strategy);
		seq_putc(m, '\n');
	}
	mutex_unlock(&af_settings_lock);
}

/* Of a process, whose mm it is. own: it is the process's, not its cgroup's. */
struct af_strategy af_strategy_of(struct task_struct *task, struct mm_struct *mm, bool *own)
{
	struct af_strategy strategy = { .strategy = ASYNC_FORK_DEFAULT };
	struct af_setting *setting = NULL;

	if (af_roles_of(mm) & BIT(AF_SETTING)) {
		rcu_read_lock();
		setting = af_setting_of(mm);
		if (setting)
			strategy = setting->strategy;
		rcu_read_unlock();
	}
	*own = setting;
	if (!setting)
		af_cgroup_strategy(task, &strategy);
	return strategy;
}
