// SPDX-License-Identifier: GPL-2.0
/* Advice about the parent's or the child's memory while the child's copy is under way, and KSM. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "selftest.h"

#define KSM "/sys/kernel/mm/ksm/"
#define KSM_SCANS 3
#define KSM_PATIENCE_MS 8000

static struct region region;

static struct snapshot begin(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	return snapshot_fork(&region, 1);
}

static void finish(struct snapshot *child)
{
	region_write_randomly(&region, 3000, 2);
	snapshot_end(child);
	expect(!region_mixed_wrong(&region, 1, 2), "the parent lost writes");
}

static void advise_all(int advice)
{
	must(madvise(region.base, region.pages * PAGE_BYTES, advice));
}

static void dontneed(void)
{
	struct snapshot child = begin();

	for (size_t first = 0; first + 600 < region.pages; first += 700)
		must(madvise(region.base + first * PAGE_BYTES, 600 * PAGE_BYTES, MADV_DONTNEED));
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	for (size_t first = 0; first + 600 < region.pages; first += 700)
		for (size_t page = first; page < first + 600; page += 50) {
			uint64_t *word = (uint64_t *)(region.base + page * PAGE_BYTES);

			expect(!word[0] && !word[1], "the parent sees what it gave back");
			page_write(&region, page, 2);
		}
	snapshot_end(&child);
}

static void dontneed_all(void)
{
	struct snapshot child = begin();

	advise_all(MADV_DONTNEED);
	expect_synchronised(&child.before, ASYNC_FORK_BY_ZAP);
	region_fill(&region, 2);
	snapshot_end(&child);
	expect(!region_wrong(&region, 2), "the parent lost writes");
}

static void lazy_free(void)
{
	struct snapshot child = begin();

	advise_all(MADV_FREE);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	region_fill(&region, 2);
	snapshot_end(&child);
	expect(!region_wrong(&region, 2), "the parent lost writes");
}

static void cold(void)
{
	struct snapshot child = begin();

	advise_all(MADV_COLD);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	finish(&child);
}

static void pageout(void)
{
	struct snapshot child = begin();

	advise_all(MADV_PAGEOUT);
	expect_synchronised(&child.before, ASYNC_FORK_BY_WALK);
	advise_all(MADV_WILLNEED);
	finish(&child);
}

static void populate(void)
{
	struct snapshot child = begin();

	advise_all(MADV_POPULATE_READ);
	advise_all(MADV_POPULATE_WRITE);
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	finish(&child);
}

/* From a third process, on the parent and on the child that has not run yet. */
static void from_outside(void)
{
	struct snapshot child = begin();
	pid_t parent = getpid(), other = vfork();

	if (!other) {
		struct iovec all = { region.base, region.pages * PAGE_BYTES };
		pid_t target[] = { child.pid, parent };

		for (int i = 0; i < 2; i++) {
			int fd = syscall(SYS_pidfd_open, target[i], 0);

			if (fd < 0 || syscall(SYS_process_madvise, fd, &all, 1, MADV_COLD, 0) < 0 ||
			    syscall(SYS_process_madvise, fd, &all, 1, MADV_PAGEOUT, 0) < 0)
				_exit(errno);
		}
		_exit(0);
	}
	int status = wait_status(other);

	expect(!status, "process_madvise: %s", strerror(WEXITSTATUS(status)));
	finish(&child);
}

/* ---------- KSM ---------- */

static void ksm_start(void)
{
	if (!write_file(KSM "run", "0"))
		skip("no KSM");
	must_write_file(KSM "sleep_millisecs", "0");
	must_write_file(KSM "pages_to_scan", "20000");
	must_write_file(KSM "run", "1");
}

static void ksm_scan(void)
{
	long start = read_number(KSM "full_scans");

	for (int waited = 0; read_number(KSM "full_scans") < start + KSM_SCANS; waited += 20) {
		expect(waited < KSM_PATIENCE_MS, "ksmd does not get through its lists");
		sleep_ms(20);
	}
}

static void ksm_stop(void)
{
	must_write_file(KSM "run", "2");	/* unmerges */
	must_write_file(KSM "run", "0");
}

/* Page p is like page p + half: KSM merges them. */
static void fill_with_twins(void)
{
	size_t half = region.pages / 2;

	for (size_t page = 0; page < half; page++)
		memset(region.base + page * PAGE_BYTES, 1 + page % 200, PAGE_BYTES);
	memcpy(region.base + half * PAGE_BYTES, region.base, half * PAGE_BYTES);
}

