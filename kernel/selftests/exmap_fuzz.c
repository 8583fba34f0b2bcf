// SPDX-License-Identifier: GPL-2.0
/*
 * A user without rights calls everything with anything: ioctls, mappings, reads, io_uring, faults, forks, by several
 * threads that share what they have. The kernel's log and the runner judge. How long is on the kernel's
 * command line, as fuzz=SECONDS.
 */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "exmap_map.h"

#define THREADS 3
#define FILES 4
#define DEFAULT_SECONDS 8
#define LIFE_MS 400		/* of one process: then another starts afresh */

/* What threads share: each may be anything at any time. */
static struct {
	volatile int fd[FILES];
	volatile unsigned char *volatile base[FILES];
	volatile size_t pages[FILES];
	struct exmap_entry *volatile entries[FILES];
	volatile int data[3];	/* a file, a device, a pipe */
} shared;

static __thread uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

/* Small, near a bound, or anything. */
static uint64_t odd_number(void)
{
	static const uint64_t bounds[] = {
		0, 1, 255, 256, 257, 511, 512, 513, 32767, 32768, 65535, 65536, UINT32_MAX, 1ULL << 32, 1ULL << 44, 1ULL << 28,
		INT64_MAX, 1ULL << 63, UINT64_MAX,
	};

	switch (draw(4)) {
	case 0: return draw(16);
	case 1: return bounds[draw(sizeof(bounds) / sizeof(bounds[0]))] + draw(3) - 1;
	case 2: return draw(4096);
	default: return state;
	}
}

static void sets_up(unsigned int i)
{
	bool well = draw(4);
	struct exmap_setup setup = {
		.size = sizeof(setup), .version = EXMAP_VERSION, .map_pages = 1 + draw(3000), .pool_pages = 1 + draw(300),
		.interface_count = 1 + draw(8),
	};
	int old = shared.fd[i], fd = open(EXMAP_DEVICE, O_RDWR | O_CLOEXEC | (draw(8) ? 0 : O_NONBLOCK));

	if (!well)
		((uint32_t *)&setup)[draw(sizeof(setup) / 4)] = odd_number();
	ioctl(fd, EXMAP_SETUP, &setup);
	if (!draw(4))
		ioctl(fd, EXMAP_SETUP, &setup);
	shared.base[i] = NULL;
	shared.fd[i] = fd;
	shared.pages[i] = setup.map_pages;
	if (old > 0)
		close(old);
}

static void maps(unsigned int i)
{
	size_t pages = draw(8) ? shared.pages[i] : odd_number() % 100000;
	void *at = mmap(NULL, pages * EXMAP_PAGE_SIZE, draw(8) ? PROT_READ | PROT_WRITE : (int)draw(8),
			draw(8) ? MAP_SHARED : MAP_PRIVATE, shared.fd[i], draw(8) ? 0 : odd_number() * EXMAP_PAGE_SIZE);

	if (at != MAP_FAILED)
		shared.base[i] = at;
	at = mmap(NULL, EXMAP_PAGE_SIZE * (1 + draw(2)), PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd[i],
		  EXMAP_OFFSET_INTERFACE + draw(4) * EXMAP_PAGE_SIZE);
	if (at != MAP_FAILED)
		shared.entries[i] = at;
}

static void changes_mapping(unsigned int i)
{
	unsigned char *base = (unsigned char *)shared.base[i] + draw(3) * EXMAP_PAGE_SIZE;
	size_t bytes = (draw(2) ? shared.pages[i] : 1 + draw(100)) * EXMAP_PAGE_SIZE;

	if (!shared.base[i])
		return;
	switch (draw(6)) {
	case 0: munmap((void *)shared.base[i], shared.pages[i] * EXMAP_PAGE_SIZE); break;
	case 1: munmap(base, bytes); break;
	case 2: mprotect(base, bytes, draw(8)); break;
	case 3: madvise(base, bytes, draw(26)); break;
	case 4: mremap(base, bytes, draw(2) ? bytes : bytes / 2, MREMAP_MAYMOVE); break;
	case 5: mlock(base, bytes); break;
	}
}

static struct exmap_action an_action(void)
{
	struct exmap_action action = { .interface = draw(4), .opcode = draw(3), .entry_count = draw(33) };

