// SPDX-License-Identifier: GPL-2.0
/* Counters of a map, and /proc/exmap: their sums over all maps since the module was loaded. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "internal.h"

DEFINE_PER_CPU(struct exmap_sums, exmap_sums);

/* Relaxed: a reading is not a cut through all of them. */
void exmap_statistics_read(struct exmap *map, struct exmap_statistics *out)
{
	int available = atomic_read(&map->available);
	u32 i;

	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->version = EXMAP_VERSION;
	out->map_pages = map->map_pages;
	out->pool_pages = map->pool_pages;
	out->frames = READ_ONCE(map->frame_count);
	out->frames_free = max(available, 0);
	for (i = 0; i < map->interface_count; i++) {
		struct exmap_interface *interface = map->interfaces[i];

		spin_lock(&interface->lock);
#define X(name) out->name += interface->counters.name;
		EXMAP_COUNTERS(X)
#undef X
		spin_unlock(&interface->lock);
	}
#define X(name) out->name = atomic64_read(&map->counters.name);
	EXMAP_MAP_COUNTERS(X)
#undef X
}

static int exmap_statistics_show(struct seq_file *m, void *unused)
{
	struct exmap_sums sum = { 0 };
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct exmap_sums *here = per_cpu_ptr(&exmap_sums, cpu);

#define X(name) sum.name += READ_ONCE(here->name);
		EXMAP_SUMS(X)
#undef X
	}
#define X(name) seq_printf(m, #name " %llu\n", sum.name);
	seq_printf(m, "version %u\n", EXMAP_VERSION);
	EXMAP_SUMS(X)
#undef X
	return 0;
}

int exmap_statistics_init(void)
{
	return proc_create_single("exmap", 0444, NULL, exmap_statistics_show) ? 0 : -ENOMEM;
}

void exmap_statistics_exit(void)
{
	remove_proc_entry("exmap", NULL);
}
