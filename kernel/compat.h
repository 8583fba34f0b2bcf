/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place with conditions on the kernel's version; what depends on the architecture is in async_fork/arch_*.h,
 * one of which is chosen here. What is hooked is named in async_fork/hook_list.h; a kernel in which a hooked function
 * has another signature needs a case here first.
 */
#ifndef _STILLFRAME_COMPAT_H
#define _STILLFRAME_COMPAT_H

#include <linux/version.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/ftrace.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#error "async_fork knows the page table walkers of Linux 6.1 only: docs/kernel-module.md, section Later kernels"
#endif
#ifdef CONFIG_HIGHPTE
#error "page tables are expected in the direct map"
#endif
#if defined(CONFIG_X86_64)
#include "async_fork/arch_x86.h"
#elif defined(CONFIG_ARM64)
#include "async_fork/arch_arm64.h"
#else
#error "async_fork is for x86-64 and arm64"
#endif

/* 6.2 made the counters percpu and took the array away. */
static inline void compat_add_rss(struct mm_struct *mm, int member, long pages)
{
	atomic_long_add(pages, &mm->rss_stat.count[member]);
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

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS
/* 6.4 took an ftrace_ops instead of an address. */
static inline int compat_attach(unsigned long ip, void *trampoline)
{
	return register_ftrace_direct(ip, (unsigned long)trampoline);
}

static inline int compat_detach(unsigned long ip, void *trampoline)
{
	return unregister_ftrace_direct(ip, (unsigned long)trampoline);
}
#endif

#endif
