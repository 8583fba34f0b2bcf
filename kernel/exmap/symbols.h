/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _EXMAP_SYMBOLS_H
#define _EXMAP_SYMBOLS_H

#include <linux/mmu_notifier.h>

#include "common/lookup.h"

#ifdef CONFIG_X86_64
#define EXMAP_ARCH_SYMBOLS(X)								\
	X(void, flush_tlb_mm_range, (struct mm_struct *, unsigned long, unsigned long, unsigned int, bool))
#else
#define EXMAP_ARCH_SYMBOLS(X)
#endif

/* Functions of the kernel that are not exported. */
#define EXMAP_SYMBOLS(X)								\
	X(int, __mmu_notifier_invalidate_range_start, (struct mmu_notifier_range *))	\
	EXMAP_VERSION_SYMBOLS(X)							\
	EXMAP_ARCH_SYMBOLS(X)

EXMAP_SYMBOLS(SYMBOL_DECLARE)

#endif
