// SPDX-License-Identifier: GPL-2.0
/*
 * What fork costs, measured inside the virtual machine of `stillframe-bench fork`. Static, no arguments from outside.
 *
 *   fork_bench fork MB STRATEGY ROUNDS WRITES PERIOD_NS
 *       a process with MB of private memory forks; the parent then writes WRITES random pages, one every PERIOD_NS (0: back
 *       to back), while the child sleeps. STRATEGY: default, odf, or the number of Async-fork's copy threads.
 *   fork_bench fault LABEL PAGES ROUNDS [other]   first touch of anonymous pages by a process that did not opt in;
 *       with "other" while another process shares its page tables with a child
 *   fork_bench small LABEL ROUNDS        fork of this small process, and its whole life
 *   fork_bench path LABEL ROUNDS [other]   ways through hooks that have no gate, by a process that did not opt in: GUP-fast
 *       (a shared futex takes a page for writing, vmsplice takes 16 for reading) and the reverse map (a page of
 *       MADV_FREE is reclaimed, a page moves to another node: boot with two)
 *
 * Each round is one line of JSON on standard output. Times are of CLOCK_MONOTONIC in ns: with QEMU's -icount shift=0
 * and one CPU that is the number of instructions.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "../include/uapi/async_fork.h"

#define COPY_WAIT_MS 60000
#define OTHER_PAGES (16ul * 256)
#define FUTEX_CALLS 10000
#define SPLICE_CALLS 1000
#define SPLICE_PAGES 16ul	/* what a pipe holds */
#define RMAP_PAGES 2048ul

/* Repeatable: every run touches the same pages. */
static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void set_strategy(const char *name)
{
	struct async_fork_control control = { .size = sizeof(control), .version = ASYNC_FORK_VERSION };
	int device = open(ASYNC_FORK_DEVICE, O_WRONLY | O_CLOEXEC);

	if (device < 0 && !strcmp(name, "default"))
		return;	/* no module: there is nothing else */
	check(device >= 0, "open " ASYNC_FORK_DEVICE);
	if (!strcmp(name, "default")) {
		control.strategy = ASYNC_FORK_DEFAULT;
	} else if (!strcmp(name, "odf")) {
		control.strategy = ASYNC_FORK_ODF;
	} else {
		control.strategy = ASYNC_FORK_ASYNC;
		control.copy_threads = atoi(name);
	}
	check(write(device, &control, sizeof(control)) == sizeof(control), "write " ASYNC_FORK_DEVICE);
	close(device);
}

/* All zero without the module. */
static void read_statistics(struct async_fork_statistics *statistics)
{
	int device = open(ASYNC_FORK_DEVICE, O_RDONLY | O_CLOEXEC);

	memset(statistics, 0, sizeof(*statistics));
	if (device < 0)
		return;
	check(read(device, statistics, sizeof(*statistics)) == sizeof(*statistics), "read " ASYNC_FORK_DEVICE);
	check(statistics->version == ASYNC_FORK_VERSION, "version of " ASYNC_FORK_DEVICE);
	close(device);
}

static void wait_until_copied(void)
{
	struct async_fork_statistics statistics;

	for (int i = 0; i < COPY_WAIT_MS; i++) {
		read_statistics(&statistics);
		if (!statistics.sessions_live)
			return;
		usleep(1000);
	}
	errno = ETIMEDOUT;
	check(false, "waiting for the child to copy its page tables");
}

static void print_difference(const char *name, const __u64 *after, const __u64 *before, int count)
{
	printf(", \"%s\": [", name);
	for (int i = 0; i < count; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)(after[i] - before[i]));
	printf("]");
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static void wait_until(uint64_t due_ns)
{
	while (now_ns() < due_ns)
		;
}

static void kill_child(pid_t child)
{
	kill(child, SIGKILL);
	check(waitpid(child, NULL, 0) == child, "waitpid");
}

static pid_t fork_sleeper(void)
{
	pid_t child = fork();

	check(child >= 0, "fork");
	while (!child)
		pause();
	return child;
}

struct request { size_t megabytes; const char *strategy; int writes; uint64_t period_ns; };

