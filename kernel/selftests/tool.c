// SPDX-License-Identifier: GPL-2.0
/* stillframe-fork and the real module: what it does, what it says when something is in the way, its exit codes. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "selftest.h"

#define TOOL "/bin/stillframe-fork"
#define MODULE "/lib/async_fork.ko"
#define LIVE_PATCH "/lib/livepatch.ko"
#define NOBODY 65534
#define WORDS_MAX 24
#define SLOWER 50		/* than usual: the tool takes a second to start when it is emulated */
#define OLD_MEMORY (96UL << 20)		/* of the process that doctor examines: worth deferring */

enum exit_code { DONE = 0, FAILED = 1, NOT_LOADED = 3, NOT_PERMITTED = 4, NOT_USED = 5 };

static char said[32768];		/* by the last run: standard output and standard error */
static uid_t as_user;
static bool has_types = true;		/* the kernel has information on them, for the module to check */
static const char *parameters = " allow_odf=1";

/* Runs it; returns its exit code. Everything is on the console as well. */
static int tool(const char *arguments)
{
	char line[512], *words[WORDS_MAX] = { TOOL }, *rest = line;
	int ends[2], count = 1, status;
	size_t used = 0;
	ssize_t length;

	snprintf(line, sizeof(line), "%s", arguments);
	while (count < WORDS_MAX - 1 && (words[count] = strsep(&rest, " ")))
		count++;
	printf("%s stillframe-fork %s\n", as_user ? "$" : "#", arguments);
	must(pipe2(ends, O_CLOEXEC));
	pid_t pid = must_fork();

	if (!pid) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		if (as_user)
			must(setuid(as_user));
		execv(TOOL, words);
		_exit(127);
	}
	close(ends[1]);
	while ((length = read(ends[0], said + used, sizeof(said) - 1 - used)) > 0)
		used += length;
	close(ends[0]);
	said[used] = 0;
	status = wait_status(pid);
	expect(WIFEXITED(status), "stillframe-fork %s: status %x", arguments, status);
	printf("%s(exit code %d)\n", said, WEXITSTATUS(status));
	return WEXITSTATUS(status);
}

