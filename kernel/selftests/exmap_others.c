// SPDX-License-Identifier: GPL-2.0
/* What others pay for a map, and what its owner pays for others: memory, limits, locks. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <linux/capability.h>

#include "exmap_map.h"

#define LIMIT_BYTES (8UL << 20)
#define POOL 1900UL	/* with what belongs to it, less than the limit, and twice as much is more */
#define LIMIT_PAGES (LIMIT_BYTES / EXMAP_PAGE_SIZE)

static long live(const char *name)
{
	return read_field("/proc/exmap", name);
}

static long oom_kills(void)
{
	return read_field("/proc/vmstat", "oom_kill");
}

static void limit_locked(void)
{
	struct rlimit limit = { LIMIT_BYTES, LIMIT_BYTES };

	must(setrlimit(RLIMIT_MEMLOCK, &limit));
}

static void *touched(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(memory != MAP_FAILED, "mmap: %s", strerror(errno));
	for (size_t at = 0; at < bytes; at += EXMAP_PAGE_SIZE)
		memory[at] = 1;
	return memory;
}

/* A process that has so many bytes, and goes on taking and giving back `more`. It is ready when this returns. */
static pid_t bystander(size_t bytes, size_t more)
{
	int ends[2];
	char byte;
	pid_t child;

	must(pipe(ends));
	child = must_fork();
	if (!child) {
		must(prctl(PR_SET_PDEATHSIG, SIGKILL));
		must_write_file("/proc/self/oom_score_adj", "500");
		touched(bytes);
		must(write(ends[1], "r", 1));
		for (;;) {
			if (more)
				must(munmap(touched(more), more));
			sleep_ms(2);
		}
	}
	close(ends[1]);
	expect(read(ends[0], &byte, 1) == 1, "a bystander does not come");
	close(ends[0]);
	return child;
}

static bool lives(pid_t pid)
{
	int status;
	pid_t ended = waitpid(pid, &status, WNOHANG);

	return ended == 0;
}

static void end(pid_t pid)
{
	must(kill(pid, SIGKILL));
	wait_status(pid);
}

/* ---------- looking ---------- */

#define LOOKED_AT 16

