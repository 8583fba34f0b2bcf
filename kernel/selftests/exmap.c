// SPDX-License-Identifier: GPL-2.0
/* What the map does for one thread. */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "exmap_map.h"

/* Pages that are allocated keep what is written to them; freed ones read as zeros, and come back with something. */
static void alloc_free(void)
{
	struct map map = map_new(4096, 1024, 1);

	must_alloc(&map, 700, 1000);
	for (size_t page = 700; page < 1700; page++)
		page_mark(&map, page, page);
	for (size_t page = 700; page < 1700; page++)
		expect(page_has(&map, page, page), "page %zu shows something else", page);
	expect_conserved(&map, 1000);
	must_free(&map, 700, 500);
	for (size_t page = 700; page < 1200; page++)
		expect(page_is_zero(&map, page), "page %zu is freed, and not zero", page);
	for (size_t page = 1200; page < 1700; page++)
		expect(page_has(&map, page, page), "page %zu was not freed, and shows something else", page);
	expect_conserved(&map, 500);
	must_alloc(&map, 700, 500);
	for (size_t page = 700; page < 1200; page++)
		page_mark(&map, page, page + 1);
	for (size_t page = 700; page < 1200; page++)
		expect(page_has(&map, page, page + 1), "page %zu shows something else", page);
	must_free(&map, 0, 4096);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* Optimistic readers find zeros, and what is allocated afterwards shows at once. Writes need a page. */
static void zero_page(void)
{
	struct map map = map_new(64, 8, 1);
	int pipe_ends[2];

	for (size_t page = 0; page < 64; page++)
		expect(page_is_zero(&map, page), "page %zu is not zero", page);
	expect(map_statistics(&map).zero_faults == 64, "%llu faults", map_statistics(&map).zero_faults);
	expect(signal_of_write(page_of(&map, 3)) == SIGBUS, "writing a zero page");
	expect(signal_of_write(page_of(&map, 63)) == SIGBUS, "writing a zero page");
	expect(page_is_zero(&map, 3), "the zero page was written to");
	must_alloc(&map, 3, 1);
	page_mark(&map, 3, 99);
	expect(page_has(&map, 3, 99), "the page shows something else");
	expect(page_is_zero(&map, 2) && page_is_zero(&map, 4), "its neighbours changed");
	must_free(&map, 3, 1);
	expect(signal_of_write(page_of(&map, 3)) == SIGBUS, "writing a freed page, with an entry that was writable");
	expect(map_statistics(&map).write_faults == 3, "%llu write faults", map_statistics(&map).write_faults);
	/* the kernel's own accesses */
	must(pipe(pipe_ends));
	must(write(pipe_ends[1], "abc", 3));
	expect(read(pipe_ends[0], page_of(&map, 5), 3) < 0 && errno == EFAULT, "read() wrote to a page that is not there");
	expect(write(pipe_ends[1], page_of(&map, 6), 3) == 3, "write() of a zero page: %s", strerror(errno));
	map_close(&map);
}

/* A write is the first access of all. */
static void write_first(void)
{
	struct map map = map_new(2048, 8, 1);

	expect(signal_of_write(page_of(&map, 1000)) == SIGBUS, "writing where there is not even a table");
	must_alloc(&map, 1000, 1);
	expect(!signal_of_write(page_of(&map, 1000)), "writing an allocated page");
	map_close(&map);
}

static void zero_flag(void)
{
	struct map map = map_new(64, 16, 1);

	for (int round = 0; round < 3; round++) {
		must_alloc(&map, 0, 16);
		for (size_t page = 0; page < 16; page++)
			memset(page_of(&map, page), 0x5a, EXMAP_PAGE_SIZE);
		must_free(&map, 0, 16);
		*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 40, .length = 16 };
		expect(run_entries(&map, 0, EXMAP_ALLOC, EXMAP_ALLOC_ZERO, 1) == 16, "allocating with zeros");
		for (size_t page = 40; page < 56; page++)
			expect(page_is_zero(&map, page), "page %zu was not cleared", page);
		must_free(&map, 40, 16);
	}
	/* what is there already stays */
	must_alloc(&map, 1, 1);
	page_mark(&map, 1, 7);
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 0, .length = 4 };
	expect(run_entries(&map, 0, EXMAP_ALLOC, EXMAP_ALLOC_ZERO, 1) == 4, "allocating with zeros");
	expect(page_has(&map, 1, 7), "a page that was allocated already was cleared");
	map_close(&map);
}

