// SPDX-License-Identifier: GPL-2.0
/* Reading into the map: by calls, by actions, by io_uring; from files and devices, by the page cache and past it. */
#define _GNU_SOURCE
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "exmap_map.h"

#define PAGES 4096UL
#define FILE_PAGES 2000UL
#define MARK 0x1000000UL

static struct map map;

static const struct source {
	const char *name, *path;
	int flags;
	bool mount;	/* a file system of its own, for direct reads of a file */
} sources[] = {
	{ "a file", "/tmp/exmap.data", 0, false },
	{ "a block device", DISK, 0, false },
	{ "a block device, direct", DISK, O_DIRECT, false },
	{ "a file, direct", "/tmp/disk/data", O_DIRECT, true },
};

#define SOURCES (sizeof(sources) / sizeof(sources[0]))

static int source_open(const struct source *source)
{
	if (source->mount) {
		mkdir("/tmp/disk", 0700);
		if (system("/bin/busybox mke2fs /dev/ram1 > /dev/null 2>&1") || mount("/dev/ram1", "/tmp/disk", "ext4", 0, "")) {
			dprintf(STDOUT_FILENO, "no file system for direct reads: %s\n", strerror(errno));
			return -1;
		}
	}
	return file_with_marks(source->path, FILE_PAGES, MARK, source->flags);
}

static void source_close(const struct source *source, int fd)
{
	close(fd);
	back(&map, -1);
	if (source->mount)
		must(umount2("/tmp/disk", MNT_DETACH));
}

/* The check for each source, each with a map of its own. */
static void with_sources(void (*check)(void))
{
	for (size_t i = 0; i < SOURCES; i++) {
		int fd = source_open(&sources[i]);

		if (fd < 0)
			continue;
		map = map_new(PAGES, 2048, 64);
		must_back(&map, fd);
		dprintf(STDOUT_FILENO, "%s\n", sources[i].name);
		check();
		must_free(&map, 0, PAGES);
		expect_conserved(&map, 0);
		source_close(&sources[i], fd);
		map_close(&map);
	}
}

static void file_map(size_t pool, unsigned int interfaces)
{
	int fd = file_with_marks("/tmp/exmap.data", FILE_PAGES, MARK, 0);

	expect(fd >= 0, "the file: %s", strerror(-fd));
	map = map_new(PAGES, pool, interfaces);
	must_back(&map, fd);
	close(fd);
}

/* ---------- read calls ---------- */

static void read_calls(void)
{
	struct iovec parts[40];

	must_alloc(&map, 10, 1);
	expect(pread(map.fd, page_of(&map, 10), 4096, 7 * 4096) == 4096, "one page: %s", strerror(errno));
	expect(page_has(&map, 10, MARK + 7), "it has something else");
	expect(pread(map.fd, page_of(&map, 20), 100 * 4096, 50 * 4096) == 100 * 4096, "pages not there: %s", strerror(errno));
	for (size_t page = 0; page < 100; page++)
		expect(page_has(&map, 20 + page, MARK + 50 + page), "page %zu has something else", page);
	for (size_t i = 0; i < 40; i++)
		parts[i] = (struct iovec) { page_of(&map, 3000 - i * 7), 4096 * (1 + i % 2) };
	expect(preadv(map.fd, parts, 40, 300 * 4096) == 60 * 4096, "preadv: %s", strerror(errno));
	for (size_t i = 0, at = 300; i < 40; i++)
		for (size_t page = 0; page < 1 + i % 2; page++)
			expect(page_has(&map, 3000 - i * 7 + page, MARK + at++), "part %zu has something else", i);
}

static void pread_preadv(void)
{
	with_sources(read_calls);
}

/* Parts of pages, through the page cache; what is around them stays. */
static void parts_of_pages(void)
{
	struct iovec parts[2];
	unsigned char expected[8192];
	int fd;

	file_map(100, 1);
	fd = must(open("/tmp/exmap.data", O_RDONLY));
	must(pread(fd, expected, sizeof(expected), 0));
	must_alloc(&map, 0, 8);
	for (size_t page = 0; page < 8; page++)
		memset(page_of(&map, page), 0x11, 4096);
	expect(pread(map.fd, map.base + 100, 5000, 0) == 5000, "5000 bytes: %s", strerror(errno));
	expect(!memcmp(map.base + 100, expected, 5000), "they are something else");
	expect(map.base[99] == 0x11 && map.base[5100] == 0x11, "something beside them changed");
	parts[0] = (struct iovec) { map.base + 3 * 4096 - 10, 20 };
	parts[1] = (struct iovec) { map.base + 6 * 4096 + 1, 3 };
	expect(preadv(map.fd, parts, 2, 3) == 23, "preadv: %s", strerror(errno));
	expect(!memcmp(parts[0].iov_base, expected + 3, 20) && !memcmp(parts[1].iov_base, expected + 23, 3), "other bytes");
	/* by the position of the file, and at its end */
	expect(read(map.fd, map.base, 4096) == 4096 && read(map.fd, map.base, 4096) == 4096, "read: %s", strerror(errno));
	expect(page_has(&map, 0, MARK + 1), "the position did not move");
	expect(pread(map.fd, map.base, 8192, (FILE_PAGES - 1) * 4096) == 4096, "the file's end: %s", strerror(errno));
	expect(pread(map.fd, map.base, 8192, FILE_PAGES * 4096) == 0, "behind the file's end");
	map_close(&map);
}

