// SPDX-License-Identifier: GPL-2.0
/* System calls that change the parent's mappings while the child's copy is under way. */
#define _GNU_SOURCE
#include "selftest.h"

#define MAPPED_TABLES 24		/* the scenarios count on it */
#define AT(table) (region.base + (table) * TABLE_BYTES)

static struct region region;

static struct snapshot begin(size_t tables)
{
	region = region_map(tables * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	return snapshot_fork(&region, 1);
}

static void unmap(void)
{
	struct snapshot child = begin(MAPPED_TABLES);

	must(munmap(AT(2), 3 * TABLE_BYTES));				/* whole tables */
	must(munmap(AT(8) + 100 * PAGE_BYTES, 5 * PAGE_BYTES));		/* inside one */
	must(munmap(AT(10) + 300 * PAGE_BYTES, 2 * TABLE_BYTES));	/* across borders */
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	/* Something else at the same addresses: its tables are not those that the child is to copy. */
	expect(mmap(AT(2), 3 * TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       AT(2), "mmap: %s", strerror(errno));
	for (size_t page = 2 * TABLE_PAGES; page < 5 * TABLE_PAGES; page++)
		page_write(&region, page, 2);
	snapshot_end(&child);
	expect(!range_wrong(&region, 2 * TABLE_PAGES, 3 * TABLE_PAGES, 2), "the new mapping's data is wrong");
	expect(!range_wrong(&region, 14 * TABLE_PAGES, 10 * TABLE_PAGES, 1), "the parent's memory changed");
}

static void unmap_all(void)
{
	struct snapshot child = begin(MAPPED_TABLES);

	must(munmap(region.base, region.pages * PAGE_BYTES));
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	snapshot_end(&child);
}

static void map_over(void)
{
	struct snapshot child = begin(MAPPED_TABLES);

	expect(mmap(AT(0), 8 * TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       AT(0), "mmap: %s", strerror(errno));
	for (size_t page = 0; page < 8 * TABLE_PAGES; page += 5)
		page_write(&region, page, 3);
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	snapshot_end(&child);
}

static void remap_move(void)
{
	struct snapshot child = begin(MAPPED_TABLES);
	struct region target = region_map(region.pages * PAGE_BYTES), old = region;

	expect(mremap(old.base, 8 * TABLE_BYTES, 8 * TABLE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		      target.base) == target.base,
	       "mremap: %s", strerror(errno));
	/* By less than a table: PTE by PTE. */
	char *odd = target.base + 10 * TABLE_BYTES + 77 * PAGE_BYTES;

	expect(mremap(old.base + 10 * TABLE_BYTES, 4 * TABLE_BYTES, 4 * TABLE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		      odd) ==
	       odd, "mremap: %s", strerror(errno));
	expect_synchronised(&child.before, ASYNC_FORK_BY_MREMAP);
	expect(!range_wrong(&target, 0, 8 * TABLE_PAGES, 1), "the moved data is wrong");
	for (size_t page = 0; page < 8 * TABLE_PAGES; page += 3)
		page_write(&target, page, 2);
	for (size_t page = 0; page < 4 * TABLE_PAGES; page++)
		*(uint64_t *)(odd + page * PAGE_BYTES) = 7;
	snapshot_end(&child);
}

static void remap_grow_shrink(void)
{
	struct snapshot child = begin(MAPPED_TABLES);
	char *base = region.base;

	/* Behind the region is PROT_NONE, so it moves to grow. */
	must(munmap(base + 20 * TABLE_BYTES, 4 * TABLE_BYTES));
	base = mremap(base, 20 * TABLE_BYTES, 12 * TABLE_BYTES, 0);
	expect(base == region.base, "mremap shrink: %s", strerror(errno));
	base = mremap(base, 12 * TABLE_BYTES, 30 * TABLE_BYTES, MREMAP_MAYMOVE);
	expect(base != MAP_FAILED, "mremap grow: %s", strerror(errno));
	struct region moved;

	region_adopt(&moved, base, 30 * TABLE_BYTES);
	expect(!range_wrong(&moved, 0, 12 * TABLE_PAGES, 1), "the moved data is wrong");
	region_fill(&moved, 5);
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	snapshot_end(&child);
	expect(!region_wrong(&moved, 5), "the parent lost writes");
}

static void remap_dontunmap(void)
{
	struct snapshot child = begin(MAPPED_TABLES);
	char *moved = mremap(region.base, 8 * TABLE_BYTES, 8 * TABLE_BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	struct region there;

	expect(moved != MAP_FAILED, "mremap: %s", strerror(errno));
	region_adopt(&there, moved, 8 * TABLE_BYTES);
	expect(!region_wrong(&there, 1), "the moved data is wrong");
	for (size_t page = 0; page < 8 * TABLE_PAGES; page += 2)
		page_write(&region, page, 4);	/* the old place is empty, and is not the child's */
	expect_synchronised(&child.before, ASYNC_FORK_BY_MREMAP);
	snapshot_end(&child);
}

static void protect(void)
{
	struct snapshot child = begin(MAPPED_TABLES);

	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_READ));
	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_NONE));
	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_READ | PROT_WRITE));
	expect_synchronised(&child.before, ASYNC_FORK_BY_MPROTECT);
	region_write_randomly(&region, 3000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* Pages of the region that system calls can read. */
static size_t pages_readable(void)
{
	int ends[2];
	size_t readable = 0;
	char byte;

	must(pipe(ends));
	for (size_t page = 0; page < region.pages; page += 61)
		if (write(ends[1], region.base + page * PAGE_BYTES, 1) == 1)
			readable += read(ends[0], &byte, 1);
	close(ends[0]);
	close(ends[1]);
	return readable;
}

static size_t protect_and_check(const void *unused)
{
	(void)unused;
	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_READ));
	return region_wrong(&region, 1);
}

