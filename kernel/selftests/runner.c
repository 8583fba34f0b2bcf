// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a plan inside the test VM. Each line of /plan is one of
 *
 *   module NAME PARAMETER=VALUE...        load the module, unload first what is loaded
 *   run FAMILY SCENARIO MODE SECONDS      one scenario, killed after that time; the module is loaded again if need be
 *   hook NAME                             the runs that follow are a negative control: skip them once one has failed
 *   unload                                the module must go without a complaint
 *   production NAME PARAMETER=VALUE...    the module as it is installed loads, has no parameters for tests, and goes
 *
 * and each gets one answer on the second serial port: "@ LINE VERDICT MILLISECONDS REASON". A scenario also fails if
 * the kernel complained, page tables or anonymous memory leaked, its cgroup kept a charge, or the module's statistics
 * do not add up.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "selftest.h"

#define CGROUP "/sys/fs/cgroup/run"
#define SETTLE_MS 10000			/* helpers, RCU and the page allocator may take this long to come to rest */
#define PAGE_TABLES_SLACK_KB 8
#define ANONYMOUS_SLACK_KB 512
#define TRIES 4				/* each four times slower, for scenarios that missed the copy */

static const char *const complaints[] = {
	"BUG:", "WARNING:", "Bad rss-counter", "bad pmd", "Bad page", "non-zero", "leak", "Oops", "protection fault",
	"kernel BUG", "refcount_t:", "underflow", "blocked for more than", "lockup", "rcu: INFO", "Bad swap",
	"swap_free:",
	"list_del corruption", "list_add corruption", "UBSAN", "possible recursive locking", "circular locking",
	"inconsistent lock state", "suspicious RCU", "sleeping function", "scheduling while atomic", "KASAN",
	"non-static key", "ODEBUG", "lockdep is turned off",
	"bad_page",
	"page_table_check", "Unable to handle", "page dumped because",
};

/*
 * What the kernel also says after any failed allocation in a page fault, which it then tries again; and of a program that
 * unmaps its own memory.
 */
static const char *const harmless[] = { "VM_FAULT_OOM leaked out", "traps: exmap_fuzz" };

/* Each is in /lib twice, as NAME.ko with parameters for tests. These are those that it has without. */
static const struct module {
	const char *name;
	const char *parameters[4];
} modules[] = {
	{ "async_fork", { "enabled", "unchecked", "allow_odf" } },
	{ "exmap", { "unchecked" } },
};
static const struct module *module = modules;	/* the one of the plan's last line about one */

static FILE *answers;
static int kernel_log = -1;
static char reason[4096];

static void reason_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void reason_add(const char *format, ...)
{
	size_t used = strlen(reason);
	va_list arguments;

	if (used > sizeof(reason) - 300)
		return;
	if (used)
		used += snprintf(reason + used, sizeof(reason) - used, "; ");
	va_start(arguments, format);
	vsnprintf(reason + used, sizeof(reason) - used, format, arguments);
	va_end(arguments);
}

