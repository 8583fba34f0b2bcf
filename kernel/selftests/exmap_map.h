/* SPDX-License-Identifier: GPL-2.0 */
/* What the families of exmap share: maps, calls by ioctl and by io_uring, memory that may not be there. */
#ifndef EXMAP_MAP_H
#define EXMAP_MAP_H

#include <signal.h>
#include <sys/uio.h>

#include "selftest.h"
#include "../include/uapi/exmap.h"

#define DISK "/dev/ram0"	/* 64 MiB */

struct map {
	int fd;
	unsigned char *base;
	size_t pages, pool;
	unsigned int interfaces;
	struct exmap_entry *entries;	/* of all interfaces, one after the other */
};

int device_open(void);
int map_setup(int fd, uint64_t pages, uint64_t pool, unsigned int interfaces);	/* 0 or -errno */
struct map map_new(size_t pages, size_t pool, unsigned int interfaces);
void map_attach(struct map *map);			/* mmap */
void map_close(struct map *map);
struct exmap_statistics map_statistics(const struct map *map);
/* Every frame is free, or holds one of so many pages. */
void expect_conserved(const struct map *map, size_t allocated);

static inline struct exmap_entry *entry_of(const struct map *map, unsigned int interface, unsigned int index)
{
	return &map->entries[interface * EXMAP_ENTRIES_MAX + index];
}

static inline unsigned char *page_of(const struct map *map, size_t page)
{
	return map->base + page * EXMAP_PAGE_SIZE;
}

/* What an action returns, or -errno. */
long act(const struct map *map, const struct exmap_action *action);
long run_entries(const struct map *map, unsigned int interface, enum exmap_opcode opcode, unsigned int flags,
		 unsigned int count);
/* A range of pages, which may need several entries and calls; all of it must be done. */
void must_run(const struct map *map, unsigned int interface, enum exmap_opcode opcode, size_t page, size_t count);
/* One entry: what the call returns. */
long run_one(const struct map *map, unsigned int interface, enum exmap_opcode opcode, size_t page, size_t count);
void must_alloc(const struct map *map, size_t page, size_t count);
void must_free(const struct map *map, size_t page, size_t count);
void set_entries(const struct map *map, unsigned int interface, size_t first, size_t step, unsigned int count);

/* Fills a page with what names it, and looks whether it does. */
void page_mark(const struct map *map, size_t page, uint64_t mark);
bool page_has(const struct map *map, size_t page, uint64_t mark);
bool page_is_zero(const struct map *map, size_t page);

/* The signal that an access ends with; 0: none. */
int signal_of_read(const volatile unsigned char *address);
int signal_of_write(volatile unsigned char *address);

/* Files to read from: every page has a mark that is its number plus `mark`. */
int file_with_marks(const char *path, size_t pages, uint64_t mark, int flags);	/* opened for reading; -errno */
bool block_has(const void *block, uint64_t mark);
void block_mark(void *block, uint64_t mark);
void must_back(const struct map *map, int fd);
int back(const struct map *map, int fd);

/* io_uring, as little as is needed. */
struct uring {
	int fd;
	unsigned int *sq_head, *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

struct uring uring_new(unsigned int entries);
void uring_close(struct uring *ring);
struct io_uring_sqe *uring_sqe(struct uring *ring);
void uring_add_action(struct uring *ring, const struct map *map, const struct exmap_action *action, uint64_t data);
void uring_submit(struct uring *ring, unsigned int count);
/* Waits for one completion. */
int uring_wait(struct uring *ring, uint64_t *data);

pid_t child_as_nobody(void);	/* like fork(), in the child without rights */

#endif