/* What the child may read is no matter of the parent's, which has locked its memory away before. */
static void protect_both(void)
{
	region = region_map(MAPPED_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork_idle(protect_and_check, NULL);

	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_NONE));
	expect_synchronised(&child.before, ASYNC_FORK_BY_MPROTECT);
	snapshot_end(&child);
	size_t readable = pages_readable();

	expect(!readable, "%zu pages are readable that the parent has locked away", readable);
	must(mprotect(region.base, region.pages * PAGE_BYTES, PROT_READ));
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* The child's own mapping calls right after its birth, the parent's writes at the same time. */
static void child_changes_mappings(void)
{
	region = region_map(MAPPED_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	pid_t child = must_fork();

	if (!child) {
		size_t wrong;

		must(mprotect(AT(4), 2 * TABLE_BYTES, PROT_READ));
		must(munmap(AT(20), 4 * TABLE_BYTES));
		must(madvise(AT(10), 2 * TABLE_BYTES, MADV_DONTNEED));
		wrong = range_wrong(&region, 0, 10 * TABLE_PAGES, 1) + range_wrong(&region, 12 * TABLE_PAGES,
										   8 * TABLE_PAGES, 1);
		for (size_t page = 10 * TABLE_PAGES; page < 12 * TABLE_PAGES; page++)
			wrong += *(uint64_t *)(region.base + page * PAGE_BYTES + 8) != 0;
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	region_write_randomly(&region, 4000, 2);
	expect_exit(child, VERDICT_PASS, "the child");
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void heap(void)
{
	char *start = sbrk(0);
	char *aligned = (char *)(((uintptr_t)start + TABLE_BYTES - 1) & ~(TABLE_BYTES - 1));

	must(brk(aligned + 16 * TABLE_BYTES));
	region_adopt(&region, aligned, 16 * TABLE_BYTES);
	madvise(aligned, 16 * TABLE_BYTES, MADV_NOHUGEPAGE);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	must(brk(aligned + 10 * TABLE_BYTES));
	must(brk(aligned + 20 * TABLE_BYTES));
	for (size_t page = 10 * TABLE_PAGES; page < 16 * TABLE_PAGES; page++)
		page_write(&region, page, 2);
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	snapshot_end(&child);
	expect(!range_wrong(&region, 0, 10 * TABLE_PAGES, 1), "the heap's old part changed");
	expect(!range_wrong(&region, 10 * TABLE_PAGES, 6 * TABLE_PAGES, 2), "the heap's new part is wrong");
}

static void lock(void)
{
	struct snapshot child = begin(MAPPED_TABLES);

	must(mlock(AT(1), 8 * TABLE_BYTES));
	must(munlock(AT(1), 4 * TABLE_BYTES));
	must(mlockall(MCL_CURRENT));
	must(munlockall());
	region_write_randomly(&region, 3000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* VMAs that fork leaves out or empties; their neighbours are deferred. */
static void dontfork_wipeonfork(void)
{
	region = region_map(MAPPED_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	must(madvise(AT(4), 2 * TABLE_BYTES, MADV_DONTFORK));
	must(madvise(AT(8), 2 * TABLE_BYTES, MADV_WIPEONFORK));
	opt_in();
	pid_t child = must_fork();

	if (!child) {
		unsigned char resident[1];
		size_t wrong = range_wrong(&region, 0, 4 * TABLE_PAGES, 1) + range_wrong(&region, 6 * TABLE_PAGES,
											 2 * TABLE_PAGES, 1) +
			range_wrong(&region, 10 * TABLE_PAGES, 14 * TABLE_PAGES, 1);

		if (mincore(AT(4), PAGE_BYTES, resident) == 0 || errno != ENOMEM)
			fail("child: the DONTFORK part is mapped");
		for (size_t page = 8 * TABLE_PAGES; page < 10 * TABLE_PAGES; page++)
			wrong += *(uint64_t *)(region.base + page * PAGE_BYTES + 8) != 0;
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	region_write_randomly(&region, 3000, 2);
	expect_exit(child, VERDICT_PASS, "the child");
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

const struct scenario scenarios[] = {
	{ "munmap", unmap, MODES_ALL },
	{ "munmap_all", unmap_all, MODES_ALL },
	{ "map_over", map_over, MODES_ALL },
	{ "mremap_move", remap_move, MODES_ALL },
	{ "mremap_grow_shrink", remap_grow_shrink, MODES_ALL },
	{ "mremap_dontunmap", remap_dontunmap, MODES_ALL },
	{ "mprotect", protect, MODES_ALL },
	{ "mprotect_both", protect_both, MODES_ALL },
	{ "child_changes", child_changes_mappings, MODES_ALL },
	{ "brk", heap, MODES_ALL },
	{ "mlock", lock, MODES_ALL },
	{ "dontfork_wipeonfork", dontfork_wipeonfork, MODES_ALL },
	{ 0 },
};
