// SPDX-License-Identifier: GPL-2.0
/* Pages that move while parent and child share them, or share the table that maps them. */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "selftest.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

static struct region region;

static void need_two_nodes(void)
{
	if (access("/sys/devices/system/node/node1", F_OK))
		skip("one memory node");
}

static struct snapshot begin(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	return snapshot_fork(&region, 1);
}

/* Moves every page of the region in `pid` to `node`; pages that more than one process maps need MPOL_MF_MOVE_ALL. */
static size_t move_to(pid_t pid, int node)
{
	void **pages = calloc(region.pages, sizeof(void *));
	int *nodes = calloc(region.pages, sizeof(int)), *status = calloc(region.pages, sizeof(int));
	size_t moved = 0;

	for (size_t page = 0; page < region.pages; page++) {
		pages[page] = region.base + page * PAGE_BYTES;
		nodes[page] = node;
	}
	must(syscall(SYS_move_pages, pid, region.pages, pages, nodes, status, MPOL_MF_MOVE_ALL));
	for (size_t page = 0; page < region.pages; page++)
		moved += status[page] == node;
	free(pages);
	free(nodes);
	free(status);
	return moved;
}

static void move_parent(void)
{
	need_two_nodes();
	struct snapshot child = begin();

	for (int i = 0; i < 4; i++) {
		size_t moved = move_to(getpid(), (i + 1) & 1);

		if (mode == MODE_DEFAULT)
			expect(moved == region.pages, "only %zu pages moved", moved);
		region_write_randomly(&region, 300, 2);
	}
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void move_child(void)
{
	need_two_nodes();
	struct snapshot child = begin();

	for (int i = 0; i < 4; i++) {
		move_to(child.pid, (i + 1) & 1);
		region_write_randomly(&region, 300, 2);
	}
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void bind_and_migrate(void)
{
	need_two_nodes();
	struct snapshot child = begin();
	unsigned long node0 = 1, node1 = 2;

	must(syscall(SYS_mbind, region.base, region.pages * PAGE_BYTES, MPOL_BIND, &node1, 8, MPOL_MF_MOVE_ALL));
	region_write_randomly(&region, 300, 2);
	must(syscall(SYS_migrate_pages, getpid(), 8, &node1, &node0));
	region_write_randomly(&region, 300, 2);
	must(syscall(SYS_migrate_pages, child.pid, 8, &node0, &node1));
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void compaction(void)
{
	struct snapshot child = begin();

	for (int i = 0; i < 3; i++) {
		must_write_file("/proc/sys/vm/compact_memory", "1");
		region_write_randomly(&region, 300, 2);
	}
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void soft_offline(void)
{
	struct snapshot child = begin();

	for (size_t page = 9; page < region.pages; page += 1500)	/* each page is lost to the machine */
		if (madvise(region.base + page * PAGE_BYTES, PAGE_BYTES, MADV_SOFT_OFFLINE) && errno != EBUSY && errno != EIO)
			skip("MADV_SOFT_OFFLINE: %s", strerror(errno));
	region_write_randomly(&region, 1000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* The scanner takes away access to find out who uses what; the pages follow the task to its node. */
static void numa_balancing(void)
{
	need_two_nodes();
	must_write_file("/proc/sys/kernel/numa_balancing", "1");
	write_file("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "1");
	write_file("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "1");
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	for (int round = 0; round < 3; round++) {
		struct snapshot child = snapshot_fork(&region, 1);
		uint64_t end = now_ns() + 300000000;

		for (int cpu = 0; now_ns() < end; cpu ^= 1) {
			cpu_set_t set;

			CPU_ZERO(&set);
			CPU_SET(cpu, &set);
			sched_setaffinity(0, sizeof(set), &set);
			region_write_randomly(&region, 2000, 1);
		}
		snapshot_end(&child);
	}
	must_write_file("/proc/sys/kernel/numa_balancing", "0");
	expect(!region_wrong(&region, 1), "the parent lost writes");
}

/*
 * The one thing that breaks if a page under a shared table is migrated: the page table entry is changed for both
 * processes, but the TLB is flushed only where the process runs whose mapping the rmap walk found first. The child
 * reads the same pages again and again on the other CPU, so its TLB never forgets them. The pages move away, their
 * old frames get new contents, and whoever reads through the old translation sees those.
 */
#define WATCHED_PAGES 24
#define WATCH_ROUNDS 12

static struct watch { volatile int ready, stop; volatile size_t wrong; } *watch;

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set));
}

static void watch_pages(void)
{
	while (!watch->stop) {
		for (size_t page = 0; page < WATCHED_PAGES; page++)
			if (*(volatile uint64_t *)(region.base + page * PAGE_BYTES + 8) != 1)
				watch->wrong++;
		watch->ready = 1;
	}
	_exit(watch->wrong ? VERDICT_FAIL : VERDICT_PASS);
}

/* Takes free pages of the node, so that the old frames are overwritten. */
static void overwrite_free_frames(int node)
{
	unsigned long mask = 1UL << node;
	size_t bytes = 32 << 20;
	char *more = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(more != MAP_FAILED, "mmap: %s", strerror(errno));
	madvise(more, bytes, MADV_NOHUGEPAGE);
	must(syscall(SYS_mbind, more, bytes, MPOL_BIND, &mask, 8, 0));
	memset(more, 0xee, bytes);
	munmap(more, bytes);
}

static void stale_translation(void)
{
	unsigned long node0 = 1;

	need_two_nodes();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip("one CPU");
	watch = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	region = region_map(TABLE_BYTES);
	must(syscall(SYS_mbind, region.base, TABLE_BYTES, MPOL_PREFERRED, &node0, 8, 0));
	region_fill(&region, 1);
	opt_in();
	for (int round = 0; round < WATCH_ROUNDS; round++) {
		memset((void *)watch, 0, sizeof(*watch));
		run_on(0);
		pid_t child = must_fork();

		if (!child) {
			run_on(1);
			watch_pages();
		}
		while (!watch->ready)
			sleep_ms(1);
		move_to(round & 1 ? child : getpid(), !(round & 1));
		overwrite_free_frames(round & 1);
		sleep_ms(5);
		watch->stop = 1;
		expect_exit(child, VERDICT_PASS, "the child that reads all the time");
		expect(!region_wrong(&region, 1), "the parent's memory changed");
	}
}

const struct scenario scenarios[] = {
	{ "move_parent", move_parent, MODES_ALL },
	{ "move_child", move_child, MODES_ALL },
	{ "mbind", bind_and_migrate, MODES_ALL },
	{ "compaction", compaction, MODES_ALL },
	{ "soft_offline", soft_offline, MODES_ALL },
	{ "numa_balancing", numa_balancing, MODES_ALL },
	{ "stale_translation", stale_translation, MODES_ALL },
	{ 0 },
};
