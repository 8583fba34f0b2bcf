// SPDX-License-Identifier: GPL-2.0
/*
 * What others pay: processes that did not opt in, beside one that forks again and again; and a parent whose child gets
 * hardly any CPU.
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "selftest.h"

#define DISK "/dev/ram0"
#define FORKER_TABLES 2
#define PIN_BYTES (480UL << 20)
#define READ_BYTES (1UL << 20)
#define READS 600
#define PAGEOUT_BYTES (16UL << 20)
#define PAGEOUTS 8
#define OWN_READS 100
#define FILLERS 500			/* half as many as there are buckets in the module's tables */
#define FILLED_BESIDE 20
#define STEP_COPY (1U << 11)		/* enum af_step */
#define LONG_NS_LOG2 28			/* 268 ms: nothing takes that long but the end of a throttled second */
#define THROTTLED_ROUNDS 5

static struct region region;

/* ---------- a process that opted in and forks as fast as it can ---------- */

static uint64_t forks_of(const struct async_fork_statistics *counters)
{
	return counters->forks_async + counters->forks_odf;
}

static uint64_t forks(void)
{
	struct async_fork_statistics now = statistics();

	return forks_of(&now);
}

static void fork_for_ever(void)
{
	region = region_map(FORKER_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	for (;;) {
		pid_t child = must_fork();

		if (!child)
			_exit(0);
		wait_status(child);
	}
}

static pid_t forker_start(void)
{
	uint64_t before = forks();
	pid_t forker = must_fork();

	if (!forker)
		fork_for_ever();
	while (mode != MODE_DEFAULT && forks() == before)
		sleep_ms(10);
	return forker;
}

static void forker_end(pid_t forker)
{
	must(kill(forker, SIGKILL));
	wait_status(forker);
}

static void expect_no_retries(const struct async_fork_statistics *before, const char *what)
{
	uint64_t retries = statistics().gup_retries - before->gup_retries;

	expect(!retries, "%s was tried again %lu times because another process forked", what, retries);
}

/* ---------- pinning ---------- */

static uint64_t register_ns(void *memory, size_t bytes)
{
	struct io_uring_params parameters = { 0 };
	struct iovec vector = { memory, bytes };
	int ring = syscall(SYS_io_uring_setup, 8, &parameters);
	uint64_t began = now_ns();

	if (ring < 0)
		skip("io_uring: %s", strerror(errno));
	must(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &vector, 1));
	began = now_ns() - began;
	close(ring);
	return began;
}

/* One pin takes much longer than the time between two of the forks. (Linux 6.1 pins by slow GUP here.) */
static void long_pin(void)
{
	size_t bytes = DEFAULT_TABLES < 24 ? PIN_BYTES / 8 : PIN_BYTES;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct async_fork_statistics before;
	uint64_t alone_ns, beside_ns;
	pid_t forker;

	expect(memory != MAP_FAILED, "mmap: %s", strerror(errno));
	alone_ns = register_ns(memory, bytes);
	forker = forker_start();
	before = statistics();
	beside_ns = register_ns(memory, bytes);
	printf("%zu MiB pinned in %lu ms alone, in %lu ms beside %lu forks\n", bytes >> 20, alone_ns / 1000000,
	       beside_ns / 1000000, forks() - forks_of(&before));
	expect_no_retries(&before, "a pin");
	forker_end(forker);
}

/* Many short ones, by GUP-fast in every kernel. */
static void direct_reads(void)
{
	int fd = open(DISK, O_RDONLY | O_DIRECT | O_CLOEXEC);
	struct async_fork_statistics before;
	pid_t forker;

	if (fd < 0)
		skip("no %s: %s", DISK, strerror(errno));
	region = region_map(READ_BYTES);
	region_fill(&region, 1);
	forker = forker_start();
	before = statistics();
	for (int i = 0; i < READS; i++)
		expect(pread(fd, region.base, READ_BYTES, 0) == (ssize_t)READ_BYTES, "read: %s", strerror(errno));
	expect_no_retries(&before, "a read");
	forker_end(forker);
}

