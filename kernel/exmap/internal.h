/* SPDX-License-Identifier: GPL-2.0 */
/* Types and functions shared by the files of the module. Invariant numbers: docs/internals/kernel-module.md, exmap. */
#ifndef _EXMAP_INTERNAL_H
#define _EXMAP_INTERNAL_H

#undef pr_fmt
#define pr_fmt(fmt) "exmap: " fmt

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include <exmap.h>
#include "compat.h"

#if PAGE_SHIFT != 12
#error "exmap is for pages of 4 KiB"
#endif

/* ---- test_aids.c: in a module that is built for tests (make AF_TEST=1) only ---- */

/* What can be left out: each is a rule whose absence a test must notice. */
#define EXMAP_CHECKS(X)								\
	X(flush) X(alloc_flush) X(quarantine) X(zero_page) X(clear) X(zero_flag) X(busy) X(owner)		\
	X(steal) X(steal_last) X(steal_better) X(steal_around)						\
	X(split) X(bound_interface) X(bound_opcode) X(bound_flags) X(bound_count) X(bound_page) X(bound_length)	\
	X(private_copy) X(bound_buffer) X(memlock) X(dontcopy) X(mremap) X(notify) X(fits) X(rss) X(end)	\
	X(table_lock)

enum exmap_check {
#define X(name) EXMAP_CHECK_##name,
	EXMAP_CHECKS(X)
#undef X
};

/* Where a test build can be made to wait. */
enum exmap_delay {
	EXMAP_DELAY_FLUSH,	/* entries are taken away, not flushed yet */
	EXMAP_DELAY_READ,	/* frames are in use by a read that has not begun */
	EXMAP_DELAY_FAULT,	/* the kernel has compared an entry, for a fault, and is about to write it */
};

#ifdef AF_TEST
bool exmap_skips(enum exmap_check check);
bool exmap_allocation_fails(void);
void exmap_delay(enum exmap_delay step);
void exmap_delays_init(void);
void exmap_delays_exit(void);
#else
static inline bool exmap_skips(enum exmap_check check)
{
	return false;
}

static inline bool exmap_allocation_fails(void)
{
	return false;
}

static inline void exmap_delay(enum exmap_delay step)
{
}

static inline void exmap_delays_init(void)
{
}

static inline void exmap_delays_exit(void)
{
}
#endif

/* A condition that must hold, unless a test leaves it out. */
#define exmap_checked(name, condition) (exmap_skips(EXMAP_CHECK_##name) || (condition))

/* ---- frames ---- */

/*
 * A frame is a page of the kernel's that belongs to one map. What is known of it is outside of it (invariant 1).
 *
 *	in a list ──allocate──▶ mapped ──free, flushed──▶ in a list
 *	                         │  ▲ ╲
 *	              read begins│  │  ╲ unmapped by munmap or exit
 *	                         ▼  │ ends            ╲
 *	                  mapped and in use ──unmapped──▶ in use ──read ends──▶ in a list
 *
 * uses: EXMAP_MAPPED if an entry of the page tables points to the frame, and one for each read into it. It is raised
 * from 0 and EXMAP_MAPPED is set and cleared under the lock of that table, or when the table has gone.
 */
struct exmap_frame {
	unsigned long pfn;	/* of the page */
	u32 next;		/* in its list */
	atomic_t uses;
};

#define EXMAP_MAPPED (1 << 30)
#define EXMAP_USES_MAX (1 << 20)	/* reads into one frame at the same time */
#define EXMAP_NO_FRAME U32_MAX

struct exmap_list {
	u32 head, tail;
	u32 count;
};

static inline struct page *exmap_frame_page(const struct exmap_frame *frame)
{
	return pfn_to_page(frame->pfn);
}

#define EXMAP_LIST_EMPTY { EXMAP_NO_FRAME, EXMAP_NO_FRAME, 0 }

/*
 * Of all memory that is allocated here: its cgroup pays, and without it the call fails. Nobody is killed for it, as
 * the caller is seldom the task that would be.
 */
#define EXMAP_GFP (GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

#define EXMAP_CAP (2 * EXMAP_ENTRIES_MAX)	/* frames that the list of an interface keeps */
#define EXMAP_REFILL 64U			/* taken from elsewhere at once, so that the next need not ask again */

