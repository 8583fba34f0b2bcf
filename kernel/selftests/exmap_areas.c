// SPDX-License-Identifier: GPL-2.0
/* What else may be done with the memory of a map: by its process, by the kernel, by others. */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "exmap_map.h"

#define PAGES 1024UL
#define BYTES (PAGES * EXMAP_PAGE_SIZE)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Pages 0 to 9 have contents. */
static struct map begin(void)
{
	struct map map = map_new(PAGES, 64, 2);

	must_alloc(&map, 0, 10);
	for (size_t page = 0; page < 10; page++)
		page_mark(&map, page, page + 1);
	return map;
}

/* All is as it was, and works. */
static void end(struct map *map)
{
	for (size_t page = 0; page < 10; page++)
		expect(page_has(map, page, page + 1), "page %zu changed", page);
	must_alloc(map, 10, 20);
	page_mark(map, 29, 5);
	must_free(map, 0, 30);
	for (size_t page = 0; page < 30; page++)
		expect(page_is_zero(map, page), "page %zu is freed, and not zero", page);
	expect_conserved(map, 0);
	map_close(map);
}

static void expect_refused(const char *what, long result, int error)
{
	expect(result < 0 && errno == error, "%s gave %ld, %s", what, result, result < 0 ? strerror(errno) : "no error");
}

/* A child has neither the map nor the pages of its interfaces, whatever the parent says about forks. */
static void forked(void)
{
	struct map map = begin();

	expect_refused("MADV_DOFORK", madvise(map.base, BYTES, MADV_DOFORK), EINVAL);
	expect_refused("MADV_DOFORK of an interface", madvise(map.entries, 2 * EXMAP_PAGE_SIZE, MADV_DOFORK), EINVAL);
	pid_t child = must_fork();

	if (!child) {
		expect(signal_of_read(page_of(&map, 1)) == SIGSEGV, "the child reads the map");
		expect(signal_of_write(page_of(&map, 1)) == SIGSEGV, "the child writes the map");
		expect(signal_of_read((void *)map.entries) == SIGSEGV, "the child reads an interface");
		_exit(VERDICT_PASS);
	}
	expect_exit(child, VERDICT_PASS, "the child");
	end(&map);
}

