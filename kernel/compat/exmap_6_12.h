/* SPDX-License-Identifier: GPL-2.0 */
/* Linux 6.12, for exmap. exmap_6_1.h has the same names. */
#ifndef _STILLFRAME_EXMAP_6_12_H
#define _STILLFRAME_EXMAP_6_12_H

#include <linux/fs.h>
#include <linux/io_uring/cmd.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/page_table_check.h>
#include <linux/uio.h>

#ifdef CONFIG_ARM64
#define EXMAP_LINK_SECONDARY
#define EXMAP_SECONDARY_SYMBOL(X)							\
	X(void, __mmu_notifier_arch_invalidate_secondary_tlbs, (struct mm_struct *, unsigned long, unsigned long))
#else
#define EXMAP_SECONDARY_SYMBOL(X)
#endif

#define EXMAP_VERSION_NOTIFIER_SYMBOLS(X)							\
	X(void, __mmu_notifier_invalidate_range_end, (struct mmu_notifier_range *))	\
	EXMAP_SECONDARY_SYMBOL(X)

#define compat_notifier_range(range, vma, start, end)					\
	mmu_notifier_range_init(range, MMU_NOTIFY_CLEAR, 0, (vma)->vm_mm, start, end)
#define compat_notifier_end(range) SYMBOL(__mmu_notifier_invalidate_range_end)(range)

/* Not pte_mkwrite(), which is not exported: it is about shadow stacks. */
#define compat_pte_mkwrite(pte) pte_mkwrite_novma(pte)

static inline void compat_vm_flags(struct vm_area_struct *vma, unsigned long set, unsigned long clear)
{
	vm_flags_mod(vma, set, clear);
}

/* Of special entries. What set_pte_at() does besides for others on arm64 calls functions that are not exported. */
static inline void compat_set_pte(struct mm_struct *mm, unsigned long address, pte_t *pte, pte_t value)
{
	page_table_check_ptes_set(mm, pte, value, 1);
	set_pte(pte, value);
}

/* Not add_mm_counter(): its tracepoint is not exported. */
static inline void compat_rss_add(struct mm_struct *mm, int member, long pages)
{
	percpu_counter_add(&mm->rss_stat[member], pages);
}

/* The next part of a buffer of user space. */
static inline unsigned long compat_iter_part(const struct iov_iter *iter, size_t *length)
{
	*length = min(iter->count, iter_iov_len(iter));
	return (unsigned long)iter_iov_addr(iter);
}

static inline const void *compat_uring_payload(const struct io_uring_cmd *cmd)
{
	return io_uring_sqe_cmd(cmd->sqe);
}

#endif