static void says(enum exit_code code, const char *text, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void says(enum exit_code code, const char *text, const char *format, ...)
{
	char arguments[512];
	va_list list;
	int got;

	va_start(list, format);
	vsnprintf(arguments, sizeof(arguments), format, list);
	va_end(list);
	got = tool(arguments);
	expect(got == (int)code, "stillframe-fork %s: exit code %d instead of %d", arguments, got, code);
	expect(strstr(said, text), "stillframe-fork %s does not say: %s", arguments, text);
}

static void also(const char *text)
{
	expect(strstr(said, text), "it does not say: %s", text);
}

static void prepare(void)
{
	FILE *parameter = fopen("/sys/module/async_fork/parameters/unchecked", "re");

	if (access(TOOL, X_OK))
		skip("stillframe-fork was not built before the machine was: cargo build -p stillframe-fork");
	must(parameter ? 0 : -1);
	if (fgetc(parameter) == 'Y')
		has_types = false, parameters = " allow_odf=1 unchecked=1";
	fclose(parameter);
}

/* How the next fork of this process was made. */
static void expect_forks(uint64_t async, uint64_t odf)
{
	struct async_fork_statistics before = statistics(), after;
	pid_t child = must_fork();

	if (!child)
		_exit(0);
	expect_exit(child, 0, "the child");
	after = statistics();
	expect(after.forks_async - before.forks_async == async && after.forks_odf - before.forks_odf == odf,
	       "a fork that should be %s is not", async ? "Async-fork" : odf ? "On-Demand-Fork" : "the default");
}

/* ---------- loading, status ---------- */

static void load(void)
{
	prepare();
	says(DONE, "async_fork is unloaded", "unload");
	says(NOT_LOADED, "stillframe-fork load", "unload");
	says(NOT_LOADED, "stillframe-fork load", "status");
	says(NOT_LOADED, "stillframe-fork load", "enable --pid %d", getpid());
	says(NOT_USED, "the module is not loaded", "doctor --pid %d", getpid());
	says(DONE, "async_fork is loaded (" MODULE ")", "load --path " MODULE "%s slow_us=1234", parameters);
	expect(parameter_get("slow_us") == 1234, "the parameter was not passed on");
	says(DONE, "loaded already", "load --path " MODULE "%s", parameters);
	says(DONE, "unload it first", "load --path " MODULE "%s slow_us=1", parameters);
	says(DONE, "with Async-fork", "status");
	says(DONE, "\"forks_async\":0", "status --json");
	as_user = NOBODY;
	says(DONE, "with Async-fork", "status");
	says(NOT_PERMITTED, "run this as root", "enable --pid %d", getpid());
	says(NOT_PERMITTED, "run this as root", "unload");
}

static void process(void)
{
	pid_t self = getpid();

	prepare();
	says(DONE, "Async-fork, 3 copy threads", "enable --pid %d --threads 3", self);
	expect_forks(1, 0);
	says(DONE, "On-Demand-Fork", "enable --pid %d --strategy odf", self);
	expect_forks(0, 1);
	says(DONE, "default fork", "disable --pid %d", self);
	expect_forks(0, 0);
	says(DONE, "as its cgroup says", "disable --pid %d --inherit", self);
	says(FAILED, "there is no process 4000000", "enable --pid 4000000");
	says(FAILED, "there is no process 4000000", "doctor --pid 4000000");
	says(DONE, "copies under way now", "status");
}

/* On-Demand-Fork must be allowed when the module is loaded. */
static void odf_not_allowed(void)
{
	prepare();
	cgroup_enter("not_allowed");
	says(DONE, "unloaded", "unload");
	says(DONE, "is loaded", "load --path " MODULE "%s", has_types ? "" : " unchecked=1");
	says(FAILED, "stillframe-fork load allow_odf=1", "enable --pid %d --strategy odf", getpid());
	says(FAILED, "stillframe-fork load allow_odf=1", "enable --cgroup test.not_allowed --strategy odf");
	expect_forks(0, 0);
	says(DONE, "Async-fork, 1 copy thread", "enable --pid %d", getpid());
	expect_forks(1, 0);
	says(DONE, "default fork", "disable --pid %d", getpid());
	says(DONE, "unloaded", "unload");
	says(DONE, "is loaded", "load --path " MODULE "%s", parameters);
}

/* ---------- cgroups and units ---------- */

static void cgroup(void)
{
	prepare();
	cgroup_enter("tool");
	says(DONE, "Async-fork, 2 copy threads", "enable --cgroup test.tool --threads 2");
	expect_forks(1, 0);
	says(DONE, "says Async-fork, 2 copy threads", "doctor --pid %d", getpid());
	says(DONE, "On-Demand-Fork", "enable --cgroup /sys/fs/cgroup/test.tool --strategy odf");
	expect_forks(0, 1);
	says(DONE, "default fork", "disable --cgroup /test.tool");
	expect_forks(0, 0);
	says(FAILED, "no such cgroup", "enable --cgroup nowhere");
	says(FAILED, "root cgroup", "enable --cgroup /");
	must(mkdir("/sys/fs/cgroup/test.tool/part", 0755));
	says(FAILED, "memory controller is off", "enable --cgroup test.tool/part");
	must(rmdir("/sys/fs/cgroup/test.tool/part"));
}

/* There is no systemd in this machine: a script answers as systemctl does. */
static void unit(void)
{
	static const char script[] = "#!/bin/busybox sh\n"
		"[ \"$1\" = daemon-reload ] && exit\n"
		"[ \"$*\" = 'show -p Id,LoadState,ControlGroup -- redis-server.service' ] || exit\n"
		"echo Id=redis-server.service; echo LoadState=loaded; echo ControlGroup=/test.unit\n";
	static const char drop_in[] = "/etc/systemd/system/redis-server.service.d/50-stillframe-fork.conf";
	static const char modules_load[] = "/etc/modules-load.d/stillframe-async-fork.conf";
	const char *directory = scratch_file("bin");
	struct utsname kernel;
	char path[256];

	prepare();
	cgroup_enter("unit");
	setenv("PATH", "/nowhere", 1);
	says(FAILED, "without systemd use --cgroup", "enable --unit redis-server.service");
	snprintf(path, sizeof(path), "%s/systemctl", directory);
	must(mkdir(directory, 0755));
	close(must(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755)));
	must_write_file(path, script);
	setenv("PATH", directory, 1);
	says(DONE, "until redis-server.service stops", "enable --unit redis-server.service --threads 4");
	expect_forks(1, 0);
	says(FAILED, "does not run", "enable --unit nothing.service");
	says(DONE, "default fork", "disable --unit redis-server.service");
	expect_forks(0, 0);
	/* for good */
	says(FAILED, "not installed", "enable --unit redis-server.service --persistent");
	expect(access(drop_in, F_OK), "it was written all the same");
	must(uname(&kernel));
	mkdir("/lib/modules", 0755);
	snprintf(path, sizeof(path), "/lib/modules/%s", kernel.release);
	mkdir(path, 0755);
	mkdir(strcat(path, "/updates"), 0755);
	must(symlink(MODULE, strcat(path, "/async_fork.ko")));
	says(DONE, drop_in, "enable --unit redis-server.service --persistent");
	expect_forks(1, 0);
	expect(!access(drop_in, R_OK) && !access(modules_load, R_OK), "the files are not there");
	says(DONE, modules_load, "disable --unit redis-server.service");
	expect_forks(0, 0);
	expect(access(drop_in, F_OK) && access(modules_load, F_OK), "the files are still there");
	must(unlink(path));
}