static void moved(void)
{
	struct map map = begin();
	void *elsewhere = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(mremap(map.base, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == MAP_FAILED, "it was moved");
	expect(page_has(&map, 3, 4), "a move that was refused took pages along");
	expect(mremap(map.base, BYTES, 2 * BYTES, MREMAP_MAYMOVE) == MAP_FAILED, "it was made longer");
	expect(mremap(map.base, BYTES, BYTES / 2, 0) == MAP_FAILED, "it was made shorter");
	expect(mremap(map.base, 0, BYTES, MREMAP_MAYMOVE) == MAP_FAILED, "it was made twice");
	expect(mremap(map.base, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED, "moved, and left there");
	expect(mremap(map.base + EXMAP_PAGE_SIZE, EXMAP_PAGE_SIZE, EXMAP_PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      elsewhere) == MAP_FAILED, "a page was moved");
	end(&map);
}

static void unmapped_in_part(void)
{
	struct map map = begin();

	expect_refused("munmap of the middle", munmap(page_of(&map, 5), EXMAP_PAGE_SIZE), EINVAL);
	expect_refused("munmap of the beginning", munmap(map.base, BYTES / 2), EINVAL);
	expect_refused("munmap of the end", munmap(page_of(&map, 500), BYTES - 500 * EXMAP_PAGE_SIZE), EINVAL);
	expect(mmap(page_of(&map, 5), EXMAP_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       MAP_FAILED, "a page was replaced");
	end(&map);
}

/* Unmapped as a whole its frames are free; it can be mapped again, once at a time. */
static void mapped_again(void)
{
	struct map map = begin();
	void *second = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, 0);

	expect(second == MAP_FAILED && errno == EBUSY, "it was mapped twice");
	must(munmap(map.base, BYTES));
	expect(map_statistics(&map).pages_unmapped == 10, "%llu pages", map_statistics(&map).pages_unmapped);
	expect_conserved(&map, 0);
	expect(run_one(&map, 0, EXMAP_ALLOC, 0, 1) == -ENXIO, "allocating without a mapping");
	expect(run_one(&map, 0, EXMAP_FREE, 0, 1) == -ENXIO, "freeing without a mapping");
	map_attach(&map);
	for (size_t page = 0; page < 10; page++)
		expect(page_is_zero(&map, page), "page %zu has contents", page);
	must_alloc(&map, 0, 64);
	/* something else takes its place */
	expect(mmap(map.base, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map.base,
	       "mmap over it: %s", strerror(errno));
	expect_conserved(&map, 0);
	expect(run_one(&map, 0, EXMAP_ALLOC, 0, 1) == -ENXIO, "allocating in what took its place");
	must(munmap(map.base, BYTES));
	map.base = NULL;
	map_close(&map);
}

/* remap_file_pages() is mmap() with another offset: interfaces change places, and a map is mapped anew. */
static void remapped(void)
{
	struct map map = begin();
	size_t first = EXMAP_OFFSET_INTERFACE / EXMAP_PAGE_SIZE;

	entry_of(&map, 0, 0)->page = 11;
	entry_of(&map, 1, 0)->page = 12;
	must(remap_file_pages(map.entries, EXMAP_PAGE_SIZE, 0, first + 1, 0));
	expect(entry_of(&map, 0, 0)->page == 12 && entry_of(&map, 1, 0)->page == 12, "not the page of interface 1");
	expect(remap_file_pages(map.entries, EXMAP_PAGE_SIZE, 0, first + 2, 0) < 0, "an interface too many");
	expect(remap_file_pages(map.entries, EXMAP_PAGE_SIZE, 0, 0, 0) < 0, "a page of the map");
	must(munmap(map.entries, 2 * EXMAP_PAGE_SIZE));
	map.entries = mmap(NULL, 2 * EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, EXMAP_OFFSET_INTERFACE);
	expect(map.entries != MAP_FAILED && entry_of(&map, 0, 0)->page == 11, "interface 0 was changed");
	expect(remap_file_pages(page_of(&map, 3), EXMAP_PAGE_SIZE, 0, 3, 0) < 0, "a page of the map");
	must(remap_file_pages(map.base, BYTES, 0, 0, 0));
	expect(map_statistics(&map).pages_unmapped == 10, "%llu pages", map_statistics(&map).pages_unmapped);
	expect_conserved(&map, 0);
	must_alloc(&map, 0, 10);
	for (size_t page = 0; page < 10; page++)
		page_mark(&map, page, page + 1);
	expect(page_has(&map, 9, 10), "page 9");
	must_free(&map, 0, 10);
	expect_conserved(&map, 0);
	map_close(&map);
}

static void kinds_of_mapping(void)
{
	static const struct { int rights, flags, error; } bad[] = {
		{ PROT_READ | PROT_WRITE, MAP_PRIVATE, EINVAL }, { PROT_READ, MAP_SHARED, EACCES },
		{ PROT_NONE, MAP_SHARED, EACCES }, { PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, EACCES },
	};
	struct map map = begin();
	int fd = device_open();

	expect(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENXIO, "before setup");
	expect(!map_setup(fd, PAGES, 8, 1), "setup");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (unsigned long offset = 0; offset <= EXMAP_OFFSET_INTERFACE; offset += EXMAP_OFFSET_INTERFACE)
			expect(mmap(NULL, offset ? EXMAP_PAGE_SIZE : BYTES, bad[i].rights, bad[i].flags, fd, offset) ==
			       MAP_FAILED && errno == bad[i].error, "kind %zu at %lx: %s", i, offset, strerror(errno));
	expect(mmap(NULL, BYTES / 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL, "half");
	expect(mmap(NULL, BYTES * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL, "twice");
	expect(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096) == MAP_FAILED && errno == EINVAL, "offset");
	expect(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, EXMAP_OFFSET_INTERFACE) == MAP_FAILED, "2 of 1");
	expect(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, EXMAP_OFFSET_INTERFACE + 4096) == MAP_FAILED,
	       "an interface too many");
	close(fd);
	end(&map);
}

static void protection(void)
{
	struct map map = begin();

	expect_refused("PROT_READ", mprotect(map.base, BYTES, PROT_READ), EACCES);
	expect_refused("PROT_NONE of a page", mprotect(page_of(&map, 4), EXMAP_PAGE_SIZE, PROT_NONE), EACCES);
	expect_refused("PROT_EXEC", mprotect(map.base, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC), EACCES);
	must(mprotect(map.base, BYTES, PROT_READ | PROT_WRITE));
	end(&map);
}

/* Advice is refused, or has no effect. */
static void advice(void)
{
	static const struct { int advice; const char *name; bool refused; } all[] = {
		{ MADV_DONTNEED, "DONTNEED", true }, { MADV_FREE, "FREE", true }, { MADV_REMOVE, "REMOVE", true },
		{ MADV_COLD, "COLD", true }, { MADV_PAGEOUT, "PAGEOUT", true }, { MADV_WIPEONFORK, "WIPEONFORK", true },
		{ MADV_DODUMP, "DODUMP", true }, { MADV_POPULATE_READ, "POPULATE_READ", true },
		{ MADV_POPULATE_WRITE, "POPULATE_WRITE", true }, { MADV_HWPOISON, "HWPOISON", true },
		{ MADV_WILLNEED, "WILLNEED", false }, { MADV_HUGEPAGE, "HUGEPAGE", false },
		{ MADV_NOHUGEPAGE, "NOHUGEPAGE", false }, { MADV_MERGEABLE, "MERGEABLE", false },
		{ MADV_UNMERGEABLE, "UNMERGEABLE", false }, { MADV_RANDOM, "RANDOM", false },
		{ MADV_SEQUENTIAL, "SEQUENTIAL", false }, { 25, "COLLAPSE", false },
	};
	struct map map = begin();

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		long result = madvise(map.base, BYTES, all[i].advice);

		expect(result < 0 || !all[i].refused, "MADV_%s was taken", all[i].name);
		expect(page_has(&map, 7, 8), "MADV_%s changed a page", all[i].name);
		madvise(page_of(&map, 3), 2 * EXMAP_PAGE_SIZE, all[i].advice);
	}
	end(&map);
}

static void locked(void)
{
	struct map map = begin();
	long before = read_field("/proc/self/status", "VmPin");
	void *behind;

	/* there is nothing to lock: frames stay, and the rest is not read in */
	must(mlock(map.base, BYTES));
	must(munlock(map.base, BYTES));
	must(mlockall(MCL_CURRENT | MCL_FUTURE));
	behind = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, EXMAP_OFFSET_INTERFACE);
	expect(behind != MAP_FAILED, "an interface, locked: %s", strerror(errno));
	must(munlockall());
	must(munmap(behind, EXMAP_PAGE_SIZE));
	expect(read_field("/proc/self/status", "VmLck") == 0, "locked memory: %ld kB", read_field("/proc/self/status", "VmLck"));
	expect(read_field("/proc/self/status", "VmPin") == before, "pinned memory: %ld kB, before %ld",
	       read_field("/proc/self/status", "VmPin"), before);
	expect(map_statistics(&map).zero_faults == 0, "locking touched pages");
	end(&map);
}

