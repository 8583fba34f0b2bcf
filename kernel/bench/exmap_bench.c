// SPDX-License-Identifier: GPL-2.0
/*
 * What it costs to give pages to addresses and to take them away, measured inside the virtual machine of
 * `stillframe-bench exmap`. Static, no arguments from outside.
 *
 *   exmap_bench churn WAY BATCH PAGES ROUNDS THREADS
 *       each thread takes GROUP pages in batches and gives them back, until it has done so with PAGES pages. A way that
 *       the kernel refuses says so and is no error.
 *   exmap_bench read WAY BATCH PAGES ROUNDS DEVICE
 *       the same with pages that are read from DEVICE, without its cache, by one thread
 *   exmap_bench fault LABEL PAGES ROUNDS [other]   first touch of anonymous pages by a process that has no map; with
 *       "other" while another process has one
 *
 * Each round is one line of JSON on standard output, after one that is not counted: it makes page tables and takes frames
 * from the kernel. Times are of CLOCK_MONOTONIC in ns: with QEMU's -icount shift=0 and one CPU that is the number of
 * instructions.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "../include/uapi/exmap.h"

#define GROUP 512u		/* pages that a thread has at a time */
#define WINDOW_PAGES 4096u	/* of a thread's addresses, a power of two */
#define SCATTER 97u		/* odd: each page of the window has its turn, and neighbours of a batch are no neighbours */
#define POOL_PAGES 2048u	/* of a thread: more than an interface keeps */
#define WARM_UP_PAGES WINDOW_PAGES	/* of a thread: all of the window, and more than all frames of the pool */
#define THREADS_MAX 16u
#define CLOCK_READS 1000
#define INTERRUPTS 2

enum { TLB, CAL };

struct worker;

/* take and give: the batch that begins at worker->in_group. */
struct way {
	const char *name;
	void (*take)(struct worker *worker);
	void (*give)(struct worker *worker);
	unsigned int interfaces;	/* of a thread; 0: without the module */
	bool is_tight;			/* the pool has no more frames than are taken */
	bool is_row;			/* the pages of a batch are one after the other */
};

struct bench {
	const struct way *way;
	unsigned int batch, threads;
	size_t pages;			/* of a thread in this round */
	char *memory;
	int map, device, self;		/* descriptors */
	struct exmap_entry *entries;
	pthread_barrier_t begin, end;
	uint64_t clock_ns;
};

struct worker {
	struct bench *bench;
	unsigned int thread;
	size_t done;			/* pages of this round */
	unsigned int at[GROUP];		/* the pages of the group */
	unsigned int in_group;		/* where the batch begins in it */
	char *mapped[GROUP];		/* by batch */
	uint64_t take_ns, give_ns;
};

/* Of the batch. */
static size_t page_of(const struct worker *worker, unsigned int i)
{
	return worker->at[worker->in_group + i];
}

static char *address_of(const struct worker *worker, unsigned int i)
{
	return worker->bench->memory + page_of(worker, i) * PAGE;
}

static void touch_batch(struct worker *worker)
{
	for (unsigned int i = 0; i < worker->bench->batch; i++)
		*(volatile uint64_t *)address_of(worker, i) = i + 1;
}

/* ---------- what every kernel has ---------- */

static void give_single(struct worker *worker)
{
	for (unsigned int i = 0; i < worker->bench->batch; i++)
		check(!madvise(address_of(worker, i), PAGE, MADV_DONTNEED), "MADV_DONTNEED");
}

static void give_row(struct worker *worker)
{
	check(!madvise(address_of(worker, 0), worker->bench->batch * PAGE, MADV_DONTNEED), "MADV_DONTNEED");
}

static bool give_vector(struct worker *worker)
{
	struct iovec vector[GROUP];
	unsigned int batch = worker->bench->batch;

	for (unsigned int i = 0; i < batch; i++)
		vector[i] = (struct iovec) { address_of(worker, i), PAGE };
	return syscall(SYS_process_madvise, worker->bench->self, vector, batch, MADV_DONTNEED, 0) == (long)(batch * PAGE);
}

