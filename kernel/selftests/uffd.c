// SPDX-License-Identifier: GPL-2.0
/* userfaultfd on the parent's memory: the kernel fills and protects pages on behalf of another thread. */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "selftest.h"

#ifndef UFFDIO_POISON	/* Linux 6.6 */
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFDIO_MOVE	/* Linux 6.8 */
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

static struct region region;
static int uffd = -1;
static volatile bool stop;

static void uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		skip("userfaultfd: %s", strerror(errno));
	if (ioctl(uffd, UFFDIO_API, &api)) {
		if (errno == EINVAL && features)	/* some versions and architectures have not all */
			skip("userfaultfd without the features %#llx", (unsigned long long)features);
		fail("UFFDIO_API: %s", strerror(errno));
	}
}

static void uffd_register(uint64_t kind)
{
	struct uffdio_register wish = {
		.range = { (uintptr_t)region.base, region.pages * PAGE_BYTES }, .mode = kind,
	};

	must(ioctl(uffd, UFFDIO_REGISTER, &wish));
}

static void begin(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region.sparse = true;
	region_fill(&region, 1);
	opt_in();
}

/* Fills one hole in a table of 2 MiB, for every table; the child must find holes. */
static void fill_holes(bool copy)
{
	static uint64_t source[PAGE_BYTES / 8] __attribute__((aligned(4096)));

	memset(source, 0x5a, sizeof(source));
	for (size_t page = 5; page < region.pages; page += 64) {
		uintptr_t target = (uintptr_t)region.base + page * PAGE_BYTES;

		if (copy) {
			struct uffdio_copy request = { .dst = target, .src = (uintptr_t)source, .len = PAGE_BYTES };

			must(ioctl(uffd, UFFDIO_COPY, &request));
		} else {
			struct uffdio_zeropage request = { .range = { target, PAGE_BYTES } };

			must(ioctl(uffd, UFFDIO_ZEROPAGE, &request));
			*(uint64_t *)target = 7;
		}
	}
}

static void copy_into_holes(void)
{
	begin();
	struct snapshot child = snapshot_fork(&region, 1);

	uffd_open(0);
	uffd_register(UFFDIO_REGISTER_MODE_MISSING);
	fill_holes(true);
	expect_synchronised(&child.before, ASYNC_FORK_BY_UFFD);
	expect(*(uint64_t *)(region.base + 5 * PAGE_BYTES) == 0x5a5a5a5a5a5a5a5aULL, "UFFDIO_COPY left no data");
	snapshot_end(&child);
	close(uffd);
}

static void zero_into_holes(void)
{
	begin();
	struct snapshot child = snapshot_fork(&region, 1);

	uffd_open(0);
	uffd_register(UFFDIO_REGISTER_MODE_MISSING);
	fill_holes(false);
	expect_synchronised(&child.before, ASYNC_FORK_BY_UFFD);
	snapshot_end(&child);
	close(uffd);
}

static void poison(size_t page)
{
	struct uffdio_poison request = {
		.range = { (uintptr_t)region.base + page * PAGE_BYTES, PAGE_BYTES },
	};

	must(ioctl(uffd, UFFDIO_POISON, &request));
}

/* The child must find holes, not what kills it. */
static void poison_holes(void)
{
	begin();
	struct snapshot child = snapshot_fork(&region, 1);

	uffd_open(UFFD_FEATURE_POISON);
	uffd_register(UFFDIO_REGISTER_MODE_MISSING);
	for (size_t page = 5; page < region.pages; page += 64)
		poison(page);
	expect_synchronised(&child.before, ASYNC_FORK_BY_UFFD);
	snapshot_end(&child);
	close(uffd);
}

/* Pages that can be read although they were poisoned. */
static size_t poison_lost(const void *file)
{
	size_t lost = 0;

	for (size_t page = 5; page < region.pages; page += 64)
		lost += write(*(const int *)file, region.base + page * PAGE_BYTES, 1) != -1 || errno != EFAULT;
	return lost;
}

static void poison_before_fork(void)
{
	int file = must(memfd_create("poison", MFD_CLOEXEC));
	struct uffdio_range all;

	begin();
	uffd_open(UFFD_FEATURE_POISON);
	uffd_register(UFFDIO_REGISTER_MODE_MISSING);
	for (size_t page = 5; page < region.pages; page += 64)
		poison(page);
	all.start = (uintptr_t)region.base;
	all.len = region.pages * PAGE_BYTES;
	must(ioctl(uffd, UFFDIO_UNREGISTER, &all));
	close(uffd);
	expect(poison_lost(&file) == 0, "poisoned pages of the parent can be read");
	struct snapshot child = snapshot_fork_check(poison_lost, &file);

	snapshot_end(&child);
}