/* A reader of /proc/PID/mem holds nothing: no page is busy for it, and none shows what is not there. */
static void looked_at(void)
{
	volatile unsigned long *looks = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct map map = map_new(1024, 64, 1);
	pid_t owner = getpid(), looker = must_fork();
	unsigned long frees = 0;

	if (!looker) {
		static char pages[LOOKED_AT * EXMAP_PAGE_SIZE];
		char path[64];
		int fd;

		must(prctl(PR_SET_PDEATHSIG, SIGKILL));
		snprintf(path, sizeof(path), "/proc/%d/mem", owner);
		fd = must(open(path, O_RDWR));
		for (;;) {
			expect(pread(fd, pages, sizeof(pages), (off_t)page_of(&map, 0)) == sizeof(pages), "looking");
			for (size_t page = 0; page < LOOKED_AT; page++) {
				uint64_t mark = *(uint64_t *)(pages + page * EXMAP_PAGE_SIZE);

				/* its own, or what the frame had before: of this map */
				expect(mark <= LOOKED_AT, "page %zu has %lx", page, mark);
			}
			if (pwrite(fd, "\1", 1, (off_t)page_of(&map, 3) + 100) < 0)
				expect(errno == EIO, "writing: %s", strerror(errno));
			++*looks;
		}
	}
	while (*looks < 300) {
		must_alloc(&map, 0, LOOKED_AT);
		for (size_t page = 0; page < LOOKED_AT; page++)
			page_mark(&map, page, page + 1);
		expect(run_one(&map, 0, EXMAP_FREE, 0, LOOKED_AT) == LOOKED_AT, "after %lu frees: a page is %s", frees,
		       strerror(-entry_of(&map, 0, 0)->result));
		frees++;
		expect(lives(looker), "the looker has ended");
	}
	end(looker);
	dprintf(STDOUT_FILENO, "%lu frees, %lu looks\n", frees, *looks);
	expect(!map_statistics(&map).pages_busy, "%llu pages were busy", map_statistics(&map).pages_busy);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* ---------- memory for setup ---------- */

static int setup_with_arrays(size_t bytes)
{
	int fd = device_open(), result = map_setup(fd, 1000, bytes / 16, 1);

	close(fd);
	return result;
}

/* A pool whose tables are as large as the machine: nobody is killed for it. */
static void setup_beyond_memory(void)
{
	static const int percent[] = { 97, 80, 60, 12, 97, 3 };
	size_t total = (size_t)read_field("/proc/meminfo", "MemTotal") << 10;
	long kills = oom_kills();
	pid_t other = bystander(4 << 20, 1 << 20);

	for (size_t i = 0; i < sizeof(percent) / sizeof(percent[0]); i++) {
		int result = setup_with_arrays(total / 100 * percent[i]);

		dprintf(STDOUT_FILENO, "tables of %d %%: %s\n", percent[i], strerror(-result));
		expect(result == -ENOMEM || !result, "tables of %d %% gave %d", percent[i], result);
		expect(result || percent[i] < 60, "tables of %d %% were made", percent[i]);
		expect(!result || percent[i] > 3, "tables of %d %% were not made", percent[i]);
		expect(oom_kills() == kills, "the OOM killer came for tables of %d %%", percent[i]);
		expect(lives(other), "a bystander was killed for tables of %d %%", percent[i]);
	}
	end(other);
}

/* The same in a cgroup with a limit, beside others that are in it. */
static void setup_in_small_cgroup(void)
{
	static const struct { int tables_mb, others_mb, more_mb; } all[] = {
		{ 128, 8, 1 }, { 63, 8, 1 }, { 63, 40, 4 }, { 30, 40, 4 }, { 20, 40, 4 }, { 10, 40, 4 }, { 3, 40, 4 },
		{ 50, 4, 1 }, { 30, 4, 1 }, { 3, 58, 0 },
	};
	pid_t child = must_fork();
	char events[128];

	if (child) {
		expect_exit(child, VERDICT_PASS, "the process that sets up");
		return;
	}
	const char *group = cgroup_enter("exmap.small");

	cgroup_write(group, "memory.max", "64M");
	cgroup_write(group, "memory.swap.max", "0");
	snprintf(events, sizeof(events), "%s/memory.events", group);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t other = bystander((size_t)all[i].others_mb << 20, (size_t)all[i].more_mb << 20);
		int result = setup_with_arrays((size_t)all[i].tables_mb << 20);

		dprintf(STDOUT_FILENO, "tables of %d MB beside %d: %s\n", all[i].tables_mb, all[i].others_mb, strerror(-result));
		expect(result == -ENOMEM || !result, "tables of %d MB gave %d", all[i].tables_mb, result);
		expect(read_field(events, "oom_kill") == 0, "a process was killed for tables of %d MB", all[i].tables_mb);
		expect(lives(other), "a bystander was killed");
		end(other);
	}
	_exit(VERDICT_PASS);
}

#define READ_PAGES 16384

/* Nothing but calls of the map between the limit and the end. */
static int reads_at_the_limit(const struct map *map, int limit)
{
	long given, result;

	for (size_t page = 0; page < 20480; page += 512)
		if (!page_is_zero(map, page))
			return 2;
	if (write(limit, "76M", 3) != 3)
		return 3;
	*entry_of(map, 0, 0) = (struct exmap_entry) { .page = 0, .length = 20000 };
	given = run_entries(map, 0, EXMAP_ALLOC, 0, 1);
	if (given < READ_PAGES || given == 20000)
		return 5;
	result = run_one(map, 0, EXMAP_READ, 0, READ_PAGES);
	if (result != -ENOMEM && result < 0)
		return 6;
	result = pread(map->fd, map->base, READ_PAGES * EXMAP_PAGE_SIZE, 0);
	return result < 0 && errno != ENOMEM ? 7 : 0;
}

/* A cgroup that has nothing more: a read is refused, and nobody is killed for what it needs besides. */
static void read_at_the_limit(void)
{
	int source = file_with_marks("/tmp/exmap.data", 100, 1, 0), limit;
	pid_t child = must_fork();
	struct map map;
	char path[256];

	if (!child) {
		snprintf(path, sizeof(path), "%s/memory.max", cgroup_enter("exmap.read"));
		map = map_new(1 << 20, 20480, 1);
		must_back(&map, source);
		limit = must(open(path, O_WRONLY | O_CLOEXEC));
		_exit(reads_at_the_limit(&map, limit));
	}
	expect_exit(child, 0, "the reader");
	close(source);
	unlink("/tmp/exmap.data");
}