/* One flush for a call, of the range or of everything; none where nothing can be known to anybody. */
static void shootdowns(void)
{
	struct map map = map_new(100000, 600, 1);
	struct exmap_statistics before, after;

	set_entries(&map, 0, 7, 190, 512);
	expect(run_entries(&map, 0, EXMAP_ALLOC, 0, 512) == 512, "allocating");
	before = map_statistics(&map);
	expect(!before.shootdowns_alloc && !before.shootdowns_free, "allocating flushed");
	expect(run_entries(&map, 0, EXMAP_FREE, 0, 512) == 512, "freeing");
	after = map_statistics(&map);
	expect(after.shootdowns_free == 1 && after.shootdowns_full == 1, "%llu flushes for 512 pages, %llu of everything",
	       after.shootdowns_free, after.shootdowns_full);
	expect(run_entries(&map, 0, EXMAP_FREE, 0, 512) == 512, "freeing again");
	expect(map_statistics(&map).shootdowns_free == 1, "a flush for nothing");
	must_alloc(&map, 10, 8);
	must_free(&map, 10, 8);
	after = map_statistics(&map);
	expect(after.shootdowns_free == 2 && after.shootdowns_full == 1, "8 pages in a row: a flush of the range");
	/* pages that were read before: one flush for all of them */
	for (int i = 0; i < 512; i += 3)
		expect(page_is_zero(&map, 7 + i * 190), "not zero");
	set_entries(&map, 0, 7, 190, 512);
	expect(run_entries(&map, 0, EXMAP_ALLOC, 0, 512) == 512, "allocating");
	after = map_statistics(&map);
	expect(after.shootdowns_alloc == 1 && after.shootdowns_full == 2, "%llu flushes for pages that were read",
	       after.shootdowns_alloc);
	map_close(&map);
}

/* The pool is too small: what was done is said for each entry. */
static void results(void)
{
	struct map map = map_new(1000, 10, 1);

	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 0, .length = 4 };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = 100, .length = 8 };
	*entry_of(&map, 0, 2) = (struct exmap_entry) { .page = 200, .length = 1 };
	*entry_of(&map, 0, 3) = (struct exmap_entry) { .page = 2, .length = 2 };
	expect(run_entries(&map, 0, EXMAP_ALLOC, 0, 4) == 12, "10 pages, and two that were there");
	expect(entry_of(&map, 0, 0)->result == 4 && entry_of(&map, 0, 1)->result == 6, "%d, %d",
	       entry_of(&map, 0, 0)->result, entry_of(&map, 0, 1)->result);
	expect(entry_of(&map, 0, 2)->result == -ENOMEM && entry_of(&map, 0, 3)->result == 2, "%d, %d",
	       entry_of(&map, 0, 2)->result, entry_of(&map, 0, 3)->result);
	expect(run_one(&map, 0, EXMAP_ALLOC, 300, 5) == -ENOMEM, "there is a frame too many");
	expect(entry_of(&map, 0, 0)->result == -ENOMEM, "%d", entry_of(&map, 0, 0)->result);
	expect(map_statistics(&map).pages_present == 2 && map_statistics(&map).frames_missing == 3, "counters");
	expect(run_one(&map, 0, EXMAP_FREE, 0, 1000) == 1000, "freeing what is not there");
	expect(map_statistics(&map).pages_absent == 990, "%llu", map_statistics(&map).pages_absent);
	expect(run_entries(&map, 0, EXMAP_ALLOC, 0, 0) == 0, "no entries");
	expect_conserved(&map, 0);
	map_close(&map);
}