/* ---- counters of one interface: names as in struct exmap_statistics ---- */

#define EXMAP_COUNTERS(X)							\
	X(pages_allocated) X(pages_present) X(pages_freed) X(pages_absent)	\
	X(pages_busy) X(pages_zeroed)						\
	X(frames_from_interface) X(frames_from_pool) X(frames_stolen) X(frames_missing) \
	X(steals) X(interfaces_asked)						\
	X(shootdowns_free) X(shootdowns_alloc) X(shootdowns_full)

/* Those of the map, which are counted in any context. */
#define EXMAP_MAP_COUNTERS(X)							\
	X(pages_unmapped) X(pages_read) X(reads) X(reads_failed) X(zero_faults) X(write_faults)

struct exmap_counters {
#define X(name) u64 name;
	EXMAP_COUNTERS(X)
#undef X
};

/*
 * Sums over all maps since the module was loaded. Nothing waits for their readers: a lock might be held by a process
 * that has used up its time.
 */
#define EXMAP_SUMS(X)								\
	X(maps_seen) X(maps_live) X(frames_live) X(frames_free)			\
	EXMAP_COUNTERS(X) EXMAP_MAP_COUNTERS(X)

struct exmap_sums {
#define X(name) u64 name;
	EXMAP_SUMS(X)
#undef X
};

DECLARE_PER_CPU(struct exmap_sums, exmap_sums);

struct exmap_map_counters {
#define X(name) atomic64_t name;
	EXMAP_MAP_COUNTERS(X)
#undef X
};

/* ---- maps ---- */

struct exmap_interface {
	struct mutex mutex;		/* one call at a time uses `entries` */
	struct exmap_entry entries[EXMAP_ENTRIES_MAX];	/* the private copy of a call */
	struct page *page;		/* what user space writes entries to */
	u32 index;			/* its number */
	u32 stolen_ahead;		/* how far after it the one is that it stole from last, 0: none yet. Without a lock */
	spinlock_t lock ____cacheline_aligned_in_smp;	/* the rest */
	struct exmap_list list;
	struct exmap_counters counters;
};

struct exmap {
	/* Set by EXMAP_SETUP before `ready`, constant from then on. */
	struct mm_struct *mm;		/* with mmgrab() */
	u64 map_pages;
	u32 pool_pages;
	u32 interface_count;
	struct user_struct *user;	/* whose RLIMIT_MEMLOCK the map counts against; NULL: nobody's */
	unsigned long locked_pages;	/* of it; as many are in mm->pinned_vm */
	struct exmap_interface **interfaces;
	struct exmap_frame *frames;	/* pool_pages; those below frame_count are there */
	bool ready;

	struct mutex setup;		/* one EXMAP_SETUP at a time */
	unsigned long base;		/* where it is mapped, 0: nowhere. Under the mm's mmap_lock */
	unsigned int vmas;		/* the same; two while mremap tries to move it */
	struct rw_semaphore zero;	/* held for writing, nobody maps a zero page (invariant 4) */

	spinlock_t pool_lock;		/* also in interrupts; list, frames_reserved, frame_count, ended */
	struct exmap_list pool;
	u32 frames_reserved;		/* taken from the kernel, or about to be */
	u32 frame_count;
	bool ended;			/* nobody may use the map any more, and frames go back to the kernel */
	atomic_t available;		/* frames in lists that nobody has the right to yet */

	spinlock_t backing_lock;	/* of backing; whoever uses that file takes a reference under it */
	struct file *backing;

	struct exmap_map_counters counters;
};

/* What a call works on. */
struct exmap_call {
	struct exmap *map;
	struct exmap_interface *interface;
	struct exmap_entry *entries;	/* a private copy, results included */
	unsigned int count;
	bool nowait;			/* -EAGAIN instead of waiting for a lock */
	bool zero;			/* EXMAP_ALLOC_ZERO */
	struct exmap_counters counters;	/* of this call, added to the interface's at its end */
};

static inline bool exmap_mm_has_ended(struct mm_struct *mm)
{
	return !atomic_read(&mm->mm_users);
}