/* The OOM killer takes the process that holds the frames, not one whose memory it sees better. */
static void killer_takes_the_owner(void)
{
	pid_t main_child = must_fork(), owner, other;
	const char *group;
	int status, ends[2];
	char byte;

	if (main_child) {
		expect_exit(main_child, VERDICT_PASS, "the process with memory");
		return;
	}
	group = cgroup_enter("exmap.killer");
	must_write_file("/proc/self/oom_score_adj", "0");
	cgroup_write(group, "memory.max", "96M");
	cgroup_write(group, "memory.swap.max", "0");
	must(pipe(ends));
	owner = must_fork();
	if (!owner) {
		struct map map = map_new(1 << 20, 16000, 1);
		long before = read_field("/proc/self/status", "VmRSS");

		must_alloc(&map, 0, 15000);
		before = read_field("/proc/self/status", "VmRSS") - before;
		if (!getenv("NEGATIVE_CONTROL"))
			expect(before > 55000 && before < 65000, "the pool is %ld kB of RSS", before);
		must(write(ends[1], "r", 1));
		for (;;)
			pause();
	}
	close(ends[1]);
	expect(read(ends[0], &byte, 1) == 1, "the owner fails");
	other = must_fork();
	if (!other) {
		touched(50 << 20);
		_exit(VERDICT_PASS);
	}
	status = wait_status(other);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_PASS, "another was killed, and not the owner of the pool");
	status = wait_status(owner);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the owner ended with %x", status);
	expect(!live("frames_live"), "%ld frames live on", live("frames_live"));
	_exit(VERDICT_PASS);
}

/* ---------- RLIMIT_MEMLOCK ---------- */

static void descriptor_send(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'd';
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	must(sendmsg(socket, &message, 0));
}

static int descriptor_receive(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	must(recvmsg(socket, &message, 0));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

/* In a process of its own: a full pool, whose descriptor is sent. What setup said. */
static int full_pool_of_a_dead(int socket, bool unmap)
{
	pid_t child = must_fork();
	int status;

	if (!child) {
		struct map map = { .fd = device_open(), .pages = 4096, .pool = POOL, .interfaces = 1 };
		int result = map_setup(map.fd, map.pages, map.pool, 1);

		if (result)
			_exit(-result);
		map_attach(&map);
		map.entries = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, EXMAP_OFFSET_INTERFACE);
		must_alloc(&map, 0, POOL);
		if (unmap)
			must(munmap(map.base, map.pages * EXMAP_PAGE_SIZE));
		descriptor_send(socket, map.fd);
		_exit(0);
	}
	status = wait_status(child);
	expect(WIFEXITED(status), "a child ended with %x", status);
	return -WEXITSTATUS(status);
}

/* Processes that have ended, and whose descriptors are kept: together they hold no more than their user may. */
static void memlock_of_the_dead(void)
{
	pid_t child = child_as_nobody();
	int sockets[2], fds[40];

	if (child) {
		expect_exit(child, VERDICT_PASS, "the process with descriptors");
		expect(!live("maps_live"), "maps live on");
		return;
	}
	limit_locked();
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets));
	for (int unmap = 0; unmap < 2; unmap++) {
		int count = 0;

		for (int i = 0; i < 40; i++) {
			int result = full_pool_of_a_dead(sockets[0], unmap);

			expect(!result || result == -ENOMEM, "setup gave %d", result);
			if (!result)
				fds[count++] = descriptor_receive(sockets[1]);
			expect(live("frames_live") <= (long)LIMIT_PAGES, "%d descriptors hold %ld frames", count, live("frames_live"));
		}
		dprintf(STDOUT_FILENO, "%s: %d descriptors hold %ld frames\n", unmap ? "unmapped" : "mapped", count,
			live("frames_live"));
		expect(unmap || !live("frames_live"), "%ld frames of processes that have ended", live("frames_live"));
		expect(count, "no pool at all");
		while (count)
			must(close(fds[--count]));
		expect(!live("frames_live"), "%ld frames without descriptors", live("frames_live"));
	}
	_exit(VERDICT_PASS);
}

