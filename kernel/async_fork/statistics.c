// SPDX-License-Identifier: GPL-2.0
/* Counters. Relaxed: a reading is not a cut through all of them. */
#include <linux/log2.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>

#include "internal.h"

struct af_counters af_count;
DEFINE_PER_CPU(u64, af_forks_seen);

static void af_raise_max(atomic64_t *max, u64 value)
{
	s64 old = atomic64_read(max);

	while (value > old && !atomic64_try_cmpxchg(max, &old, value))
		;
}

/*
 * One interruption of the parent (paper, Figure 11). The address and the reason are for a kprobe: docs/guide/kernel-module.md,
 * Watching. Not a tracepoint: 6.1 lets a module go while a trigger is set on its tracepoint, and then warns.
 */
noinline void af_interrupted(unsigned long addr, enum async_fork_reason reason, u64 ns)
{
	unsigned int bucket = ns ? min_t(unsigned int, ilog2(ns), ASYNC_FORK_BUCKETS - 1) : 0;

	atomic64_inc(&af_count.sync_histogram[bucket]);
	atomic64_add(ns, &af_count.sync_ns_total);
	af_raise_max(&af_count.sync_ns_max, ns);
}

void af_note_fork(u64 ns)
{
	atomic64_set(&af_count.fork_ns_last, ns);
	atomic64_add(ns, &af_count.fork_ns_total);
	af_raise_max(&af_count.fork_ns_max, ns);
}

void af_note_child_copy(u64 ns)
{
	atomic64_set(&af_count.child_copy_ns_last, ns);
	atomic64_add(ns, &af_count.child_copy_ns_total);
	af_raise_max(&af_count.child_copy_ns_max, ns);
}

/* The counters that are one number and have the same name here and in struct async_fork_statistics. */
#define AF_SCALARS(X)							\
	X(forks_async) X(forks_odf) X(sessions_live) X(odf_mms_live)	\
	X(tables_deferred) X(tables_shared) X(tables_last_owner)	\
	X(tables_detached) X(tables_rolled_back) X(sessions_failed)	\
	X(children_killed) X(migration_waits) X(gup_retries)		\
	X(numa_skips) X(oom_reaper_skips) X(rmap_refused)		\
	X(bad_pmd_caught) X(fork_ns_last) X(fork_ns_max)		\
	X(fork_ns_total) X(child_copy_ns_last) X(child_copy_ns_max)	\
	X(child_copy_ns_total) X(sync_ns_max) X(sync_ns_total)

static void af_read_array(u64 *out, atomic64_t *counters, int count)
{
	while (count-- > 0)
		out[count] = atomic64_read(&counters[count]);
}

void af_statistics_read(struct async_fork_statistics *out)
{
	int cpu;

	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->version = ASYNC_FORK_VERSION;
	for_each_possible_cpu(cpu)
		out->forks_seen += per_cpu(af_forks_seen, cpu);
#define X(name) out->name = atomic64_read(&af_count.name);
	AF_SCALARS(X)
#undef X
	af_read_array(out->forks_refused, af_count.forks_refused, ASYNC_FORK_REFUSALS);
	af_read_array(out->tables_copied, af_count.tables_copied, ASYNC_FORK_REASONS);
	af_read_array(out->tables_unshared, af_count.tables_unshared, ASYNC_FORK_REASONS);
	af_read_array(out->sync_histogram, af_count.sync_histogram, ASYNC_FORK_BUCKETS);
}

static const char *const af_reasons[] = {
	[ASYNC_FORK_BY_CHILD] = "child",
	[ASYNC_FORK_BY_HELPER] = "helper",
	[ASYNC_FORK_BY_FAULT] = "fault",
	[ASYNC_FORK_BY_CHILD_FAULT] = "child_fault",
	[ASYNC_FORK_BY_GUP] = "gup",
	[ASYNC_FORK_BY_ZAP] = "zap",
	[ASYNC_FORK_BY_MPROTECT] = "mprotect",
	[ASYNC_FORK_BY_MREMAP] = "mremap",
	[ASYNC_FORK_BY_WALK] = "walk",
	[ASYNC_FORK_BY_UFFD] = "uffd",
	[ASYNC_FORK_BY_REFORK] = "refork",
	[ASYNC_FORK_BY_PARENT_EXIT] = "parent_exit",
	[ASYNC_FORK_BY_SWAPOFF] = "swapoff",
	[ASYNC_FORK_BY_COREDUMP] = "coredump",
	[ASYNC_FORK_BY_KSM] = "ksm",
	[ASYNC_FORK_BY_COLLAPSE] = "collapse",
	[ASYNC_FORK_BY_POISON] = "poison",
};

static const char *const af_refusals[] = {
	[ASYNC_FORK_REFUSED_PINNED] = "pinned",
	[ASYNC_FORK_REFUSED_NOTIFIER] = "notifier",
	[ASYNC_FORK_REFUSED_SWAPOFF] = "swapoff",
	[ASYNC_FORK_REFUSED_NO_MEMORY] = "no_memory",
	[ASYNC_FORK_REFUSED_UNLOADING] = "unloading",
	[ASYNC_FORK_REFUSED_MERGEABLE] = "mergeable",
};

const char *af_refusal_name(enum async_fork_refusal why)
{
	return af_refusals[why];
}

static void af_show_named(struct seq_file *m, const char *prefix, const u64 *values, const char *const *names,
			  int count)
{
	int i;

	for (i = 0; i < count; i++)
		seq_printf(m, "%s_%s %llu\n", prefix, names[i], values[i]);
}

/* /proc/async_fork */
int af_statistics_show(struct seq_file *m, void *unused)
{
	struct async_fork_statistics *s = kmalloc(sizeof(*s), GFP_KERNEL);
	int i;

	if (!s)
		return -ENOMEM;
	af_statistics_read(s);
	seq_printf(m, "version %u\nforks_seen %llu\n", s->version, s->forks_seen);
#define X(name) seq_printf(m, #name " %llu\n", s->name);
	AF_SCALARS(X)
#undef X
	seq_printf(m, "rmap_flushes %llu\n", (u64)atomic64_read(&af_count.rmap_flushes));
	af_show_named(m, "forks_refused", s->forks_refused, af_refusals, ARRAY_SIZE(af_refusals));
	af_show_named(m, "tables_copied", s->tables_copied, af_reasons, ARRAY_SIZE(af_reasons));
	af_show_named(m, "tables_unshared", s->tables_unshared, af_reasons, ARRAY_SIZE(af_reasons));
	/* sync_histogram_N: interruptions of at least N ns and less than 2 N */
	for (i = 0; i < ASYNC_FORK_BUCKETS; i++)
		if (s->sync_histogram[i])
			seq_printf(m, "sync_histogram_%llu %llu\n", 1ULL << i, s->sync_histogram[i]);
	kfree(s);
	return 0;
}
