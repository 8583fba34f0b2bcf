// SPDX-License-Identifier: GPL-2.0
/* Swap, memory pressure and the OOM killer while the child's copy is under way. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/swap.h>
#include <sys/syscall.h>

#include "selftest.h"

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#define SWAP "/dev/zram0"
/* More than SWAP_MAP_MAX (62) users of one swap slot: its count needs a continuation page. */
#define MANY_CHILDREN 70

static struct region region;

static void begin(size_t tables)
{
	region = region_map(tables * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
}

static void need_swap(void)
{
	if (read_field("/proc/meminfo", "SwapTotal") <= 0)
		skip("no swap");
}

static void page_out(void)
{
	must(madvise(region.base, region.pages * PAGE_BYTES, MADV_PAGEOUT));
}

static long swapped_kb(void)
{
	return read_field("/proc/self/smaps_rollup", "Swap");
}

static void finish(struct snapshot *child)
{
	region_write_randomly(&region, 2000, 2);
	snapshot_end(child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void swapped_before_fork(void)
{
	need_swap();
	begin(DEFAULT_TABLES);
	page_out();
	expect(swapped_kb() > 1024, "only %ld kB were swapped", swapped_kb());
	struct snapshot child = snapshot_fork(&region, 1);

	finish(&child);
}

/* The group of both may hold little more than one copy of the region. */
static void pressure(void)
{
	need_swap();
	const char *group = cgroup_enter("pressure");

	begin(6);
	cgroup_write(group, "memory.max", "16M");
	for (uint64_t generation = 1; generation < 3; generation++) {
		struct snapshot child = snapshot_fork(&region, generation);

		region_fill(&region, generation + 1);
		snapshot_end(&child);
		expect(!region_wrong(&region, generation + 1), "the parent lost writes");
	}
}

/* memory.reclaim works on the group while parent and child share what is mapped. */
static void reclaim_by_hand(void)
{
	need_swap();
	const char *group = cgroup_enter("reclaim");
	char path[256];

	begin(DEFAULT_TABLES);
	struct snapshot child = snapshot_fork(&region, 1);

	snprintf(path, sizeof(path), "%s/memory.reclaim", group);
	for (int i = 0; i < 6; i++) {
		if (!write_file(path, "16M") && errno != EAGAIN)
			skip("memory.reclaim: %s", strerror(errno));
		region_write_randomly(&region, 300, 2);
	}
	finish(&child);
}

static void slow_us_set(long slow_us)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", slow_us);
	expect(parameter_set("slow_us", text), "slow_us: %s", strerror(errno));
}

/* The same, and compaction, while it is certain that nearly all tables wait for the child to copy them. */
static void reclaimed_while_pending(void)
{
	need_swap();
	const char *group = cgroup_enter("pending");
	long slow_us = parameter_get("slow_us");
	char path[256];

	begin(DEFAULT_TABLES);
	slow_us_set(500 * slow_us);
	struct snapshot child = snapshot_fork(&region, 1);

	snprintf(path, sizeof(path), "%s/memory.reclaim", group);
	if (!write_file(path, "16M") && errno != EAGAIN)
		skip("memory.reclaim: %s", strerror(errno));
	must_write_file("/proc/sys/vm/compact_memory", "1");
	uint64_t copied = synchronised(&child.before, ASYNC_FORK_BY_CHILD) +
			  synchronised(&child.before, ASYNC_FORK_BY_HELPER);

	slow_us_set(slow_us);
	finish(&child);
	if (copied > DEFAULT_TABLES / 2)
		missed("%lu of %d tables were copied before reclaim and compaction ended", copied, DEFAULT_TABLES);
}

/* Each child unshares or copies tables of swap entries; the parent is swapped in only at the end. */
static void many_users_of_a_swap_slot(void)
{
	static struct snapshot children[MANY_CHILDREN];

	need_swap();
	begin(2);
	for (size_t page = 0; page < region.pages; page += 2)
		page_write(&region, page, 1);
	page_out();
	expect(swapped_kb() > 1024, "only %ld kB were swapped", swapped_kb());
	for (int i = 0; i < MANY_CHILDREN; i++) {
		int ends[2];

		must(pipe(ends));
		children[i].go = ends[1];
		children[i].pid = must_fork();
		if (!children[i].pid) {
			char byte;

			close(ends[1]);
			for (size_t page = 0; page < region.pages; page +=
			     TABLE_PAGES)	/* its own tables, still swapped */
				page_write(&region, page, 1);
			must(read(ends[0], &byte, 1));
			_exit(region_wrong(&region, 1) ? VERDICT_FAIL : VERDICT_PASS);
		}
		close(ends[0]);
		region_write_randomly(&region, 2, 1);
	}
	for (int i = 0; i < MANY_CHILDREN; i++)
		snapshot_end(&children[i]);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

static long swapoff_compat(const char *path)
{
#ifdef __x86_64__
	/* The 32-bit entry: another function in the kernel. Its arguments are below 4 GiB. */
	char *low = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long result;

	expect(low != MAP_FAILED, "mmap below 4 GiB: %s", strerror(errno));
	strcpy(low, path);
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(115), "b"(low) : "memory", "r8", "r9", "r10", "r11");
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
#else
	(void)path;
	skip("no other entry on this architecture");
#endif
}

static long swapoff_native(const char *path)
{
	return swapoff(path);
}

static void swap_goes(long (*off)(const char *))
{
	need_swap();
	begin(DEFAULT_TABLES);
	must(madvise(region.base, region.pages * PAGE_BYTES / 2, MADV_PAGEOUT));
	expect(swapped_kb() > 1024, "only %ld kB were swapped", swapped_kb());
	struct snapshot child = snapshot_fork(&region, 1);

	must(off(SWAP));
	expect_synchronised(&child.before, ASYNC_FORK_BY_SWAPOFF);
	expect(swapped_kb() <= 0, "%ld kB are still swapped", swapped_kb());
	must(swapon(SWAP, 0));
	finish(&child);
}

static void swapoff_during_copy(void)
{
	swap_goes(swapoff_native);
}

/*
 * The child has one table of its own with swap entries, so swapoff comes to it before it comes to the parent, whose
 * other tables it uses. It does not wait for ever: a swapoff that cannot see through shared tables waits for its end.
 */
#define CHILD_PATIENCE_MS 5000

static void swap_goes_child_first(long (*off)(const char *))
{
	int ready[2], go[2];
	char byte = 0;

	need_swap();
	begin(DEFAULT_TABLES);
	page_out();
	expect(swapped_kb() > 1024, "only %ld kB were swapped", swapped_kb());
	must(pipe(ready));
	must(pipe(go));
	struct async_fork_statistics before = statistics();
	pid_t child = must_fork();

	if (!child) {
		page_write(&region, 0, 1);
		must(write(ready[1], &byte, 1));
		must(poll(&(struct pollfd){ .fd = go[0], .events = POLLIN }, 1, CHILD_PATIENCE_MS));
		_exit(region_wrong(&region, 1) ? VERDICT_FAIL : VERDICT_PASS);
	}
	must(read(ready[0], &byte, 1));
	must(off(SWAP));
	expect(swapped_kb() <= 0, "%ld kB are still swapped", swapped_kb());
	must(swapon(SWAP, 0));
	must(write(go[1], &byte, 1));
	expect_exit(child, VERDICT_PASS, "the child");
	if (mode == MODE_ODF)
		expect_synchronised(&before, ASYNC_FORK_BY_SWAPOFF);
	region_write_randomly(&region, 2000, 2);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void swapoff_child_first(void)
{
	swap_goes_child_first(swapoff_native);
}

static void swapoff_by_32_bit_call(void)
{
	if (mode == MODE_ODF)
		swap_goes_child_first(swapoff_compat);
	else
		swap_goes(swapoff_compat);
}

#define SWAPOFF_ROUNDS 6
#define HELD_BYTES (32UL << 20)

struct peer { pid_t pid; int go, done; };

/* A process that turns swap off and on again each time it is told to, a little later. */
static struct peer swap_switch(void)
{
	int go[2], done[2];
	struct peer peer;
	char byte;

	must(pipe2(go, O_CLOEXEC));
	must(pipe2(done, O_CLOEXEC));
	peer = (struct peer){ must_fork(), go[1], done[0] };
	if (peer.pid)
		return peer;
	close(go[1]);
	while (read(go[0], &byte, 1) == 1) {
		sleep_ms(2);
		must(swapoff(SWAP));
		must(swapon(SWAP, 0));
		must(write(done[1], "d", 1));
	}
	_exit(VERDICT_PASS);
}

static volatile bool held;

/* Holds this process's mmap_lock for as long as it takes. */
static void *hold_once(void *memory)
{
	held = true;
	madvise(memory, HELD_BYTES, MADV_POPULATE_WRITE);
	return NULL;
}

/* swapoff begins while a fork waits for mmap_lock: after it has asked for swapoff, and before it protects anything. */
static void swapoff_while_fork_waits(void)
{
	char byte;

	need_swap();
	struct peer peer = swap_switch();

	begin(8);
	for (int round = 0; round < SWAPOFF_ROUNDS; round++) {
		void *memory = mmap(NULL, HELD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_t thread;

		expect(memory != MAP_FAILED, "mmap: %s", strerror(errno));
		must(madvise(region.base, region.pages * PAGE_BYTES / 2, MADV_PAGEOUT));
		held = false;
		expect(!pthread_create(&thread, NULL, hold_once, memory), "no thread");
		while (!held)
			sched_yield();
		sleep_ms(1);
		must(write(peer.go, "g", 1));
		struct snapshot child = snapshot_fork(&region, 1);

		must(read(peer.done, &byte, 1));
		snapshot_end(&child);
		pthread_join(thread, NULL);
		munmap(memory, HELD_BYTES);
	}
	kill(peer.pid, SIGKILL);
	wait_status(peer.pid);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* ---------- OOM ---------- */

static void prefer_as_victim(void)
{
	must_write_file("/proc/self/oom_score_adj", "1000");
}

/* Eats until the group's limit: no swap, the killer must come. */
static void eat(size_t bytes)
{
	char *more = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(more != MAP_FAILED, "mmap: %s", strerror(errno));
	for (size_t i = 0; i < bytes; i += PAGE_BYTES)
		more[i] = 1;
}

static void oom_of_child(void)
{
	const char *group = cgroup_enter("oom");

	begin(DEFAULT_TABLES);
	cgroup_write(group, "memory.swap.max", "0");
	cgroup_write(group, "memory.max", "80M");
	for (int round = 0; round < 3; round++) {
		pid_t child = must_fork();

		if (!child) {
			prefer_as_victim();
			eat(100 << 20);
			_exit(VERDICT_PASS);
		}
		region_write_randomly(&region, 300, 1);
		int status = wait_status(child);

		expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child was not killed: %x", status);
		expect(!region_wrong(&region, 1), "the parent's memory changed");
	}
}

static void oom_of_parent(void)
{
	const char *group = cgroup_enter("oom");
	int ends[2];
	char seen = 0;

	must_write_file("/proc/self/oom_score_adj", "-1000");
	must(pipe(ends));
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	pid_t parent = must_fork();

	if (!parent) {
		region_fill(&region, 1);
		opt_in();
		cgroup_write(group, "memory.swap.max", "0");
		cgroup_write(group, "memory.max", "80M");
		if (!must_fork()) {
			size_t wrong = region_wrong(&region, 1);

			sleep_ms(200);
			wrong += region_wrong(&region, 1);
			must(write(ends[1], wrong ? "w" : "r", 1));
			_exit(0);
		}
		prefer_as_victim();
		region_write_randomly(&region, 300, 2);
		eat(100 << 20);
		_exit(0);
	}
	close(ends[1]);
	int status = wait_status(parent);

	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the parent was not killed: %x", status);
	must(read(ends[0], &seen, 1));
	expect(seen == 'r', "the child saw something else or died");
}

/* process_mrelease() is the OOM reaper by request: it takes the memory of a process that is dying. */
static void reaped_while_dying(void)
{
	begin(DEFAULT_TABLES);
	uint64_t skips = statistics().oom_reaper_skips;
	int reaped = 0;

	for (int round = 0; round < 12; round++) {
		pid_t child = must_fork();

		if (!child)
			for (;;)
				page_write(&region, random_number() % region.pages, 7);
		int fd = must(syscall(SYS_pidfd_open, child, 0));

		usleep(round % 4 * 2000);
		must(kill(child, SIGKILL));
		reaped += syscall(SYS_process_mrelease, fd, 0) == 0;
		close(fd);
		wait_status(child);
		region_write_randomly(&region, 50, 1);
	}
	if (mode == MODE_DEFAULT)
		expect(reaped, "none was reaped");
	else if (statistics().oom_reaper_skips == skips)
		missed("the reaper came too late each time; it took %d", reaped);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/*
 * The same for a parent whose child has not copied everything. In every other round both share this process's CPU and
 * run only when it sleeps: the request comes before the parent has begun to die, however slow the machine.
 */
static void reaped_parent(void)
{
	struct async_fork_statistics before = statistics(), after;
	struct sched_param none = { 0 };

	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	for (int round = 0; round < 6; round++) {
		int ends[2];
		char seen = 0;

		must(pipe(ends));
		run_on(0, round % 2 ? 1 : ~0UL);
		pid_t parent = must_fork();

		if (!parent) {
			if (round % 2)
				must(sched_setscheduler(0, SCHED_IDLE, &none));
			opt_in();
			if (!must_fork()) {
				size_t wrong = region_wrong(&region, 1);

				sleep_ms(50);
				wrong += region_wrong(&region, 1);
				must(write(ends[1], wrong ? "w" : "r", 1));
				_exit(0);
			}
			must(write(ends[1], "f", 1));
			for (;;)
				page_write(&region, random_number() % 100, 7);
		}
		close(ends[1]);
		int fd = must(syscall(SYS_pidfd_open, parent, 0));

		must(read(ends[0], &seen, 1));
		if (seen == 'f') {
			must(kill(parent, SIGKILL));
			syscall(SYS_process_mrelease, fd, 0);
			must(read(ends[0], &seen, 1));
		} else {
			kill(parent, SIGKILL);
		}
		close(fd);
		wait_status(parent);
		close(ends[0]);
		expect(seen == 'r', "round %d: the child saw something else or died", round);
	}
	/* what is copied when the parent exits is counted as that, so nobody else zaps anything here */
	after = statistics();
	if (mode & MODES_ASYNC)
		expect(after.tables_copied[ASYNC_FORK_BY_ZAP] == before.tables_copied[ASYNC_FORK_BY_ZAP],
		       "the reaper, which must not allocate, copied %llu tables",
		       after.tables_copied[ASYNC_FORK_BY_ZAP] - before.tables_copied[ASYNC_FORK_BY_ZAP]);
}

/* No room for the child's tables: it dies, the parent does not notice. */
static void no_room_for_tables(void)
{
	const char *group = cgroup_enter("tables");
	char limit[32];
	int died = 0;

	begin(64);
	cgroup_write(group, "memory.swap.max", "0");
	must_write_file("/proc/self/oom_score_adj", "-1000");
	snprintf(limit, sizeof(limit), "%zu", region.pages * PAGE_BYTES + (3 << 20));
	cgroup_write(group, "memory.max", limit);
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();

		if (!child) {
			prefer_as_victim();
			size_t wrong = region_wrong(&region, 1);

			region_fill(&region, 1);	/* needs a second copy of everything */
			_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
		}
		if (child < 0) {
			died++;
			continue;
		}
		int status = wait_status(child);

		died += WIFSIGNALED(status);
		expect(WIFSIGNALED(status) || WEXITSTATUS(status) == VERDICT_PASS, "the child saw something else");
	}
	cgroup_write(group, "memory.max", "max");
	expect(died, "the children had room enough");
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

const struct scenario scenarios[] = {
	{ "swapped_before_fork", swapped_before_fork, MODES_ALL },
	{ "pressure", pressure, MODES_ALL },
	{ "memory_reclaim", reclaim_by_hand, MODES_ALL },
	{ "many_users_of_a_swap_slot", many_users_of_a_swap_slot, MODES_ALL },
	{ "while_pending", reclaimed_while_pending, MODES_ASYNC },
	{ "swapoff", swapoff_during_copy, MODES_ALL },
	{ "swapoff_child_first", swapoff_child_first, MODES_ALL },
	{ "swapoff_32_bit", swapoff_by_32_bit_call, MODES_ALL },
	{ "swapoff_while_fork_waits", swapoff_while_fork_waits, MODES_ALL },
	{ "oom_of_child", oom_of_child, MODES_ALL },
	{ "oom_of_parent", oom_of_parent, MODES_ALL },
	{ "mrelease_child", reaped_while_dying, MODES_ALL },
	{ "mrelease_parent", reaped_parent, MODES_ALL },
	{ "no_room_for_tables", no_room_for_tables, MODES_ALL },
	{ 0 },
};
