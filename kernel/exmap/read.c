// SPDX-License-Identifier: GPL-2.0
/*
 * Reading from the backing file into frames. A vector is one read of that file: its pages are held (frame.c) from
 * before it begins until it has ended, in whatever context that is. All vectors of a call are under way together.
 */
#include <linux/bvec.h>
#include <linux/completion.h>
#include <linux/fadvise.h>
#include <linux/file.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "internal.h"

struct exmap_vector {
	struct kiocb kiocb;
	struct exmap_read *read;
	struct bio_vec *parts;
	u32 part_count;
	size_t bytes;
	long result;
};

struct exmap_read {
	struct exmap *map;
	struct file *backing;
	atomic_t pending;		/* vectors, and whoever began them */
	/* who waits: one of these, or `done` */
	struct kiocb *iocb;
	struct io_uring_cmd *cmd;
	struct completion done;
	struct exmap_interface *interface;	/* its entries get results; NULL: a read call */
	struct exmap_entry *entries;
	unsigned int entry_count;
	struct bio_vec *parts;
	u32 part_count, part_room;
	unsigned int vector_count;
	struct exmap_vector vectors[];
};

/* ---- a read's memory ---- */

static struct exmap_read *exmap_read_new(struct exmap *map, unsigned int vectors, unsigned int entries)
{
	size_t size = struct_size((struct exmap_read *)NULL, vectors, vectors);
	struct exmap_read *read;

	if (exmap_allocation_fails())
		return ERR_PTR(-ENOMEM);
	read = kvzalloc(size + entries * sizeof(struct exmap_entry), EXMAP_GFP);
	if (!read)
		return ERR_PTR(-ENOMEM);
	read->backing = exmap_backing_get(map);
	if (!read->backing) {
		kvfree(read);
		return ERR_PTR(-ENXIO);
	}
	read->map = map;
	read->entries = (void *)read + size;
	read->entry_count = entries;
	init_completion(&read->done);
	return read;
}

static int exmap_read_make_room(struct exmap_read *read, u32 parts)
{
	if (!exmap_allocation_fails())
		read->parts = kvmalloc_array(parts, sizeof(*read->parts), EXMAP_GFP);
	read->part_room = parts;
	return read->parts ? 0 : -ENOMEM;
}

/* Also in interrupts. */
static void exmap_read_free(struct exmap_read *read)
{
	fput(read->backing);
	kvfree(read->parts);
	kvfree(read);
}

/* ---- pages ---- */

static void exmap_parts_drop(struct exmap *map, struct bio_vec *parts, u32 count)
{
	while (count--)
		exmap_frame_drop(map, page_private(parts[count].bv_page));
}

/* Holds the pages of an entry: 0, or why not, with none of them held. */
static int exmap_hold_entry(struct exmap_read *read, struct exmap_walk *walk, const struct exmap_entry *entry)
{
	u32 first = read->part_count, at, frame;
	int ret = 0;

	for (at = 0; at < entry->length && !ret; at++) {
		ret = exmap_frame_hold(walk, (u64)entry->page + at, &frame);
		if (!ret)
			read->parts[read->part_count++] = (struct bio_vec) {
				.bv_page = exmap_frame_page(&read->map->frames[frame]), .bv_len = PAGE_SIZE,
			};
	}
	if (!ret)
		return 0;
	exmap_walk_end(walk);
	exmap_parts_drop(read->map, read->parts + first, read->part_count - first);
	read->part_count = first;
	return ret == -ENOENT ? -EAGAIN : ret;	/* freed since it was allocated */
}

/*
 * Allocates what is not there and holds all of it. The result of an entry is its length or an error: then none of its
 * pages is held.
 */
