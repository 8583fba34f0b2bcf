// SPDX-License-Identifier: GPL-2.0
/* What every family of scenarios shares; see selftest.h. */
#define _GNU_SOURCE
#include "selftest.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

enum mode mode = MODE_DEFAULT;
const char *module_name = "async_fork";

/* ---------- verdicts ---------- */

static void end(enum verdict verdict, const char *format, va_list arguments)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, arguments);
	dprintf(STDOUT_FILENO, "%s\n", text);
	_exit(verdict);
}

void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(VERDICT_FAIL, format, arguments);
	__builtin_unreachable();
}

void skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(VERDICT_SKIP, format, arguments);
	__builtin_unreachable();
}

void missed(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(VERDICT_MISSED, format, arguments);
	__builtin_unreachable();
}

long must_(const char *call, long result)
{
	if (result < 0)
		fail("%s: %s", call, strerror(errno));
	return result;
}

/* ---------- the module ---------- */

bool module_loaded(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/dev/%s", module_name);
	return access(path, F_OK) == 0;
}

int control(pid_t pid, enum async_fork_strategy strategy, unsigned int copy_threads)
{
	struct async_fork_control request = {
		.size = sizeof(request), .version = ASYNC_FORK_VERSION, .pid = pid, .strategy = strategy,
		.copy_threads = copy_threads,
	};
	int fd = open(ASYNC_FORK_DEVICE, O_WRONLY | O_CLOEXEC), result = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, &request, sizeof(request)) != sizeof(request))
		result = -errno;
	close(fd);
	return result;
}

void opt_in_pid(pid_t pid)
{
	int result = 0;

	switch (mode) {
	case MODE_ASYNC1: result = control(pid, ASYNC_FORK_ASYNC, 1); break;
	case MODE_ASYNC4: result = control(pid, ASYNC_FORK_ASYNC, 4); break;
	case MODE_ODF: result = control(pid, ASYNC_FORK_ODF, 0); break;
	default: break;	/* the kernel's own fork needs no module */
	}
	if (result)
		fail("opting in: %s", strerror(-result));
}

void opt_in(void)
{
	opt_in_pid(0);
}

void opt_out(void)
{
	int result = mode == MODE_DEFAULT ? 0 : control(0, ASYNC_FORK_INHERIT, 0);

	if (result)
		fail("opting out: %s", strerror(-result));
}

struct async_fork_statistics statistics(void)
{
	struct async_fork_statistics counters = { 0 };
	int fd = open(ASYNC_FORK_DEVICE, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		if (mode == MODE_DEFAULT)
			return counters;	/* runs without the module, too */
		fail("open %s: %s", ASYNC_FORK_DEVICE, strerror(errno));
	}
	if (read(fd, &counters, sizeof(counters)) != sizeof(counters))
		fail("read %s: %s", ASYNC_FORK_DEVICE, strerror(errno));
	close(fd);
	expect(counters.size == sizeof(counters) && counters.version == ASYNC_FORK_VERSION,
	       "statistics of size %u, version %u", counters.size, counters.version);
	return counters;
}

static void parameter_path(char *path, size_t size, const char *name)
{
	snprintf(path, size, "/sys/module/%s/parameters/%s", module_name, name);
}

bool parameter_set(const char *name, const char *value)
{
	char path[128];

	parameter_path(path, sizeof(path), name);
	return write_file(path, value);
}

long parameter_get(const char *name)
{
	char path[128];

	parameter_path(path, sizeof(path), name);
	return read_number(path);
}

uint64_t synchronised(const struct async_fork_statistics *before, enum async_fork_reason reason)
{
	struct async_fork_statistics after = statistics();

	if (mode == MODE_ODF)
		return after.tables_unshared[reason] - before->tables_unshared[reason] +
		       after.tables_detached - before->tables_detached;
	return after.tables_copied[reason] - before->tables_copied[reason];
}

void expect_synchronised(const struct async_fork_statistics *before, enum async_fork_reason reason)
{
	/* In a negative control nothing less than wrong data or a complaint counts. */
	if (getenv("NEGATIVE_CONTROL"))
		return;
	if (mode != MODE_DEFAULT && !synchronised(before, reason))
		missed("no table was copied for reason %d: the child's copy was over, or nobody looked", reason);
}