static void user_faults(void)
{
	struct map map = begin();
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = {
		.range = { .start = (unsigned long)map.base, .len = BYTES }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		skip("no userfaultfd: %s", strerror(errno));
	must(ioctl(fd, UFFDIO_API, &api));
	expect_refused("registering", ioctl(fd, UFFDIO_REGISTER, &area), EINVAL);
	area.mode = UFFDIO_REGISTER_MODE_WP;
	expect_refused("registering", ioctl(fd, UFFDIO_REGISTER, &area), EINVAL);
	close(fd);
	end(&map);
}

/* Nobody gets references to frames. */
static void references(void)
{
	struct map map = begin();
	char *buffer = aligned_alloc(EXMAP_PAGE_SIZE, EXMAP_PAGE_SIZE);
	struct iovec here = { buffer, 64 }, there = { page_of(&map, 1), 64 };
	int fd = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC), ends[2];

	expect_refused("process_vm_readv", process_vm_readv(getpid(), &here, 1, &there, 1, 0), EFAULT);
	expect_refused("process_vm_writev", process_vm_writev(getpid(), &here, 1, &there, 1, 0), EFAULT);
	must(pipe(ends));
	expect_refused("vmsplice", vmsplice(ends[1], &there, 1, 0), EFAULT);
	if (fd >= 0) {
		expect_refused("direct write", pwrite(fd, page_of(&map, 1), EXMAP_PAGE_SIZE, 0), EFAULT);
		expect_refused("direct read", pread(fd, page_of(&map, 1), EXMAP_PAGE_SIZE, 0), EFAULT);
		close(fd);
	}
	/* what copies is fine */
	expect(write(ends[1], page_of(&map, 1), 64) == 64 && read(ends[0], buffer, 64) == 64, "a pipe");
	expect(*(uint64_t *)buffer == 2, "it has something else");
	free(buffer);
	end(&map);
}

