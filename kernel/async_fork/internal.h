/* SPDX-License-Identifier: GPL-2.0 */
/* Types and functions shared by the files of the module. Invariant numbers: docs/internals/kernel-module.md. */
#ifndef _AF_INTERNAL_H
#define _AF_INTERNAL_H

#undef pr_fmt
#define pr_fmt(fmt) "async_fork: " fmt

#include <linux/mm.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/task_work.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include <async_fork.h>
#include "compat.h"

/* ---- roles.c: what an mm is to us; one hash table, keyed by mm ---- */

enum af_kind {
	AF_PARENT,	/* parent of a session: some of its tables are protected */
	AF_CHILD,	/* child of a session: some of its tables are not there yet */
	AF_ODF,		/* shares tables */
	AF_SETTING,	/* has a strategy of its own */
	AF_REFUSED,	/* opted in, but its last fork took the default path */
};

#define AF_LIVE_ROLES (BIT(AF_PARENT) | BIT(AF_CHILD) | BIT(AF_ODF))

struct af_role {
	struct hlist_node node;
	struct mm_struct *mm;
	enum af_kind kind;
	bool hashed;		/* under the table's lock */
};

/* Number of hashed roles that make hooks necessary, and of all roles; read by the trampolines. */
extern atomic_t af_live;
extern atomic_t af_tracked;

/* The table of roles; arch_x86.c reads a bucket's first word in assembler. */
#define AF_ROLE_BITS 10
#define AF_ROLE_FACTOR 0x61C8864680B583EB	/* GOLDEN_RATIO_64 */

extern struct hlist_head af_roles[1 << AF_ROLE_BITS];

static inline struct hlist_head *af_role_bucket(struct mm_struct *mm)
{
	return &af_roles[(unsigned long)mm * AF_ROLE_FACTOR >> (64 - AF_ROLE_BITS)];
}

void af_role_add(struct af_role *role, struct mm_struct *mm, enum af_kind kind);
bool af_role_remove(struct af_role *role);
struct af_role *af_role_find(struct mm_struct *mm, enum af_kind kind);
unsigned int af_roles_of(struct mm_struct *mm);
struct af_role *af_role_any(enum af_kind kind);

/*
 * Which forks have been: of all processes that opted in, and of one mm. Both are raised after the roles of a fork are
 * hashed and before its first table is protected, and again when tables have been shared. GUP-fast and reclaim, which
 * work without mmap_lock, read them before and after: if both differ, a fork of this mm began or ended in between
 * (invariant 6). The mm's is the kernel's own sequence of forks that write-protect, so forks of others cost nothing.
 */
struct af_generation {
	int all;
	unsigned int mm;
};

extern atomic_t af_generation_of_all;

/* With the forking mm's mmap_lock held for writing, as the sequence wants. */
static inline void af_generation_raise(struct mm_struct *mm)
{
	smp_mb();			/* the hashed roles before the generation */
	raw_write_seqcount_begin(&mm->write_protect_seq);
	raw_write_seqcount_end(&mm->write_protect_seq);
	smp_mb__before_atomic();
	atomic_inc(&af_generation_of_all);
	smp_mb__after_atomic();		/* the generation before the first protected table */
}

static inline struct af_generation af_generation_of(struct mm_struct *mm)
{
	struct af_generation now = { .all = atomic_read_acquire(&af_generation_of_all) };

	/* acquire: the generation before the roles, and before the entries */
	now.mm = smp_load_acquire(&mm->write_protect_seq.sequence);
	return now;
}

bool af_mm_has_forked(struct mm_struct *mm, const struct af_generation *before);

static inline bool af_has_forked(struct mm_struct *mm, const struct af_generation *before)
{
	smp_mb();	/* what was done with the entries before the generation */
	return unlikely(before->all != atomic_read(&af_generation_of_all)) && af_mm_has_forked(mm, before);
}

extern atomic_t af_swapoffs;	/* under way */

/* ---- strategy.c, settings.c, cgroup.c ---- */

struct seq_file;

struct af_strategy {
	enum async_fork_strategy strategy;
	unsigned int copy_threads;	/* with ASYNC_FORK_ASYNC only */
};

int af_strategy_may_be_set(struct file *file, enum async_fork_strategy strategy);
void af_strategy_show(struct seq_file *m, const char *what, pid_t pid, const struct af_strategy *strategy);
int af_setting_set(struct mm_struct *mm, const struct af_strategy *strategy, pid_t pid);
void af_setting_forget(struct mm_struct *mm);
unsigned int af_settings_drop(void);
void af_settings_show(struct seq_file *m);
struct af_strategy af_strategy_of(struct task_struct *task, struct mm_struct *mm, bool *own);
int af_cgroup_add(void);
void af_cgroup_remove(void);
bool af_cgroup_strategy(struct task_struct *task, struct af_strategy *strategy);
unsigned int af_cgroups_forgotten(void);