/* ---------- regions ---------- */

uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

void run_on(pid_t pid, unsigned long cpus)
{
	must(syscall(SYS_sched_setaffinity, pid, sizeof(cpus), &cpus));
}

void sleep_ms(unsigned int ms)
{
	usleep(ms * 1000);
}

uint64_t random_number(void)
{
	static __thread uint64_t state = 88172645463325252ULL;	/* xorshift64, Marsaglia 2003 */

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void *populate(void *bytes)
{
	for (;;) {
		void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (memory != MAP_FAILED)
			munmap(memory, (size_t)bytes);
	}
	return NULL;
}

void hold_mmap_lock(size_t bytes)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, populate, (void *)bytes);
	expect(!errno, "pthread_create: %s", strerror(errno));
}

void region_adopt(struct region *region, char *base, size_t bytes)
{
	region->base = base;
	region->pages = bytes / PAGE_BYTES;
}

struct region region_map(size_t bytes)
{
	struct region region = { .pages = bytes / PAGE_BYTES };
	char *wide = mmap(NULL, bytes + 2 * TABLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	expect(wide != MAP_FAILED, "mmap: %s", strerror(errno));
	region.base = (char *)(((uintptr_t)wide + TABLE_BYTES) & ~(TABLE_BYTES - 1));
	/* What is left of the reservation stays PROT_NONE: the region's VMA never merges with a neighbour. */
	expect(mmap(region.base, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       region.base, "mmap fixed: %s", strerror(errno));
	madvise(region.base, bytes, MADV_NOHUGEPAGE);
	return region;
}

bool page_is_hole(size_t page)
{
	return page % 16 == 5;
}

static uint64_t *page_words(const struct region *region, size_t page)
{
	return (uint64_t *)(region->base + page * PAGE_BYTES);
}

void page_write(const struct region *region, size_t page, uint64_t generation)
{
	volatile uint64_t *word = page_words(region, page);

	word[0] = page;
	word[1] = generation;
	word[511] = page * 3 + generation;
}

bool page_shows(const struct region *region, size_t page, uint64_t generation)
{
	volatile uint64_t *word = page_words(region, page);

	if (region->sparse && page_is_hole(page))
		return !word[0] && !word[1] && !word[511];
	return word[0] == page && word[1] == generation && word[511] == page * 3 + generation;
}

void region_fill(const struct region *region, uint64_t generation)
{
	for (size_t page = 0; page < region->pages; page++)
		if (!region->sparse || !page_is_hole(page))
			page_write(region, page, generation);
}

size_t range_wrong(const struct region *region, size_t first, size_t count, uint64_t generation)
{
	size_t wrong = 0;

	for (size_t page = first; page < first + count; page++) {
		if (page_shows(region, page, generation))
			continue;
		if (wrong++ < 2)
			dprintf(STDOUT_FILENO, "pid %d: page %zu shows %lu %lu %lu, not generation %lu\n", getpid(),
				page,
				page_words(region, page)[0], page_words(region, page)[1],
				page_words(region, page)[511], generation);
	}
	return wrong;
}

size_t region_wrong(const struct region *region, uint64_t generation)
{
	return range_wrong(region, 0, region->pages, generation);
}

size_t region_mixed_wrong(const struct region *region, uint64_t one, uint64_t other)
{
	size_t wrong = 0;

	for (size_t page = 0; page < region->pages; page++)
		wrong += !page_shows(region, page, one) && !page_shows(region, page, other);
	return wrong;
}

void region_write_randomly(const struct region *region, size_t writes, uint64_t generation)
{
	while (writes--) {
		size_t page = random_number() % region->pages;

		if (!region->sparse || !page_is_hole(page))
			page_write(region, page, generation);
	}
}

/* ---------- children ---------- */

pid_t must_fork(void)
{
	return must(fork());
}

int wait_status(pid_t pid)
{
	int status;

	must(waitpid(pid, &status, 0));
	return status;
}

void expect_exit(pid_t pid, int code, const char *who)
{
	int status = wait_status(pid);

	if (WIFSIGNALED(status))
		fail("%s died of signal %d", who, WTERMSIG(status));
	expect(WEXITSTATUS(status) == code, "%s exited with %d, not %d", who, WEXITSTATUS(status), code);
}

static struct snapshot fork_with_check(snapshot_check check, const void *argument, bool at_start)
{
	struct snapshot snapshot;
	int ends[2];
	char byte;

	must(pipe(ends));
	snapshot.go = ends[1];
	snapshot.before = statistics();
	snapshot.pid = must_fork();
	if (snapshot.pid) {
		close(ends[0]);
		return snapshot;
	}
	close(ends[1]);
	size_t wrong = at_start ? check(argument) : 0;
	if (wrong)
		fail("child: %zu wrong pages at its start", wrong);
	if (read(ends[0], &byte, 1) != 1)
		fail("child: the parent is gone");
	wrong = check(argument);
	if (wrong)
		fail("child: %zu wrong pages after the operation", wrong);
	_exit(VERDICT_PASS);
}

struct snapshot snapshot_fork_check(snapshot_check check, const void *argument)
{
	return fork_with_check(check, argument, true);
}

struct snapshot snapshot_fork_idle(snapshot_check check, const void *argument)
{
	return fork_with_check(check, argument, false);
}

struct region_argument { struct region region; uint64_t generation; };

static size_t check_region(const void *argument)
{
	const struct region_argument *wanted = argument;
	const struct region *region = &wanted->region;
	size_t wrong = region_wrong(region, wanted->generation);

	if (wrong)
		return wrong;
	/* Own writes stay, and are not the parent's: back to the old generation for the next check. */
	for (size_t page = getpid() % 7; page < region->pages; page += 61) {
		if (region->sparse && page_is_hole(page))
			continue;
		page_write(region, page, wanted->generation + 1000);
		wrong += !page_shows(region, page, wanted->generation + 1000);
		page_write(region, page, wanted->generation);
	}
	return wrong;
}

struct snapshot snapshot_fork(const struct region *region, uint64_t generation)
{
	struct region_argument wanted = { *region, generation };

	return snapshot_fork_check(check_region, &wanted);
}

void snapshot_end(struct snapshot *snapshot)
{
	/* A child that is dead already says more by its status than EPIPE would. */
	signal(SIGPIPE, SIG_IGN);
	if (write(snapshot->go, "g", 1) != 1 && errno != EPIPE)
		fail("telling the child to go: %s", strerror(errno));
	close(snapshot->go);
	expect_exit(snapshot->pid, VERDICT_PASS, "the child");
}

/* ---------- files and cgroups ---------- */

bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), saved;
	ssize_t written;

	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text));
	saved = errno;
	close(fd);
	errno = saved;
	return written == (ssize_t)strlen(text);
}