static void expect_memory(int fd, struct map *map, size_t page, uint64_t mark)
{
	uint64_t word = ~mark;

	expect(pread(fd, &word, sizeof(word), (off_t)page_of(map, page)) == sizeof(word), "/proc/pid/mem: %s",
	       strerror(errno));
	expect(word == mark, "/proc/pid/mem has %lx in page %zu", word, page);
}

/* A tracer reads and writes what is there, and reads zeros elsewhere. */
static void traced(void)
{
	struct map map = begin();
	int go[2], fd;
	char path[64], both[2 * EXMAP_PAGE_SIZE];
	uint64_t word = 77;

	must(pipe(go));
	pid_t owner = getpid(), tracer = must_fork();

	if (!tracer) {
		must(read(go[0], both, 1));
		must(ptrace(PTRACE_SEIZE, owner, NULL, NULL));
		must(ptrace(PTRACE_INTERRUPT, owner, NULL, NULL));
		must(waitpid(owner, NULL, 0));
		snprintf(path, sizeof(path), "/proc/%d/mem", owner);
		fd = must(open(path, O_RDWR));
		expect_memory(fd, &map, 1, 2);
		expect_memory(fd, &map, 700, 0);
		expect(pread(fd, both, sizeof(both), (off_t)page_of(&map, 8)) == sizeof(both), "two pages");
		expect(block_has(both, 9) && block_has(both + EXMAP_PAGE_SIZE, 10), "two pages show something else");
		expect(pread(fd, both, sizeof(both), (off_t)page_of(&map, 9)) == sizeof(both), "the last and one behind");
		expect(pwrite(fd, &word, sizeof(word), (off_t)page_of(&map, 3) + 8) == sizeof(word), "writing");
		expect(pwrite(fd, &word, sizeof(word), (off_t)page_of(&map, 700)) < 0, "writing a page that is not there");
		errno = 0;
		expect(ptrace(PTRACE_PEEKDATA, owner, page_of(&map, 3) + 8, NULL) == 77 && !errno, "PEEKDATA");
		must(ptrace(PTRACE_DETACH, owner, NULL, NULL));
		_exit(VERDICT_PASS);
	}
	must(write(go[1], "g", 1));
	expect_exit(tracer, VERDICT_PASS, "the tracer");
	expect(*(uint64_t *)(page_of(&map, 3) + 8) == 77, "what the tracer wrote is not there");
	expect(!map_statistics(&map).pages_unmapped, "pages went");
	end(&map);
}