/* refused.c */
void af_refused_note(struct mm_struct *mm, enum async_fork_refusal why);
void af_refused_forget(struct mm_struct *mm);
void af_refused_drop_all(void);
void af_refused_show(struct seq_file *m);

/* control.c, processes.c */
int af_control_add(void);
void af_control_remove(void);
struct mm_struct *af_mm_of_pid(pid_t pid, struct task_struct **task);
int af_processes_add(void);
void af_processes_remove(void);

/* ---- test_aids.c: in a module that is built for tests (make AF_TEST=1) only ---- */

/* Where a test build can be made to wait: bits of its parameter delay_at, each the name of what comes next. */
enum af_step {
	AF_STEP_SHARE,		/* the parent's entry is protected, the child has none yet (atomic) */
	AF_STEP_SHARED,		/* a VMA's tables are shared, the generation is not raised again */
	AF_STEP_FORK_ENDS,	/* dup_mmap() has ended, the child still counts as being made */
	AF_STEP_UNMAP,		/* munmap: in 6.1 and later the VMA is in no tree any more, mmap_lock only held for reading */
	AF_STEP_UNSHARE,	/* a protected entry was seen, no lock is held yet */
	AF_STEP_LET_GO,		/* flushed, the number of owners is still what it was (atomic) */
	AF_STEP_TAKE_BACK,	/* one owner is left, the entry is still protected (atomic) */
	AF_STEP_DETACH,		/* the entry is still there (atomic) */
	AF_STEP_SWEEP,		/* all tables that were found are taken back, the role is still hashed */
	AF_STEP_EXIT,		/* all tables are let go, the role is still hashed */
	AF_STEP_RMAP,		/* reclaim: the table was found not to be shared */
	AF_STEP_COPY,		/* Async-fork: the table is claimed, not copied yet (atomic) */
};

/* More copy threads than CPUs help nobody; the tests have few CPUs. */
#ifdef AF_TEST
#define af_copy_threads_most() ASYNC_FORK_THREADS_MAX
extern unsigned int af_slow_us;
bool af_allocation_fails(void);
bool af_is_skipped(const char *what);
bool af_skip_is_no_check(void);
const char *af_skipped(void);
void af_step(enum af_step step);
void af_step_atomic(enum af_step step);
#else
#define af_copy_threads_most() num_online_cpus()
#define af_slow_us 0
static inline bool af_allocation_fails(void) { return false; }
static inline bool af_is_skipped(const char *what) { return false; }
static inline bool af_skip_is_no_check(void) { return false; }
static inline const char *af_skipped(void) { return ""; }
static inline void af_step(enum af_step step) { }
static inline void af_step_atomic(enum af_step step) { }
#endif

/* ---- page_table.c; the marker of a protected table: arch_*.h ---- */

pmd_t *af_pmd_find(struct mm_struct *mm, unsigned long addr);
pmd_t *af_pmd_alloc(struct mm_struct *mm, unsigned long addr);
pgtable_t af_table_alloc_for(struct mm_struct *child, struct mem_cgroup *memcg);
pgtable_t af_table_alloc(struct mm_struct *mm);
pgtable_t af_table_alloc_nofail(struct mm_struct *mm);
void af_table_lock_class(pte_t *like, pte_t *new);

static inline pte_t *af_table_of(struct page *table)
{
	return (pte_t *)page_address(table);
}

/* ---- fill.c ---- */

/* What must be waited for, without locks, before a table can be copied. */
struct af_blocker {
	enum { AF_BLOCKED_BY_MIGRATION, AF_BLOCKED_BY_SWAP_COUNT } kind;
	unsigned int index;	/* of the migration entry */
	swp_entry_t entry;	/* whose count needs a continuation page */
};

int af_fill_table(struct mm_struct *src_mm, struct mm_struct *dst_mm, unsigned long addr, pte_t *src, pte_t *dst,
		  long *rss, struct af_blocker *blocker);
int af_unblock(struct mm_struct *mm, pmd_t *pmd, unsigned long addr, const struct af_blocker *blocker);
void af_rss_add(struct mm_struct *mm, const long *rss, int sign);
void af_mmlist_add(struct mm_struct *mm);

/* ---- sessions: Async-fork ---- */

/*
 * Life of one table of a session; one byte each, changed by cmpxchg:
 *
 *	                     ┌───────claim──────▶
 *	NONE ──defer──▶ PENDING                  BUSY ──▶ DONE
 *	                     ◀──must wait first──┘
 *
 * NONE: not part of the session. PENDING: protected in the parent, absent in the child, the parent's table cannot be
 * freed (invariant 2). BUSY: one task copies it or rolls it back, every other task that needs it waits. That task keeps its
 * CPU until it is done, or has given the table back (invariant 11). DONE: the parent's entry is writable again; the
 * child has its copy, or the session has failed and the child never runs.
 */