/* A program that keeps the descriptor of a full pool over exec, and nothing else. */
static pid_t executed_with_pool(bool unmap, const char *locked)
{
	int ends[2];
	char byte;
	pid_t child;

	must(pipe2(ends, O_CLOEXEC));
	child = must_fork();
	if (!child) {
		struct map map = map_new(4096, POOL, 1);
		int file = must(open(locked, O_RDWR));

		must(prctl(PR_SET_PDEATHSIG, SIGKILL));
		must(flock(file, LOCK_EX));
		must_back(&map, file);
		must_alloc(&map, 0, POOL);
		if (unmap)
			must(munmap(map.base, map.pages * EXMAP_PAGE_SIZE));
		fcntl(map.fd, F_SETFD, 0);
		close(file);
		execl("/bin/busybox", "sleep", "1000", NULL);
		_exit(VERDICT_FAIL);
	}
	close(ends[1]);
	expect(read(ends[0], &byte, 1) == 0, "exec");
	close(ends[0]);
	return child;
}

/* Exec ends a pool whose descriptor is kept: frames, the backing file, and what its user is charged. */
static void memlock_by_exec(void)
{
	const char *locked = "/tmp/exmap.locked";
	int file = must(open(locked, O_RDWR | O_CREAT, 0666)), fd;
	pid_t child, program;

	must(fchmod(file, 0666));
	child = child_as_nobody();
	if (child) {
		expect_exit(child, VERDICT_PASS, "the process that executes");
		close(file);
		unlink(locked);
		return;
	}
	limit_locked();
	program = executed_with_pool(false, locked);
	expect(live("maps_live") == 1 && !live("frames_live"), "%ld frames after exec", live("frames_live"));
	/* the kernel lets go of it when the new program begins */
	for (int i = 0; i < 500 && flock(file, LOCK_EX | LOCK_NB); i++)
		sleep_ms(10);
	expect(!flock(file, LOCK_EX | LOCK_NB), "the backing file is held after exec");
	must(flock(file, LOCK_UN));
	fd = device_open();
	expect(!map_setup(fd, 4096, POOL, 1), "the pool still counts after exec");
	must(close(fd));
	end(program);
	/* unmapped before: it lives on, and counts */
	program = executed_with_pool(true, locked);
	fd = device_open();
	expect(live("frames_live") <= (long)LIMIT_PAGES, "%ld frames", live("frames_live"));
	expect(live("frames_live") == 0 || map_setup(fd, 4096, POOL, 1) == -ENOMEM, "more than the user may lock");
	end(program);
	for (int i = 0; i < 100 && live("maps_live"); i++)
		sleep_ms(10);
	expect(!map_setup(fd, 4096, POOL, 1), "the pool still counts after exit");
	_exit(VERDICT_PASS);
}

static int setup_as(uid_t uid, bool with_rights)
{
	pid_t child = must_fork();
	int status;

	if (!child) {
		struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
		struct __user_cap_data_struct none[2] = { 0 };

		limit_locked();
		must(setresuid(uid, uid, uid));
		if (!with_rights)
			must(syscall(SYS_capset, &header, none));
		_exit(-map_setup(device_open(), 4096, POOL, 1));
	}
	status = wait_status(child);
	expect(WIFEXITED(status), "a child ended with %x", status);
	return -WEXITSTATUS(status);
}

/* One user's processes share the limit; other users have theirs, and a process that may lock all is not counted. */
static void memlock_by_user(void)
{
	struct map large = map_new(1 << 20, 100000, 1);	/* CAP_IPC_LOCK */
	long pinned = read_field("/proc/self/status", "VmPin");
	int ends[2];
	pid_t child;
	char byte;

	must(pipe(ends));
	expect(pinned >= 400000 && pinned < 420000, "%ld kB are pinned", pinned);
	expect(!setup_as(0, false), "root without rights is charged for root with them");
	child = child_as_nobody();
	if (!child) {
		struct map map;

		limit_locked();
		map = map_new(4096, POOL, 1);
		expect(map_setup(device_open(), 4096, POOL, 1) == -ENOMEM, "two pools of a process");
		pinned = read_field("/proc/self/status", "VmPin");
		expect(pinned >= (long)POOL * 4 && pinned < (long)LIMIT_PAGES * 4, "%ld kB are pinned", pinned);
		expect(setup_as(65534, false) == -ENOMEM, "two pools of a user");
		map_close(&map);
		expect(!read_field("/proc/self/status", "VmPin"), "pinned after the end");
		expect(!setup_as(65534, false), "the limit is used up after the end");
		map = map_new(4096, POOL, 1);
		must(write(ends[1], "r", 1));
		for (;;)
			pause();
	}
	close(ends[1]);
	expect(read(ends[0], &byte, 1) == 1, "as nobody");
	close(ends[0]);
	expect(!setup_as(65533, false), "another user is charged");
	expect(setup_as(65534, false) == -ENOMEM, "the same user is not");
	end(child);
	map_close(&large);
}