static void *fork_in_a_thread(void *stop)
{
	while (!__atomic_load_n((bool *)stop, __ATOMIC_ACQUIRE)) {
		pid_t child = must_fork();

		if (!child)
			_exit(region_mixed_wrong(&region, 1, 1) ? VERDICT_FAIL : VERDICT_PASS);
		expect_exit(child, VERDICT_PASS, "a child");
	}
	return NULL;
}

/* The process forks itself, in another thread: then attempts are bounded, and children see the cut. */
static void own_forks(void)
{
	int fd = open(DISK, O_RDONLY | O_DIRECT | O_CLOEXEC);
	struct async_fork_statistics before;
	static bool stop;
	pthread_t thread;
	char *target;

	if (fd < 0)
		skip("no %s: %s", DISK, strerror(errno));
	target = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	region = region_map(FORKER_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	before = statistics();
	expect(!pthread_create(&thread, NULL, fork_in_a_thread, &stop), "pthread_create");
	for (int i = 0; i < OWN_READS; i++)
		expect(pread(fd, target, READ_BYTES, 0) == (ssize_t)READ_BYTES, "read: %s", strerror(errno));
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	/* each read of 1 MiB is pinned in at least one part and in no more than one for each page */
	expect(statistics().gup_retries - before.gup_retries <= 3ULL * OWN_READS * READ_BYTES / PAGE_BYTES,
	       "%llu attempts", statistics().gup_retries - before.gup_retries);
}

/* ---------- reclaim ---------- */

/* A page that is unmapped beside another process's forks costs no flush of every TLB. */
static void pageout(void)
{
	long before, after;
	pid_t forker;

	region = region_map(PAGEOUT_BYTES);
	forker = forker_start();
	before = read_field("/proc/async_fork", "rmap_flushes");
	expect(mode == MODE_DEFAULT || before >= 0, "/proc/async_fork has no rmap_flushes");
	for (int i = 0; i < PAGEOUTS; i++) {
		region_fill(&region, i);
		must(madvise(region.base, PAGEOUT_BYTES, MADV_PAGEOUT));
	}
	after = read_field("/proc/async_fork", "rmap_flushes");
	expect(after == before, "%ld flushes of all TLBs because another process forked", after - before);
	forker_end(forker);
	expect(!region_wrong(&region, PAGEOUTS - 1), "memory changed");
}

/* ---------- userfaultfd ---------- */

/* Fills a page from one that nobody ever provides. Returns when it is killed. */
static void fill_for_ever(void)
{
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register wish = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_copy copy = { .len = PAGE_BYTES };
	char *memory = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	wish.range.start = copy.dst = (uintptr_t)memory;
	wish.range.len = 2 * PAGE_BYTES;
	copy.src = copy.dst + PAGE_BYTES;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &wish))
		_exit(VERDICT_SKIP);
	ioctl(uffd, UFFDIO_COPY, &copy);
	_exit(VERDICT_FAIL);
}

/* A process of its own, with an mm of its own: whether its fork leaves tables to the child. */
static void defers(void)
{
	uint64_t before = statistics().tables_deferred + statistics().tables_shared;
	pid_t child;

	opt_in();
	child = must_fork();
	if (!child)
		_exit(0);
	wait_status(child);
	if (mode != MODE_DEFAULT && statistics().tables_deferred + statistics().tables_shared == before)
		fail("the parent copied its tables because others use userfaultfd");
	_exit(VERDICT_PASS);
}

