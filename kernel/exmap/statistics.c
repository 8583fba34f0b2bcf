// SPDX-License-Identifier: GPL-2.0
/* Counters of a map, and /proc/exmap: their sums over all maps since the module was loaded. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "internal.h"

static LIST_HEAD(exmap_maps);		/* that are set up */
static DEFINE_MUTEX(exmap_maps_lock);
static struct exmap_statistics exmap_past;	/* of maps that are gone */
static u64 exmap_maps_seen;

/* Those that are sums over maps, live or gone. */
#define EXMAP_SUMS(X) EXMAP_COUNTERS(X) EXMAP_MAP_COUNTERS(X)

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

static void exmap_sum(struct exmap_statistics *sum, const struct exmap_statistics *one)
{
#define X(name) sum->name += one->name;
	EXMAP_SUMS(X)
#undef X
}

void exmap_statistics_add(struct exmap *map)
{
	mutex_lock(&exmap_maps_lock);
	list_add(&map->maps, &exmap_maps);
	exmap_maps_seen++;
	mutex_unlock(&exmap_maps_lock);
}

void exmap_statistics_remove(struct exmap *map)
{
	struct exmap_statistics last;

	mutex_lock(&exmap_maps_lock);
	exmap_statistics_read(map, &last);
	exmap_sum(&exmap_past, &last);
	list_del(&map->maps);
	mutex_unlock(&exmap_maps_lock);
}

static int exmap_statistics_show(struct seq_file *m, void *unused)
{
	struct exmap_statistics sum, one;
	u64 live = 0, seen;
	struct exmap *map;

	mutex_lock(&exmap_maps_lock);
	sum = exmap_past;
	seen = exmap_maps_seen;
	list_for_each_entry(map, &exmap_maps, maps) {
		exmap_statistics_read(map, &one);
		exmap_sum(&sum, &one);
		sum.frames += one.frames;
		sum.frames_free += one.frames_free;
		live++;
	}
	mutex_unlock(&exmap_maps_lock);
	seq_printf(m, "version %u\nmaps_seen %llu\nmaps_live %llu\n", EXMAP_VERSION, seen, live);
	seq_printf(m, "frames_live %llu\nframes_free %llu\n", sum.frames, sum.frames_free);
#define X(name) seq_printf(m, #name " %llu\n", sum.name);
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