static void answer(int line, const char *verdict, uint64_t since_ns)
{
	for (char *c = reason; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	fprintf(answers, "@ %d %s %lu %s\n", line, verdict, (now_ns() - since_ns) / 1000000, reason);
	fflush(answers);
}

/* ---------- what the kernel says ---------- */

static void kernel_log_open(void)
{
	kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	must(kernel_log);
	lseek(kernel_log, 0, SEEK_END);
}

static bool contains(const char *text, const char *const *patterns, size_t count)
{
	while (count--)
		if (strstr(text, patterns[count]))
			return true;
	return false;
}

/* Reads what is new; false if there is a complaint in it, which goes to the reason. */
static bool kernel_log_clean(void)
{
	char record[9000];
	bool clean = true;
	ssize_t length;

	while ((length = read(kernel_log, record, sizeof(record) - 1)) > 0 || (length < 0 && errno == EPIPE)) {
		if (length < 0)
			continue;	/* overwritten before we read it */
		record[length] = 0;
		char *text = strchr(record, ';');

		text = text ? text + 1 : record;
		text[strcspn(text, "\n")] = 0;
		if (contains(text, complaints, sizeof(complaints) / sizeof(complaints[0])) &&
		    !contains(text, harmless, sizeof(harmless) / sizeof(harmless[0]))) {
			reason_add("kernel: %s", text);
			clean = false;
		}
	}
	return clean;
}

/* ---------- what is left behind ---------- */

struct usage { long page_tables_kb, anonymous_kb; };

static struct usage usage_now(void)
{
	struct usage usage;

	write_file("/proc/sys/vm/stat_refresh", "1");	/* folds the per-CPU differences */
	usage.page_tables_kb = read_field("/proc/meminfo", "PageTables");
	usage.anonymous_kb = read_field("/proc/meminfo", "AnonPages");
	return usage;
}

static bool fork_module_loaded(void)
{
	return module == modules && module_loaded();
}

/* Maps of the other module that somebody still has. */
static long maps_live(void)
{
	long maps = read_field("/proc/exmap", "maps_live"), frames = read_field("/proc/exmap", "frames_live");

	return maps > 0 || frames > 0;
}

static bool at_rest(const struct usage *before, const struct async_fork_statistics *start)
{
	struct usage now = usage_now();
	bool quiet = now.page_tables_kb <= before->page_tables_kb + PAGE_TABLES_SLACK_KB &&
		     now.anonymous_kb <= before->anonymous_kb + ANONYMOUS_SLACK_KB;

	if (fork_module_loaded()) {
		struct async_fork_statistics counters = statistics();

		quiet = quiet && counters.sessions_live <= start->sessions_live &&
			counters.odf_mms_live <= start->odf_mms_live;
	}
	return quiet && !maps_live();
}

static bool nothing_left(const struct usage *before, const struct async_fork_statistics *start)
{
	struct usage now;
	bool clean = true;

	for (int waited = 0; waited < SETTLE_MS && !at_rest(before, start); waited += 20)
		sleep_ms(20);
	now = usage_now();
	if (now.page_tables_kb > before->page_tables_kb + PAGE_TABLES_SLACK_KB) {
		reason_add("page tables leaked: %ld kB before, %ld kB after", before->page_tables_kb,
			   now.page_tables_kb);
		clean = false;
	}
	if (now.page_tables_kb < before->page_tables_kb - PAGE_TABLES_SLACK_KB) {
		reason_add("page tables freed twice: %ld kB before, %ld kB after", before->page_tables_kb,
			   now.page_tables_kb);
		clean = false;
	}
	if (now.anonymous_kb > before->anonymous_kb + ANONYMOUS_SLACK_KB) {
		reason_add("anonymous memory leaked: %ld kB before, %ld kB after", before->anonymous_kb,
			   now.anonymous_kb);
		clean = false;
	}
	if (maps_live()) {
		reason_add("exmap: %ld maps and %ld frames live on", read_field("/proc/exmap", "maps_live"),
			   read_field("/proc/exmap", "frames_live"));
		clean = false;
	}
	return clean;
}

static uint64_t total(const __u64 *counters, size_t count)
{
	uint64_t sum = 0;

	while (count--)
		sum += counters[count];
	return sum;
}

static uint64_t tables_unshared(const struct async_fork_statistics *s)
{
	return total(s->tables_unshared, ASYNC_FORK_REASONS) + s->tables_last_owner + s->tables_detached;
}

/* The counters at the start of a scenario: what an earlier one has done wrong is not held against it. */
static struct async_fork_statistics statistics_before(void)
{
	return fork_module_loaded() ? statistics() : (struct async_fork_statistics){ 0 };
}

/* Each table that was put off or shared is accounted for once. */
static bool statistics_add_up(const struct async_fork_statistics *start)
{
	struct async_fork_statistics now, before = *start;
	uint64_t deferred, copied, rolled_back, shared, unshared;
	bool clean = true;

	if (!fork_module_loaded())
		return true;
	now = statistics();
	if (now.forks_seen < before.forks_seen || now.bad_pmd_caught < before.bad_pmd_caught)
		memset(&before, 0, sizeof(before));	/* it was loaded anew */
	deferred = now.tables_deferred - before.tables_deferred;
	copied = total(now.tables_copied, ASYNC_FORK_REASONS) - total(before.tables_copied, ASYNC_FORK_REASONS);
	rolled_back = now.tables_rolled_back - before.tables_rolled_back;
	shared = now.tables_shared - before.tables_shared;
	unshared = tables_unshared(&now) - tables_unshared(&before);
	if (now.sessions_live > before.sessions_live || now.odf_mms_live > before.odf_mms_live) {
		reason_add("%llu sessions and %llu sharing processes live on", now.sessions_live, now.odf_mms_live);
		clean = false;
	}
	if (deferred != copied + rolled_back) {
		reason_add("statistics: %lu tables deferred, but %lu copied and %lu rolled back", deferred, copied,
			   rolled_back);
		clean = false;
	}
	/* A table that k forks shared has k + 1 owners; the last may still be the first. */
	if (unshared < shared || unshared > 2 * shared) {
		reason_add("statistics: %lu tables shared, but %lu taken back or dropped", shared, unshared);
		clean = false;
	}
	if (now.bad_pmd_caught > before.bad_pmd_caught) {
		reason_add("the safety net caught %llu tables", now.bad_pmd_caught - before.bad_pmd_caught);
		clean = false;
	}
	return clean;
}

/* ---------- cgroups ---------- */

static void cgroup_kill(void)
{
	write_file(CGROUP "/cgroup.kill", "1");
	for (int waited = 0; waited < SETTLE_MS && read_field(CGROUP "/cgroup.events", "populated") == 1; waited += 10)
		sleep_ms(10);
}

/* A cgroup whose processes are gone holds neither page tables nor anonymous memory. */
static bool cgroup_empty(const char *name)
{
	long tables = 0, anonymous = 0;
	char path[512];
	bool gone;

	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", name);
	for (int waited = 0; waited < SETTLE_MS; waited += 20) {
		tables = cgroup_stat(path, "pagetables");
		anonymous = cgroup_stat(path, "anon");
		if (tables <= 0 && anonymous <= 0)
			break;
		sleep_ms(20);
	}
	if (tables > 0 || anonymous > 0)
		reason_add("memory cgroup %s keeps %ld bytes of page tables, %ld of anonymous memory", name, tables,
			   anonymous);
	/* a grandchild that nobody waited for may still be on its way out */
	for (int waited = 0; !(gone = rmdir(path) == 0) && errno == EBUSY && waited < SETTLE_MS; waited += 20)
		sleep_ms(20);
	if (!gone)
		reason_add("rmdir %s: %s", path, strerror(errno));
	return gone && tables <= 0 && anonymous <= 0;
}

static bool cgroups_empty(void)
{
	DIR *directory = opendir("/sys/fs/cgroup");
	struct dirent *entry;
	bool clean = true;

	while (directory && (entry = readdir(directory)))
		if (!strcmp(entry->d_name, "run") || !strncmp(entry->d_name, "test.", 5)) {
			char path[512];

			snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cgroup.kill", entry->d_name);
			write_file(path, "1");
			clean = cgroup_empty(entry->d_name) && clean;
		}
	if (directory)
		closedir(directory);
	return clean;
}

/* ---------- one scenario ---------- */

/* The runner stays on CPU 0: its own turns would flush the TLB of the other, where a scenario may count on it. */
static void stay_on_cpus(unsigned long mask)
{
	must(syscall(SYS_sched_setaffinity, 0, sizeof(mask), &mask));
}

static pid_t start(const char *family, const char *scenario, const char *mode_name, int output)
{
	char program[128];
	pid_t pid;

	snprintf(program, sizeof(program), "/bin/%s", family);
	mkdir(CGROUP, 0755);
	pid = must_fork();
	if (pid)
		return pid;
	stay_on_cpus(~0UL);
	setsid();
	write_file(CGROUP "/cgroup.procs", "0");
	dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	execl(program, program, scenario, mode_name, NULL);
	_exit(127);
}

/* Collects the output's last part as the reason until the scenario ends. */
static int watch(pid_t pid, int output, unsigned int seconds)
{
	uint64_t deadline = now_ns() + seconds * 1000000000ULL;
	char text[700] = "";
	size_t used = 0;
	int status = -1;

	for (;;) {
		struct pollfd wait = { .fd = output, .events = POLLIN };
		bool over = waitpid(pid, &status, WNOHANG) == pid;

		while (poll(&wait, 1, over ? 0 : 20) > 0 && wait.revents & POLLIN) {
			char part[256];
			ssize_t length = read(output, part, sizeof(part));

			if (length <= 0)
				break;
			fwrite(part, 1, length, stdout);	/* the console's log has all of it */
			if (used + length > sizeof(text) - 1) {
				memmove(text, text + length, used > (size_t)length ? used - length : 0);
				used = used > (size_t)length ? used - length : 0;
			}
			memcpy(text + used, part, length);
			used += length;
			text[used] = 0;
		}
		if (over)
			break;
		if (now_ns() > deadline) {
			reason_add("not over after %u s", seconds);
			cgroup_kill();
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			status = VERDICT_FAIL << 8;
			break;
		}
	}
	while (used && text[used - 1] == '\n')
		text[--used] = 0;
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = '|';
	if (used)
		reason_add("%s", text);
	return status;
}

static const char *run_once(const char *family, const char *scenario, const char *mode_name, unsigned int seconds)
{
	struct async_fork_statistics start_counters = statistics_before();
	struct usage before = usage_now();
	int output[2], status;
	bool clean;

	reason[0] = 0;
	must(pipe2(output, O_CLOEXEC));
	printf("---- %s %s %s\n", family, scenario, mode_name);
	pid_t pid = start(family, scenario, mode_name, output[1]);

	close(output[1]);
	status = watch(pid, output[0], seconds);
	close(output[0]);
	cgroup_kill();
	clean = nothing_left(&before, &start_counters);
	clean = statistics_add_up(&start_counters) && clean;
	clean = cgroups_empty() && clean;
	clean = kernel_log_clean() && clean;
	if (WIFSIGNALED(status)) {
		reason_add("died of signal %d", WTERMSIG(status));
		return "FAIL";
	}
	if (!clean)
		return "FAIL";
	switch (WEXITSTATUS(status)) {
	case VERDICT_PASS: return "PASS";
	case VERDICT_SKIP: return "SKIP";
	case VERDICT_MISSED: return "MISSED";
	default: return "FAIL";
	}
}

/* A scenario that came too late for the copy gets a slower one. */
static const char *run_scenario(const char *family, const char *scenario, const char *mode_name, unsigned int seconds)
{
	long slow_us = parameter_get("slow_us");
	const char *verdict = "FAIL";
	char text[32];

	for (int try = 0; try < TRIES; try++) {
		verdict = run_once(family, scenario, mode_name, seconds);
		if (strcmp(verdict, "MISSED") || slow_us <= 0)
			break;
		snprintf(text, sizeof(text), "%ld", slow_us << 2 * (try + 1));
		parameter_set("slow_us", text);
	}
	if (slow_us >= 0) {
		snprintf(text, sizeof(text), "%ld", slow_us);
		parameter_set("slow_us", text);
	}
	return strcmp(verdict, "MISSED") ? verdict : "FAIL";
}

/* ---------- the module ---------- */

/* Lockdep stops after its first report, or when its tables are full; from then on the kernel finds less. */
static bool lockdep_works(void)
{
	if (read_field("/proc/lockdep_stats", " debug_locks") != 0)
		return true;
	reason_add("lockdep has turned itself off");
	return false;
}

static bool unload(void)
{
	if (!module_loaded())
		return true;
	for (int waited = 0; waited < SETTLE_MS; waited += 50) {
		if (!syscall(SYS_delete_module, module->name, O_NONBLOCK))
			return kernel_log_clean();
		sleep_ms(50);
	}
	reason_add("rmmod: %s", strerror(errno));
	return false;
}

/* kind: "" with parameters for tests, "-production" as it is installed. */
static bool load(const char *kind, const char *parameters)
{
	char file[128];
	int fd;

	write_file("/sys/kernel/debug/clear_warn_once", "1");
	if (!unload())
		return false;
	snprintf(file, sizeof(file), "/lib/%s%s.ko", module->name, kind);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0)) {
		reason_add("insmod %s %s: %s", file, parameters, strerror(errno));
		kernel_log_clean();
		if (fd >= 0)
			close(fd);
		return false;
	}
	close(fd);
	return kernel_log_clean();
}

