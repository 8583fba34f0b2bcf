// SPDX-License-Identifier: GPL-2.0
/*
 * memory.async_fork, a file in every memory cgroup but the root (paper, 5.2, Flexibility). Not inherited by cgroups
 * below, like memory.oom.group. Who owns the directory may open it for writing, which alone gives no right to change
 * it.
 */
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/xarray.h>

#include "internal.h"
#include "symbols.h"

/*
 * There is no room for us in struct mem_cgroup, and no callback when one goes. So: by css id, which is reused, and with
 * the serial number, which is not. What a removed cgroup leaves behind is at most one word for each id.
 */
static DEFINE_XARRAY(af_cgroups);
static atomic_t af_cgroups_set = ATOMIC_INIT(0);	/* ever; until then no fork looks */

#define AF_CGROUP_DEFAULT 0
#define AF_CGROUP_ODF (ASYNC_FORK_THREADS_MAX + 1)
#define AF_CGROUP_BITS 7

static unsigned int af_cgroup_value(struct cgroup_subsys_state *css)
{
	void *entry = xa_load(&af_cgroups, css->id);

	if (!entry || xa_to_value(entry) >> AF_CGROUP_BITS != css->serial_nr)
		return AF_CGROUP_DEFAULT;
	return xa_to_value(entry) & ((1 << AF_CGROUP_BITS) - 1);
}

/* The strategy of the task's cgroup. False: it has none. */
bool af_cgroup_strategy(struct task_struct *task, struct af_strategy *strategy)
{
	unsigned int value;

	if (!atomic_read(&af_cgroups_set) || mem_cgroup_disabled())
		return false;
	rcu_read_lock();
	value = af_cgroup_value(task_css(task, memory_cgrp_id));
	rcu_read_unlock();
	if (value == AF_CGROUP_DEFAULT)
		return false;
	strategy->strategy = value == AF_CGROUP_ODF ? ASYNC_FORK_ODF : ASYNC_FORK_ASYNC;
	strategy->copy_threads = value == AF_CGROUP_ODF ? 0 : value;
	return true;
}

static int af_cgroup_show(struct seq_file *m, void *unused)
{
	unsigned int value = af_cgroup_value(seq_css(m));

	if (value == AF_CGROUP_ODF)
		seq_puts(m, "odf\n");
	else
		seq_printf(m, "%u\n", value);
	return 0;
}

static ssize_t af_cgroup_write(struct kernfs_open_file *of, char *buffer, size_t bytes, loff_t offset)
{
	struct cgroup_subsys_state *css = of_css(of);
	unsigned int value;
	int ret;

	buffer = strstrip(buffer);
	if (!strcmp(buffer, "odf"))
		value = AF_CGROUP_ODF;
	else if (kstrtouint(buffer, 10, &value) || value > ASYNC_FORK_THREADS_MAX)
		return -EINVAL;
	ret = af_strategy_may_be_set(of->file, value == AF_CGROUP_ODF ? ASYNC_FORK_ODF : ASYNC_FORK_ASYNC);
	if (ret)
		return ret;
	if (xa_err(xa_store(&af_cgroups, css->id, xa_mk_value(css->serial_nr << AF_CGROUP_BITS | value), GFP_KERNEL)))
		return -ENOMEM;
	atomic_set(&af_cgroups_set, 1);
	return bytes;
}

/* The two hierarchies each keep their own state in the array. */
#define AF_CGROUP_FILES { {			\
	.name = "async_fork",			\
	.flags = CFTYPE_NOT_ON_ROOT,		\
	.seq_show = af_cgroup_show,		\
	.write = af_cgroup_write,		\
}, { } }

static struct cftype af_cgroup_files_v2[] = AF_CGROUP_FILES;
static struct cftype af_cgroup_files_v1[] = AF_CGROUP_FILES;
static bool af_cgroup_added;

int af_cgroup_add(void)
{
	int ret;

	if (mem_cgroup_disabled())
		return 0;
	ret = af_sym(cgroup_add_dfl_cftypes)(&memory_cgrp_subsys, af_cgroup_files_v2);
	if (ret)
		return ret;
	ret = af_sym(cgroup_add_legacy_cftypes)(&memory_cgrp_subsys, af_cgroup_files_v1);
	if (ret) {
		af_sym(cgroup_rm_cftypes)(af_cgroup_files_v2);
		return ret;
	}
	af_cgroup_added = true;
	return 0;
}

/* How many cgroups have a strategy that is lost with the module; some of them may be gone. */
unsigned int af_cgroups_forgotten(void)
{
	unsigned int count = 0;
	unsigned long id;
	void *entry;

	xa_for_each(&af_cgroups, id, entry)
		count += (xa_to_value(entry) & ((1 << AF_CGROUP_BITS) - 1)) != AF_CGROUP_DEFAULT;
	return count;
}

/* Waits for readers and writers of the files. */
void af_cgroup_remove(void)
{
	if (af_cgroup_added) {
		af_sym(cgroup_rm_cftypes)(af_cgroup_files_v1);
		af_sym(cgroup_rm_cftypes)(af_cgroup_files_v2);
	}
	xa_destroy(&af_cgroups);
}
