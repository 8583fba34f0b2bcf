// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork's tables when others come and go: processes that share, and references that are not owners'. */
#define _GNU_SOURCE
#include <signal.h>

#include "selftest.h"

#define SHARERS 3
#define FORKS 12
#define HELD_BYTES (8UL << 20)
#define SPLIT_ALL "/sys/kernel/debug/split_huge_pages"
#define SPARSE_TABLES 2048UL		/* of one page each */
#define SPARSE_MS 10000

/* Shares nothing, as it has no memory that fills a table, but each of its children ends with a sweep. */
static pid_t sharer(void)
{
	pid_t pid = must_fork();

	if (pid)
		return pid;
	opt_in();
	for (;;) {
		pid_t child = must_fork();

		if (!child)
			_exit(0);
		wait_status(child);
	}
}

/* Each fork shares its tables, also if a sweep comes while it waits for the parent's mmap_lock. */
static void forks_beside_sharers(void)
{
	struct region region;
	pid_t sharers[SHARERS];

	for (int i = 0; i < SHARERS; i++)
		sharers[i] = sharer();
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	hold_mmap_lock(HELD_BYTES);
	for (int round = 0; round < FORKS; round++) {
		uint64_t before = statistics().tables_shared, shared;
		pid_t child = must_fork();

		if (!child)
			_exit(range_wrong(&region, 0, TABLE_PAGES, 1) ? VERDICT_FAIL : VERDICT_PASS);
		shared = statistics().tables_shared - before;
		expect_exit(child, VERDICT_PASS, "the child");
		expect(shared >= DEFAULT_TABLES, "fork %d shared %lu tables of %d", round, shared, DEFAULT_TABLES);
	}
	for (int i = 0; i < SHARERS; i++) {
		must(kill(sharers[i], SIGKILL));
		wait_status(sharers[i]);
	}
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* ---------- references ---------- */

static void touch_each_table(char *base)
{
	for (size_t table = 0; table < SPARSE_TABLES; table++)
		*(volatile size_t *)(base + table * TABLE_BYTES) = table;
}

/* The parent lets go of all tables at once, then its child, the last owner, exits. */
static void share_and_let_go(char *base)
{
	int ends[2];
	char byte;

	touch_each_table(base);
	must(pipe(ends));
	pid_t child = must_fork();

	if (!child) {
		close(ends[1]);
		must(read(ends[0], &byte, 1));
		for (size_t table = 0; table < SPARSE_TABLES; table++)
			if (*(volatile size_t *)(base + table * TABLE_BYTES) != table)
				_exit(VERDICT_FAIL);
		_exit(VERDICT_PASS);
	}
	must(madvise(base, SPARSE_TABLES * TABLE_BYTES, MADV_DONTNEED));
	close(ends[0]);
	close(ends[1]);
	expect_exit(child, VERDICT_PASS, "the child");
}

/* debugfs takes a reference to each page of the machine, one after the other: also to page tables. */
static void foreign_references(void)
{
	uint64_t end = now_ns() + SPARSE_MS * 1000000ULL;
	unsigned int rounds;
	char *wide;

	if (access(SPLIT_ALL, W_OK))
		skip("no %s", SPLIT_ALL);
	pid_t splitter = must_fork();

	if (!splitter)
		for (;;)
			must_write_file(SPLIT_ALL, "1");
	wide = mmap(NULL, (SPARSE_TABLES + 1) * TABLE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	expect(wide != MAP_FAILED, "mmap: %s", strerror(errno));
	must(madvise(wide, (SPARSE_TABLES + 1) * TABLE_BYTES, MADV_NOHUGEPAGE));
	opt_in();
	for (rounds = 0; now_ns() < end; rounds++)
		share_and_let_go((char *)(((uintptr_t)wide + TABLE_BYTES - 1) & ~(TABLE_BYTES - 1)));
	must(kill(splitter, SIGKILL));
	wait_status(splitter);
	printf("%u times %lu tables\n", rounds, SPARSE_TABLES);
}

const struct scenario scenarios[] = {
	{ "forks_beside_sharers", forks_beside_sharers, MODE_ODF },
	{ "foreign_references", foreign_references, MODE_DEFAULT | MODE_ODF },
	{ 0 },
};