/* Of EXMAP_MAP_COUNTERS, in any context. */
#define exmap_count(map, name, more)						\
do {										\
	atomic64_add(more, &(map)->counters.name);				\
	this_cpu_add(exmap_sums.name, more);					\
} while (0)

/*
 * Frames come from the kernel, or go back. They are part of the process's RSS, though no page table says so: else the
 * OOM killer would take another process.
 */
static inline void exmap_count_frames(struct exmap *map, long more)
{
	this_cpu_add(exmap_sums.frames_live, more);
	if (!exmap_skips(EXMAP_CHECK_rss))
		compat_rss_add(map->mm, MM_SHMEMPAGES, more);
}

static inline void exmap_available_add(struct exmap *map, int more)
{
	atomic_add(more, &map->available);
	this_cpu_add(exmap_sums.frames_free, more);
}

/* setup.c */
int exmap_setup(struct exmap *map, const struct exmap_setup *setup);
void exmap_teardown(struct exmap *map);
struct exmap *exmap_new(void);

/* owner.c */
int exmap_may_use(struct exmap *map);
void exmap_end(struct exmap *map);

/* backing.c */
int exmap_backing_set(struct exmap *map, const struct exmap_backing *backing);
struct file *exmap_backing_get(struct exmap *map);
void exmap_backing_drop(struct exmap *map);

/* charge.c */
int exmap_charge(struct exmap *map, unsigned long pages);
void exmap_uncharge(struct exmap *map, unsigned long left);
bool exmap_fits(unsigned long pages);

static inline bool exmap_is_ready(struct exmap *map)
{
	/* Pairs with exmap_setup(): what it has made is there. */
	return smp_load_acquire(&map->ready);
}

/* pool.c */
static inline void exmap_list_push(struct exmap *map, struct exmap_list *list, u32 frame)
{
	map->frames[frame].next = list->head;
	if (!list->count++)
		list->tail = frame;
	list->head = frame;
}

static inline u32 exmap_list_pop(struct exmap *map, struct exmap_list *list)
{
	u32 frame = list->head;

	list->head = map->frames[frame].next;
	list->count--;
	return frame;
}

void exmap_take(struct exmap_call *call, u32 wanted, struct exmap_list *out);
void exmap_give(struct exmap_call *call, struct exmap_list *list);
void exmap_give_to_pool(struct exmap *map, struct exmap_list *list);
u32 exmap_pool_end(struct exmap *map);

/* table.c: entries of the page tables, under mmap_lock. */
struct exmap_walk {
	struct exmap *map;
	struct vm_area_struct *vma;
	unsigned long start;	/* of the vma */
	unsigned long at;	/* the address that the table begins at whose lock is held, or EXMAP_NOWHERE */
	pte_t *table;
	spinlock_t *lock;
	pmd_t *pmds;		/* the table above, which stays as long as mmap_lock is held; NULL: not found yet */
	unsigned long pmds_at;
	int steps;		/* that may be made before others get the lock, and the processor */
	pgprot_t frame_prot;
};

#define EXMAP_NOWHERE 1UL	/* no address of a table */

static inline struct exmap_walk exmap_walk_of(struct exmap *map, struct vm_area_struct *vma)
{
	return (struct exmap_walk) { .map = map, .vma = vma, .start = vma->vm_start, .at = EXMAP_NOWHERE };
}

/* Addresses whose entries were taken away and not flushed yet. */
struct exmap_flush {
	unsigned long start, end;
};

#define EXMAP_FLUSH_NOTHING { ULONG_MAX, 0 }

enum exmap_pte { EXMAP_PTE_NONE, EXMAP_PTE_ZERO, EXMAP_PTE_FRAME };

struct mmu_notifier_range;

pte_t *exmap_walk_on(struct exmap_walk *walk, u64 page, bool allocate);
void exmap_walk_end(struct exmap_walk *walk);
void exmap_pte_set_zero(struct exmap_walk *walk, u64 page, pte_t *pte);
bool exmap_flush(struct vm_area_struct *vma, const struct exmap_flush *flush, bool *full);
bool exmap_notify_begin(struct exmap_call *call, struct vm_area_struct *vma, struct mmu_notifier_range *range);
void exmap_notify_end(struct mmu_notifier_range *range);
u64 exmap_table_end(struct exmap_walk *walk, u64 page);

