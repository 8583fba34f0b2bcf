// SPDX-License-Identifier: GPL-2.0
/* The module's interface: device, statistics, /proc file, memory.async_fork, and which setting wins. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "selftest.h"

#define NOBODY 65534

static struct region region;

static int raw_write(const void *bytes, size_t size)
{
	int fd = must(open(ASYNC_FORK_DEVICE, O_WRONLY | O_CLOEXEC));
	ssize_t written = write(fd, bytes, size);
	int result = written < 0 ? -errno : (int)written;

	close(fd);
	return result;
}

static void bad_requests(void)
{
	const struct async_fork_control good = {
		.size = sizeof(good), .version = ASYNC_FORK_VERSION, .strategy = ASYNC_FORK_ASYNC, .copy_threads = 1,
	};
	struct { const char *what; struct async_fork_control request; int result; } wrong[] = {
		{ "size", good, -EINVAL }, { "version", good, -EINVAL }, { "strategy", good, -EINVAL },
		{ "no threads", good, -EINVAL }, { "too many threads", good, -EINVAL }, { "reserved", good, -EINVAL },
		{ "odf with threads", good, -EINVAL }, { "default with threads", good, -EINVAL },
		{ "no such process", good, -ESRCH }, { "negative pid", good, -ESRCH },
	};

	wrong[0].request.size++;
	wrong[1].request.version++;
	wrong[2].request.strategy = 4;
	wrong[3].request.copy_threads = 0;
	wrong[4].request.copy_threads = ASYNC_FORK_THREADS_MAX + 1;
	wrong[5].request.reserved = 1;
	wrong[6].request.strategy = ASYNC_FORK_ODF;
	wrong[7].request.strategy = ASYNC_FORK_DEFAULT;
	wrong[8].request.pid = 4000000;
	wrong[9].request.pid = -5;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int result = raw_write(&wrong[i].request, sizeof(wrong[i].request));

		expect(result == wrong[i].result || (result == -EINVAL && wrong[i].request.pid < 0), "%s: %d",
		       wrong[i].what,
		       result);
	}
	expect(raw_write(&good, sizeof(good) - 1) == -EINVAL, "a short write was taken");
	expect(raw_write(&good, sizeof(good)) == sizeof(good), "a good request was refused");
	expect(control(2, ASYNC_FORK_ASYNC, 1) < 0, "a kernel thread was opted in");
}

static void permission(void)
{
	struct stat device;
	int fd = must(open(ASYNC_FORK_DEVICE, O_WRONLY | O_CLOEXEC));

	must(stat(ASYNC_FORK_DEVICE, &device));
	expect((device.st_mode & 0777) == 0600, "mode %o", device.st_mode & 0777);
	pid_t child = must_fork();

	if (!child) {
		struct async_fork_control request = {
			.size = sizeof(request), .version = ASYNC_FORK_VERSION, .strategy = ASYNC_FORK_DEFAULT,
		};

		must(setuid(65534));
		expect(write(fd, &request, sizeof(request)) < 0 && errno == EPERM, "nobody may set strategies");
		expect(open(ASYNC_FORK_DEVICE, O_RDONLY) < 0, "nobody may open the device");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the process without rights");
}

static void statistics_read(void)
{
	struct async_fork_statistics first = statistics(), second;
	int fd = must(open(ASYNC_FORK_DEVICE, O_RDONLY | O_CLOEXEC));
	char part[100];

	expect(read(fd, part, sizeof(part)) == sizeof(part), "a short read failed");
	expect(read(fd, (char *)&second + sizeof(part), sizeof(second) - sizeof(part)) ==
	       sizeof(second) - sizeof(part), "the rest of the read failed");
	expect(read(fd, part, sizeof(part)) == 0, "no end of file");
	close(fd);
	expect_exit(({ pid_t p = must_fork(); if (!p) _exit(0); p; }), 0, "a child");
	second = statistics();
	expect(second.forks_seen > first.forks_seen, "forks_seen stands still");
	expect(read_field("/proc/async_fork", "forks_seen") >= (long)second.forks_seen,
	       "/proc/async_fork: forks_seen %ld",
	       read_field("/proc/async_fork", "forks_seen"));
	expect(read_field("/proc/async_fork", "bad_pmd_caught") == (long)second.bad_pmd_caught,
	       "/proc/async_fork: no bad_pmd_caught");
}

/* 'a', 'o' or 'd': how a fork of this process went. */
static char kind_of_fork(void)
{
	struct async_fork_statistics before = statistics(), after;
	struct snapshot child = snapshot_fork(&region, 1);

	region_write_randomly(&region, 100, 1);
	snapshot_end(&child);
	after = statistics();
	if (after.forks_async > before.forks_async)
		return 'a';
	return after.forks_odf > before.forks_odf ? 'o' : 'd';
}

