// SPDX-License-Identifier: GPL-2.0
/* A map's beginning and end. */
#include <linux/file.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "internal.h"

static void *exmap_zalloc(size_t size)
{
	return exmap_allocation_fails() ? NULL : kvzalloc(size, EXMAP_GFP);
}

struct exmap *exmap_new(void)
{
	static const struct exmap_list empty = EXMAP_LIST_EMPTY;
	struct exmap *map = exmap_zalloc(sizeof(*map));

	if (!map)
		return NULL;
	mutex_init(&map->setup);
	init_rwsem(&map->zero);
	spin_lock_init(&map->pool_lock);
	spin_lock_init(&map->backing_lock);
	map->pool = empty;
	return map;
}

static bool exmap_setup_is_valid(const struct exmap_setup *setup)
{
	return setup->version == EXMAP_VERSION && !setup->flags &&
	       !setup->reserved[0] && !setup->reserved[1] &&
	       setup->map_pages && setup->map_pages <= EXMAP_MAP_PAGES_MAX &&
	       setup->pool_pages && setup->pool_pages <= EXMAP_POOL_PAGES_MAX &&
	       setup->interface_count && setup->interface_count <= EXMAP_INTERFACES_MAX;
}

static struct exmap_interface *exmap_interface_new(void)
{
	static const struct exmap_list empty = EXMAP_LIST_EMPTY;
	struct exmap_interface *interface = exmap_zalloc(sizeof(*interface));

	if (!interface)
		return NULL;
	interface->page = exmap_allocation_fails() ? NULL : alloc_page(EXMAP_GFP | __GFP_ZERO);
	if (!interface->page) {
		kvfree(interface);
		return NULL;
	}
	mutex_init(&interface->mutex);
	spin_lock_init(&interface->lock);
	interface->list = empty;
	return interface;
}

/* kvzalloc() warns about sizes that a user may ask for. */
static struct exmap_frame *exmap_frames_new(u32 count)
{
	if (exmap_allocation_fails())
		return NULL;
	return __vmalloc((size_t)count * sizeof(struct exmap_frame), EXMAP_GFP | __GFP_ZERO);
}

static int exmap_arrays_new(struct exmap *map, u32 interface_count)
{
	map->interfaces = exmap_zalloc(interface_count * sizeof(*map->interfaces));
	if (!map->interfaces)
		return -ENOMEM;
	for (; map->interface_count < interface_count; map->interface_count++) {
		struct exmap_interface *interface = exmap_interface_new();

		if (!interface)
			return -ENOMEM;
		interface->index = map->interface_count;
		map->interfaces[map->interface_count] = interface;
	}
	map->frames = exmap_frames_new(map->pool_pages);
	return map->frames ? 0 : -ENOMEM;
}

static void exmap_arrays_free(struct exmap *map)
{
	while (map->interface_count) {
		struct exmap_interface *interface = map->interfaces[--map->interface_count];

		__free_page(interface->page);
		kvfree(interface);
	}
	kvfree(map->interfaces);
	vfree(map->frames);
	map->interfaces = NULL;
	map->frames = NULL;
}

/* Pages of what is kept of frames and interfaces. */
static unsigned long exmap_array_pages(const struct exmap_setup *setup)
{
	u64 interface = sizeof(struct exmap_interface) + PAGE_SIZE;

	return DIV_ROUND_UP_ULL(setup->pool_pages * sizeof(struct exmap_frame) + setup->interface_count * interface,
				PAGE_SIZE);
}

/* The caller's memory is the map's. */
static int exmap_setup_charged(struct exmap *map, const struct exmap_setup *setup)
{
	unsigned long arrays = exmap_array_pages(setup);
	int ret;

	/* Before anything of that size is allocated. */
	ret = exmap_charge(map, setup->pool_pages + arrays);
	if (ret)
		return ret;
	map->pool_pages = setup->pool_pages;
	map->map_pages = setup->map_pages;
	ret = exmap_fits(arrays) ? exmap_arrays_new(map, setup->interface_count) : -ENOMEM;
	if (!ret)
		return 0;
	exmap_arrays_free(map);
	exmap_uncharge(map, 0);
	return ret;
}

static int exmap_setup_locked(struct exmap *map, const struct exmap_setup *setup)
{
	int ret;

	if (map->ready)
		return -EBADFD;
	mmgrab(current->mm);
	map->mm = current->mm;
	ret = exmap_setup_charged(map, setup);
	if (ret) {
		mmdrop(map->mm);
		map->mm = NULL;
		return ret;
	}
	this_cpu_inc(exmap_sums.maps_seen);
	this_cpu_inc(exmap_sums.maps_live);
	/* Pairs with exmap_is_ready(). */
	smp_store_release(&map->ready, true);
	return 0;
}

int exmap_setup(struct exmap *map, const struct exmap_setup *setup)
{
	int ret;

	if (!exmap_setup_is_valid(setup))
		return -EINVAL;
	ret = mutex_lock_killable(&map->setup);
	if (ret)
		return ret;
	ret = exmap_setup_locked(map, setup);
	mutex_unlock(&map->setup);
	return ret;
}

/* The file is closed: nothing is mapped, no call and no read is under way. */
void exmap_teardown(struct exmap *map)
{
	if (map->ready) {
		/* Every frame is in a list. */
		WARN_ON_ONCE(!map->ended && exmap_pool_end(map));
		exmap_arrays_free(map);
		exmap_uncharge(map, 0);
		mmdrop(map->mm);
		this_cpu_dec(exmap_sums.maps_live);
	}
	exmap_backing_drop(map);
	kvfree(map);
}
