// SPDX-License-Identifier: GPL-2.0
/* What is out of bounds is refused, and nothing was done. */
#define _GNU_SOURCE
#include <sys/ioctl.h>

#include "exmap_map.h"

#define PAGES 1000UL

static struct map begin(void)
{
	struct map map = map_new(PAGES, 64, 2);

	set_entries(&map, 0, 0, 1, 4);
	set_entries(&map, 1, 0, 1, 4);
	return map;
}

static void end(struct map *map)
{
	struct exmap_statistics s = map_statistics(map);

	expect(!s.pages_allocated && !s.frames, "%llu pages were allocated, %llu frames taken", s.pages_allocated, s.frames);
	must_alloc(map, 0, 4);
	must_free(map, 0, 4);
	expect_conserved(map, 0);
	map_close(map);
}

static void expect_invalid(const struct map *map, struct exmap_action action, const char *what)
{
	long result = act(map, &action);

	expect(result == -EINVAL, "%s gave %ld", what, result);
}

static void interface(void)
{
	struct map map = begin();

	expect_invalid(&map, (struct exmap_action) { .interface = 2, .entry_count = 4 }, "interface 2 of 2");
	expect_invalid(&map, (struct exmap_action) { .interface = 256, .entry_count = 4 }, "interface 256");
	expect_invalid(&map, (struct exmap_action) { .interface = 65535, .entry_count = 4 }, "interface 65535");
	end(&map);
}

static void opcode(void)
{
	struct map map = begin();

	expect_invalid(&map, (struct exmap_action) { .opcode = EXMAP_OPCODES, .entry_count = 4 }, "opcode 3");
	expect_invalid(&map, (struct exmap_action) { .opcode = 65535, .entry_count = 4 }, "opcode 65535");
	end(&map);
}

static void flags(void)
{
	struct map map = begin();

	for (unsigned int bit = 0; bit < 16; bit++) {
		struct exmap_action action = { .entry_count = 4, .flags = 1 << bit };

		if (1 << bit != EXMAP_ALLOC_ZERO)
			expect_invalid(&map, action, "a flag of ALLOC");
		action.opcode = EXMAP_FREE;
		expect_invalid(&map, action, "a flag of FREE");
		action.opcode = EXMAP_READ;
		expect_invalid(&map, action, "a flag of READ");
	}
	expect_invalid(&map, (struct exmap_action) { .entry_count = 4, .offset = 512 }, "an offset for ALLOC");
	expect_invalid(&map, (struct exmap_action) { .opcode = EXMAP_READ, .entry_count = 4, .offset = 100 }, "offset 100");
	expect_invalid(&map, (struct exmap_action) { .opcode = EXMAP_READ, .entry_count = 4, .offset = -512 }, "offset -512");
	expect_invalid(&map, (struct exmap_action) { .opcode = EXMAP_READ, .entry_count = 4, .offset = INT64_MAX - 511 },
		       "an offset behind the end of files");
	end(&map);
}

static void count(void)
{
	struct map map = begin();

	for (unsigned int i = 0; i < 2; i++)
		set_entries(&map, i, 0, 1, EXMAP_ENTRIES_MAX);
	expect_invalid(&map, (struct exmap_action) { .entry_count = 513 }, "513 entries");
	expect_invalid(&map, (struct exmap_action) { .entry_count = 65535 }, "65535 entries");
	end(&map);
}

static void expect_bad_entry(struct map *map, uint32_t page, uint16_t length)
{
	*entry_of(map, 1, 2) = (struct exmap_entry) { .page = page, .length = length, .result = 5 };
	for (int opcode = 0; opcode < EXMAP_OPCODES; opcode++) {
		entry_of(map, 1, 2)->result = 5;
		if (opcode == EXMAP_READ)
			must_back(map, must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)));
		expect_invalid(map, (struct exmap_action) { .interface = 1, .opcode = opcode, .entry_count = 4 }, "an entry");
		expect(entry_of(map, 1, 2)->result == -EINVAL, "its result is %d", entry_of(map, 1, 2)->result);
	}
}