static int exmap_read_prepare(struct exmap_read *read, struct exmap_interface *interface)
{
	struct exmap *map = read->map;
	struct vm_area_struct *vma;
	struct exmap_walk walk;
	struct exmap_call call;
	unsigned int i;
	int ret;

	exmap_call_begin(&call, map, interface, read->entries, read->entry_count, false);
	ret = exmap_alloc(&call);
	exmap_call_end(&call);
	ret = ret ?: exmap_lock_mm(map, false);
	if (ret)
		return ret;
	vma = exmap_vma(map);
	if (vma)
		walk = exmap_walk_of(map, vma);
	for (i = 0; i < read->entry_count; i++) {
		struct exmap_entry *entry = &read->entries[i];

		if (entry->result >= 0 && entry->result < entry->length)
			entry->result = -ENOMEM;
		if (entry->result > 0)
			entry->result = (vma ? exmap_hold_entry(read, &walk, entry) : -ENXIO) ?: entry->length;
	}
	if (vma)
		exmap_walk_end(&walk);
	mmap_read_unlock(map->mm);
	exmap_delay(EXMAP_DELAY_READ);
	return 0;
}

/* ---- vectors ---- */

/* The result of the whole: pages of all entries, or the bytes of a read call. */
static long exmap_read_result(struct exmap_read *read)
{
	unsigned int i, vector = 0;

	if (!read->interface)
		return read->vectors[0].result;
	/* Entries that were held have a vector each, in the same order. */
	for (i = 0; i < read->entry_count; i++) {
		struct exmap_entry *entry = &read->entries[i];
		long result;

		if (entry->result <= 0)
			continue;
		result = read->vectors[vector++].result;
		entry->result = result < 0 ? result : result >> PAGE_SHIFT;
	}
	return exmap_write_results(read->interface, read->entries, read->entry_count);
}

static void exmap_read_end_in_task(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct exmap_read *read = *(struct exmap_read **)cmd->pdu;
	long result = exmap_read_result(read);

	exmap_read_free(read);
	io_uring_cmd_done(cmd, result, 0, issue_flags);
}

/* The last vector has ended after whoever began them went on, or waits. */
static void exmap_read_end(struct exmap_read *read)
{
	if (read->cmd) {
		io_uring_cmd_complete_in_task(read->cmd, exmap_read_end_in_task);
	} else if (read->iocb) {
		struct kiocb *iocb = read->iocb;
		long result = exmap_read_result(read);

		exmap_read_free(read);
		if (result > 0)
			iocb->ki_pos += result;
		iocb->ki_complete(iocb, result);
	} else {
		complete(&read->done);
	}
}

/* Also in interrupts. */
static void exmap_vector_ended(struct exmap_vector *vector, long result)
{
	struct exmap_read *read = vector->read;
	struct exmap *map = read->map;

	if (result == -ERESTARTSYS || result == -ERESTARTNOINTR || result == -ERESTARTNOHAND ||
	    result == -ERESTART_RESTARTBLOCK)
		result = -EINTR;
	vector->result = result;
	exmap_parts_drop(map, vector->parts, vector->part_count);
	exmap_count(map, reads, 1);
	if (result < 0)
		exmap_count(map, reads_failed, 1);
	else
		exmap_count(map, pages_read, result >> PAGE_SHIFT);
}

static void exmap_vector_complete(struct kiocb *kiocb, long result)
{
	struct exmap_vector *vector = container_of(kiocb, struct exmap_vector, kiocb);
	struct exmap_read *read = vector->read;

	exmap_vector_ended(vector, result);
	if (atomic_dec_and_test(&read->pending))
		exmap_read_end(read);
}

static struct exmap_vector *exmap_vector_add(struct exmap_read *read, u32 part_count, loff_t position)
{
	struct exmap_vector *vector = &read->vectors[read->vector_count++];
	u32 i;

	vector->read = read;
	vector->part_count = part_count;
	for (i = 0; i < part_count; i++)
		vector->bytes += vector->parts[i].bv_len;
	init_sync_kiocb(&vector->kiocb, read->backing);
	vector->kiocb.ki_complete = exmap_vector_complete;
	vector->kiocb.ki_pos = position;
	return vector;
}

