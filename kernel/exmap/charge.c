// SPDX-License-Identifier: GPL-2.0
/* What a map costs its user, its process, the machine and the memory cgroups that it is in. */
#include <linux/cred.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/sched/user.h>

#include "internal.h"

#define EXMAP_SHARE_OF_LIMIT 16	/* of a cgroup's limit: what is less is left to the allocation to find out */

/* ---- RLIMIT_MEMLOCK ---- */

/*
 * By user, as io_uring and others count what they pin: a descriptor may outlive the process that set the map up. NULL:
 * CAP_IPC_LOCK, nobody pays.
 */
static int exmap_charge_user(struct exmap *map, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user;
	long locked;

	if (exmap_skips(EXMAP_CHECK_memlock) || capable(CAP_IPC_LOCK))
		return 0;
	user = current_user();
	locked = atomic_long_read(&user->locked_vm);
	do {
		if ((unsigned long)locked + pages > limit)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &locked, locked + pages));
	map->user = get_uid(user);
	return 0;
}

/* The map's mm is the caller's. */
int exmap_charge(struct exmap *map, unsigned long pages)
{
	int ret = exmap_charge_user(map, pages);

	if (ret)
		return ret;
	atomic64_add(pages, &map->mm->pinned_vm);
	map->locked_pages = pages;
	return 0;
}

/* Down to so many pages. */
void exmap_uncharge(struct exmap *map, unsigned long left)
{
	unsigned long pages = map->locked_pages - min(left, map->locked_pages);

	map->locked_pages -= pages;
	atomic64_sub(pages, &map->mm->pinned_vm);
	if (!map->user)
		return;
	atomic_long_sub(pages, &map->user->locked_vm);
	if (map->locked_pages)
		return;
	free_uid(map->user);
	map->user = NULL;
}

/* ---- what may be had ---- */

#ifdef CONFIG_MEMCG
static bool exmap_limits_allow(unsigned long pages)
{
	struct mem_cgroup *group = get_mem_cgroup_from_mm(current->mm);
	struct page_counter *counter = group ? &group->memory : NULL;
	bool allowed = true;

	for (; counter && allowed; counter = counter->parent) {
		unsigned long most = READ_ONCE(counter->max), used = page_counter_read(counter);

		allowed = pages <= most / EXMAP_SHARE_OF_LIMIT || (used < most && pages <= (most - used) / 2);
	}
	mem_cgroup_put(group);
	return allowed;
}
#else
static bool exmap_limits_allow(unsigned long pages)
{
	return true;
}
#endif

/*
 * Whether so many pages can be had without leaving others none: while one takes the last ones, it is any process's
 * allocation that finds none and calls the OOM killer.
 */
bool exmap_fits(unsigned long pages)
{
	long available = si_mem_available();

	if (exmap_skips(EXMAP_CHECK_fits))
		return true;
	return available > 0 && pages <= available / 2 && exmap_limits_allow(pages);
}