enum af_state { AF_NONE, AF_PENDING, AF_BUSY, AF_DONE };

struct af_chunk {		/* the tables of 1 GiB */
	u8 state[PTRS_PER_PMD];
};

/*
 * Life of a session:
 *
 *	created ─first table deferred─▶ deferring ─dup_mmap ends─▶ ready ─no table pending─▶ complete
 *	                                    │                        │
 *	                                    └────────┬───────────────┘
 *	                                  no memory, child killed
 *	                                             ▼
 *	                                      failed: tables are rolled back instead of copied, the child is killed
 *
 * The parent's role is hashed from the first deferred table until no table is pending; the child's from creation until
 * its copy is complete, after a failure until its exit_mmap (invariant 9). References: one for each hashed role, one
 * for the task work, one for whoever looked it up.
 */
struct af_session {
	struct af_role parent;
	struct af_role child;
	refcount_t ref;
	unsigned long flags;
#define AF_READY	0	/* dup_mmap has ended: its TLB flush is done, mmap_lock is free */
#define AF_FAILED	1
	atomic_long_t pending;		/* tables PENDING or BUSY */
	struct xarray chunks;		/* by addr >> PUD_SHIFT */
	struct mem_cgroup *memcg;	/* the child's; set before the child runs */
	unsigned int copy_threads;
	struct callback_head work;	/* the child's, before it returns to user mode */
	struct mutex cursor_lock;
	unsigned long cursor;		/* next share of work, in units of AF_SHARE_TABLES */
	struct rcu_head rcu;
};

struct af_session *af_session_new(struct mm_struct *parent, struct mm_struct *child, unsigned int copy_threads);
void af_session_put(struct af_session *s);
struct af_session *af_session_of_parent(struct mm_struct *mm);
struct af_session *af_session_of_child(struct mm_struct *mm);
struct af_session *af_session_any(void);
void af_session_open(struct af_session *s);
void af_session_ready(struct af_session *s);
void af_session_leave_parent(struct af_session *s);
void af_session_leave_child(struct af_session *s);
void af_session_table_done(struct af_session *s, u8 *state);
u8 *af_session_state(struct af_session *s, unsigned long addr);
bool af_table_claim(u8 *state);
void af_state_wait(u8 *state);
void af_table_give_back(u8 *state);

static inline bool af_session_failed(struct af_session *s)
{
	return test_bit(AF_FAILED, &s->flags);
}

/* hook_fork.c: a fork that is not a default one, while dup_mmap() runs. */
struct af_fork {
	struct af_session *session;	/* NULL: On-Demand-Fork, or there was no memory for it */
	struct af_odf_mm *sharer;	/* the child; NULL: Async-fork, or there was no memory for it */
	u64 start_ns;
};

bool af_fork_is_ours(struct mm_struct *parent, struct af_strategy *how);
void af_fork_begins(struct af_fork *fork, const struct af_strategy *how, struct mm_struct *child,
		    struct mm_struct *parent);
void af_fork_ends(struct af_fork *fork, bool failed);
void af_refuse(enum async_fork_refusal why);
bool af_fork_would_be_refused(struct mm_struct *mm, enum async_fork_refusal *why);

/* copy.c */
void af_sync_table(struct af_session *s, unsigned long addr, enum async_fork_reason reason);
void af_sync_range(struct af_session *s, unsigned long start, unsigned long end, enum async_fork_reason reason);
void af_sync_mm(struct mm_struct *mm, unsigned long start, unsigned long end, enum async_fork_reason reason);
void af_sync_mm_unlocked(struct mm_struct *mm, unsigned long start, unsigned long end,
			 enum async_fork_reason reason);
bool af_range_pending(struct af_session *s, unsigned long start, unsigned long end);

/* rollback.c */
bool af_session_mark_failed(struct af_session *s);
void af_session_tell_failed(int error);
void af_session_fail(struct af_session *s, int error);
void af_table_roll_back(struct af_session *s, u8 *state, unsigned long addr);
void af_session_roll_back(struct af_session *s);

/* child.c */
int af_child_init(void);
void af_child_exit(void);
void af_child_copies(struct callback_head *work);

/* defer.c */
bool af_vma_can_defer(struct vm_area_struct *vma);
int af_copy_part(struct vm_area_struct *dst, struct vm_area_struct *src, unsigned long start, unsigned long end);
int af_defer_vma(struct af_session *s, struct vm_area_struct *dst, struct vm_area_struct *src);

/* ---- On-Demand-Fork ---- */