static size_t check_twins(const void *unused)
{
	size_t half = region.pages / 2, wrong = 0;

	(void)unused;
	for (size_t page = 0; page < region.pages; page++) {
		unsigned char *bytes = (unsigned char *)region.base + page * PAGE_BYTES;

		wrong += bytes[0] != 1 + page % half % 200 || bytes[4095] != 1 + page % half % 200;
	}
	return wrong;
}

static void write_over_twins(void)
{
	for (size_t page = 0; page < region.pages; page += 7)
		memset(region.base + page * PAGE_BYTES, 250, PAGE_BYTES);
	for (size_t page = 0; page < region.pages; page += 7)
		expect((unsigned char)region.base[page * PAGE_BYTES + 99] == 250, "the parent lost writes");
}

static void ksm_during_copy(void)
{
	ksm_start();
	region = region_map(8 * TABLE_BYTES);
	fill_with_twins();
	opt_in();
	struct snapshot child = snapshot_fork_check(check_twins, NULL);

	advise_all(MADV_MERGEABLE);
	ksm_scan();
	expect(read_number(KSM "pages_sharing") > 0, "KSM merged nothing");
	write_over_twins();
	snapshot_end(&child);
	ksm_stop();
}

/* Of the tables that were shared, only those that ksmd has looked at become the parent's own. */
#define KSM_FEW_PAGES 8
#define KSM_FEW_TABLES 4

static bool kernel_has(const char *symbol)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	bool found = false;
	char line[256];

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, symbol);
	if (file)
		fclose(file);
	return found;
}

static void ksm_looks_at_few(void)
{
	char pages[16];
	uint64_t began, unshared;

	if (!kernel_has(" ksm_next_page_ops\n"))
		skip("kallsyms has no variables, or KSM no walk");
	ksm_start();
	must_write_file(KSM "run", "0");
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	fill_with_twins();
	opt_in();
	struct snapshot child = snapshot_fork_idle(check_twins, NULL);

	advise_all(MADV_MERGEABLE);
	snprintf(pages, sizeof(pages), "%d", KSM_FEW_PAGES);
	must_write_file(KSM "pages_to_scan", pages);
	must_write_file(KSM "sleep_millisecs", "1000000");
	struct async_fork_statistics before = statistics(), after;

	must_write_file(KSM "run", "1");
	began = now_ns();
	do {	/* ksmd has slept since it looked at so many */
		sleep_ms(300);
		after = statistics();
		unshared = after.tables_unshared[ASYNC_FORK_BY_WALK] - before.tables_unshared[ASYNC_FORK_BY_WALK] +
			   after.tables_unshared[ASYNC_FORK_BY_KSM] - before.tables_unshared[ASYNC_FORK_BY_KSM];
	} while (!unshared && now_ns() < began + KSM_PATIENCE_MS * 1000000ULL);
	must_write_file(KSM "run", "0");
	snapshot_end(&child);
	must_write_file(KSM "sleep_millisecs", "0");
	ksm_stop();
	expect(unshared > 0, "ksmd looked at nothing");
	expect(unshared <= KSM_FEW_TABLES, "ksmd looked at %d pages, and %lu tables were unshared", KSM_FEW_PAGES,
	       unshared);
}

static void ksm_before_fork(void)
{
	ksm_start();
	region = region_map(8 * TABLE_BYTES);
	fill_with_twins();
	advise_all(MADV_MERGEABLE);
	ksm_scan();
	expect(read_number(KSM "pages_sharing") > 0, "KSM merged nothing");
	opt_in();
	struct snapshot child = snapshot_fork_check(check_twins, NULL);

	ksm_scan();
	write_over_twins();
	advise_all(MADV_UNMERGEABLE);
	snapshot_end(&child);
	ksm_stop();
}

/*
 * ksmd takes a page under mmap_lock, lets go of it, looks the contents up, takes it again and merges if the VMA is
 * mergeable then. The gap: in between the VMA stops to be mergeable, the process forks, and the VMA is mergeable again.
 * The parent shares a CPU with ksmd and goes before it, so that ksmd stands still somewhere in its work, mostly there.
 * The child reads on the other CPU, through translations that it loaded before ksmd goes on; the parent writes over
 * whatever pages were freed.
 */
#define GAP_TABLES 2
#define GAP_ROUNDS 60
#define GAP_ROUNDS_LONG 1000
#define GAP_KINDS 200		/* different contents */
#define GAP_JUNK_PAGES 128
#define GAP_BIRTH_NS 1000000	/* the child reads by then, unless it has to copy first */
#define GAP_READ_US 4000

struct gap { volatile bool reads, stop; volatile uint64_t wrong, passes; };

static pid_t ksmd_pid(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	while (!found && processes && (entry = readdir(processes))) {
		char path[300], name[32] = "";
		FILE *file;

		if (!isdigit(*entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "ksmd\n"))
			found = atoi(entry->d_name);
		if (file)
			fclose(file);
	}
	closedir(processes);
	return found;
}