void must_write_file(const char *path, const char *text)
{
	if (!write_file(path, text))
		fail("write %s to %s: %s", text, path, strerror(errno));
}

bool file_contains(const char *path, const char *text)
{
	char start[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, start, sizeof(start) - 1);
	close(fd);
	start[length > 0 ? length : 0] = 0;
	return strstr(start, text);
}

long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long number = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%ld", &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

long read_field(const char *path, const char *name)
{
	FILE *file = fopen(path, "re");
	size_t length = strlen(name);
	long number = -1;
	char line[256];

	if (!file)
		return -1;
	while (number < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length) && (line[length] == ':' || line[length] == ' '))
			number = atol(line + length + 1);
	fclose(file);
	return number;
}

char *scratch_file(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "/tmp/%s.%d", name, getpid());
	return path;
}

const char *cgroup_enter(const char *name)
{
	static char directory[128];
	char pid[16];

	snprintf(directory, sizeof(directory), "/sys/fs/cgroup/test.%s", name);
	if (mkdir(directory, 0755) < 0 && errno != EEXIST)
		skip("no memory cgroups: mkdir %s: %s", directory, strerror(errno));
	snprintf(pid, sizeof(pid), "%d", getpid());
	cgroup_write(directory, "cgroup.procs", pid);
	return directory;
}

void cgroup_write(const char *directory, const char *file, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	must_write_file(path, text);
}

long cgroup_stat(const char *directory, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/memory.stat", directory);
	return read_field(path, name);
}
