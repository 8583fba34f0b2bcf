/* SPDX-License-Identifier: GPL-2.0 */
/* Linux 6.1. linux_6_12.h has the same names. */
#ifndef _STILLFRAME_LINUX_6_1_H
#define _STILLFRAME_LINUX_6_1_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/swapops.h>

#ifdef CONFIG_X86_64
#include "linux_6_1_x86.h"
#else
#include "linux_6_1_arm64.h"
#endif

struct module;

/* Part of async_fork/hook_list.h: what this version has besides, and what starts and ends a session. */
#define AF_VERSION_HOOK_LIST							\
	AF_HOOK(ALWAYS, int, internal_get_user_pages_fast,			\
		(unsigned long, unsigned long, unsigned int, struct page **))	\
	AF_HOOK(LIVE, long, change_protection,					\
		(struct mmu_gather *, struct vm_area_struct *, unsigned long, unsigned long, pgprot_t, unsigned long)) \
	AF_HOOK(LIVE, unsigned long, move_page_tables,				\
		(struct vm_area_struct *, unsigned long, struct vm_area_struct *, unsigned long, unsigned long, bool)) \
	AF_HOOK(LIVE, struct page *, follow_page, (struct vm_area_struct *, unsigned long, unsigned int)) \
	AF_HOOK(LIVE, int, mfill_atomic_install_pte,				\
		(struct mm_struct *, pmd_t *, struct vm_area_struct *, unsigned long, struct page *, bool, bool)) \
	AF_HOOK(LIVE, ssize_t, mcopy_atomic,					\
		(struct mm_struct *, unsigned long, unsigned long, unsigned long, atomic_t *, __u64)) \
	AF_HOOK(LIVE, ssize_t, mfill_zeropage, (struct mm_struct *, unsigned long, unsigned long, atomic_t *))

#define AF_FORK_HOOK_LIST							\
	AF_HOOK(ALWAYS, int, dup_mmap, (struct mm_struct *, struct mm_struct *))

/* Part of af_calls in async_fork/layout.c. */
#define AF_VERSION_CALLS							\
	{ "internal_get_user_pages_fast", 4 },					\
	{ "unmap_page_range", 2 },						\
	{ "change_protection", 3 },						\
	{ "change_prot_numa", 2 },						\
	{ "move_page_tables", 3 },						\
	{ "__walk_page_range", 3 },						\
	{ "__oom_reap_task_mm", 2 },						\
	{ "mfill_atomic_install_pte", 3 },					\
	{ "dup_mmap", 1 },							\
	{ "pmd_clear_bad", 10 },

/* What the lock of a page table is part of. */
#define COMPAT_SPLIT_TABLE_LOCKS USE_SPLIT_PTE_PTLOCKS
#define COMPAT_TABLE struct page
#define compat_table_of(page) (page)
#define AF_VERSION_TABLE_LOCK_SYMBOLS						\
	AF_SYMBOL(bool, ptlock_alloc, (struct page *))			\
	AF_SYMBOL(void, ptlock_free, (struct page *))

/* Part of AF_SYMBOLS in async_fork/symbols.h. */
#define AF_VERSION_SYMBOLS							\
	AF_SYMBOL(void, swap_free, (swp_entry_t))

#define COMPAT_VM_SHADOW_STACK VM_NONE	/* there are none */

#define compat_swap_free(entry) af_sym(swap_free)(entry)

typedef int (*compat_symbol_visitor)(void *, const char *, struct module *, unsigned long);
#define COMPAT_SYMBOL_VISITOR(function)	\
	int function(void *unused, const char *name, struct module *module, unsigned long address)

/* GUP under mmap_lock. As in the kernel, what is pinned for long is not given up for a moment to wait for a page. */
static inline int compat_gup_slow(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	unsigned int asked = flags & ~(FOLL_PIN | FOLL_GET);
	int ret;

	if (!(flags & FOLL_PIN))
		return get_user_pages_unlocked(start, nr_pages, pages, asked);
	if (!(flags & FOLL_LONGTERM))
		return pin_user_pages_unlocked(start, nr_pages, pages, asked);
	mmap_read_lock(current->mm);
	ret = pin_user_pages(start, nr_pages, asked, pages, NULL);
	mmap_read_unlock(current->mm);
	return ret;
}

static inline void compat_add_rss(struct mm_struct *mm, int member, long pages)
{
	atomic_long_add(pages, &mm->rss_stat.count[member]);
}

static inline int compat_rss_member(struct page *page)
{
	return mm_counter(page);
}

/*
 * One more mapping of an anonymous page, which thereby stops being exclusive. Not page_try_dup_anon_rmap(): that
 * refuses pages that may be pinned, and asks a VMA for MMF_HAS_PINNED. See invariant 8.
 */
static inline void compat_dup_anon_rmap(struct page *page)
{
	if (PageAnonExclusive(page))
		ClearPageAnonExclusive(page);
	__page_dup_rmap(page, false);
}

static inline void compat_dup_file_rmap(struct page *page)
{
	page_dup_file_rmap(page, false);
}

/* Entries that are copied as they are, besides those for poisoned pages. */
static inline bool compat_is_error_entry(swp_entry_t entry)
{
	return is_swapin_error_entry(entry);
}

/* What the child gets for a marker, which may be nothing: it has no userfaultfd. */
static inline pte_t compat_copy_marker(swp_entry_t entry)
{
	return __pte(0);
}

/* Whose RSS counters include the pages of a shared table. */
static inline struct mm_struct *compat_table_mm(struct page *table)
{
	return table->pt_mm;
}

static inline void compat_set_table_mm(struct page *table, struct mm_struct *mm)
{
	table->pt_mm = mm;
}

/* migration_entry_wait() does not ask whether the entry is bad. */
static inline pmd_t *compat_pmd_to_wait(pmd_t *pmd, pmd_t *copy)
{
	return pmd;
}

#endif