static void give_batch(struct worker *worker)
{
	check(give_vector(worker), "process_madvise");
}

static void take_populated(struct worker *worker)
{
	check(!madvise(address_of(worker, 0), worker->bench->batch * PAGE, MADV_POPULATE_WRITE), "MADV_POPULATE_WRITE");
	touch_batch(worker);
}

static void take_mapping(struct worker *worker)
{
	unsigned int batch = worker->bench->batch;
	char *memory = mmap(NULL, batch * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED, "mmap");
	touch_all(memory, batch);
	worker->mapped[worker->in_group / batch] = memory;
}

static void give_mapping(struct worker *worker)
{
	unsigned int batch = worker->bench->batch;

	check(!munmap(worker->mapped[worker->in_group / batch], batch * PAGE), "munmap");
}

/* ---------- with the module ---------- */

static void act(struct worker *worker, enum exmap_opcode opcode, unsigned int which, unsigned int flags, bool is_row)
{
	struct bench *bench = worker->bench;
	unsigned int interface = worker->thread * bench->way->interfaces + which;
	struct exmap_entry *entries = &bench->entries[interface * EXMAP_ENTRIES_MAX];
	struct exmap_action action = { .interface = interface, .opcode = opcode, .flags = flags };

	const unsigned int *at = worker->at + worker->in_group;
	uint16_t length = is_row ? bench->batch : 1;

	action.entry_count = bench->batch / length;
	for (unsigned int i = 0; i < action.entry_count; i++)
		entries[i] = (struct exmap_entry) { .page = at[i], .length = length };
	check(ioctl(bench->map, EXMAP_ACTION, &action) == (int)bench->batch, "EXMAP_ACTION");
}

static void take_entries(struct worker *worker)
{
	act(worker, EXMAP_ALLOC, 0, 0, false);
	touch_batch(worker);
}

static void take_zeroed(struct worker *worker)
{
	act(worker, EXMAP_ALLOC, 0, EXMAP_ALLOC_ZERO, false);
	touch_batch(worker);
}

static void take_entry(struct worker *worker)
{
	act(worker, EXMAP_ALLOC, 0, 0, true);
	touch_batch(worker);
}

static void give_entries(struct worker *worker)
{
	act(worker, EXMAP_FREE, 0, 0, false);
}

static void give_entry(struct worker *worker)
{
	act(worker, EXMAP_FREE, 0, 0, true);
}

/* To another interface than the one that takes. */
static void give_elsewhere(struct worker *worker)
{
	act(worker, EXMAP_FREE, 1, 0, false);
}

static const struct way churns[] = {
	{ .name = "madvise", .take = touch_batch, .give = give_single },
	{ .name = "madvise_row", .take = touch_batch, .give = give_row, .is_row = true },
	{ .name = "process_madvise", .take = touch_batch, .give = give_batch },
	{ .name = "populate", .take = take_populated, .give = give_row, .is_row = true },
	{ .name = "mmap", .take = take_mapping, .give = give_mapping },
	{ .name = "exmap", .take = take_entries, .give = give_entries, .interfaces = 1 },
	{ .name = "exmap_near", .take = take_entries, .give = give_entries, .interfaces = 1, .is_row = true },
	{ .name = "exmap_row", .take = take_entry, .give = give_entry, .interfaces = 1, .is_row = true },
	{ .name = "exmap_zeroed", .take = take_zeroed, .give = give_entries, .interfaces = 1 },
	{ .name = "exmap_two", .take = take_entries, .give = give_elsewhere, .interfaces = 2 },
	{ .name = "exmap_stealing", .take = take_entries, .give = give_elsewhere, .interfaces = 2, .is_tight = true },
};

/* ---------- reads ---------- */

static void read_pages(struct worker *worker, int fd, char *buffers)
{
	for (unsigned int i = 0; i < worker->bench->batch; i++) {
		char *to = buffers ? buffers + i * PAGE : address_of(worker, i);

		check(pread(fd, to, PAGE, page_of(worker, i) * PAGE) == (ssize_t)PAGE, "pread");
	}
}