/* No more than a bound at once: the rest is for the next call. */
static void long_read(void)
{
	int fd = must(open("/tmp/exmap.sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	size_t most = EXMAP_READ_PAGES_MAX;

	must(ftruncate(fd, (most + 100) * 4096));
	map = map_new(40000, 20000, 1);
	must_back(&map, fd);
	expect(pread(map.fd, map.base, (most + 100) * 4096, 0) == (ssize_t)(most * 4096), "a long read");
	expect(map_statistics(&map).pages_allocated == most, "pages");
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 0, .length = most };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = most, .length = 1 };
	expect(run_entries(&map, 0, EXMAP_READ, 0, 2) == -E2BIG, "a long READ");
	expect(run_entries(&map, 0, EXMAP_READ, 0, 1) == (long)most, "the longest READ");
	unlink("/tmp/exmap.sparse");
	map_close(&map);
}

/* Errors of the backing file are those of the call, and nothing stays in use. */
static void errors(void)
{
	int fd = file_with_marks(DISK, 100, MARK, O_DIRECT);

	if (fd < 0)
		skip("no %s", DISK);
	map = map_new(PAGES, 64, 1);
	must_back(&map, fd);
	expect(pread(map.fd, map.base, 4096, 100) < 0 && errno == EINVAL, "a direct read from offset 100");
	expect(pread(map.fd, map.base + 7, 4096, 0) < 0 && errno == EINVAL, "a direct read into the middle of a page");
	expect(pread(map.fd, map.base, 100 * 4096, 0) < 0 && errno == ENOMEM, "more pages than there are frames");
	expect(map_statistics(&map).reads_failed == 2, "%llu reads failed", map_statistics(&map).reads_failed);
	must_free(&map, 0, PAGES);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* ---------- EXMAP_READ ---------- */

static void expect_read(unsigned int interface, size_t first, size_t step, unsigned int count, size_t offset_pages)
{
	for (unsigned int i = 0; i < count; i++) {
		size_t page = first + i * step;

		expect(entry_of(&map, interface, i)->result == 1, "entry %u: %d", i, entry_of(&map, interface, i)->result);
		expect(page_has(&map, page, MARK + page + offset_pages), "page %zu has something else", page);
	}
}

static void actions(void)
{
	struct exmap_action shifted = { .opcode = EXMAP_READ, .entry_count = 100, .offset = 10 * 4096 };

	set_entries(&map, 0, 3, 3, 512);
	expect(run_entries(&map, 0, EXMAP_READ, 0, 512) == 512, "reading");
	expect_read(0, 3, 3, 512, 0);
	set_entries(&map, 0, 500, 1, 100);
	expect(act(&map, &shifted) == 100, "reading from an offset");
	expect_read(0, 500, 1, 100, 10);
	/* several pages an entry, and more frames than there are */
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 0, .length = 64 };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = 100, .length = 3000 };
	*entry_of(&map, 0, 2) = (struct exmap_entry) { .page = 50, .length = 10 };
	expect(run_entries(&map, 0, EXMAP_READ, 0, 3) == 74, "reading");
	expect(entry_of(&map, 0, 0)->result == 64 && entry_of(&map, 0, 1)->result == -ENOMEM &&
	       entry_of(&map, 0, 2)->result == 10, "results");
	for (size_t page = 0; page < 64; page++)
		expect(page_has(&map, page, MARK + page), "page %zu has something else", page);
}

static void read_action(void)
{
	with_sources(actions);
}

