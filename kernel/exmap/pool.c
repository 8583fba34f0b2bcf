// SPDX-License-Identifier: GPL-2.0
/*
 * Frames that are free: a list for each interface, one for the pool, and what the kernel gives. An allocation asks its
 * own interface, the pool, the kernel, and then the other interfaces: it finds none only if there is none.
 *
 * One lock is held at a time, that of an interface or that of the pool: what comes from one list is the call's own until
 * the lock of the next is taken. So two interfaces may take from each other at the same time.
 */
#include <linux/random.h>
#include <linux/sched/signal.h>

#include "internal.h"

/* The whole of `from` to the front of `to`. */
static void exmap_list_join(struct exmap *map, struct exmap_list *to, struct exmap_list *from)
{
	static const struct exmap_list empty = EXMAP_LIST_EMPTY;

	if (!from->count)
		return;
	map->frames[from->tail].next = to->head;
	if (!to->count)
		to->tail = from->tail;
	to->head = from->head;
	to->count += from->count;
	*from = empty;
}

/* Up to so many frames from one list to another; returns how many. */
static u32 exmap_list_move(struct exmap *map, struct exmap_list *to, struct exmap_list *from, u32 most)
{
	u32 moved = min(most, from->count), i;

	if (moved == from->count) {
		exmap_list_join(map, to, from);
		return moved;
	}
	for (i = 0; i < moved; i++)
		exmap_list_push(map, to, exmap_list_pop(map, from));
	return moved;
}

/* What is more than was wanted goes to the call's own interface. */
static void exmap_keep_rest(struct exmap_call *call, struct exmap_list *got, u32 wanted, struct exmap_list *out)
{
	struct exmap_interface *interface = call->interface;

	exmap_list_move(call->map, out, got, wanted);
	if (!got->count)
		return;
	spin_lock(&interface->lock);
	exmap_list_join(call->map, &interface->list, got);
	spin_unlock(&interface->lock);
}

static u32 exmap_take_from_interface(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	struct exmap_interface *interface = call->interface;
	u32 taken;

	spin_lock(&interface->lock);
	taken = exmap_list_move(call->map, out, &interface->list, wanted);
	spin_unlock(&interface->lock);
	call->counters.frames_from_interface += taken;
	return taken;
}

static u32 exmap_take_from_pool(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	struct exmap *map = call->map;
	struct exmap_list got = EXMAP_LIST_EMPTY;
	unsigned long flags;
	u32 taken;

	if (!READ_ONCE(map->pool.count))
		return 0;
	spin_lock_irqsave(&map->pool_lock, flags);
	taken = min(wanted, exmap_list_move(map, &got, &map->pool, max(wanted, EXMAP_REFILL)));
	spin_unlock_irqrestore(&map->pool_lock, flags);
	exmap_keep_rest(call, &got, wanted, out);
	call->counters.frames_from_pool += taken;
	return taken;
}

/* A page of the kernel's, cleared: what it held was somebody else's (invariant 2). */
static struct page *exmap_new_page(void)
{
	gfp_t gfp = EXMAP_GFP;

	if (!exmap_skips(EXMAP_CHECK_clear))
		gfp |= __GFP_ZERO;
	return exmap_allocation_fails() ? NULL : alloc_page(gfp);
}

