// SPDX-License-Identifier: GPL-2.0
/* Files in /proc and system calls that walk page tables, on the parent and on a child that is not complete yet. */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "selftest.h"

#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_SWAPPED (1ULL << 62)
#define PAGEMAP_EXCLUSIVE (1ULL << 56)	/* mapped once */

static struct region region;

static struct snapshot begin(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	return snapshot_fork(&region, 1);
}

static void finish(struct snapshot *child)
{
	region_write_randomly(&region, 2000, 2);
	snapshot_end(child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void drain(pid_t pid, const char *name)
{
	static char block[65536];
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int fd = must(open(path, O_RDONLY | O_CLOEXEC));
	ssize_t length, all = 0;

	while ((length = read(fd, block, sizeof(block))) > 0)
		all += length;
	expect(length == 0 && all > 0, "reading %s: %zd bytes, %s", path, all, strerror(errno));
	close(fd);
}

static long resident_kb(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	return read_field(path, "Rss");
}

static void smaps(void)
{
	struct snapshot child = begin();
	long wanted = region.pages * 4;

	expect(resident_kb(getpid()) >= wanted, "smaps_rollup of the parent: %ld kB", resident_kb(getpid()));
	expect(resident_kb(child.pid) >= wanted, "smaps_rollup of the child: %ld kB", resident_kb(child.pid));
	drain(getpid(), "smaps");
	drain(child.pid, "smaps");
	drain(getpid(), "numa_maps");
	drain(child.pid, "numa_maps");
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

/* Pages of the region whose entries in pagemap have any of `bits`. */
static size_t pagemap_count(pid_t pid, uint64_t bits)
{
	static uint64_t entries[TABLE_PAGES];
	char path[64];
	size_t count = 0;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	int fd = must(open(path, O_RDONLY | O_CLOEXEC));

	for (size_t table = 0; table < DEFAULT_TABLES; table++) {
		off_t offset = ((uintptr_t)region.base / PAGE_BYTES + table * TABLE_PAGES) * 8;

		expect(pread(fd, entries, sizeof(entries), offset) == sizeof(entries), "pagemap: %s", strerror(errno));
		for (size_t i = 0; i < TABLE_PAGES; i++)
			count += !!(entries[i] & bits);
	}
	close(fd);
	return count;
}

static size_t pagemap_missing(pid_t pid)
{
	return region.pages - pagemap_count(pid, PAGEMAP_PRESENT | PAGEMAP_SWAPPED);
}

static void pagemap(void)
{
	struct snapshot child = begin();

	expect(!pagemap_missing(getpid()), "pagemap lacks pages of the parent");
	expect(!pagemap_missing(child.pid), "pagemap lacks pages of the child");
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

static size_t check_region(const void *unused)
{
	(void)unused;
	return region_wrong(&region, 1);
}

/* What parent and child have both is not exclusive to either, whoever's table it is. */
static void pagemap_shared(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork_idle(check_region, NULL);
	size_t exclusive = pagemap_count(getpid(), PAGEMAP_EXCLUSIVE);

	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	expect(!exclusive, "%zu pages that the child has as well are exclusive to the parent", exclusive);
	exclusive = pagemap_count(child.pid, PAGEMAP_EXCLUSIVE);
	expect(!exclusive, "%zu pages that the parent has as well are exclusive to the child", exclusive);
	finish(&child);
}

static void core_map(void)
{
	struct snapshot child = begin();
	unsigned char *resident = malloc(region.pages);
	size_t missing = 0;

	must(mincore(region.base, region.pages * PAGE_BYTES, resident));
	for (size_t page = 0; page < region.pages; page++)
		missing += !(resident[page] & 1);
	expect(!missing, "mincore says that %zu pages are not resident", missing);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

static void clear_refs(void)
{
	struct snapshot child = begin();

	for (const char *what = "12345"; *what; what++) {
		char path[64], text[2] = { *what, 0 };

		must_write_file("/proc/self/clear_refs", text);
		snprintf(path, sizeof(path), "/proc/%d/clear_refs", child.pid);
		must_write_file(path, text);
		region_write_randomly(&region, 100, 2);
	}
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

/* What the child accounts for once it has its tables. */
static void accounting(void)
{
	struct snapshot child = begin();
	char path[64];
	long slack = 1024;	/* each thread keeps up to 64 pages of its own */
	long wanted = region.pages * 4 - slack, seen = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", child.pid);
	for (int waited = 0; waited < 3000; waited += 20) {
		seen = read_field(path, "RssAnon");
		if (seen >= wanted)
			break;
		sleep_ms(20);
	}
	expect(seen >= wanted, "RssAnon of the complete child: %ld kB of %ld", seen, wanted);
	expect(seen <= wanted + 4096, "RssAnon of the child: %ld kB, its region has %ld", seen, wanted);
	seen = read_field("/proc/self/status", "RssAnon");
	expect(seen >= wanted && seen <= wanted + 4096, "RssAnon of the parent: %ld kB, its region has %ld", seen,
	       wanted);
	finish(&child);
}

const struct scenario scenarios[] = {
	{ "smaps", smaps, MODES_ALL },
	{ "pagemap", pagemap, MODES_ALL },
	{ "pagemap_shared", pagemap_shared, MODES_ALL },
	{ "mincore", core_map, MODES_ALL },
	{ "clear_refs", clear_refs, MODES_ALL },
	{ "accounting", accounting, MODE_DEFAULT | MODES_ASYNC },
	{ 0 },
};
