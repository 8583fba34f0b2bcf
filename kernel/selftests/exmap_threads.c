// SPDX-License-Identifier: GPL-2.0
/* Several threads: frames go round, nobody sees through a translation that is gone, calls come between each other. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include "exmap_map.h"

#define THREADS 4

static struct map map;
static volatile bool over;

static pthread_t thread(void *(*run)(void *), void *argument)
{
	pthread_t id;

	expect(!pthread_create(&id, NULL, run, argument), "pthread_create");
	return id;
}

static void this_thread_on(unsigned int cpu)
{
	unsigned long mask = 1UL << cpu;

	must(syscall(SYS_sched_setaffinity, 0, sizeof(mask), &mask));
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---------- frames ---------- */

/* All frames lie with one interface; each of the others finds them. */
static void stealing(void)
{
	map = map_new(4096, 512, 8);
	for (unsigned int i = 0; i < 8; i++) {
		unsigned int other = (i + 5) % 8;

		must_run(&map, i, EXMAP_ALLOC, 0, 512);
		must_run(&map, i, EXMAP_FREE, 0, 512);
		expect(run_one(&map, other, EXMAP_ALLOC, 1000, 1) == 1, "interface %u finds no frame", other);
		expect(run_one(&map, other, EXMAP_ALLOC, 1001, 511) == 511, "interface %u finds not all frames", other);
		expect(run_one(&map, other, EXMAP_ALLOC, 2000, 1) == -ENOMEM, "a frame too many");
		must_run(&map, other, EXMAP_FREE, 1000, 512);
	}
	expect(map_statistics(&map).frames_stolen >= 8 * 512, "%llu were stolen", map_statistics(&map).frames_stolen);
	expect(map_statistics(&map).frames == 512, "frames");
	expect_conserved(&map, 0);
	map_close(&map);
}

/* What an allocation did to get its frames. */
static struct exmap_statistics alloc_and_compare(unsigned int interface, size_t page, size_t count)
{
	struct exmap_statistics before = map_statistics(&map), after;

	must_run(&map, interface, EXMAP_ALLOC, page, count);
	after = map_statistics(&map);
	after.steals -= before.steals;
	after.interfaces_asked -= before.interfaces_asked;
	after.frames_from_interface -= before.frames_from_interface;
	after.frames_stolen -= before.frames_stolen;
	return after;
}

