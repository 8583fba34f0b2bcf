// SPDX-License-Identifier: GPL-2.0
/* The kernel or another process reads and writes the memory of parent or child while the copy is under way. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "selftest.h"

#define DISK "/dev/ram0"
#define CHUNK 65536UL

static struct region region;

static struct snapshot begin(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	return snapshot_fork(&region, 1);
}

static char *random_chunk(void)
{
	return region.base + random_number() % (region.pages - CHUNK / PAGE_BYTES) * PAGE_BYTES;
}

/* Written by a child: since Linux 6.5 direct I/O pins pages, and who ever did so uses the default fork. */
static int disk_with(unsigned char byte)
{
	int fd = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	void *block = NULL;
	pid_t writer;

	if (fd < 0)
		skip("no %s: %s", DISK, strerror(errno));
	if (posix_memalign(&block, PAGE_BYTES, CHUNK))
		fail("no memory");
	memset(block, byte, CHUNK);
	writer = must_fork();
	if (!writer)
		_exit(pwrite(fd, block, CHUNK, 0) == (ssize_t)CHUNK ? 0 : errno);
	expect_exit(writer, 0, "the writer of " DISK);
	free(block);
	return fd;
}

/* Direct I/O finds its pages by the lockless walk of GUP-fast. */
static void direct_read(void)
{
	int fd = disk_with(0x33);
	struct snapshot child = begin();

	for (int i = 0; i < 100; i++) {
		char *target = random_chunk();

		expect(pread(fd, target, CHUNK, 0) == (ssize_t)CHUNK, "direct read: %s", strerror(errno));
		expect(target[0] == 0x33 && target[CHUNK - 1] == 0x33, "the parent misses what was read");
	}
	expect_synchronised(&child.before, ASYNC_FORK_BY_GUP);
	snapshot_end(&child);
}