static void print_round(const struct request *request, int round, uint64_t fork_ns, uint64_t *latencies,
			const struct async_fork_statistics *before)
{
	struct async_fork_statistics after;
	int writes = request->writes;

	read_statistics(&after);
	qsort(latencies, writes, sizeof(*latencies), compare);
	printf("{\"kind\": \"fork\", \"mb\": %zu, \"strategy\": \"%s\", \"round\": %d, \"fork_ns\": %lu, \"writes\": %d, "
	       "\"period_ns\": %lu, \"tables\": %zu", request->megabytes, request->strategy, round, fork_ns, writes,
	       request->period_ns, request->megabytes / 2);
	printf(", \"write_p50_ns\": %lu, \"write_p99_ns\": %lu, \"write_max_ns\": %lu", writes ? latencies[writes / 2] : 0,
	       writes ? latencies[writes * 99 / 100] : 0, writes ? latencies[writes - 1] : 0);
	printf(", \"forks_async\": %llu, \"forks_odf\": %llu, \"tables_deferred\": %llu, \"tables_shared\": %llu",
	       (unsigned long long)(after.forks_async - before->forks_async),
	       (unsigned long long)(after.forks_odf - before->forks_odf),
	       (unsigned long long)(after.tables_deferred - before->tables_deferred),
	       (unsigned long long)(after.tables_shared - before->tables_shared));
	printf(", \"dup_mmap_ns\": %llu, \"child_copy_ns\": %llu, \"sync_ns\": %llu",
	       (unsigned long long)(after.fork_ns_total - before->fork_ns_total),
	       (unsigned long long)(after.child_copy_ns_total - before->child_copy_ns_total),
	       (unsigned long long)(after.sync_ns_total - before->sync_ns_total));
	print_difference("copied", after.tables_copied, before->tables_copied, ASYNC_FORK_REASONS);
	print_difference("unshared", after.tables_unshared, before->tables_unshared, ASYNC_FORK_REASONS);
	print_difference("histogram", after.sync_histogram, before->sync_histogram, ASYNC_FORK_BUCKETS);
	print_difference("refused", after.forks_refused, before->forks_refused, ASYNC_FORK_REFUSALS);
	printf("}\n");
	fflush(stdout);
}

static void measure_fork(const struct request *request, int rounds)
{
	size_t pages = request->megabytes * 256;
	char *memory = map_pages(pages);
	uint64_t *latencies = calloc(request->writes + 1, sizeof(*latencies));

	check(latencies, "calloc");
	touch_all(memory, pages);
	set_strategy(request->strategy);
	for (int round = 0; round < rounds; round++) {
		struct async_fork_statistics before;

		read_statistics(&before);
		fflush(stdout);
		uint64_t begin_ns = now_ns();
		pid_t child = fork_sleeper();
		uint64_t end_ns = now_ns();

		for (int i = 0; i < request->writes; i++) {
			char *page = memory + random_next() % pages * PAGE;

			wait_until(end_ns + i * request->period_ns);
			uint64_t start_ns = now_ns();
			*(volatile uint64_t *)page = begin_ns;
			latencies[i] = now_ns() - start_ns;
		}
		wait_until_copied();
		print_round(request, round, end_ns - begin_ns, latencies, &before);
		kill_child(child);
		/* Every page is the parent's own and writable again, as after a server has overwritten its data. */
		if (round + 1 < rounds)
			touch_all(memory, pages);
	}
	free(latencies);
	munmap(memory, pages * PAGE);
}

/* Another process that shares its page tables with a child: hooks are live then. */
static pid_t start_other(void)
{
	int ready[2];
	char byte;

	check(!pipe(ready), "pipe");
	pid_t other = fork();

	check(other >= 0, "fork");
	if (!other) {
		char *memory = map_pages(OTHER_PAGES);

		setpgid(0, 0);	/* both end with one signal */
		touch_all(memory, OTHER_PAGES);
		set_strategy("odf");
		pid_t sharer = fork();

		check(sharer >= 0, "fork");
		if (sharer)
			check(write(ready[1], "r", 1) == 1, "write");
		for (;;)
			pause();
	}
	check(read(ready[0], &byte, 1) == 1, "read");
	close(ready[0]);
	close(ready[1]);
	return other;
}

static void stop_other(pid_t other)
{
	fflush(stdout);
	kill(-other, SIGKILL);
	waitpid(other, NULL, 0);
}

static void print_path(const char *path, const char *label, int round, uint64_t begin_ns, size_t count)
{
	printf("{\"kind\": \"path\", \"path\": \"%s\", \"label\": \"%s\", \"round\": %d, \"ns_each\": %.2f}\n", path, label,
	       round, (double)(now_ns() - begin_ns) / count);
}

/* Waking a futex that is not private takes its page by GUP-fast, for writing: little else happens in the call. */
static void measure_futex(const char *label, int round, char *memory)
{
	uint64_t begin_ns = now_ns();

	for (int i = 0; i < FUTEX_CALLS; i++)
		check(!syscall(SYS_futex, memory, FUTEX_WAKE, 1, NULL, NULL, 0), "futex");
	print_path("futex", label, round, begin_ns, FUTEX_CALLS);
}