static void read_into_buffers(struct worker *worker)
{
	static _Alignas(PAGE) char buffers[GROUP * PAGE];

	read_pages(worker, worker->bench->device, buffers);
}

static void read_into_addresses(struct worker *worker)
{
	read_pages(worker, worker->bench->device, NULL);
}

static void read_into_populated(struct worker *worker)
{
	take_populated(worker);
	read_pages(worker, worker->bench->device, NULL);
}

static void read_by_descriptor(struct worker *worker)
{
	read_pages(worker, worker->bench->map, NULL);
}

static void read_into_allocated(struct worker *worker)
{
	act(worker, EXMAP_ALLOC, 0, 0, false);
	read_pages(worker, worker->bench->map, NULL);
}

static void read_entries(struct worker *worker)
{
	act(worker, EXMAP_READ, 0, 0, false);
}

static void give_nothing(struct worker *worker)
{
	(void)worker;
}

static const struct way reads[] = {
	{ .name = "buffers", .take = read_into_buffers, .give = give_nothing },
	{ .name = "madvise", .take = read_into_addresses, .give = give_single },
	{ .name = "populate", .take = read_into_populated, .give = give_row, .is_row = true },
	{ .name = "exmap_single", .take = read_by_descriptor, .give = give_entries, .interfaces = 1 },
	{ .name = "exmap_allocated", .take = read_into_allocated, .give = give_entries, .interfaces = 1 },
	{ .name = "exmap_vectored", .take = read_entries, .give = give_entries, .interfaces = 1 },
};

/* ---------- running ---------- */

static const struct way *find_way(const struct way *ways, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	errno = EINVAL;
	check(false, name);
	return NULL;
}

/* Sums over CPUs. */
static void read_interrupts(uint64_t *counts)
{
	static const char *const names[INTERRUPTS] = { "TLB:", "CAL:" };
	FILE *file = fopen("/proc/interrupts", "r");
	char line[4096];

	check(file, "/proc/interrupts");
	memset(counts, 0, INTERRUPTS * sizeof(*counts));
	while (fgets(line, sizeof(line), file)) {
		char *text = line + strspn(line, " "), *rest;
		unsigned long long count;

		for (int i = 0; i < INTERRUPTS; i++) {
			if (strncmp(text, names[i], strlen(names[i])))
				continue;
			text += strlen(names[i]);
			while (count = strtoull(text, &rest, 10), rest != text) {
				counts[i] += count;
				text = rest;
			}
		}
	}
	fclose(file);
}

/* All zero without a map. */
static struct exmap_statistics read_statistics(const struct bench *bench)
{
	struct exmap_statistics statistics = { .size = sizeof(statistics), .version = EXMAP_VERSION };

	if (bench->way->interfaces)
		check(!ioctl(bench->map, EXMAP_STATISTICS, &statistics), "EXMAP_STATISTICS");
	return statistics;
}

static void prepare(struct bench *bench)
{
	const struct way *way = bench->way;
	uint32_t interfaces = bench->threads * way->interfaces;
	struct exmap_setup setup = {
		.size = sizeof(setup), .version = EXMAP_VERSION, .map_pages = bench->threads * WINDOW_PAGES,
		.pool_pages = bench->threads * (way->is_tight ? GROUP : POOL_PAGES), .interface_count = interfaces,
	};

	bench->self = syscall(SYS_pidfd_open, getpid(), 0);
	check(bench->self >= 0, "pidfd_open");
	if (!way->interfaces) {
		bench->memory = map_pages(bench->threads * WINDOW_PAGES);
		return;
	}
	bench->map = open(EXMAP_DEVICE, O_RDWR | O_CLOEXEC);
	check(bench->map >= 0, "open " EXMAP_DEVICE);
	check(!ioctl(bench->map, EXMAP_SETUP, &setup), "EXMAP_SETUP");
	bench->memory = mmap(NULL, setup.map_pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, bench->map, 0);
	check(bench->memory != MAP_FAILED, "mmap of the map");
	bench->entries = mmap(NULL, interfaces * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, bench->map,
			      EXMAP_OFFSET_INTERFACE);
	check(bench->entries != MAP_FAILED, "mmap of the interfaces");
}