	if (action.opcode == EXMAP_ALLOC)
		action.flags = draw(2);
	if (action.opcode == EXMAP_READ && draw(2))
		action.offset = draw(100) * 512;
	if (!draw(8))
		((uint16_t *)&action)[draw(8)] = odd_number();
	return action;
}

static void writes_entries(unsigned int i)
{
	struct exmap_entry *entries = shared.entries[i];

	for (unsigned int n = draw(40); entries && n; n--) {
		struct exmap_entry *entry = &entries[draw(64)];

		entry->page = draw(20) ? draw(shared.pages[i] + 1) : odd_number();
		entry->length = draw(20) ? 1 + draw(20) : odd_number();
	}
}

static void acts(unsigned int i)
{
	struct exmap_action action = an_action();

	writes_entries(i);
	ioctl(shared.fd[i], EXMAP_ACTION, draw(64) ? &action : (void *)odd_number());
}

static void backs(unsigned int i)
{
	struct exmap_backing backing = { .size = sizeof(backing), .fd = draw(4) ? shared.data[draw(3)] : (int)odd_number() };

	if (!draw(8))
		((uint32_t *)&backing)[draw(4)] = odd_number();
	ioctl(shared.fd[i], EXMAP_BACKING, &backing);
}

static void *an_address(unsigned int i)
{
	if (!draw(16) || !shared.base[i])
		return (void *)odd_number();
	return (unsigned char *)shared.base[i] + draw(shared.pages[i] + 2) * EXMAP_PAGE_SIZE + (draw(3) ? 0 : draw(4096));
}

static void reads(unsigned int i)
{
	struct iovec parts[8];
	int count = 1 + draw(8);

	for (int n = 0; n < count; n++)
		parts[n] = (struct iovec) { an_address(i), draw(4) ? draw(8) * 4096 : odd_number() % 100000 };
	if (draw(2))
		preadv2(shared.fd[i], parts, count, draw(64) * 512, draw(16) ? 0 : (int)draw(32));
	else
		pread(shared.fd[i], parts[0].iov_base, parts[0].iov_len, draw(64) * 4096);
	if (!draw(32))
		read(shared.fd[i], parts[0].iov_base, parts[0].iov_len);
}

static void rings(unsigned int i)
{
	static __thread struct uring ring;
	static __thread unsigned int uses;
	unsigned int count = 1 + draw(8);

	if (ring.fd <= 0 || uses++ > 60) {
		if (ring.fd > 0)
			close(ring.fd);
		ring = uring_new(16);
		uses = 0;
	}
	writes_entries(i);
	for (unsigned int n = 0; n < count; n++) {
		struct exmap_action action = an_action();
		struct io_uring_sqe *sqe;

		if (draw(3)) {
			uring_add_action(&ring, &(struct map) { .fd = shared.fd[i] }, &action, n);
			if (!draw(8))
				((uint32_t *)&ring.sqes[(*ring.sq_tail - 1) & *ring.sq_mask])[1 + draw(15)] = odd_number();
			continue;
		}
		sqe = uring_sqe(&ring);
		sqe->opcode = IORING_OP_READ;
		sqe->fd = shared.fd[i];
		sqe->addr = (unsigned long)an_address(i);
		sqe->len = draw(8) * 4096;
		sqe->off = draw(64) * 512;
		sqe->flags = draw(8) ? 0 : IOSQE_ASYNC;
	}
	syscall(SYS_io_uring_enter, ring.fd, count, draw(2) ? draw(count) : 0, IORING_ENTER_GETEVENTS, NULL, 0);
	*ring.cq_head = *ring.cq_tail;
}

static void touches(unsigned int i)
{
	for (int n = 0; n < 20 && shared.base[i]; n++) {
		if (draw(2))
			signal_of_read(an_address(i));
		else
			signal_of_write(page_of(&(struct map) { .base = (unsigned char *)shared.base[i] },
					draw(shared.pages[i] + 1)));
	}
}