static inline unsigned long exmap_address(const struct exmap_walk *walk, u64 page)
{
	return walk->start + (page << PAGE_SHIFT);
}

/* The entry of a page, with the lock of its table held until the walk goes on or ends. NULL: there is no table. */
static inline pte_t *exmap_walk_to(struct exmap_walk *walk, u64 page, bool allocate)
{
	unsigned long address = exmap_address(walk, page);

	if (likely(walk->at == (address & PMD_MASK) && --walk->steps >= 0))
		return walk->table + pte_index(address);
	return exmap_walk_on(walk, page, allocate);
}

static inline enum exmap_pte exmap_pte_kind(pte_t pte)
{
	if (pte_none(pte))
		return EXMAP_PTE_NONE;
	return pte_pfn(pte) == my_zero_pfn(0) ? EXMAP_PTE_ZERO : EXMAP_PTE_FRAME;
}

static inline u32 exmap_pte_frame(pte_t pte)
{
	return page_private(pte_page(pte));
}

/* EXMAP_NO_FRAME: nothing is mapped, or the zero page. */
static inline u32 exmap_pte_frame_if_any(pte_t pte)
{
	unsigned long pfn;

	if (pte_none(pte))
		return EXMAP_NO_FRAME;
	pfn = pte_pfn(pte);
	return pfn == my_zero_pfn(0) ? EXMAP_NO_FRAME : page_private(pfn_to_page(pfn));
}

static inline void exmap_pte_set_frame(struct exmap_walk *walk, u64 page, pte_t *pte, u32 frame)
{
	struct exmap_frame *f = &walk->map->frames[frame];

	atomic_set(&f->uses, EXMAP_MAPPED);
	compat_set_pte(walk->vma->vm_mm, exmap_address(walk, page), pte,
		       pfn_pte(f->pfn, walk->frame_prot));
}

static inline void exmap_pte_clear(struct exmap_walk *walk, u64 page, pte_t *pte, struct exmap_flush *flush)
{
	unsigned long address = exmap_address(walk, page);

	ptep_get_and_clear(walk->vma->vm_mm, address, pte);
	flush->start = min(flush->start, address);
	flush->end = max(flush->end, address + PAGE_SIZE);
}

/* call.c */
int exmap_entries_get(const struct exmap *map, struct exmap_interface *interface, struct exmap_entry *copy,
		      unsigned int count);
long exmap_write_results(struct exmap_interface *interface, const struct exmap_entry *entries, unsigned int count);
void exmap_call_begin(struct exmap_call *call, struct exmap *map, struct exmap_interface *interface,
		      struct exmap_entry *entries, unsigned int count, bool nowait);
void exmap_call_end(struct exmap_call *call);

/* alloc.c: results are in the entries. */
int exmap_alloc(struct exmap_call *call);
int exmap_free(struct exmap_call *call);
int exmap_lock_mm(struct exmap *map, bool nowait);

/* frame.c: frames in use by reads */
int exmap_frame_hold(struct exmap_walk *walk, u64 page, u32 *frame);
void exmap_frame_drop(struct exmap *map, u32 frame);
void exmap_frames_unmapped(struct exmap *map);

/* vma.c */
struct vm_area_struct *exmap_vma(struct exmap *map);
int exmap_mmap(struct file *file, struct vm_area_struct *vma);

/* read.c */
struct io_uring_cmd;
ssize_t exmap_read_iter(struct kiocb *iocb, struct iov_iter *to);
long exmap_read_entries(struct exmap *map, struct exmap_interface *interface, const struct exmap_action *action,
			struct io_uring_cmd *cmd, unsigned int issue_flags);

/* action.c */
long exmap_action(struct exmap *map, const struct exmap_action *action, struct io_uring_cmd *cmd,
		  unsigned int issue_flags);
int exmap_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

/* statistics.c */
int exmap_statistics_init(void);
void exmap_statistics_exit(void);
void exmap_statistics_read(struct exmap *map, struct exmap_statistics *out);

/* symbols.c */
int exmap_symbols_find(void);

#endif