static void page(void)
{
	struct map map = begin();

	expect_bad_entry(&map, PAGES, 1);
	expect_bad_entry(&map, PAGES - 1, 2);
	expect_bad_entry(&map, 0, PAGES + 1);
	expect_bad_entry(&map, UINT32_MAX, 1);
	expect_bad_entry(&map, UINT32_MAX, EXMAP_LENGTH_MAX);
	end(&map);
}

static void length(void)
{
	struct map map = begin();
	struct map large = map_new(100000, 8, 2);

	expect_bad_entry(&map, 3, 0);
	end(&map);
	set_entries(&large, 1, 0, 1, 4);
	expect_bad_entry(&large, 0, EXMAP_LENGTH_MAX + 1);
	expect_bad_entry(&large, 0, 65535);
	map_close(&large);
}

/* The last pages of the largest map. */
static void largest(void)
{
	struct map map = map_new(EXMAP_MAP_PAGES_MAX, 16, 1);

	must_alloc(&map, UINT32_MAX, 1);
	page_mark(&map, UINT32_MAX, 1);
	expect(page_has(&map, UINT32_MAX, 1) && page_is_zero(&map, UINT32_MAX - 1), "the last page");
	expect(run_one(&map, 0, EXMAP_ALLOC, UINT32_MAX, 2) == -EINVAL, "one more");
	must_free(&map, UINT32_MAX, 1);
	expect_conserved(&map, 0);
	map_close(&map);
}

static int setup_of(struct exmap_setup setup)
{
	int fd = device_open(), result = ioctl(fd, EXMAP_SETUP, &setup) ? -errno : 0;

	close(fd);
	return result;
}

static void setup(void)
{
	const struct exmap_setup good = {
		.size = sizeof(good), .version = EXMAP_VERSION, .map_pages = 10, .pool_pages = 10, .interface_count = 1,
	};
	struct exmap_setup bad[13];
	int fd;

	expect(!setup_of(good), "a good one");
	for (int i = 0; i < 13; i++)
		bad[i] = good;
	bad[0].size = 40;
	bad[1].version = 2;
	bad[2].map_pages = 0;
	bad[3].map_pages = EXMAP_MAP_PAGES_MAX + 1;
	bad[4].pool_pages = 0;
	bad[5].pool_pages = EXMAP_POOL_PAGES_MAX + 1;
	bad[6].interface_count = 0;
	bad[7].interface_count = EXMAP_INTERFACES_MAX + 1;
	bad[8].flags = 1;
	bad[9].reserved[0] = 1;
	bad[10].reserved[1] = 1ULL << 63;
	bad[11].map_pages = UINT64_MAX;
	bad[12].pool_pages = UINT64_MAX;
	for (int i = 0; i < 13; i++)
		expect(setup_of(bad[i]) == -EINVAL, "setup %d gave %d", i, setup_of(bad[i]));
	fd = device_open();
	expect(ioctl(fd, EXMAP_SETUP, NULL) && errno == EFAULT, "no setup at all");
	expect(!map_setup(fd, 10, 10, 1) && map_setup(fd, 10, 10, 1) == -EBADFD, "set up twice");
	close(fd);
}

/* What a later version may have: structs that are larger, by so many bytes behind the first that have this value. */
static int larger(int fd, unsigned long command, size_t size, const void *known, size_t more, unsigned char value)
{
	static _Alignas(8) unsigned char memory[16384];

	memset(memory, 0xff, sizeof(memory));
	memcpy(memory, known, size);
	memset(memory + size, 0, more);
	if (more)
		memory[size + more - 1] = value;
	/* EXMAP_ACTION has no field for it */
	if (_IOC_NR(command) != _IOC_NR(EXMAP_ACTION))
		*(uint32_t *)memory = size + more;
	if (ioctl(fd, (command & ~IOCSIZE_MASK) | (size + more) << IOCSIZE_SHIFT, memory))
		return -errno;
	/* what a struct that is written has behind what the module knows is 0, and nothing is written behind it */
	if (_IOC_DIR(command) & _IOC_READ)
		for (size_t i = size; i < sizeof(memory); i++)
			expect(memory[i] == (i < size + more ? 0 : 0xff), "byte %zu of %zu is %x", i, size + more, memory[i]);
	return 0;
}

