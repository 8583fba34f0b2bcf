// SPDX-License-Identifier: GPL-2.0
/* The process that a map is of: nobody else uses it, and it ends with that process. */
#include "internal.h"

/* Only the process that set the map up uses it: what is in it is its memory, and is accounted to it. */
int exmap_may_use(struct exmap *map)
{
	if (!exmap_is_ready(map))
		return -ENXIO;
	return exmap_checked(owner, current->mm == map->mm) ? 0 : -EPERM;
}

/*
 * The process's memory has gone, by exec or exit, and with it the only one that may use the map. A holder of the descriptor
 * keeps the arrays and nothing else: neither frames nor the backing file.
 */
void exmap_end(struct exmap *map)
{
	unsigned long arrays = map->locked_pages - map->pool_pages;

	exmap_uncharge(map, arrays + exmap_pool_end(map));
	exmap_backing_drop(map);
}