/* ---------- locks ---------- */

static long voluntary_switches(void)
{
	return read_field("/proc/self/status", "voluntary_ctxt_switches");
}

#define PREEMPT "/sys/kernel/debug/sched/preempt"

#define SLOW_CGROUP "/sys/fs/cgroup/test.exmap.slow"

/* Readers of /proc/exmap, which get next to no time from when all is under way: 10 of 100 ms. */
static void readers_begin(pid_t *readers, unsigned int count)
{
	volatile unsigned long *reads = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (unsigned int i = 0; i < count; i++) {
		readers[i] = must_fork();
		if (readers[i])
			continue;
		must(prctl(PR_SET_PDEATHSIG, SIGKILL));
		cgroup_enter("exmap.slow");
		for (;;) {
			expect(live("frames_free") >= 0, "no sums");
			reads[i]++;
		}
	}
	for (unsigned int i = 0; i < count; i++)
		while (!reads[i])
			sleep_ms(1);
	cgroup_write(SLOW_CGROUP, "cpu.max", "10000 100000");
}

#define READERS 3
#define OTHER_MAPS 8

static void beside_readers(void)
{
	struct map maps[OTHER_MAPS];
	pid_t readers[READERS];
	long waits, rounds = 0;
	uint64_t until;

	for (int i = 0; i < OTHER_MAPS; i++)
		maps[i] = map_new(64, 8, 256);
	readers_begin(readers, READERS);
	waits = voluntary_switches();
	for (until = now_ns() + 8000000000ULL; now_ns() < until; rounds++) {
		int fd = device_open();

		expect(!map_setup(fd, 64, 8, 1), "setup");
		must(close(fd));
	}
	waits = voluntary_switches() - waits;
	cgroup_write(SLOW_CGROUP, "cpu.max", "max");
	for (int i = 0; i < READERS; i++)
		end(readers[i]);
	dprintf(STDOUT_FILENO, "%ld maps, %ld waits\n", rounds, waits);
	expect(rounds > 20, "only %ld maps", rounds);
	expect(waits < 6, "it waited %ld times for %ld maps", waits, rounds);
	for (int i = 0; i < OTHER_MAPS; i++)
		map_close(&maps[i]);
}

/*
 * A reader of /proc/exmap holds nothing that others wait for, also where a process may lose the processor within the
 * kernel. Waiting shows as giving the processor up, which setting up and closing a map do not do otherwise.
 */
static void sums_read_without_time(void)
{
	char text[128] = "", *before, *after;
	int fd = open(PREEMPT, O_RDONLY), status;
	pid_t child;

	if (!write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpu"))
		skip("no cpu controller: %s", strerror(errno));
	/* "none (voluntary) full" */
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || !write_file(PREEMPT, "full"))
		skip("how the kernel is preempted cannot be chosen");
	close(fd);
	before = strchr(text, '(');
	after = before ? strchr(before, ')') : NULL;
	expect(after, "%s has %s", PREEMPT, text);
	*after = 0;
	child = must_fork();
	if (!child) {
		beside_readers();
		_exit(VERDICT_PASS);
	}
	status = wait_status(child);
	must_write_file(PREEMPT, before + 1);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_PASS, "the process that sets maps up ended with %x", status);
}

const struct scenario scenarios[] = {
	{ "looked_at", looked_at, MODE_EXMAP },
	{ "setup_beyond_memory", setup_beyond_memory, MODE_EXMAP },
	{ "setup_in_small_cgroup", setup_in_small_cgroup, MODE_EXMAP },
	{ "read_at_the_limit", read_at_the_limit, MODE_EXMAP },
	{ "killer_takes_the_owner", killer_takes_the_owner, MODE_EXMAP },
	{ "memlock_of_the_dead", memlock_of_the_dead, MODE_EXMAP },
	{ "memlock_by_exec", memlock_by_exec, MODE_EXMAP },
	{ "memlock_by_user", memlock_by_user, MODE_EXMAP },
	{ "sums_read_without_time", sums_read_without_time, MODE_EXMAP },
	{ 0 },
};
