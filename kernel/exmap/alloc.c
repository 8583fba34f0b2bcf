// SPDX-License-Identifier: GPL-2.0
/* Allocating and freeing pages: all entries of a call under one lock of the mm, with one flush. */
#include <linux/highmem.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/signal.h>

#include "internal.h"

/* For reading. */
int exmap_lock_mm(struct exmap *map, bool nowait)
{
	if (nowait)
		return mmap_read_trylock(map->mm) ? 0 : -EAGAIN;
	return mmap_read_lock_killable(map->mm);
}

/* The same, and a walk through the map begins. */
static int exmap_walk_lock(struct exmap_walk *walk, struct exmap_call *call)
{
	int ret = exmap_lock_mm(call->map, call->nowait);
	struct vm_area_struct *vma;

	if (ret)
		return ret;
	vma = exmap_vma(call->map);
	if (!vma) {
		mmap_read_unlock(call->map->mm);
		return -ENXIO;
	}
	*walk = exmap_walk_of(call->map, vma);
	return 0;
}

/* ---- allocate ---- */

struct exmap_alloc {
	struct exmap_call *call;
	struct exmap_walk walk;
	struct exmap_list frames;
	u64 left;		/* pages of this entry and those after it */
	u64 allocated;
	unsigned int entry;	/* where a pass begins: a page of an entry */
	u32 at;
};

/* For the entry where we are, from its page `at` on, and those after it. */
static noinline bool exmap_alloc_refill(struct exmap_alloc *alloc, u32 at)
{
	struct exmap_call *call = alloc->call;
	u32 frame;

	exmap_walk_end(&alloc->walk);
	exmap_take(call, min_t(u64, alloc->left - at, EXMAP_ENTRIES_MAX), &alloc->frames);
	if (!alloc->frames.count) {
		call->counters.frames_missing++;
		return false;
	}
	if (!call->zero || exmap_skips(EXMAP_CHECK_zero_flag))
		return true;
	for (frame = alloc->frames.head; frame != EXMAP_NO_FRAME; frame = call->map->frames[frame].next) {
		clear_highpage(exmap_frame_page(&call->map->frames[frame]));
		if (frame == alloc->frames.tail)
			break;
	}
	call->counters.pages_zeroed += alloc->frames.count;
	return true;
}

/* -ESTALE: a zero page is mapped there, which processors may know of. */
static __always_inline int exmap_alloc_page(struct exmap_alloc *alloc, u32 first, u32 at)
{
	u64 page = (u64)first + at;

	for (;;) {
		pte_t *pte = exmap_walk_to(&alloc->walk, page, true);

		if (!pte)
			return -ENOMEM;
		switch (exmap_pte_kind(*pte)) {
		case EXMAP_PTE_FRAME:
			alloc->call->counters.pages_present++;
			return 0;
		case EXMAP_PTE_ZERO:
			return -ESTALE;
		case EXMAP_PTE_NONE:
			break;
		}
		if (alloc->frames.count) {
			exmap_pte_set_frame(&alloc->walk, page, pte, exmap_list_pop(alloc->walk.map, &alloc->frames));
			alloc->allocated++;
			return 0;
		}
		if (!exmap_alloc_refill(alloc, at))
			return fatal_signal_pending(current) ? -EINTR : -ENOMEM;
	}
}

/* From where we are to the end, or to the first zero page: -ESTALE. */
static int exmap_alloc_pass(struct exmap_alloc *alloc)
{
	struct exmap_call *call = alloc->call;
	struct exmap_entry *entry = call->entries + alloc->entry, *end = call->entries + call->count;
	u32 at = alloc->at;

	for (; entry < end; entry++, at = 0) {
		u32 first = entry->page, length = entry->length;
		int ret = 0;

		for (; at < length; at++) {
			ret = exmap_alloc_page(alloc, first, at);
			if (ret)
				break;
		}
		if (unlikely(ret == -ESTALE)) {
			alloc->entry = entry - call->entries;
			alloc->at = at;
			return ret;
		}
		alloc->left -= length;
		entry->result = at ?: ret;
	}
	return 0;
}

/* Takes all zero pages away from where we are on, with one flush: a reader would go on seeing zeros (invariant 4). */
static void exmap_clear_zero_pages(struct exmap_alloc *alloc)
{
	struct exmap_flush flush = EXMAP_FLUSH_NOTHING;
	struct exmap_call *call = alloc->call;
	u32 at = alloc->at;
	unsigned int i;
	bool full;

	for (i = alloc->entry; i < call->count; i++, at = 0) {
		for (; at < call->entries[i].length; at++) {
			u64 page = (u64)call->entries[i].page + at;
			pte_t *pte = exmap_walk_to(&alloc->walk, page, false);

			if (!pte)	/* nor any other page of this table */
				at = exmap_table_end(&alloc->walk, page) - call->entries[i].page - 1;
			else if (exmap_pte_kind(*pte) == EXMAP_PTE_ZERO)
				exmap_pte_clear(&alloc->walk, page, pte, &flush);
		}
	}
	exmap_walk_end(&alloc->walk);
	if (exmap_skips(EXMAP_CHECK_alloc_flush) || !exmap_flush(alloc->walk.vma, &flush, &full))
		return;
	call->counters.shootdowns_alloc++;
	call->counters.shootdowns_full += full;
}