static void measure_splice(const char *label, int round, char *memory)
{
	struct iovec pages = { memory, SPLICE_PAGES * PAGE };
	int ends[2], nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

	check(nowhere >= 0 && !pipe(ends), "pipe to /dev/null");
	uint64_t begin_ns = now_ns();

	for (int i = 0; i < SPLICE_CALLS; i++) {
		check(vmsplice(ends[1], &pages, 1, 0) == (ssize_t)pages.iov_len, "vmsplice");
		check(splice(ends[0], NULL, nowhere, NULL, pages.iov_len, 0) == (ssize_t)pages.iov_len, "splice");
	}
	print_path("vmsplice", label, round, begin_ns, SPLICE_CALLS);
	close(nowhere);
	close(ends[0]);
	close(ends[1]);
}

/* Pages of MADV_FREE are reclaimed without swap. */
static void measure_reclaim(const char *label, int round, char *memory)
{
	static unsigned char resident[RMAP_PAGES];
	size_t left = 0;

	touch_all(memory, RMAP_PAGES);
	check(!madvise(memory, RMAP_PAGES * PAGE, MADV_FREE), "MADV_FREE");
	uint64_t begin_ns = now_ns();

	check(!madvise(memory, RMAP_PAGES * PAGE, MADV_PAGEOUT), "MADV_PAGEOUT");
	print_path("reclaim", label, round, begin_ns, RMAP_PAGES);
	check(!mincore(memory, RMAP_PAGES * PAGE, resident), "mincore");
	for (size_t i = 0; i < RMAP_PAGES; i++)
		left += resident[i] & 1;
	errno = EBUSY;
	check(left < RMAP_PAGES / 50, "reclaim of pages of MADV_FREE");
}

static void move_all(char *memory, int node)
{
	static void *pages[RMAP_PAGES];
	static int nodes[RMAP_PAGES], status[RMAP_PAGES];
	size_t moved = 0;

	for (size_t i = 0; i < RMAP_PAGES; i++) {
		pages[i] = memory + i * PAGE;
		nodes[i] = node;
	}
	check(syscall(SYS_move_pages, 0, RMAP_PAGES, pages, nodes, status, MPOL_MF_MOVE) >= 0, "move_pages");
	for (size_t i = 0; i < RMAP_PAGES; i++)
		moved += status[i] == node;
	errno = EBUSY;
	check(moved > RMAP_PAGES - RMAP_PAGES / 50, "move_pages");
}

static void measure_migration(const char *label, int round, char *memory)
{
	touch_all(memory, RMAP_PAGES);
	move_all(memory, 0);
	uint64_t begin_ns = now_ns();

	move_all(memory, 1);
	print_path("migrate", label, round, begin_ns, RMAP_PAGES);
}

static void measure_paths(const char *label, int rounds)
{
	static void (*const paths[])(const char *label, int round, char *memory) = {
		measure_futex, measure_splice, measure_reclaim, measure_migration,
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		char *memory = map_pages(RMAP_PAGES);

		touch_all(memory, RMAP_PAGES);
		for (int round = 0; round < rounds; round++)
			paths[i](label, round, memory);
		munmap(memory, RMAP_PAGES * PAGE);
	}
	fflush(stdout);
}

static void measure_small(const char *label, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		uint64_t begin_ns = now_ns();
		pid_t child = fork();

		if (!child)
			_exit(0);
		uint64_t forked_ns = now_ns();

		check(child >= 0 && waitpid(child, NULL, 0) == child, "small fork");
		uint64_t ended_ns = now_ns();

		printf("{\"kind\": \"small\", \"label\": \"%s\", \"round\": %d, \"fork_ns\": %lu, \"life_ns\": %lu}\n", label,
		       round, forked_ns - begin_ns, ended_ns - begin_ns);
		fflush(stdout);
	}
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	bool with_other = count > 2 && !strcmp(arguments[count - 1], "other");
	pid_t other = with_other ? start_other() : 0;

	count -= with_other;
	if (count == 7 && !strcmp(what, "fork")) {
		struct request request = { .megabytes = atol(arguments[2]), .strategy = arguments[3],
					   .writes = atoi(arguments[5]), .period_ns = atol(arguments[6]) };

		measure_fork(&request, atoi(arguments[4]));
	} else if (count == 5 && !strcmp(what, "fault")) {
		measure_fault(arguments[2], atol(arguments[3]), atoi(arguments[4]));
	} else if (count == 4 && !strcmp(what, "small")) {
		measure_small(arguments[2], atoi(arguments[3]));
	} else if (count == 4 && !strcmp(what, "path")) {
		measure_paths(arguments[2], atoi(arguments[3]));
	} else {
		printf("{\"error\": \"fork_bench: see the comment at its beginning\"}\n");
		return 2;
	}
	if (with_other)
		stop_other(other);
	return 0;
}