/* The longest entries, over many tables. */
static void long_entries(void)
{
	struct map map = map_new(100000, 40000, 2);

	must_alloc(&map, 1, 40000);
	for (size_t page = 1; page <= 40000; page += 97)
		page_mark(&map, page, page);
	expect(run_one(&map, 1, EXMAP_ALLOC, 50000, 100) == -ENOMEM, "more than the pool");
	for (size_t page = 1; page <= 40000; page += 97)
		expect(page_has(&map, page, page), "page %zu shows something else", page);
	must_free(&map, 0, 100000);
	expect_conserved(&map, 0);
	map_close(&map);
}

static void interfaces(void)
{
	struct map map = map_new(1000, 600, 256);
	struct exmap_entry *one;

	for (unsigned int i = 0; i < 256; i++)
		expect(run_one(&map, i, EXMAP_ALLOC, i * 2, 2) == 2, "interface %u", i);
	expect_conserved(&map, 512);
	/* mapped again, one alone: the same page */
	one = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd,
		   EXMAP_OFFSET_INTERFACE + 200 * EXMAP_PAGE_SIZE);
	expect(one != MAP_FAILED, "mapping one interface: %s", strerror(errno));
	expect(one->page == 400 && one->result == 2, "it is another page");
	one->page = 999;
	one->length = 1;
	expect(run_entries(&map, 200, EXMAP_ALLOC, 0, 1) == 1 && one->result == 1, "its entries are not read");
	for (unsigned int i = 0; i < 256; i++)
		expect(run_one(&map, 255 - i, EXMAP_FREE, i * 2, 2) == 2, "interface %u", i);
	must_free(&map, 999, 1);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* What others left in memory is not to be seen. */
static void cleared(void)
{
	size_t pages = 4096;
	struct map map = map_new(pages, pages, 1);
	unsigned char *memory;

	for (int round = 0; round < 3; round++) {
		must_alloc(&map, 0, pages);
		for (size_t page = 0; page < pages; page++)
			memset(page_of(&map, page), 0xc7, EXMAP_PAGE_SIZE);
		map_close(&map);
		memory = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		expect(memory != MAP_FAILED, "mmap: %s", strerror(errno));
		memset(memory, 0xc7, 32 << 20);
		must(munmap(memory, 32 << 20));
		map = map_new(pages, pages, 1);
		must_alloc(&map, 0, pages);
		for (size_t page = 0; page < pages; page++)
			expect(page_is_zero(&map, page), "page %zu of a new map has contents", page);
	}
	map_close(&map);
}

static long locked_kb(void)
{
	return read_field("/proc/self/status", "VmPin");
}

static void limit_locked(rlim_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	must(setrlimit(RLIMIT_MEMLOCK, &limit));
}

/* RLIMIT_MEMLOCK holds for the whole pool, from the beginning. */
static void locked_memory(void)
{
	pid_t child = child_as_nobody();
	struct map map;
	int fd;

	if (child) {
		expect_exit(child, VERDICT_PASS, "who may lock 8 MiB");
		map = map_new(1 << 20, 100000, 1);	/* CAP_IPC_LOCK */
		map_close(&map);
		return;
	}
	limit_locked(8 << 20);
	fd = device_open();
	expect(map_setup(fd, 1 << 20, 2048, 1) == -ENOMEM, "8 MiB and what is needed besides");
	expect(map_setup(fd, 1 << 20, 1ULL << 28, 1) == -ENOMEM, "a terabyte");
	expect(locked_kb() == 0, "%ld kB are locked after a refusal", locked_kb());
	close(fd);
	map = map_new(1 << 20, 1024, 1);
	expect(locked_kb() >= 4096 && locked_kb() < 4096 + 100, "%ld kB are locked", locked_kb());
	fd = device_open();
	expect(map_setup(fd, 1 << 20, 1100, 1) == -ENOMEM, "two maps together");
	map_close(&map);
	expect(locked_kb() == 0, "%ld kB are locked after all", locked_kb());
	expect(!map_setup(fd, 1 << 20, 1100, 1), "what was refused before");
	_exit(VERDICT_PASS);
}

