// SPDX-License-Identifier: GPL-2.0
/* On-Demand-Fork's tables when others come and go: processes that share, and references that are not owners'. */
#define _GNU_SOURCE
#include <pthread.h>
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

/* ---------- steps that wait: only the module's test build has them ---------- */

#define STEPS 11		/* of enum af_step in the module */
#define STEP_UNMAP (1U << 3)
#define SWEPT_ROUNDS 8
#define STEP_ROUNDS 3

static void delay(unsigned int steps, unsigned int us)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", us);
	expect(parameter_set("delay_us", text), "the module has no parameter delay_us");
	snprintf(text, sizeof(text), "%u", steps);
	must_write_file("/sys/module/async_fork/parameters/delay_at", text);
}

static void *unmap(void *memory)
{
	must(munmap(memory, HELD_BYTES));
	return NULL;
}

/*
 * munmap takes the VMA out of the tree, keeps mmap_lock for reading only, and then looks at its tables; meanwhile the
 * child exits, and the sweep finds nothing shared in the parent's tree.
 */
static void unmapped_beside_sweep(void)
{
	opt_in();
	for (int round = 0; round < SWEPT_ROUNDS; round++) {
		struct region region = region_map(HELD_BYTES);	/* not next to the stack: there munmap does not */
		pthread_t thread;
		int ends[2];
		char byte;

		region_fill(&region, 1);
		must(pipe(ends));
		uint64_t before = statistics().tables_shared;
		pid_t child = must_fork();

		if (!child) {
			close(ends[1]);
			_exit(read(ends[0], &byte, 1));	/* until the parent closes it */
		}
		close(ends[0]);
		expect(statistics().tables_shared > before, "nothing was shared");
		delay(STEP_UNMAP, 300000);
		expect(!pthread_create(&thread, NULL, unmap, region.base), "no thread");
		sleep_ms(50);
		delay(0, 0);	/* the child's exit unmaps as well */
		close(ends[1]);
		expect_exit(child, 0, "the child");
		pthread_join(thread, NULL);
	}
}

struct beside { struct region region; volatile bool stop; };

/* Unmaps, changes and reads what is shared, and forks itself, until it is told to stop. */
static void *change_beside(void *argument)
{
	struct beside *beside = argument;

	while (!beside->stop) {
		char *memory = mmap(NULL, HELD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
				    -1, 0);

		if (memory == MAP_FAILED)
			continue;
		sleep_ms(1);
		madvise(memory, TABLE_BYTES, MADV_DONTNEED);
		mprotect(memory + TABLE_BYTES, 2 * TABLE_BYTES, PROT_READ);
		madvise(memory, HELD_BYTES, MADV_PAGEOUT);
		munmap(memory, HELD_BYTES);
	}
	return NULL;
}

static void forks_at_step(unsigned int step)
{
	struct beside beside = { .region = region_map(4 * TABLE_BYTES) };
	pthread_t thread;

	region_fill(&beside.region, 1);
	expect(!pthread_create(&thread, NULL, change_beside, &beside), "no thread");
	delay(1U << step, 3000);
	for (int round = 0; round < STEP_ROUNDS; round++) {
		pid_t children[2];

		for (int i = 0; i < 2; i++) {
			children[i] = must_fork();
			if (!children[i]) {
				page_write(&beside.region, i * TABLE_PAGES, 2);	/* one table of its own */
				_exit(range_wrong(&beside.region, 1, TABLE_PAGES - 1, 1) ? VERDICT_FAIL : VERDICT_PASS);
			}
			page_write(&beside.region, (2 + i) * TABLE_PAGES, 1);
		}
		for (int i = 0; i < 2; i++)
			expect_exit(children[i], VERDICT_PASS, "a child");
	}
	delay(0, 0);
	beside.stop = true;
	pthread_join(thread, NULL);
	expect(!region_wrong(&beside.region, 1), "the parent's memory changed at step %u", step);
	munmap(beside.region.base, beside.region.pages * PAGE_BYTES);
}

/* Each step of sharing and unsharing takes long, one after the other, while the rest goes on. */
static void each_step_delayed(void)
{
	opt_in();
	for (unsigned int step = 0; step < STEPS; step++)
		forks_at_step(step);
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
	{ "unmapped_beside_sweep", unmapped_beside_sweep, MODE_ODF },
	{ "each_step_delayed", each_step_delayed, MODE_ODF },
	{ "foreign_references", foreign_references, MODE_DEFAULT | MODE_ODF },
	{ 0 },
};