/* A program that is newer than the module: what the module does not know must be 0. */
static void larger_structs(void)
{
	const struct exmap_setup setup = {
		.version = EXMAP_VERSION, .map_pages = 100, .pool_pages = 10, .interface_count = 1,
	};
	const struct exmap_backing none = { .fd = -1 };
	const struct exmap_action nothing = { .opcode = EXMAP_ALLOC };
	const struct exmap_statistics asked = { .version = EXMAP_VERSION };
	int fd = device_open();

	expect(larger(fd, EXMAP_SETUP, sizeof(setup), &setup, 8, 1) == -E2BIG, "setup with something unknown");
	expect(larger(fd, EXMAP_SETUP, sizeof(setup), &setup, 4096, 0) == -E2BIG, "setup of more than a page");
	expect(!larger(fd, EXMAP_SETUP, sizeof(setup), &setup, 8, 0), "a larger setup");
	expect(larger(fd, EXMAP_BACKING, sizeof(none), &none, 100, 1) == -E2BIG, "backing with something unknown");
	expect(!larger(fd, EXMAP_BACKING, sizeof(none), &none, 100, 0), "a larger backing");
	expect(larger(fd, EXMAP_ACTION, sizeof(nothing), &nothing, 16, 1) == -E2BIG, "an action with something unknown");
	expect(!larger(fd, EXMAP_ACTION, sizeof(nothing), &nothing, 16, 0), "a larger action");
	expect(larger(fd, EXMAP_ACTION, sizeof(nothing) - 8, &nothing, 0, 0) == -EINVAL, "a smaller action");
	expect(!larger(fd, EXMAP_STATISTICS, sizeof(asked), &asked, 800, 0), "larger statistics");
	expect(larger(fd, EXMAP_STATISTICS, sizeof(asked), &asked, 4096, 0) == -E2BIG, "statistics of more than a page");
	expect(larger(fd, EXMAP_STATISTICS, sizeof(asked) - 8, &asked, 0, 0) == -EINVAL, "smaller statistics");
	expect(ioctl(fd, EXMAP_SETUP | IOC_INOUT, &setup) && errno == ENOTTY, "another direction");
	close(fd);
}

#ifdef __x86_64__
static long call_32(long number, long first, long second, long third)
{
	long result;

	asm volatile("int $0x80" : "=a" (result) : "a" (number), "b" (first), "c" (second), "d" (third) :
		     "memory", "r8", "r9", "r10", "r11");
	return result;
}

#define OPEN_32 5
#define IOCTL_32 54