/* Nothing but calls of the map between the limit and the end: anything else might be killed for want of memory. */
static int at_the_limit(const struct map *map, int limit)
{
	long given;

	/* Tables are there: for theirs the kernel kills. */
	for (size_t page = 0; page < 20000; page += 512)
		if (!page_is_zero(map, page + 2048))
			return 2;
	*entry_of(map, 0, 0) = (struct exmap_entry) { .page = 2048, .length = 6000 };
	if (write(limit, "16M", 3) != 3)
		return 3;
	given = run_entries(map, 0, EXMAP_ALLOC, 0, 1);
	if (given <= 0 || given > 4000)
		return 5;
	if (run_one(map, 0, EXMAP_FREE, 0, 1000) != 1000)
		return 6;
	return run_one(map, 0, EXMAP_ALLOC, 10000, 1000) == 1000 ? 0 : 7;
}

/* A memory cgroup pays for frames, and its limit means ENOMEM, not the death of somebody. */
static void charges(void)
{
	pid_t child = must_fork();
	char path[256];

	if (!child) {
		const char *group = cgroup_enter("exmap");
		struct map map = map_new(1 << 20, 8192, 1);
		long before = cgroup_stat(group, "kernel"), charged;
		int limit;

		must_alloc(&map, 0, 2048);
		charged = cgroup_stat(group, "kernel") - before;
		expect(charged >= 8 << 20, "%ld bytes were charged for 8 MiB", charged);
		snprintf(path, sizeof(path), "%s/memory.max", group);
		limit = must(open(path, O_WRONLY | O_CLOEXEC));
		_exit(at_the_limit(&map, limit));
	}
	expect_exit(child, 0, "who reached the limit");
	for (int i = 0; i < 100 && cgroup_stat("/sys/fs/cgroup/test.exmap", "kernel") > 1 << 20; i++)
		sleep_ms(50);
	expect(cgroup_stat("/sys/fs/cgroup/test.exmap", "kernel") <= 1 << 20, "%ld bytes are charged after all",
	       cgroup_stat("/sys/fs/cgroup/test.exmap", "kernel"));
}

static void permission(void)
{
	struct stat status;
	pid_t child;

	must(chmod(EXMAP_DEVICE, 0600));
	must(stat(EXMAP_DEVICE, &status));
	expect(S_ISCHR(status.st_mode) && !status.st_uid && !status.st_gid, "the device");
	child = must_fork();
	if (!child) {
		must(setgid(65534));
		must(setuid(65534));
		_exit(open(EXMAP_DEVICE, O_RDWR) < 0 && errno == EACCES ? VERDICT_PASS : VERDICT_FAIL);
	}
	expect_exit(child, VERDICT_PASS, "nobody");
}

static void device_mode(void)
{
	struct stat status;

	must(stat(EXMAP_DEVICE, &status));
	/* other scenarios may have opened it to all, so this one is only sure of a new module */
	expect((status.st_mode & 0777) == 0600 || (status.st_mode & 0777) == 0666, "mode %o", status.st_mode & 0777);
}

/* A map belongs to the memory of who set it up. */
static void one_owner(void)
{
	struct map map = map_new(64, 8, 1);
	pid_t child;

	must_alloc(&map, 0, 4);
	child = must_fork();
	if (!child) {
		struct exmap_statistics statistics = { .size = sizeof(statistics), .version = EXMAP_VERSION };
		struct exmap_action action = { .opcode = EXMAP_ALLOC, .entry_count = 1 };
		char buffer[512];

		expect(act(&map, &action) == -EPERM, "a child's action");
		expect(back(&map, -1) == -EPERM, "a child's backing");
		expect(ioctl(map.fd, EXMAP_STATISTICS, &statistics) && errno == EPERM, "a child's statistics");
		expect(pread(map.fd, buffer, 512, 0) < 0 && errno == EPERM, "a child's read");
		expect(mmap(NULL, 64 * EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, 0) == MAP_FAILED &&
		       errno == EPERM, "a child's mmap");
		expect(mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, EXMAP_OFFSET_INTERFACE) ==
		       MAP_FAILED && errno == EPERM, "a child's mmap of an interface");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the child");
	must_free(&map, 0, 4);
	expect_conserved(&map, 0);
	map_close(&map);
}