/* The pool grows by up to so many frames. */
static u32 exmap_grow(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	struct exmap *map = call->map;
	unsigned long flags;
	u32 reserved, grown;

	if (READ_ONCE(map->frames_reserved) == map->pool_pages)
		return 0;
	spin_lock_irqsave(&map->pool_lock, flags);
	reserved = min(wanted, map->pool_pages - map->frames_reserved);
	map->frames_reserved += reserved;
	spin_unlock_irqrestore(&map->pool_lock, flags);
	for (grown = 0; grown < reserved; grown++) {
		struct page *page = fatal_signal_pending(current) ? NULL : exmap_new_page();
		u32 frame;

		if (!page)
			break;
		spin_lock_irqsave(&map->pool_lock, flags);
		frame = map->frame_count;
		map->frames[frame].pfn = page_to_pfn(page);
		set_page_private(page, frame);
		/* Pairs with exmap_frames_unmapped(), which does not take the lock. */
		smp_store_release(&map->frame_count, frame + 1);
		spin_unlock_irqrestore(&map->pool_lock, flags);
		exmap_list_push(map, out, frame);
		cond_resched();
	}
	if (grown < reserved) {
		spin_lock_irqsave(&map->pool_lock, flags);
		map->frames_reserved -= reserved - grown;
		spin_unlock_irqrestore(&map->pool_lock, flags);
	}
	exmap_count_frames(map, grown);
	call->counters.frames_from_pool += grown;
	return grown;
}

/*
 * From one other interface, the `ahead`th after the call's own. Half of what is there beyond what is wanted comes along,
 * up to a refill: the next allocations need not steal again, and the other has as much left.
 */
static u32 exmap_steal_from(struct exmap_call *call, u32 ahead, u32 wanted, struct exmap_list *out)
{
	struct exmap *map = call->map;
	u32 index = (call->interface->index + ahead) % map->interface_count;
	struct exmap_interface *victim = map->interfaces[index];
	struct exmap_list got = EXMAP_LIST_EMPTY;
	u32 more, stolen;

	call->counters.interfaces_asked++;
	if (!READ_ONCE(victim->list.count))
		return 0;
	spin_lock(&victim->lock);
	more = victim->list.count > wanted ? min((victim->list.count - wanted) / 2, EXMAP_REFILL) : 0;
	stolen = exmap_list_move(map, &got, &victim->list, wanted + more);
	spin_unlock(&victim->lock);
	if (!stolen)
		return 0;
	WRITE_ONCE(call->interface->stolen_ahead, ahead);
	call->counters.frames_stolen += stolen;
	exmap_keep_rest(call, &got, wanted, out);
	return min(stolen, wanted);
}

/* Two others at random, the one that has more. There are two others. */
static u32 exmap_steal_from_better(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	struct exmap *map = call->map;
	u32 own = call->interface->index, others = map->interface_count - 1, random = get_random_u32();
	u32 first = 1 + (random & 0xffff) % others, second = 1 + (random >> 16) % (others - 1);
	struct exmap_interface *one, *another;

	second += second >= first;
	one = map->interfaces[(own + first) % map->interface_count];
	another = map->interfaces[(own + second) % map->interface_count];
	call->counters.interfaces_asked++;	/* the one that is left alone */
	if (READ_ONCE(another->list.count) > READ_ONCE(one->list.count))
		first = second;
	return exmap_steal_from(call, first, wanted, out);
}

/*
 * From the interface that gave last, which is likely to have more; then from the better of two random ones, so that
 * interfaces without frames do not all ask the same; then once around, which finds what there is.
 */
static u32 exmap_steal(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	u32 count = call->map->interface_count, last = READ_ONCE(call->interface->stolen_ahead), taken = 0, ahead;

	if (count < 2 || exmap_skips(EXMAP_CHECK_steal))
		return 0;
	call->counters.steals++;
	if (last && !exmap_skips(EXMAP_CHECK_steal_last))
		taken = exmap_steal_from(call, last, wanted, out);
	if (taken < wanted && count > 2 && !exmap_skips(EXMAP_CHECK_steal_better))
		taken += exmap_steal_from_better(call, wanted - taken, out);
	for (ahead = 1; ahead < count && taken < wanted && !exmap_skips(EXMAP_CHECK_steal_around); ahead++)
		taken += exmap_steal_from(call, ahead, wanted - taken, out);
	return taken;
}

/* The right to up to so many of the frames in the lists. */
static u32 exmap_reserve(struct exmap *map, u32 wanted)
{
	int available = atomic_read(&map->available), rights = 0;

	do {
		if (available <= 0)
			return 0;
		rights = min_t(int, wanted, available);
	} while (!atomic_try_cmpxchg(&map->available, &available, available - rights));
	this_cpu_sub(exmap_sums.frames_free, rights);
	return rights;
}

