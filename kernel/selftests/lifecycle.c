// SPDX-License-Identifier: GPL-2.0
/* Parent or child goes away, becomes another program, dumps core or fails to be born while the copy is under way. */
#define _GNU_SOURCE
#include <elf.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "selftest.h"

#define ROUNDS 4

static struct region filled(size_t tables)
{
	struct region region = region_map(tables * TABLE_BYTES);

	region_fill(&region, 1);
	return region;
}

/*
 * An intermediate process forks the child and then ends by `how`; the child outlives it and tells through a pipe what
 * it saw. `look` is what the intermediate process does before.
 */
static void parent_ends(void (*how)(void))
{
	struct region region = filled(DEFAULT_TABLES);

	for (int round = 0; round < ROUNDS; round++) {
		int ends[2];
		char seen = 0;

		must(pipe(ends));
		pid_t parent = must_fork();

		if (!parent) {
			close(ends[0]);
			opt_in();
			if (!must_fork()) {
				size_t wrong = region_wrong(&region, 1);

				sleep_ms(5 * round);
				wrong += region_wrong(&region, 1);
				must(write(ends[1], wrong ? "w" : "r", 1));
				_exit(0);
			}
			for (int i = 0; i < round; i++)
				region_write_randomly(&region, 50, 2);
			how();
			_exit(0);
		}
		close(ends[1]);
		wait_status(parent);
		must(read(ends[0], &seen, 1));
		close(ends[0]);
		expect(seen == 'r', "round %d: the child saw something else or died", round);
	}
	expect(!region_wrong(&region, 1), "the memory of the test itself changed");
}

static void exit_now(void) { _exit(0); }
static void exec_now(void) { execl("/bin/busybox", "true", NULL); }
static void kill_now(void) { kill(getpid(), SIGKILL); }

static void parent_exits(void) { parent_ends(exit_now); }
static void parent_execs(void) { parent_ends(exec_now); }
static void parent_killed(void) { parent_ends(kill_now); }

static void child_killed(void)
{
	struct region region = filled(DEFAULT_TABLES);

	opt_in();
	for (int round = 0; round < 12; round++) {
		pid_t child = must_fork();

		if (!child)
			for (;;)
				pause();
		region_write_randomly(&region, 20, 1);
		usleep(round % 6 * 1500);
		must(kill(child, SIGKILL));
		int status = wait_status(child);

		expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child ended with %x", status);
		region_write_randomly(&region, 20, 1);
	}
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* The usual fork: the child becomes another program at once. */
static void child_execs(void)
{
	struct region region = filled(DEFAULT_TABLES);

	opt_in();
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = must_fork();

		if (!child) {
			execl("/bin/busybox", "true", NULL);
			_exit(1);
		}
		region_write_randomly(&region, 200, 1);
		expect_exit(child, 0, "the child");
	}
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* copy_process() fails after dup_mm(): a pid namespace whose init is dead gives out no pids. */
static void late_failure(void)
{
	struct region region = filled(DEFAULT_TABLES);
	pid_t tester = must_fork();

	if (!tester) {
		opt_in();
		must(unshare(CLONE_NEWPID));
		pid_t init = must_fork();

		if (!init)
			_exit(0);
		wait_status(init);
		for (int i = 0; i < 5; i++) {
			pid_t child = fork();

			if (!child)
				_exit(0);
			expect(child < 0, "a fork into a dead pid namespace came through");
			region_write_randomly(&region, 500, 1);
		}
		_exit(region_wrong(&region, 1) ? VERDICT_FAIL : VERDICT_PASS);
	}
	expect_exit(tester, VERDICT_PASS, "the process whose forks fail");
}

#define VMAS 160
#define KILLS 30

/* A process that does nothing but fork, with so many VMAs that it is killed in the middle of one. */
static void killed_while_forking(void)
{
	static struct region regions[VMAS];

	for (int i = 0; i < VMAS; i++) {
		regions[i] = region_map(TABLE_BYTES);
		for (size_t page = 0; page < 4; page++)
			page_write(&regions[i], page, 1);
	}
	for (int round = 0; round < KILLS; round++) {
		pid_t forker = must_fork();

		if (!forker) {
			opt_in();
			for (;;) {
				pid_t child = must_fork();

				if (!child)
					_exit(0);
				wait_status(child);
			}
		}
		usleep(10000 + random_number() % 20000);
		must(kill(forker, SIGKILL));
		expect(WTERMSIG(wait_status(forker)) == SIGKILL, "the process that forks ended by itself");
	}
	for (int i = 0; i < VMAS; i++)
		expect(!range_wrong(&regions[i], 0, 4, 1), "the memory of the test itself changed");
}

/* ---------- core dumps ---------- */

/* Whether the core file has the region's pages as they were. */
static bool core_shows(const char *path, const struct region *region, uint64_t generation)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr header;
	size_t found = 0, wrong = 0;

	if (fd < 0 || pread(fd, &header, sizeof(header), 0) != sizeof(header))
		fail("no core file %s: %s", path, strerror(errno));
	for (int i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr segment;
		uint64_t page[PAGE_BYTES / 8];

		must(pread(fd, &segment, sizeof(segment), header.e_phoff + i * sizeof(segment)));
		for (size_t p = 0; p < region->pages; p++) {
			uint64_t address = (uint64_t)region->base + p * PAGE_BYTES;

			if (segment.p_type != PT_LOAD || address < segment.p_vaddr ||
			    address >= segment.p_vaddr + segment.p_filesz)
				continue;
			must(pread(fd, page, sizeof(page), segment.p_offset + address - segment.p_vaddr));
			found++;
			wrong += page[0] != p || page[1] != generation || page[511] != p * 3 + generation;
		}
	}
	close(fd);
	unlink(path);
	if (wrong || found != region->pages)
		dprintf(STDOUT_FILENO, "core: %zu pages of %zu, %zu wrong\n", found, region->pages, wrong);
	return !wrong && found == region->pages;
}