static long free_kb(void)
{
	write_file("/proc/sys/vm/drop_caches", "3");
	write_file("/proc/sys/vm/stat_refresh", "1");
	return read_field("/proc/meminfo", "MemFree");
}

/* Many maps come and go, closed in every order; memory is there again. */
static void no_leak(void)
{
	long before = 0, after;

	for (int round = 0; round < 120; round++) {
		struct map map = map_new(20000, 2048, 1 + round % 16);

		must_alloc(&map, round, 2048);
		for (size_t page = 5000; page < 20000; page += 500)
			expect(page_is_zero(&map, page), "not zero");
		if (round % 3 == 0)
			must_free(&map, 0, 2000);
		if (round % 2)
			must(close(map.fd));
		must(munmap(map.base, map.pages * EXMAP_PAGE_SIZE));
		must(munmap(map.entries, map.interfaces * EXMAP_PAGE_SIZE));
		if (!(round % 2))
			must(close(map.fd));
		if (round == 19) {
			sleep_ms(200);
			before = free_kb();
		}
	}
	sleep_ms(200);
	after = free_kb();
	/* 100 maps of 8 MiB */
	expect(before - after < 40000, "%ld kB are gone", before - after);
	expect(!read_field("/proc/exmap", "maps_live") && !read_field("/proc/exmap", "frames_live"), "maps live on");
}

/* /proc/exmap has sums over maps that are there and that are gone. */
static void machine_statistics(void)
{
	long before = read_field("/proc/exmap", "pages_allocated"), seen = read_field("/proc/exmap", "maps_seen");
	struct map map = map_new(64, 8, 1);

	must_alloc(&map, 0, 5);
	expect(read_field("/proc/exmap", "maps_live") == 1 && read_field("/proc/exmap", "frames_live") == 5, "live");
	expect(read_field("/proc/exmap", "pages_allocated") == before + 5, "a live map is not in the sums");
	must_free(&map, 0, 2);
	expect(read_field("/proc/exmap", "frames_free") == 2, "free frames");
	map_close(&map);
	expect(read_field("/proc/exmap", "maps_live") == 0 && read_field("/proc/exmap", "frames_live") == 0, "live");
	expect(read_field("/proc/exmap", "pages_allocated") == before + 5, "a map that is gone is not in the sums");
	expect(read_field("/proc/exmap", "maps_seen") == seen + 1, "maps seen");
}

const struct scenario scenarios[] = {
	{ "device_mode", device_mode, MODE_EXMAP },
	{ "alloc_free", alloc_free, MODE_EXMAP },
	{ "zero_page", zero_page, MODE_EXMAP },
	{ "write_first", write_first, MODE_EXMAP },
	{ "zero_flag", zero_flag, MODE_EXMAP },
	{ "shootdowns", shootdowns, MODE_EXMAP },
	{ "results", results, MODE_EXMAP },
	{ "long_entries", long_entries, MODE_EXMAP },
	{ "interfaces", interfaces, MODE_EXMAP },
	{ "cleared", cleared, MODE_EXMAP },
	{ "locked_memory", locked_memory, MODE_EXMAP },
	{ "charges", charges, MODE_EXMAP },
	{ "permission", permission, MODE_EXMAP },
	{ "one_owner", one_owner, MODE_EXMAP },
	{ "machine_statistics", machine_statistics, MODE_EXMAP },
	{ "no_leak", no_leak, MODE_EXMAP },
	{ 0 },
};
