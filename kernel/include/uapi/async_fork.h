/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What user space and the async_fork module share: fixed-width fields, explicit padding, sizes checked on both sides
 * (here by static assertions, in crates/fork by const assertions).
 *
 * /dev/async_fork, mode 0600:
 *   write(2) one struct async_fork_control  sets the fork strategy of one process (its mm); the caller needs CAP_SYS_ADMIN
 *     in the first user namespace, else EPERM; ASYNC_FORK_ODF unless the module was loaded with allow_odf=1: EOPNOTSUPP
 *   read(2)  one struct async_fork_statistics  a snapshot of the counters; each read at offset 0 takes a new one
 * /proc/async_fork, mode 0444: the same statistics as "name value" lines, for people and scripts.
 * /proc/async_fork_processes, mode 0600: what the module knows of single processes, a line each:
 *     setting PID STRATEGY THREADS                  has a strategy of its own (default, async, odf)
 *     refused PID WHY COUNT SINCE LAST NAME         opted in, but its last COUNT forks took the default path; the times are
 *       seconds UTC of the first and of the last one. The line goes when a fork is deferred again, or the process ends
 *   write(2) of a PID, which takes CAP_SYS_ADMIN: then a read has one line instead
 *     asked PID STRATEGY THREADS own|cgroup WHY|-   how it would fork now, and why not; ESRCH if there is no such process
 * memory.async_fork in every memory cgroup but the root: "0" default fork, "1".."64" Async-fork with that many copy
 *   threads, "odf" On-Demand-Fork. A process's own setting wins over its cgroup's. The same right, the same errors:
 *   owning the cgroup is not enough. No more threads work than there are CPUs online.
 */
#ifndef _UAPI_ASYNC_FORK_H
#define _UAPI_ASYNC_FORK_H

#include <linux/types.h>

#define ASYNC_FORK_DEVICE "/dev/async_fork"
#define ASYNC_FORK_VERSION 1
#define ASYNC_FORK_THREADS_MAX 64

enum async_fork_strategy {
	ASYNC_FORK_INHERIT = 0,	/* forget the process's own setting: its cgroup decides */
	ASYNC_FORK_DEFAULT = 1,	/* the kernel's own fork */
	ASYNC_FORK_ASYNC = 2,	/* the child copies the page tables (Async-fork, VLDB 2023) */
	ASYNC_FORK_ODF = 3,	/* page tables are shared until written (On-Demand-Fork, EuroSys 2021) */
};

struct async_fork_control {
	__u32 size;		/* sizeof(struct async_fork_control), else EINVAL */
	__u32 version;		/* ASYNC_FORK_VERSION, else EINVAL */
	__s32 pid;		/* in the caller's pid namespace; 0: the caller */
	__u32 strategy;		/* enum async_fork_strategy */
	__u32 copy_threads;	/* 1 to ASYNC_FORK_THREADS_MAX with ASYNC_FORK_ASYNC, else 0 */
	__u32 reserved;		/* 0 */
};

/* Who or what made a table be copied (Async-fork) or unshared (On-Demand-Fork). */
enum async_fork_reason {
	ASYNC_FORK_BY_CHILD,		/* the child, before it returns to user mode */
	ASYNC_FORK_BY_HELPER,		/* a copy thread of the child */
	ASYNC_FORK_BY_FAULT,		/* the rest: proactive synchronisation. Page fault of the parent */
	ASYNC_FORK_BY_CHILD_FAULT,	/* access to the child's memory before its copy was complete */
	ASYNC_FORK_BY_GUP,		/* get_user_pages: direct I/O, io_uring, ptrace */
	ASYNC_FORK_BY_ZAP,		/* munmap, madvise, exit */
	ASYNC_FORK_BY_MPROTECT,
	ASYNC_FORK_BY_MREMAP,
	ASYNC_FORK_BY_WALK,		/* a page table walker: smaps, mincore, madvise */
	ASYNC_FORK_BY_UFFD,
	ASYNC_FORK_BY_REFORK,		/* the parent forks again */
	ASYNC_FORK_BY_PARENT_EXIT,	/* exit or exec */
	ASYNC_FORK_BY_SWAPOFF,
	ASYNC_FORK_BY_COREDUMP,
	ASYNC_FORK_BY_KSM,
	ASYNC_FORK_BY_COLLAPSE,		/* khugepaged, huge page split */
	ASYNC_FORK_BY_POISON,		/* memory failure: the page must go */
	ASYNC_FORK_REASONS = 20,	/* room for more without a new version */
};

