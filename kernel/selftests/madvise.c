// SPDX-License-Identifier: GPL-2.0
/* Advice about the parent's or the child's memory while the child's copy is under way, and KSM. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>

#include "selftest.h"

#define KSM "/sys/kernel/mm/ksm/"
#define KSM_SCANS 3
#define KSM_PATIENCE_MS 8000

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
	region_write_randomly(&region, 3000, 2);
	snapshot_end(child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void advise_all(int advice)
{
	must(madvise(region.base, region.pages * PAGE_BYTES, advice));
}

static void dontneed(void)
{
	struct snapshot child = begin();

	for (size_t first = 0; first + 600 < region.pages; first += 700)
		must(madvise(region.base + first * PAGE_BYTES, 600 * PAGE_BYTES, MADV_DONTNEED));
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	for (size_t first = 0; first + 600 < region.pages; first += 700)
		for (size_t page = first; page < first + 600; page += 50) {
			uint64_t *word = (uint64_t *)(region.base + page * PAGE_BYTES);

			expect(!word[0] && !word[1], "the parent sees what it gave back");
			page_write(&region, page, 2);
		}
	snapshot_end(&child);
}

static void dontneed_all(void)
{
	struct snapshot child = begin();

	advise_all(MADV_DONTNEED);
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	region_fill(&region, 2);
	snapshot_end(&child);
	expect(!region_wrong(&region, 2), "the parent lost writes");
}

static void lazy_free(void)
{
	struct snapshot child = begin();

	advise_all(MADV_FREE);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	region_fill(&region, 2);
	snapshot_end(&child);
	expect(!region_wrong(&region, 2), "the parent lost writes");
}

static void cold(void)
{
	struct snapshot child = begin();

	advise_all(MADV_COLD);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

static void pageout(void)
{
	struct snapshot child = begin();

	advise_all(MADV_PAGEOUT);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	advise_all(MADV_WILLNEED);
	finish(&child);
}

static void populate(void)
{
	struct snapshot child = begin();

	advise_all(MADV_POPULATE_READ);
	advise_all(MADV_POPULATE_WRITE);
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	finish(&child);
}

/* From a third process, on the parent and on the child that has not run yet. */
static void from_outside(void)
{
	struct snapshot child = begin();
	pid_t parent = getpid(), other = vfork();

	if (!other) {
		struct iovec all = { region.base, region.pages * PAGE_BYTES };
		pid_t target[] = { child.pid, parent };

		for (int i = 0; i < 2; i++) {
			int fd = syscall(SYS_pidfd_open, target[i], 0);

			if (fd < 0 || syscall(SYS_process_madvise, fd, &all, 1, MADV_COLD, 0) < 0 ||
			    syscall(SYS_process_madvise, fd, &all, 1, MADV_PAGEOUT, 0) < 0)
				_exit(errno);
		}
		_exit(0);
	}
	int status = wait_status(other);

	expect(!status, "process_madvise: %s", strerror(WEXITSTATUS(status)));
	finish(&child);
}

/* ---------- KSM ---------- */

static void ksm_start(void)
{
	if (!write_file(KSM "run", "0"))
		skip("no KSM");
	must_write_file(KSM "sleep_millisecs", "0");
	must_write_file(KSM "pages_to_scan", "20000");
	must_write_file(KSM "run", "1");
}

static void ksm_scan(void)
{
	long start = read_number(KSM "full_scans");

	for (int waited = 0; read_number(KSM "full_scans") < start + KSM_SCANS; waited += 20) {
		expect(waited < KSM_PATIENCE_MS, "ksmd does not get through its lists");
		sleep_ms(20);
	}
}

static void ksm_stop(void)
{
	must_write_file(KSM "run", "2");	/* unmerges */
	must_write_file(KSM "run", "0");
}

/* Page p is like page p + half: KSM merges them. */
static void fill_with_twins(void)
{
	size_t half = region.pages / 2;

	for (size_t page = 0; page < half; page++)
		memset(region.base + page * PAGE_BYTES, 1 + page % 200, PAGE_BYTES);
	memcpy(region.base + half * PAGE_BYTES, region.base, half * PAGE_BYTES);
}

static size_t check_twins(const void *unused)
{
	size_t half = region.pages / 2, wrong = 0;

	(void)unused;
	for (size_t page = 0; page < region.pages; page++) {
		unsigned char *bytes = (unsigned char *)region.base + page * PAGE_BYTES;

		wrong += bytes[0] != 1 + page % half % 200 || bytes[4095] != 1 + page % half % 200;
	}
	return wrong;
}

static void write_over_twins(void)
{
	for (size_t page = 0; page < region.pages; page += 7)
		memset(region.base + page * PAGE_BYTES, 250, PAGE_BYTES);
	for (size_t page = 0; page < region.pages; page += 7)
		expect((unsigned char)region.base[page * PAGE_BYTES + 99] == 250, "the parent lost writes");
}

static void ksm_during_copy(void)
{
	ksm_start();
	region = region_map(8 * TABLE_BYTES);
	fill_with_twins();
	opt_in();
	struct snapshot child = snapshot_fork_check(check_twins, NULL);

	advise_all(MADV_MERGEABLE);
	ksm_scan();
	expect(read_number(KSM "pages_sharing") > 0, "KSM merged nothing");
	write_over_twins();
	snapshot_end(&child);
	ksm_stop();
}

static void ksm_before_fork(void)
{
	ksm_start();
	region = region_map(8 * TABLE_BYTES);
	fill_with_twins();
	advise_all(MADV_MERGEABLE);
	ksm_scan();
	expect(read_number(KSM "pages_sharing") > 0, "KSM merged nothing");
	opt_in();
	struct snapshot child = snapshot_fork_check(check_twins, NULL);

	ksm_scan();
	write_over_twins();
	advise_all(MADV_UNMERGEABLE);
	snapshot_end(&child);
	ksm_stop();
}

const struct scenario scenarios[] = {
	{ "dontneed", dontneed, MODES_ALL },
	{ "dontneed_all", dontneed_all, MODES_ALL },
	{ "free", lazy_free, MODES_ALL },
	{ "cold", cold, MODES_ALL },
	{ "pageout", pageout, MODES_ALL },
	{ "populate", populate, MODES_ALL },
	{ "process_madvise", from_outside, MODES_ALL },
	{ "ksm_during_copy", ksm_during_copy, MODES_ALL },
	{ "ksm_before_fork", ksm_before_fork, MODES_ALL },
	{ 0 },
};
