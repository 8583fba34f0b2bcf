/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What user space and the exmap module share: fixed-width fields, explicit padding, sizes checked on both sides (here
 * by static assertions). All reserved fields must be 0, else EINVAL. For programs of 64 bits.
 *
 * Structs may grow at their ends. Of a struct that is larger than the module's, what the module does not know must be 0,
 * else E2BIG; of a smaller one, what it lacks counts as 0. `size` says how large the program's is; for EXMAP_ACTION the
 * number of the ioctl does, which is otherwise the same number whatever the size.
 *
 * /dev/exmap, mode 0600, or 0660 and group exmap with the udev rule. An open file is one map: addresses for pages of
 * 4 KiB, a pool of frames that only this map uses, and up to 256 interfaces, one for each thread.
 *
 *   ioctl(EXMAP_SETUP)     once: sizes of map and pool, number of interfaces. The map belongs to the caller's memory:
 *                          from another process all other calls fail with EPERM. The pool counts against RLIMIT_MEMLOCK
 *                          of the caller's user, with all else that the user has pinned, until the memory of the process
 *                          goes (exec, exit) or the file is closed. ENOMEM: that is too little, or the tables of the pool,
 *                          16 bytes a frame, are large beside the memory that there is. Frames are taken from the kernel
 *                          when they are needed.
 *   mmap(offset 0)         the whole map, MAP_SHARED, PROT_READ | PROT_WRITE, one at a time. Reading a page that is not
 *                          allocated gives zeros, writing it SIGBUS.
 *   mmap(EXMAP_OFFSET_INTERFACE + i * 4096)  the pages of interface i and those after it, as many as the length says:
 *                          512 struct exmap_entry each. MAP_SHARED.
 *   ioctl(EXMAP_BACKING)   the file or block device that reads are from
 *   ioctl(EXMAP_ACTION)    allocates, frees or reads the pages that the first entries of an interface name
 *   io_uring URING_CMD     the same: cmd_op is EXMAP_ACTION, struct exmap_action is in the SQE's cmd[]. A read
 *                          completes when all of its entries have; entries must not be used for another call before.
 *   pread, preadv, io_uring READ and READV   buffers are addresses in the map, the offset is the backing file's. Pages
 *                          that are not allocated are allocated first. At most EXMAP_READ_PAGES_MAX pages a call, a
 *                          longer one is a short read. EAGAIN always if the descriptor is O_NONBLOCK.
 *   ioctl(EXMAP_STATISTICS)  counters of this map. /proc/exmap, mode 0444, has the sums for the machine.
 *
 * EXMAP_ACTION returns the number of pages done, of all entries; -1 and an errno only if that is 0 and something
 * failed. The field result of each entry is the number of its pages that were done, from its first on, or a negative
 * errno if that is 0 and something failed. After a failure the next entry is tried all the same.
 *
 *   ALLOC  a page that is allocated already stays as it is and counts as done. Contents are what the frame had, as long
 *          as this map used it, unless EXMAP_ALLOC_ZERO is set. ENOMEM: no frame is free and the pool cannot grow.
 *   FREE   a page that is not allocated counts as done. EBUSY: a read into it is under way. When the call returns no
 *          processor can reach the frames any more.
 *   READ   pages are read from offset + page * 4096 of the backing file. What is not allocated is allocated first, and
 *          stays if the read fails. Only whole pages count as done. All entries are in flight together. ENXIO: no
 *          backing file. EAGAIN: freed by another thread before the read began. The sum of lengths is at most
 *          EXMAP_READ_PAGES_MAX, else E2BIG.
 *
 * EINVAL: an unknown opcode, flag or interface, or an entry out of bounds: then nothing was done, and the result of the
 * first such entry is -EINVAL. ENXIO: the map is not set up, or not mapped. EBADFD: set up twice.
 */
#ifndef _UAPI_EXMAP_H
#define _UAPI_EXMAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EXMAP_DEVICE "/dev/exmap"
#define EXMAP_VERSION 1
#define EXMAP_PAGE_SIZE 4096
#define EXMAP_INTERFACES_MAX 256
#define EXMAP_ENTRIES_MAX 512
#define EXMAP_LENGTH_MAX 32767		/* of an entry, in pages */
#define EXMAP_READ_PAGES_MAX 16384	/* of one read */
#define EXMAP_MAP_PAGES_MAX (1ULL << 32)
#define EXMAP_POOL_PAGES_MAX (1ULL << 28)
#define EXMAP_OFFSET_INTERFACE (1ULL << 44)

struct exmap_setup {
	__u32 size;		/* sizeof(struct exmap_setup); less than the first version's: EINVAL */
	__u32 version;		/* EXMAP_VERSION, else EINVAL */
	__aligned_u64 map_pages;	/* 1 to EXMAP_MAP_PAGES_MAX */
	__aligned_u64 pool_pages;	/* 1 to EXMAP_POOL_PAGES_MAX: frames that are in use at the same time */
	__u32 interface_count;	/* 1 to EXMAP_INTERFACES_MAX */
	__u32 flags;		/* 0 */
	__aligned_u64 reserved[2];
};