static unsigned char gap_kind(size_t page)
{
	return 1 + page % GAP_KINDS;
}

static void fill_with_kinds(char *base, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		memset(base + page * PAGE_BYTES, gap_kind(page), PAGE_BYTES);
}

/* Another process has each content twice, merged: ksmd finds what it looks for at the first look. */
static pid_t gap_anchor(void)
{
	pid_t pid = must_fork();
	char *base;

	if (pid)
		return pid;
	base = region_map(TABLE_BYTES).base;
	fill_with_kinds(base, 2 * GAP_KINDS);
	must(madvise(base, TABLE_BYTES, MADV_MERGEABLE));
	for (;;)
		pause();
}

static void gap_child(struct gap *gap)
{
	while (!gap->stop) {
		for (size_t page = 0; page < region.pages; page++) {
			volatile unsigned char *bytes = (unsigned char *)region.base + page * PAGE_BYTES;

			gap->wrong += bytes[0] != gap_kind(page) || bytes[PAGE_BYTES - 1] != gap_kind(page);
		}
		gap->passes++;
		gap->reads = true;
	}
	_exit(VERDICT_PASS);
}

static void gap_junk(void)
{
	char *junk = mmap(NULL, GAP_JUNK_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(junk != MAP_FAILED, "mmap: %s", strerror(errno));
	memset(junk, 0xEE, GAP_JUNK_PAGES * PAGE_BYTES);
	usleep(GAP_READ_US);
	munmap(junk, GAP_JUNK_PAGES * PAGE_BYTES);
}

static void gap_round(struct gap *gap)
{
	uint64_t began;
	pid_t child;

	gap->reads = gap->stop = false;
	usleep(100 + random_number() % 1500);
	run_on(0, 3);	/* the child goes to the other CPU; this process stays, it does not sleep */
	advise_all(MADV_UNMERGEABLE);
	child = must_fork();
	if (!child)
		gap_child(gap);
	for (began = now_ns(); !gap->reads && now_ns() < began + GAP_BIRTH_NS;)
		;
	advise_all(MADV_MERGEABLE);
	run_on(0, 1);
	usleep(GAP_READ_US);
	gap_junk();
	gap->stop = true;
	expect_exit(child, VERDICT_PASS, "the child");
}

static void ksm_gap_rounds(int rounds)
{
	struct gap *gap = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sched_param first = { .sched_priority = 1 };
	pid_t anchor, ksmd;
	int done;

	expect(gap != MAP_FAILED, "mmap: %s", strerror(errno));
	ksm_start();
	ksmd = ksmd_pid();
	expect(ksmd, "no ksmd");
	anchor = gap_anchor();
	region = region_map(GAP_TABLES * TABLE_BYTES);
	fill_with_kinds(region.base, region.pages);
	advise_all(MADV_MERGEABLE);
	ksm_scan();
	expect(read_number(KSM "pages_sharing") > 0, "KSM merged nothing");
	run_on(ksmd, 1);
	run_on(0, 1);
	must(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first));
	opt_in();
	for (done = 0; done < rounds && !gap->wrong; done++)
		gap_round(gap);
	run_on(ksmd, 3);
	must(kill(anchor, SIGKILL));
	wait_status(anchor);
	ksm_stop();
	dprintf(STDOUT_FILENO, "%d rounds, %lu passes of the children, %lu wrong reads\n", done, gap->passes, gap->wrong);
	expect(gap->passes >= (uint64_t)done, "the children did not read");
	expect(!gap->wrong, "the children read what is not theirs");
}

static void ksm_gap(void)
{
	ksm_gap_rounds(GAP_ROUNDS);
}

static void ksm_gap_long(void)
{
	ksm_gap_rounds(GAP_ROUNDS_LONG);
}

const struct scenario scenarios[] = {
	{ "dontneed", dontneed, MODES_ALL },
	{ "dontneed_all", dontneed_all, MODES_ALL },
	{ "free", lazy_free, MODES_ALL },
	{ "cold", cold, MODES_ALL },
	{ "pageout", pageout, MODES_ALL },
	{ "populate", populate, MODES_ALL },
	{ "process_madvise", from_outside, MODES_ALL },
	{ "ksm_during_copy", ksm_during_copy, MODES_ALL },
	{ "ksm_before_fork", ksm_before_fork, MODES_ALL },
	{ "ksm_looks_at_few", ksm_looks_at_few, MODE_ODF },
	{ "ksm_gap", ksm_gap, MODES_ALL },
	{ "ksm_gap_long", ksm_gap_long, MODES_ALL },
	{ 0 },
};