static void end_of_file(void)
{
	file_map(100, 1);
	must(truncate("/tmp/exmap.data", 10 * 4096 + 100));
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 8, .length = 8 };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = 100, .length = 1 };
	*entry_of(&map, 0, 2) = (struct exmap_entry) { .page = 1, .length = 1 };
	expect(run_entries(&map, 0, EXMAP_READ, 0, 3) == 3, "whole pages");
	expect(entry_of(&map, 0, 0)->result == 2 && entry_of(&map, 0, 1)->result == 0 && entry_of(&map, 0, 2)->result == 1,
	       "%d, %d, %d", entry_of(&map, 0, 0)->result, entry_of(&map, 0, 1)->result, entry_of(&map, 0, 2)->result);
	map_close(&map);
}

/* ---------- io_uring ---------- */

static void ring_reads(void)
{
	struct uring ring = uring_new(64);
	struct iovec parts[2] = { { page_of(&map, 900), 4096 }, { page_of(&map, 950), 8192 } };
	uint64_t data, seen = 0;

	for (uint64_t i = 0; i < 40; i++) {
		struct io_uring_sqe *sqe = uring_sqe(&ring);

		sqe->opcode = IORING_OP_READ;
		sqe->fd = map.fd;
		sqe->addr = (unsigned long)page_of(&map, 100 + i * 3);
		sqe->len = 4096;
		sqe->off = (i + 5) * 4096;
		sqe->user_data = i;
	}
	uring_submit(&ring, 40);
	for (int i = 0; i < 40; i++) {
		int result = uring_wait(&ring, &data);

		expect(result == 4096, "READ %lu gave %d", data, result);
		expect(page_has(&map, 100 + data * 3, MARK + data + 5), "READ %lu gave something else", data);
		seen |= 1UL << data;
	}
	expect(seen == (1UL << 40) - 1, "completions: %lx", seen);
	struct io_uring_sqe *sqe = uring_sqe(&ring);

	sqe->opcode = IORING_OP_READV;
	sqe->fd = map.fd;
	sqe->addr = (unsigned long)parts;
	sqe->len = 2;
	sqe->off = 60 * 4096;
	uring_submit(&ring, 1);
	expect(uring_wait(&ring, NULL) == 3 * 4096, "READV");
	expect(page_has(&map, 900, MARK + 60) && page_has(&map, 951, MARK + 62), "READV gave something else");
	uring_close(&ring);
}

static void uring_read(void)
{
	with_sources(ring_reads);
}

/* Each interface has a call under way, each call 20 vectors; allocations and frees come the same way. */
static void ring_actions(void)
{
	struct uring ring = uring_new(64);
	struct exmap_action action = { .opcode = EXMAP_READ, .entry_count = 20 };
	uint64_t data;

	for (unsigned int round = 0; round < 3; round++) {
		for (action.interface = 0; action.interface < 64; action.interface++) {
			action.opcode = EXMAP_READ;
			set_entries(&map, action.interface, action.interface, 64, 20);
			uring_add_action(&ring, &map, &action, action.interface);
		}
		uring_submit(&ring, 64);
		for (int i = 0; i < 64; i++) {
			int result = uring_wait(&ring, &data);

			expect(result == 20, "READ on interface %lu gave %d", data, result);
			expect_read(data, data, 64, 20, 0);
		}
		action.opcode = round ? EXMAP_FREE : EXMAP_ALLOC;
		for (action.interface = 0; action.interface < 64; action.interface++)
			uring_add_action(&ring, &map, &action, action.interface);
		uring_submit(&ring, 64);
		for (int i = 0; i < 64; i++)
			expect(uring_wait(&ring, &data) == 20, "interface %lu", data);
	}
	expect_conserved(&map, 0);
	uring_close(&ring);
}

static void uring_cmd(void)
{
	with_sources(ring_actions);
}

static void uring_refuses(void)
{
	struct uring ring = uring_new(8);
	struct exmap_action action = { .interface = 9, .entry_count = 1 };
	struct iovec buffer;

	file_map(100, 1);
	uring_add_action(&ring, &map, &action, 0);
	uring_submit(&ring, 1);
	expect(uring_wait(&ring, NULL) == -EINVAL, "interface 9 of 1");
	action = (struct exmap_action) { .entry_count = 1 };
	uring_add_action(&ring, &map, &action, 0);
	ring.sqes[(*ring.sq_tail - 1) & *ring.sq_mask].off = EXMAP_SETUP;
	uring_submit(&ring, 1);
	expect(uring_wait(&ring, NULL) == -ENOTTY, "another command");
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = PAGES, .length = 1 };
	for (action.opcode = 0; action.opcode <= EXMAP_OPCODES; action.opcode++) {
		uring_add_action(&ring, &map, &action, 0);
		uring_submit(&ring, 1);
		expect(uring_wait(&ring, NULL) == -EINVAL, "a page out of bounds, opcode %u", action.opcode);
	}
	back(&map, -1);
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 1, .length = 1 };
	action.opcode = EXMAP_READ;
	uring_add_action(&ring, &map, &action, 0);
	uring_submit(&ring, 1);
	expect(uring_wait(&ring, NULL) == -ENXIO, "no backing file");
	/* registered buffers are references to pages */
	must_alloc(&map, 0, 4);
	buffer = (struct iovec) { map.base, 4 * 4096 };
	expect(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1) < 0 && errno == EFAULT,
	       "its memory was registered: %s", strerror(errno));
	uring_close(&ring);
	map_close(&map);
}

