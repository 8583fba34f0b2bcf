// SPDX-License-Identifier: GPL-2.0
/* Pages that move while parent and child share them, or share the table that maps them. */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

#include "selftest.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
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

		expect(moved == region.pages, "only %zu pages of %zu moved", moved, region.pages);
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
		if (madvise(region.base + page * PAGE_BYTES, PAGE_BYTES, MADV_SOFT_OFFLINE) && errno != EBUSY &&
		    errno != EIO)
			skip("MADV_SOFT_OFFLINE: %s", strerror(errno));
	region_write_randomly(&region, 1000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* Tables that were synchronised because somebody changed their protection. */
static uint64_t tables_by_mprotect(void)
{
	struct async_fork_statistics now = statistics();

	return now.tables_copied[ASYNC_FORK_BY_MPROTECT] + now.tables_unshared[ASYNC_FORK_BY_MPROTECT];
}

/* Writes on either CPU in turn, so that the scanner has something to find out. */
static void write_here_and_there(uint64_t generation, unsigned int ms)
{
	uint64_t end = now_ns() + ms * 1000000ULL;

	for (int cpu = 0; now_ns() < end; cpu ^= 1) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		sched_setaffinity(0, sizeof(set), &set);
		region_write_randomly(&region, 2000, generation);
	}
}

/*
 * The scanner takes away access to find out who uses what; the pages follow the task to its node. A mere sample is no
 * reason to copy a table. The scanner comes after a second of CPU time of the process: as many rounds as that takes.
 */
#define SCANNER_ROUNDS 40

static void numa_balancing(void)
{
	need_two_nodes();
	must_write_file("/proc/sys/kernel/numa_balancing", "1");
	write_file("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", "1");
	write_file("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", "1");
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	uint64_t skips = statistics().numa_skips, copied = tables_by_mprotect(), sampled = 0, skipped = 0;

	for (int round = 0; round < SCANNER_ROUNDS && (round < 3 || !(sampled || skipped)); round++) {
		struct snapshot child = snapshot_fork(&region, 1);

		write_here_and_there(1, 300);
		snapshot_end(&child);
		sampled = tables_by_mprotect() - copied;
		skipped = statistics().numa_skips - skips;
		if (mode == MODE_DEFAULT && round == 2)
			break;
	}
	must_write_file("/proc/sys/kernel/numa_balancing", "0");
	expect(!sampled, "%lu tables were copied for a sample", sampled);
	if (mode != MODE_DEFAULT && !skipped)
		missed("the scanner did not come while there was something to leave alone");
	expect(!region_wrong(&region, 1), "the parent lost writes");
}

/*
 * A page under a shared table stays where it is. If it were moved or swapped out, the entry would change for both
 * processes, but the TLB is flushed only where the process runs whose mapping the rmap walk finds first, the parent's.
 * The child reads the same pages again and again on the other CPU, so its TLB never forgets them; their old frames get
 * new contents, and whoever reads through the old translation sees those, unless something else has flushed that TLB.
 * move_pages() and mbind() are no use here, they walk the table and unshare it; compaction and reclaim come through the
 * reverse map.
 */
#define WATCHED_PAGES 24		/* in a row: fits every TLB, also QEMU's, which is direct-mapped */
#define CANDIDATE_BYTES (160UL << 20)
#define FILLER_BYTES (640UL << 20)	/* about what is free on node 0 */

static struct watch { volatile int ready, stop; volatile size_t wrong; } *watch;

static void watch_pages(void)
{
	run_on(0, 2);
	while (!watch->stop) {
		for (size_t page = 0; page < WATCHED_PAGES; page++)
			if (*(volatile uint64_t *)(region.base + page * PAGE_BYTES + 8) != 1)
				watch->wrong++;
		watch->ready = 1;
	}
	_exit(watch->wrong ? VERDICT_FAIL : VERDICT_PASS);
}

/* A frame that is given out again is zeroed. */
static void overwrite_free_frames(void)
{
	struct region filler = region_map(FILLER_BYTES);
	unsigned long node0 = 1;

	must(syscall(SYS_mbind, filler.base, FILLER_BYTES, MPOL_PREFERRED, &node0, 8, 0));
	must(madvise(filler.base, FILLER_BYTES, MADV_POPULATE_WRITE));
	must(munmap(filler.base, FILLER_BYTES));
}

