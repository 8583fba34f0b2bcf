// SPDX-License-Identifier: GPL-2.0
/* Frames that reads go into: they stay what they are until the last read has ended, whatever becomes of the map. */
#include "internal.h"

/*
 * The frame of a page, for a read. The lock of the table is held afterwards. -ENOENT: the page is not allocated.
 * -EBUSY: too many reads.
 */
int exmap_frame_hold(struct exmap_walk *walk, u64 page, u32 *frame)
{
	pte_t *pte = exmap_walk_to(walk, page, false);
	struct exmap_frame *f;

	if (!pte || exmap_pte_kind(*pte) != EXMAP_PTE_FRAME)
		return -ENOENT;
	*frame = exmap_pte_frame(*pte);
	f = &walk->map->frames[*frame];
	if ((atomic_read(&f->uses) & ~EXMAP_MAPPED) >= EXMAP_USES_MAX)
		return -EBUSY;
	atomic_inc(&f->uses);
	return 0;
}

/* Also in interrupts. If the map was unmapped meanwhile the frame is free now. */
void exmap_frame_drop(struct exmap *map, u32 frame)
{
	struct exmap_list list = EXMAP_LIST_EMPTY;

	if (atomic_dec_return(&map->frames[frame].uses))
		return;
	exmap_list_push(map, &list, frame);
	exmap_give_to_pool(map, &list);
}

/* The page tables of the map are gone, and the TLBs were flushed: all frames are free that no read goes into. */
void exmap_frames_unmapped(struct exmap *map)
{
	struct exmap_list list = EXMAP_LIST_EMPTY;
	/* Pairs with exmap_grow(): the frames below are there. */
	u32 frame, count = smp_load_acquire(&map->frame_count), unmapped = 0;

	for (frame = 0; frame < count; frame++) {
		atomic_t *uses = &map->frames[frame].uses;

		if (!(frame % EXMAP_ENTRIES_MAX))
			cond_resched();
		if (!(atomic_read(uses) & EXMAP_MAPPED))
			continue;
		unmapped++;
		if (!atomic_sub_return(EXMAP_MAPPED, uses))
			exmap_list_push(map, &list, frame);
	}
	exmap_count(map, pages_unmapped, unmapped);
	exmap_give_to_pool(map, &list);
}
