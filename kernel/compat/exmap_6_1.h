/* SPDX-License-Identifier: GPL-2.0 */
/* Linux 6.1, for exmap. exmap_6_12.h has the same names. */
#ifndef _STILLFRAME_EXMAP_6_1_H
#define _STILLFRAME_EXMAP_6_1_H

#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/page_table_check.h>
#include <linux/uio.h>

#define EXMAP_VERSION_NOTIFIER_SYMBOLS(X)							\
	X(void, __mmu_notifier_invalidate_range_end, (struct mmu_notifier_range *, bool))

#define compat_notifier_range(range, vma, start, end)					\
	mmu_notifier_range_init(range, MMU_NOTIFY_CLEAR, 0, vma, (vma)->vm_mm, start, end)
#define compat_notifier_end(range) SYMBOL(__mmu_notifier_invalidate_range_end)(range, false)

#define compat_pte_mkwrite(pte) pte_mkwrite(pte)

static inline void compat_vm_flags(struct vm_area_struct *vma, unsigned long set, unsigned long clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}

/* Of special entries. What set_pte_at() does besides for others on arm64 calls functions that are not exported. */
static inline void compat_set_pte(struct mm_struct *mm, unsigned long address, pte_t *pte, pte_t value)
{
	page_table_check_pte_set(mm, address, pte, value);
	set_pte(pte, value);
}

/* Not add_mm_counter(): its tracepoint is not exported. */
static inline void compat_rss_add(struct mm_struct *mm, int member, long pages)
{
	atomic_long_add(pages, &mm->rss_stat.count[member]);
}

/* The next part of a buffer of user space. */
static inline unsigned long compat_iter_part(const struct iov_iter *iter, size_t *length)
{
	struct iovec part;

	if (iter_is_ubuf(iter)) {
		*length = iter->count;
		return (unsigned long)iter->ubuf + iter->iov_offset;
	}
	part = iov_iter_iovec(iter);
	*length = part.iov_len;
	return (unsigned long)part.iov_base;
}

static inline const void *compat_uring_payload(const struct io_uring_cmd *cmd)
{
	return cmd->cmd;
}

#endif