static void open_device(struct bench *bench, const char *path)
{
	struct exmap_backing backing = { .size = sizeof(backing) };

	bench->device = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	check(bench->device >= 0, path);
	backing.fd = bench->device;
	if (bench->way->interfaces)
		check(!ioctl(bench->map, EXMAP_BACKING, &backing), "EXMAP_BACKING");
}

/* What it takes to look at the clock twice, which is not the pages' fault. */
static uint64_t clock_cost_ns(void)
{
	uint64_t begin_ns = now_ns();

	for (int i = 0; i < CLOCK_READS; i++)
		now_ns();
	return (now_ns() - begin_ns) / CLOCK_READS;
}

/* Which pages the next group has. */
static void name_pages(struct worker *worker)
{
	unsigned int first = worker->thread * WINDOW_PAGES, step = worker->bench->way->is_row ? 1 : SCATTER;

	for (unsigned int i = 0; i < GROUP; i++)
		worker->at[i] = first + (worker->done + i) * step % WINDOW_PAGES;
}

static void run_group(struct worker *worker)
{
	struct bench *bench = worker->bench;
	const struct way *way = bench->way;

	name_pages(worker);
	uint64_t begin_ns = now_ns();

	for (worker->in_group = 0; worker->in_group < GROUP; worker->in_group += bench->batch)
		way->take(worker);
	uint64_t taken_ns = now_ns();

	for (worker->in_group = 0; worker->in_group < GROUP; worker->in_group += bench->batch)
		way->give(worker);
	worker->take_ns += taken_ns - begin_ns - bench->clock_ns;
	worker->give_ns += now_ns() - taken_ns - bench->clock_ns;
	worker->done += GROUP;
}