static void expect_kind(char kind, const char *when)
{
	char seen = kind_of_fork();

	expect(seen == kind, "%s: the fork was '%c', not '%c'", when, seen, kind);
}

static void cgroup_setting(void)
{
	const char *group = cgroup_enter("setting");
	static const char *const refused[] = { "65", "-1", "fast", "", "1 2", "odf1" };

	region = region_map(8 * TABLE_BYTES);
	region_fill(&region, 1);
	expect_kind('d', "nothing set");
	cgroup_write(group, "memory.async_fork", "1");
	expect_kind('a', "the cgroup says 1");
	cgroup_write(group, "memory.async_fork", "64");
	expect_kind('a', "the cgroup says 64");
	cgroup_write(group, "memory.async_fork", "odf");
	expect_kind('o', "the cgroup says odf");
	expect(!control(0, ASYNC_FORK_ASYNC, 2), "control");
	expect_kind('a', "own setting async, the cgroup says odf");
	expect(!control(0, ASYNC_FORK_DEFAULT, 0), "control");
	expect_kind('d', "own setting default, the cgroup says odf");
	expect(!control(0, ASYNC_FORK_INHERIT, 0), "control");
	expect_kind('o', "own setting gone");
	cgroup_write(group, "memory.async_fork", "0");
	expect_kind('d', "the cgroup says 0");
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		char path[256];

		snprintf(path, sizeof(path), "%s/memory.async_fork", group);
		if (*refused[i])
			expect(!write_file(path, refused[i]) && (errno == EINVAL || errno == ERANGE),
			       "memory.async_fork took '%s'",
			       refused[i]);
	}
	expect(access("/sys/fs/cgroup/memory.async_fork", F_OK) < 0, "the root cgroup has the file");
}

static void set_by_pid(void)
{
	int ends[2];
	char byte;

	region = region_map(8 * TABLE_BYTES);
	region_fill(&region, 1);
	must(pipe(ends));
	pid_t other = must_fork();

	if (!other) {
		must(read(ends[0], &byte, 1));
		char kind = kind_of_fork();

		_exit(kind == (mode == MODE_ODF ? 'o' : 'a') ? VERDICT_PASS : VERDICT_FAIL);
	}
	opt_in_pid(other);
	must(write(ends[1], "g", 1));
	expect_exit(other, VERDICT_PASS, "the process that was opted in by another");
	expect_kind('d', "this process");
}

/* Sessions of different kinds side by side: a change is for the next fork. */
static void changed_while_busy(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	for (int round = 0; round < 4; round++) {
		opt_in();
		struct snapshot one = snapshot_fork(&region, 1);

		expect(!control(0, round & 1 ? ASYNC_FORK_ODF : ASYNC_FORK_ASYNC, round & 1 ? 0 : 3), "control");
		region_write_randomly(&region, 20, 1);
		struct snapshot two = snapshot_fork(&region, 1);

		expect(!control(0, ASYNC_FORK_DEFAULT, 0), "control");
		region_write_randomly(&region, 20, 1);
		struct snapshot three = snapshot_fork(&region, 1);

		expect(!control(0, ASYNC_FORK_INHERIT, 0), "control");
		region_fill(&region, 2);
		snapshot_end(&one);
		snapshot_end(&two);
		snapshot_end(&three);
		region_fill(&region, 1);
	}
}

/* The tables that helpers and the parent make for the child are charged to its group. */
static void charges(void)
{
	const char *group = cgroup_enter("charge");
	long before, after = 0;

	region = region_map(64 * TABLE_BYTES);
	for (size_t page = 0; page < region.pages; page += 16)
		page_write(&region, page, 1);
	opt_in();
	before = cgroup_stat(group, "pagetables");
	pid_t child = must_fork();

	if (!child) {
		sleep_ms(3000);
		_exit(0);
	}
	for (size_t table = 0; table < 64; table += 8)
		page_write(&region, table * TABLE_PAGES, 1);
	for (int waited = 0; waited < 2500; waited += 50) {
		after = cgroup_stat(group, "pagetables");
		if (after - before >= 64 * (long)PAGE_BYTES)
			break;
		sleep_ms(50);
	}
	expect(after - before >= 64 * (long)PAGE_BYTES, "the group pays %ld bytes for the child's tables",
	       after - before);
	expect(after - before <= 96 * (long)PAGE_BYTES, "the group pays %ld bytes for the child's tables",
	       after - before);
	expect_exit(child, 0, "the child");
}

/* ---------- what the module knows of single processes ---------- */

#define PROCESSES "/proc/async_fork_processes"

