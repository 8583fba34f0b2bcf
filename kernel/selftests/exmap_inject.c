// SPDX-License-Identifier: GPL-2.0
/* Every allocation of the module fails once: fail_at=1, 2, ... until fewer are needed. Nothing stays behind. */
#define _GNU_SOURCE
#include "exmap_map.h"

#define MOST 400

/* What is tried, with the nth allocation failing: 0, or the error. */
typedef int (*attempt)(void);

static struct map map;
static int source;

static void fail_each(attempt try, int at_least)
{
	int nth, failed = 0;
	char text[16];

	for (nth = 1; nth < MOST; nth++) {
		long allocations;
		int error;

		snprintf(text, sizeof(text), "%d", nth);
		expect(parameter_set("fail_at", text), "fail_at: %s", strerror(errno));
		error = try();
		allocations = parameter_get("allocations");
		parameter_set("fail_at", "0");
		expect(error == 0 || error == ENOMEM, "allocation %d: %s", nth, strerror(error));
		failed += error == ENOMEM;
		if (allocations < nth) {
			expect(!error, "without a failure: %s", strerror(error));
			break;
		}
	}
	dprintf(STDOUT_FILENO, "%d allocations, %d of whose failures were seen\n", nth - 1, failed);
	expect(nth < MOST, "more than %d allocations", MOST);
	expect(nth - 1 >= at_least && failed >= at_least, "only %d allocations, %d failures", nth - 1, failed);
}

/* ---------- a map ---------- */

static int makes_map(void)
{
	int fd = open(EXMAP_DEVICE, O_RDWR | O_CLOEXEC), result;

	if (fd < 0)
		return errno;
	result = map_setup(fd, 100, 10, 3);
	if (result == -ENOMEM) {
		expect(read_field("/proc/self/status", "VmPin") == 0, "memory is locked after a failure");
		/* it can be tried again */
		expect(!map_setup(fd, 100, 10, 3), "a second setup");
		result = -ENOMEM;
	}
	close(fd);
	expect(!read_field("/proc/exmap", "maps_live"), "a map lives on");
	return -result;
}

static void setup(void)
{
	fail_each(makes_map, 9);
}

/* ---------- pages ---------- */

static void attach(size_t pool)
{
	map = map_new(100000, pool, 2);
	source = file_with_marks("/tmp/exmap.data", 100, 1, 0);
	expect(source >= 0, "the file");
	must_back(&map, source);
}

static int allocates(void)
{
	long result;

	for (unsigned int i = 0; i < 20; i++)
		*entry_of(&map, 0, i) = (struct exmap_entry) { .page = i * 4000, .length = 2 };
	result = run_entries(&map, 0, EXMAP_ALLOC, 0, 20);
	expect(result > 0 || result == -ENOMEM, "it gave %ld", result);
	for (unsigned int i = 0; i < 20; i++)
		for (int page = 0; page < entry_of(&map, 0, i)->result; page++)
			page_mark(&map, i * 4000 + page, i);
	expect_conserved(&map, result > 0 ? result : 0);
	/* tables and mapping go, so that the next try needs them again */
	must(munmap(map.base, map.pages * EXMAP_PAGE_SIZE));
	map_attach(&map);
	expect_conserved(&map, 0);
	return result == 40 ? 0 : ENOMEM;
}

static void alloc(void)
{
	attach(64);
	fail_each(allocates, 15);
	map_close(&map);
}

/* Frames that are there are used when the kernel gives no more. */
static void more_frames(void)
{
	for (int nth = 1; nth < 80; nth++) {
		char text[16];
		struct map own = map_new(1000, 64, 2);
		long result;

		must_alloc(&own, 0, 16);
		must_free(&own, 0, 16);
		expect(page_is_zero(&own, 100) && page_is_zero(&own, 131), "not zero");	/* tables are there */
		snprintf(text, sizeof(text), "%d", nth);
		expect(parameter_set("fail_at", text), "fail_at: %s", strerror(errno));
		result = run_one(&own, 1, EXMAP_ALLOC, 100, 32);
		parameter_set("fail_at", "0");
		expect(result >= 16, "%ld pages, and there are 16 frames", result);
		expect_conserved(&own, result);
		map_close(&own);
	}
}

/* ---------- reads ---------- */

static int reads(void)
{
	long result;

	set_entries(&map, 0, 3, 7, 8);
	result = run_entries(&map, 0, EXMAP_READ, 0, 8);
	for (unsigned int i = 0; result > 0 && i < 8; i++)
		expect(entry_of(&map, 0, i)->result != 1 || page_has(&map, 3 + i * 7, 4 + i * 7), "page %u", 3 + i * 7);
	must_free(&map, 0, 100000);
	expect_conserved(&map, 0);
	return result == 8 ? 0 : ENOMEM;
}

static int reads_by_call(void)
{
	ssize_t result = pread(map.fd, map.base + 5 * 4096, 4 * 4096, 4096);
	int error = result < 0 ? errno : 0;

	expect(result < 0 || page_has(&map, 5, 2), "it has something else");
	must_free(&map, 0, 100000);
	expect_conserved(&map, 0);
	return error;
}

static int rings(void)
{
	static struct uring ring;
	struct exmap_action action = { .opcode = EXMAP_READ, .entry_count = 4 };
	int result;

	if (!ring.fd)
		ring = uring_new(4);
	set_entries(&map, 0, 3, 7, 4);
	uring_add_action(&ring, &map, &action, 1);
	uring_submit(&ring, 1);
	result = uring_wait(&ring, NULL);
	must_free(&map, 0, 100000);
	expect_conserved(&map, 0);
	return result == 4 ? 0 : ENOMEM;
}

static void read_action(void)
{
	attach(64);
	fail_each(reads, 2);
	map_close(&map);
}

static void read_call(void)
{
	attach(64);
	fail_each(reads_by_call, 2);
	map_close(&map);
}

static void read_ring(void)
{
	attach(64);
	fail_each(rings, 2);
	map_close(&map);
}

/* A fault that finds no memory for a table is tried again. */
static int looks(void)
{
	bool zero = page_is_zero(&map, 70000);

	must(munmap(map.base, map.pages * EXMAP_PAGE_SIZE));
	map_attach(&map);
	return zero ? 0 : EIO;
}

static void fault(void)
{
	attach(64);
	fail_each(looks, 0);
	map_close(&map);
}

const struct scenario scenarios[] = {
	{ "setup", setup, MODE_EXMAP },
	{ "alloc", alloc, MODE_EXMAP },
	{ "more_frames", more_frames, MODE_EXMAP },
	{ "read_action", read_action, MODE_EXMAP },
	{ "read_call", read_call, MODE_EXMAP },
	{ "read_ring", read_ring, MODE_EXMAP },
	{ "fault", fault, MODE_EXMAP },
	{ 0 },
};