/*
 * Owners of a shared table. af_owners(table) is the number of mms whose PMD entry points to it, pt_mm the one whose
 * RSS counters include its pages (NULL: nobody's).
 *
 *	private ─fork shares─▶ shared by 2 ─fork─▶ shared by n
 *	   ▲                       │ a sharer writes or reads a missing page: gets a copy of its own
 *	   │                       │ a sharer unmaps all of it or exits: detaches, no copy
 *	   │                       ▼
 *	   └─touched by the── shared by 1 (still protected)
 *	     last, or swept
 *
 * Changes of one mm's entries for shared tables are made under om->lock; changes of the number of owners under the
 * table's ptl, or at fork, when the forking mm is an owner and its mmap_lock is held for writing (invariant 12). The
 * role stays until no entry is protected (invariant 17).
 */
struct af_odf_mm {
	struct af_role role;
	struct mutex lock;
	atomic_long_t entries;	/* protected, in this mm's page tables */
	refcount_t ref;
	struct list_head list;
	unsigned int pass;	/* the last one that visited it, under the list's lock */
	bool forking;		/* a child whose fork has not ended: it may come to share a table at any time */
	bool is_parent;		/* it has shared its tables, so its faults are the parent's interruptions */
	struct rcu_head rcu;
};

/*
 * Not page_count(): anybody may hold a reference to any page for a moment (a lookup in the page cache that comes too
 * late, compaction, debugfs), and a last owner who took that for another owner would leave the table to whoever puts
 * the reference. The word is the second of lru, free in a table that is linked; the first must stay even, as in a tail
 * page it points to the head.
 */
static inline atomic_long_t *af_owners(struct page *table)
{
	BUILD_BUG_ON(sizeof(atomic_long_t) != sizeof(table->lru.prev));
	return (atomic_long_t *)&table->lru.prev;
}

enum af_unshare_how {
	AF_MAY_FAIL,	/* -ENOMEM is reported by the caller */
	AF_MUST_COPY,	/* the caller cannot fail: tries until there is memory */
	AF_MAY_NOT_WAIT,	/* under locks that reclaim takes: -ENOMEM or -EAGAIN */
};

/* odf_mm.c */
struct af_odf_mm *af_odf_of(struct mm_struct *mm);
void af_odf_put(struct af_odf_mm *om);

/* odf.c */
struct af_odf_mm *af_odf_add(struct mm_struct *mm, bool forking);
int af_odf_end(struct af_odf_mm *om);
void af_odf_exit(struct mm_struct *mm);
void af_odf_unshare_all(void);
void af_odf_sweep_later(void);
void af_odf_stop(void);

/* share.c */
int af_share_vma(struct af_odf_mm *om, struct af_odf_mm *child, struct vm_area_struct *dst, struct vm_area_struct *src);

/* unshare.c */
int af_unshare_table(struct af_odf_mm *om, unsigned long addr, enum af_unshare_how how, enum async_fork_reason reason);
int af_unshare_range(struct af_odf_mm *om, unsigned long start, unsigned long end, enum af_unshare_how how,
		     enum async_fork_reason reason);
void af_detach_range(struct af_odf_mm *om, struct vm_area_struct *vma, unsigned long start, unsigned long end,
		     enum async_fork_reason reason);
unsigned long af_take_back_range(struct af_odf_mm *om, unsigned long start, unsigned long end);
bool af_unshare_for_rmap(struct vm_area_struct *vma, unsigned long first, unsigned long last,
			 enum async_fork_reason reason);
bool af_table_is_shared_at(struct vm_area_struct *vma, unsigned long addr);

/* ---- statistics.c ---- */

struct af_counters {
	atomic64_t forks_async, forks_odf, forks_refused[ASYNC_FORK_REFUSALS];
	atomic64_t sessions_live, odf_mms_live;
	atomic64_t tables_deferred, tables_copied[ASYNC_FORK_REASONS];
	atomic64_t tables_shared, tables_unshared[ASYNC_FORK_REASONS];
	atomic64_t tables_last_owner, tables_detached, tables_rolled_back;
	atomic64_t sessions_failed, children_killed;
	atomic64_t migration_waits, gup_retries, numa_skips, oom_reaper_skips, rmap_refused, rmap_flushes, bad_pmd_caught;
	atomic64_t fork_ns_last, fork_ns_max, fork_ns_total;
	atomic64_t child_copy_ns_last, child_copy_ns_max, child_copy_ns_total;
	atomic64_t sync_ns_max, sync_ns_total;
	atomic64_t sync_histogram[ASYNC_FORK_BUCKETS];
};

extern struct af_counters af_count;
DECLARE_PER_CPU(u64, af_forks_seen);

void af_interrupted(unsigned long addr, enum async_fork_reason reason, u64 ns);
void af_note_fork(u64 ns);
void af_note_child_copy(u64 ns);
void af_statistics_read(struct async_fork_statistics *out);
int af_statistics_show(struct seq_file *m, void *unused);
const char *af_refusal_name(enum async_fork_refusal why);

#endif