/* Whether a line of the file begins so. */
static bool known(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool known(const char *format, ...)
{
	FILE *file = fopen(PROCESSES, "re");
	char wanted[128], line[256];
	bool found = false;
	va_list list;

	expect(file, "open " PROCESSES ": %s", strerror(errno));
	va_start(list, format);
	vsnprintf(wanted, sizeof(wanted), format, list);
	va_end(list);
	while (fgets(line, sizeof(line), file))
		found = found || !strncmp(line, wanted, strlen(wanted));
	fclose(file);
	return found;
}

static void expect_answer(pid_t pid, const char *wanted)
{
	int fd = must(open(PROCESSES, O_RDWR | O_CLOEXEC));
	char text[64], answer[256];
	ssize_t length;

	snprintf(text, sizeof(text), "%d\n", pid);
	expect(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write: %s", strerror(errno));
	length = read(fd, answer, sizeof(answer) - 1);
	expect(length > 0, "read: %s", strerror(errno));
	answer[length] = 0;
	snprintf(text, sizeof(text), "asked %d %s\n", pid, wanted);
	expect(!strcmp(answer, text), "%s instead of %s", answer, text);
	close(fd);
}

/* That forks are refused is known of the process, with the time, until a fork is deferred again or the process ends. */
static void processes(void)
{
	pid_t self = getpid(), child;
	char byte = 0;
	struct iovec here = { &byte, 1 }, there;
	struct stat file;
	int fd;

	region = region_map(8 * TABLE_BYTES);
	region_fill(&region, 1);
	must(stat(PROCESSES, &file));
	expect((file.st_mode & 0777) == 0600, "mode %o", file.st_mode & 0777);
	cgroup_write(cgroup_enter("processes"), "memory.async_fork", "5");
	expect_answer(self, "async 5 cgroup -");
	opt_in();
	expect(known("setting %d async 1", self), "the setting is not there");
	expect_answer(self, "async 1 own -");
	expect_kind('a', "nothing is in the way");
	must(parameter_set("enabled", "0") ? 0 : -1);
	expect_answer(self, "async 1 own unloading");
	expect_kind('d', "the module is off");
	must(parameter_set("enabled", "1") ? 0 : -1);
	expect(known("refused %d unloading 1 ", self), "a refusal is not there");
	expect_kind('a', "the module is on again");
	expect(!known("refused %d ", self), "a refusal that is over is still there");
	child = must_fork();
	if (!child) {
		opt_in();
		there = (struct iovec){ region.base, 1 };
		must(process_vm_writev(getpid(), &here, 1, &there, 1, 0));
		expect_answer(getpid(), "async 1 own pinned");
		expect_kind('d', "pages were pinned");
		expect_kind('d', "pages were pinned");
		expect(known("refused %d pinned 2 ", getpid()), "a refusal is not there");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the process that pins");
	expect(!known("refused %d ", child) && !known("setting %d ", child), "a process that ended is still there");
	fd = must(open(PROCESSES, O_RDWR | O_CLOEXEC));
	expect(write(fd, "-1", 2) < 0 && write(fd, "x", 1) < 0, "nonsense was taken");
	expect(write(fd, "4000000", 7) == 7 && read(fd, &byte, 1) < 0 && errno == ESRCH, "no such process: %s",
	       strerror(errno));
	child = must_fork();
	if (!child) {
		must(setuid(NOBODY));
		expect(write(fd, "1", 1) < 0 && errno == EPERM, "nobody may ask");
		expect(open(PROCESSES, O_RDONLY) < 0, "nobody may read");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the process without rights");
}

/* ---------- users without rights ---------- */

#define SWAP "/dev/zram0"
#define SWAPOFF_CALLERS 2
#define VICTIM_FORKS 20

static void refused_to_me(const char *path, const char *who)
{
	static const char *const values[] = { "64", "1", "odf", "0" };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		expect(!write_file(path, values[i]) && errno == EPERM, "%s wrote %s to memory.async_fork: %s", who,
		       values[i], strerror(errno));
}

/* A cgroup that is given to a user: he may do much there, but not choose how its processes fork. */
static void delegated_cgroup(void)
{
	const char *group = cgroup_enter("delegated");
	char path[256];
	int fd;

	region = region_map(8 * TABLE_BYTES);
	region_fill(&region, 1);
	snprintf(path, sizeof(path), "%s/memory.async_fork", group);
	must(chown(group, NOBODY, NOBODY));
	must(chown(path, NOBODY, NOBODY));
	pid_t child = must_fork();

	if (!child) {
		must(setgid(NOBODY));
		must(setuid(NOBODY));
		refused_to_me(path, "the owner");
		if (!unshare(CLONE_NEWUSER))	/* has all capabilities there */
			refused_to_me(path, "root of a user namespace");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the owner of the cgroup");
	/* nor by a file that he opened and somebody with the right writes to */
	must(seteuid(NOBODY));
	fd = must(open(path, O_WRONLY | O_CLOEXEC));
	must(seteuid(0));
	expect(write(fd, "1", 1) < 0 && errno == EPERM, "a borrowed right was enough");
	close(fd);
	expect_kind('d', "nothing was set");
	must_write_file(path, "1");
	expect_kind('a', "root set it");
}

/* Anybody may call swapoff(). It fails, but the hook comes before it does. */
static void swapoff_by_nobody(void)
{
	pid_t callers[SWAPOFF_CALLERS];
	struct async_fork_statistics before, after;

	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	for (int i = 0; i < SWAPOFF_CALLERS; i++) {
		callers[i] = must_fork();
		if (callers[i])
			continue;
		must(setuid(NOBODY));
		for (;;)
			expect(swapoff(i ? SWAP : "/nothing") < 0 && errno == EPERM, "swapoff: %s", strerror(errno));
	}
	opt_in();
	before = statistics();
	for (int i = 0; i < VICTIM_FORKS; i++) {
		struct snapshot child = snapshot_fork(&region, 1);

		region_write_randomly(&region, 20, 1);
		snapshot_end(&child);
	}
	after = statistics();
	for (int i = 0; i < SWAPOFF_CALLERS; i++) {
		expect(kill(callers[i], 0) == 0, "a caller is gone");
		must(kill(callers[i], SIGKILL));
		expect(WTERMSIG(wait_status(callers[i])) == SIGKILL, "a caller of swapoff failed");
	}
	if (mode == MODE_DEFAULT)
		return;
	expect(after.forks_refused[ASYNC_FORK_REFUSED_SWAPOFF] == before.forks_refused[ASYNC_FORK_REFUSED_SWAPOFF],
	       "%llu of %d forks were refused", after.forks_refused[ASYNC_FORK_REFUSED_SWAPOFF] -
	       before.forks_refused[ASYNC_FORK_REFUSED_SWAPOFF], VICTIM_FORKS);
	expect(after.forks_async + after.forks_odf - before.forks_async - before.forks_odf == VICTIM_FORKS,
	       "a fork was not what was asked for");
	expect(after.tables_copied[ASYNC_FORK_BY_SWAPOFF] == before.tables_copied[ASYNC_FORK_BY_SWAPOFF] &&
	       after.tables_unshared[ASYNC_FORK_BY_SWAPOFF] == before.tables_unshared[ASYNC_FORK_BY_SWAPOFF],
	       "swapoff copied or unshared tables");
}

/* ---------- the machine ---------- */

#define CMDLINE "/proc/cmdline"
#define VULNERABILITIES "/sys/devices/system/cpu/vulnerabilities/"

/* What runs on another machine than the usual one (VARIANTS in emulator.py) proves nothing if that is not what it says. */
static void machine(void)
{
	struct utsname kernel;

	must(uname(&kernel));
	/* the kernel's own limits would judge a host with other work; -1: the kernel has none */
	expect(read_number("/proc/sys/kernel/watchdog_thresh") != 10 &&
	       read_number("/proc/sys/kernel/hung_task_timeout_secs") != 30, "limits are short");
	if (file_contains(CMDLINE, "pti=on"))
		expect(file_contains("/proc/cpuinfo", " pti"), "no page tables of the user's own");
	if (file_contains(CMDLINE, "no5lvl"))
		expect(!file_contains("/proc/cpuinfo", " la57"), "page tables have five levels");
	if (file_contains(CMDLINE, "preempt=full"))
		expect(file_contains("/sys/kernel/debug/sched/preempt", "(full)"), "no full preemption");
	/* 6.1 does not know it */
	if (file_contains(CMDLINE, "retbleed=stuff") && strncmp(kernel.release, "6.1.", 4))
		expect(file_contains(VULNERABILITIES "retbleed", "Stuffing"), "calls are not counted");
}

const struct scenario scenarios[] = {
	{ "machine", machine, MODE_ASYNC1 },
	{ "bad_requests", bad_requests, MODE_ASYNC1 },
	{ "permission", permission, MODE_ASYNC1 },
	{ "statistics", statistics_read, MODE_ASYNC1 },
	{ "processes", processes, MODE_ASYNC1 },
	{ "cgroup", cgroup_setting, MODE_ASYNC1 },
	{ "pid", set_by_pid, MODES_MODULE },
	{ "delegated_cgroup", delegated_cgroup, MODE_ASYNC1 },
	{ "swapoff_by_nobody", swapoff_by_nobody, MODES_ALL },
	{ "changed_while_busy", changed_while_busy, MODES_MODULE },
	{ "charges", charges, MODE_DEFAULT | MODES_ASYNC },
	{ 0 },
};