static void exmap_vector_begin(struct exmap_vector *vector)
{
	struct iov_iter iter;
	ssize_t ret;

	iov_iter_bvec(&iter, READ, vector->parts, vector->part_count, vector->bytes);
	ret = vfs_iocb_iter_read(vector->read->backing, &vector->kiocb, &iter);
	if (ret != -EIOCBQUEUED) {
		exmap_vector_ended(vector, ret);
		atomic_dec(&vector->read->pending);	/* not the last: whoever begins them counts as one */
	}
}

/*
 * Begins all. False: they are under way, and the read is not the caller's any more, unless it waits for `done`. Reads
 * through the page cache wait for the device, so that is told of all of them first.
 */
static bool exmap_vectors_begin(struct exmap_read *read)
{
	unsigned int i, count = read->vector_count;

	atomic_set(&read->pending, count + 1);
	for (i = 0; i < count && count > 1; i++) {
		struct exmap_vector *vector = &read->vectors[i];

		if (!(vector->kiocb.ki_flags & IOCB_DIRECT))
			vfs_fadvise(read->backing, vector->kiocb.ki_pos, vector->bytes, POSIX_FADV_WILLNEED);
	}
	for (i = 0; i < count; i++)
		exmap_vector_begin(&read->vectors[i]);
	return atomic_dec_and_test(&read->pending);
}

/* ---- EXMAP_READ ---- */

static int exmap_entries_prepare(struct exmap_read *read, const struct exmap_action *action)
{
	unsigned int i;
	u32 pages = 0, at = 0;
	int ret;

	ret = exmap_entries_get(read->map, read->interface, read->entries, read->entry_count);
	for (i = 0; i < read->entry_count; i++)
		pages += read->entries[i].length;
	if (ret || pages > EXMAP_READ_PAGES_MAX)
		return ret ?: -E2BIG;
	ret = exmap_read_make_room(read, pages);
	ret = ret ?: exmap_read_prepare(read, read->interface);
	for (i = 0; i < read->entry_count && !ret; i++) {
		struct exmap_entry *entry = &read->entries[i];

		if (entry->result <= 0)
			continue;
		read->vectors[read->vector_count].parts = read->parts + at;
		exmap_vector_add(read, entry->length, action->offset + ((u64)entry->page << PAGE_SHIFT));
		at += entry->length;
	}
	return ret;
}