static void others(unsigned int i)
{
	/* as much room as any size that is taken asks for: the rest is cleared */
	union { struct exmap_statistics all; char room[EXMAP_PAGE_SIZE]; } statistics;
	pid_t child;

	switch (draw(4)) {
	case 0:
		statistics.all.size = draw(8) ? sizeof(statistics.all) : odd_number();
		statistics.all.version = EXMAP_VERSION;
		ioctl(shared.fd[i], EXMAP_STATISTICS, draw(16) ? &statistics : (void *)odd_number());
		break;
	case 1:
		ioctl(shared.fd[i], odd_number(), odd_number());
		break;
	case 2:
		child = draw(8) ? -1 : fork();
		if (!child) {
			acts(i);
			maps(i);
			_exit(0);
		}
		if (child > 0)
			waitpid(child, NULL, 0);
		break;
	case 3:
		if (!draw(40))
			sets_up(i);
		break;
	}
}

static void *does_anything(void *argument)
{
	static void (*const all[])(unsigned int) = {
		maps, changes_mapping, acts, acts, acts, acts, backs, reads, reads, rings, rings, touches, touches, others,
	};

	state = (unsigned long)argument * 0x9e3779b97f4a7c15 + 1;
	for (;;)
		all[draw(sizeof(all) / sizeof(all[0]))](draw(FILES));
	return NULL;
}

/* One process without rights, with all that it may have; it is killed some time later. */
static void a_life(uint64_t seed)
{
	struct rlimit limit = { 64 << 20, 64 << 20 };
	int ends[2];

	state = seed;
	shared.data[0] = open("/tmp/exmap.fuzz", O_RDONLY | (draw(2) ? O_DIRECT : 0));
	if (shared.data[0] < 0)
		shared.data[0] = open("/tmp/exmap.fuzz", O_RDONLY);
	shared.data[1] = open(DISK, O_RDONLY | (draw(2) ? O_DIRECT : 0));
	must(pipe(ends));
	shared.data[2] = ends[0];
	must(setrlimit(RLIMIT_MEMLOCK, &limit));
	must(setgid(65534));
	must(setuid(65534));
	for (unsigned int i = 0; i < FILES; i++) {
		sets_up(i);
		maps(i);
		backs(i);
	}
	for (unsigned long i = 1; i < THREADS; i++) {
		pthread_t id;

		pthread_create(&id, NULL, does_anything, (void *)(seed + i));
	}
	does_anything((void *)seed);
}

static unsigned int seconds(void)
{
	char text[2048] = "", *at;
	FILE *file = fopen("/proc/cmdline", "r");

	if (file && fgets(text, sizeof(text), file) && (at = strstr(text, "fuzz=")))
		return strtoul(at + 5, NULL, 10);
	return DEFAULT_SECONDS;
}

static void anything(void)
{
	uint64_t end = now_ns() + seconds() * 1000000000ULL, seed = now_ns() | 1;
	long allocated = read_field("/proc/exmap", "pages_allocated"), read = read_field("/proc/exmap", "pages_read");
	long lives = 0;

	must(chmod(EXMAP_DEVICE, 0666));
	close(file_with_marks("/tmp/exmap.fuzz", 200, 1, 0));
	chmod("/tmp/exmap.fuzz", 0644);
	if (!access(DISK, F_OK))
		chmod(DISK, 0444);
	dprintf(STDOUT_FILENO, "seed %lu\n", seed);
	for (; now_ns() < end; lives++) {
		pid_t child = must_fork();
		bool over = false;

		if (!child)
			a_life(seed + lives * THREADS);
		/* most end sooner: whoever unmaps anything also unmaps what he needs */
		for (int waited = 0; waited < LIFE_MS && !over; waited += 10) {
			sleep_ms(10);
			over = waitpid(child, NULL, WNOHANG) == child;
		}
		if (over)
			continue;
		must(kill(child, SIGKILL));
		wait_status(child);
	}
	allocated = read_field("/proc/exmap", "pages_allocated") - allocated;
	read = read_field("/proc/exmap", "pages_read") - read;
	dprintf(STDOUT_FILENO, "%ld lives, %ld pages allocated, %ld read\n", lives, allocated, read);
	expect(allocated > lives && read > lives, "hardly anything was done");
	for (int i = 0; i < 500 && read_field("/proc/exmap", "maps_live"); i++)
		sleep_ms(10);
}

const struct scenario scenarios[] = {
	{ "anything", anything, MODE_EXMAP },
	{ 0 },
};