/* The pool's frames lie with an interface far away, which is found once; 64 more than are wanted come along each time. */
static void stealing_from_last(void)
{
	struct exmap_statistics s;

	map = map_new(4096, 1000, 256);
	must_run(&map, 200, EXMAP_ALLOC, 0, 1000);
	must_run(&map, 200, EXMAP_FREE, 0, 1000);
	s = alloc_and_compare(3, 0, 1);
	expect(s.steals == 1 && s.frames_stolen == 65, "%llu frames by %llu steals", s.frames_stolen, s.steals);
	for (size_t page = 1; page < 650; page += 65) {
		s = alloc_and_compare(3, page, 64);
		expect(!s.steals && s.frames_from_interface == 64, "what came along is not there");
		s = alloc_and_compare(3, page + 64, 1);
		expect(s.steals == 1 && s.interfaces_asked == 1, "%llu steals asked %llu interfaces", s.steals,
		       s.interfaces_asked);
	}
	must_free(&map, 0, 4096);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* Of two others the one with more frames gives: from the other nothing is taken. */
static void stealing_from_better(void)
{
	struct exmap_statistics s;

	for (unsigned int poor = 1; poor < 3; poor++) {
		map = map_new(4096, 310, 3);
		must_run(&map, poor, EXMAP_ALLOC, 0, 10);
		must_run(&map, 3 - poor, EXMAP_ALLOC, 10, 300);
		must_run(&map, poor, EXMAP_FREE, 0, 10);
		must_run(&map, 3 - poor, EXMAP_FREE, 10, 300);
		s = alloc_and_compare(0, 0, 1);
		expect(s.steals == 1 && s.interfaces_asked == 2, "%llu steals asked %llu interfaces", s.steals,
		       s.interfaces_asked);
		s = alloc_and_compare(poor, 1, 10);
		expect(s.frames_from_interface == 10, "%llu of 10 frames were left", s.frames_from_interface);
		must_free(&map, 0, 4096);
		expect_conserved(&map, 0);
		map_close(&map);
	}
}

/* A frame with each interface, and all are wanted: no interface is asked more often than needed. */
static void stealing_from_all(void)
{
	struct exmap_statistics s;

	map = map_new(4096, 256, 256);
	must_alloc(&map, 0, 256);
	for (unsigned int i = 0; i < 256; i++)
		must_run(&map, i, EXMAP_FREE, i, 1);
	for (unsigned int i = 0; i < 3; i++) {
		s = alloc_and_compare(i, 0, 256);
		expect(s.steals == 1, "it took %llu steals", s.steals);
		expect(s.interfaces_asked >= 255 && s.interfaces_asked <= 3 + 255, "%llu interfaces were asked",
		       s.interfaces_asked);
		for (unsigned int other = 0; other < 256; other++)
			must_run(&map, other, EXMAP_FREE, other, 1);
	}
	expect_conserved(&map, 0);
	map_close(&map);
}

#define QUOTA 64

/*
 * The threads' quotas make up the pool, so there is always a frame for who has not used his. It may be with any
 * interface, and on its way from one to another.
 */
static void *uses_quota(void *argument)
{
	unsigned int own = (unsigned long)argument;
	uint64_t random = own + 1;

	for (int round = 0; round < 4000; round++) {
		unsigned int count = 1 + next_random(&random) % QUOTA, first = own * QUOTA;
		/* freed by another interface: frames wander */
		unsigned int to = (own + next_random(&random) % 2 * THREADS) % (2 * THREADS);
		long result = run_one(&map, own, EXMAP_ALLOC, first, count);

		expect(result == (long)count, "round %d: %ld of %u pages, although there are frames", round, result, count);
		result = run_one(&map, to, EXMAP_FREE, first, count);
		expect(result == (long)count, "round %d: %ld of %u pages freed", round, result, count);
	}
	return NULL;
}

static void every_frame(void)
{
	pthread_t threads[THREADS];

	map = map_new(4096, THREADS * QUOTA, 2 * THREADS);
	for (unsigned long i = 0; i < THREADS; i++)
		threads[i] = thread(uses_quota, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* Entries that others overwrite, and an interface that others use: only the sums are certain. */
static void *shares_interface(void *argument)
{
	uint64_t random = (unsigned long)argument + 1;

	while (!over) {
		for (unsigned int i = 0; i < 16; i++)
			*entry_of(&map, 0, i) = (struct exmap_entry) { .page = next_random(&random) % 500, .length = 1 };
		run_entries(&map, 0, next_random(&random) % 2, 0, 16);
	}
	return NULL;
}

static void one_interface(void)
{
	pthread_t threads[THREADS];

	map = map_new(512, 100, 1);
	for (unsigned long i = 0; i < THREADS; i++)
		threads[i] = thread(shares_interface, (void *)i);
	sleep_ms(700);
	over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	must_free(&map, 0, 512);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* ---------- translations ---------- */

/* One thread reads page 0 all the time, on a processor of its own; what it reads after `since` was raised is judged. */
static struct {
	volatile uint64_t since;	/* raised by the writer before and after what must be seen */
	volatile uint64_t never;	/* must not be seen */
	volatile uint64_t only;		/* the only thing to be seen, if `exact` */
	volatile bool exact;
	volatile uint64_t reads;
	volatile uint64_t wrong, wrong_since;
} watch;

static void *watches(void *unused)
{
	volatile uint64_t *word = (uint64_t *)map.base;

	this_thread_on(1);
	while (!over) {
		uint64_t since = watch.since, never = watch.never, only = watch.only, seen;
		bool exact = watch.exact;

		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		seen = *word;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		watch.reads++;
		/* odd: what is judged is being changed */
		if (!(since & 1) && since == watch.since &&
		    ((never && seen == never) || (exact && seen != only)) && !watch.wrong_since) {
			watch.wrong = seen;
			watch.wrong_since = since;
		}
	}
	return unused;
}

static void let_it_read(unsigned int times)
{
	uint64_t reads = watch.reads;

	for (int i = 0; watch.reads < reads + times; i++) {
		expect(i < 20000, "the reader does not read");
		sleep_ms(1);
	}
}

static void judge(uint64_t never, bool exact, uint64_t only)
{
	watch.since++;
	watch.never = never;
	watch.only = only;
	watch.exact = exact;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	watch.since++;
}

static pthread_t watch_begin(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip("one processor");
	this_thread_on(0);
	return thread(watches, NULL);
}

static void watch_end(pthread_t reader, const char *what)
{
	over = true;
	pthread_join(reader, NULL);
	expect(!watch.wrong_since, "%s: %lx", what, watch.wrong);
	map_close(&map);
}

/* After a free nobody reads what was there, nor what the frame is used for afterwards. */
static void stale_after_free(void)
{
	pthread_t reader;

	map = map_new(4096, 4, 2);
	reader = watch_begin();
	for (uint64_t round = 1; round < 60; round++) {
		judge(0, false, 0);
		must_alloc(&map, 0, 4);
		page_mark(&map, 0, round);
		let_it_read(50);
		must_free(&map, 0, 4);
		judge(0, true, 0);
		let_it_read(20);
		must_alloc(&map, 100 + round, 4);
		for (size_t page = 0; page < 4; page++)
			page_mark(&map, 100 + round + page, 0xabcdef);
		let_it_read(20);
		must_free(&map, 100 + round, 4);
	}
	watch_end(reader, "a page that was freed shows something");
}

static void *frees_page(void *unused)
{
	must_run(&map, 1, EXMAP_FREE, 0, 1);
	return unused;
}

/* Between taking a page away and the flush its frame is nobody's. */
static void frame_before_flush(void)
{
	pthread_t reader, freer;

	expect(parameter_set("delay_us", "60000") && parameter_set("delay_at", "1"), "delay_at: %s", strerror(errno));
	map = map_new(4096, 1, 2);
	reader = watch_begin();
	for (uint64_t round = 1; round < 8; round++) {
		long result;

		judge(0, false, 0);	/* the frame has what page 7 had */
		must_alloc(&map, 0, 1);
		page_mark(&map, 0, round);
		judge(0xabcdef, false, 0);
		let_it_read(50);
		freer = thread(frees_page, NULL);
		sleep_ms(15);
		/* the only frame: not before the flush is over */
		result = run_one(&map, 0, EXMAP_ALLOC, 7, 1);
		if (result == 1) {
			page_mark(&map, 7, 0xabcdef);
			let_it_read(50);
		}
		pthread_join(freer, NULL);
		if (result != 1)
			must_alloc(&map, 7, 1);
		page_mark(&map, 7, 0xabcdef);
		let_it_read(20);
		must_free(&map, 7, 1);
	}
	parameter_set("delay_at", "0");
	watch_end(reader, "a page whose frame was used before the flush shows it");
}

/* A page that was read as zeros is allocated: everybody sees what is there now. */
static void stale_zero(void)
{
	pthread_t reader;

	map = map_new(4096, 4, 1);
	reader = watch_begin();
	for (uint64_t round = 1; round < 100; round++) {
		let_it_read(50);
		must_alloc(&map, 0, 2);
		page_mark(&map, 0, round);
		judge(0, true, round);
		let_it_read(50);
		judge(0, false, 0);
		must_free(&map, 0, 2);
	}
	expect(map_statistics(&map).zero_faults > 50, "only %llu zero pages were read", map_statistics(&map).zero_faults);
	watch_end(reader, "an allocated page does not show what was written");
}

/* Many readers and writers: a page shows zeros or its own mark. */
static void *reads_at_random(void *argument)
{
	uint64_t random = (unsigned long)argument + 77;

	while (!over) {
		size_t page = next_random(&random) % map.pages;
		uint64_t seen = *(volatile uint64_t *)page_of(&map, page);

		if (seen && seen != page + 1)
			fail("page %zu shows %lx", page, seen);
	}
	return NULL;
}

static void *changes_at_random(void *argument)
{
	unsigned int own = (unsigned long)argument;
	uint64_t random = own + 5;

	while (!over) {
		unsigned int count = 1 + next_random(&random) % 32, done = 0;

		for (unsigned int i = 0; i < count; i++)	/* pages of its own: every other */
			*entry_of(&map, own, i) = (struct exmap_entry) {
				.page = next_random(&random) % (map.pages / 2) * 2 + own, .length = 1,
			};
		run_entries(&map, own, EXMAP_ALLOC, EXMAP_ALLOC_ZERO, count);
		for (unsigned int i = 0; i < count; i++)
			if (entry_of(&map, own, i)->result == 1) {
				size_t page = entry_of(&map, own, i)->page;

				*(volatile uint64_t *)page_of(&map, page) = page + 1;
				done++;
			}
		expect(done || count, "no page in a pool that is large enough");
		expect(run_entries(&map, own, EXMAP_FREE, 0, count) == (long)count, "freeing");
	}
	return NULL;
}

static void optimistic_readers(void)
{
	pthread_t threads[4];

	map = map_new(1000, 200, 2);
	threads[0] = thread(reads_at_random, (void *)0);
	threads[1] = thread(reads_at_random, (void *)1);
	threads[2] = thread(changes_at_random, (void *)0);
	threads[3] = thread(changes_at_random, (void *)1);
	sleep_ms(1500);
	over = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	expect(map_statistics(&map).zero_faults > 100, "nobody read what is not there");
	must_free(&map, 0, 1000);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* ---------- calls beside others ---------- */

/* Entries that change while a call looks at them: what was checked is what is done. */
static void *flips(void *unused)
{
	volatile struct exmap_entry *entry = entry_of(&map, 0, 511);

	this_thread_on(1);
	while (!over) {
		entry->page = 1 << 20;
		entry->page = 5;
	}
	return unused;
}

static void changing_entries(void)
{
	pthread_t other;
	unsigned int good = 0, bad = 0;

	map = map_new(1024, 2000, 1);
	this_thread_on(0);
	set_entries(&map, 0, 5, 0, 512);
	other = thread(flips, NULL);
	for (int round = 0; round < 4000; round++) {
		long result = run_entries(&map, 0, EXMAP_ALLOC, 0, 512);

		expect(result == 512 || result == -EINVAL, "it gave %ld", result);
		good += result > 0;
		bad += result < 0;
	}
	over = true;
	pthread_join(other, NULL);
	expect(good && bad, "%u good calls, %u bad: nothing was changed in time", good, bad);
	expect(map_statistics(&map).pages_allocated == 1, "%llu pages were allocated", map_statistics(&map).pages_allocated);
	must_free(&map, 5, 1);
	expect_conserved(&map, 0);
	map_close(&map);
}

static sigjmp_buf after_write;

static void page_not_there(int number)
{
	siglongjmp(after_write, number);
}

/* Faults that find the page allocated when the kernel looks, which then writes the entry once more. */
static void *writes_all_the_time(void *unused)
{
	volatile unsigned char *page = page_of(&map, 0);

	this_thread_on(1);
	while (!over) {
		if (!sigsetjmp(after_write, 0))
			*page = 1;
	}
	return unused;
}

/*
 * A page that was freed stays so, also if a fault is about to write the entry that it had: a free waits for that, by the
 * table's lock. With one frame, an entry that came back is found by the next call that meets it.
 */
static void freed_beside_faults(void)
{
	struct sigaction action = { .sa_handler = page_not_there, .sa_flags = SA_NODEFER };
	pthread_t writer;

	expect(parameter_set("delay_us", "300") && parameter_set("delay_at", "4"), "delay_at: %s", strerror(errno));
	map = map_new(512, 1, 1);
	must(sigaction(SIGBUS, &action, NULL));
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip("one processor");
	this_thread_on(0);
	writer = thread(writes_all_the_time, NULL);
	for (unsigned int round = 0; round < 4000; round++) {
		long result = run_one(&map, 0, EXMAP_ALLOC, 0, 1);

		expect(result == 1, "round %u: it gave %ld", round, result);
		result = run_one(&map, 0, EXMAP_FREE, 0, 1);
		expect(result == 1, "round %u: a page that was freed is there again: %ld", round, result);
		expect(map_statistics(&map).pages_freed == round + 1, "round %u: the page was there before", round);
	}
	over = true;
	pthread_join(writer, NULL);
	parameter_set("delay_at", "0");
	expect(map_statistics(&map).write_faults > 100, "only %llu faults", map_statistics(&map).write_faults);
	expect_conserved(&map, 0);
	map_close(&map);
}

static void *calls_all_the_time(void *argument)
{
	unsigned int own = (unsigned long)argument;
	uint64_t random = own + 3;

	while (!over) {
		long result = run_one(&map, own, next_random(&random) % 2, own * 1000, 1 + next_random(&random) % 1000);

		expect(result > 0 || result == -ENXIO || result == -ENOMEM, "it gave %ld", result);
	}
	return NULL;
}

/* The map is unmapped and mapped while others allocate and free. */
static void unmapped_meanwhile(void)
{
	pthread_t threads[2];

	map = map_new(4096, 1500, 2);
	threads[0] = thread(calls_all_the_time, (void *)0);
	threads[1] = thread(calls_all_the_time, (void *)1);
	for (int round = 0; round < 150; round++) {
		void *old = map.base;

		sched_yield();
		must(munmap(old, map.pages * EXMAP_PAGE_SIZE));
		if (round % 3)
			sleep_ms(1);
		map_attach(&map);
	}
	over = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	must_free(&map, 0, 4096);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* Processes die in the middle of calls; the runner sees whether something stays. */
static void killed(void)
{
	for (int round = 0; round < 25; round++) {
		pid_t child = must_fork();

		if (!child) {
			map = map_new(4096, 1500, 2);
			thread(calls_all_the_time, (void *)0);
			calls_all_the_time((void *)1);
		}
		sleep_ms(5 + round * 3);
		must(kill(child, SIGKILL));
		expect(WTERMSIG(wait_status(child)) == SIGKILL, "the child failed");
	}
	for (int i = 0; i < 200 && read_field("/proc/exmap", "maps_live"); i++)
		sleep_ms(10);
	expect(!read_field("/proc/exmap", "maps_live") && !read_field("/proc/exmap", "frames_live"), "maps live on");
}

/* The pool's bound is less than what all want. */
static void low_memory(void)
{
	pthread_t threads[THREADS];

	map = map_new(4096, 300, THREADS);
	for (unsigned long i = 0; i < THREADS; i++)
		threads[i] = thread(calls_all_the_time, (void *)i);
	sleep_ms(700);
	over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	expect(map_statistics(&map).frames_missing > 0, "there was always a frame");
	must_free(&map, 0, 4096);
	expect_conserved(&map, 0);
	map_close(&map);
}

const struct scenario scenarios[] = {
	{ "stealing", stealing, MODE_EXMAP },
	{ "stealing_from_last", stealing_from_last, MODE_EXMAP },
	{ "stealing_from_better", stealing_from_better, MODE_EXMAP },
	{ "stealing_from_all", stealing_from_all, MODE_EXMAP },
	{ "every_frame", every_frame, MODE_EXMAP },
	{ "one_interface", one_interface, MODE_EXMAP },
	{ "stale_after_free", stale_after_free, MODE_EXMAP },
	{ "frame_before_flush", frame_before_flush, MODE_EXMAP },
	{ "stale_zero", stale_zero, MODE_EXMAP },
	{ "optimistic_readers", optimistic_readers, MODE_EXMAP },
	{ "changing_entries", changing_entries, MODE_EXMAP },
	{ "freed_beside_faults", freed_beside_faults, MODE_EXMAP },
	{ "unmapped_meanwhile", unmapped_meanwhile, MODE_EXMAP },
	{ "killed", killed, MODE_EXMAP },
	{ "low_memory", low_memory, MODE_EXMAP },
	{ 0 },
};