/* Pages, or -EIOCBQUEUED if `cmd` completes later. */
long exmap_read_entries(struct exmap *map, struct exmap_interface *interface, const struct exmap_action *action,
			struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct exmap_read *read;
	long ret;

	/* It waits for locks and memory: io_uring asks again from its own thread, which does not wait for devices. */
	if (cmd && issue_flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	read = exmap_read_new(map, action->entry_count, action->entry_count);
	if (IS_ERR(read))
		return PTR_ERR(read);
	read->interface = interface;
	read->cmd = cmd;
	if (cmd)
		*(struct exmap_read **)cmd->pdu = read;
	ret = exmap_entries_prepare(read, action);
	if (!ret && !exmap_vectors_begin(read)) {
		if (cmd)
			return -EIOCBQUEUED;
		wait_for_completion(&read->done);
	}
	ret = ret ?: exmap_read_result(read);
	exmap_read_free(read);
	return ret;
}

/* ---- read calls ---- */

/* The pages of a buffer as entries, one for each of its parts; returns how many bytes of it are in so many pages. */
static ssize_t exmap_buffer_entries(struct exmap_read *read, const struct iov_iter *to, u32 *pages)
{
	struct exmap *map = read->map;
	struct iov_iter iter = *to;
	unsigned long base = READ_ONCE(map->base);
	ssize_t bytes = 0;

	read->entry_count = 0;
	*pages = 0;
	while (iov_iter_count(&iter) && *pages < EXMAP_READ_PAGES_MAX) {
		struct exmap_entry *entry = &read->entries[read->entry_count];
		size_t length, offset;
		unsigned long address = compat_iter_part(&iter, &length);

		if (length) {
			offset = address - base;
			if (!base || !exmap_checked(bound_buffer, address >= base &&
						    offset < map->map_pages << PAGE_SHIFT &&
						    length <= (map->map_pages << PAGE_SHIFT) - offset))
				return bytes ?: -EFAULT;
			length = min(length, ((EXMAP_READ_PAGES_MAX - *pages) << PAGE_SHIFT) - offset_in_page(offset));
			entry->page = offset >> PAGE_SHIFT;
			entry->length = DIV_ROUND_UP(offset_in_page(offset) + length, PAGE_SIZE);
			*pages += entry->length;
			read->entry_count++;
			bytes += length;
		}
		iov_iter_advance(&iter, length);
	}
	return bytes;
}

/* Where in its first and last page each part of the buffer begins and ends. */
static void exmap_buffer_trim(struct exmap_read *read, const struct iov_iter *to, ssize_t bytes)
{
	struct bio_vec *part = read->parts;
	struct iov_iter iter = *to;

	while (bytes) {
		size_t length, left;
		unsigned long address = compat_iter_part(&iter, &length);

		length = min_t(size_t, length, bytes);
		for (left = length; left; part++) {
			part->bv_offset = offset_in_page(address);
			part->bv_len = min(left, PAGE_SIZE - part->bv_offset);
			address += part->bv_len;
			left -= part->bv_len;
		}
		iov_iter_advance(&iter, length);
		bytes -= length;
	}
}

static ssize_t exmap_buffer_prepare(struct exmap_read *read, const struct iov_iter *to, loff_t position)
{
	struct exmap *map = read->map;
	/* Threads on different processors use different interfaces. */
	unsigned int index = raw_smp_processor_id() % map->interface_count;
	ssize_t bytes;
	unsigned int i;
	u32 pages;
	int ret;

	bytes = exmap_buffer_entries(read, to, &pages);
	if (bytes <= 0)
		return bytes;
	ret = exmap_read_make_room(read, pages);
	ret = ret ?: exmap_read_prepare(read, map->interfaces[index]);
	for (i = 0; i < read->entry_count && !ret; i++)
		ret = min_t(int, read->entries[i].result, 0);
	if (ret) {
		exmap_parts_drop(map, read->parts, read->part_count);
		return ret;
	}
	exmap_buffer_trim(read, to, bytes);
	read->vectors[0].parts = read->parts;
	exmap_vector_add(read, read->part_count, position);
	return bytes;
}

ssize_t exmap_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct exmap *map = iocb->ki_filp->private_data;
	struct exmap_read *read;
	ssize_t ret;

	ret = exmap_may_use(map);
	if (ret)
		return ret;
	if (!iter_is_iovec(to) && !iter_is_ubuf(to))
		return -EINVAL;
	if (iocb->ki_flags & IOCB_NOWAIT || iocb->ki_filp->f_flags & O_NONBLOCK)
		return -EAGAIN;
	if (!iov_iter_count(to))
		return 0;
	read = exmap_read_new(map, 1, iter_is_iovec(to) ? to->nr_segs : 1);
	if (IS_ERR(read))
		return PTR_ERR(read);
	if (!is_sync_kiocb(iocb))
		read->iocb = iocb;
	ret = exmap_buffer_prepare(read, to, iocb->ki_pos);
	if (ret > 0 && !exmap_vectors_begin(read)) {
		if (read->iocb)
			return -EIOCBQUEUED;
		wait_for_completion(&read->done);
	}
	if (ret > 0) {
		ret = read->vectors[0].result;
		if (ret > 0)
			iocb->ki_pos += ret;
	}
	exmap_read_free(read);
	return ret;
}
