/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _AF_SYMBOLS_H
#define _AF_SYMBOLS_H

#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/cgroup.h>
#include "common/lookup.h"

#ifdef AF_TABLE_LOCKS_ALLOCATED
#define AF_TABLE_LOCK_SYMBOLS AF_VERSION_TABLE_LOCK_SYMBOLS
#else
#define AF_TABLE_LOCK_SYMBOLS
#endif

#ifdef __PAGETABLE_P4D_FOLDED
#define AF_P4D_SYMBOLS
#define af_p4d_alloc(mm, pgd, addr) 0	/* a kernel for four levels: pgd_none() is never true */
#else
#define AF_P4D_SYMBOLS AF_SYMBOL(int, __p4d_alloc, (struct mm_struct *, pgd_t *, unsigned long))
#define af_p4d_alloc(mm, pgd, addr) af_sym(__p4d_alloc)(mm, pgd, addr)
#endif

/* Functions of the kernel that are not exported: AF_SYMBOL(return type, name, parameter types). */
#define AF_SYMBOLS								\
	AF_SYMBOL(int, __pud_alloc, (struct mm_struct *, p4d_t *, unsigned long)) \
	AF_SYMBOL(int, __pmd_alloc, (struct mm_struct *, pud_t *, unsigned long)) \
	AF_SYMBOL(void, pmd_install, (struct mm_struct *, pmd_t *, pgtable_t *)) \
	AF_SYMBOL(int, swap_duplicate, (swp_entry_t))				\
	AF_SYMBOL(int, add_swap_count_continuation, (swp_entry_t, gfp_t))	\
	AF_SYMBOL(void, migration_entry_wait, (struct mm_struct *, pmd_t *, unsigned long)) \
	AF_VERSION_SYMBOLS							\
	AF_VERSION_ARCH_SYMBOLS							\
	AF_P4D_SYMBOLS								\
	AF_ARCH_SYMBOLS								\
	AF_TABLE_LOCK_SYMBOLS							\
	AF_SYMBOL(unsigned long, ftrace_location, (unsigned long))		\
	AF_SYMBOL(int, cgroup_add_dfl_cftypes, (struct cgroup_subsys *, struct cftype *)) \
	AF_SYMBOL(int, cgroup_add_legacy_cftypes, (struct cgroup_subsys *, struct cftype *)) \
	AF_SYMBOL(int, cgroup_rm_cftypes, (struct cftype *))

#define AF_SYMBOL SYMBOL_DECLARE
AF_SYMBOLS
#undef AF_SYMBOL

#define af_sym SYMBOL

extern spinlock_t *af_mmlist_lock;
extern struct mm_struct *af_init_mm;
extern const void *af_ksm_walk;		/* a struct mm_walk_ops; NULL: this kernel's KSM has none, or it is not known */

unsigned long af_symbol(const char *name);
int af_symbols_find(void);
/* After it. */
int af_variables_find(void);
int af_layout_check(void);

#endif