/* Of a line of /proc/self/smaps about the map. */
static long smaps_kb(const struct map *map, const char *name)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512], start[32];
	bool here = false;
	long kb = -1;

	snprintf(start, sizeof(start), "%lx-", (unsigned long)map->base);
	while (file && fgets(line, sizeof(line), file)) {
		if (strstr(line, " rw-s ") || strchr(line, '-'))
			here = !strncmp(line, start, strlen(start)) || (here && strchr(line, ':') < strchr(line, '-'));
		if (here && !strncmp(line, name, strlen(name)))
			kb = strtol(line + strlen(name) + 1, NULL, 10);
	}
	if (file)
		fclose(file);
	return kb;
}

/* Readers of page tables see what is there: frames are in no process's RSS. */
static void looked_at(void)
{
	struct map map = begin();
	unsigned char present[PAGES];
	uint64_t entry;
	int fd = must(open("/proc/self/pagemap", O_RDONLY));

	expect(smaps_kb(&map, "Size") == (long)BYTES / 1024, "smaps: size %ld", smaps_kb(&map, "Size"));
	expect(smaps_kb(&map, "Rss") == 0, "smaps: rss %ld", smaps_kb(&map, "Rss"));
	expect(pread(fd, &entry, sizeof(entry), (unsigned long)map.base / EXMAP_PAGE_SIZE * 8) == sizeof(entry), "pagemap");
	must(mincore(map.base, BYTES, present));
	write_file("/proc/self/clear_refs", "1");
	write_file("/proc/self/clear_refs", "4");
	write_file("/proc/sys/vm/compact_memory", "1");
	fd = must(open("/proc/self/numa_maps", O_RDONLY));
	while (read(fd, present, sizeof(present)) > 0)
		;
	expect(!signal_of_write(page_of(&map, 0) + 1000), "a page cannot be written to after all that");
	end(&map);
}

/* A core dump has none of it, and does not wait for it. */
static void dumped(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	pid_t child;
	int status;

	must_write_file("/proc/sys/kernel/core_pattern", "/tmp/exmap.core");
	child = must_fork();
	if (!child) {
		struct map map = map_new(1 << 20, 64, 1);	/* 4 GiB */

		must(setrlimit(RLIMIT_CORE, &limit));
		must(chdir("/tmp"));
		must_alloc(&map, 0, 10);
		block_mark(page_of(&map, 3), 0x5345435245544552);
		abort();
	}
	status = wait_status(child);
	expect(WIFSIGNALED(status) && WCOREDUMP(status), "no core was dumped");
	int fd = must(open("/tmp/exmap.core", O_RDONLY));
	off_t size = lseek(fd, 0, SEEK_END);
	uint64_t block[512];

	expect(size < 512 << 20, "the core has %ld bytes", size);
	for (off_t at = 0; pread(fd, block, sizeof(block), at) > 0; at += sizeof(block))
		for (size_t i = 0; i < 512; i++)
			expect(block[i] != 0x5345435245544552 || (i % 64 && block[i - 1] != 0), "the core has a page of the map");
	unlink("/tmp/exmap.core");
}

/* The memory goes with exec, the descriptor stays, and is of no use to the program. */
static void executed(void)
{
	long before = read_field("/proc/exmap", "pages_unmapped");
	struct map map = { .fd = device_open(), .pages = PAGES, .pool = 64, .interfaces = 1 };
	pid_t child = must_fork();

	if (!child) {
		expect(!map_setup(map.fd, PAGES, 64, 1), "setup");
		map_attach(&map);
		map.entries = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd,
				   EXMAP_OFFSET_INTERFACE);
		must_alloc(&map, 0, 10);
		fcntl(map.fd, F_SETFD, 0);
		execl("/bin/busybox", "sleep", "2", NULL);
		_exit(VERDICT_FAIL);
	}
	for (int i = 0; i < 200 && (read_field("/proc/exmap", "pages_unmapped") < before + 10 ||
				    read_field("/proc/exmap", "frames_live")); i++)
		sleep_ms(10);
	expect(read_field("/proc/exmap", "frames_live") == 0 && read_field("/proc/exmap", "frames_free") == 0,
	       "%ld frames, %ld of them free", read_field("/proc/exmap", "frames_live"),
	       read_field("/proc/exmap", "frames_free"));
	expect(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd, 0) == MAP_FAILED && errno == EPERM, "mmap");
	expect_exit(child, 0, "the program");
	close(map.fd);
	expect(read_field("/proc/exmap", "maps_live") == 0, "the map lives on");
}

