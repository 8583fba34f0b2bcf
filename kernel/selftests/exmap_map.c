// SPDX-License-Identifier: GPL-2.0
/* See exmap_map.h. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/stat.h>

#include "exmap_map.h"

#define NOBODY 65534

/* ---------- maps ---------- */

int device_open(void)
{
	return must(open(EXMAP_DEVICE, O_RDWR | O_CLOEXEC));
}

int map_setup(int fd, uint64_t pages, uint64_t pool, unsigned int interfaces)
{
	struct exmap_setup setup = {
		.size = sizeof(setup), .version = EXMAP_VERSION, .map_pages = pages, .pool_pages = pool,
		.interface_count = interfaces,
	};

	return ioctl(fd, EXMAP_SETUP, &setup) ? -errno : 0;
}

void map_attach(struct map *map)
{
	map->base = mmap(NULL, map->pages * EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd, 0);
	expect(map->base != MAP_FAILED, "mmap of the map: %s", strerror(errno));
}

struct map map_new(size_t pages, size_t pool, unsigned int interfaces)
{
	struct map map = { .fd = device_open(), .pages = pages, .pool = pool, .interfaces = interfaces };
	int result = map_setup(map.fd, pages, pool, interfaces);

	expect(!result, "setup: %s", strerror(-result));
	map_attach(&map);
	map.entries = mmap(NULL, interfaces * EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, map.fd,
			   EXMAP_OFFSET_INTERFACE);
	expect(map.entries != MAP_FAILED, "mmap of the interfaces: %s", strerror(errno));
	return map;
}

void map_close(struct map *map)
{
	if (map->base)
		must(munmap(map->base, map->pages * EXMAP_PAGE_SIZE));
	must(munmap(map->entries, map->interfaces * EXMAP_PAGE_SIZE));
	must(close(map->fd));
}

struct exmap_statistics map_statistics(const struct map *map)
{
	struct exmap_statistics statistics = { .size = sizeof(statistics), .version = EXMAP_VERSION };

	must(ioctl(map->fd, EXMAP_STATISTICS, &statistics));
	return statistics;
}

void expect_conserved(const struct map *map, size_t allocated)
{
	struct exmap_statistics s = map_statistics(map);

	expect(s.frames <= map->pool, "%llu frames in a pool of %zu", s.frames, map->pool);
	expect(s.frames_free + allocated == s.frames, "%llu frames, %llu of them free, and %zu pages allocated", s.frames,
	       s.frames_free, allocated);
	expect(s.pages_allocated == s.pages_freed + s.pages_unmapped + allocated,
	       "%llu pages allocated, %llu freed, %llu unmapped, but %zu there", s.pages_allocated, s.pages_freed,
	       s.pages_unmapped, allocated);
}

long act(const struct map *map, const struct exmap_action *action)
{
	long result = ioctl(map->fd, EXMAP_ACTION, action);

	return result < 0 ? -errno : result;
}

long run_entries(const struct map *map, unsigned int interface, enum exmap_opcode opcode, unsigned int flags,
		 unsigned int count)
{
	struct exmap_action action = { .interface = interface, .opcode = opcode, .entry_count = count, .flags = flags };

	return act(map, &action);
}

long run_one(const struct map *map, unsigned int interface, enum exmap_opcode opcode, size_t page, size_t count)
{
	*entry_of(map, interface, 0) = (struct exmap_entry) { .page = page, .length = count };
	return run_entries(map, interface, opcode, 0, 1);
}

void must_run(const struct map *map, unsigned int interface, enum exmap_opcode opcode, size_t page, size_t count)
{
	while (count) {
		size_t part = count < EXMAP_LENGTH_MAX ? count : EXMAP_LENGTH_MAX;
		long result = run_one(map, interface, opcode, page, part);

		expect(result == (long)part, "%zu pages from %zu: opcode %d gave %ld", part, page, opcode, result);
		expect(entry_of(map, interface, 0)->result == result, "the entry says %d", entry_of(map, interface, 0)->result);
		page += part;
		count -= part;
	}
}

void must_alloc(const struct map *map, size_t page, size_t count)
{
	must_run(map, 0, EXMAP_ALLOC, page, count);
}

void must_free(const struct map *map, size_t page, size_t count)
{
	must_run(map, 0, EXMAP_FREE, page, count);
}

void set_entries(const struct map *map, unsigned int interface, size_t first, size_t step, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		*entry_of(map, interface, i) = (struct exmap_entry) { .page = first + i * step, .length = 1 };
}

/* ---------- contents ---------- */

void block_mark(void *block, uint64_t mark)
{
	uint64_t *words = block;

	for (size_t i = 0; i < EXMAP_PAGE_SIZE / sizeof(*words); i += 64)
		words[i] = mark;
}

bool block_has(const void *block, uint64_t mark)
{
	const uint64_t *words = block;

	for (size_t i = 0; i < EXMAP_PAGE_SIZE / sizeof(*words); i += 64)
		if (words[i] != mark)
			return false;
	return true;
}

void page_mark(const struct map *map, size_t page, uint64_t mark)
{
	block_mark(page_of(map, page), mark);
}