/*
 * Up to so many frames; none only if none is free and the pool cannot grow. A right comes first: a frame is in a list
 * before there is a right to it, so whoever has one finds a frame, if not at once, because some are on their way from
 * one list to another.
 */
void exmap_take(struct exmap_call *call, u32 wanted, struct exmap_list *out)
{
	struct exmap *map = call->map;
	u32 rights = exmap_reserve(map, wanted), taken = 0;

	if (rights)
		taken = exmap_take_from_interface(call, rights, out);
	if (taken < rights)
		taken += exmap_take_from_pool(call, rights - taken, out);
	if (taken < wanted) {
		u32 grown = exmap_grow(call, wanted - taken, out);
		u32 back = min(grown, rights - taken);

		/* Cheaper than stealing, while the pool may grow. */
		exmap_available_add(map, back);
		rights -= back;
	}
	while (taken < rights) {
		taken += exmap_steal(call, rights - taken, out);
		if (taken < rights)
			taken += exmap_take_from_pool(call, rights - taken, out);
		if (taken < rights)
			taken += exmap_take_from_interface(call, rights - taken, out);
		if (taken < rights && (fatal_signal_pending(current) || exmap_skips(EXMAP_CHECK_steal)))
			break;
		cond_resched();
	}
	exmap_available_add(map, rights - taken);
}

/* A frame of this list is the kernel's again. */
static void exmap_frame_return(struct exmap *map, struct exmap_list *list)
{
	struct page *page = exmap_frame_page(&map->frames[exmap_list_pop(map, list)]);

	set_page_private(page, 0);
	__free_page(page);
}

/* Also in interrupts. */
void exmap_give_to_pool(struct exmap *map, struct exmap_list *list)
{
	u32 count = list->count;
	unsigned long flags;
	bool ended;

	spin_lock_irqsave(&map->pool_lock, flags);
	ended = map->ended;
	if (ended) {
		map->frame_count -= count;
	} else {
		exmap_list_join(map, &map->pool, list);
		exmap_available_add(map, count);
	}
	spin_unlock_irqrestore(&map->pool_lock, flags);
	if (!ended)
		return;
	exmap_count_frames(map, -(long)count);
	while (list->count)
		exmap_frame_return(map, list);
}

/*
 * Nobody allocates from the pool any more: its frames are the kernel's again, those that reads go into when these have
 * ended. How many these are.
 */
u32 exmap_pool_end(struct exmap *map)
{
	struct exmap_list list = EXMAP_LIST_EMPTY;
	u32 i, left;

	for (i = 0; i < map->interface_count; i++) {
		struct exmap_interface *interface = map->interfaces[i];

		spin_lock(&interface->lock);
		exmap_list_join(map, &list, &interface->list);
		spin_unlock(&interface->lock);
	}
	spin_lock_irq(&map->pool_lock);
	exmap_list_join(map, &list, &map->pool);
	map->ended = true;
	left = map->frame_count -= list.count;
	exmap_available_add(map, -atomic_read(&map->available));
	spin_unlock_irq(&map->pool_lock);
	exmap_count_frames(map, -(long)list.count);
	while (list.count) {
		exmap_frame_return(map, &list);
		cond_resched();
	}
	return left;
}

/* To the call's interface, or to the pool if that has many. No processor can reach these frames (invariant 3). */
void exmap_give(struct exmap_call *call, struct exmap_list *list)
{
	struct exmap_interface *interface = call->interface;
	u32 count = list->count;

	if (!count)
		return;
	spin_lock(&interface->lock);
	if (interface->list.count + count <= EXMAP_CAP)
		exmap_list_join(call->map, &interface->list, list);
	spin_unlock(&interface->lock);
	if (list->count)
		exmap_give_to_pool(call->map, list);
	else
		exmap_available_add(call->map, count);
}