/* What test module `notifier` has seen. */
struct seen { uint64_t begun, ended, start, end; };

static struct seen seen_by(int watcher)
{
	struct seen seen;

	expect(read(watcher, &seen, sizeof(seen)) == sizeof(seen), "the notifier: %s", strerror(errno));
	return seen;
}

static void expect_seen(int watcher, const struct seen *before, const struct map *map, size_t first, size_t end)
{
	struct seen now = seen_by(watcher);

	expect(now.begun == before->begun + 1 && now.ended == before->ended + 1, "%lu were announced, %lu ended",
	       now.begun - before->begun, now.ended - before->ended);
	expect(now.start == (uint64_t)page_of(map, first) && now.end == (uint64_t)page_of(map, end), "other pages: %lx to %lx",
	       now.start, now.end);
}

/* Who keeps copies of page tables is told once a call: of pages that go, and of zero pages that are replaced. */
static void notified(void)
{
	struct map map = begin();
	int module = open("/lib/notifier.ko", O_RDONLY | O_CLOEXEC), watcher;
	struct seen before;

	if (module < 0)
		skip("no module that is told");
	must(syscall(SYS_finit_module, module, "", 0));
	watcher = must(open("/dev/exmap_notifier", O_RDONLY | O_CLOEXEC));
	must_alloc(&map, 10, 20);
	before = seen_by(watcher);
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 25, .length = 2 };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = 12, .length = 1 };
	expect(run_entries(&map, 0, EXMAP_FREE, 0, 2) == 3, "freeing");
	expect_seen(watcher, &before, &map, 12, 27);
	expect(page_is_zero(&map, 25), "not zero");
	before = seen_by(watcher);
	must_alloc(&map, 24, 3);
	expect_seen(watcher, &before, &map, 24, 27);
	must_free(&map, 10, 20);
	close(watcher);
	must(syscall(SYS_delete_module, "notifier", O_NONBLOCK));
	end(&map);
}

/* Reclaim, with memory short, takes nothing of it. */
static void pressure(void)
{
	struct map map = begin();

	cgroup_write(cgroup_enter("exmap.pressure"), "memory.high", "24M");
	for (int round = 0; round < 3; round++) {
		char *memory = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		expect(memory != MAP_FAILED, "mmap");
		for (size_t at = 0; at < 64 << 20; at += EXMAP_PAGE_SIZE)
			memory[at] = 1;
		must(munmap(memory, 64 << 20));
	}
	end(&map);
}

const struct scenario scenarios[] = {
	{ "forked", forked, MODE_EXMAP },
	{ "moved", moved, MODE_EXMAP },
	{ "unmapped_in_part", unmapped_in_part, MODE_EXMAP },
	{ "mapped_again", mapped_again, MODE_EXMAP },
	{ "remapped", remapped, MODE_EXMAP },
	{ "kinds_of_mapping", kinds_of_mapping, MODE_EXMAP },
	{ "protection", protection, MODE_EXMAP },
	{ "advice", advice, MODE_EXMAP },
	{ "locked", locked, MODE_EXMAP },
	{ "user_faults", user_faults, MODE_EXMAP },
	{ "references", references, MODE_EXMAP },
	{ "traced", traced, MODE_EXMAP },
	{ "looked_at", looked_at, MODE_EXMAP },
	{ "dumped", dumped, MODE_EXMAP },
	{ "executed", executed, MODE_EXMAP },
	{ "notified", notified, MODE_EXMAP },
	{ "pressure", pressure, MODE_EXMAP },
	{ 0 },
};
