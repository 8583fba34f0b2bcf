/* SPDX-License-Identifier: GPL-2.0 */
/* Linux 6.12. linux_6_1.h has the same names. */
#ifndef _STILLFRAME_LINUX_6_12_H
#define _STILLFRAME_LINUX_6_12_H

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/percpu_counter.h>
#include <linux/rmap.h>
#include <linux/swapops.h>
#include <linux/userfaultfd_k.h>

#ifdef CONFIG_X86_64
#include "linux_6_12_x86.h"
#else
#include "linux_6_12_arm64.h"
#endif

/* Part of async_fork/hook_list.h: what this version has besides, and what starts and ends a session. */
#define AF_VERSION_HOOK_LIST							\
	AF_HOOK(ALWAYS, int, gup_fast_fallback,					\
		(unsigned long, unsigned long, unsigned int, struct page **))	\
	AF_HOOK(PMD_3, struct page *, follow_page_pte,				\
		(struct vm_area_struct *, unsigned long, pmd_t *, unsigned int, struct dev_pagemap **)) \
	AF_HOOK(LIVE, long, change_protection,					\
		(struct mmu_gather *, struct vm_area_struct *, unsigned long, unsigned long, unsigned long)) \
	AF_HOOK(LIVE, unsigned long, move_page_tables,				\
		(struct vm_area_struct *, unsigned long, struct vm_area_struct *, unsigned long, unsigned long, bool,	\
		 bool))								\
	AF_HOOK(LIVE, struct folio *, folio_walk_start,				\
		(struct folio_walk *, struct vm_area_struct *, unsigned long, folio_walk_flags_t)) \
	AF_HOOK(ALWAYS, ssize_t, mfill_atomic_copy,				\
		(struct userfaultfd_ctx *, unsigned long, unsigned long, unsigned long, uffd_flags_t)) \
	AF_HOOK(ALWAYS, ssize_t, mfill_atomic_zeropage,				\
		(struct userfaultfd_ctx *, unsigned long, unsigned long))	\
	AF_HOOK(ALWAYS, ssize_t, mfill_atomic_poison,				\
		(struct userfaultfd_ctx *, unsigned long, unsigned long, uffd_flags_t)) \
	AF_HOOK(ALWAYS, ssize_t, move_pages,					\
		(struct userfaultfd_ctx *, unsigned long, unsigned long, unsigned long, __u64))

#define AF_FORK_HOOK_LIST							\
	AF_HOOK(ALWAYS, void, uprobe_end_dup_mmap, (void))			\
	AF_HOOK(ALWAYS, void, uprobe_dup_mmap, (struct mm_struct *, struct mm_struct *))

/* Part of af_calls in async_fork/layout.c. */
#define AF_VERSION_CALLS							\
	{ "gup_fast_fallback", 3 },						\
	{ "follow_page_pte", 1 },						\
	{ "unmap_page_range", 2 },						\
	{ "change_protection", 3 },						\
	{ "change_prot_numa", 1 },						\
	{ "move_page_tables", 3 },						\
	{ "__walk_page_range", 4 },						\
	{ "__oom_reap_task_mm", 2 },

/* What the lock of a page table is part of. */
#define COMPAT_SPLIT_TABLE_LOCKS IS_ENABLED(CONFIG_SPLIT_PTE_PTLOCKS)
#define COMPAT_TABLE struct ptdesc
#define compat_table_of(page) page_ptdesc(page)
#define AF_VERSION_TABLE_LOCK_SYMBOLS						\
	AF_SYMBOL(bool, ptlock_alloc, (struct ptdesc *))			\
	AF_SYMBOL(void, ptlock_free, (struct ptdesc *))

/* Part of AF_SYMBOLS in async_fork/symbols.h. */
#define AF_VERSION_SYMBOLS							\
	AF_SYMBOL(void, swap_free_nr, (swp_entry_t, int))			\
	AF_SYMBOL(int, kallsyms_lookup_size_offset, (unsigned long, unsigned long *, unsigned long *))

/* mm/internal.h */
#ifndef FOLL_PIN
#define FOLL_PIN BIT(19)
#define FOLL_FAST_ONLY BIT(20)
#endif

#define COMPAT_VM_SHADOW_STACK VM_SHADOW_STACK

#define compat_swap_free(entry) af_sym(swap_free_nr)(entry, 1)

typedef int (*compat_symbol_visitor)(void *, const char *, unsigned long);
#define COMPAT_SYMBOL_VISITOR(function)	\
	int function(void *unused, const char *name, unsigned long address)

/* GUP under mmap_lock. The flags of mm/internal.h are those that callers may not give. */
static inline int compat_gup_slow(unsigned long start, unsigned long nr_pages, unsigned int flags, struct page **pages)
{
	unsigned int asked = flags & (BIT(16) - 1) & ~FOLL_GET;

	if (flags & FOLL_PIN)
		return pin_user_pages_unlocked(start, nr_pages, pages, asked);
	return get_user_pages_unlocked(start, nr_pages, pages, asked);
}

/* Not add_mm_counter(): it has a tracepoint that is not exported. */
static inline void compat_add_rss(struct mm_struct *mm, int member, long pages)
{
	percpu_counter_add(&mm->rss_stat[member], pages);
}

static inline int compat_rss_member(struct page *page)
{
	return mm_counter(page_folio(page));
}

/*
 * One more mapping of an anonymous page, which thereby stops being exclusive. Not folio_try_dup_anon_rmap_pte(): that
 * refuses pages that may be pinned, and asks a VMA for MMF_HAS_PINNED. See invariant 8. The counters of mappings are
 * raised as for a page of a file, of a large folio the one of the whole besides.
 */
static inline void compat_dup_anon_rmap(struct page *page)
{
	if (PageAnonExclusive(page))
		ClearPageAnonExclusive(page);
	folio_dup_file_rmap_pte(page_folio(page), page);
}

static inline void compat_dup_file_rmap(struct page *page)
{
	folio_dup_file_rmap_pte(page_folio(page), page);
}

/* Entries that are copied as they are, besides those for poisoned pages. */
static inline bool compat_is_error_entry(swp_entry_t entry)
{
	return false;	/* they are markers */
}

/* What the child gets for a marker, which may be nothing: it has no userfaultfd. */
static inline pte_t compat_copy_marker(swp_entry_t entry)
{
	return is_poisoned_swp_entry(entry) ? make_pte_marker(PTE_MARKER_POISONED) : __pte(0);
}

/* Whose RSS counters include the pages of a shared table. */
static inline struct mm_struct *compat_table_mm(struct page *table)
{
	return page_ptdesc(table)->pt_mm;
}

static inline void compat_set_table_mm(struct page *table, struct mm_struct *mm)
{
	page_ptdesc(table)->pt_mm = mm;
}

#endif