/* Nobody maps a zero page again before the frames are there. */
static void exmap_alloc_over_zero_pages(struct exmap_alloc *alloc)
{
	struct exmap *map = alloc->call->map;
	struct mmu_notifier_range range;
	bool others;

	exmap_walk_end(&alloc->walk);
	others = exmap_notify_begin(alloc->call, alloc->walk.vma, &range);
	down_write(&map->zero);
	exmap_clear_zero_pages(alloc);
	if (others)
		exmap_notify_end(&range);
	exmap_alloc_pass(alloc);
	exmap_walk_end(&alloc->walk);
	up_write(&map->zero);
}

static u64 exmap_call_pages(const struct exmap_call *call)
{
	u64 pages = 0;
	unsigned int i;

	for (i = 0; i < call->count; i++)
		pages += call->entries[i].length;
	return pages;
}

/* 0, or why nothing was tried; else results are in the entries. */
int exmap_alloc(struct exmap_call *call)
{
	struct exmap_alloc alloc = {
		.call = call, .frames = EXMAP_LIST_EMPTY, .left = exmap_call_pages(call),
	};
	int ret = exmap_walk_lock(&alloc.walk, call);

	if (ret)
		return ret;
	if (exmap_alloc_pass(&alloc))
		exmap_alloc_over_zero_pages(&alloc);
	exmap_walk_end(&alloc.walk);
	mmap_read_unlock(call->map->mm);
	call->counters.pages_allocated += alloc.allocated;
	exmap_give(call, &alloc.frames);
	return 0;
}

/* ---- free ---- */

struct exmap_freeing {
	struct exmap_call *call;
	struct exmap_walk walk;
	struct exmap_flush flush;
	struct exmap_list quarantine;	/* taken away, and perhaps still in somebody's TLB (invariant 3) */
};

/* Nobody reads into it; then it is the caller's. */
static bool exmap_frame_let_go(struct exmap_frame *frame)
{
	if (exmap_skips(EXMAP_CHECK_busy)) {
		atomic_and(~EXMAP_MAPPED, &frame->uses);
		return true;
	}
	return atomic_cmpxchg(&frame->uses, EXMAP_MAPPED, 0) == EXMAP_MAPPED;
}

/* How many pages from this one on were dealt with, or -EBUSY. */
static __always_inline int exmap_free_page(struct exmap_freeing *freeing, u64 page, u32 most)
{
	struct exmap *map = freeing->walk.map;
	pte_t *pte = exmap_walk_to(&freeing->walk, page, false);
	u32 frame;

	if (!pte) {
		most = min_t(u64, most, exmap_table_end(&freeing->walk, page) - page);
		freeing->call->counters.pages_absent += most;
		return most;
	}
	frame = exmap_pte_frame_if_any(*pte);
	if (frame == EXMAP_NO_FRAME) {
		freeing->call->counters.pages_absent++;
		return 1;
	}
	if (!exmap_frame_let_go(&map->frames[frame])) {
		freeing->call->counters.pages_busy++;
		return -EBUSY;
	}
	exmap_pte_clear(&freeing->walk, page, pte, &freeing->flush);
	exmap_list_push(map, &freeing->quarantine, frame);
	return 1;
}

static __always_inline void exmap_free_entry(struct exmap_freeing *freeing, struct exmap_entry *entry)
{
	u32 first = entry->page, length = entry->length, at = 0;
	int done = 0;

	while (at < length) {
		done = exmap_free_page(freeing, (u64)first + at, length - at);
		if (done < 0)
			break;
		at += done;
	}
	entry->result = at ?: done;
}

static void exmap_free_flush(struct exmap_freeing *freeing)
{
	struct exmap_counters *counters = &freeing->call->counters;
	bool full;

	counters->pages_freed += freeing->quarantine.count;
	if (exmap_skips(EXMAP_CHECK_quarantine))
		exmap_give(freeing->call, &freeing->quarantine);
	exmap_delay(EXMAP_DELAY_FLUSH);
	if (exmap_skips(EXMAP_CHECK_flush) || !exmap_flush(freeing->walk.vma, &freeing->flush, &full))
		return;
	counters->shootdowns_free++;
	counters->shootdowns_full += full;
}

/* 0, or why nothing was tried; else results are in the entries. */
int exmap_free(struct exmap_call *call)
{
	struct exmap_freeing freeing = {
		.call = call, .flush = EXMAP_FLUSH_NOTHING, .quarantine = EXMAP_LIST_EMPTY,
	};
	struct exmap_entry *entry, *end = call->entries + call->count;
	struct mmu_notifier_range range;
	int ret = exmap_walk_lock(&freeing.walk, call);
	bool others;

	if (ret)
		return ret;
	others = exmap_notify_begin(call, freeing.walk.vma, &range);
	for (entry = call->entries; entry < end; entry++)
		exmap_free_entry(&freeing, entry);
	exmap_walk_end(&freeing.walk);
	exmap_free_flush(&freeing);
	if (others)
		exmap_notify_end(&range);
	mmap_read_unlock(call->map->mm);
	exmap_give(call, &freeing.quarantine);
	return 0;
}
