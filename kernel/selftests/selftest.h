/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What every family of scenarios shares. A family is one static program: `FAMILY --list` names its scenarios, and
 * `FAMILY SCENARIO MODE` runs one in a process of its own. Exit status: enum verdict. It runs as root in the test VM.
 */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/uapi/async_fork.h"

#define PAGE_BYTES 4096UL
#define TABLE_BYTES (2UL << 20)			/* what one page table of 512 entries maps */
#define TABLE_PAGES (TABLE_BYTES / PAGE_BYTES)
#ifndef DEFAULT_TABLES
#define DEFAULT_TABLES 24			/* size of most regions, in tables; run --tables */
#endif

enum verdict {
	VERDICT_PASS = 0,
	VERDICT_FAIL = 1,
	VERDICT_SKIP = 4,	/* kselftest's code */
	VERDICT_MISSED = 5,	/* the copy was over before the operation under test: run again, slower */
};

enum mode {
	MODE_DEFAULT = 1,
	MODE_ASYNC1 = 2,
	MODE_ASYNC4 = 4,
	MODE_ODF = 8,
	MODE_EXMAP = 16,	/* the other module: what it does needs no fork */
	MODES_ASYNC = MODE_ASYNC1 | MODE_ASYNC4,
	MODES_MODULE = MODES_ASYNC | MODE_ODF,
	MODES_ALL = MODE_DEFAULT | MODES_MODULE,
};

struct scenario {
	const char *name;
	void (*run)(void);
	unsigned int modes;	/* where it means something */
};

extern const struct scenario scenarios[];	/* of this family, ends with an empty one */
extern enum mode mode;				/* of this run */
extern const char *module_name;			/* which the run is about */

/* ---------- verdicts: none of them returns ---------- */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void missed(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* A call that sets errno must not return a negative number. */
#define must(call) must_(#call, (long)(call))
long must_(const char *call, long result);
/* A condition that makes the scenario fail. */
#define expect(condition, ...) do { if (!(condition)) fail(__VA_ARGS__); } while (0)

/* ---------- the module ---------- */
int control(pid_t pid, enum async_fork_strategy strategy, unsigned int copy_threads);	/* 0 or -errno */
void opt_in(void);			/* this process, as the mode says */
void opt_in_pid(pid_t pid);
void opt_out(void);
struct async_fork_statistics statistics(void);
bool module_loaded(void);
bool parameter_set(const char *name, const char *value);	/* false: no such parameter */
long parameter_get(const char *name);				/* -1: no such parameter */
uint64_t synchronised(const struct async_fork_statistics *before, enum async_fork_reason reason);
/* The operation since `before` met tables that were not copied yet; otherwise the run proves nothing. */
void expect_synchronised(const struct async_fork_statistics *before, enum async_fork_reason reason);

/* ---------- memory whose contents are known ---------- */
struct region {
	char *base;
	size_t pages;
	bool sparse;		/* page_is_hole() pages were never touched */
};

struct region region_map(size_t bytes);			/* anonymous, private, 2 MiB aligned, no huge pages */
void region_adopt(struct region *region, char *base, size_t bytes);
bool page_is_hole(size_t page);
void page_write(const struct region *region, size_t page, uint64_t generation);
bool page_shows(const struct region *region, size_t page, uint64_t generation);
void region_fill(const struct region *region, uint64_t generation);
size_t region_wrong(const struct region *region, uint64_t generation);	/* pages that show something else */
/* The same for pages [first, first + count). */
size_t range_wrong(const struct region *region, size_t first, size_t count, uint64_t generation);
void region_write_randomly(const struct region *region, size_t writes, uint64_t generation);
/* Every page shows one of the two generations. */
size_t region_mixed_wrong(const struct region *region, uint64_t one, uint64_t other);
uint64_t random_number(void);				/* the same sequence in each run */
uint64_t now_ns(void);
void sleep_ms(unsigned int ms);
void run_on(pid_t pid, unsigned long cpus);			/* a bit each; 0: this process */
/* A thread that holds this process's mmap_lock most of the time, for as long as it takes to populate so many bytes. */
void hold_mmap_lock(size_t bytes);

/* ---------- a child that checks what it was born with ---------- */
struct snapshot {
	pid_t pid;
	int go;				/* the parent's end */
	struct async_fork_statistics before;
};

/*
 * The child checks that the region shows `generation`, again when snapshot_end() tells it to, then writes all over its
 * own copy, checks that, and exits. Meanwhile the parent does what the scenario is about.
 */
struct snapshot snapshot_fork(const struct region *region, uint64_t generation);
void snapshot_end(struct snapshot *snapshot);
/* Like it, but any check: returns the number of wrong pages. The check runs at once and again at the end. */
typedef size_t (*snapshot_check)(const void *argument);
struct snapshot snapshot_fork_check(snapshot_check check, const void *argument);
/*
 * The child checks only when snapshot_end() tells it to, and touches nothing before: what is shared stays shared. A
 * child that checks at once may have its own copies before the parent does anything.
 */
struct snapshot snapshot_fork_idle(snapshot_check check, const void *argument);
pid_t must_fork(void);
int wait_status(pid_t pid);
void expect_exit(pid_t pid, int code, const char *who);

/* ---------- small things ---------- */
bool write_file(const char *path, const char *text);	/* false: errno says why */
void must_write_file(const char *path, const char *text);
bool file_contains(const char *path, const char *text);	/* in its first 4 KiB; false: not there */
long read_number(const char *path);			/* -1: not there */
long read_field(const char *path, const char *name);	/* "name: 12" or "name 12"; -1: not there */
char *scratch_file(const char *name);			/* a path on tmpfs */
/* A memory cgroup (v2) that this process moves into; its directory. */
const char *cgroup_enter(const char *name);
void cgroup_write(const char *directory, const char *file, const char *text);
long cgroup_stat(const char *directory, const char *name);	/* memory.stat, bytes */

#endif