/*
 * UFFDIO_MOVE takes pages out of memory that need not be registered. After a fork it must not: they are not the parent's
 * alone.
 */
static void move_out(void)
{
	struct region target = region_map(DEFAULT_TABLES * TABLE_BYTES);
	struct uffdio_register wish = {
		.range = { (uintptr_t)target.base, target.pages * PAGE_BYTES }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	begin();
	region.sparse = false;
	region_fill(&region, 1);
	uffd_open(UFFD_FEATURE_MOVE);
	must(ioctl(uffd, UFFDIO_REGISTER, &wish));
	struct snapshot child = snapshot_fork(&region, 1);

	for (size_t page = 5; page < region.pages; page += 64) {
		struct uffdio_move request = {
			.dst = (uintptr_t)target.base + page * PAGE_BYTES,
			.src = (uintptr_t)region.base + page * PAGE_BYTES,
			.len = PAGE_BYTES,
		};

		expect(ioctl(uffd, UFFDIO_MOVE, &request) == -1 && errno == EBUSY, "page %zu was moved: %s", page,
		       strerror(errno));
	}
	expect_synchronised(&child.before, ASYNC_FORK_BY_UFFD);
	region_write_randomly(&region, 200, 2);
	snapshot_end(&child);
	close(uffd);
}

/* Serves missing pages with 0x77 and lifts write protection. */
static void *serve(void *unused)
{
	static uint64_t source[PAGE_BYTES / 8] __attribute__((aligned(4096)));

	(void)unused;
	memset(source, 0x77, sizeof(source));
	while (!stop) {
		struct pollfd wait = { .fd = uffd, .events = POLLIN };
		struct uffd_msg message;

		if (poll(&wait, 1, 20) <= 0 || read(uffd, &message, sizeof(message)) != sizeof(message))
			continue;
		uint64_t target = message.arg.pagefault.address & ~(PAGE_BYTES - 1);

		if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			struct uffdio_writeprotect lift = { .range = { target, PAGE_BYTES } };

			ioctl(uffd, UFFDIO_WRITEPROTECT, &lift);
		} else {
			struct uffdio_copy fill = { .dst = target, .src = (uintptr_t)source, .len = PAGE_BYTES };

			ioctl(uffd, UFFDIO_COPY, &fill);
		}
	}
	return NULL;
}

static void missing_before_fork(void)
{
	pthread_t server;

	begin();
	uffd_open(0);
	uffd_register(UFFDIO_REGISTER_MODE_MISSING);
	pthread_create(&server, NULL, serve, NULL);
	struct snapshot child = snapshot_fork(&region, 1);

	for (size_t page = 5; page < region.pages; page += 160)
		expect(*(volatile uint64_t *)(region.base + page * PAGE_BYTES) == 0x7777777777777777ULL,
		       "page %zu not served",
		       page);
	region_write_randomly(&region, 500, 2);
	snapshot_end(&child);
	stop = true;
	pthread_join(server, NULL);
	close(uffd);
}

static void protect_all(void)
{
	struct uffdio_writeprotect all = {
		.range = { (uintptr_t)region.base, region.pages * PAGE_BYTES }, .mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	must(ioctl(uffd, UFFDIO_WRITEPROTECT, &all));
}

static void write_protect(bool before_fork)
{
	struct snapshot child;
	pthread_t server;

	begin();
	uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	if (!before_fork)
		child = snapshot_fork(&region, 1);
	uffd_register(UFFDIO_REGISTER_MODE_WP);
	protect_all();
	pthread_create(&server, NULL, serve, NULL);
	if (before_fork)
		child = snapshot_fork(&region, 1);
	else
		expect_synchronised(&child.before, ASYNC_FORK_BY_MPROTECT);
	region_write_randomly(&region, 300, 2);
	snapshot_end(&child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
	stop = true;
	pthread_join(server, NULL);
	close(uffd);
}

static void protect_during_copy(void)
{
	write_protect(false);
}

static void protect_before_fork(void)
{
	write_protect(true);
}

const struct scenario scenarios[] = {
	{ "copy", copy_into_holes, MODES_ALL },
	{ "zeropage", zero_into_holes, MODES_ALL },
	{ "poison", poison_holes, MODES_ALL },
	{ "poison_before_fork", poison_before_fork, MODES_ALL },
	{ "move", move_out, MODES_ALL },
	{ "missing_before_fork", missing_before_fork, MODES_ALL },
	{ "wp_during_copy", protect_during_copy, MODES_ALL },
	{ "wp_before_fork", protect_before_fork, MODES_ALL },
	{ 0 },
};
