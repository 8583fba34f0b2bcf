// SPDX-License-Identifier: GPL-2.0
/* File mappings and shared memory next to what is deferred. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>

#include "selftest.h"

#define TABLES 6

static int memory_file(size_t bytes)
{
	int fd = must(memfd_create("region", MFD_CLOEXEC));

	must(ftruncate(fd, bytes));
	return fd;
}

static struct region map_file(int fd, size_t bytes, int flags)
{
	struct region region = region_map(bytes);

	expect(mmap(region.base, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == region.base,
	       "mmap: %s", strerror(errno));
	return region;
}

/* Pages of a private file mapping that were written are anonymous; the others are the file's. */
static void private(void)
{
	int fd = memory_file(TABLES * TABLE_BYTES);
	struct region shared = map_file(fd, TABLES * TABLE_BYTES, MAP_SHARED);
	struct region region = map_file(fd, TABLES * TABLE_BYTES, MAP_PRIVATE);

	region_fill(&shared, 1);
	for (size_t page = 0; page < region.pages; page += 2)
		page_write(&region, page, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	for (size_t page = 0; page < region.pages; page += 3)
		page_write(&region, page, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
	expect(!region_wrong(&shared, 1), "a private write reached the file");
}

/*
 * The kernel zaps private copies, too, when a file is cut; in the child that has not copied as well. That child looks
 * when the file is long again: until then what lies behind its end is SIGBUS.
 */
static void truncated(void)
{
	int fd = memory_file(TABLES * TABLE_BYTES);
	struct region region = map_file(fd, TABLES * TABLE_BYTES, MAP_PRIVATE);
	struct region anonymous = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	region_fill(&anonymous, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&anonymous, 1);
	int ends[2];
	char byte = 0;

	must(pipe(ends));
	pid_t other = must_fork();

	if (!other) {
		must(read(ends[0], &byte, 1));
		size_t wrong = range_wrong(&region, 0, TABLE_PAGES, 1);

		for (size_t page = TABLE_PAGES; page < region.pages; page++)
			wrong += *(uint64_t *)(region.base + page * PAGE_BYTES) != 0;
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	must(ftruncate(fd, TABLE_BYTES));
	must(ftruncate(fd, TABLES * TABLE_BYTES));
	must(write(ends[1], &byte, 1));
	expect_exit(other, VERDICT_PASS, "the child that reads the truncated file");
	region_write_randomly(&anonymous, 1000, 2);
	snapshot_end(&child);
}

static struct { struct region shared, own; } both;

/* The child sees what the parent writes into shared memory after the cut, and the cut's state of what is its own. */
static size_t check_both(const void *unused)
{
	(void)unused;
	return region_wrong(&both.own, 1) + region_mixed_wrong(&both.shared, 1, 2);
}

static void with_shared(int fd)
{
	both.shared = map_file(fd, TABLES * TABLE_BYTES, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0));
	both.own = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&both.shared, 1);
	region_fill(&both.own, 1);
	opt_in();
	struct snapshot child = snapshot_fork_check(check_both, NULL);
	pid_t reader = must_fork();

	if (!reader) {
		for (int waited = 0; waited < 10000; waited += 10) {
			if (!region_mixed_wrong(&both.shared, 2, 2))
				_exit(VERDICT_PASS);
			sleep_ms(10);
		}
		_exit(VERDICT_FAIL);
	}
	region_fill(&both.shared, 2);
	region_write_randomly(&both.own, 1000, 2);
	expect_exit(reader, VERDICT_PASS, "the child that waits for shared writes");
	snapshot_end(&child);
	must(munmap(both.shared.base, TABLES * TABLE_BYTES));
}

static void shared_file(void)
{
	with_shared(memory_file(TABLES * TABLE_BYTES));
}

static void shared_anonymous(void)
{
	with_shared(-1);
}

/* Every other table a file's, every other anonymous: VMAs that end in the middle of tables on both sides. */
static void interleaved(void)
{
	int fd = memory_file(TABLE_BYTES);
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	for (size_t page = 300; page + 300 < region.pages; page += 2000)
		expect(mmap(region.base + page * PAGE_BYTES, 300 * PAGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_FIXED,
			    fd, 0) != MAP_FAILED, "mmap: %s", strerror(errno));
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	region_write_randomly(&region, 4000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

const struct scenario scenarios[] = {
	{ "private", private, MODES_ALL },
	{ "truncated", truncated, MODES_ALL },
	{ "shared_file", shared_file, MODES_ALL },
	{ "shared_anonymous", shared_anonymous, MODES_ALL },
	{ "interleaved", interleaved, MODES_ALL },
	{ 0 },
};