static uint64_t frame_of(const char *address)
{
	int fd = must(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	uint64_t entry = 0;

	must(pread(fd, &entry, sizeof(entry), (uintptr_t)address / PAGE_BYTES * 8));
	close(fd);
	return entry & ((1ULL << 55) - 1);
}

/* One table's worth of pages at the low end of node 0, where compaction takes them from; the rest is free again. */
static void region_in_low_frames(void)
{
	struct region many = region_map(CANDIDATE_BYTES);
	unsigned long node0 = 1;
	char *lowest = many.base;

	must(syscall(SYS_mbind, many.base, CANDIDATE_BYTES, MPOL_BIND, &node0, 8, 0));
	region_fill(&many, 7);
	for (char *table = many.base; table < many.base + CANDIDATE_BYTES; table += TABLE_BYTES)
		if (frame_of(table) < frame_of(lowest))
			lowest = table;
	region_adopt(&region, lowest, TABLE_BYTES);
	region_fill(&region, 1);
	must(madvise(many.base, lowest - many.base, MADV_DONTNEED));
	must(madvise(lowest + TABLE_BYTES, many.base + CANDIDATE_BYTES - lowest - TABLE_BYTES, MADV_DONTNEED));
}

static uint64_t watched_frames[WATCHED_PAGES];

/* How many of the watched pages are not where they were. Walks the table, so it is no longer shared afterwards. */
static size_t watched_pages_moved(void)
{
	size_t moved = 0;

	for (size_t page = 0; page < WATCHED_PAGES; page++)
		moved += frame_of(region.base + page * PAGE_BYTES) != watched_frames[page];
	return moved;
}

static void watched_while(void (*moving)(void))
{
	uint64_t refused;
	size_t moved;

	need_two_nodes();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip("one CPU");
	run_on(0, 1);
	watch = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	opt_in();
	region_in_low_frames();
	for (size_t page = 0; page < WATCHED_PAGES; page++)
		watched_frames[page] = frame_of(region.base + page * PAGE_BYTES);
	refused = statistics().rmap_refused;
	pid_t child = must_fork();

	if (!child)
		watch_pages();
	while (!watch->ready)
		sleep_ms(1);
	for (int i = 0; i < 3; i++)
		moving();
	overwrite_free_frames();
	sleep_ms(5);
	moved = watched_pages_moved();
	watch->stop = 1;
	dprintf(STDOUT_FILENO, "%zu of %d watched pages moved\n", moved, WATCHED_PAGES);
	expect_exit(child, VERDICT_PASS, "the child that reads all the time");
	expect(mode != MODE_ODF || !moved, "a page moved below a shared table");
	if (!moved && statistics().rmap_refused == refused)
		missed("nobody tried to move the watched pages");
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

static void compact(void)
{
	must_write_file("/proc/sys/vm/compact_memory", "1");
}

static void stale_after_migration(void)
{
	watched_while(compact);
}

static char reclaim_path[256];

static void reclaim(void)
{
	if (!write_file(reclaim_path, "8M") && errno != EAGAIN)
		skip("memory.reclaim: %s", strerror(errno));
}

static void stale_after_reclaim(void)
{
	if (read_field("/proc/meminfo", "SwapTotal") <= 0)
		skip("no swap");
	snprintf(reclaim_path, sizeof(reclaim_path), "%s/memory.reclaim", cgroup_enter("stale"));
	watched_while(reclaim);
}

/* ---------- memory failure ---------- */

#define POISONED_PAGE (3 * TABLE_PAGES + 77)

static sigjmp_buf after_bus_error;

/* Later kernels also tell everybody who maps the page, at once: that is no access. */
static volatile enum { TOLD, EXPECTED, UNEXPECTED } bus_error;

static void on_bus_error(int number)
{
	(void)number;
	if (bus_error == EXPECTED)
		siglongjmp(after_bus_error, 1);
	if (bus_error == UNEXPECTED)
		fail("a page is gone that was not broken");
}

static bool can_be_read(size_t page)
{
	if (sigsetjmp(after_bus_error, 1))
		return false;
	bus_error = EXPECTED;
	page_shows(&region, page, 1);
	return true;
}

/* The page is gone, every other is there. Returns the number of pages of which that is not true. */
static size_t check_all_but_poisoned(const void *unused)
{
	size_t wrong;

	(void)unused;
	wrong = can_be_read(POISONED_PAGE);
	bus_error = UNEXPECTED;
	if (wrong)
		dprintf(STDOUT_FILENO, "pid %d: the broken page can still be read\n", getpid());
	wrong += range_wrong(&region, 0, POISONED_PAGE, 1);
	return wrong + range_wrong(&region, POISONED_PAGE + 1, region.pages - POISONED_PAGE - 1, 1);
}

/* Memory breaks while parent and child both map it: both lose the page, and only that. */
static void poisoned(void)
{
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_RESTART };

	must(sigaction(SIGBUS, &action, NULL));
	region = region_map(6 * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork_idle(check_all_but_poisoned, NULL);

	if (madvise(region.base + POISONED_PAGE * PAGE_BYTES, PAGE_BYTES, MADV_HWPOISON)) {
		if (errno == EINVAL)
			skip("the kernel does not handle memory failure");
		fail("MADV_HWPOISON: %s", strerror(errno));
	}
	expect(!check_all_but_poisoned(NULL), "the parent");
	snapshot_end(&child);
}

const struct scenario scenarios[] = {
	{ "move_parent", move_parent, MODES_ALL },
	{ "move_child", move_child, MODES_ALL },
	{ "mbind", bind_and_migrate, MODES_ALL },
	{ "compaction", compaction, MODES_ALL },
	{ "soft_offline", soft_offline, MODES_ALL },
	{ "poisoned", poisoned, MODES_ALL },
	{ "numa_balancing", numa_balancing, MODES_ALL },
	{ "stale_after_migration", stale_after_migration, MODE_DEFAULT | MODE_ODF },
	{ "stale_after_reclaim", stale_after_reclaim, MODE_DEFAULT | MODE_ODF },
	{ 0 },
};
