// SPDX-License-Identifier: GPL-2.0
/* The child sees the parent's memory as it was at fork(), whatever the parent does to its own meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "selftest.h"

static void idle(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);
	struct async_fork_statistics now = statistics();

	if (mode & MODES_ASYNC)
		expect(now.forks_async == child.before.forks_async + 1 &&
		       now.tables_deferred - child.before.tables_deferred >= DEFAULT_TABLES,
		       "forks_async %llu, tables_deferred %llu more", now.forks_async - child.before.forks_async,
		       now.tables_deferred - child.before.tables_deferred);
	if (mode == MODE_ODF)
		expect(now.forks_odf == child.before.forks_odf + 1 &&
		       now.tables_shared - child.before.tables_shared >= DEFAULT_TABLES,
		       "forks_odf %llu, tables_shared %llu more", now.forks_odf - child.before.forks_odf,
		       now.tables_shared - child.before.tables_shared);
	snapshot_end(&child);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/*
 * A child that does nothing is complete all the same, by its own work, before it returns to user mode. Its copy threads
 * may be quicker and leave it nothing.
 */
static void child_sleeps(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	struct async_fork_statistics before = statistics(), now;
	uint64_t copied;

	region_fill(&region, 1);
	opt_in();
	pid_t child = must_fork();

	if (!child)
		for (;;)
			pause();
	for (int waited = 0; waited < 5000; waited += 10) {
		now = statistics();
		if (!now.sessions_live)
			break;
		sleep_ms(10);
	}
	expect(!now.sessions_live, "the session does not end");
	copied = now.tables_copied[ASYNC_FORK_BY_CHILD] - before.tables_copied[ASYNC_FORK_BY_CHILD];
	if (mode == MODE_ASYNC4)
		copied += now.tables_copied[ASYNC_FORK_BY_HELPER] - before.tables_copied[ASYNC_FORK_BY_HELPER];
	expect(copied >= DEFAULT_TABLES / 2, "the child and its copy threads copied %lu tables", copied);
	must(kill(child, SIGKILL));
	wait_status(child);
}

