/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs that measure inside virtual machines share. One line of JSON on standard output is one record. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE 4096ul

/* With QEMU's -icount shift=0 and one CPU that is the number of instructions. */
static inline uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static inline void check(bool is_good, const char *what)
{
	if (is_good)
		return;
	printf("{\"error\": \"%s: %s\"}\n", what, strerror(errno));
	exit(1);
}

/* Addresses without memory, and without huge pages. */
static inline char *map_pages(size_t pages)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	check(memory != MAP_FAILED, "mmap");
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	return memory;
}

static inline void touch_all(char *memory, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		*(volatile uint64_t *)(memory + i * PAGE) = i + 1;
}

/* First touches of anonymous pages, by a process that uses no module. */
static inline void measure_fault(const char *label, size_t pages, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		char *memory = map_pages(pages);
		uint64_t begin_ns = now_ns();

		touch_all(memory, pages);
		uint64_t fault_ns = now_ns() - begin_ns;

		munmap(memory, pages * PAGE);
		printf("{\"kind\": \"fault\", \"label\": \"%s\", \"round\": %d, \"ns_per_fault\": %.2f}\n", label, round,
		       (double)fault_ns / pages);
	}
	fflush(stdout);
}

#endif