static void ring_killed(bool direct)
{
	for (int round = 0; round < 12; round++) {
		pid_t child = must_fork();

		if (!child) {
			struct uring ring = uring_new(64);
			int fd = file_with_marks(DISK, FILE_PAGES, MARK, direct ? O_DIRECT : 0);

			map = map_new(PAGES, 2048, 64);
			must_back(&map, fd);
			for (unsigned int i = 0; i < 64; i++) {
				struct exmap_action action = { .interface = i, .opcode = EXMAP_READ, .entry_count = 25 };

				set_entries(&map, i, i * 25, 1, 25);
				uring_add_action(&ring, &map, &action, i);
			}
			uring_submit(&ring, 64);
			if (round % 3 == 0)
				_exit(0);
			if (round % 3 == 1)
				munmap(map.base, PAGES * EXMAP_PAGE_SIZE);
			uring_close(&ring);
			close(map.fd);
			_exit(0);
		}
		expect_exit(child, 0, "the child");
	}
}

/* The ring, the mapping, the process go while reads are under way. The runner sees whether something stays. */
static void gone_meanwhile(void)
{
	if (access(DISK, F_OK))
		skip("no %s", DISK);
	ring_killed(true);
	ring_killed(false);
}

static void native_aio(void)
{
	aio_context_t context = 0;
	struct iocb requests[16], *list[16];
	struct io_event events[16];

	if (syscall(SYS_io_setup, 16, &context))
		skip("no AIO: %s", strerror(errno));
	for (int i = 0; i < 16; i++) {
		requests[i] = (struct iocb) {
			.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = map.fd, .aio_buf = (unsigned long)page_of(&map, i * 2),
			.aio_nbytes = 4096, .aio_offset = i * 4096,
		};
		list[i] = &requests[i];
	}
	expect(syscall(SYS_io_submit, context, 16, list) == 16, "io_submit: %s", strerror(errno));
	expect(syscall(SYS_io_getevents, context, 16, 16, events, NULL) == 16, "io_getevents: %s", strerror(errno));
	for (int i = 0; i < 16; i++) {
		expect(events[i].res == 4096, "a read gave %lld", events[i].res);
		expect(page_has(&map, i * 2, MARK + i), "page %d has something else", i);
	}
	syscall(SYS_io_destroy, context);
}

static void aio(void)
{
	with_sources(native_aio);
}

/* ---------- reads beside others ---------- */

static void *slow_read(void *unused)
{
	long result = run_one(&map, 1, EXMAP_READ, 5, 2);

	expect(result == 2, "the read gave %ld", result);
	return unused;
}

static pthread_t slow_read_begin(void)
{
	pthread_t reader;

	expect(parameter_set("delay_us", "200000") && parameter_set("delay_at", "2"), "delay_at: %s", strerror(errno));
	expect(!pthread_create(&reader, NULL, slow_read, NULL), "pthread_create");
	sleep_ms(60);
	return reader;
}

static void slow_read_end(pthread_t reader)
{
	pthread_join(reader, NULL);
	parameter_set("delay_at", "0");
}

/* A descriptor that must not wait is told to come again, however it is told so. */
static void nonblock(void)
{
	file_map(100, 2);
	must(fcntl(map.fd, F_SETFL, O_NONBLOCK));
	expect(pread(map.fd, page_of(&map, 5), 4096, 0) < 0 && errno == EAGAIN, "pread");
	expect(preadv(map.fd, &(struct iovec) { page_of(&map, 5), 4096 }, 1, 0) < 0 && errno == EAGAIN, "preadv");
	expect(!map_statistics(&map).pages_allocated && !map_statistics(&map).reads, "something was done");
	must(fcntl(map.fd, F_SETFL, 0));
	expect(preadv2(map.fd, &(struct iovec) { page_of(&map, 5), 4096 }, 1, 0, RWF_NOWAIT) < 0, "preadv2");
	expect(pread(map.fd, page_of(&map, 5), 4096, 4096) == 4096, "pread: %s", strerror(errno));
	expect(page_has(&map, 5, MARK + 1), "what was read is not there");
	must_free(&map, 5, 1);
	map_close(&map);
}

