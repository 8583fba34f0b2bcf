/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place with conditions on the kernel's version, besides async_fork/Kbuild: it chooses one of compat/linux_*.h,
 * for exmap one of compat/exmap_*.h, which have the same names, and async_fork/arch_*.h for what depends on the
 * architecture. What is hooked is named in async_fork/hook_list.h; hooks of functions that differ between versions are in
 * compat/[a-z]*_VERSION*.c, of which Kbuild chooses.
 */
#ifndef _STILLFRAME_COMPAT_H
#define _STILLFRAME_COMPAT_H

#include <linux/version.h>
#include <linux/mm.h>

#ifdef CONFIG_HIGHPTE
#error "page tables are expected in the direct map"
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#ifdef EXMAP_MODULE
#include "compat/exmap_6_1.h"
#else
#include "compat/linux_6_1.h"
#endif
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#ifdef EXMAP_MODULE
#include "compat/exmap_6_12.h"
#else
#include "compat/linux_6_12.h"
#endif
#else
#error "these modules know the page table walkers of Linux 6.1 and 6.12 only: docs/internals/kernel-module.md, section Other kernels"
#endif
#ifndef EXMAP_MODULE
/* Kernels whose spinlocks are debugged have no room for one in struct page. */
#if COMPAT_SPLIT_TABLE_LOCKS && ALLOC_SPLIT_PTLOCKS
#define AF_TABLE_LOCKS_ALLOCATED
#endif
#if defined(CONFIG_X86_64)
#include "async_fork/arch_x86.h"
#elif defined(CONFIG_ARM64)
#include "async_fork/arch_arm64.h"
#endif
#endif
#if !defined(CONFIG_X86_64) && !defined(CONFIG_ARM64)
#error "these modules are for x86-64 and arm64"
#endif

#endif