/* ---------- doctor ---------- */

/* A process whose fork is refused, and why. */
static void doctor(void)
{
	struct region region = region_map(OLD_MEMORY);
	char byte = 0;
	struct iovec here = { &byte, 1 }, there = { region.base, 1 };

	prepare();
	says(DONE, "unloaded", "unload");	/* counters begin at 0 */
	says(DONE, "is loaded", "load --path " MODULE "%s", parameters);
	region_fill(&region, 1);
	says(NOT_USED, "its cgroup says default fork", "doctor --pid %d", getpid());
	also("no fork was deferred");
	says(DONE, "copy threads", "enable --pid %d --threads 4", getpid());
	says(DONE, "its own setting says Async-fork, 4 copy threads", "doctor --pid %d", getpid());
	must(process_vm_writev(getpid(), &here, 1, &there, 1, 0));	/* pins: the default fork from now on */
	says(NOT_USED, "its next fork takes the default path all the same", "doctor --pid %d", getpid());
	expect_forks(0, 0);
	says(NOT_USED, "pages were once pinned", "doctor --pid %d", getpid());
	also("-> ");
	also("forks took the default path, since 20");
	says(NOT_USED, "\"grade\":\"problem\"", "doctor --pid %d --json", getpid());
	says(DONE, "forks took the default path: pinned", "status");
	also("pinned since 20");
	as_user = NOBODY;
	says(DONE, "forks took the default path: pinned", "status");
	expect(!strstr(said, "pinned since"), "anybody is told which processes opted in");
}

/* A new module, or a live patch: what is enabled is enabled again, for those that it was enabled for. */
static void reload(void)
{
	pid_t others[2];
	char line[64];

	prepare();
	cgroup_enter("reload");
	for (int i = 0; i < 2; i++) {
		others[i] = must_fork();
		if (!others[i])
			for (;;)
				pause();
		says(DONE, "2 copy threads", "enable --pid %d --threads 2", others[i]);
	}
	says(DONE, "3 copy threads", "enable --cgroup test.reload --threads 3");
	says(DONE, "`stillframe-fork load` enables it again", "unload");
	expect(!kill(others[1], SIGKILL) && WIFSIGNALED(wait_status(others[1])), "the other process");
	says(DONE, "enabled again: /sys/fs/cgroup/test.reload", "load --path " MODULE "%s", parameters);
	snprintf(line, sizeof(line), "enabled again: process %d", others[0]);
	also(line);
	also("1 cgroups and processes that were enabled are gone");
	expect_forks(1, 0);
	says(DONE, "its own setting says Async-fork, 2 copy threads", "doctor --pid %d", others[0]);
	must(kill(others[0], SIGKILL));
	wait_status(others[0]);
	/* or not */
	says(DONE, "unloaded", "unload --forget");
	says(DONE, "is loaded", "load --path " MODULE "%s", parameters);
	expect(!strstr(said, "again"), "what was to be forgotten is enabled");
	expect_forks(0, 0);
}

/* ---------- refusals ---------- */