static void direct_write(void)
{
	int fd = disk_with(0);
	struct snapshot child = begin();
	void *block = NULL;

	if (posix_memalign(&block, PAGE_BYTES, CHUNK))
		fail("no memory");
	for (size_t page = 0; page + 16 < region.pages; page += 700) {
		expect(pwrite(fd, region.base + page * PAGE_BYTES, CHUNK, 0) == (ssize_t)CHUNK, "direct write: %s",
		       strerror(errno));
		expect(pread(fd, block, CHUNK, 0) == (ssize_t)CHUNK, "direct read: %s", strerror(errno));
		expect(!memcmp(block, region.base + page * PAGE_BYTES, CHUNK), "something else was written");
	}
	snapshot_end(&child);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* copy_to_user() faults like the process itself. */
static void pipe_read(void)
{
	struct snapshot child = begin();
	static char block[32768];
	int ends[2];

	must(pipe(ends));
	memset(block, 0x44, sizeof(block));
	for (int i = 0; i < 100; i++) {
		expect(write(ends[1], block, sizeof(block)) == sizeof(block), "write: %s", strerror(errno));
		expect(read(ends[0], random_chunk(), sizeof(block)) == sizeof(block), "read: %s", strerror(errno));
	}
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	snapshot_end(&child);
}

static void splice_pages(void)
{
	struct snapshot child = begin();
	static char block[4 * PAGE_BYTES];
	int ends[2];

	must(pipe(ends));
	for (size_t page = 0; page + 4 < region.pages; page += 300) {
		struct iovec vector = { region.base + page * PAGE_BYTES, sizeof(block) };

		expect(vmsplice(ends[1], &vector, 1, 0) == (ssize_t)sizeof(block), "vmsplice: %s", strerror(errno));
		expect(read(ends[0], block, sizeof(block)) == sizeof(block), "read: %s", strerror(errno));
		expect(!memcmp(block, vector.iov_base, sizeof(block)), "the pipe shows something else");
		expect(write(ends[1], block, PAGE_BYTES) == (ssize_t)PAGE_BYTES, "write: %s", strerror(errno));
		vector.iov_len = PAGE_BYTES;
		memset(vector.iov_base, 0, 8);
		expect(vmsplice(ends[0], &vector, 1, 0) == (ssize_t)PAGE_BYTES, "vmsplice back: %s", strerror(errno));
	}
	snapshot_end(&child);
	expect(!region_wrong(&region, 1), "the parent's memory changed");
}

/* ---------- another process ---------- */

static void remote_write(pid_t target, bool by_proc_mem)
{
	static char block[8192];
	char path[64];

	memset(block, 0x22, sizeof(block));
	snprintf(path, sizeof(path), "/proc/%d/mem", target);
	int fd = must(open(path, O_RDWR | O_CLOEXEC));

	for (int i = 0; i < 200; i++) {
		char *where = random_chunk();
		struct iovec local = { block, sizeof(block) }, remote = { where, sizeof(block) };
		ssize_t done = by_proc_mem ? pwrite(fd, block, sizeof(block), (off_t)where) :
			process_vm_writev(target, &local, 1, &remote, 1, 0);

		expect(done == sizeof(block), "writing the other's memory: %s", strerror(errno));
	}
	close(fd);
}

static void write_parent(bool by_proc_mem)
{
	struct snapshot child = begin();
	pid_t writer = must_fork();	/* a second fork: finishes the first */

	if (!writer) {
		remote_write(getppid(), by_proc_mem);
		_exit(VERDICT_PASS);
	}
	expect_exit(writer, VERDICT_PASS, "the writing process");
	snapshot_end(&child);
}

static void vm_writev_parent(void)
{
	write_parent(false);
}

static void proc_mem_parent(void)
{
	write_parent(true);
}

/* The parent itself: no second fork in between. */
static void self_access(void)
{
	struct snapshot child = begin();

	remote_write(getpid(), true);
	expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	remote_write(getpid(), false);
	snapshot_end(&child);
	/* Such a write pins pages for a moment, which marks the process for good: what follows must still be right. */
	region_fill(&region, 1);
	child = snapshot_fork(&region, 1);
	region_write_randomly(&region, 500, 2);
	snapshot_end(&child);
}

/* The parent looks at the child's memory before the child has run. */
static void read_child(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	for (int round = 0; round < 3; round++) {
		struct snapshot child = snapshot_fork(&region, 1);

		for (size_t table = 0; table < DEFAULT_TABLES; table++) {
			size_t page = table * TABLE_PAGES + 17;
			uint64_t words[2];
			struct iovec local = { words, sizeof(words) };
			struct iovec remote = { region.base + page * PAGE_BYTES, sizeof(words) };

			page_write(&region, page, 2);
			expect(process_vm_readv(child.pid, &local, 1, &remote, 1, 0) == sizeof(words),
			       "process_vm_readv: %s",
			       strerror(errno));
			expect(words[0] == page && words[1] == 1, "the child's page %zu shows %lu", page, words[1]);
			page_write(&region, page, 1);
		}
		snapshot_end(&child);
	}
}

static void write_child(void)
{
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	int ends[2];

	must(pipe(ends));
	pid_t child = must_fork();

	if (!child) {
		char byte;
		size_t wrong = 0;

		must(read(ends[0], &byte, 1));
		for (size_t page = 17; page < region.pages; page += TABLE_PAGES)
			wrong += !page_shows(&region, page, 1) &&
				 *(uint64_t *)(region.base + page * PAGE_BYTES + 8) != 3;
		_exit(wrong ? VERDICT_FAIL : VERDICT_PASS);
	}
	for (size_t page = 17; page < region.pages; page += TABLE_PAGES) {
		uint64_t three = 3;
		struct iovec local = { &three, 8 }, remote = { region.base + page * PAGE_BYTES + 8, 8 };

		expect(process_vm_writev(child, &local, 1, &remote, 1, 0) == 8, "process_vm_writev: %s",
		       strerror(errno));
	}
	expect(!region_wrong(&region, 1), "a write to the child reached the parent");
	must(write(ends[1], "g", 1));
	expect_exit(child, VERDICT_PASS, "the child");
}

/* A tracer changes the parent's memory and the child's, word by word. */
static void traced(void)
{
	pid_t tracee = must_fork();

	if (!tracee) {
		region = region_map(DEFAULT_TABLES * TABLE_BYTES);
		region_fill(&region, 1);
		opt_in();
		must(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
		raise(SIGSTOP);
		struct snapshot child = snapshot_fork(&region, 1);

		raise(SIGSTOP);
		snapshot_end(&child);
		_exit(VERDICT_PASS);
	}
	/* The tracer has the same layout: its next region lands where the tracee's is, as fork copied the layout. */
	struct region twin = region_map(DEFAULT_TABLES * TABLE_BYTES);
	int status = wait_status(tracee);

	expect(WIFSTOPPED(status), "the tracee did not stop");
	must(ptrace(PTRACE_CONT, tracee, NULL, NULL));
	status = wait_status(tracee);
	expect(WIFSTOPPED(status), "the tracee ended: %x", status);
	for (size_t page = 3; page < twin.pages; page += 100) {
		char *where = twin.base + page * PAGE_BYTES + 8;

		must(ptrace(PTRACE_POKEDATA, tracee, where, 9));
		expect(ptrace(PTRACE_PEEKDATA, tracee, where, NULL) == 9, "the tracee's memory lacks what was poked");
	}
	must(ptrace(PTRACE_DETACH, tracee, NULL, NULL));	/* goes on by itself */
	expect_exit(tracee, VERDICT_PASS, "the tracee");
}

/* ---------- io_uring: registered buffers are pinned ---------- */

static struct {
	int fd;
	unsigned int *submit_tail, *submit_array, *complete_head, *complete_tail;
	struct io_uring_sqe *entries;
} ring;

static void ring_open(void)
{
	struct io_uring_params parameters = { 0 };
	char *submit, *complete;

	ring.fd = syscall(SYS_io_uring_setup, 8, &parameters);
	if (ring.fd < 0)
		skip("io_uring: %s", strerror(errno));
	submit = mmap(NULL, parameters.sq_off.array + 8 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
		      IORING_OFF_SQ_RING);
	complete = mmap(NULL, parameters.cq_off.cqes + 16 * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
			MAP_SHARED,
			ring.fd, IORING_OFF_CQ_RING);
	ring.entries = mmap(NULL, 8 * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
			    IORING_OFF_SQES);
	expect(submit != MAP_FAILED && complete != MAP_FAILED && ring.entries != MAP_FAILED, "mmap: %s",
	       strerror(errno));
	ring.submit_tail = (unsigned int *)(submit + parameters.sq_off.tail);
	ring.submit_array = (unsigned int *)(submit + parameters.sq_off.array);
	ring.complete_head = (unsigned int *)(complete + parameters.cq_off.head);
	ring.complete_tail = (unsigned int *)(complete + parameters.cq_off.tail);
}

static void ring_read_fixed(int file, char *target, size_t bytes)
{
	unsigned int tail = *ring.submit_tail;

	ring.entries[tail & 7] = (struct io_uring_sqe){
		.opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)target, .len = bytes, .buf_index = 0,
	};
	ring.submit_array[tail & 7] = tail & 7;
	__atomic_store_n(ring.submit_tail, tail + 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	while (__atomic_load_n(ring.complete_tail, __ATOMIC_ACQUIRE) == *ring.complete_head)
		sleep_ms(1);
	__atomic_store_n(ring.complete_head, *ring.complete_head + 1, __ATOMIC_RELEASE);
	expect(target[0] == 0x66, "READ_FIXED left no data");
}

static void registered_buffers(bool before_fork)
{
	int disk = disk_with(0x66);
	struct snapshot child;

	ring_open();
	region = region_map(DEFAULT_TABLES * TABLE_BYTES);
	region_fill(&region, 1);
	opt_in();
	struct iovec vector = { region.base + 4 * TABLE_BYTES, 4 * TABLE_BYTES };

	if (before_fork)
		must(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vector, 1));
	child = snapshot_fork(&region, 1);
	if (before_fork && mode != MODE_DEFAULT)
		expect(statistics().forks_refused[ASYNC_FORK_REFUSED_PINNED] >
		       child.before.forks_refused[ASYNC_FORK_REFUSED_PINNED],
		       "a process with pinned pages was not refused");
	if (!before_fork) {
		must(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vector, 1));
		/* by slow GUP, or by GUP-fast since Linux 6.5 */
		if (!synchronised(&child.before, ASYNC_FORK_BY_GUP))
			expect_synchronised(&child.before, ASYNC_FORK_BY_FAULT);
	}
	for (size_t offset = 0; offset < vector.iov_len; offset += 16 * CHUNK)
		ring_read_fixed(disk, (char *)vector.iov_base + offset, CHUNK);
	snapshot_end(&child);
}

static void io_uring_before_fork(void)
{
	registered_buffers(true);
}

static void io_uring_during_copy(void)
{
	registered_buffers(false);
}

const struct scenario scenarios[] = {
	{ "direct_read", direct_read, MODES_ALL },
	{ "direct_write", direct_write, MODES_ALL },
	{ "pipe_read", pipe_read, MODES_ALL },
	{ "vmsplice", splice_pages, MODES_ALL },
	{ "process_vm_writev", vm_writev_parent, MODES_ALL },
	{ "proc_mem", proc_mem_parent, MODES_ALL },
	{ "self_access", self_access, MODES_ALL },
	{ "read_child", read_child, MODES_ALL },
	{ "write_child", write_child, MODES_ALL },
	{ "ptrace", traced, MODES_ALL },
	{ "io_uring_before_fork", io_uring_before_fork, MODES_ALL },
	{ "io_uring_during_copy", io_uring_during_copy, MODES_ALL },
	{ 0 },
};
