// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation of the module fails once: fail_at=1, 2, ... until a fork needs fewer. The parent survives with its
 * memory as it was; fork() fails, or the child dies, or the child is right.
 */
#define _GNU_SOURCE
#include "selftest.h"

#define TABLES 8
#define MOST 400	/* allocations that one round may need at most */

static struct region region;
static struct { int failed_forks, killed, right; } seen;

static void prepare(void)
{
	region = region_map(TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	if (parameter_get("fail_at") < 0)
		fail("the module has no parameter fail_at");
}

static void parent_writes(void)
{
	for (size_t page = 31; page < region.pages; page += TABLE_PAGES / 2)
		page_write(&region, page, 1);
}

static void parent_remaps(void)
{
	must(mprotect(region.base, 2 * TABLE_BYTES, PROT_READ));
	must(mprotect(region.base, 2 * TABLE_BYTES, PROT_READ | PROT_WRITE));
	must(munmap(region.base + 3 * TABLE_BYTES, TABLE_BYTES));
	expect(mmap(region.base + 3 * TABLE_BYTES, TABLE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap: %s", strerror(errno));
	for (size_t page = 3 * TABLE_PAGES; page < 4 * TABLE_PAGES; page++)
		page_write(&region, page, 1);
}

static void parent_forks(void)
{
	pid_t second = fork();

	if (!second)
		_exit(0);
	if (second > 0)
		wait_status(second);
}

static void parent_swaps(void)
{
	must(madvise(region.base, region.pages * PAGE_BYTES, MADV_PAGEOUT));
	parent_writes();
}

/* One fork with the nth allocation failing; false once there is no nth. */
static bool round_with(int nth, void (*meanwhile)(void))
{
	char text[16];
	long allocations;

	snprintf(text, sizeof(text), "%d", nth);
	if (!parameter_set("fail_at", text))
		fail("fail_at: %s", strerror(errno));
	pid_t child = fork();

	if (!child) {
		size_t wrong = region_wrong(&region, 1);

		for (size_t page = 40; page < region.pages; page += TABLE_PAGES)
			page_write(&region, page, 1);
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	if (child > 0) {
		meanwhile();
		int status = wait_status(child);

		expect(WIFSIGNALED(status) || WEXITSTATUS(status) == VERDICT_PASS,
		       "allocation %d: the child saw something else", nth);
		if (WIFSIGNALED(status))
			seen.killed++;
		else
			seen.right++;
	} else {
		seen.failed_forks++;
		meanwhile();
	}
	allocations = parameter_get("allocations");
	parameter_set("fail_at", "0");
	expect(!region_wrong(&region, 1), "allocation %d: the parent's memory changed", nth);
	return allocations >= nth;
}

static void fail_each(void (*meanwhile)(void))
{
	int nth = 1;

	while (round_with(nth, meanwhile)) {
		nth++;
		expect(nth < MOST, "a fork of %d tables needs more than %d allocations", TABLES, MOST);
	}
	dprintf(STDOUT_FILENO, "%d allocations: %d forks failed, %d children died, %d were right\n", nth - 1,
		seen.failed_forks, seen.killed, seen.right);
	expect(nth > 1, "the module allocates nothing");
	expect(seen.failed_forks + seen.killed > 0, "no failure had a consequence");
}

static void write_meanwhile(void)
{
	prepare();
	fail_each(parent_writes);
}

static void remap_meanwhile(void)
{
	prepare();
	fail_each(parent_remaps);
}

static void fork_meanwhile(void)
{
	prepare();
	fail_each(parent_forks);
}

static void swap_meanwhile(void)
{
	if (read_field("/proc/meminfo", "SwapTotal") <= 0)
		skip("no swap");
	prepare();
	fail_each(parent_swaps);
}

const struct scenario scenarios[] = {
	{ "write", write_meanwhile, MODES_MODULE },
	{ "remap", remap_meanwhile, MODES_MODULE },
	{ "fork", fork_meanwhile, MODES_MODULE },
	{ "swap", swap_meanwhile, MODES_MODULE },
	{ 0 },
};
