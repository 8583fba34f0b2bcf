// SPDX-License-Identifier: GPL-2.0
/*
 * async_fork: fork() that leaves the copying of page tables to the child (Async-fork, VLDB 2023) or shares them
 * (On-Demand-Fork, EuroSys 2021), for an unpatched kernel and for processes that are told to.
 */
#include "internal.h"
#include "hooks.h"
#include "symbols.h"

static int __init af_init(void)
{
	int ret = af_symbols_find() ?: af_variables_find();

	ret = ret ?: af_layout_check();
	if (ret)
		return ret;
	ret = af_child_init();
	if (ret)
		return ret;
	ret = af_hooks_attach();
	if (ret)
		goto no_hooks;
	ret = af_cgroup_add();
	if (ret)
		goto no_cgroup;
	ret = af_control_add();
	if (ret)
		goto no_control;
	pr_info("loaded\n");
	return 0;

no_control:
	af_cgroup_remove();
no_cgroup:
	af_hooks_detach();
no_hooks:
	af_child_exit();
	return ret;
}

/* Sessions and mms that share hold the module, so there are none. */
static void __exit af_exit(void)
{
	unsigned int cgroups, processes;

	af_control_remove();
	cgroups = af_cgroups_forgotten();
	af_cgroup_remove();
	af_hooks_detach();
	af_odf_stop();
	af_child_exit();
	processes = af_settings_drop();
	af_refused_drop_all();
	rcu_barrier();
	if (cgroups || processes)
		pr_notice("unloaded: what was enabled for %u cgroups and %u processes is forgotten, as `stillframe-fork unload` would not\n",
			  cgroups, processes);
}

module_init(af_init);
module_exit(af_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("fork() without copying page tables: Async-fork and On-Demand-Fork");
MODULE_VERSION("0.1.0");