bool page_has(const struct map *map, size_t page, uint64_t mark)
{
	return block_has(page_of(map, page), mark);
}

bool page_is_zero(const struct map *map, size_t page)
{
	static const unsigned char zeros[EXMAP_PAGE_SIZE];

	return !memcmp(page_of(map, page), zeros, sizeof(zeros));
}

static __thread sigjmp_buf out;

static void jump_out(int number)
{
	siglongjmp(out, number);
}

static int signal_of(volatile unsigned char *address, bool write)
{
	struct sigaction action = { .sa_handler = jump_out }, bus, segv;
	int number;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	number = sigsetjmp(out, 1);
	if (!number) {
		if (write)
			*address = 1;
		else
			(void)*address;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return number;
}

int signal_of_read(const volatile unsigned char *address)
{
	return signal_of((volatile unsigned char *)address, false);
}

int signal_of_write(volatile unsigned char *address)
{
	return signal_of(address, true);
}

/* ---------- files ---------- */

int file_with_marks(const char *path, size_t pages, uint64_t mark, int flags)
{
	static _Alignas(EXMAP_PAGE_SIZE) unsigned char block[EXMAP_PAGE_SIZE];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), result;

	if (fd < 0)
		return -errno;
	for (size_t page = 0; page < pages; page++) {
		block_mark(block, mark + page);
		if (pwrite(fd, block, sizeof(block), page * sizeof(block)) != sizeof(block))
			fail("writing %s: %s", path, strerror(errno));
	}
	must(fsync(fd));
	close(fd);
	result = open(path, O_RDONLY | O_CLOEXEC | flags);
	return result < 0 ? -errno : result;
}

int back(const struct map *map, int fd)
{
	struct exmap_backing backing = { .size = sizeof(backing), .fd = fd };

	return ioctl(map->fd, EXMAP_BACKING, &backing) ? -errno : 0;
}

void must_back(const struct map *map, int fd)
{
	int result = back(map, fd);

	expect(!result, "backing: %s", strerror(-result));
}

/* ---------- io_uring ---------- */

struct uring uring_new(unsigned int entries)
{
	struct io_uring_params params = { 0 };
	struct uring ring = { .fd = syscall(SYS_io_uring_setup, entries, &params) };
	unsigned char *sq, *cq;

	if (ring.fd < 0)
		skip("no io_uring: %s", strerror(errno));
	sq = mmap(NULL, params.sq_off.array + params.sq_entries * sizeof(unsigned int), PROT_READ | PROT_WRITE,
		  MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
		  MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
			 ring.fd, IORING_OFF_SQES);
	expect(sq != MAP_FAILED && cq != MAP_FAILED && ring.sqes != MAP_FAILED, "mapping the rings");
	ring.sq_head = (unsigned int *)(sq + params.sq_off.head);
	ring.sq_tail = (unsigned int *)(sq + params.sq_off.tail);
	ring.sq_mask = (unsigned int *)(sq + params.sq_off.ring_mask);
	ring.sq_array = (unsigned int *)(sq + params.sq_off.array);
	ring.cq_head = (unsigned int *)(cq + params.cq_off.head);
	ring.cq_tail = (unsigned int *)(cq + params.cq_off.tail);
	ring.cq_mask = (unsigned int *)(cq + params.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
	return ring;
}

/* The mappings stay: they end with the process. */
void uring_close(struct uring *ring)
{
	must(close(ring->fd));
}

struct io_uring_sqe *uring_sqe(struct uring *ring)
{
	unsigned int tail = *ring->sq_tail, index = tail & *ring->sq_mask;
	struct io_uring_sqe *sqe = &ring->sqes[index];

	memset(sqe, 0, sizeof(*sqe));
	ring->sq_array[index] = index;
	__atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
	return sqe;
}

void uring_add_action(struct uring *ring, const struct map *map, const struct exmap_action *action, uint64_t data)
{
	struct io_uring_sqe *sqe = uring_sqe(ring);

	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = map->fd;
	sqe->off = EXMAP_ACTION;	/* cmd_op: the lower half of off */
	sqe->user_data = data;
	memcpy((unsigned char *)sqe + 48, action, sizeof(*action));	/* cmd[] */
}

void uring_submit(struct uring *ring, unsigned int count)
{
	long done = must(syscall(SYS_io_uring_enter, ring->fd, count, 0, 0, NULL, 0));

	expect(done == (long)count, "%ld of %u requests were taken", done, count);
}

int uring_wait(struct uring *ring, uint64_t *data)
{
	struct io_uring_cqe *cqe;
	unsigned int head = *ring->cq_head;
	int result;

	while (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE))
		must(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	cqe = &ring->cqes[head & *ring->cq_mask];
	result = cqe->res;
	if (data)
		*data = cqe->user_data;
	__atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

/* ---------- rights ---------- */

pid_t child_as_nobody(void)
{
	pid_t child;

	must(chmod(EXMAP_DEVICE, 0666));
	child = must_fork();
	if (child)
		return child;
	must(setgid(NOBODY));
	must(setuid(NOBODY));
	return 0;
}