/* A process that fills pages, however long that takes, keeps others' forks from nothing. */
static void fills(void)
{
	static pid_t fillers[FILLERS];

	region = region_map(FORKER_TABLES * TABLE_BYTES);
	for (int i = 0; i < FILLERS; i++) {
		fillers[i] = must_fork();
		if (!fillers[i])
			fill_for_ever();
	}
	sleep_ms(500);
	if (waitpid(fillers[0], NULL, WNOHANG))
		skip("no userfaultfd");
	region_fill(&region, 1);
	for (int i = 0; i < FILLED_BESIDE; i++) {
		pid_t one = must_fork();

		if (!one)
			defers();
		expect_exit(one, VERDICT_PASS, "a process beside them");
	}
	for (int i = 0; i < FILLERS; i++) {
		must(kill(fillers[i], SIGKILL));
		wait_status(fillers[i]);
	}
}

/* ---------- a child without a CPU ---------- */

static pid_t fork_into(const char *directory)
{
	int fd = must(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct clone_args arguments = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = fd };
	pid_t pid = syscall(SYS_clone3, &arguments, sizeof(arguments));

	must(pid);
	if (pid)
		close(fd);
	return pid;
}

static uint64_t long_interruptions(void)
{
	struct async_fork_statistics now = statistics();
	uint64_t count = 0;

	for (int bucket = LONG_NS_LOG2; bucket < ASYNC_FORK_BUCKETS; bucket++)
		count += now.sync_histogram[bucket];
	return count;
}

/* One fork whose child has 1 ms in each second; whether a write waited for the end of such a second. */
static bool held_up(const char *group)
{
	uint64_t before = long_interruptions(), longest = 0;
	int status;
	pid_t child;

	cgroup_write(group, "cpu.max", "1000 1000000");
	child = fork_into(group);
	if (!child)
		_exit(region_wrong(&region, 1) ? VERDICT_FAIL : VERDICT_PASS);
	sleep_ms(20);			/* the child is in the midst of its first tables, and out of time */
	for (size_t page = 0; page < region.pages; page += TABLE_PAGES) {
		uint64_t began = now_ns();

		page_write(&region, page, 2);
		began = now_ns() - began;
		longest = began > longest ? began : longest;
	}
	printf("longest write: %lu us\n", longest / 1000);
	cgroup_write(group, "cpu.max", "max");
	status = wait_status(child);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_PASS, "the child: status %x", status);
	region_fill(&region, 1);
	return long_interruptions() > before;
}

/*
 * The child may lose its CPU at any place (full preemption), and its copy of each table takes longer than its share of a
 * period. One long wait may be the host's.
 */
static void throttled_child(void)
{
	const char *preempt = "/sys/kernel/debug/sched/preempt", *group = "/sys/fs/cgroup/test.throttled";
	bool was_full;
	char step[16];
	int count = 0;

	if (!write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpu"))
		skip("no cpu controller: %s", strerror(errno));
	must(mkdir(group, 0755));
	was_full = file_contains(preempt, "(full)");
	write_file(preempt, "full");
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	snprintf(step, sizeof(step), "%u", STEP_COPY);
	parameter_set("slow_us", "0");
	if (mode != MODE_DEFAULT)
		expect(parameter_set("delay_us", "1000") && parameter_set("delay_at", step), "no delay_at");
	for (int round = 0; round < THROTTLED_ROUNDS && count < 2; round++)
		count += held_up(group);
	parameter_set("delay_at", "0");
	if (!was_full)
		write_file(preempt, "voluntary");
	must(rmdir(group));
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "-cpu");
	expect(count < 2, "in %d of at most %d rounds a write waited for a child that had no CPU", count, THROTTLED_ROUNDS);
}

const struct scenario scenarios[] = {
	{ "long_pin", long_pin, MODES_ALL },
	{ "direct_reads", direct_reads, MODES_ALL },
	{ "own_forks", own_forks, MODES_ALL },
	{ "pageout", pageout, MODES_ALL },
	{ "fills", fills, MODES_ALL },
	{ "throttled_child", throttled_child, MODE_DEFAULT | MODE_ASYNC1 | MODE_ASYNC4 },
	{ 0 },
};