static void allow_core(void)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };

	must_write_file("/proc/sys/kernel/core_pattern", "/tmp/core.%p");
	must(setrlimit(RLIMIT_CORE, &unlimited));
}

static void core_of_parent(void)
{
	struct region region = filled(DEFAULT_TABLES / 2);
	char path[64];
	pid_t parent;

	allow_core();
	struct async_fork_statistics before = statistics();

	parent = must_fork();
	if (!parent) {
		opt_in();
		if (!must_fork()) {
			sleep_ms(300);
			_exit(0);
		}
		abort();
	}
	expect(WTERMSIG(wait_status(parent)) == SIGABRT, "the parent did not abort");
	snprintf(path, sizeof(path), "/tmp/core.%d", parent);
	expect(core_shows(path, &region, 1), "the parent's core file is wrong");
	if (mode & MODES_ASYNC)
		expect_synchronised(&before, ASYNC_FORK_BY_COREDUMP);
}

static void core_of_child(void)
{
	struct region region = filled(DEFAULT_TABLES / 2);
	char path[64];

	allow_core();
	opt_in();
	pid_t child = must_fork();

	if (!child)
		for (;;)
			pause();
	must(kill(child, SIGQUIT));	/* while it copies */
	region_write_randomly(&region, 500, 2);
	expect(WTERMSIG(wait_status(child)) == SIGQUIT, "the child did not die of SIGQUIT");
	snprintf(path, sizeof(path), "/tmp/core.%d", child);
	expect(core_shows(path, &region, 1), "the child's core file is wrong");
}

/* ---------- unloading ---------- */

static void unload_refused_while_busy(void)
{
	struct region region = filled(DEFAULT_TABLES);

	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);
	int result = syscall(SYS_delete_module, "async_fork", O_NONBLOCK), error = errno;
	struct async_fork_statistics now = statistics();

	if (result == 0)
		fail("the module went while a session was live");
	expect(error == EAGAIN || error == EBUSY || error == EWOULDBLOCK, "delete_module: %s", strerror(error));
	region_write_randomly(&region, 500, 2);
	snapshot_end(&child);
	if (!now.sessions_live && !now.odf_mms_live)
		missed("the copy was over before delete_module");
}

/* Turning ftrace off would take the hooks away while tables are protected: the kernel refuses while we are loaded. */
static void ftrace_stays_on(void)
{
	struct region region = filled(DEFAULT_TABLES);

	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	expect(!write_file("/proc/sys/kernel/ftrace_enabled", "0") && errno == EBUSY, "ftrace could be turned off: %s",
	       strerror(errno));
	expect(read_number("/proc/sys/kernel/ftrace_enabled") == 1, "ftrace is off");
	region_write_randomly(&region, 500, 2);
	snapshot_end(&child);
}

/* A setting does not outlive its process, and its memory is not found by whoever gets the same mm next. */
static void setting_ends_with_process(void)
{
	struct region region = filled(4);

	for (int i = 0; i < 20; i++) {
		pid_t child = must_fork();

		if (!child) {
			opt_in();
			_exit(0);
		}
		expect_exit(child, 0, "the child that opts in");
	}
	struct async_fork_statistics before = statistics();

	for (int i = 0; i < 5; i++) {
		pid_t child = must_fork();

		if (!child)
			_exit(0);
		expect_exit(child, 0, "a child");
	}
	struct async_fork_statistics after = statistics();

	expect(after.forks_async == before.forks_async && after.forks_odf == before.forks_odf,
	       "a process that never opted in got its fork deferred");
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

const struct scenario scenarios[] = {
	{ "parent_exits", parent_exits, MODES_ALL },
	{ "parent_execs", parent_execs, MODES_ALL },
	{ "parent_killed", parent_killed, MODES_ALL },
	{ "child_killed", child_killed, MODES_ALL },
	{ "child_execs", child_execs, MODES_ALL },
	{ "late_failure", late_failure, MODES_ALL },
	{ "killed_while_forking", killed_while_forking, MODES_ALL },
	{ "core_of_parent", core_of_parent, MODES_ALL },
	{ "core_of_child", core_of_child, MODES_ALL },
	{ "unload_refused", unload_refused_while_busy, MODES_MODULE },
	{ "ftrace_stays_on", ftrace_stays_on, MODES_MODULE },
	{ "setting_ends", setting_ends_with_process, MODE_ASYNC1 | MODE_ODF },
	{ 0 },
};
