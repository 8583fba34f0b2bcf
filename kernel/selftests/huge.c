// SPDX-License-Identifier: GPL-2.0
/* Transparent huge pages that are mapped, split or made while the child's copy is under way; hugetlb. */
#define _GNU_SOURCE
#include "selftest.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define PATIENCE_MS 8000

static struct region region;

static long huge_kb(void)
{
	return read_field("/proc/self/smaps_rollup", "AnonHugePages");
}

/* The first half of the tables huge, the second small. */
static void half_huge(void)
{
	size_t half = DEFAULT_TABLES / 2 * TABLE_BYTES;

	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	must(madvise(region.base, half, MADV_HUGEPAGE));
	region_fill(&region, 1);
	if (huge_kb() < 2048)
		skip("no huge page was given out");
	opt_in();
}

static void finish(struct snapshot *child)
{
	region_write_randomly(&region, 3000, 2);
	snapshot_end(child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void mapped(void)
{
	half_huge();
	struct snapshot child = snapshot_fork(&region, 1);

	finish(&child);
}

static void split(void)
{
	half_huge();
	struct snapshot child = snapshot_fork(&region, 1);
	char *base = region.base;

	must(mprotect(base + 10 * PAGE_BYTES, PAGE_BYTES, PROT_READ));
	must(mprotect(base + 10 * PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE));
	must(madvise(base + TABLE_BYTES, 7 * PAGE_BYTES, MADV_DONTNEED));
	for (size_t page = TABLE_PAGES; page < TABLE_PAGES + 7; page++)
		page_write(&region, page, 2);
	must(madvise(base, region.pages * PAGE_BYTES, MADV_NOHUGEPAGE));
	finish(&child);
}

/* The parent's own small pages, the child's too, become huge ones. */
static void collapse(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);
	size_t bytes = region.pages * PAGE_BYTES;

	must(madvise(region.base, bytes, MADV_HUGEPAGE));
	madvise(region.base, bytes / 2, MADV_COLLAPSE);		/* refused: what a fork has left is all read-only */
	for (size_t page = 0; page < region.pages; page += TABLE_PAGES)
		page_write(&region, page, 1);
	if (madvise(region.base, bytes, MADV_COLLAPSE) && errno != EAGAIN && errno != EBUSY && errno != ENOMEM &&
	    errno != EINVAL)
		fail("MADV_COLLAPSE: %s", strerror(errno));
	if (mode == MODE_DEFAULT && huge_kb() < 2048)
		skip("nothing was collapsed");
	expect(huge_kb() >= 2048, "nothing was collapsed");
	finish(&child);
}

static void collapse_in_child(void)
{
	region = region_map(DEFAULT_TABLES / 2 * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	pid_t child = must_fork();

	if (!child) {
		madvise(region.base, region.pages * PAGE_BYTES, MADV_HUGEPAGE);
		madvise(region.base, region.pages * PAGE_BYTES, MADV_COLLAPSE);
		size_t wrong = region_wrong(&region, 1);

		region_fill(&region, 5);
		wrong += region_wrong(&region, 5);
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	region_write_randomly(&region, 3000, 2);
	expect_exit(child, VERDICT_PASS, "the child");
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* The kernel's own thread collapses during and after the copy, in both processes. */
static void khugepaged(void)
{
	long collapsed = read_number(THP "khugepaged/pages_collapsed");

	if (collapsed < 0)
		skip("no khugepaged");
	must_write_file(THP "khugepaged/defrag", "1");
	must_write_file(THP "khugepaged/scan_sleep_millisecs", "0");
	must_write_file(THP "khugepaged/alloc_sleep_millisecs", "0");
	must_write_file(THP "khugepaged/pages_to_scan", "20000");
	region = region_map(DEFAULT_TABLES / 2 * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	must(madvise(region.base, region.pages * PAGE_BYTES, MADV_HUGEPAGE));
	for (int waited = 0; waited < PATIENCE_MS / 8; waited += 50) {
		region_write_randomly(&region, 50, 2);
		sleep_ms(50);
	}
	snapshot_end(&child);
	/* With the child gone the pages are the parent's alone, and have to become huge. */
	for (int waited = 0; read_number(THP "khugepaged/pages_collapsed") == collapsed; waited += 20) {
		expect(waited < PATIENCE_MS, "khugepaged collapsed nothing");
		region_write_randomly(&region, 50, 2);
		sleep_ms(20);
	}
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
	must_write_file(THP "khugepaged/defrag", "0");
	must_write_file(THP "khugepaged/scan_sleep_millisecs", "10000");
}

static void hugetlb(void)
{
	size_t pages = 4;
	char *shared, *private;

	if (!write_file("/proc/sys/vm/nr_hugepages", "20") || read_number("/proc/sys/vm/nr_hugepages") < 20)
		skip("no hugetlb pages");
	private = mmap(NULL, pages * TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
		       -1, 0);
	shared = mmap(NULL, pages * TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1,
		      0);
	expect(private != MAP_FAILED && shared != MAP_FAILED, "mmap: %s", strerror(errno));
	struct region huge;

	region_adopt(&huge, private, pages * TABLE_BYTES);
	region_fill(&huge, 1);
	shared[5] = 1;
	region = region_map(8 * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&huge, 1), other = snapshot_fork(&region, 1);

	region_write_randomly(&huge, 20, 2);
	shared[5] = 2;
	must(munmap(shared, pages * TABLE_BYTES));
	snapshot_end(&child);
	finish(&other);
	must(munmap(private, pages * TABLE_BYTES));
	must_write_file("/proc/sys/vm/nr_hugepages", "0");
}

/*
 * Pages of 64 KiB: sixteen entries with one folio, on arm64 with the contiguous hint. Whole, in parts, swapped out, after
 * a second fork.
 */
static void multi_size(void)
{
	size_t bytes = DEFAULT_TABLES * TABLE_BYTES, part = 7 * PAGE_BYTES;
	long given;

	if (!write_file(THP "hugepages-64kB/enabled", "madvise"))
		skip("no huge pages of 64 kB");
	must_write_file(THP "hugepages-2048kB/enabled", "never");
	given = read_number(THP "hugepages-64kB/stats/anon_fault_alloc");
	region = region_map(bytes);
	must(madvise(region.base, bytes, MADV_HUGEPAGE));
	region_fill(&region, 1);
	expect(read_number(THP "hugepages-64kB/stats/anon_fault_alloc") >= given + (long)(bytes / 65536 / 2),
	       "few huge pages of 64 kB were given out");
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	must(madvise((char *)region.base + 3 * TABLE_BYTES + PAGE_BYTES, part, MADV_DONTNEED));
	for (size_t page = 3 * TABLE_PAGES + 1; page < 3 * TABLE_PAGES + 8; page++)
		page_write(&region, page, 1);
	must(madvise((char *)region.base + 5 * TABLE_BYTES, TABLE_BYTES, MADV_PAGEOUT));
	struct snapshot second = snapshot_fork(&region, 1);

	region_write_randomly(&region, 3000, 2);
	must(madvise(region.base, bytes, MADV_PAGEOUT));
	snapshot_end(&second);
	finish(&child);
	must_write_file(THP "hugepages-64kB/enabled", "never");
	must_write_file(THP "hugepages-2048kB/enabled", "inherit");
}

const struct scenario scenarios[] = {
	{ "mapped", mapped, MODES_ALL },
	{ "split", split, MODES_ALL },
	{ "collapse", collapse, MODES_ALL },
	{ "collapse_in_child", collapse_in_child, MODES_ALL },
	{ "khugepaged", khugepaged, MODES_ALL },
	{ "hugetlb", hugetlb, MODES_ALL },
	{ "multi_size", multi_size, MODES_ALL },
	{ 0 },
};
