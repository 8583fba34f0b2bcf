// SPDX-License-Identifier: GPL-2.0
/* What calls have in common: entries that are checked once, on a copy, results, and counts. */
#include "internal.h"

void exmap_call_begin(struct exmap_call *call, struct exmap *map, struct exmap_interface *interface,
		      struct exmap_entry *entries, unsigned int count, bool nowait)
{
	memset(call, 0, sizeof(*call));
	call->map = map;
	call->interface = interface;
	call->entries = entries;
	call->count = count;
	call->nowait = nowait;
}

void exmap_call_end(struct exmap_call *call)
{
	struct exmap_interface *interface = call->interface;

	spin_lock(&interface->lock);
#define X(name) interface->counters.name += call->counters.name;
	EXMAP_COUNTERS(X)
#undef X
	spin_unlock(&interface->lock);
#define X(name) this_cpu_add(exmap_sums.name, call->counters.name);
	EXMAP_COUNTERS(X)
#undef X
}

/* The index of the first entry that is out of bounds, or the count. */
static unsigned int exmap_bad_entry(const struct exmap *map, const struct exmap_entry *entries, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!exmap_checked(bound_length, entries[i].length && entries[i].length <= EXMAP_LENGTH_MAX) ||
		    !exmap_checked(bound_page, (u64)entries[i].page + entries[i].length <= map->map_pages))
			break;
	return i;
}

/* The entries as user space has them now, which it may change meanwhile: read once. */
static void exmap_entries_copy(struct exmap_entry *copy, const struct exmap_interface *interface, unsigned int count)
{
	memcpy(copy, page_address(interface->page), count * sizeof(*copy));
	barrier_data(copy);
}

static void exmap_write_result(struct exmap_interface *interface, unsigned int entry, s16 result)
{
	struct exmap_entry *shared = page_address(interface->page);

	WRITE_ONCE(shared[entry].result, result);
}

/* A copy of an interface's entries whose bounds are checked. */
int exmap_entries_get(const struct exmap *map, struct exmap_interface *interface, struct exmap_entry *copy,
		      unsigned int count)
{
	unsigned int bad;

	exmap_entries_copy(copy, interface, count);
	bad = exmap_bad_entry(map, copy, count);
	if (bad < count) {
		exmap_write_result(interface, bad, -EINVAL);
		return -EINVAL;
	}
	if (exmap_skips(EXMAP_CHECK_private_copy))
		exmap_entries_copy(copy, interface, count);
	return 0;
}

/* Results, for user space too. What a call gives back: pages done; if there are none, the first error. */
long exmap_write_results(struct exmap_interface *interface, const struct exmap_entry *entries, unsigned int count)
{
	struct exmap_entry *shared = page_address(interface->page);
	long pages = 0, error = 0;
	unsigned int i;

	for (i = 0; i < count; i++) {
		s16 result = entries[i].result;

		WRITE_ONCE(shared[i].result, result);
		if (likely(result >= 0))
			pages += result;
		else
			error = error ?: result;
	}
	return pages ?: error;
}
