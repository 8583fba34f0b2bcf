/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _AF_SYMBOLS_H
#define _AF_SYMBOLS_H

#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/cgroup.h>

/* Functions of the kernel that are not exported: AF_SYMBOL(return type, name, parameter types). */
#define AF_SYMBOLS								\
	AF_SYMBOL(int, __pud_alloc, (struct mm_struct *, p4d_t *, unsigned long)) \
	AF_SYMBOL(int, __pmd_alloc, (struct mm_struct *, pud_t *, unsigned long)) \
	AF_SYMBOL(void, pmd_install, (struct mm_struct *, pmd_t *, pgtable_t *)) \
	AF_SYMBOL(int, swap_duplicate, (swp_entry_t))				\
	AF_SYMBOL(void, swap_free, (swp_entry_t))				\
	AF_SYMBOL(int, add_swap_count_continuation, (swp_entry_t, gfp_t))	\
	AF_SYMBOL(void, migration_entry_wait, (struct mm_struct *, pmd_t *, unsigned long)) \
	AF_ARCH_SYMBOLS								\
	AF_SYMBOL(unsigned long, ftrace_location, (unsigned long))		\
	AF_SYMBOL(int, cgroup_add_dfl_cftypes, (struct cgroup_subsys *, struct cftype *)) \
	AF_SYMBOL(int, cgroup_add_legacy_cftypes, (struct cgroup_subsys *, struct cftype *)) \
	AF_SYMBOL(int, cgroup_rm_cftypes, (struct cftype *))

struct af_symbols {
#define AF_SYMBOL(ret, name, args) ret (*name) args;
	AF_SYMBOLS
#undef AF_SYMBOL
	spinlock_t *mmlist_lock;
	struct mm_struct *init_mm;
};

extern struct af_symbols af_sym;

unsigned long af_symbol(const char *name);
int af_symbols_find(void);
int af_layout_check(void);

#endif