static void *run_worker(void *argument)
{
	struct worker *worker = argument;
	struct bench *bench = worker->bench;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(worker->thread % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
	check(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
	pthread_barrier_wait(&bench->begin);
	while (worker->done < bench->pages)
		run_group(worker);
	pthread_barrier_wait(&bench->end);
	return NULL;
}

struct totals { uint64_t ns, take_ns, give_ns, pages; };

static struct totals run_round(struct bench *bench, size_t pages)
{
	static struct worker workers[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	struct totals totals = { 0 };

	bench->pages = pages;

	check(!pthread_barrier_init(&bench->begin, NULL, bench->threads + 1), "pthread_barrier_init");
	check(!pthread_barrier_init(&bench->end, NULL, bench->threads + 1), "pthread_barrier_init");
	for (unsigned int i = 0; i < bench->threads; i++) {
		workers[i] = (struct worker) { .bench = bench, .thread = i };
		check(!pthread_create(&threads[i], NULL, run_worker, &workers[i]), "pthread_create");
	}
	/* Until all others are at the barrier. */
	usleep(20000);
	uint64_t begin_ns = now_ns();

	pthread_barrier_wait(&bench->begin);
	pthread_barrier_wait(&bench->end);
	totals.ns = now_ns() - begin_ns;
	for (unsigned int i = 0; i < bench->threads; i++) {
		pthread_join(threads[i], NULL);
		totals.take_ns += workers[i].take_ns;
		totals.give_ns += workers[i].give_ns;
		totals.pages += workers[i].done;
	}
	pthread_barrier_destroy(&bench->begin);
	pthread_barrier_destroy(&bench->end);
	return totals;
}

static void print_round(const struct bench *bench, const char *kind, int round, const struct totals *totals,
			const struct exmap_statistics *before, const uint64_t *interrupts_before)
{
	struct exmap_statistics after = read_statistics(bench);
	uint64_t interrupts[INTERRUPTS];

	read_interrupts(interrupts);
	printf("{\"kind\": \"%s\", \"way\": \"%s\", \"batch\": %u, \"threads\": %u, \"round\": %d, \"pages\": %lu, "
	       "\"ns\": %lu, \"take_ns\": %lu, \"give_ns\": %lu", kind, bench->way->name, bench->batch, bench->threads, round,
	       totals->pages, totals->ns, totals->take_ns, totals->give_ns);
	printf(", \"tlb_interrupts\": %lu, \"call_interrupts\": %lu", interrupts[TLB] - interrupts_before[TLB],
	       interrupts[CAL] - interrupts_before[CAL]);
	printf(", \"shootdowns\": %llu, \"shootdowns_full\": %llu, \"frames_stolen\": %llu}\n",
	       after.shootdowns_free + after.shootdowns_alloc - before->shootdowns_free - before->shootdowns_alloc,
	       after.shootdowns_full - before->shootdowns_full, after.frames_stolen - before->frames_stolen);
	fflush(stdout);
}

/* Whether the kernel takes what this way asks for: some have process_madvise, but not with this advice. */
static bool is_refused(struct bench *bench)
{
	struct worker worker = { .bench = bench };

	if (bench->way->give != give_batch)
		return false;
	name_pages(&worker);
	touch_batch(&worker);
	if (give_vector(&worker))
		return false;
	printf("{\"kind\": \"refused\", \"way\": \"%s\", \"why\": \"%s\"}\n", bench->way->name, strerror(errno));
	return true;
}

static void measure(struct bench *bench, const char *kind, size_t pages, int rounds)
{
	if (is_refused(bench))
		return;
	bench->clock_ns = clock_cost_ns();
	run_round(bench, WARM_UP_PAGES);
	for (int round = 0; round < rounds; round++) {
		struct exmap_statistics before = read_statistics(bench);
		uint64_t interrupts[INTERRUPTS];

		read_interrupts(interrupts);
		struct totals totals = run_round(bench, pages);

		print_round(bench, kind, round, &totals, &before, interrupts);
	}
}

/* Another process that has a map with memory, and waits. */
static pid_t start_other(void)
{
	int ready[2];
	char byte;

	check(!pipe(ready), "pipe");
	pid_t other = fork();

	check(other >= 0, "fork");
	if (!other) {
		struct bench bench = { .way = find_way(churns, sizeof(churns) / sizeof(*churns), "exmap"), .threads = 1,
				       .batch = GROUP };
		struct worker worker = { .bench = &bench };

		prepare(&bench);
		name_pages(&worker);
		take_entries(&worker);
		check(write(ready[1], "r", 1) == 1, "write");
		for (;;)
			pause();
	}
	close(ready[1]);
	check(read(ready[0], &byte, 1) == 1, "the other process");
	close(ready[0]);
	return other;
}

static void measure_fault_beside(const char *label, size_t pages, int rounds)
{
	pid_t other = start_other();

	measure_fault(label, pages, rounds);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}

static void check_request(const struct bench *bench)
{
	errno = EINVAL;
	check(bench->batch && bench->batch <= GROUP && !(GROUP % bench->batch), "a batch that divides a group");
	check(bench->threads && bench->threads <= THREADS_MAX, "threads");
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	struct bench bench = { .threads = 1 };

	if (count == 7 && !strcmp(what, "churn")) {
		bench.way = find_way(churns, sizeof(churns) / sizeof(*churns), arguments[2]);
		bench.threads = atoi(arguments[6]);
	} else if (count == 7 && !strcmp(what, "read")) {
		bench.way = find_way(reads, sizeof(reads) / sizeof(*reads), arguments[2]);
	} else if (count == 5 && !strcmp(what, "fault")) {
		measure_fault(arguments[2], atol(arguments[3]), atoi(arguments[4]));
		return 0;
	} else if (count == 6 && !strcmp(what, "fault") && !strcmp(arguments[5], "other")) {
		measure_fault_beside(arguments[2], atol(arguments[3]), atoi(arguments[4]));
		return 0;
	} else {
		printf("{\"error\": \"exmap_bench: see the comment at its beginning\"}\n");
		return 2;
	}
	bench.batch = atoi(arguments[3]);
	check_request(&bench);
	prepare(&bench);
	if (!strcmp(what, "read"))
		open_device(&bench, arguments[6]);
	measure(&bench, what, atol(arguments[4]), atoi(arguments[5]));
	return 0;
}