/* What is installed can neither be told to leave hooks out, nor to fail, nor to wait. */
static bool production_is_clean(void)
{
	char path[128];
	DIR *directory;
	struct dirent *entry;
	bool clean;

	snprintf(path, sizeof(path), "/sys/module/%s/parameters", module->name);
	directory = opendir(path);
	clean = directory;

	if (!directory)
		reason_add("it has no parameters");
	while (directory && (entry = readdir(directory))) {
		size_t i = 0;

		while (module->parameters[i] && strcmp(entry->d_name, module->parameters[i]))
			i++;
		if (*entry->d_name == '.' || module->parameters[i])
			continue;
		reason_add("it has the parameter %s", entry->d_name);
		clean = false;
	}
	if (directory)
		closedir(directory);
	return clean;
}

/* The rest of a line that begins with a module's name, which is the module from now on. */
static const char *choose_module(const char *text)
{
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		size_t length = strlen(modules[i].name);

		if (strncmp(text, modules[i].name, length) || (text[length] && text[length] != ' '))
			continue;
		if (module != &modules[i] && !unload())
			return NULL;
		module = &modules[i];
		module_name = module->name;
		return text + length;
	}
	reason_add("no module %s", text);
	return NULL;
}

static const char *run_line(const char *text)
{
	const char *rest;
	static bool caught, hook;	/* of the negative control under way */
	static char parameters[512];	/* of the module */
	char family[64], scenario[64], mode_name[32];
	unsigned int seconds;

	if (!strncmp(text, "module ", 7)) {
		hook = caught = false;
		unsetenv("NEGATIVE_CONTROL");
		rest = choose_module(text + 7);
		snprintf(parameters, sizeof(parameters), "%s", rest ?: "");
		return rest && load("", parameters) ? "PASS" : "FAIL";
	}
	if (!strncmp(text, "hook ", 5)) {
		hook = true;
		caught = false;
		setenv("NEGATIVE_CONTROL", "1", 1);
		return "PASS";
	}
	if (!strcmp(text, "unload"))
		return unload() && lockdep_works() ? "PASS" : "FAIL";
	if (!strncmp(text, "production ", 11)) {
		rest = choose_module(text + 11);
		bool loaded = rest && load("-production", rest);
		bool clean = loaded && production_is_clean();

		return unload() && clean ? "PASS" : "FAIL";
	}
	if (sscanf(text, "run %63s %63s %31s %u", family, scenario, mode_name, &seconds) == 4) {
		const char *verdict = "SKIP";

		/* a scenario that unloads it may have failed half way */
		if (!module_loaded() && !load("", parameters))
			return "FAIL";
		if (!(hook && caught))
			verdict = run_scenario(family, scenario, mode_name, seconds);
		caught = caught || !strcmp(verdict, "FAIL");
		return verdict;
	}
	reason_add("a line that the runner does not know");
	return "FAIL";
}

static void run_plan(const char *path)
{
	FILE *plan = fopen(path, "re");
	char text[512];

	if (!plan)
		fail("open %s: %s", path, strerror(errno));
	for (int line = 1; fgets(text, sizeof(text), plan); line++) {
		uint64_t began = now_ns();

		reason[0] = 0;
		text[strcspn(text, "\n")] = 0;
		fprintf(answers, "@ %d START 0 %s\n", line, text);
		fflush(answers);
		answer(line, run_line(text), began);
	}
	fprintf(answers, "@ 0 DONE 0\n");
	fclose(answers);
}

int main(int argc, char **argv)
{
	answers = argc == 2 ? fopen(argv[1], "we") : NULL;
	if (!answers)
		fail("open %s: %s", argc == 2 ? argv[1] : "no file", strerror(errno));
	setvbuf(stdout, NULL, _IOLBF, 0);
	stay_on_cpus(1);
	kernel_log_open();
	run_plan("/plan");
	return 0;
}