/* A copy of the module in which `from`, all of it between two zero bytes or behind `prefix`, reads `to`. */
static const char *altered_module(const char *prefix, const char *from, const char *to)
{
	static char path[256];
	char pattern[128];
	size_t prefix_length, length, count = 0;
	struct stat status;
	int fd = must(open(MODULE, O_RDONLY | O_CLOEXEC));

	must(fstat(fd, &status));
	char *bytes = malloc(status.st_size);

	expect(read(fd, bytes, status.st_size) == status.st_size, "read " MODULE);
	close(fd);
	prefix_length = prefix ? strlen(prefix) : 1;
	length = prefix_length + strlen(from) + !prefix;
	memset(pattern, 0, sizeof(pattern));
	memcpy(pattern, prefix ?: "", prefix_length);
	memcpy(pattern + prefix_length, from, strlen(from));
	for (char *at = bytes; (at = memmem(at, bytes + status.st_size - at, pattern, length)); count++) {
		memcpy(at + prefix_length, to, strlen(to));
		at += length - !prefix;		/* the zero may begin the next string */
	}
	expect(count, "%s is not in the module", from);
	snprintf(path, sizeof(path), "%s", scratch_file("async_fork.ko"));
	fd = must(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
	expect(write(fd, bytes, status.st_size) == status.st_size, "write %s", path);
	close(fd);
	free(bytes);
	return path;
}

/* Another kernel than the one the module was built for or knows; parameters; ftrace. */
static void refused(void)
{
	prepare();
	says(DONE, "unloaded", "unload");
	says(FAILED, "/nowhere/x.ko", "load --path /nowhere/x.ko");
	says(FAILED, "make -C kernel", "load");
	says(FAILED, "no ELF file", "load --path /init");
	says(FAILED, "it was built for kernel 5.", "load --path %s", altered_module("vermagic=", "6.", "5."));
	says(FAILED, "refused: copy_page_rangE", "load --path %s",
	     altered_module(NULL, "copy_page_range", "copy_page_rangE"));
	also("not one that the module knows");
	if (has_types) {
		/* dup_mmap, or in 6.12 uprobe_dup_mmap */
		says(FAILED, "(struct mm_struct *, struct mm_struct *) in this kernel, expected is ",
		     "load --path %s", altered_module(NULL, "(struct mm_struct *, struct mm_struct *)",
						      "(struct mm_struct *, struct nn_struct *)"));
		also("not one that the module knows");
	}
	says(FAILED, "skip=nothing is not a hook", "load --path " MODULE "%s skip=nothing", parameters);
	says(FAILED, "slow_us", "load --path " MODULE "%s slow_us=many", parameters);
	must_write_file("/proc/sys/kernel/ftrace_enabled", "0");
	tool("load --path " MODULE);
	must_write_file("/proc/sys/kernel/ftrace_enabled", "1");
	also("ftrace_enabled is 0");
	/* Whoever uses ftrace next finds it as it was: the kernel looks for what was left when its last user goes. */
	must_write_file("/sys/kernel/tracing/set_ftrace_filter", "vfs_fsync");
	must_write_file("/sys/kernel/tracing/current_tracer", "function");
	must_write_file("/sys/kernel/tracing/current_tracer", "nop");
	must_write_file("/sys/kernel/tracing/set_ftrace_filter", "");
	says(DONE, "no parameter slow", "load --path " MODULE "%s slow=1", parameters);
}

/* Somebody else forks: this process forks to run the tool, which would complete a copy of its own. */
static pid_t start_fork(int *go)
{
	struct region region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	int ends[2];
	char byte;

	must(pipe2(ends, O_CLOEXEC));
	*go = ends[1];
	pid_t pid = must_fork();

	if (pid)
		return pid;
	close(ends[1]);
	region_fill(&region, 1);
	opt_in();
	struct snapshot child = snapshot_fork(&region, 1);

	(void)!read(ends[0], &byte, 1);		/* until the other end is closed */
	snapshot_end(&child);
	_exit(VERDICT_PASS);
}

static void unload_while_busy(void)
{
	long slow_us = parameter_get("slow_us");
	char text[32];
	int go;

	prepare();
	snprintf(text, sizeof(text), "%ld", slow_us * SLOWER);
	parameter_set("slow_us", text);
	pid_t pid = start_fork(&go);

	for (int waited = 0; !statistics().sessions_live && statistics().odf_mms_live < 2; waited += 10) {
		expect(waited < 10000, "no fork of that strategy is seen");
		sleep_ms(10);
	}
	int code = tool("unload");

	if (code == DONE) {
		says(DONE, "is loaded", "load --path " MODULE "%s", parameters);
		missed("the copy was over before the tool unloaded the module");
	}
	expect(code == FAILED, "exit code %d", code);
	also("in use");
	also(mode == MODE_ODF ? "share page tables: 2" : "copies under way: 1");
	close(go);
	expect_exit(pid, VERDICT_PASS, "the process that forks");
	parameter_set("slow_us", "0");
	says(DONE, "unloaded", "unload");
}

/* A module that speaks another version of the interface: a file in the place of the device. */
static void other_version(void)
{
	struct async_fork_statistics other = statistics();
	const char *path = scratch_file("device");
	int fd = must(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));

	prepare();
	other.version++;
	expect(write(fd, &other, sizeof(other)) == sizeof(other), "write %s", path);
	close(fd);
	must(unshare(CLONE_NEWNS));
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	must(mount(path, ASYNC_FORK_DEVICE, NULL, MS_BIND, NULL));
	says(FAILED, "version 2 of the interface", "status");
	also("unload");
	must(umount(ASYNC_FORK_DEVICE));
}