/* Why a fork of an opted-in process took the default path. */
enum async_fork_refusal {
	ASYNC_FORK_REFUSED_PINNED,	/* MMF_HAS_PINNED: DMA into its pages may be under way */
	ASYNC_FORK_REFUSED_NOTIFIER,	/* mmu notifiers: KVM, RDMA, GPU */
	ASYNC_FORK_REFUSED_SWAPOFF,	/* swapoff under way */
	ASYNC_FORK_REFUSED_NO_MEMORY,
	ASYNC_FORK_REFUSED_UNLOADING,
	ASYNC_FORK_REFUSED_MERGEABLE,	/* KSM may hold one of its pages (MADV_MERGEABLE) */
	ASYNC_FORK_REFUSALS = 8,
};

#define ASYNC_FORK_BUCKETS 40	/* bucket i: [2^i, 2^(i+1)) ns */

struct async_fork_statistics {
	__u32 size;
	__u32 version;
	__u64 forks_seen;		/* every fork of the machine since load */
	__u64 forks_async;
	__u64 forks_odf;
	__u64 forks_refused[ASYNC_FORK_REFUSALS];
	__u64 sessions_live;		/* Async-fork sessions not complete */
	__u64 odf_mms_live;		/* processes that share tables */
	__u64 tables_deferred;		/* Async-fork: left to the child at fork */
	__u64 tables_copied[ASYNC_FORK_REASONS];
	__u64 tables_shared;		/* On-Demand-Fork: shared at fork */
	__u64 tables_unshared[ASYNC_FORK_REASONS];	/* copied */
	__u64 tables_last_owner;	/* taken back without a copy: the other sharers were gone */
	__u64 tables_detached;		/* dropped whole */
	__u64 tables_rolled_back;
	__u64 sessions_failed;
	__u64 children_killed;		/* because their copy failed */
	__u64 migration_waits;
	__u64 gup_retries;
	__u64 numa_skips;
	__u64 oom_reaper_skips;
	__u64 rmap_refused;		/* On-Demand-Fork: reclaim or migration of a page under a shared table */
	__u64 bad_pmd_caught;		/* the safety net: a walker that nobody hooked. Report it */
	__u64 fork_ns_last;		/* dup_mmap of the last opted-in fork */
	__u64 fork_ns_max;
	__u64 fork_ns_total;
	__u64 child_copy_ns_last;	/* from the child's first run to its last table */
	__u64 child_copy_ns_max;
	__u64 child_copy_ns_total;
	__u64 sync_ns_max;		/* longest interruption of the parent */
	__u64 sync_ns_total;
	__u64 sync_histogram[ASYNC_FORK_BUCKETS];	/* interruptions of the parent (paper, Figure 11) */
};

#ifdef __cplusplus
#define STATIC_ASSERT_OF_UAPI static_assert
#else
#define STATIC_ASSERT_OF_UAPI _Static_assert
#endif
STATIC_ASSERT_OF_UAPI(sizeof(struct async_fork_control) == 24, "async_fork_control is part of the ABI");
STATIC_ASSERT_OF_UAPI(sizeof(struct async_fork_statistics) == 920, "async_fork_statistics is part of the ABI");

#undef STATIC_ASSERT_OF_UAPI

#endif