static void write_randomly(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	region_write_randomly(&region, 4000, 2);
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* VMAs that start and end inside a table, small ones, neighbours that share a table. */
static void edges(void)
{
	struct region region = region_map(16 * TABLE_BYTES);

	region_fill(&region, 1);
	for (size_t page = 100; page < region.pages; page += 700)	/* splits into many VMAs */
		must(mprotect(region.base + page * PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC));
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	for (size_t page = 100; page < region.pages; page += 700)
		must(mprotect(region.base + page * PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE));
	region_write_randomly(&region, 3000, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

/* Pages that were never touched at the cut: zero in the child even if the parent fills them. */
static void holes(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region.sparse = true;
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	for (size_t page = 0; page < region.pages; page++)
		if (page_is_hole(page))
			page_write(&region, page, 2);
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	snapshot_end(&child);
}

/*
 * Several threads write under a lock: write number s goes to page (s * STRIDE) mod pages and says s. What the child
 * sees must be the state after some write S: for each page the last s <= S that hit it. That is a cut, exactly.
 */
#define STRIDE 2654435761ULL	/* odd: a permutation of a power of two of pages */
#define WRITERS 3

static struct {
	pthread_spinlock_t lock;
	struct region region;
	volatile uint64_t sequence;
	volatile bool stop;
} writers;

static volatile uint64_t *cut_slot(uint64_t sequence)
{
	return (volatile uint64_t *)(writers.region.base +
				     (sequence * STRIDE & (writers.region.pages - 1)) * PAGE_BYTES);
}

static void *write_sequence(void *unused)
{
	(void)unused;
	while (!writers.stop) {
		pthread_spin_lock(&writers.lock);
		uint64_t sequence = writers.sequence + 1;

		*cut_slot(sequence) = sequence;
		writers.sequence = sequence;
		pthread_spin_unlock(&writers.lock);
	}
	return NULL;
}

static size_t check_cut(const void *unused)
{
	uint64_t last = 0;
	size_t wrong = 0;

	(void)unused;
	for (size_t page = 0; page < writers.region.pages; page++) {
		uint64_t seen = *(volatile uint64_t *)(writers.region.base + page * PAGE_BYTES);

		if (seen > last)
			last = seen;
	}
	for (uint64_t i = 0; i < writers.region.pages && last > i; i++)
		if (*cut_slot(last - i) != last - i && wrong++ < 2)
			dprintf(STDOUT_FILENO, "write %lu of %lu shows %lu\n", last - i, last, *cut_slot(last - i));
	return wrong;
}

static void writer_threads(void)
{
	pthread_t threads[WRITERS];

	writers.region = region_map(32 * TABLE_BYTES);
	pthread_spin_init(&writers.lock, PTHREAD_PROCESS_PRIVATE);
	while (writers.sequence < writers.region.pages)
		*cut_slot(++writers.sequence) = writers.sequence;
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, write_sequence, NULL);
	opt_in();
	for (int round = 0; round < 4; round++) {
		sleep_ms(10);
		struct snapshot child = snapshot_fork_check(check_cut, NULL);

		sleep_ms(30);
		expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
		snapshot_end(&child);
	}
	writers.stop = true;
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	expect(!check_cut(NULL), "the parent lost writes");
}

/* Enough tables for every copy thread; one page in each, so that the test stays small. */
#define WIDE_TABLES 1100

static char *wide;

static size_t check_wide(const void *unused)
{
	size_t wrong = 0;

	(void)unused;
	for (size_t table = 0; table < WIDE_TABLES; table++)
		wrong += *(volatile uint64_t *)(wide + table * TABLE_BYTES +
						table % TABLE_PAGES * PAGE_BYTES) != table + 1;
	return wrong;
}

static void many_tables(void)
{
	wide = mmap(NULL, WIDE_TABLES * TABLE_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	expect(wide != MAP_FAILED, "mmap: %s", strerror(errno));
	madvise(wide, WIDE_TABLES * TABLE_BYTES, MADV_NOHUGEPAGE);
	for (size_t table = 0; table < WIDE_TABLES; table++)
		*(uint64_t *)(wide + table * TABLE_BYTES + table % TABLE_PAGES * PAGE_BYTES) = table + 1;
	opt_in();
	struct snapshot child = snapshot_fork_check(check_wide, NULL);

	for (size_t table = 0; table < WIDE_TABLES; table += 3)
		*(uint64_t *)(wide + table * TABLE_BYTES + table % TABLE_PAGES * PAGE_BYTES) = 0;
	snapshot_end(&child);
	if (mode == MODE_ASYNC4)
		expect(statistics().tables_copied[ASYNC_FORK_BY_HELPER] >
		       child.before.tables_copied[ASYNC_FORK_BY_HELPER],
		       "no copy thread copied a table");
}

static void consecutive(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	opt_in();
	for (uint64_t generation = 1; generation < 6; generation++) {
		struct snapshot child = snapshot_fork(&region, generation);

		region_write_randomly(&region, 500, generation + 1);
		snapshot_end(&child);
		region_fill(&region, generation + 1);
	}
}

/* Forks while an earlier fork's copy is under way; all children live together. */
#define PAIRS 3

static void fork_during_copy(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	struct snapshot children[PAIRS][2];

	region_fill(&region, 1);
	opt_in();
	for (int i = 0; i < PAIRS; i++) {
		children[i][0] = snapshot_fork(&region, 1 + i);
		region_write_randomly(&region, 3, 1 + i);
		children[i][1] = snapshot_fork(&region, 1 + i);
		if (mode & MODES_ASYNC)
			expect_synchronised(&children[i][0].before, ASYNC_FORK_BY_REFORK);
		region_fill(&region, 2 + i);
	}
	for (int i = 0; i < PAIRS; i++) {
		snapshot_end(&children[i][0]);
		snapshot_end(&children[i][1]);
	}
	expect(!region_wrong(&region, 1 + PAIRS), "the parent lost writes");
}

/* Both sides of a pair of forks from two threads at the same time. */
static struct region shared_region;

static void *fork_and_check(void *unused)
{
	(void)unused;
	for (int i = 0; i < 4; i++) {
		pid_t pid = must_fork();

		if (!pid)
			_exit(region_wrong(&shared_region, 1) ? VERDICT_FAIL : VERDICT_PASS);
		expect_exit(pid, VERDICT_PASS, "a child of one of two forking threads");
	}
	return NULL;
}

static void forks_of_two_threads(void)
{
	pthread_t threads[2];

	shared_region = region_map(DEFAULT_TABLES / 2 * TABLE_BYTES);
	region_fill(&shared_region, 1);
	opt_in();
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, fork_and_check, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	expect(!region_wrong(&shared_region, 1), "the parent's memory changed");
}

/* A child forks, its child forks; each generation writes, each sees its own cut. */
static void nested(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	opt_in();
	struct snapshot first = snapshot_fork(&region, 1);
	pid_t child = must_fork();

	if (!child) {
		opt_in();	/* a setting belongs to one mm */
		region_write_randomly(&region, 300, 1);
		struct snapshot grandchild = snapshot_fork(&region, 1);

		region_fill(&region, 2);
		struct snapshot sibling = snapshot_fork(&region, 2);

		region_fill(&region, 3);
		snapshot_end(&grandchild);
		snapshot_end(&sibling);
		_exit(region_wrong(&region, 3) ? VERDICT_FAIL : VERDICT_PASS);
	}
	region_write_randomly(&region, 300, 9);
	expect_exit(child, VERDICT_PASS, "the child that forks");
	snapshot_end(&first);
	expect(!region_mixed_wrong(&region, 1, 9), "the parent lost writes");
}

/* vfork and threads share the mm: nothing to copy, nothing to break. */
static void vfork_during_copy(void)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);

	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	for (int i = 0; i < 5; i++) {
		pid_t pid = vfork();

		if (!pid) {
			page_write(&region, 7, 2);	/* in the parent's memory */
			execl("/bin/busybox", "true", NULL);
			_exit(1);
		}
		expect_exit(pid, 0, "a vfork child");
	}
	snapshot_end(&child);
	expect(page_shows(&region, 7, 2), "a write of the vfork child is lost");
}

const struct scenario scenarios[] = {
	{ "idle", idle, MODES_ALL },
	{ "child_sleeps", child_sleeps, MODES_ASYNC },
	{ "write", write_randomly, MODES_ALL },
	{ "edges", edges, MODES_ALL },
	{ "holes", holes, MODES_ALL },
	{ "threads", writer_threads, MODES_ALL },
	{ "many_tables", many_tables, MODES_ALL },
	{ "consecutive", consecutive, MODES_ALL },
	{ "fork_during_copy", fork_during_copy, MODES_ALL },
	{ "two_forking_threads", forks_of_two_threads, MODES_ALL },
	{ "nested", nested, MODES_ALL },
	{ "vfork", vfork_during_copy, MODES_ALL },
	{ 0 },
};