static int insert(const char *path)
{
	int fd = must(open(path, O_RDONLY | O_CLOEXEC)), result = syscall(SYS_finit_module, fd, "", 0);

	close(fd);
	return result;
}

/* Whoever comes first has the function. */
static void livepatch(void)
{
	prepare();
	if (access(LIVE_PATCH, F_OK))
		skip("no live patch was built for this kernel");
	cgroup_enter("patched");
	says(DONE, "1 copy thread", "enable --cgroup test.patched");
	expect(insert(LIVE_PATCH) && errno == EBUSY, "a live patch was loaded above the module: %s", strerror(errno));
	expect_forks(1, 0);
	says(DONE, "enables it again", "unload");
	must(insert(LIVE_PATCH));
	says(FAILED, "live patches are active: livepatch", "load --path " MODULE "%s", parameters);
	also("get_dump_page");
	must_write_file("/sys/kernel/livepatch/livepatch/enabled", "0");
	for (int waited = 0; syscall(SYS_delete_module, "livepatch", O_NONBLOCK); waited += 100) {
		expect(waited < 30000, "the live patch does not go: %s", strerror(errno));
		sleep_ms(100);
	}
	says(DONE, "enabled again: /sys/fs/cgroup/test.patched", "load --path " MODULE "%s", parameters);
	expect_forks(1, 0);
}

/* None of this can be taken back before the next boot: the runner's script puts this scenario at the end. */
static void lockdown(void)
{
	prepare();
	says(DONE, "unloaded", "unload");
	if (mount("securityfs", "/sys/kernel/security", "securityfs", 0, NULL) ||
	    !write_file("/sys/kernel/security/lockdown", "integrity"))
		skip("this kernel has no lockdown: %s", strerror(errno));
	says(FAILED, "locked down: integrity", "load --path " MODULE "%s", parameters);
	also("sign async_fork.ko");
	must_write_file("/sys/kernel/security/lockdown", "confidentiality");
	says(FAILED, "confidentiality forbids kprobes", "load --path " MODULE "%s", parameters);
	must_write_file("/proc/sys/kernel/modules_disabled", "1");
	says(FAILED, "modules_disabled is 1", "load --path " MODULE "%s", parameters);
	must(umount("/sys/kernel/security"));
}

const struct scenario scenarios[] = {
	{ "load", load, MODE_ASYNC1 },
	{ "process", process, MODE_ASYNC1 },
	{ "cgroup", cgroup, MODE_ASYNC1 },
	{ "unit", unit, MODE_ASYNC1 },
	{ "doctor", doctor, MODE_ASYNC1 },
	{ "reload", reload, MODE_ASYNC1 },
	{ "refused", refused, MODE_ASYNC1 },
	{ "odf_not_allowed", odf_not_allowed, MODE_ASYNC1 },
	{ "unload_while_busy", unload_while_busy, MODE_ASYNC1 | MODE_ODF },
	{ "other_version", other_version, MODE_ASYNC1 },
	{ "livepatch", livepatch, MODE_ASYNC1 },
	{ "lockdown", lockdown, MODE_ASYNC1 },
	{ 0 },
};