struct exmap_backing {
	__u32 size;		/* sizeof(struct exmap_backing) */
	__s32 fd;		/* open for reading; with O_DIRECT reads do not use the page cache. -1: none any more */
	__u32 flags;		/* 0 */
	__u32 reserved;
};

/* In the page of an interface. The module reads each once, when the call begins, and writes results. */
struct exmap_entry {
	__u32 page;		/* the first, a number in the map */
	__u16 length;		/* pages, 1 to EXMAP_LENGTH_MAX */
	__s16 result;		/* out */
};

enum exmap_opcode {
	EXMAP_ALLOC = 0,
	EXMAP_FREE = 1,
	EXMAP_READ = 2,
	EXMAP_OPCODES = 3,
};

#define EXMAP_ALLOC_ZERO 1	/* flag of EXMAP_ALLOC: what is allocated now is filled with zeros */

struct exmap_action {
	__u16 interface;
	__u16 opcode;		/* enum exmap_opcode */
	__u16 entry_count;	/* 0 to EXMAP_ENTRIES_MAX */
	__u16 flags;		/* EXMAP_ALLOC_ZERO or 0 */
	__aligned_u64 offset;	/* READ: where page 0 is in the backing file, a multiple of 512; else 0 */
};

struct exmap_statistics {
	__u32 size;		/* sizeof(struct exmap_statistics); out: what the module knows of it, the rest is 0 */
	__u32 version;		/* in: EXMAP_VERSION */
	__aligned_u64 map_pages;
	__aligned_u64 pool_pages;
	__aligned_u64 frames;			/* taken from the kernel so far */
	__aligned_u64 frames_free;		/* of these, in the free lists of interfaces and of the pool */
	__aligned_u64 pages_allocated;
	__aligned_u64 pages_present;		/* were allocated when they should be */
	__aligned_u64 pages_freed;
	__aligned_u64 pages_absent;		/* were not allocated when they should be freed */
	__aligned_u64 pages_busy;		/* not freed: a read was under way */
	__aligned_u64 pages_unmapped;		/* allocated when the map was unmapped */
	__aligned_u64 pages_zeroed;		/* EXMAP_ALLOC_ZERO */
	__aligned_u64 pages_read;		/* whole pages, by EXMAP_READ and by read calls */
	__aligned_u64 reads;			/* vectors of EXMAP_READ, and read calls */
	__aligned_u64 reads_failed;
	__aligned_u64 frames_from_interface;	/* where frames for allocations came from */
	__aligned_u64 frames_from_pool;
	__aligned_u64 frames_stolen;		/* from other interfaces */
	__aligned_u64 frames_missing;		/* there was none anywhere */
	__aligned_u64 shootdowns_free;		/* TLB flushes for frees: one for each call that took a page away */
	__aligned_u64 shootdowns_alloc;		/* for pages that were read before they were allocated */
	__aligned_u64 shootdowns_full;		/* of both: those of the whole TLB, the others are of a range */
	__aligned_u64 zero_faults;		/* reads of pages that are not allocated */
	__aligned_u64 write_faults;		/* writes to such: SIGBUS */
	__aligned_u64 steals;			/* times that an interface without frames went to the others */
	__aligned_u64 interfaces_asked;		/* other interfaces that were looked at for them */
	__aligned_u64 reserved[6];
};

#define EXMAP_SETUP _IOW(0xE7, 1, struct exmap_setup)
#define EXMAP_BACKING _IOW(0xE7, 2, struct exmap_backing)
#define EXMAP_ACTION _IOW(0xE7, 3, struct exmap_action)
#define EXMAP_STATISTICS _IOWR(0xE7, 4, struct exmap_statistics)

/* What a struct had in the first version, which a program's has at least. */
#define EXMAP_SETUP_SIZE_1 48
#define EXMAP_BACKING_SIZE_1 16
#define EXMAP_ACTION_SIZE_1 16
#define EXMAP_STATISTICS_SIZE_1 256

#ifdef __cplusplus
#define STATIC_ASSERT_OF_UAPI static_assert
#else
#define STATIC_ASSERT_OF_UAPI _Static_assert
#endif
STATIC_ASSERT_OF_UAPI(sizeof(struct exmap_setup) == 48, "exmap_setup is part of the ABI");
STATIC_ASSERT_OF_UAPI(sizeof(struct exmap_backing) == 16, "exmap_backing is part of the ABI");
STATIC_ASSERT_OF_UAPI(sizeof(struct exmap_entry) == 8, "exmap_entry is part of the ABI");
STATIC_ASSERT_OF_UAPI(sizeof(struct exmap_action) == 16, "exmap_action is part of the ABI and fits an SQE of 64 bytes");
STATIC_ASSERT_OF_UAPI(sizeof(struct exmap_statistics) == 256, "exmap_statistics is part of the ABI");

#undef STATIC_ASSERT_OF_UAPI

#endif