/* A program of 32 bits is told at once: it could not map an interface. */
static void bits_32(void)
{
	char *low = mmap(NULL, EXMAP_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct exmap_setup *setup = (void *)(low + 64);
	long fd;

	expect(low != MAP_FAILED, "mmap");
	strcpy(low, EXMAP_DEVICE);
	*setup = (struct exmap_setup) {
		.size = sizeof(*setup), .version = EXMAP_VERSION, .map_pages = 10, .pool_pages = 10, .interface_count = 1,
	};
	fd = call_32(OPEN_32, (long)low, O_RDWR, 0);
	if (fd == -ENOSYS)
		skip("no system calls of 32 bits");
	expect(fd >= 0, "open: %ld", fd);
	expect(call_32(IOCTL_32, fd, EXMAP_SETUP, (long)setup) == -ENOTTY, "setup: %ld",
	       call_32(IOCTL_32, fd, EXMAP_SETUP, (long)setup));
	close(fd);
}
#else
static void bits_32(void)
{
	skip("x86 only");
}
#endif

static void before_setup(void)
{
	struct map map = { .fd = device_open() };
	struct exmap_statistics statistics = { .size = sizeof(statistics), .version = EXMAP_VERSION };
	struct exmap_action action = { .entry_count = 1 };
	char byte;

	expect(act(&map, &action) == -ENXIO, "an action");
	expect(back(&map, -1) == -ENXIO, "backing");
	expect(ioctl(map.fd, EXMAP_STATISTICS, &statistics) && errno == ENXIO, "statistics");
	expect(pread(map.fd, &byte, 1, 0) < 0 && errno == ENXIO, "read");
	expect(ioctl(map.fd, 0x1234, 0) && errno == ENOTTY, "another ioctl");
	close(map.fd);
}

static void backing(void)
{
	struct map map = begin();
	struct exmap_backing bad[] = {
		{ .size = 8, .fd = -1 }, { .size = 16, .fd = -2 }, { .size = 16, .fd = -1, .flags = 1 },
		{ .size = 16, .fd = -1, .reserved = 1 },
	};
	struct exmap_statistics statistics = { .size = 8, .version = EXMAP_VERSION };
	int ends[2];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(ioctl(map.fd, EXMAP_BACKING, &bad[i]) && errno == EINVAL, "backing %zu", i);
	must(pipe(ends));
	expect(back(&map, ends[0]) == -EINVAL, "a pipe");
	expect(back(&map, map.fd) == -EINVAL, "the map itself");
	expect(back(&map, must(open("/tmp", O_RDONLY))) == -EINVAL, "a directory");
	expect(back(&map, must(open("/dev/zero", O_RDONLY))) == -EINVAL, "a character device");
	expect(back(&map, must(open("/tmp/write_only", O_WRONLY | O_CREAT, 0600))) == -EBADF, "a file that is not readable");
	expect(back(&map, 9999) == -EBADF, "no file");
	expect(!back(&map, -1), "none any more");
	expect(ioctl(map.fd, EXMAP_STATISTICS, &statistics) && errno == EINVAL, "statistics of another size");
	expect(run_one(&map, 0, EXMAP_READ, 0, 1) == -ENXIO, "reading without a backing file");
	end(&map);
}

/* Buffers of read calls. */
static void buffer(void)
{
	struct map map = begin();
	static char elsewhere[EXMAP_PAGE_SIZE];
	struct iovec parts[2];

	must_back(&map, must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)));
	expect(pread(map.fd, elsewhere, 512, 0) < 0 && errno == EFAULT, "a buffer elsewhere");
	expect(pread(map.fd, map.base - 4096, 4096, 0) < 0 && errno == EFAULT, "before the map");
	expect(pread(map.fd, page_of(&map, PAGES), 4096, 0) < 0 && errno == EFAULT, "behind the map");
	expect(pread(map.fd, page_of(&map, PAGES - 1), 8192, 0) < 0 && errno == EFAULT, "over its end");
	parts[0] = (struct iovec) { elsewhere, 512 };
	parts[1] = (struct iovec) { map.base, 512 };
	expect(preadv(map.fd, parts, 2, 0) < 0 && errno == EFAULT, "two buffers, the first elsewhere");
	expect(pread(map.fd, map.base, 0, 0) == 0, "nothing");
	end(&map);
}

const struct scenario scenarios[] = {
	{ "setup", setup, MODE_EXMAP },
	{ "larger_structs", larger_structs, MODE_EXMAP },
	{ "bits_32", bits_32, MODE_EXMAP },
	{ "before_setup", before_setup, MODE_EXMAP },
	{ "interface", interface, MODE_EXMAP },
	{ "opcode", opcode, MODE_EXMAP },
	{ "flags", flags, MODE_EXMAP },
	{ "count", count, MODE_EXMAP },
	{ "page", page, MODE_EXMAP },
	{ "length", length, MODE_EXMAP },
	{ "largest", largest, MODE_EXMAP },
	{ "backing", backing, MODE_EXMAP },
	{ "buffer", buffer, MODE_EXMAP },
	{ 0 },
};