/* A page with a read under way cannot be freed; what else is named can. */
static void busy(void)
{
	pthread_t reader;

	file_map(100, 2);
	must_alloc(&map, 0, 20);
	reader = slow_read_begin();
	expect(run_one(&map, 0, EXMAP_FREE, 5, 1) == -EBUSY, "a page with a read under way was freed");
	expect(run_one(&map, 0, EXMAP_FREE, 3, 4) == 2, "two pages are before it");
	*entry_of(&map, 0, 0) = (struct exmap_entry) { .page = 4, .length = 3 };
	*entry_of(&map, 0, 1) = (struct exmap_entry) { .page = 10, .length = 3 };
	expect(run_entries(&map, 0, EXMAP_FREE, 0, 2) == 4, "what is not in use");
	expect(entry_of(&map, 0, 0)->result == 1 && entry_of(&map, 0, 1)->result == 3, "results");
	expect(map_statistics(&map).pages_busy == 3, "%llu", map_statistics(&map).pages_busy);
	slow_read_end(reader);
	expect(page_has(&map, 5, MARK + 5) && page_has(&map, 6, MARK + 6), "what was read is not there");
	must_free(&map, 0, 20);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* The mapping goes while a read is under way: its frames are free when it has ended, and not before. */
static void unmapped_meanwhile(void)
{
	pthread_t reader;

	file_map(8, 2);
	must_alloc(&map, 5, 2);
	reader = slow_read_begin();
	must(munmap(map.base, PAGES * EXMAP_PAGE_SIZE));
	map_attach(&map);
	expect(run_one(&map, 0, EXMAP_ALLOC, 100, 8) == 6, "frames of a read that is under way were given away");
	memset(page_of(&map, 100), 0, 6 * 4096);
	slow_read_end(reader);
	for (size_t page = 100; page < 106; page++)
		expect(page_is_zero(&map, page), "the read went into page %zu", page);
	must_free(&map, 100, 6);
	expect_conserved(&map, 0);
	map_close(&map);
}

/* Another backing file, or none: reads under way keep theirs. */
static void backing_changes(void)
{
	pthread_t reader;

	file_map(8, 2);
	reader = slow_read_begin();
	expect(!back(&map, -1), "no backing file any more");
	slow_read_end(reader);
	expect(page_has(&map, 5, MARK + 5), "what was read is not there");
	expect(run_one(&map, 0, EXMAP_READ, 5, 1) == -ENXIO, "reading without a backing file");
	map_close(&map);
}

static volatile bool over;

static void *reads_and_frees(void *argument)
{
	unsigned int own = (unsigned long)argument, turn = 0;

	for (; !over; turn++) {
		long result = run_one(&map, own, turn % 3 ? EXMAP_READ : EXMAP_FREE, (turn * 7 + own) % 200, 1 + turn % 9);

		expect(result > 0 || result == -EBUSY || result == -EAGAIN || result == -ENOMEM, "it gave %ld", result);
	}
	return NULL;
}

/* The same pages, read and freed by all. */
static void same_pages(void)
{
	pthread_t threads[3];

	file_map(150, 3);
	for (unsigned long i = 0; i < 3; i++)
		expect(!pthread_create(&threads[i], NULL, reads_and_frees, (void *)i), "pthread_create");
	sleep_ms(800);
	over = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	must_free(&map, 0, PAGES);
	expect_conserved(&map, 0);
	map_close(&map);
}

const struct scenario scenarios[] = {
	{ "pread_preadv", pread_preadv, MODE_EXMAP },
	{ "parts_of_pages", parts_of_pages, MODE_EXMAP },
	{ "long_read", long_read, MODE_EXMAP },
	{ "errors", errors, MODE_EXMAP },
	{ "read_action", read_action, MODE_EXMAP },
	{ "end_of_file", end_of_file, MODE_EXMAP },
	{ "uring_read", uring_read, MODE_EXMAP },
	{ "uring_cmd", uring_cmd, MODE_EXMAP },
	{ "uring_refuses", uring_refuses, MODE_EXMAP },
	{ "gone_meanwhile", gone_meanwhile, MODE_EXMAP },
	{ "aio", aio, MODE_EXMAP },
	{ "nonblock", nonblock, MODE_EXMAP },
	{ "busy", busy, MODE_EXMAP },
	{ "unmapped_meanwhile", unmapped_meanwhile, MODE_EXMAP },
	{ "backing_changes", backing_changes, MODE_EXMAP },
	{ "same_pages", same_pages, MODE_EXMAP },
	{ 0 },
};
